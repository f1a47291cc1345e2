"""Calling hooks, so that none of them can hold up, break or outlive what it is called for.

pluggy knows which functions there are; calling them is ours, because they are awaited and have rules of
their own. Before-hooks are called one after the other: the first that cancels ends it, the last replacement
wins, one that fails fails the operation. After-hooks get what happened in its order, each extension at its
own pace, and are given up on after a while.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from pi_ls.core.compaction import CompactionPreparation
from pi_ls.core.errors import ExtensionError
from pi_ls.core.events import Event, ExtensionFailed, SessionCompactFailed, SessionTreeMoved, name_of
from pi_ls.hooks import answers
from pi_ls.hooks.answers import AfterCompacting, BeforeCompact, BeforeTree, WrongAnswer
from pi_ls.hooks.catalogue import TreePreparation
from pi_ls.hooks.context import HookContext, Signal
from pi_ls.hooks.loading import NOTHING, Implementation, Loaded, Sources, describe, load, place_of
from pi_ls.hooks.running import ExtensionLoop, in_thread
from pi_ls.secrets import redacted

logger = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""A before-hook that takes longer is warned about; an after-hook is given up on."""

SETTLE_S = 1.0
"""How long an operation waits for its after-hooks: quick ones are done when it is answered."""

MOST_WAITING = 1_000
"""Events that wait for one extension; what is older is dropped and told once."""

Tell = Callable[[Event], None]


class _HookFailed(Exception):
    """A sentence that says what an extension's function did."""


class _Happened(NamedTuple):
    hook: str
    arguments: Mapping[str, Any]
    tell: Tell
    done: asyncio.Future[None]


