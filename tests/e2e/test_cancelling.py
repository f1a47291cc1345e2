"""Stopping a compaction or a branch summary whose provider is silent, by each way there is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from tests import sessions
from tests.e2e.conftest import starting
from tests.e2e.office import Desk
from tests.e2e.raw import Json
from tests.provider import error

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOON_S = 5
"""A second is what is wanted; a busy machine may need more, and a connection nobody closes stays for ever."""

TOKEN = "the progress"
Stop = Callable[[Desk, int], Awaitable[object]]


async def by_request(desk: Desk, request_id: int) -> None:
    desk.server.notify("$/cancelRequest", {"id": request_id})


async def by_progress(desk: Desk, request_id: int) -> None:
    desk.server.notify("window/workDoneProgress/cancel", {"token": TOKEN})


def by_command(command: str) -> Stop:
    async def stop(desk: Desk, request_id: int) -> None:
        assert await desk.run(command) == {"aborted": True}
        assert "operation" not in await desk.run("pi.sessionState")

    return stop


WAYS = {
    "$/cancelRequest": by_request,
    "workDoneProgress/cancel": by_progress,
    "pi.abort": by_command("pi.abort"),
}


def ways(**more: Stop) -> pytest.MarkDecorator:
    everything = WAYS | more
    return pytest.mark.parametrize("stop", everything.values(), ids=everything.keys())


async def stopped(desk: Desk, request_id: int, stop: Stop) -> Json:
    """The answer to a request that is stopped while the provider is silent, its connection being closed."""
    await desk.until_asked()
    began = time.perf_counter()
    await stop(desk, request_id)
    answer = await desk.answer(request_id)
    await desk.until_left()
    assert desk.provider.closed[0] - began < SOON_S
    assert desk.provider.open == 0
    return answer


@ways(**{"pi.abortCompaction": by_command("pi.abortCompaction")})
async def test_a_compaction_is_stopped_at_once_and_leaves_no_trace(desk: Desk, stop: Stop):
    await desk.open(sessions.two_long_turns(120_000))
    before, usage, context = desk.file.read_bytes(), await desk.usage(), await desk.context()
    desk.provider.hold()
    compaction = desk.begin("pi.compact", token=TOKEN)
    answer = await stopped(desk, compaction, stop)
    assert answer["error"] == {
        "code": -32800,
        "message": "Compaction cancelled",
        "data": {"kind": "Cancelled"},
    }
    [end] = desk.named("compaction_end")
    assert (end["reason"], end["aborted"], end["willRetry"]) == ("manual", True, False)
    assert not {"result", "errorMessage"} & end.keys()
    [failed] = desk.named("session_compact_failed")
    assert (failed["aborted"], failed["willRetry"]) == (True, False)
    assert "errorMessage" not in failed
    told = [message.get("method", message.get("id")) for message in desk.server.messages]
    assert told.index("pi/compaction_end") < told.index(compaction), "the end is told before the answer"
    assert desk.file.read_bytes() == before
    assert (await desk.usage(), await desk.context()) == (usage, context)
    assert "operation" not in await desk.run("pi.sessionState")

    desk.provider.release()
    assert (await desk.run("pi.compact"))["firstKeptEntryId"] == "u2"
    assert [line["type"] for line in desk.written()[-2:]] == ["message", "compaction"]
    assert desk.events("compaction_start", "compaction_end") == ["compaction_start", "compaction_end"] * 2


@ways(**{"pi.abortBranchSummary": by_command("pi.abortBranchSummary")})
async def test_a_branch_summary_is_stopped_at_once_and_the_leaf_stays(desk: Desk, stop: Stop):
    await desk.open(sessions.fork_with_two_branches(), {"compaction": {"keepRecentTokens": 1}})
    before = desk.file.read_bytes()
    desk.provider.hold()
    answer = await stopped(
        desk, desk.begin("pi.navigateTree", token=TOKEN, targetId="Ff", summarize=True), stop
    )
    assert answer["result"] == {"cancelled": True, "aborted": True, "leafId": "Dd", "oldLeafId": "Dd"}
    assert desk.named("session_tree") == []
    assert desk.file.read_bytes() == before
    assert (await desk.run("pi.sessionState"))["leafId"] == "Dd"

    desk.provider.release()
    assert (await desk.run("pi.compact"))["summary"].startswith("ok")
    move = await desk.run("pi.navigateTree", targetId="Ff", summarize=True)
    assert (move["cancelled"], move["summaryEntry"]["parentId"]) == (False, "Ff")
    assert sessions.types(desk.written())[-2:] == ["compaction", "branch_summary"]


async def test_the_cancel_button_of_a_progress_the_server_made_stops_it_too(desk: Desk):
    await desk.open(sessions.two_long_turns(120_000))
    desk.provider.hold()
    shown = len(desk.server.named("$/progress"))
    compaction = desk.begin("pi.compact")

    def begins(message: Json) -> bool:
        reports = desk.server.named("$/progress")[shown:]
        return message.get("params") in reports and message["params"]["value"]["kind"] == "begin"

    progress = (await desk.server.wait_for(begins, 60))["params"]
    assert progress["value"]["cancellable"] is True

    async def by_its_token(desk: Desk, request_id: int) -> None:
        desk.server.notify("window/workDoneProgress/cancel", {"token": progress["token"]})

    answer = await stopped(desk, compaction, by_its_token)
    assert answer["error"]["data"]["kind"] == "Cancelled"
    assert desk.server.named("$/progress")[-1] == {"token": progress["token"], "value": {"kind": "end"}}


@pytest.mark.parametrize("command", ["pi.compact", "pi.navigateTree"])
async def test_the_wait_before_another_attempt_can_be_stopped(desk: Desk, command: str):
    desk.provider.default = error(500, "in passing")
    lines = [*sessions.two_long_turns(120_000), sessions.user("u3", "a2", "left")]
    await desk.open(lines, {"retry": {"baseDelayMs": 600_000, "maxAgentDelayMs": 600_000}})
    before = desk.file.read_bytes()
    arguments: Json = {"targetId": "a2", "summarize": True} if command == "pi.navigateTree" else {}
    request = desk.begin(command, **arguments)
    await desk.until_told("summarization_retry_scheduled", delayMs=600_000)
    assert await desk.run("pi.abort") == {"aborted": True}
    answer = await desk.answer(request)
    assert answer.get("error", {}).get("data", {}).get("kind") == "Cancelled" or answer["result"]["aborted"]
    assert len(desk.provider.requests) == 1
    assert desk.file.read_bytes() == before


async def test_a_summary_endpoint_that_is_silent_is_left_at_once(desk: Desk):
    await desk.open(
        sessions.two_long_turns(120_000), {"compaction": {"remoteEndpoint": desk.provider.summary}}
    )
    before = desk.file.read_bytes()
    desk.provider.hold()
    await stopped(desk, desk.begin("pi.compact"), by_request)
    assert desk.file.read_bytes() == before
    assert [request.path for request in desk.provider.requests] == ["/summary"]
    desk.provider.release()
    assert (await desk.run("pi.compact"))["summary"] == "ok"


@pytest.mark.parametrize("command", ["pi.abort", "pi.abortCompaction"])
async def test_what_was_only_just_asked_for_is_stopped_too(desk: Desk, command: str):
    await desk.open(sessions.two_long_turns(120_000))
    before = desk.file.read_bytes()
    desk.provider.hold()
    compaction, stopping = desk.begin("pi.compact"), desk.begin(command)  # one after the other in one breath
    assert (await desk.answer(stopping))["result"] == {"aborted": True}
    assert (await desk.answer(compaction))["error"]["data"]["kind"] == "Cancelled"
    assert len(desk.named("compaction_start")) == len(desk.named("compaction_end"))
    assert desk.file.read_bytes() == before
    desk.provider.release()
    assert (await desk.run("pi.compact"))["firstKeptEntryId"] == "u2"


async def test_it_is_stopped_while_the_provider_library_is_being_loaded(desk: Desk):
    await desk.open(sessions.two_long_turns(120_000))
    async with starting(desk.office.home) as start:
        fresh = await start()
        await fresh.initialize(initializationOptions={"autoOpen": "none"})
        await fresh.result("pi.openSession", {"path": str(desk.file)})
        compaction = fresh.begin_command("pi.compact")
        await fresh.notification("pi/compaction_start")
        fresh.notify("$/cancelRequest", {"id": compaction})
        answer = await fresh.answer(compaction, SOON_S)
        assert answer["error"]["data"]["kind"] == "Cancelled"
    assert desk.provider.requests == []


async def test_where_nothing_runs_there_is_nothing_to_stop(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    desk.server.notify("$/cancelRequest", {"id": 4711})
    desk.server.notify("window/workDoneProgress/cancel", {"token": "nobody's"})
    for command in ("pi.abort", "pi.abortCompaction", "pi.abortBranchSummary"):  # of a session at rest
        assert await desk.run(command) == {"aborted": False}


async def test_stopping_the_one_leaves_the_other_alone(desk: Desk):
    await desk.open(sessions.two_long_turns(120_000))
    desk.provider.hold()
    compaction = desk.begin("pi.compact")
    await desk.until_asked()
    assert await desk.run("pi.abortBranchSummary") == {"aborted": False}
    desk.provider.release()
    assert "result" in await desk.answer(compaction)


async def test_a_folder_that_is_taken_away_takes_its_compaction_with_it(desk: Desk):
    await desk.open(sessions.two_long_turns(120_000))
    before = desk.file.read_bytes()
    desk.provider.hold()
    desk.begin("pi.compact")
    await desk.until_asked()
    desk.leave()
    await desk.until_told("session_closed")
    [end] = desk.named("compaction_end")
    assert end["aborted"] is True
    await desk.until_left()
    assert desk.file.read_bytes() == before
