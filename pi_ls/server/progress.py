"""LSP work done progress: begin, report and end always paired, and nothing more than a display.

On the token the client sent with its request; else on one of our own, if the client announced that it shows
such progress; else nowhere. A client that refuses to create one, or never answers, loses nothing but the
progress.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from lsprotocol import types

from pi_ls.server.rpc import ProgressToken, Protocol

LOADING_DELAY_S = 0.5
"""The loading of a session is shown only when it takes longer than this."""


class WorkDone:
    """The progress of one operation, from the moment it may be shown."""

    def __init__(self, protocol: Protocol, title: str, task: asyncio.Task[Any]) -> None:
        self._protocol = protocol
        self._title = title
        self._task = task
        self._token: ProgressToken | None = None
        self._last: tuple[str, int | None] | None = None
        self._ended = False

    def begin(self, token: ProgressToken) -> None:
        """Show it on a token the client knows; what was reported before shows at once."""
        self._token = token
        message, percentage = self._last or (None, None)
        value = types.WorkDoneProgressBegin(
            title=self._title, cancellable=True, message=message, percentage=percentage
        )
        self._protocol.cancel_by_progress(token, self._task)
        self._protocol.notify(types.PROGRESS, types.ProgressParams(token=token, value=value))
        if self._ended:
            self._send_end(token)

    def report(self, message: str, percentage: int | None = None) -> None:
        """Say what is being done now; `percentage` is 0 to 100 where one is known."""
        self._last = (message, percentage)
        if self._token is not None and not self._ended:
            value = types.WorkDoneProgressReport(message=message, percentage=percentage)
            self._protocol.report_progress(types.ProgressParams(token=self._token, value=value))

    def end(self) -> None:
        """The operation is over, however it went."""
        self._ended = True
        if self._token is not None:
            self._send_end(self._token)

    def _send_end(self, token: ProgressToken) -> None:
        self._protocol.cancel_by_progress(token, None)
        value = types.WorkDoneProgressEnd()
        self._protocol.notify(types.PROGRESS, types.ProgressParams(token=token, value=value))


@asynccontextmanager
async def work_done(
    protocol: Protocol, title: str, token: ProgressToken | None = None, *, delay: float = 0
) -> AsyncGenerator[WorkDone]:
    """Show what happens inside as progress; `delay`: seconds it may take without being shown.

    The cancel button cancels the task that entered. Never waits for the client.
    """
    task = asyncio.current_task()
    assert task is not None
    progress = WorkDone(protocol, title, task)
    timer: asyncio.TimerHandle | None = None
    if delay:
        timer = asyncio.get_running_loop().call_later(delay, _show, protocol, progress, token)
    else:
        _show(protocol, progress, token)
    try:
        yield progress
    finally:
        if timer is not None:
            timer.cancel()
        progress.end()


def _show(protocol: Protocol, progress: WorkDone, token: ProgressToken | None) -> None:
    if token is not None:
        progress.begin(token)
    elif _announced(protocol):
        own = f"pi-{uuid.uuid4()}"
        request = types.WorkDoneProgressCreateParams(token=own)
        answer = protocol.send_request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, request)
        answer.add_done_callback(
            lambda done: None if done.cancelled() or done.exception() else progress.begin(own)
        )


def _announced(protocol: Protocol) -> bool:
    window = protocol.client_capabilities.window
    return window is not None and window.work_done_progress is True
