"""What a hook has at hand: its session, and the signal that its work is not wanted any more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pi_ls.core.errors import NoSession
from pi_ls.core.jsonvalues import Json

OnComplete = Callable[[Json], Any]
OnError = Callable[[Exception], Any]


class Host(Protocol):
    """What a session lets hooks do. Everything may be called from any thread."""

    @property
    def folder(self) -> Path:
        """The workspace folder."""
        ...

    @property
    def session_id(self) -> str | None:
        """The session's id; None where an event is about the folder as such."""
        ...

    @property
    def session_file(self) -> Path | None:
        """The session's file, which may not be there yet."""
        ...

    def get_context_usage(self) -> Json | None:
        """How full the context is; None without a model or a usable window."""
        ...

    def compact(
        self, custom_instructions: str | None, on_complete: OnComplete | None, on_error: OnError | None
    ) -> None:
        """Begin a compaction and return at once."""
        ...


class HookContext:
    """The session a hook is called for. Made by the program, given to every hook that asks for `context`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def folder(self) -> Path:
        """The workspace folder."""
        return self._host.folder

    @property
    def session_id(self) -> str | None:
        """The session's id; None where an event is about the folder as such."""
        return self._host.session_id

    @property
    def session_file(self) -> Path | None:
        """The session's file, which may not be there yet."""
        return self._host.session_file

    def get_context_usage(self) -> Json | None:
        """`{tokens, percent, contextWindow, …}` as of now, as `pi.contextUsage` answers it.

        `tokens` and `percent` are None after a compaction until the next answer; all of it is None without a
        model or a usable window.
        """
        return self._host.get_context_usage()

    def compact(
        self,
        custom_instructions: str | None = None,
        on_complete: OnComplete | None = None,
        on_error: OnError | None = None,
    ) -> None:
        """Begin a compaction like that of `pi.compact`, and return at once.

        It waits for a compaction or navigation that is under way. `on_complete` gets its result, `on_error`
        the exception that ended it; both may be `async`.
        """
        self._host.compact(custom_instructions, on_complete, on_error)


class FolderHost:
    """The host of events that are about a folder and no session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session_id: str | None = None
        self.session_file: Path | None = None

    def get_context_usage(self) -> Json | None:
        """Without a session there is no context."""
        return None

    def compact(
        self, custom_instructions: str | None, on_complete: OnComplete | None, on_error: OnError | None
    ) -> None:
        """There is nothing to compact; `on_error` is told so."""
        del custom_instructions, on_complete
        if on_error is not None:
            on_error(NoSession("No session is meant; there is nothing to compact"))


class Signal:
    """Whether the operation a hook stands before has been aborted. May be asked on any thread or loop."""

    def __init__(self) -> None:
        self.aborted = False
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []  # each on the loop of who waits

    def abort(self) -> None:
        """Nobody waits for the hook any more."""
        with self._lock:
            self.aborted = True
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is gone
                one.get_loop().call_soon_threadsafe(_release, one)

    async def wait(self) -> None:
        """Return once the operation is aborted."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.aborted:
                return
            self._waiting.append(one)
        await one


def _release(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