class Hooks:
    """The extensions of one workspace folder. Lives on one event loop; loads at the first `ready`."""

    def __init__(self, sources: Sources, *, patience: float = PATIENCE_S) -> None:
        self.sources = sources
        self.patience = patience
        self._loading: asyncio.Task[Loaded] | None = None
        self._loaded = NOTHING
        self._is_loaded = False
        self._tell: Tell = lambda _event: None
        self._queues: dict[str, _Queue] = {}
        self._early: deque[tuple[str, Mapping[str, Any], Tell]] = deque(maxlen=MOST_WAITING)
        self._told: set[tuple[str, str, str]] = set()
        self._left: set[asyncio.Task[Any]] = set()
        self._loops: dict[str, ExtensionLoop] = {}

    # -- loading ---------------------------------------------------------------------------------------

    def begin(self, tell: Tell) -> None:
        """Load in the background, unless that has begun; what cannot be loaded is told to `tell`."""
        if self._loading is None:
            self._tell = tell
            self._loading = asyncio.create_task(self._load(), name="loading extensions")

    async def _load(self) -> Loaded:
        sources = self.sources
        loading = asyncio.ensure_future(in_thread(lambda: load(sources)))
        done, _ = await asyncio.wait([loading], timeout=self.patience)
        if not done:
            sentence = f"loading takes more than {self.patience:g} s; what asks extensions waits for it"
            self._report(self._tell, "extensions", "load", sentence, once=True)
        loaded = await loading
        self._loaded, self._is_loaded = loaded, True
        for problem in loaded.problems:
            self._report(self._tell, problem.extension, "load", problem.error, once=True)
        early, self._early = self._early, deque(maxlen=MOST_WAITING)
        for hook, arguments, tell in early:
            self.enqueue(hook, arguments, tell)
        return loaded

    async def ready(self) -> Loaded:
        """The extensions, once they are loaded; nothing after `close`."""
        self.begin(self._tell)
        while (loading := self._loading) is not None:
            await asyncio.wait([loading])
            if not loading.cancelled():
                return loading.result()
            if loading is self._loading:
                break
        return NOTHING

    async def reload(self, sources: Sources, tell: Tell) -> None:
        """Read all extensions anew; hooks that are running are left alone."""
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
        self.sources, self._tell = sources, tell
        self._told.clear()
        self._loading = asyncio.create_task(self._load(), name="loading extensions")
        await asyncio.wait([self._loading], timeout=self.patience)

    async def close(self) -> None:
        """Give after-hooks a last moment, then wait for nothing any more."""
        await self.settle()
        for task in (*self._left, *(queue.task for queue in self._queues.values()), self._loading):
            if task is not None:
                task.cancel()
        for loop in self._loops.values():
            loop.stop()
        self._loops.clear()

    # -- before ----------------------------------------------------------------------------------------

    async def before_compact(
        self,
        arguments: Mapping[str, Any],
        preparation: CompactionPreparation,
        path_ids: frozenset[str],
        tell: Tell,
    ) -> BeforeCompact:
        """Ask `session_before_compact`. Raises ExtensionError."""
        outcome = BeforeCompact()

        def take(implementation: Implementation, answer: Any) -> bool:
            nonlocal outcome
            given = answers.before_compact(answer, preparation, path_ids)
            if given.compaction is not None:
                outcome = BeforeCompact(given.cancel, given.compaction, implementation.extension)
            elif given.cancel:
                outcome = BeforeCompact(cancel=True)
            return given.cancel

        await self._before("session_before_compact", {"preparation": preparation, **arguments}, take, tell)
        return outcome

    async def compacting(self, arguments: Mapping[str, Any], tell: Tell) -> AfterCompacting:
        """Ask `session_compacting`. Raises ExtensionError."""
        outcome = AfterCompacting()

        def take(_implementation: Implementation, answer: Any) -> bool:
            nonlocal outcome
            given = answers.compacting(answer)
            outcome = AfterCompacting(
                prompt=given.prompt or outcome.prompt,
                context=(*outcome.context, *given.context),
                preserve_data=outcome.preserve_data
                if given.preserve_data is msgspec.UNSET
                else given.preserve_data,
            )
            return False

        await self._before("session_compacting", arguments, take, tell)
        return outcome

    async def before_tree(self, preparation: TreePreparation, context: HookContext, tell: Tell) -> BeforeTree:
        """Ask `session_before_tree`. Raises ExtensionError."""
        outcome = BeforeTree()

        def take(_implementation: Implementation, answer: Any) -> bool:
            nonlocal outcome
            given = answers.before_tree(answer)

            def last(name: str) -> Any:
                value = getattr(given, name)
                return getattr(outcome, name) if value is msgspec.UNSET else value

            outcome = BeforeTree(
                cancel=given.cancel,
                summary=given.summary or outcome.summary,
                custom_instructions=last("custom_instructions"),
                replace_instructions=last("replace_instructions"),
                label=last("label"),
            )
            return given.cancel

        arguments = {"preparation": preparation, "context": context}
        await self._before("session_before_tree", arguments, take, tell)
        return outcome

    async def has(self, hook: str) -> bool:
        """Whether any extension has that hook."""
        return hook in (await self.ready()).implementations

    async def _before(
        self,
        hook: str,
        arguments: Mapping[str, Any],
        take: Callable[[Implementation, Any], bool],
        tell: Tell,
    ) -> None:
        """Call one after the other until `take` says that this is enough."""
        signal = Signal()
        loaded = await self.ready()
        for implementation in loaded.implementations.get(hook, ()):
            try:
                given = {**arguments, "signal": signal}
                answer = await self._patiently(implementation, hook, given, signal, tell)
                if answer is not None and take(implementation, answer):
                    return
            except (WrongAnswer, _HookFailed) as error:
                sentence = f"{hook} {error}"
                self._report(tell, implementation.extension, hook, sentence)
                raise ExtensionError(
                    f"The extension {implementation.extension} failed: {sentence}",
                    extension=implementation.extension,
                ) from None

    async def _patiently(
        self,
        implementation: Implementation,
        hook: str,
        arguments: Mapping[str, Any],
        signal: Signal,
        tell: Tell,
    ) -> Any:
        """Wait for a hook however long it takes; being cancelled ends the waiting at once."""
        task = self._start(implementation, arguments)
        try:
            done, _ = await asyncio.wait([task], timeout=self.patience)
            if not done:
                sentence = f"{hook} has been at work for {self.patience:g} s; abort to go on without it"
                self._report(tell, implementation.extension, hook, sentence)
                await asyncio.wait([task])
        except asyncio.CancelledError:
            signal.abort()
            task.cancel()
            raise
        return _result(task, implementation)

    def _start(self, implementation: Implementation, arguments: Mapping[str, Any]) -> asyncio.Task[Any]:
        """A hook in a task of its own, which is held until it ends, whoever waits for it."""
        loop = self._loops.get(implementation.extension)
        if loop is None:
            loop = self._loops[implementation.extension] = ExtensionLoop()
        task = asyncio.create_task(
            _call(implementation, arguments, loop), name=f"hook of {implementation.extension}"
        )
        self._left.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # seen: whoever waited for it has told

    # -- after -----------------------------------------------------------------------------------------

    def tell_event(self, event: Event, context: HookContext, tell: Tell) -> None:
        """Something has happened: hand it to the hooks of that name, and go on."""
        if self._is_loaded and name_of(event) not in self._loaded.implementations:
            return
        event = copy.deepcopy(event)  # a hook may do with it what it likes
        self.enqueue(name_of(event), {**_arguments_of(event), "context": context}, tell)

    async def settle(self) -> None:
        """Wait a moment for the after-hooks that have something to do: quick ones are done then."""
        waiting = [done for queue in self._queues.values() for done in queue.unfinished()]
        if waiting:
            await asyncio.wait(waiting, timeout=SETTLE_S)

    def enqueue(self, hook: str, arguments: Mapping[str, Any], tell: Tell) -> None:
        """Hand something that has happened to the after-hooks of that name, and go on."""
        if not self._is_loaded:
            self._early.append((hook, arguments, tell))
            return
        for implementation in self._loaded.implementations.get(hook, ()):
            queue = self._queues.get(implementation.extension)
            if queue is None:
                queue = self._queues[implementation.extension] = _Queue(self._afterwards)
            if queue.is_full:
                sentence = "it is so slow that events had to be dropped"
                self._report(tell, implementation.extension, hook, sentence, once=True)
            happened = _Happened(hook, arguments, tell, asyncio.get_running_loop().create_future())
            queue.put(implementation, happened)

    async def _afterwards(self, implementation: Implementation, happened: _Happened) -> None:
        """One after-hook; whatever it does, it has been told."""
        task = self._start(implementation, happened.arguments)
        done, _ = await asyncio.wait([task], timeout=self.patience)
        try:
            if not done:
                task.cancel()
                raise _HookFailed(f"took more than {self.patience:g} s and is not waited for any more")
            _result(task, implementation)
        except _HookFailed as error:
            sentence = f"{happened.hook} {error}"
            self._report(happened.tell, implementation.extension, happened.hook, sentence, once=True)

    def _report(self, tell: Tell, extension: str, hook: str, sentence: str, *, once: bool = False) -> None:
        """Tell what an extension did; the same thing again and again is told once."""
        sentence = redacted(sentence)
        said = (extension, hook, sentence)
        if once and said in self._told:
            return
        self._told.add(said)
        logger.warning("The extension %s: %s", extension, sentence)
        if hook != "extension_error":  # a hook that fails when it is told of its failure
            tell(ExtensionFailed(extension=extension, hook=hook, error=sentence))

    # -- what hooks ask for ----------------------------------------------------------------------------

    def report_callback(self, tell: Tell, function: Any, name: str, error: BaseException) -> None:
        """A function that an extension left to be called has failed."""
        extension = getattr(getattr(function, "__code__", None), "co_filename", "an extension")
        place = place_of(error, extension).removesuffix(": ")
        self._report(tell, extension, "compact", f"{name} raised {describe(error)} ({place})")

    def keep(self, work: Awaitable[Any]) -> None:
        """Hold on to work that a hook has begun and nobody waits for."""
        task = asyncio.ensure_future(_awaited(work))
        self._left.add(task)
        task.add_done_callback(self._ended)


