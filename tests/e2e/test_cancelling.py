"""Stopping a compaction or a branch summary whose provider is silent, by each way there is."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests import sessions
from tests.e2e.office import Desk
from tests.e2e.raw import Json

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOON_S = 5
"""A second is what is wanted; a busy machine may need more, and a connection nobody closes stays for ever."""

TOKEN = "the progress"
Stop = Callable[[Desk, int], object]


def by_request(desk: Desk, request_id: int) -> None:
    desk.server.notify("$/cancelRequest", {"id": request_id})


def by_progress(desk: Desk, request_id: int) -> None:
    desk.server.notify("window/workDoneProgress/cancel", {"token": TOKEN})


def by_command(command: str) -> Stop:
    def stop(desk: Desk, request_id: int) -> None:
        desk.begin(command)

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
    stop(desk, request_id)
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
    answer = await stopped(desk, desk.begin("pi.compact", token=TOKEN), stop)
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


async def test_where_nothing_runs_there_is_nothing_to_stop(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    for command in ("pi.abort", "pi.abortCompaction", "pi.abortBranchSummary"):
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
