"""What a client may send, in order or not, in shape or not: everything is answered that can be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pi_ls.server.commands import COMMANDS
from pi_ls.server.protocol import CommandName
from tests import sessions
from tests.e2e.conftest import OFFLINE, Disk, Home, Serve, Start
from tests.e2e.office import Desk
from tests.e2e.raw import Json

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602

shared = pytest.mark.asyncio(loop_scope="session")


async def test_initialize_is_answered_whatever_its_shape_and_works_once(start: Start, home: Home):
    server = await start()
    wrong = (await server.request("initialize", {"processId": "no", "capabilities": 3}))["error"]
    assert (wrong["code"], wrong["data"]["kind"]) == (INVALID_PARAMS, "InvalidParams")
    result = await server.initialize(home.params())
    assert result["serverInfo"]["name"] == "pi-ls"
    commands = result["capabilities"]["executeCommandProvider"]
    assert commands == {"commands": list(COMMANDS), "workDoneProgress": True}
    assert set(COMMANDS) == set(CommandName)
    again = (await server.request("initialize", {"processId": None, "capabilities": {}}))["error"]
    assert (again["code"], again["message"]) == (INVALID_REQUEST, "initialize may be sent only once")


@shared
async def test_unknown_requests_are_refused_and_unknown_notifications_ignored(desk: Desk):
    desk.server.notify("$/unheard", {"a": 1})
    desk.server.notify("pi/unheard", None)
    error = (await desk.server.request("textDocument/nothing", {}))["error"]
    assert (error["code"], error["data"]) == (METHOD_NOT_FOUND, {"kind": "MethodNotFound"})
    assert "window/showMessage" not in desk.server.methods()


@shared
async def test_what_is_no_message_is_answered(desk: Desk):
    server = desk.server
    for body in [b"{", b"\xff\xfe", b"[" * 100_000]:
        server.messages.clear()
        server.send_bytes(body)
        assert (await server.answer(None))["error"]["code"] == PARSE_ERROR, body[:10]
    for body in [b"3", b"null", b"[]", b'{"jsonrpc": "2.0", "id": {}, "method": "pi"}']:
        server.messages.clear()
        server.send_bytes(body)
        assert (await server.answer(None))["error"]["code"] == INVALID_REQUEST, body
    wrong: list[Json] = [
        {"method": "pi", "params": {}},
        {"jsonrpc": "1.0", "method": "workspace/executeCommand", "params": {}},
        {"jsonrpc": "2.0", "method": 7, "params": {}},
        {"jsonrpc": "2.0", "method": None},
    ]
    for number, part in enumerate(wrong):
        server.send_bytes(json.dumps({"id": f"x{number}"} | part).encode())
        error = (await server.answer(f"x{number}"))["error"]
        assert (error["code"], error["data"]) == (INVALID_REQUEST, {"kind": "InvalidRequest"}), part
    assert await desk.run("pi.listSessions") == {"sessions": []}


@shared
async def test_absent_null_and_empty_arguments_count_as_one_empty_object(desk: Desk):
    nothing: list[Json] = [{}, {"arguments": None}, {"arguments": []}, {"arguments": [{}]}]
    for params in nothing:
        answer = await desk.server.request("workspace/executeCommand", {"command": "pi.listModels", **params})
        assert answer["result"]["models"], params


WRONG_ARGUMENTS: list[tuple[str, Any, str, str]] = [
    ("pi.compact", ["text"], "arguments", "an array with one object"),
    ("pi.compact", [{}, {}], "arguments", "an array with one object"),
    ("pi.compact", [None], "arguments", "an array with one object"),
    ("pi.compact", {"a": 1}, "arguments", "an array with one object"),
    ("pi.compact", [{"customInstructions": 3}], "customInstructions", "text or null, got a whole number"),
    ("pi.getTree", [{"limit": 0}], "limit", "a whole number >= 1"),
    ("pi.openSession", [{"path": "x\0y"}], "path", "no path"),
    ("pi.nothing", [{}], "command", "There is no command pi.nothing"),
]


@shared
async def test_arguments_that_are_no_object_and_wrong_values_are_named_in_a_sentence(desk: Desk):
    for command, arguments, path, words in WRONG_ARGUMENTS:
        params = {"command": command, "arguments": arguments}
        error = (await desk.server.request("workspace/executeCommand", params))["error"]
        assert (error["code"], error["data"]) == (INVALID_PARAMS, {"kind": "InvalidParams", "path": path})
        assert words in error["message"]


@shared
async def test_params_that_are_no_command_are_refused(desk: Desk):
    wrong: list[Any] = [None, [], {"command": 3}]
    for params in wrong:
        error = (await desk.server.request("workspace/executeCommand", params))["error"]
        assert (error["code"], error["data"]["kind"]) == (INVALID_PARAMS, "InvalidParams")


@shared
async def test_an_absent_leaf_is_not_a_null_leaf(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    assert len((await desk.run("pi.getMessages"))["messages"]) == 5
    assert (await desk.run("pi.getMessages", leafId=None))["messages"] == []


@shared
async def test_half_a_character_comes_back_as_it_was_sent(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    assert (await desk.run("pi.setSessionName", name="\ud83d"))["name"] == "\ud83d"
    assert (await desk.run("pi.sessionState"))["name"] == "\ud83d"


async def test_a_fault_of_ours_is_told_without_its_details_and_ends_what_it_began(
    serve: Serve, home: Home, disk: Disk
):
    file = home.add_long()
    disk.break_(file)
    server = await serve(settings=OFFLINE, capabilities={"window": {"workDoneProgress": True}})
    fault = await server.error("pi.compact")
    assert (fault["code"], fault["data"]) == (-32603, {"kind": "InternalError"})
    [end] = server.named("pi/compaction_end")
    assert (end["aborted"], end["errorMessage"]) == (False, "Compaction failed: RuntimeError")
    await server.until(lambda: [one["value"]["kind"] for one in server.named("$/progress")][-1:] == ["end"])
    assert (await server.result("pi.sessionState"))["isCompacting"] is False
    await server.shutdown()
    await server.end()
    assert await server.code() == 0
    assert "secret detail" not in json.dumps(server.messages)
    assert "window/showMessage" not in server.methods()
    assert b"RuntimeError: secret detail" in await server.stderr
