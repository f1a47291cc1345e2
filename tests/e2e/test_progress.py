"""Progress that an editor shows while something is done: never without its end, and never for nothing."""

from __future__ import annotations

from typing import Any

from tests import sessions
from tests.e2e.conftest import OFFLINE, Disk, Home, RawServer, Serve
from tests.e2e.raw import Json

SHOWS_PROGRESS: Json = {"window": {"workDoneProgress": True}}
CREATE = "window/workDoneProgress/create"


def shown(server: RawServer, token: Any) -> list[Json]:
    return [one["value"] for one in server.named("$/progress") if one["token"] == token]


async def test_on_the_token_of_a_request_it_begins_reports_and_ends_however_it_goes(serve: Serve, home: Home):
    home.add_long()
    server = await serve(settings=OFFLINE, capabilities=SHOWS_PROGRESS)
    await server.result("pi.compact", workDoneToken=7)
    assert [value["kind"] for value in shown(server, 7)] == ["begin", "report", "end"]
    assert shown(server, 7)[0] == {"kind": "begin", "title": "Compacting session", "cancellable": True}
    await server.error("pi.compact", workDoneToken=8)
    assert [value["kind"] for value in shown(server, 8)] == ["begin", "end"]
    assert CREATE not in server.methods()


async def test_a_progress_that_is_created_late_begins_with_what_was_reported_and_ends(
    serve: Serve, home: Home
):
    home.add_long()
    server = await serve(settings=OFFLINE, capabilities=SHOWS_PROGRESS)
    server.is_slow = True
    await server.result("pi.compact")
    request = await server.wait_for(lambda m: m.get("method") == CREATE)
    assert server.named("$/progress") == []
    server.create_progress(request)
    await server.until(lambda: len(server.named("$/progress")) == 2)
    begin = {
        "kind": "begin",
        "title": "Compacting session",
        "cancellable": True,
        "message": "Summarizing the conversation",
    }
    assert shown(server, request["params"]["token"]) == [begin, {"kind": "end"}]


async def test_a_client_that_refuses_it_loses_nothing_else(serve: Serve, home: Home):
    home.use()
    home.add_long()
    server = await serve(settings=OFFLINE, capabilities=SHOWS_PROGRESS)
    server.refuse_progress = True
    assert await server.result("pi.compact")
    await server.notification(CREATE)
    await server.result("pi.contextUsage")
    assert not {"$/progress", "window/logMessage", "window/showMessage"} & set(server.methods())


async def test_opening_and_moving_show_it_only_where_they_take_long(serve: Serve, home: Home, disk: Disk):
    home.add_long()
    slow = home.add(sessions.fork_with_two_branches(cwd=str(home.folder), session_id="slow"), "slow.jsonl")
    server = await serve(capabilities=SHOWS_PROGRESS, autoOpen="none")
    await server.result("pi.openSession", {"id": "s-1"})
    await server.result("pi.navigateTree", {"targetId": "a1"})
    assert CREATE not in server.methods()
    disk.hold(slow)
    opening = server.begin_command("pi.openSession", {"path": str(slow)})
    begin = await server.notification("$/progress")
    assert begin["value"]["title"] == "Opening session"
    disk.release(slow)
    assert (await server.answer(opening))["result"]["sessionId"] == "slow"
    await server.until(lambda: shown(server, begin["token"])[-1] == {"kind": "end"})
