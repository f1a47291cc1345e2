"""Commands from the wire to the session and back: arguments, results, errors, cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pi_ls.server.commands import COMMANDS
from pi_ls.server.protocol import CommandName
from tests.e2e.raw import Json, RawClient
from tests.server.conftest import Place


async def test_the_commands_advertised_are_the_table(client: RawClient, place: Place):
    capabilities = (await client.initialize(place.params()))["capabilities"]
    assert capabilities["executeCommandProvider"] == {"commands": list(COMMANDS), "workDoneProgress": True}
    assert set(COMMANDS) == set(CommandName)


NO_ARGUMENTS: list[Json] = [{}, {"arguments": None}, {"arguments": []}, {"arguments": [{}]}]


@pytest.mark.parametrize("params", NO_ARGUMENTS)
async def test_absent_null_and_empty_arguments_count_as_one_empty_object(ready: RawClient, params: Json):
    answer = await ready.request("workspace/executeCommand", {"command": "pi.sessionState", **params})
    assert answer["result"]["sessionId"] == "one"


WRONG_ARGUMENTS: list[tuple[str, Any, str, str]] = [
    ("pi.compact", ["text"], "arguments", "an array with one object"),
    ("pi.compact", [{}, {}], "arguments", "an array with one object"),
    ("pi.compact", [None], "arguments", "an array with one object"),
    ("pi.compact", {"a": 1}, "arguments", "an array with one object"),
    ("pi.compact", [{"instructions": "x"}], "instructions", "customInstructions"),
    (
        "pi.compact",
        [{"customInstructions": 3}],
        "customInstructions",
        "expected text or null, got a whole number",
    ),
    ("pi.setLabel", [{"entryId": "a"}], "label", "needs the argument “label”"),
    ("pi.getTree", [{"limit": 0}], "limit", "a whole number >= 1"),
    ("pi.getTree", [{"filter": "nice"}], "filter", "“filter” is wrong"),
    ("pi.setThinkingLevel", [{"level": "huge"}], "level", "“level” is wrong"),
    ("pi.openSession", [{}], "path", "either “path” or “id”"),
    ("pi.openSession", [{"path": "a", "id": "b"}], "path", "either “path” or “id”"),
    ("pi.openSession", [{"path": "x\0y"}], "path", "no path"),
    ("pi.nothing", [{}], "command", "There is no command pi.nothing"),
]


@pytest.mark.parametrize(("command", "arguments", "path", "words"), WRONG_ARGUMENTS)
async def test_a_wrong_argument_is_named_in_a_sentence(
    ready: RawClient, command: str, arguments: object, path: str, words: str
):
    answer = await ready.request("workspace/executeCommand", {"command": command, "arguments": arguments})
    error = answer["error"]
    assert (error["code"], error["data"]) == (-32602, {"kind": "InvalidParams", "path": path})
    assert words in error["message"]


async def test_params_that_are_no_command_are_refused(ready: RawClient):
    wrong: list[Any] = [None, [], {"command": 3}]
    for params in wrong:
        error = (await ready.request("workspace/executeCommand", params))["error"]
        assert (error["code"], error["data"]["kind"]) == (-32602, "InvalidParams")


async def test_every_command_of_a_session_answers_with_one_object(ready: RawClient):
    arguments = {
        CommandName.SET_TRUST: {"trusted": False},
        "pi.setSessionName": {"name": "n"},
        "pi.forkSession": {"entryId": "e"},
        "pi.exportSession": {"format": "markdown"},
        "pi.setAutoCompaction": {"enabled": False},
        "pi.navigateTree": {"targetId": None},
        "pi.setLabel": {"entryId": "e", "label": None},
        "pi.setModel": {"provider": "p", "modelId": "m/n"},
        "pi.setThinkingLevel": {"level": "high"},
        "pi.openSession": {"id": "one"},
    }
    of_the_agent = {
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
    for command in COMMANDS:
        if command not in of_the_agent | {CommandName.CLOSE_SESSION}:
            assert isinstance(await ready.result(command, arguments.get(command)), dict), command
    assert await ready.result("pi.closeSession") == {"closed": True}
    assert (await ready.error("pi.closeSession"))["data"]["kind"] == "NoSession"


async def test_an_absent_leaf_is_not_a_null_leaf(ready: RawClient):
    assert (await ready.result("pi.getMessages"))["leafId"] == "unset"
    assert (await ready.result("pi.getMessages", {"leafId": None}))["leafId"] is None


async def test_a_domain_error_keeps_its_kind_and_data(ready: RawClient):
    error = await ready.error("pi.navigateTree", {"targetId": "nowhere"})
    assert error["code"] == -32803
    assert error["data"] == {"kind": "EntryNotFound", "entryId": "nowhere"}


async def test_a_fault_of_ours_shows_no_traceback(ready: RawClient):
    error = await ready.error("pi.compact", {"customInstructions": "crash"})
    assert (error["code"], error["data"]) == (-32603, {"kind": "InternalError"})
    assert "secret detail" not in str(ready.messages[-1])
    assert "window/showMessage" not in ready.methods()


async def running_compaction(client: RawClient, **more: object) -> int:
    request = client.begin_command("pi.compact", {"customInstructions": "wait"}, **more)
    await client.notification("pi/compaction_start")
    return request


async def assert_cancelled(client: RawClient, request: int) -> None:
    error = (await client.answer(request))["error"]
    assert error == {"code": -32800, "message": "Compaction cancelled", "data": {"kind": "Cancelled"}}
    [end] = client.named("pi/compaction_end")
    assert end["aborted"] is True
    order = [message.get("method", message.get("id")) for message in client.messages]
    assert order.index("pi/compaction_end") < order.index(request), "the end is told before the answer"
    assert (await client.result("pi.sessionState"))["operation"] is None


async def test_cancel_request_stops_a_compaction(ready: RawClient):
    request = await running_compaction(ready)
    ready.notify("$/cancelRequest", {"id": request})
    await assert_cancelled(ready, request)


async def test_the_progress_cancel_stops_a_compaction(ready: RawClient):
    request = await running_compaction(ready, workDoneToken="mine")
    await ready.notification("$/progress")
    ready.notify("window/workDoneProgress/cancel", {"token": "mine"})
    await assert_cancelled(ready, request)


@pytest.mark.parametrize("command", ["pi.abortCompaction", "pi.abort"])
async def test_the_abort_commands_stop_a_compaction(ready: RawClient, command: str):
    request = await running_compaction(ready)
    assert await ready.result(command) == {"aborted": True}
    await assert_cancelled(ready, request)
    assert await ready.result(command) == {"aborted": False}


async def test_a_cancelled_navigation_answers_its_result(ready: RawClient):
    request = ready.begin_command(
        "pi.navigateTree", {"targetId": "x", "summarize": True, "customInstructions": "wait"}
    )
    while (await ready.result("pi.sessionState"))["operation"] != "navigation":
        await asyncio.sleep(0)
    ready.notify("$/cancelRequest", {"id": request})
    assert (await ready.answer(request))["result"]["aborted"] is True


async def test_cancelling_what_is_answered_or_unknown_does_nothing(ready: RawClient):
    ready.notify("$/cancelRequest", {"id": 4711})
    ready.notify("window/workDoneProgress/cancel", {"token": "nobody's"})
    assert await ready.result("pi.abortCompaction") == {"aborted": False}


async def test_other_commands_are_answered_while_one_runs(ready: RawClient):
    await running_compaction(ready)
    assert (await ready.result("pi.contextUsage"))["tokens"] == 1
    assert (await ready.error("pi.closeSession"))["data"] == {"kind": "Busy", "operation": "compaction"}
    await ready.result("pi.abort")


async def test_lone_surrogates_come_back_as_they_are(ready: RawClient):
    assert (await ready.result("pi.setSessionName", {"name": "lone"}))["name"] == "\ud83d"
    assert (await ready.result("pi.setSessionName", {"name": "\ud83d"}))["name"] == "\ud83d"


async def test_a_result_of_megabytes_arrives_whole(ready: RawClient):
    entries = (await ready.result("pi.getEntries", {"limit": 5_000}))["entries"]
    assert len(entries) == 5_000
    assert entries[-1] == {"id": "4999", "text": "é" * 500}