class _Queue:
    """What waits for one extension, in order; worked off by a task that ends when there is nothing left."""

    def __init__(self, work: Callable[[Implementation, _Happened], Awaitable[None]]) -> None:
        self._work = work
        self._waiting: deque[tuple[Implementation, _Happened]] = deque()
        self._now: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= MOST_WAITING

    def unfinished(self) -> list[asyncio.Future[None]]:
        now = [self._now] if self._now is not None else []
        return [*now, *(happened.done for _, happened in self._waiting)]

    def put(self, implementation: Implementation, happened: _Happened) -> None:
        if self.is_full:
            self._waiting.popleft()[1].done.cancel()
        self._waiting.append((implementation, happened))
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run(), name=f"hooks of {implementation.extension}")

    async def _run(self) -> None:
        while self._waiting:
            implementation, happened = self._waiting.popleft()
            self._now = happened.done
            try:
                await self._work(implementation, happened)
            finally:
                self._now = None
                if not happened.done.done():
                    happened.done.set_result(None)


def _arguments_of(event: Event) -> dict[str, Any]:
    """An event as the arguments of its hook."""

    def given(value: Any) -> Any:
        return None if value is msgspec.UNSET else value

    match event:
        case SessionTreeMoved():
            return {
                "new_leaf_id": event.new_leaf_id,
                "old_leaf_id": event.old_leaf_id,
                "summary_entry": given(event.summary_entry),
                "from_extension": given(event.from_extension) is True,
            }
        case SessionCompactFailed():
            return {
                "reason": event.reason,
                "error_message": given(event.error_message),
                "aborted": event.aborted,
                "will_retry": event.will_retry,
                "from_extension": event.from_extension,
            }
        case _:
            return {"event": event}


async def _call(implementation: Implementation, arguments: Mapping[str, Any], loop: ExtensionLoop) -> Any:
    """What a hook returns or raises, `SystemExit` and the like included, as a plain result or _HookFailed."""
    given = [arguments[name] for name in implementation.arguments]
    function = implementation.function
    try:
        if inspect.iscoroutinefunction(function):
            return await loop.run(lambda: function(*given))
        answer = await in_thread(lambda: function(*given))
        return await loop.run(lambda: answer) if inspect.isawaitable(answer) else answer
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # foreign code
        place = place_of(error, implementation.extension)
        raise _HookFailed(f"raised {describe(error)} ({place.removesuffix(': ')})") from error


def _result(task: asyncio.Task[Any], implementation: Implementation) -> Any:
    """What a finished hook gave. Raises _HookFailed."""
    if task.cancelled():
        raise _HookFailed(f"was cancelled by itself ({implementation.function.__name__})")
    error = task.exception()
    if error is None or isinstance(error, _HookFailed):
        return task.result()
    raise _HookFailed(f"raised {describe(error)}") from error


async def _awaited(work: Awaitable[Any]) -> None:
    await work
