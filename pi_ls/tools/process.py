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
        self._groups: set[int] = set()

    async def start(
        self, command: Sequence[str], *, folder: Path, output: int | IO[bytes], errors: int | IO[bytes] | None
    ) -> Process:
        """Start a program in a group of its own, without input. Raises OSError where it cannot be started."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=output, stderr=errors, cwd=folder, start_new_session=True
        )
        self._groups.add(process.pid)
        return process

    def left_behind(self, process: Process) -> bool:
        """Whether a process that has ended left others of its group running. Forgets the group if not."""
        if _has_members(process.pid):
            return True
        self._groups.discard(process.pid)
        return False

    async def end(self, process: Process) -> None:
        """End a process and its whole group: asked first, killed soon after."""
        _signal_group(process.pid, signal.SIGTERM)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await process.wait()
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            self._groups.discard(process.pid)
        await process.wait()

    def end_all(self) -> None:
        """End every group that still has members; takes at most `GRACE_S` seconds."""
        groups = [group for group in self._groups if _has_members(group)]
        self._groups.clear()
        for group in groups:
            _signal_group(group, signal.SIGTERM)
        give_up = time.monotonic() + GRACE_S
        while any(map(_has_members, groups)) and time.monotonic() < give_up:
            time.sleep(0.01)
        for group in groups:
            _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, which)


def _has_members(group: int) -> bool:
    """Whether any process is left in a group (one that has ended and was not yet waited for counts)."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
