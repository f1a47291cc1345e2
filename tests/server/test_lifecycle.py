"""The order of the protocol, from before initialize to after shutdown."""

from __future__ import annotations

import json

from tests.e2e.raw import RawClient
from tests.server.conftest import Place


async def test_a_request_before_initialize_is_refused(client: RawClient, place: Place):
    error = await client.error("pi.contextUsage")
    assert (error["code"], error["data"]) == (-32002, {"kind": "ServerNotInitialized"})
    client.notify("initialized", {})  # out of order, and nothing to answer to
    assert await client.initialize(place.params())
    assert client.methods() == []


async def test_initialize_a_second_time_is_refused(ready: RawClient, place: Place):
    error = (await ready.request("initialize", {"processId": None, "capabilities": {}}))["error"]
    assert (error["code"], error["message"]) == (-32600, "initialize may be sent only once")


async def test_initialize_of_a_wrong_shape_is_answered_and_may_be_sent_again(client: RawClient, place: Place):
    error = (await client.request("initialize", {"processId": "no", "capabilities": 3}))["error"]
    assert (error["code"], error["data"]["kind"]) == (-32602, "InvalidParams")
    assert (await client.initialize(place.params()))["serverInfo"]["name"] == "pi-ls"


async def test_nothing_is_pushed_before_initialized_and_nothing_is_lost(client: RawClient, place: Place):
    place.add_session("one")
    await client.initialize(place.params(wrong=1), initialized=False)
    await client.result("pi.openSession", {"id": "one"})
    await client.result("pi.setSessionName", {"name": "n"})
    assert client.methods() == []
    client.notify("initialized", {})
    assert (await client.notification("pi/session_opened"))["sessionId"] == "one"
    assert (await client.notification("pi/session_info_changed"))["name"] == "n"


async def test_unknown_requests_are_refused_and_unknown_notifications_ignored(ready: RawClient):
    ready.notify("$/unheard", {"a": 1})
    ready.notify("pi/unheard", None)
    error = (await ready.request("textDocument/nothing", {}))["error"]
    assert error["code"] == -32601
    assert error["data"] == {"kind": "MethodNotFound"}
    assert "window/showMessage" not in ready.methods()


async def test_what_is_no_message_is_answered_where_it_can_be(ready: RawClient):
    for body, code in [(b"{", -32700), (b"\xff\xfe", -32700), (b"[" * 100_000, -32700)]:
        ready.messages.clear()
        ready.send_bytes(body)
        assert (await ready.answer(None))["error"]["code"] == code, body[:10]
    for body in [b"3", b"null"]:
        ready.send_bytes(body)
    ready.send_bytes(json.dumps({"id": "x", "method": "pi", "params": {}}).encode())
    assert (await ready.answer("x"))["error"]["code"] == -32600
    assert await ready.result("pi.sessionState")


async def test_shutdown_stops_what_runs_and_closes_what_is_open(ready: RawClient, place: Place):
    request = ready.begin_command("pi.compact", {"customInstructions": "wait"})
    await ready.notification("pi/compaction_start")
    assert (await ready.request("shutdown"))["result"] is None
    assert (await ready.answer(request))["error"]["data"]["kind"] == "Cancelled"
    assert place.journal() == ["open one", "close one"]
    error = await ready.error("pi.sessionState")
    assert (error["code"], error["message"]) == (-32600, "The server is shutting down")


async def test_the_server_ends_with_its_client_and_closes_its_sessions(ready: RawClient, place: Place):
    ready.begin_command("pi.compact", {"customInstructions": "wait"})
    await ready.notification("pi/compaction_start")
    ready.notify("exit")
    await ready.end()
    assert place.journal() == ["open one", "close one"]
    assert ready.named("pi/compaction_end")[0]["aborted"] is True
