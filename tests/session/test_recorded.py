"""Sessions do what the recorded program did: compactions with their events, and entries that are appended.

Real files, and a provider on loopback behind the real library. Hooks and automatic triggers are not part of
what is compared here.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest

from pi_ls.core.errors import Cancelled, EntryNotFound, PiError
from pi_ls.core.events import CompactionEnd, CompactionStart, Event, SessionCompactFailed
from pi_ls.core.jsonvalues import Json
from pi_ls.session import AgentSession
from tests import sessions
from tests.conformance_data import table, table_lines
from tests.provider import Call, Provider, Reply, error
from tests.session.conftest import Place


async def roles(session: AgentSession) -> str:
    page = await session.messages_page()
    return " ".join(message["role"] for message in page["messages"])


# -- compactions


def flows() -> list[Any]:
    """The compactions by hand in which no hook takes part."""
    rows = [row for row in table("compaction-flow") if row["call"].get("manual") and "before" not in row]
    return [pytest.param(row, id=row["name"]) for row in rows]


SENTENCES = {
    "<no model selected>": "No model selected",
    "Summarization failed: generation hit the token cap and the summary is incomplete": (
        "Summary is incomplete (token limit)"
    ),
    "Summarization failed: upstream 500": "Summarization failed: fake/m200: upstream 500",
    "Summarization attempted to call a tool": "Summary tried to call a tool",
}
"""What is said here where the recorded program has other words."""


def sentence(recorded: str) -> str:
    """A recorded sentence in our words."""
    prefix = "Compaction failed: "
    bare = recorded.removeprefix(prefix)
    return (prefix if bare != recorded else "") + SENTENCES.get(bare, bare)


def scripted(reply: Json | None) -> list[Reply]:
    """The provider's answers of a row."""
    if reply is None:
        return [Reply(text="FIRST"), Reply(text="SECOND")]
    if "content" in reply:
        return [Reply(text="", calls=[Call()], finish="tool_calls")]
    if reply["stopReason"] == "error":
        return [error(400, reply["errorMessage"])]
    return [Reply(text=reply["text"], finish=reply["stopReason"])]


def told(events: list[Event]) -> list[Json]:
    """Starts and ends in the form of the table."""
    found: list[Json] = []
    for event in events:
        match event:
            case CompactionStart():
                found.append({"type": "compaction_start", "reason": event.reason})
            case CompactionEnd():
                message = event.error_message
                found.append(
                    {
                        "type": "compaction_end",
                        "reason": event.reason,
                        "aborted": event.aborted,
                        "willRetry": event.will_retry,
                        "hasResult": event.result is not msgspec.UNSET,
                        "errorMessage": None if message is msgspec.UNSET else message,
                    }
                )
            case _:
                pass
    return found


def failures(events: list[Event]) -> list[Json]:
    """What was told of compactions that came to nothing, in the form of the table."""
    return [
        {
            "type": "session_compact_failed",
            "reason": event.reason,
            "willRetry": event.will_retry,
            "fromExtension": event.from_extension,
            "aborted": event.aborted,
            "hasErrorMessage": event.error_message is not msgspec.UNSET,
        }
        for event in events
        if isinstance(event, SessionCompactFailed)
    ]


async def carried_out(session: AgentSession, row: Json, provider: Provider) -> Json | PiError:
    """What a row's compaction returns or raises."""
    instructions: str | None = row["call"]["customInstructions"]
    if not row.get("abortDuringSummarization"):
        try:
            return await session.compact(instructions)
        except PiError as error:
            return error
    provider.hold()
    compaction = asyncio.create_task(session.compact(instructions))
    await provider.until(lambda one: bool(one.requests), 60)
    assert await session.abort_compaction()
    with pytest.raises(Cancelled) as cancelled:
        await compaction
    return cancelled.value


@pytest.mark.parametrize("row", flows())
async def test_a_compaction_returns_tells_and_writes_what_was_recorded(row: Json, place: Place):
    lines = table_lines("compaction-flow", row["session"])
    file = sessions.write(place.folder / "s.jsonl", lines)
    before = file.read_bytes()
    place.provider.script = scripted(row.get("reply"))
    models = [] if row.get("noModel") else ["fake/m200"]
    settings = {"keepRecentTokens": row["keepRecentTokens"], "reserveTokens": 1_000, "calibrate": False}
    session = await place.open(file, models=models, **settings)
    if row.get("noModel"):
        session.model = None

    outcome = await carried_out(session, row, place.provider)

    expected = row["expected"]
    assert len(place.provider.requests) == expected["llmCalls"]
    if isinstance(outcome, PiError):
        assert outcome.message == sentence(expected["thrown"])
        assert file.read_bytes() == before
    else:
        returned = outcome | {"firstKept": outcome["firstKeptEntryId"]}
        assert returned == returned | expected["returned"]
        [entry] = sessions.read(file)[len(lines) :]
        [appended] = expected["appended"]
        assert entry == entry | {
            "type": "compaction",
            "id": outcome["entryId"],
            "parentId": appended["parent"],
            "summary": appended["summary"],
            "firstKeptEntryId": appended["firstKept"],
            "tokensBefore": appended["tokensBefore"],
            "details": appended["details"],
        }
        assert (entry.get("fromHook", False), "usage" in entry) == (
            appended["fromHook"],
            appended["hasUsage"],
        )
    wanted = [
        event | ({"errorMessage": sentence(event["errorMessage"])} if event.get("errorMessage") else {})
        for event in expected["events"]
    ]
    assert told(place.events) == wanted
    assert failures(place.events) == [
        event for event in expected["extensionEvents"] if event["type"] == "session_compact_failed"
    ]
    assert await roles(session) == expected["contextRolesAfter"]
    await session.close()


