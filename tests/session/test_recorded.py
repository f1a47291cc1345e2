"""Sessions do what the recorded program did: compactions with their events, and entries that are appended.

Real files, real extensions, and a provider on loopback behind the real library. When a compaction is due by
itself is recorded in another table.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pi_ls.core.errors import EntryNotFound, PiError
from pi_ls.core.events import CompactionEnd, CompactionStart, Event
from pi_ls.core.jsonvalues import Json
from pi_ls.core.triggers import Due
from pi_ls.session import AgentSession
from pi_ls.session.compacting import FAILURE_PREFIX, compact_automatically
from tests import sessions
from tests.conformance_data import table, table_lines
from tests.provider import Call, Provider, Reply, error
from tests.session.conftest import Place


async def roles(session: AgentSession) -> str:
    """The roles of the context, without a failed answer: it is shown, and left out of what is sent."""
    page = await session.messages_page()
    return " ".join(one["role"] for one in page["messages"] if one.get("stopReason") != "error")


# -- compactions


def flows() -> list[Any]:
    """The compactions, by hand and by themselves."""
    return [pytest.param(row, id=row["name"]) for row in table("compaction-flow")]


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
    prefix = next((one for one in FAILURE_PREFIX.values() if recorded.startswith(one)), "")
    bare = recorded.removeprefix(prefix)
    return prefix + SENTENCES.get(bare, bare)


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


RECORDER = """
import json
from pi_ls import hookimpl

def note(**what):
    with open({record!r}, "a") as file:
        file.write(json.dumps(what) + "\\n")

@hookimpl
def session_compact(compaction_entry, from_extension, reason, will_retry):
    marked = compaction_entry.data.get("fromHook", False)
    note(type="session_compact", reason=reason, willRetry=will_retry, fromExtension=from_extension,
         compactionFromHook=marked)

@hookimpl
def session_compact_failed(reason, error_message, aborted, will_retry, from_extension):
    note(type="session_compact_failed", reason=reason, willRetry=will_retry, fromExtension=from_extension,
         aborted=aborted, hasErrorMessage=error_message is not None)
"""
BEFORE = """
@hookimpl
def session_before_compact(preparation, branch_entries, custom_instructions, reason, will_retry):
    kept = preparation.first_kept_entry_id
    note(type="session_before_compact", reason=reason, willRetry=will_retry, firstKept=kept,
         customInstructions=custom_instructions, branchEntries=len(branch_entries))
    return {answer}
"""
ANSWERS = {
    "nothing": "None",
    "mine:true": '{"compaction": {"summary": "EXTENSION", "firstKeptEntryId": kept, "tokensBefore": 4242, '
    '"details": {"mine": True}}}',
    "compaction": '{"compaction": {"summary": "EXTENSION", "firstKeptEntryId": kept, "tokensBefore": 4242}}',
}
"""What the recorded extension returned, by a word of its description."""


def extend(place: Place, row: Json) -> Path:
    """Install the extension of a row; returns where it writes what it was told."""
    record = place.agent_dir / "record"
    source = RECORDER.replace("{record!r}", repr(str(record)))
    if (before := row.get("before")) is not None:
        word = next((word for word in ANSWERS if word in str(before)), None)
        source += BEFORE.replace("{answer}", ANSWERS[word] if word else repr(before))
    file = place.agent_dir / "extensions" / "recorder.py"
    file.parent.mkdir()
    file.write_text(source)
    return record


def hooks_told(row: Json) -> list[Json]:
    """What the extension of a row must have been told. Here a failure says whether it would have gone on."""
    retries = {"willRetry": row["call"].get("willRetry", False)}
    wanted: list[Json] = row["expected"]["extensionEvents"]
    return [one | (retries if one["type"] == "session_compact_failed" else {}) for one in wanted]


async def carried_out(session: AgentSession, row: Json, provider: Provider) -> Json | PiError | bool:
    """What a row's compaction returns or raises."""
    call: Json = row["call"]

    def begin() -> Coroutine[Any, Any, Json | bool]:
        if call.get("manual"):
            return session.compact(call["customInstructions"])
        due = Due(call["auto"], will_retry=call["willRetry"])
        return session.operate("run", lambda run: compact_automatically(session, run, due))

    if row.get("abortDuringSummarization"):
        provider.hold()
    compaction = asyncio.create_task(begin())
    if row.get("abortDuringSummarization"):
        await provider.until(lambda one: bool(one.requests), 60)
        assert await session.abort_compaction()
    try:
        return await compaction
    except PiError as error:
        return error


@pytest.mark.parametrize("row", flows())
async def test_a_compaction_returns_tells_and_writes_what_was_recorded(row: Json, place: Place):
    lines = table_lines("compaction-flow", row["session"])
    file = sessions.write(place.folder / "s.jsonl", lines)
    before = file.read_bytes()
    record = extend(place, row)
    place.provider.script = scripted(row.get("reply"))
    models = [] if row.get("noModel") else ["fake/m200"]
    settings = {"keepRecentTokens": row["keepRecentTokens"], "reserveTokens": 1_000, "calibrate": False}
    session = await place.open(file, models=models, **settings)
    await session.environment.hooks.ready()
    if row.get("noModel"):
        session.model = None

    outcome = await carried_out(session, row, place.provider)

    expected = row["expected"]
    assert len(place.provider.requests) == expected["llmCalls"]
    if "thrown" in expected:
        assert isinstance(outcome, PiError)
        assert outcome.message == sentence(expected["thrown"])
    elif row["call"].get("manual"):
        assert isinstance(outcome, dict)
        returned = outcome | {"firstKept": outcome["firstKeptEntryId"]}
        assert returned == returned | expected["returned"]
    appended = sessions.read(file)[len(lines) :]
    if not expected["appended"]:
        assert outcome is False or isinstance(outcome, PiError)
        assert file.read_bytes() == before
    for entry, wanted in zip(appended, expected["appended"], strict=True):
        found = {key: entry.get(key) for key in ("type", "summary", "tokensBefore", "details")}
        found |= {"parent": entry["parentId"], "firstKept": entry["firstKeptEntryId"]}
        found |= {"fromHook": entry.get("fromHook", False), "hasUsage": "usage" in entry}
        assert found == wanted
    assert told(place.events) == [
        event | ({"errorMessage": sentence(event["errorMessage"])} if event.get("errorMessage") else {})
        for event in expected["events"]
    ]
    assert await roles(session) == expected["contextRolesAfter"]
    await session.close()
    assert (sessions.read(record) if record.exists() else []) == hooks_told(row)


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
