from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pi_ls.core.chat import ToolOutput
from pi_ls.core.messages import text_of
from pi_ls.tools import ProcessGroups, ToolContext, bash
from pi_ls.tools.bash import Bash, BashArguments, execute
from pi_ls.tools.output import MAX_BYTES
from tests.tools.conftest import Use, names, refused, said


async def appears(path: Path) -> str:
    """What a program writes into a file, once it has."""
    async with asyncio.timeout(10):
        while not (path.exists() and path.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return path.read_text()


async def is_gone(pid: int) -> bool:
    """Whether a process ends soon (one that nobody has waited for yet is at its end)."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.01)
    return False


@asynccontextmanager
async def running(command: str, context: ToolContext) -> AsyncGenerator[asyncio.Task[ToolOutput]]:
    task = asyncio.create_task(Bash().run(BashArguments(command), context, lambda _: None))
    yield task
    task.cancel()
    await asyncio.wait({task})


async def test_output_and_errors_come_in_their_order(use: Use, folder: Path) -> None:
    assert said(await use("bash", command="echo one; echo two >&2; echo three; pwd")) == (
        f"one\ntwo\nthree\n{folder}"
    )


async def test_an_exit_code_other_than_0_is_an_error(use: Use) -> None:
    output = await use("bash", command="echo before; exit 3")
    assert refused(output) == "before\n\n[The command failed with exit code 3.]"
    assert output.details["exitCode"] == 3


async def test_there_is_no_input_to_wait_for(use: Use) -> None:
    assert said(await use("bash", command="cat")) == "(no output)"


@pytest.mark.parametrize("command", ["sleep 60 & echo done", "(sleep 60; echo late) & echo done"])
async def test_a_background_process_does_not_hold_the_call_and_is_ended_with_the_session(
    use: Use, context: ToolContext, command: str
) -> None:
    started = time.monotonic()
    text = said(await use("bash", command=f"{command}; echo $!"))
    assert time.monotonic() - started < 5
    done, pid, *_ = text.split("\n")
    assert done == "done"
    assert "still run in the background; their output goes to" in text
    os.kill(int(pid), 0)
    context.processes.end_all()
    assert await is_gone(int(pid))


async def test_a_background_process_with_its_own_output_does_not_hold_the_call(use: Use) -> None:
    pid = said(await use("bash", command="nohup sleep 60 >out.log 2>&1 & echo $!")).split("\n")[0]
    os.kill(int(pid), signal.SIGTERM)


async def test_a_background_process_that_ended_meanwhile_is_not_told(use: Use) -> None:
    assert said(await use("bash", command="sleep 0 & sleep 0.2; echo done")) == "done"
    assert said(await use("bash", command="(sleep 0 &) ; sleep 0.2; echo done")) == "done"


async def test_what_a_background_process_writes_later_can_be_read(use: Use, folder: Path) -> None:
    text = said(await use("bash", command="(while [ ! -e go ]; do sleep 0.01; done; echo late) & echo now"))
    log = Path(text.rpartition("goes to ")[2].removesuffix("]"))
    assert log.read_text() == "now\n"
    (folder / "go").touch()
    async with asyncio.timeout(10):
        while log.read_text() != "now\nlate\n":
            await asyncio.sleep(0.01)


async def test_cancelling_ends_the_whole_group_within_a_second(
    context: ToolContext, folder: Path, temporary: Path
) -> None:
    command = "trap '' TERM; sleep 60 & trap - TERM; sleep 60 & echo $(jobs -p) $$ > pids; wait"
    async with running(command, context) as task:
        pids = (await appears(folder / "pids")).split()
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - started < 10
    assert names(temporary) == []
    assert [await is_gone(int(pid)) for pid in pids] == [True, True, True]


async def test_a_command_that_takes_too_long_is_ended_and_its_output_kept(use: Use, folder: Path) -> None:
    text = refused(await use("bash", command="echo $$ > pid; echo begun; sleep 60", timeout=0.3))
    assert text == "begun\n\n[The command was ended because it took more than 0.3 s.]"
    assert await is_gone(int((folder / "pid").read_text()))


async def test_50_mb_are_cut_with_bounded_memory_while_the_loop_goes_on(use: Use) -> None:
    late = 0.0

    async def tick() -> None:
        nonlocal late
        while True:
            started = time.monotonic()
            await asyncio.sleep(0.002)
            late = max(late, time.monotonic() - started - 0.002)

    ticking = asyncio.create_task(tick())
    before = peak_kb()
    text = said(await use("bash", command="yes | head -c 50000000"))
    ticking.cancel()
    shown, _, note = text.partition("\n\n[")
    assert shown.count("y") == 2_000
    assert note.startswith("The last 2000 of 25000000 lines. All of them: ")
    log = Path(note.rpartition(": ")[2].removesuffix("]"))
    assert log.stat().st_size == 50_000_000
    assert peak_kb() - before < 20_000
    assert late < 0.5


def peak_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_a_long_line_is_cut_at_its_start_between_characters(use: Use) -> None:
    text = said(await use("bash", command="printf 'é%.0s' $(seq 40000); echo -n x"))
    shown = text.partition("\n\n[")[0]
    assert set(shown) == {"é", "x"}
    assert MAX_BYTES - 4 <= len(shown.encode()) <= MAX_BYTES


async def test_short_output_leaves_no_file(use: Use, temporary: Path) -> None:
    said(await use("bash", command="echo x"))
    assert names(temporary) == []


async def test_too_much_output_ends_the_command(
    use: Use, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bash, "MAX_OUTPUT_BYTES", 1 << 20)
    text = refused(await use("bash", command="yes"))
    assert text.endswith("[The command was ended because it wrote more than 1 MB.]")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (r"\360\237\230", "�"),
        (r"a\033[31mred\033[0m\033]0;title\007b", "aredb"),
        (r"10%%\r50%%\r100%%\r\ndone", "100%\ndone"),
        (r"a\000b\tc", "ab\tc"),
        (r"\303\251", "é"),
    ],
)
async def test_output_is_text_as_a_terminal_shows_it(use: Use, printed: str, shown: str) -> None:
    assert said(await use("bash", command=f"LC_ALL=C printf '{printed}'")) == shown


async def test_output_can_be_watched_while_it_comes(context: ToolContext, folder: Path) -> None:
    seen: list[str] = []

    def watch(output: ToolOutput) -> None:
        seen.append(text_of(output.content))
        (folder / "go").touch()

    command = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second"
    async with asyncio.timeout(10):
        done = await Bash().run(BashArguments(command), context, watch)
    assert seen[0] == "first\n"
    assert said(done) == "first\nsecond"


async def test_a_command_of_the_user_tells_how_it_went(context: ToolContext) -> None:
    done = await execute("echo out; exit 2", context)
    assert (done.output.text, done.exit_code, done.ended_because, done.full_output_path) == (
        "out\n",
        2,
        None,
        None,
    )


async def test_a_command_that_is_stopped_tells_what_it_wrote_until_then(context: ToolContext) -> None:
    stop, shown = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        execute("echo so far; sleep 60", context, update=lambda _: shown.set(), stop=stop)
    )
    async with asyncio.timeout(10):
        await shown.wait()
        stop.set()
        done = await running
    assert (done.output.text, done.exit_code, done.ended_because) == ("so far\n", None, "it was stopped")


async def test_a_shell_that_is_not_there_is_said(folder: Path, context: ToolContext) -> None:
    odd = ToolContext(
        folder=folder,
        workspace=context.workspace,
        trusted=True,
        processes=ProcessGroups(),
        shell="/no/such/shell",
    )
    with pytest.raises(Exception, match="/no/such/shell could not be started"):
        await execute("true", odd)


async def test_the_settings_choose_the_shell(folder: Path, context: ToolContext) -> None:
    (folder / "shell").write_text('#!/bin/sh\necho chosen "$2"\n')
    (folder / "shell").chmod(0o755)
    chosen = ToolContext(
        folder=folder,
        workspace=context.workspace,
        trusted=True,
        processes=context.processes,
        shell=str(folder / "shell"),
    )
    assert (await execute("a command", chosen)).output.text == "chosen a command\n"