# -- appending


class Recording:
    """Carries out the operations of the table `append-operations` on a session."""

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        self.made: list[str] = []

    def real(self, name: str | None) -> str | None:
        return self.made[int(name[1:])] if name and name.startswith("$") else name

    def name(self, entry_id: str | None) -> str | None:
        return f"${self.made.index(entry_id)}" if entry_id in self.made else entry_id

    async def carry_out(self, name: str, *args: Any) -> None:
        """Raises EntryNotFound."""
        known = {entry.id for entry in self.session.tree.entries}
        await self._carry_out(name, args)
        self.made += [entry.id for entry in self.session.tree.entries if entry.id not in known]

    async def _carry_out(self, name: str, args: tuple[Any, ...]) -> None:
        session = self.session
        match name, args:
            case (("user" | "assistant"), (text,)):
                await session.append({"type": "message", "message": {"role": name, "content": text}})
            case "branch", (target,):
                await session.move(session.entry(self.real(target) or "").id)
            case "reset", ():
                await session.move(None)
            case "label", (target, label):
                await session.set_label(self.real(target) or "", label)
            case "branchWithSummary", (target, summary, *more):
                place = None if target is None else session.entry(self.real(target) or "").id
                body = {
                    "type": "branch_summary",
                    "fromId": session.tree.leaf_id or "root",
                    "summary": summary,
                }
                await session.append(body | _optional(more), under=place)
            case "compaction", (summary, first_kept, tokens_before, *more):
                body = {"type": "compaction", "summary": summary, "firstKeptEntryId": self.real(first_kept)}
                await session.append(body | {"tokensBefore": tokens_before} | _optional(more))
            case "model", (provider, model_id):
                await session.set_model(provider, model_id)
            case "thinking", (level,):
                await session.set_thinking_level(level)
            case "custom", (custom_type, data):
                await session.append({"type": "custom", "customType": custom_type, "data": data})
            case "customMessage", (custom_type, content, display):
                body = {"customType": custom_type, "content": content, "display": display}
                await session.append({"type": "custom_message"} | body)
            case "name", (text,):
                await session.set_name(text)
            case _:
                raise AssertionError(name)

    def written(self, entry_id: str) -> Json:
        """An entry in the form of the table."""
        data = self.session.entry(entry_id).data
        told = {key: value for key, value in data.items() if key not in ("timestamp", "message")}
        if "message" in data:
            told["role"] = data["message"]["role"]
        for key in ("id", "parentId", "targetId", "fromId", "firstKeptEntryId"):
            if key in told:
                told[key] = self.name(told[key])
        return told

    async def drawn(self) -> list[list[Any]]:
        """The tree as names and depths."""
        depths: dict[str | None, int] = {None: -1}
        found: list[list[Any]] = []
        for node in (await self.session.tree_page(filter="all"))["nodes"]:
            depths[node["id"]] = depths[node["parentId"]] + 1
            found.append([self.name(node["id"]), depths[node["id"]]])
        return found

    async def messages(self) -> list[list[str]]:
        page = await self.session.messages_page()
        return [[one["role"], one.get("content", one.get("summary"))] for one in page["messages"]]

    async def looks_as(self, final: Json) -> None:
        """Everything the table says of the end."""
        session = self.session
        assert await self.drawn() == final["tree"]
        assert [self.name(entry.id) for entry in session.tree.path()] == final["branch"]
        assert await self.messages() == final["messages"]
        assert session.name == final["sessionName"]


def _optional(more: list[Any]) -> Json:
    fields = dict(zip(("details", "fromHook"), more, strict=False))
    return {key: value for key, value in fields.items() if value is not None}


@pytest.mark.parametrize("row", table("append-operations"), ids=lambda row: row["name"])
async def test_appending_and_branching_write_what_was_recorded(row: Json, place: Place):
    session = await AgentSession.create(place.environment(), place.events.append)
    recording = Recording(session)
    expected = row["expected"]
    for step in expected["steps"]:
        if "error" in step:
            with pytest.raises(EntryNotFound):
                await recording.carry_out(*step["op"])
        else:
            await recording.carry_out(*step["op"])
        assert recording.name(session.tree.leaf_id) == step["leaf"]
        if "entry" in step:
            assert recording.written(recording.made[-1]) == step["entry"]
    await recording.looks_as(expected["final"])
    assert len(set(recording.made)) == len(recording.made)
    assert all(re.fullmatch("[0-9a-f]{8}", entry_id) for entry_id in recording.made)

    await session.close()
    if session.file.on_disk:
        recording.session = await place.open(session.file.path)
        await recording.looks_as(expected["final"])
        await recording.session.close()
    else:
        assert not {"user", "assistant"} & {op[0] for op in row["operations"]}
        assert not session.file.path.exists()
