"""Leaving with the editor: noticing that its process has died, and never staying longer than promised."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

logger = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 2.0
LAST_RESORT_S: Final = 4.5
"""However an orderly end goes, the process is gone this long after it was asked to go."""


def watch_process(pid: int, on_death: Callable[[], None]) -> Callable[[], None]:
    """Call `on_death` on the event loop when that process is no more; returns what stops the watching.

    Where the system can wait for a process (Linux) this costs nothing; elsewhere it looks every two seconds.
    On Windows nothing is watched: there the end of standard input has to do.
    """
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        return lambda: None
    if not _alive(pid):
        logger.error(
            "The editor's process, processId %d, does not exist; the server ends. An editor that runs in "
            "another container or on another machine must send null",
            pid,
        )
        loop.call_soon(on_death)
        return lambda: None
    descriptor = _open_process(pid)
    if descriptor is None:
        polling = asyncio.create_task(_poll(pid, on_death), name="watch editor")
        return lambda: _cancel(polling)
    return _Watch(loop, descriptor, on_death).stop


class _Watch:
    """A process descriptor on the loop, which becomes readable when the process ends."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, descriptor: int, on_death: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._descriptor: int | None = descriptor
        self._on_death = on_death
        loop.add_reader(descriptor, self._died)

    def _died(self) -> None:
        self.stop()
        self._on_death()

    def stop(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None


def _open_process(pid: int) -> int | None:
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except OSError:  # an old kernel, or not allowed
            return None
    return None


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _poll(pid: int, on_death: Callable[[], None]) -> None:
    while _alive(pid):  # noqa: ASYNC110  # nobody would set an event
        await asyncio.sleep(POLL_INTERVAL_S)
    on_death()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # or a number that no process can have
        return False
    except OSError:
        return True  # it is somebody else's
    return True


def ending_signals() -> list[signal.Signals]:
    """The signals that end the server in good order, with all it has started.

    A terminal that is closed hangs up on what runs in it, the editor's server included. One that was started
    to survive that (`nohup`) does.
    """
    signals = [signal.SIGTERM, signal.SIGINT]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def leave_by_force(exit_code: int) -> None:
    """End the process in `LAST_RESORT_S` seconds without asking any thread: one may hang."""

    def give_up() -> None:
        logger.error("Something did not end in time; the server leaves without it")
        os._exit(exit_code)

    timer = threading.Timer(LAST_RESORT_S, give_up)
    timer.daemon = True
    timer.start()


def leave(exit_code: int) -> NoReturn:
    """End the process now that everything of ours is closed.

    Without the interpreter's own end: daemon threads that are still inside a provider's library or a blocked
    read can make that abort (a fatal error and exit code 134 instead of ours).
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(exit_code)
