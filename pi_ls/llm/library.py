"""litellm where it can do no harm.

It takes seconds to import, reads the environment and the network, and may stall whoever runs it. So it is
imported when a model is first asked, on one daemon thread with an event loop of its own, with all that
switched off; the caller's loop only waits for answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar, cast

from pi_ls.core.errors import ProviderError

T = TypeVar("T")

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import fetches a price list
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",  # else it loads the next .env file up from site-packages
    "LITELLM_LOG": "CRITICAL",  # an unknown level would make the import raise
    "LITELLM_RUST": "false",
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",  # else an answer with 100 equal pieces is an error
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _Loop(asyncio.SelectorEventLoop):
    """litellm's loop. It makes the coroutine of a request on another thread and awaits it at once.

    Where the request is cancelled just then, nobody ever does: it is closed here. Else Python complains of it
    on standard error, later and in the name of whatever runs then.
    """

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """See `asyncio`."""

        def work() -> Any:
            result = func(*args)
            if inspect.iscoroutine(result):
                self.call_soon_threadsafe(watch, result)
            return result

        def watch(made: Coroutine[Any, Any, Any]) -> None:
            # one step after whoever waits for it goes on
            waiting.add_done_callback(lambda _: self.call_soon(_close_unless_begun, made))

        waiting = super().run_in_executor(executor, work)
        return waiting


def _close_unless_begun(made: Coroutine[Any, Any, Any]) -> None:
    if inspect.getcoroutinestate(made) == inspect.CORO_CREATED:
        made.close()


class Library:
    """litellm and the loop it runs on. A daemon thread: a process may end in the middle of the import."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._module: Any = None
        self._broken: BaseException | None = None

    async def run(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Runs `work(litellm)` on the library's loop; cancelling the wait cancels it there."""
        future = asyncio.run_coroutine_threadsafe(self._run(work), self._started())
        return await asyncio.wrap_future(future)

    async def stream(self, work: Callable[[Any], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """What `work(litellm)` yields on the library's loop; whoever leaves early closes it there."""
        here = asyncio.get_running_loop()
        arrived: asyncio.Queue[tuple[T | None, BaseException | None, bool]] = asyncio.Queue()

        def put(item: T | None, error: BaseException | None, last: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop that waited is gone
                here.call_soon_threadsafe(arrived.put_nowait, (item, error, last))

        async def produce(litellm: Any) -> None:
            try:
                async with contextlib.aclosing(work(litellm)) as items:
                    async for item in items:
                        put(item, None, False)
            except Exception as error:  # noqa: BLE001 - raised again where it is waited for
                put(None, error, True)
            else:
                put(None, None, True)

        running = asyncio.run_coroutine_threadsafe(self._run(produce), self._started())
        running.add_done_callback(
            lambda done: put(None, None if done.cancelled() else done.exception(), True)
        )
        try:
            while True:
                item, error, last = await arrived.get()
                if error is not None:
                    raise error
                if last:
                    return
                yield cast("T", item)
        finally:
            running.cancel()

    async def _run(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        await asyncio.sleep(0)  # a cancellation that came during the import takes effect before any request
        if self._broken is not None:
            raise ProviderError(
                f"litellm cannot be loaded: {self._broken}. Install pi-ls again.",
                provider="litellm",
                retryable=False,
            )
        return await work(self._module)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = _Loop()
                threading.Thread(
                    target=self._serve, args=(self._loop,), name="pi-ls-llm", daemon=True
                ).start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        interval, collecting = sys.getswitchinterval(), gc.isenabled()
        gc.disable()  # collections during an import of thousands of modules would stall every thread
        sys.setswitchinterval(0.001)
        try:
            self._module = _import_litellm()
        except BaseException as error:  # noqa: BLE001 - a broken install must not take the server down
            self._broken = error
        finally:
            gc.freeze()
            sys.setswitchinterval(interval)
            if collecting:
                gc.enable()
        asyncio.set_event_loop(loop)
        loop.run_forever()


def _import_litellm() -> Any:
    os.environ.update(_ENVIRONMENT)
    _reach_loopback_directly()
    import litellm

    litellm.suppress_debug_info = True  # it prints advice on standard output
    litellm.disable_token_counter = True  # a missing usage reads as zeros instead of invented numbers
    litellm.disable_streaming_logging = True
    litellm.enable_anthropic_prompt_caching = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
        logger.setLevel(logging.CRITICAL)
    return litellm


def _reach_loopback_directly() -> None:
    """A proxy for the world cannot reach a server on this machine; clients read this when they are made."""
    for name in ("NO_PROXY", "no_proxy"):
        listed = [host.strip() for host in os.environ.get(name, "").split(",") if host.strip()]
        missing = [host for host in _LOOPBACK if host not in listed]
        os.environ[name] = ",".join(listed + missing)


library = Library()
