"""Extensions in a running server, behind a real model: what they are told, and what their failing does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests import sessions
from tests.e2e.office import Desk
from tests.provider import Call, Reply, error

pytestmark = pytest.mark.asyncio(loop_scope="session")

RECORDER = """
import json
from pi_ls import hookimpl
def note(*what):
    with open({record!r}, "a") as file:
        file.write(json.dumps(what) + "\\n")

@hookimpl
def session_before_compact(preparation, branch_entries, custom_instructions, reason, will_retry):
    note("before", reason, will_retry, custom_instructions)

@hookimpl
def session_compact(compaction_entry, from_extension, reason, will_retry):
    note("compact", reason, will_retry, compaction_entry.data["summary"], from_extension)

@hookimpl
def session_compact_failed(reason, error_message, aborted, will_retry, from_extension):
    note("failed", reason, will_retry, error_message, aborted)
"""


def extend(desk: Desk, source: str, name: str = "ext.py") -> Path:
    file = desk.folder / ".pi" / "extensions" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return file


def record(desk: Desk) -> Path:
    file = desk.folder / "record"
    extend(desk, RECORDER.format(record=str(file)), "recorder.py")
    return file


def notes(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def until_noted(file: Path, count: int) -> list[Any]:
    async with asyncio.timeout(20):
        while len(found := notes(file)) < count:
            await asyncio.sleep(0.02)
    return found


SCRIPT = Reply(text="S")
IMPORT = "from pi_ls import hookimpl\nimport asyncio, os, subprocess, sys\n@hookimpl\n"
HOOK = IMPORT + "async def session_before_compact(preparation):\n    "


async def test_a_file_that_cannot_be_loaded_is_named_once_in_the_log(desk: Desk):
    file = extend(desk, "def f(:")
    await desk.open(sessions.two_long_turns(120_000))
    await desk.until_told("extension_error", hook="load")
    logged = [one["message"] for one in desk.server.named("window/logMessage") if str(file) in one["message"]]
    assert [one.partition(": ")[0] for one in logged] == [f"{file}:1"]
    assert logged[0].count(str(file)) == 1


@pytest.mark.parametrize(
    "body",
    ["raise ValueError('no')", "return 5", 'return {"compaction": {"summary": 7, "firstKeptEntryId": "u2"}}'],
)
async def test_a_hook_that_fails_ends_the_compaction_and_the_next_one_works(desk: Desk, body: str):
    file = extend(desk, HOOK + body)
    await desk.open(sessions.two_long_turns(120_000))
    before = desk.file.read_bytes()
    refusal = await desk.refusal("pi.compact")
    assert refusal["data"]["kind"] == "ExtensionError"
    assert refusal["data"]["extension"] == str(file)
    assert desk.events("compaction_start", "compaction_end", "session_compact_failed") == [
        "compaction_start",
        "compaction_end",
        "session_compact_failed",
    ]
    [end] = desk.named("compaction_end")
    assert end["errorMessage"].startswith("Compaction failed: ")
    assert len(desk.named("extension_error")) == 1
    assert desk.file.read_bytes() == before
    assert desk.provider.requests == []
    file.unlink()
    await desk.run("pi.reloadSettings")
    desk.provider.default = SCRIPT
    assert (await desk.run("pi.compact"))["summary"].startswith("S")
    assert (await desk.usage())["tokens"] is None


async def test_a_hook_that_never_returns_is_ended_by_abort(desk: Desk):
    extend(desk, HOOK + "await asyncio.Event().wait()")
    await desk.open(sessions.two_long_turns(120_000))
    before = desk.file.read_bytes()
    compaction = desk.begin("pi.compact")
    await desk.until_told("compaction_start")
    async with asyncio.timeout(2):
        assert (await desk.run("pi.abort"))["aborted"] is True
        answer = await desk.answer(compaction)
    assert answer["error"]["code"] == -32800
    [end] = desk.named("compaction_end")
    assert (end["aborted"], "result" in end, "errorMessage" in end) == (True, False, False)
    assert desk.file.read_bytes() == before
    assert (await desk.usage())["tokens"] == 120_000


async def test_a_hook_that_cancels_is_an_aborted_end_and_no_failure(desk: Desk):
    extend(desk, HOOK + 'return {"cancel": True}')
    await desk.open(sessions.two_long_turns(120_000))
    refusal = await desk.refusal("pi.compact")
    assert (refusal["code"], refusal["message"]) == (-32800, "Compaction cancelled")
    [end] = desk.named("compaction_end")
    assert (end["aborted"], "errorMessage" in end) == (True, False)
    assert desk.events("extension_error") == []
    await desk.run("pi.contextUsage")


async def test_each_attempt_is_told_with_its_reason_and_exactly_one_outcome(desk: Desk):
    file = record(desk)
    quick = {"retry": {"enabled": False}, "compaction": {"autoContinue": False}}
    provider = desk.provider

    await desk.open(sessions.two_long_turns(120_000), quick)
    provider.default = SCRIPT
    await desk.run("pi.compact", customInstructions="LOOK")
    await desk.run("pi.undoCompaction")
    provider.script.append(error(400, "boom"))
    await desk.refusal("pi.compact")
    provider.script.append(Reply(hang=True))
    asked = len(provider.requests)
    compaction = desk.begin("pi.compact")
    await desk.until_asked(asked + 1)
    await desk.run("pi.abortCompaction")
    await desk.answer(compaction)
    manual = notes(file)
    assert [note[0] for note in manual] == ["before", "compact", "before", "failed", "before", "failed"]
    assert all(note[1:3] == ["manual", False] for note in manual)
    assert manual[0][3] == "LOOK"
    assert manual[1][3].startswith("S")
    assert "boom" in manual[3][3]
    assert manual[3][4] is False
    assert manual[5][3:] == [None, True]


async def test_automatic_attempts_are_told_as_what_they_are(desk: Desk):
    file = record(desk)
    settings = {"retry": {"enabled": False}, "compaction": {"autoContinue": False}}
    await desk.open(sessions.two_long_turns(150_000), settings)
    usage = {"prompt_tokens": 189_000, "completion_tokens": 1_000, "total_tokens": 190_000}
    desk.provider.script += [Reply(text="long", usage=usage), Reply(text="S")]
    await desk.run("pi.prompt", text="go")
    await desk.until_told("agent_settled")
    assert [note[:3] for note in await until_noted(file, 2)] == [
        ["before", "threshold", False],
        ["compact", "threshold", False],
    ]


async def test_an_overflow_whose_summary_fails_would_have_been_tried_again(desk: Desk):
    file = record(desk)
    settings = {"retry": {"enabled": False}, "compaction": {"autoContinue": False}}
    await desk.open(sessions.two_long_turns(150_000), settings)
    overflow = error(400, "prompt is too long: 210000 tokens > 200000 maximum")
    desk.provider.script += [overflow, error(400, "no summary today")]
    await desk.run("pi.prompt", text="go")
    await desk.until_told("agent_settled")
    before, failed = await until_noted(file, 2)
    assert before[:3] == ["before", "overflow", True]
    assert failed[:3] == ["failed", "overflow", True]
    assert failed[3].startswith("Context overflow recovery failed: ")
    [end] = desk.named("compaction_end")
    assert end["errorMessage"] == failed[3]
    assert end["willRetry"] is False


async def test_a_threshold_compaction_that_a_hook_breaks_says_so_and_the_run_ends_well(desk: Desk):
    extend(desk, HOOK + "raise ValueError('no')")
    settings = {"retry": {"enabled": False}, "compaction": {"autoContinue": False}}
    await desk.open(sessions.two_long_turns(150_000), settings)
    usage = {"prompt_tokens": 189_000, "completion_tokens": 1_000, "total_tokens": 190_000}
    desk.provider.script += [Reply(text="long", usage=usage)]
    await desk.run("pi.prompt", text="go")
    await desk.until_told("agent_settled")
    [end] = desk.named("compaction_end")
    assert end["errorMessage"].startswith("Auto-compaction failed: The extension ")
    assert len(desk.named("compaction_start")) == 1
    assert "compaction" not in sessions.types(desk.written())
    assert (await desk.run("pi.sessionState")).get("operation") is None


async def test_prompt_and_context_of_a_hook_reach_the_model(desk: Desk):
    extend(
        desk,
        "from pi_ls import hookimpl\n@hookimpl\ndef session_compacting(messages):\n"
        "    return {'prompt': 'SUMMARIZE IN VERSE', 'context': ['the user is in a hurry', 'and hungry'],"
        " 'preserveData': {'mark': 1}}",
    )
    await desk.open(sessions.two_long_turns(120_000))
    desk.provider.default = SCRIPT
    result = await desk.run("pi.compact")
    assert result["preserveData"] == {"mark": 1}
    assert result["fromExtension"] is False
    [request] = desk.provider.requests
    assert "SUMMARIZE IN VERSE" in request.prompt
    assert "<additional-context>" in request.prompt
    assert "the user is in a hurry" in request.prompt


CANCELLING = {"cancels": "return {'cancel': True}", "raises": "raise ValueError('no')"}


@pytest.mark.parametrize("how", ["abort", *CANCELLING])
async def test_a_navigation_that_is_not_to_be_leaves_no_trace(desk: Desk, how: str):
    if how in CANCELLING:
        extend(
            desk, f"from pi_ls import hookimpl\n@hookimpl\ndef session_before_tree():\n    {CANCELLING[how]}"
        )
    await desk.open(sessions.fork_with_two_branches())
    before = desk.file.read_bytes()
    desk.provider.script.append(Reply(hang=True))
    navigation = desk.begin("pi.navigateTree", targetId="Ff", summarize=True)
    if how == "abort":
        await desk.until_asked()
        assert (await desk.run("pi.abortBranchSummary"))["aborted"] is True
    answer = await desk.answer(navigation)
    if how == "raises":
        assert answer["error"]["data"]["kind"] == "ExtensionError"
        assert len(desk.named("extension_error")) == 1
    else:
        assert answer["result"]["cancelled"] is True
        assert answer["result"].get("aborted") is (True if how == "abort" else None)
    state = await desk.run("pi.sessionState")
    assert state["leafId"] == "Dd"
    assert state.get("operation") is None
    assert desk.file.read_bytes() == before
    assert desk.events("session_tree") == []
    desk.provider.script.clear()
    if how in CANCELLING:
        extend(desk, "from pi_ls import hookimpl\n@hookimpl\ndef session_tree(): pass")
        await desk.run("pi.reloadSettings")
    assert (await desk.refusal("pi.compact"))["data"]["kind"] == "NothingToCompact"
    assert (await desk.run("pi.navigateTree", targetId="Ff"))["leafId"] == "Ff"
    await desk.run("pi.prompt", text="still there?")
    await desk.until_told("agent_settled")


async def test_events_of_a_run_reach_hooks_in_order(desk: Desk):
    file = desk.folder / "record"
    hooks = ("agent_start", "message_end", "tool_execution_start", "tool_execution_end", "agent_settled")
    source = "import json\nfrom pi_ls import hookimpl\n" + "".join(
        f"@hookimpl\nasync def {name}(event, context):\n    with open({str(file)!r}, 'a') as f:"
        f" f.write(json.dumps([{name!r}, getattr(event, 'entry_id', None)]) + '\\n')\n"
        for name in hooks
    )
    extend(desk, source)
    await desk.open(sessions.two_long_turns(50_000))
    call = Call(id="c1", name="ls", arguments='{"path": "."}')
    desk.provider.script += [Reply(text="", calls=[call], finish="tool_calls"), Reply(text="done")]
    await desk.run("pi.prompt", text="go")
    await desk.until_told("agent_settled")
    found = await until_noted(file, 8)
    assert [name for name, _ in found] == [
        "agent_start",
        "message_end",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
        "message_end",
        "message_end",
        "agent_settled",
    ]
    entries = [entry_id for name, entry_id in found if name == "message_end"]
    assert entries == [line["id"] for line in desk.written()[-4:]]
