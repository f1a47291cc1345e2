"""Programs that tools start: each in a process group of its own, which can be ended as a whole.

Nothing started here has an input to wait for. What counts as the end of a command is the end of its first
process; what that one leaves running is remembered, so that nothing outlives the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from pathlib import Path
from typing import IO

GRACE_S = 0.3
"""How long a group may take to end by itself before it is killed."""


class ProcessGroups:
    """The process groups of one session that may still have members."""

    def __init__(self) -> None:
        self._leaders: dict[int, Process] = {}

    async def start(
        self, command: Sequence[str], *, folder: Path, output: int | IO[bytes], errors: int | IO[bytes] | None
    ) -> Process:
        """Start a program in a group of its own, without input. Raises OSError where it cannot be started."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=output, stderr=errors, cwd=folder, start_new_session=True
        )
        self._leaders[process.pid] = process
        return process

    def left_behind(self, process: Process) -> bool:
        """Whether a process that has ended left others of its group running. Forgets the group if not."""
        if _is_alive(process):
            return True
        self._leaders.pop(process.pid, None)
        return False

    async def end(self, process: Process) -> None:
        """End a process and its whole group: asked first, killed soon after."""
        _signal_group(process, signal.SIGTERM)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await process.wait()
        finally:
            _signal_group(process, signal.SIGKILL)
            self._leaders.pop(process.pid, None)
        await process.wait()

    def end_all(self) -> None:
        """End every group that still has members; blocks for at most about `GRACE_S` seconds."""
        groups = [process for process in self._leaders.values() if _is_alive(process)]
        self._leaders.clear()
        for process in groups:
            _signal_group(process, signal.SIGTERM)
        give_up = time.monotonic() + GRACE_S
        while any(map(_is_alive, groups)) and time.monotonic() < give_up:
            time.sleep(0.01)
        for process in groups:
            _signal_group(process, signal.SIGKILL)


def _signal_group(process: Process, which: signal.Signals) -> None:
    if not _is_reused(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, which)


def _is_reused(process: Process) -> bool:
    """Whether the number of a process that has ended is another one's now, and so may be its group's."""
    if process.returncode is None:
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_alive(process: Process) -> bool:
    """Whether any process of a group is running."""
    if _is_reused(process):
        return False
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _all_ended(process.pid)


def _all_ended(group: int) -> bool:
    """Whether the members of a group have all ended, and only nobody has asked yet how.

    Where nobody adopts them (in many containers) they stay so for ever. Without /proc: no.
    """
    states: list[bytes] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group, *_ = status.read_bytes().rpartition(b")")[2].split()
            if int(its_group) == group:
                states.append(state)
    return bool(states) and set(states) <= {b"Z", b"X"}
