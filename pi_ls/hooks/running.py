"""Where extensions run: beside the server, on threads of their own.

A plain function gets a thread, and the async functions of one extension share an event loop that is theirs.
So whatever they do, and however long they block, the server's own loop goes on: it answers, aborts and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LAST_MOMENT_S = 0.5
"""How long what still runs on an extension's loop may take to end when the loop is stopped."""


class _Outcome(NamedTuple):
    """What foreign code came to. Not raised: `SystemExit` would end the loop it is raised on."""

    value: Any = None
    error: BaseException | None = None


class ExtensionLoop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        threading.Thread(target=self._run, name="extension's loop", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopped:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of a task that an extension began
                self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(BaseException):
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_LAST_MOMENT_S))
        self._loop.close()

    def stop(self) -> None:
        """Cancel what runs there and end the thread, as soon as it lets itself be ended."""

        def stop() -> None:
            self._stopped = True
            self._loop.stop()

        with contextlib.suppress(RuntimeError):  # stopped already
            self._loop.call_soon_threadsafe(stop)

    async def run(self, function: Callable[[], Any]) -> Any:
        """What a function called on that loop returns, awaited if it can be.

        Raises whatever it raises. Cancelling this returns at once and cancels what was begun there.
        """
        return await run_on(self._loop, function)


async def run_on(loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> Any:
    """Call a function on another thread's loop, as `ExtensionLoop.run` does."""
    begun = asyncio.run_coroutine_threadsafe(_outcome(function), loop)
    return _result_of(await asyncio.wrap_future(begun))


def _result_of(outcome: _Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


async def _outcome(function: Callable[[], Any]) -> _Outcome:
    try:
        answer = function()
        return _Outcome(await answer if inspect.isawaitable(answer) else answer)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  # raised again where it is waited for
        return _Outcome(error=error)


async def in_thread(function: Callable[[], T]) -> T:
    """Run foreign code on a thread of its own.

    Not one of the pool's: it may never end, and must then neither use up the pool nor hold up the exit.
    Raises whatever it raises, `SystemExit` included.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Outcome] = loop.create_future()

    def settle(outcome: _Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        try:
            outcome = _Outcome(function())
        except BaseException as error:  # noqa: BLE001  # raised again where it is waited for
            outcome = _Outcome(error=error)
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            logger.debug("The loop is gone; nobody waits for %s", function)

    threading.Thread(target=run, name="extension", daemon=True).start()
    return _result_of(await done)


async def call_back(
    loop: asyncio.AbstractEventLoop | None, function: Callable[[Any], Any], value: Any
) -> None:
    """Call a function that an extension left to be called; if it is async, on the loop of who left it.

    `loop` is None where that was a thread without one. Raises whatever the function raises.
    """
    if not inspect.iscoroutinefunction(function):
        answer = await in_thread(lambda: function(value))
        if not inspect.isawaitable(answer):
            return
        function = lambda _: answer  # noqa: E731
    if loop is not None and not loop.is_closed():
        await run_on(loop, lambda: function(value))
    else:
        _result_of(await in_thread(lambda: asyncio.run(_outcome(lambda: function(value)))))
