"""Every command of the protocol, as it answers and as it refuses, and every notification, to the last key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pi_ls.server.protocol import CommandName
from tests import sessions
from tests.e2e.conftest import OFFLINE, Home, Serve
from tests.e2e.office import Desk
from tests.e2e.raw import Json, RawClient
from tests.e2e.shapes import Each, Maybe, difference
from tests.provider import ProviderProcess, Reply, error

INVALID_PARAMS, CANCELLED, FAILED = -32602, -32800, -32803

OF_THE_AGENT = {
    CommandName.PROMPT,
    CommandName.STEER,
    CommandName.FOLLOW_UP,
    CommandName.CLEAR_QUEUE,
    CommandName.CONTINUE,
    CommandName.BASH,
    CommandName.ABORT_BASH,
    CommandName.ANSWER_APPROVAL,
    CommandName.PRUNE_TOOL_OUTPUTS,
    CommandName.RESTORE_PRUNED,
}
"""What makes the agent run, or is about what it has done."""

MODEL: Json = {
    "provider": "fake",
    "id": "m200",
    "name": Maybe(str),
    "contextWindow": 200_000,
    "maxTokens": 8_192,
    "reasoning": False,
}
STATE: Json = {
    "sessionId": str,
    "sessionFile": str,
    "name": str | None,
    "cwd": str,
    "leafId": str | None,
    "model": Maybe(MODEL),
    "thinkingLevel": str,
    "operation": Maybe(str),
    "isStreaming": False,
    "isCompacting": bool,
    "autoCompactionEnabled": bool,
    "steeringMode": "one-at-a-time",
    "followUpMode": "one-at-a-time",
    "messageCount": int,
    "pendingMessageCount": 0,
    "unsaved": int,
    "trusted": bool,
    "readOnly": bool,
    "problems": Each(
        {"kind": str, "message": str, "line": Maybe(int), "entryId": Maybe(str)},
    ),
}
USAGE: Json = {
    "tokens": int | float | None,
    "contextWindow": 200_000,
    "percent": int | float | None,
    "estimatedTokens": int | float,
    "source": str,
    "thresholdTokens": 183_616,
    "autoCompactionEnabled": True,
    "autoCompactionPaused": False,
    "cost": int | float,
}
STORED_USAGE: Json = {
    "input": int,
    "output": int,
    "cacheRead": int,
    "cacheWrite": int,
    "totalTokens": int,
    "cost": {key: int | float for key in ("input", "output", "cacheRead", "cacheWrite", "total")},
}
COMPACTION: Json = {
    "entryId": str,
    "summary": str,
    "shortSummary": Maybe(str),
    "firstKeptEntryId": "u2",
    "tokensBefore": int,
    "estimatedTokensAfter": int,
    "usage": STORED_USAGE,
    "details": {"readFiles": [], "modifiedFiles": []},
    "fromExtension": False,
}
BRANCH_SUMMARY: Json = {
    "type": "branch_summary",
    "id": str,
    "parentId": str | None,
    "timestamp": str,
    "fromId": str,
    "summary": str,
    "usage": STORED_USAGE,
    "details": {"readFiles": [], "modifiedFiles": []},
}
NODE: Json = {
    "id": str,
    "parentId": str | None,
    "type": str,
    "role": Maybe(str),
    "text": str,
    "label": Maybe(str),
    "timestamp": str,
    "tokens": int,
    "childCount": int,
    "onPath": bool,
    "isLeaf": bool,
    "orphan": Maybe(True),
}
CATEGORIES = (
    "system", "tools", "summary", "user", "assistant", "thinking", "toolResults", "bash", "custom", "images",
    "unattributed",
)  # fmt: skip


def state(**known: Any) -> Json:
    """The shape of a session state with these values."""
    return {**STATE, **known}


async def test_each_command_answers_with_what_the_protocol_says(
    serve: Serve, home: Home, provider: ProviderProcess
):
    file = home.add_long()
    provider.queue(Reply(text="## Goal\nTo be brief. And more."), Reply(text="What was left."))
    server = await serve()
    answered: list[str] = []

    async def check(command: str, arguments: Json, shape: Any) -> Any:
        answered.append(command)
        result = await server.result(command, arguments, timeout=60)
        assert (wrong := difference(result, shape, command)) is None, wrong
        return result

    long = {"sessionId": "s-1", "sessionFile": str(file), "cwd": str(home.folder), "messageCount": 4}
    row = {
        "id": "s-1",
        "path": str(file),
        "cwd": str(home.folder),
        "created": sessions.TIME,
        "modified": str,
        "messageCount": 4,
        "firstMessage": str,
    }
    await check("pi.listSessions", {"query": "mark-old", "limit": 1}, {"sessions": [row]})
    await check("pi.openSession", {"id": "s-1"}, state(**long, leafId="a2", model=MODEL))
    await check("pi.sessionState", {}, state(**long, leafId="a2", unsaved=0, readOnly=False, problems=[]))
    await check("pi.setSessionName", {"name": " a\nname "}, state(name="a name"))
    tokens = {"input": 180_000, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 180_000}
    await check(
        "pi.sessionStats",
        {},
        {
            "userMessages": 2,
            "assistantMessages": 2,
            "toolCalls": 0,
            "toolResults": 0,
            "totalMessages": 4,
            "tokens": tokens,
            "cost": int | float,
            "contextUsage": USAGE,
        },
    )
    await check(
        "pi.getEntries",
        {"since": "u1", "limit": 1},
        {"entries": [sessions.read(file)[2]], "leafId": str, "hasMore": True},
    )
    messages = await check(
        "pi.getMessages",
        {"limit": 2},
        {
            "messages": Each(dict),
            "model": {"provider": "fake", "id": "m200"},
            "thinkingLevel": "off",
            "hasMore": True,
            "cursor": str,
        },
    )
    assert [(one["role"], one["entryId"]) for one in messages["messages"]] == [
        ("user", "u1"),
        ("assistant", "a1"),
    ]
    rest = await server.result("pi.getMessages", {"cursor": messages["cursor"]})
    assert [one["entryId"] for one in rest["messages"]] == ["u2", "a2"]
    assert rest.keys() == {"messages", "model", "thinkingLevel", "hasMore"}
    usage = {**USAGE, "tokens": 120_000, "percent": 60.0, "source": "measured"}
    await check("pi.contextUsage", {}, usage)
    parts: Json = {"categories": {name: int | float for name in CATEGORIES}, "files": []}
    await check("pi.contextUsage", {"detail": True}, usage | parts)
    await check(
        "pi.previewCompaction",
        {"customInstructions": "be brief", "keepRecentTokens": 20_000},
        {
            "possible": True,
            "firstKeptEntryId": "u2",
            "isSplitTurn": False,
            "summarizedEntryIds": ["u1", "a1"],
            "turnPrefixEntryIds": [],
            "keptEntryIds": ["u2", "a2", str],
            "tokensBefore": 120_000,
            "estimatedTokensAfter": int,
            "readFiles": [],
            "modifiedFiles": [],
            "settings": {
                "enabled": True,
                "reserveTokens": 16_384,
                "keepRecentTokens": 20_000,
                "calibrate": True,
            },
            "prompts": Each({"name": str, "tokens": int}),
        },
    )
    tree = await check(
        "pi.getTree", {"limit": 3}, {"nodes": Each(NODE), "leafId": str, "hasMore": True, "cursor": str}
    )
    assert [node["id"] for node in tree["nodes"]] == ["u1", "a1", "u2"]
    label = await check("pi.setLabel", {"entryId": "a1", "label": "here"}, dict)
    assert label == {"entryId": "a1", "label": "here", "leafId": sessions.read(file)[-1]["id"]}
    await check("pi.compact", {"customInstructions": "be brief"}, {**COMPACTION, "tokensBefore": 120_000})
    await check("pi.abortCompaction", {}, {"aborted": False})
    undone = await check("pi.undoCompaction", {}, {"leafId": str, "oldLeafId": str, "entriesLeft": 0})
    assert undone["leafId"] == label["leafId"]
    moved = await check(
        "pi.navigateTree",
        {"targetId": "a1", "summarize": True, "customInstructions": "be brief", "label": "left"},
        {"cancelled": False, "summaryEntry": BRANCH_SUMMARY, "leafId": str, "oldLeafId": str},
    )
    assert moved["summaryEntry"]["parentId"] == "a1"
    await check(
        "pi.navigateTree",
        {"targetId": None},
        {"cancelled": False, "leafId": None, "oldLeafId": moved["leafId"]},
    )
    plain = {"cancelled": False, "leafId": "a1", "oldLeafId": None, "editorText": str}
    await check("pi.navigateTree", {"targetId": "u2"}, plain)
    await check("pi.abortBranchSummary", {}, {"aborted": False})
    await check("pi.abort", {}, {"aborted": False})
    await check("pi.setThinkingLevel", {"level": "high"}, state(thinkingLevel="high"))
    current = await check("pi.listModels", {"query": "fake/"}, {"models": Each(dict), "current": MODEL})
    assert current["models"] == [{**current["current"], "available": True}]
    await check("pi.setAutoCompaction", {"enabled": False}, state(autoCompactionEnabled=False))
    await check("pi.setTrust", {"trusted": True}, state(trusted=True, autoCompactionEnabled=False))
    reloaded = await check("pi.reloadSettings", {}, {"settings": dict, "problems": []})
    assert reloaded["settings"]["compaction"]["enabled"] is False
    await check("pi.exportSession", {"format": "markdown"}, {"path": str(home.folder / "s-1.md")})
    copy = home.folder / "out" / "copy.jsonl"
    await check("pi.exportSession", {"format": "jsonl", "path": "out/copy.jsonl"}, {"path": str(copy)})
    assert sessions.read(copy) == sessions.read(file)
    forked: Json = {"messageCount": 2, "problems": [], "autoCompactionEnabled": False}
    fork = await check("pi.forkSession", {"entryId": "u2"}, {"session": state(**forked), "text": str})
    assert fork["text"] == sessions.read(file)[3]["message"]["content"]
    await check("pi.cloneSession", {}, {"session": state(leafId=fork["session"]["leafId"], **forked)})
    new = await check(
        "pi.newSession",
        {"name": "new", "parentSession": str(file)},
        state(name="new", messageCount=0, problems=[]),
    )
    await check(
        "pi.setModel",
        {"provider": "offline", "modelId": "extractive"},
        state(model={"provider": "offline", "id": "extractive", "name": str, "reasoning": False}),
    )
    await check("pi.contextUsage", {}, {})
    assert not Path(new["sessionFile"]).exists(), "a session without a message is no file"
    await check("pi.closeSession", {}, {"closed": True})
    assert set(answered) == set(CommandName) - OF_THE_AGENT


@pytest.mark.asyncio(loop_scope="session")
async def test_each_command_of_the_agent_answers_with_what_the_protocol_says(desk: Desk):
    desk.provider.script = [Reply(text="hello"), Reply(text="and again"), error(400, "out of order")]
    await desk.open([sessions.header(), sessions.user("u1", None, "a"), sessions.assistant("a1", "u1", "b")])
    settled = 0
    done = {"output": str, "exitCode": 0, "cancelled": False, "truncated": False}
    answers: list[tuple[CommandName, Json, Any]] = [
        (CommandName.CLEAR_QUEUE, {}, {"steering": [], "followUp": []}),
        (CommandName.BASH, {"command": "echo hi", "excludeFromContext": True}, done),
        (CommandName.ABORT_BASH, {}, {"aborted": False}),
        (CommandName.ANSWER_APPROVAL, {"approvalId": "x", "decision": "no"}, {"answered": False}),
        (CommandName.PRUNE_TOOL_OUTPUTS, {"dryRun": True}, {"prunedCount": 0, "tokensSaved": 0}),
        (CommandName.RESTORE_PRUNED, {}, {"restoredCount": 0}),
        (CommandName.PROMPT, {"text": "x", "streamingBehavior": "steer"}, {"disposition": "started"}),
        (CommandName.STEER, {"text": "x"}, {"disposition": "started"}),
        (CommandName.FOLLOW_UP, {"text": "x"}, {"disposition": "started"}),
        (CommandName.CONTINUE, {}, {"disposition": "started"}),  # after an answer that failed
    ]
    for command, arguments, shape in answers:
        result = await desk.run(command, **arguments)
        assert (wrong := difference(result, shape, command)) is None, wrong
        if "disposition" in result:
            settled += 1
            await desk.server.wait_for(
                lambda _, count=settled: len(desk.named("agent_settled")) == count, timeout=60
            )
    assert {command for command, *_ in answers} == OF_THE_AGENT


REFUSED: list[tuple[str, Json, int, Json, str]] = [
    ("pi.listSessions", {"limit": 0}, INVALID_PARAMS, {"path": "limit"}, "limit"),
    ("pi.openSession", {}, INVALID_PARAMS, {"path": "path"}, "either"),
    ("pi.openSession", {"id": "x", "path": "y"}, INVALID_PARAMS, {"path": "path"}, "either"),
    ("pi.openSession", {"id": "x"}, FAILED, {"kind": "SessionNotFound", "sessionId": "x"}, "x"),
    ("pi.openSession", {"path": "none.jsonl"}, FAILED, {"kind": "SessionNotFound", "path": str}, "none"),
    ("pi.openSession", {"path": "."}, FAILED, {"kind": "SessionUnreadable", "path": str}, "cannot be read"),
    ("pi.newSession", {"name": 5}, INVALID_PARAMS, {"path": "name"}, "name"),
    (
        "pi.closeSession",
        {"sessionId": "x"},
        FAILED,
        {"kind": "SessionNotFound", "sessionId": "x"},
        "open it first",
    ),
    ("pi.sessionState", {"verbose": True}, INVALID_PARAMS, {"path": "verbose"}, "no argument"),
    ("pi.setSessionName", {}, INVALID_PARAMS, {"path": "name"}, "needs"),
    ("pi.forkSession", {"entryId": "x"}, FAILED, {"kind": "EntryNotFound", "entryId": "x"}, "x"),
    ("pi.forkSession", {"entryId": "a1"}, INVALID_PARAMS, {"path": "entryId"}, "user message"),
    ("pi.cloneSession", {"workspace": "file:///x"}, INVALID_PARAMS, {"path": "workspace"}, "not a folder"),
    ("pi.sessionStats", {"workspace": 1}, INVALID_PARAMS, {"path": "workspace"}, "text"),
    ("pi.exportSession", {"format": "pdf"}, INVALID_PARAMS, {"path": "format"}, "pdf"),
    (
        "pi.exportSession",
        {"format": "jsonl", "path": "there"},
        INVALID_PARAMS,
        {"path": "path"},
        "exists already",
    ),
    (
        "pi.exportSession",
        {"format": "jsonl", "path": "there/x"},
        FAILED,
        {"kind": "WriteFailed"},
        "could not be exported",
    ),
    ("pi.getEntries", {"since": "x"}, FAILED, {"kind": "EntryNotFound", "entryId": "x"}, "x"),
    ("pi.getMessages", {"leafId": "x"}, FAILED, {"kind": "EntryNotFound", "entryId": "x"}, "x"),
    ("pi.getMessages", {"cursor": "x"}, INVALID_PARAMS, {"path": "cursor"}, "cursor"),
    ("pi.contextUsage", {"detail": "yes"}, INVALID_PARAMS, {"path": "detail"}, "true or false"),
    (
        "pi.previewCompaction",
        {"keepRecentTokens": -1},
        INVALID_PARAMS,
        {"path": "keepRecentTokens"},
        "keepRecentTokens",
    ),
    ("pi.compact", {"instructions": "x"}, INVALID_PARAMS, {"path": "instructions"}, "customInstructions"),
    (
        "pi.abortCompaction",
        {"sessionId": "x"},
        FAILED,
        {"kind": "SessionNotFound", "sessionId": "x"},
        "open it first",
    ),
    ("pi.undoCompaction", {}, FAILED, {"kind": "EntryNotFound"}, "no compaction"),
    ("pi.setAutoCompaction", {}, INVALID_PARAMS, {"path": "enabled"}, "needs"),
    ("pi.getTree", {"filter": "mine"}, INVALID_PARAMS, {"path": "filter"}, "mine"),
    ("pi.getTree", {"rootId": "x"}, FAILED, {"kind": "EntryNotFound", "entryId": "x"}, "x"),
    ("pi.getTree", {"cursor": "x"}, INVALID_PARAMS, {"path": "cursor"}, "cursor"),
    ("pi.navigateTree", {}, INVALID_PARAMS, {"path": "targetId"}, "needs"),
    ("pi.navigateTree", {"targetId": "x"}, FAILED, {"kind": "EntryNotFound", "entryId": "x"}, "x"),
    ("pi.abortBranchSummary", {"all": True}, INVALID_PARAMS, {"path": "all"}, "no argument"),
    ("pi.setLabel", {"entryId": "x", "label": "y"}, FAILED, {"kind": "EntryNotFound", "entryId": "x"}, "x"),
    ("pi.setLabel", {"entryId": "u1"}, INVALID_PARAMS, {"path": "label"}, "needs"),
    ("pi.abort", {"sessionId": None, "now": 1}, INVALID_PARAMS, {"path": "now"}, "no argument"),
    (
        "pi.prompt",
        {"text": "x", "streamingBehavior": "now"},
        INVALID_PARAMS,
        {"path": "streamingBehavior"},
        "now",
    ),
    ("pi.prompt", {"text": " \n"}, INVALID_PARAMS, {"path": "text"}, "nothing to say"),
    ("pi.steer", {}, INVALID_PARAMS, {"path": "text"}, "needs"),
    ("pi.followUp", {"text": "x", "images": "y"}, INVALID_PARAMS, {"path": "images"}, "array"),
    (
        "pi.followUp",
        {"text": "x", "images": [{"data": "", "mimeType": "image/png", "alt": "y"}]},
        INVALID_PARAMS,
        {"path": "images[0].alt"},
        "“images[0]” has no “alt”",
    ),
    (
        "pi.followUp",
        {"text": "x", "images": [{"data": ""}]},
        INVALID_PARAMS,
        {"path": "images[0].mimeType"},
        "“images[0]” needs “mimeType”",
    ),
    ("pi.clearQueue", {"kind": "steering"}, INVALID_PARAMS, {"path": "kind"}, "no argument"),
    ("pi.continue", {"text": "x"}, INVALID_PARAMS, {"path": "text"}, "no argument"),
    ("pi.bash", {"command": "touch there2"}, FAILED, {"kind": "Untrusted"}, "not trusted"),
    ("pi.abortBash", {"command": "x"}, INVALID_PARAMS, {"path": "command"}, "no argument"),
    (
        "pi.answerApproval",
        {"approvalId": "x", "decision": "yes"},
        INVALID_PARAMS,
        {"path": "decision"},
        "yes",
    ),
    ("pi.pruneToolOutputs", {"dryRun": 1}, INVALID_PARAMS, {"path": "dryRun"}, "true or false"),
    ("pi.restorePruned", {"entryIds": ["a1", 5]}, INVALID_PARAMS, {"path": "entryIds[1]"}, "text"),
    ("pi.listModels", {"query": 5}, INVALID_PARAMS, {"path": "query"}, "text"),
    ("pi.setModel", {"provider": "fake"}, INVALID_PARAMS, {"path": "modelId"}, "needs"),
    ("pi.setThinkingLevel", {"level": "most"}, INVALID_PARAMS, {"path": "level"}, "most"),
    ("pi.setTrust", {"trusted": "yes"}, INVALID_PARAMS, {"path": "trusted"}, "true or false"),
    ("pi.reloadSettings", {"workspace": "x"}, INVALID_PARAMS, {"path": "workspace"}, "not a folder"),
]


async def test_each_command_refuses_what_it_cannot_do_in_a_sentence_and_writes_nothing(
    serve: Serve, home: Home
):
    assert {command for command, *_ in REFUSED} == set(CommandName)
    file = home.add_long()
    (home.folder / "there").write_text("mine")
    before = file.read_bytes()
    server = await serve()
    await server.result("pi.sessionState")
    for command, arguments, code, data, words in REFUSED:
        refusal = await server.error(command, arguments)
        kind = {"kind": "InvalidParams"} if code == INVALID_PARAMS else {}
        wrong = difference(refusal, {"code": code, "message": str, "data": {**data, **kind}}, command)
        assert wrong is None, (arguments, wrong)
        assert words in refusal["message"], (command, refusal)
        assert "Traceback" not in refusal["message"]
    assert file.read_bytes() == before
    assert (home.folder / "there").read_text() == "mine"
    assert (await server.result("pi.sessionState"))["leafId"] == "a2"


async def test_a_compaction_says_why_it_cannot_be(serve: Serve, home: Home):
    """Each refusal of a compaction, in the order in which a person would run into them."""
    file = home.add_long()
    short = home.add([sessions.header(cwd=str(home.folder), session_id="s-2")], "s-2.jsonl")
    server = await serve(settings={"defaultProvider": "nobody"})
    names = ("compaction_start", "compaction_end", "session_compact_failed")

    async def refused(**arguments: Any) -> tuple[str, str]:
        seen = len(server.messages)
        refusal = await server.error("pi.compact", arguments)
        assert refusal["code"] == FAILED
        told = [m for m in server.messages[seen:] if m.get("method", "").removeprefix("pi/") in names]
        assert [m["method"].removeprefix("pi/") for m in told] == list(names)
        assert told[1]["params"]["errorMessage"] == f"Compaction failed: {refusal['message']}"
        return refusal["data"]["kind"], refusal["message"]

    await server.result("pi.openSession", {"id": "s-1"})
    kind, message = await refused()
    assert kind == "NoCredentials"
    assert "fake" in message
    home.configure({"compaction": {"keepRecentTokens": "many", "models": ["offline/extractive"]}})
    refusal = await server.error("pi.compact")
    assert refusal["data"] == {
        "kind": "InvalidSettings",
        "file": str(home.agent_dir / "settings.json"),
        "key": "compaction.keepRecentTokens",
    }
    assert (await server.error("pi.previewCompaction"))["data"]["kind"] == "InvalidSettings"
    home.configure(OFFLINE)
    await server.result("pi.openSession", {"id": "s-2"})
    assert await refused() == ("NothingToCompact", "Nothing to compact (session too small)")
    preview = await server.result("pi.previewCompaction")
    assert (preview["possible"], preview["reason"]) == (False, "Nothing to compact (session too small)")
    home.configure({})
    assert await refused() == ("NoModel", "No model selected")
    home.configure(OFFLINE)
    await server.result("pi.compact", {"sessionId": "s-1"})
    compacted = file.read_bytes()
    assert await refused(sessionId="s-1") == ("AlreadyCompacted", "Already compacted")
    assert file.read_bytes() == compacted
    assert len(sessions.read(short)) == 1


async def test_what_may_be_read_only_is_refused_when_it_is_to_be_written(serve: Serve, home: Home):
    lines = sessions.two_long_turns(120_000, version=4, cwd=str(home.folder))
    file = home.add(lines)
    before = file.read_bytes()
    server = await serve(settings=OFFLINE)
    opened = await server.result("pi.sessionState")
    assert opened["readOnly"] is True
    assert [problem["kind"] for problem in opened["problems"]] == ["newerVersion"]
    warnings = server.named("window/showMessage")
    assert len(warnings) == 1
    assert "version 4" in warnings[0]["message"]
    for command, arguments in {
        "pi.compact": {},
        "pi.setLabel": {"entryId": "u1", "label": "x"},
        "pi.setSessionName": {"name": "x"},
        "pi.setThinkingLevel": {"level": "high"},
        "pi.navigateTree": {"targetId": "u2", "label": "x"},
    }.items():
        assert (await server.error(command, arguments))["data"]["kind"] == "SessionReadOnly", command
    assert (await server.result("pi.navigateTree", {"targetId": "u1"}))["leafId"] is None
    await server.result("pi.closeSession")
    assert file.read_bytes() == before


async def test_while_a_compaction_runs_some_commands_are_refused_and_some_work(
    serve: Serve, home: Home, provider: ProviderProcess
):
    provider.queue(Reply(hang=True))
    file = home.add_long()
    server = await serve(settings={"compaction": {"remoteEndpoint": provider.summary}})
    running = server.begin_command("pi.compact")
    await provider.until(requests=1)
    during = await server.result("pi.sessionState")
    assert (during["operation"], during["isCompacting"], during["isStreaming"]) == ("compaction", True, False)
    for command, arguments in {
        "pi.compact": {},
        "pi.navigateTree": {"targetId": "u1"},
        "pi.undoCompaction": {},
        "pi.forkSession": {"entryId": "u2"},
        "pi.cloneSession": {},
        "pi.closeSession": {},
    }.items():
        refusal = await server.error(command, arguments)
        assert refusal["data"] == {"kind": "Busy", "operation": "compaction"}, command
        assert "Wait for the compaction" in refusal["message"]
    await server.result("pi.setLabel", {"entryId": "u1", "label": "start"})
    await server.result("pi.setSessionName", {"name": "named"})
    await server.result("pi.setModel", {"provider": "offline", "modelId": "extractive"})
    for command in ("pi.contextUsage", "pi.getTree", "pi.getEntries", "pi.getMessages", "pi.sessionStats"):
        await server.result(command)
    assert (await server.result("pi.openSession", {"id": "s-1"}))["isCompacting"] is True
    assert (await server.result("pi.newSession"))["isCompacting"] is False
    assert await server.result("pi.abort", {"sessionId": "s-1"}) == {"aborted": True}
    ended = await server.answer(running)
    assert ended["error"] == {
        "code": CANCELLED,
        "message": "Compaction cancelled",
        "data": {"kind": "Cancelled"},
    }
    assert sessions.types(sessions.read(file))[-3:] == ["label", "session_info", "model_change"]
    assert (await server.result("pi.sessionState", {"sessionId": "s-1"}))["isCompacting"] is False


def pushed(server: RawClient, session_id: str | None) -> list[tuple[str, Json]]:
    """The pushes of a session so far, by event name, without their address."""
    told: list[tuple[str, Json]] = []
    for message in server.messages:
        if message.get("method", "").startswith("pi/") and message["params"].get("sessionId") == session_id:
            own = {
                key: value
                for key, value in message["params"].items()
                if key not in ("workspace", "sessionId", "seq")
            }
            told.append((message["method"].removeprefix("pi/"), own))
    return told


EVENTS: dict[str, Any] = {
    "compaction_start": {"reason": "manual"},
    "compaction_end": {
        "reason": "manual",
        "result": Maybe(COMPACTION),
        "aborted": bool,
        "willRetry": False,
        "errorMessage": Maybe(str),
    },
    "session_compact_failed": {
        "reason": "manual",
        "aborted": bool,
        "willRetry": False,
        "fromExtension": False,
        "errorMessage": Maybe(str),
    },
    "summarization_retry_scheduled": {"attempt": 1, "maxAttempts": 3, "delayMs": 1, "errorMessage": str},
    "context_usage": USAGE,
    "session_opened": {key: shape for key, shape in STATE.items() if key != "sessionId"},
    "session_closed": {key: shape for key, shape in STATE.items() if key != "sessionId"},
    "session_info_changed": {"name": "named"},
    "session_tree": {
        "newLeafId": str | None,
        "oldLeafId": str | None,
        "summaryEntry": Maybe(BRANCH_SUMMARY),
        "fromExtension": Maybe(False),
    },
    "entry_appended": {
        "entry": {"id": str, "parentId": str | None, "type": str, "role": Maybe(str)},
        "leafId": str,
        "foreign": bool,
    },
    "session_reloaded": {"reason": str},
    "session_problem": {
        "file": str,
        "kind": str,
        "message": str,
        "line": Maybe(int),
        "entryId": Maybe(str),
    },
    "settings_problem": {"file": str, "key": str, "message": str, "line": Maybe(int)},
    "model_changed": {"provider": str, "modelId": str},
    "thinking_level_changed": {"level": str},
}
"""The shape of each event there is without a running agent."""


async def test_each_notification_is_its_event_with_address_and_number(
    serve: Serve, home: Home, provider: ProviderProcess
):
    home.configure({"retry": {"baseDelayMs": 1}, "steeringMode": "never"})
    file = home.add_long()
    provider.queue(error(500), Reply(text="S"), error(400, "no such model"), Reply(text="B"))
    server = await serve()
    await server.result("pi.sessionState")
    with file.open("ab") as stream:  # what another program might do
        stream.write(b"[]\n" + json.dumps(sessions.user("x1", "a2", "foreign")).encode() + b"\n")
    await server.result("pi.setSessionName", {"name": "named"})
    await server.result("pi.setThinkingLevel", {"level": "high"})
    compacted = await server.answer(server.begin_command("pi.compact"), timeout=60)
    assert difference(compacted["result"], COMPACTION) is None
    await server.result("pi.undoCompaction")
    assert (await server.error("pi.compact"))["data"]["kind"] == "ProviderError"
    await server.result("pi.navigateTree", {"targetId": "u2", "summarize": True})
    await server.result("pi.closeSession")

    pushes = pushed(server, "s-1")
    for name, own in pushes:
        assert (wrong := difference(own, EVENTS[name], name)) is None, wrong
    [problem] = pushed(server, None)
    assert problem[0] == "settings_problem"
    assert difference(problem[1], EVENTS["settings_problem"]) is None
    assert problem[1]["key"] == "steeringMode"
    told = {name for name, _ in pushes}
    assert told == EVENTS.keys() - {"session_reloaded", "settings_problem"} - {"model_changed"}

    names = [name for name, _ in pushes if name not in ("context_usage", "session_problem")]
    assert names == [
        "session_opened",
        "entry_appended",  # the foreign message
        "entry_appended",
        "session_info_changed",
        "entry_appended",
        "thinking_level_changed",
        "compaction_start",
        "summarization_retry_scheduled",
        "entry_appended",
        "compaction_end",
        "session_tree",
        "compaction_start",
        "compaction_end",
        "session_compact_failed",
        "entry_appended",
        "thinking_level_changed",
        "session_tree",
        "session_closed",
    ]
    foreign = [own["foreign"] for name, own in pushes if name == "entry_appended"]
    assert foreign == [True, False, False, False, False]
    problems = [own for name, own in pushes if name == "session_problem"]
    assert [(one["kind"], one.get("line")) for one in problems] == [
        ("malformedLine", 6),
        ("foreignWriter", None),
    ]
    assert "window/showMessage" not in server.methods(), "nothing a person must act on"
    assert any(log["message"].startswith(f"{file}: line 6") for log in server.named("window/logMessage"))
    params = [m["params"] for m in server.messages if m.get("method", "").startswith("pi/")]
    numbers = [one["seq"] for one in params if one.get("sessionId") == "s-1"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {one["workspace"] for one in params} == {home.folder.as_uri()}


async def test_a_change_by_another_program_and_a_migration_are_told(serve: Serve, home: Home):
    file = home.add_long()
    old = home.add(
        [
            {"type": "session", "id": "s-0", "timestamp": sessions.TIME, "cwd": str(home.folder)},
            {"type": "message", "timestamp": sessions.TIME, "message": {"role": "user", "content": "hello"}},
        ],
        "s-0.jsonl",
    )
    home.configure({"defaultProvider": "offline", "defaultModel": "extractive"})
    server = await serve(autoOpen="none")
    await server.result("pi.openSession", {"path": str(file)})
    lines = sessions.read(file)
    new = file.with_name("new")
    sessions.write(new, [*lines[:3], sessions.model_change("m1", "a1", "offline", "extractive")])
    new.replace(file)
    named = await server.result("pi.setSessionName", {"name": "one"})
    assert (named["leafId"], named["name"]) == (sessions.read(file)[-1]["id"], "one")
    assert ("session_reloaded", {"reason": "rewritten"}) in pushed(server, "s-1")
    changed = [own for name, own in pushed(server, "s-1") if name == "model_changed"]
    assert changed == [{"provider": "offline", "modelId": "extractive"}]
    await server.result("pi.openSession", {"path": str(old)})
    await server.result("pi.setSessionName", {"name": "two"})
    assert ("session_reloaded", {"reason": "migrated"}) in pushed(server, "s-0")
    assert sessions.read(old)[0]["version"] == 3


async def test_a_client_without_capabilities_is_asked_nothing_and_shown_no_progress(serve: Serve, home: Home):
    file = home.add_long()
    server = await serve(settings=OFFLINE)
    await server.result("pi.compact")
    await server.result("pi.navigateTree", {"targetId": "u2", "summarize": True})
    await server.shutdown()
    await server.end()
    assert [m for m in server.messages if "id" in m and "method" in m] == []
    others = [method for method in server.methods() if not method.startswith("pi/")]
    assert set(others) <= {"window/logMessage", "window/showMessage"}
    assert sessions.types(sessions.read(file))[-2:] == ["compaction", "branch_summary"]


async def test_only_the_events_a_client_wants_are_pushed(serve: Serve, home: Home):
    home.add_long()
    server = await serve(settings=OFFLINE, events=["compaction_end"])
    await server.result("pi.compact")
    assert [method for method in server.methods() if method.startswith("pi/")] == ["pi/compaction_end"]


async def test_several_folders_each_have_their_sessions(serve: Serve, home: Home):
    other = home.add_folder("other")
    home.add_long()
    lines = sessions.two_long_turns(90_000, cwd=str(other), session_id="o-1")
    sessions.write(home.sessions(other) / "o.jsonl", lines)
    server = await serve(home.folder, other, settings=OFFLINE)
    here, there = ({"workspace": folder.as_uri()} for folder in (home.folder, other))

    refusal = await server.error("pi.sessionState")
    assert (refusal["code"], refusal["data"]["path"]) == (INVALID_PARAMS, "workspace")
    assert (await server.result("pi.sessionState", here))["sessionId"] == "s-1"
    assert (await server.result("pi.sessionState", there))["sessionId"] == "o-1"
    slashed = {"workspace": other.as_uri() + "/"}
    assert (await server.result("pi.sessionState", slashed))["sessionId"] == "o-1"
    unknown = await server.error("pi.sessionState", {"workspace": "file:///no"})
    assert unknown["data"] == {"kind": "InvalidParams", "path": "workspace"}
    assert (await server.result("pi.sessionState", {"sessionId": "o-1"}))["cwd"] == str(other)
    for place, wanted in ((here, ["s-1"]), (there, ["o-1"])):
        rows = (await server.result("pi.listSessions", place))["sessions"]
        assert [row["id"] for row in rows] == wanted
    everywhere = (await server.result("pi.listSessions", {**here, "all": True}))["sessions"]
    assert {row["id"] for row in everywhere} == {"s-1", "o-1"}

    await server.result("pi.compact", {"sessionId": "o-1"})
    ends = server.named("pi/compaction_end")
    assert [(end["workspace"], end["sessionId"]) for end in ends] == [(other.as_uri(), "o-1")]
    second = await server.result("pi.newSession", here)
    assert (await server.result("pi.sessionState", here))["sessionId"] == second["sessionId"]
    assert (await server.result("pi.sessionState", {"sessionId": "s-1"}))["leafId"] == "a2", "it stays open"
    assert await server.result("pi.closeSession", here) == {"closed": True}
    assert (await server.error("pi.sessionState", here))["data"] == {"kind": "NoSession"}

    gone = {"added": [], "removed": [{"uri": other.as_uri(), "name": "other"}]}
    server.notify("workspace/didChangeWorkspaceFolders", {"event": gone})
    closed = await server.wait_for(
        lambda m: m.get("method") == "pi/session_closed" and m["params"]["sessionId"] == "o-1"
    )
    assert closed["params"]["workspace"] == other.as_uri()
    assert (await server.error("pi.sessionState", {"sessionId": "o-1"}))["data"]["kind"] == "SessionNotFound"
    for session_id in ("s-1", "o-1"):
        params = [m["params"] for m in server.messages if m.get("method", "").startswith("pi/")]
        numbers = [one["seq"] for one in params if one["sessionId"] == session_id]
        assert numbers == list(range(1, len(numbers) + 1)), "each session has its own numbers"
        assert len(numbers) >= 2
    assert (await server.result("pi.openSession", {"id": "s-1"}))["sessionId"] == "s-1"
