"""An agent at work: the server answers all the while, and stops when it is told to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import sessions
from tests.e2e.colleague import Colleague, Model, call, calls, says
from tests.provider import Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANSWER_S = 0.5
"""How long an answer may take while something runs; a busy machine is given more."""
SLACK = 4


async def stays_alive(colleague: Colleague, rounds: int = 10) -> None:
    """Ask for the usage and the tree again and again; each is answered soon."""
    slowest = 0.0
    for _ in range(rounds):
        for command in ("pi.contextUsage", "pi.getTree"):
            began = time.perf_counter()
            await colleague.run(command)
            slowest = max(slowest, time.perf_counter() - began)
        await asyncio.sleep(0.05)
    assert slowest < ANSWER_S * SLACK


def a_tool_sleeps(model: Model) -> None:
    model.answers = [calls(call("bash", command="sleep 20"))]


def a_provider_says_nothing(model: Model) -> None:
    model.answers = [Reply(hang=True)]


def a_provider_falls_silent(model: Model) -> None:
    model.answers = [says("x" * 400, hang_after=5)]


def a_huge_output_arrives(model: Model) -> None:
    model.answers = [calls(call("bash", command="yes | head -c 50000000; sleep 20"))]


def a_huge_file_is_read(model: Model) -> None:
    """With text in it, and as one line."""
    fill = "yes 0123456789 | head -c 100M > lines; tr -d '\\n' < lines > line"
    read = [call("read", "c1", path="lines"), call("read", "c2", path="line")]
    model.answers = [calls(call("bash", command=fill)), calls(*read), calls(call("bash", command="sleep 20"))]


def an_answer_floods(model: Model) -> None:
    model.answers = [says("word " * 200_000, piece=40)]


@pytest.mark.parametrize(
    "happens",
    [
        a_tool_sleeps,
        a_provider_says_nothing,
        a_provider_falls_silent,
        a_huge_output_arrives,
        a_huge_file_is_read,
        an_answer_floods,
    ],
)
async def test_the_server_answers_and_can_be_stopped_while(
    colleague: Colleague, happens: Callable[[Model], None]
):
    await colleague.open(sessions.two_long_turns(120_000))
    happens(colleague.model)
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await stays_alive(colleague)
    began = time.perf_counter()
    assert await colleague.run("pi.abort") == {"aborted": True}
    assert time.perf_counter() - began < 2 * SLACK
    assert (await colleague.settled())["aborted"] is True
    assert children_of(colleague.server.process.pid) == []
    await colleague.provider.until(lambda provider: provider.open == 0)
    await colleague.say("again")


async def test_a_cancelled_request_stops_the_compaction_of_a_long_history(colleague: Colleague):
    lines, last = [sessions.header(), sessions.user("u1", None, "go")], "u1"
    for number in range(40):
        wanted = sessions.call(f"c{number}", "bash", command="cat f")
        lines.append(sessions.assistant(f"a{number}", last, "", wanted))
        last = f"r{number}"
        lines.append(sessions.result(last, f"a{number}", f"c{number}", sessions.filler(300_000)))
    await colleague.open([*lines, sessions.assistant("z", last, "done", total=199_000)])
    colleague.model.default_summary = Reply(hang=True)
    compacting = colleague.begin("pi.compact")
    await colleague.until_told("compaction_start")
    await stays_alive(colleague, 5)
    began = time.perf_counter()
    colleague.server.notify("$/cancelRequest", {"id": compacting})
    answer = await colleague.answer(compacting)
    assert time.perf_counter() - began < 2 * SLACK
    assert answer["error"]["code"] == -32800
    assert colleague.entries("compaction") == []


def children_of(pid: int) -> list[str]:
    """The command lines of a process's living children."""
    found: list[str] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            command = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(command.replace(b"\0", b" ").decode())
    return found
