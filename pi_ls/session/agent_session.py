"""AgentSession: one session's file, tree and verbs, and the primitives its operations stand on.

All of it runs on one event loop; whatever reads or counts much goes to a thread. At most one operation
(a compaction, a navigation) runs at a time; labels, name, model and thinking level can always be set.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from pi_ls.core.context import UsageMeter, message_of, model_of, thinking_level_of
from pi_ls.core.entries import LEAF_MARKER, Entry, session_name
from pi_ls.core.errors import (
    Busy,
    Cancelled,
    EntryNotFound,
    InvalidSettings,
    NoSession,
    PiError,
    SessionReadOnly,
    WriteFailed,
)
from pi_ls.core.events import (
    ContextUsage,
    EntryAppended,
    Event,
    ModelChanged,
    SessionClosed,
    SessionInfoChanged,
    SessionOpened,
    SessionProblem,
    SessionReloaded,
    SessionTreeMoved,
    SettingsProblem,
    ThinkingLevelChanged,
)
from pi_ls.core.jsonvalues import Json, dumps, loads, string
from pi_ls.core.messages import Message, UserMessage
from pi_ls.core.options import CompactionSettings
from pi_ls.core.tokens import CountText, TokenCounter, estimate_tokens
from pi_ls.core.tree import SessionTree, TreeProblem
from pi_ls.core.triggers import kept_within
from pi_ls.llm import text_counter
from pi_ls.models import OFFLINE, ModelInfo
from pi_ls.secrets import without_secrets
from pi_ls.session import compacting, navigating, pruning, reading
from pi_ls.session.agent import Agent
from pi_ls.session.environment import Environment
from pi_ls.session.extending import Extending
from pi_ls.store import FileProblem, SessionFile

Emit = Callable[[Event], None]
OperationKind = Literal["run", "compaction", "navigation"]
T = TypeVar("T")

MOST_PROBLEMS = 100
"""How many problems of one kind are told: a file may have a hundred thousand broken lines."""

MARKER_DELAY_S = 2.0
"""A plain move is written down this long after it, unless something was appended meanwhile."""


class Progress(Protocol):
    """Somebody who shows how far an operation is."""

    def report(self, message: str, percentage: int | None = None) -> None:
        """Say what is being done now; `percentage` is 0 to 100 where one is known."""
        ...


class Operation:
    """What a session is doing. Once `committed`, its entry is being written: too late to stop.

    `stop` replaces the plain way to stop it, which is to cancel its task. A run may be at a step of another
    kind, which can be stopped alone.
    """

    def __init__(self, kind: OperationKind) -> None:
        self.kind: OperationKind = kind
        self.committed = False
        self.task: asyncio.Task[Any] | None = None
        self.stop: Callable[[], bool] | None = None
        self.over: Callable[[], None] | None = None
        """Called once it has ended, however it did, and the session is free again."""
        self.stopped = False
        self.now: Operation | None = None
        """The step it is at, where that is an operation of its own."""

    def cancel(self) -> bool:
        """Ask it to stop; False where it is too late for that."""
        if self.committed or self.task is None:
            return False
        self.stopped = True
        return self.stop() if self.stop is not None else self.task.cancel()

    @contextlib.contextmanager
    def step(self, kind: OperationKind) -> Generator[Operation]:
        """A part of it, run by the current task, that can be stopped by itself."""
        step = Operation(kind)
        step.task = asyncio.current_task()
        self.now = step
        try:
            yield step
        finally:
            self.now = None

    def stopped_alone(self) -> bool:
        """Whether a step's cancellation was meant for it and not for the whole; it is taken back then."""
        if self.stopped and self.task is not None:
            self.task.uncancel()
        return self.stopped


class AgentSession:
    """One session. Made by `open` or `create`; `close` lets go of it.

    `emit` is called on the event loop with every event, in order.
    """

    def __init__(self, file: SessionFile, entries: Iterable[Entry], environment: Environment, emit: Emit):
        self.file = file
        self.environment = environment
        self.tree = SessionTree(entries)
        self.count_text: CountText | None = None
        self.counter = TokenCounter()
        self.name = reading.name_of_session(self.tree.entries)
        self.model: ModelInfo | None = None
        self.thinking_level = "off"
        self.problems: list[Json] = []
        self._noted: set[tuple[str, str, int | None, str | None]] = set()
        self._kinds: Counter[str] = Counter()
        self.extending = Extending(self)

        def tell(event: Event) -> None:
            emit(event)
            self.extending.tell(event)

        self._emit: Emit = tell
        self._told: list[Event] = []
        self._meter = UsageMeter(self.counter)
        self._operation: Operation | None = None
        self._path_model: tuple[str, str] | None = None
        self._model_is_known = False
        self._path_is_new = True
        self._path_has_new_model = False
        self._writing = asyncio.Lock()
        self._counting = asyncio.Lock()
        self._usage_task: asyncio.Task[None] | None = None
        self._usage_stale = False
        self._told_usage: Json | None = None
        self._marker: asyncio.TimerHandle | None = None
        self._marking: asyncio.Task[None] | None = None
        self._moved = False
        self._unsaved_told = False
        self._closed = False
        self.agent = Agent(self)

    # -- opening and closing ---------------------------------------------------------------------------

    @classmethod
    async def open(cls, path: Path, environment: Environment, emit: Emit) -> AgentSession:
        """Open a session file; nothing on disk changes. Raises SessionNotFound or SessionUnreadable."""

        def load() -> tuple[AgentSession, list[FileProblem]]:
            opened = SessionFile.open(path, str(environment.folder))
            return cls(opened.file, opened.entries, environment, emit), opened.problems

        session, problems = await asyncio.to_thread(load)
        await session._begin(problems)
        return session

    @classmethod
    async def create(
        cls,
        environment: Environment,
        emit: Emit,
        *,
        parent_session: str | None = None,
        name: str | None = None,
    ) -> AgentSession:
        """A new session; its file appears with its first user or assistant message."""
        file = SessionFile.create(
            environment.sessions_directory(),
            str(environment.folder),
            parent_session=parent_session,
            now_ms=now_ms(),
        )
        session = cls(file, (), environment, emit)
        await session._begin([])
        if name is not None and session_name(name):
            await session.set_name(name)
        return session

    async def _begin(self, problems: Iterable[FileProblem]) -> None:
        self.extending.begin()
        await self._reset_counter()
        await self._look_up_path()
        self._emit(SessionOpened(state=self.state()))
        for problem in problems:
            self._note(problem.kind, problem.message, line=problem.line, entry_id=problem.entry_id)
        self._note_tree(self.tree.problems)
        cwd = self.file.header.cwd
        if cwd and not await asyncio.to_thread(Path(cwd).is_dir):
            self._note("cwdMissing", f"The folder this session was held in, {cwd}, is not there any more")
        self.usage_changed()

    async def _reset_counter(self) -> None:
        kind = self.environment.token_estimator
        self.count_text = await asyncio.to_thread(text_counter, kind)
        self.counter = TokenCounter(self.count_text)
        self._meter = UsageMeter(self.counter)

    def count(self, text: str) -> int:
        """Tokens of a text, by the session's estimator."""
        return estimate_tokens(UserMessage(text), self.count_text)

    async def close(self) -> None:
        """Stop what runs, write down where the leaf is, and let go of the file."""
        if self._closed:
            return
        self._closed = True
        await self.abort()
        if self._marker is not None:
            self._marker.cancel()
        if self._marking is not None:
            await asyncio.wait([self._marking])
        with contextlib.suppress(PiError):  # a place that cannot be written down is no reason to stay
            await self._write_marker()
        if self._usage_task is not None:
            self._usage_task.cancel()
        await self.agent.close()
        self._emit(SessionClosed(state=self.state()))
        self.file.close()

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id in the file's header."""
        return self.file.header.id

    @property
    def operation(self) -> OperationKind | None:
        """What is running, if anything; a compaction inside a run counts by itself."""
        if self._operation is None:
            return None
        return (self._operation.now or self._operation).kind

    @property
    def is_running(self) -> bool:
        """Whether the agent is at work, even if it is compacting just now."""
        return self._operation is not None and self._operation.kind == "run"

    @property
    def is_closed(self) -> bool:
        """Whether nothing is to begin any more."""
        return self._closed

    def state(self) -> Json:
        """The protocol's session state."""
        return reading.state(self)

    def compaction_settings(self) -> CompactionSettings:
        """The settings a compaction would go by now, for the window of the model. Raises InvalidSettings."""
        settings = self.environment.settings.compaction(self._ref())
        window = self.model.context_window if self.model is not None else None
        return settings if window is None else kept_within(settings, window)

    @property
    def auto_compaction_enabled(self) -> bool:
        """Whether automatic compaction is switched on."""
        return self.environment.settings.auto_compaction()

    @property
    def auto_compaction_paused(self) -> bool:
        """Whether automatic compaction does not run although it is on: it gave up, or settings are wrong."""
        try:
            self.compaction_settings()
        except InvalidSettings:
            return True
        return self.agent.pause.reason is not None

    def last_message(self) -> Message | None:
        """The last message of the context; reads it from the file."""
        messages = (message_of(entry) for entry in reversed(tuple(self.tree.path())))
        return next((message for message in messages if message is not None), None)

    def _ref(self) -> tuple[str, str] | None:
        return (self.model.provider, self.model.id) if self.model is not None else None

    def entry(self, entry_id: str) -> Entry:
        """The entry of that id. Raises EntryNotFound."""
        entry = self.tree.get(entry_id)
        if entry is None:
            raise EntryNotFound(f"There is no entry {entry_id} in this session", entryId=entry_id)
        return entry

    # -- telling ---------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Tell an event to whoever listens."""
        self._emit(event)

    def tell_once(self, event: Event) -> None:
        """Tell an event unless the very same was told before."""
        if event not in self._told:
            self._told.append(event)
            self._emit(event)

    def _note_tree(self, problems: Iterable[TreeProblem]) -> None:
        for problem in problems:
            self._note(problem.kind, problem.message, entry_id=problem.entry_id)

    def _note(self, kind: str, message: str, *, line: int | None = None, entry_id: str | None = None) -> None:
        """Remember a problem and tell it, once; of a kind that has no end, no more than a person can read."""
        if (kind, message, line, entry_id) in self._noted:
            return
        self._noted.add((kind, message, line, entry_id))
        self._kinds[kind] += 1
        if self._kinds[kind] > MOST_PROBLEMS:
            return
        if self._kinds[kind] == MOST_PROBLEMS:
            message = f"{message}; what more there is of this kind, `pi-ls check` tells"
        known: Json = {"kind": kind, "message": message}
        if line is not None:
            known["line"] = line
        if entry_id is not None:
            known["entryId"] = entry_id
        self.problems.append(known)
        self._emit(
            SessionProblem(
                file=str(self.file.path),
                kind=kind,
                message=message,
                line=msgspec.UNSET if line is None else line,
                entry_id=msgspec.UNSET if entry_id is None else entry_id,
            )
        )

    # -- writing ---------------------------------------------------------------------------------------

    async def append(
        self, body: Json, *, under: str | msgspec.UnsetType | None = msgspec.UNSET, required: bool = False
    ) -> Entry:
        """Append an entry on the leaf (or on `under`) and make it the leaf.

        `body` is the entry without `id`, `parentId` and `timestamp`. With `required` it is on disk when
        this returns, or WriteFailed is raised and it is not kept; without, an entry that cannot be written
        stays in memory as unsaved. Raises SessionReadOnly and SessionLocked, and WriteFailed where another
        program has written the session anew, without what the entry stands on.
        """
        self.require_writable()
        async with self._writing, self.file.lock():
            await self._take_in_foreign()
            await self._migrate()
            parent_id = self.tree.leaf_id if under is msgspec.UNSET else under
            self._require_what_it_stands_on(body, parent_id)
            entry = self.file.append(free_of_secrets(body) | {"parentId": parent_id}, required=required)
            self._take_in(entry, foreign=False, move_leaf=True)
            if required:
                await asyncio.to_thread(self.file.sync)
        self._note_unsaved()
        await self._follow_path()
        self.usage_changed()
        return entry

    def _require_what_it_stands_on(self, body: Json, parent_id: str | None) -> None:
        """Whoever made the entry took his time, and meanwhile the session may be another one."""
        if parent_id is not None and parent_id not in self.tree:
            missing = parent_id
        elif body["type"] == "compaction":
            missing = string(body.get("firstKeptEntryId"))
            if any(one.id == missing for one in self.tree.ancestry(self.tree.get(parent_id or ""))):
                return
        else:
            return
        raise WriteFailed(
            f"Another program has written {self.file.path} anew, and entry {missing} is not on its path any "
            "more. Nothing was added.",
            path=str(self.file.path),
        )

    async def _migrate(self) -> None:
        """The first thing written to a file of an older version is the file itself, in the present one."""
        if self.file.needs_migration and self.file.on_disk:
            await asyncio.to_thread(self.file.rewrite)
            self._emit(SessionReloaded(reason="migrated"))

    def require_writable(self) -> None:
        """Raises SessionReadOnly: before work is done that could not be kept."""
        if self.file.read_only:
            raise SessionReadOnly(self.file.read_only)

    def _take_in(self, entry: Entry, *, foreign: bool, move_leaf: bool) -> None:
        if entry.type == "thinking_level_change" or entry.parent_id != self.tree.leaf_id:
            self._path_is_new = True
        elif entry.type == "model_change" or entry.role == "assistant":
            self._path_has_new_model = True
        self._note_tree(self.tree.append(entry, move_leaf=move_leaf))
        self._moved = False
        if entry.is_leaf_marker:
            return
        told: Json = {"id": entry.id, "parentId": entry.parent_id, "type": entry.type}
        if entry.type == "message" and entry.role is not None:
            told["role"] = entry.role
        self._emit(EntryAppended(entry=told, leaf_id=self.tree.leaf_id, foreign=foreign))
        if entry.type == "session_info":
            name = reading.name_of_session([entry])
            if name != self.name:
                self.name = name
                self._emit(SessionInfoChanged(name=name))

    async def look(self) -> None:
        """Take in what other programs wrote, if they did; costs next to nothing where they did not."""
        if self._closed or not self.file.on_disk:
            return
        known = len(self.tree.entries), self.tree
        async with self._writing:
            if not self._closed:
                await self._take_in_foreign()
        if known != (len(self.tree.entries), self.tree):
            await self._follow_path()
            self.usage_changed()

    async def _take_in_foreign(self) -> None:
        """Read what other programs wrote since we last looked."""
        changes = self.file.poll()
        if changes.rewritten:
            await self._reload()
            return
        for problem in changes.problems:
            self._note(problem.kind, problem.message, line=problem.line, entry_id=problem.entry_id)
        for entry in changes.appended:
            # The other program goes on where we stand: follow it. Where it stands elsewhere, stay.
            # A leaf marker stands for the entry it hangs on; whoever does not know it goes on from itself.
            parent_id = entry.parent_id if entry.parent_id in self.tree else None
            known = parent_id is not None or entry.parent_id is None
            extends = known and self.tree.settle(parent_id) == self.tree.leaf_id and not entry.is_leaf_marker
            self._take_in(entry, foreign=True, move_leaf=extends)
        if changes.appended:
            self._note_foreign("Another program is writing to this session too")

    async def _reload(self) -> None:
        """Another program wrote the file anew: read it again, and stay where we are if that still is."""
        leaf_id = self.tree.leaf_id

        def load() -> SessionTree:
            opened = self.file.reopen()
            self.file = opened.file
            return SessionTree(opened.entries)

        self.tree = await asyncio.to_thread(load)
        if leaf_id is not None and leaf_id in self.tree:
            self.tree.move(leaf_id)
        self.name = reading.name_of_session(self.tree.entries)
        self._path_is_new = True
        await self._reset_counter()
        self._note_foreign("Another program wrote this session's file anew")
        self._emit(SessionReloaded(reason="rewritten"))
        self.usage_changed()

    def _note_foreign(self, message: str) -> None:
        """That somebody else writes here is told once, whatever they do."""
        if all(problem["kind"] != "foreignWriter" for problem in self.problems):
            self._note("foreignWriter", message)

    async def rewrite(self, replacements: Mapping[str, Json]) -> None:
        """Write the file anew with other objects for some entries. Raises WriteFailed, SessionReadOnly."""
        async with self._writing, self.file.lock():
            await self._take_in_foreign()
            await asyncio.to_thread(self.file.rewrite, replacements)
            for entry_id in replacements:
                self.counter.forget(entry_id)
                self.entry(entry_id).content_changed()
            self._meter = UsageMeter(self.counter)
        self._emit(SessionReloaded(reason="pruned"))
        self.usage_changed()

    async def prune_tool_outputs(self, *, dry_run: bool = False) -> Json:
        """Blank old tool output, or say what that would come to."""
        if dry_run:
            return await pruning.prune(self, dry_run=True)
        return await self.operate("navigation", lambda op: pruning.prune(self))

    async def restore_pruned(self, entry_ids: Collection[str] | None = None) -> Json:
        """Put blanked tool output back, all of it or that of some entries."""
        return await self.operate("navigation", lambda op: pruning.restore(self, entry_ids))

    def _note_unsaved(self) -> None:
        """Tell once for each spell of failing writes."""
        if self.file.unsaved and not self._unsaved_told:
            self._unsaved_told = True
            self._emit(
                SessionProblem(
                    file=str(self.file.path),
                    kind="notSaved",
                    message=self.file.write_problem or "",
                )
            )
        elif not self.file.unsaved:
            self._unsaved_told = False

    # -- the leaf --------------------------------------------------------------------------------------

    async def move(self, leaf_id: str | None) -> None:
        """Make another entry the leaf by a plain move; it is written down a little later.

        Raises EntryNotFound.
        """
        if leaf_id is not None:
            self.entry(leaf_id)
        self.tree.move(leaf_id)
        self._moved = self._path_is_new = True
        await self._follow_path()
        if self._marker is not None:
            self._marker.cancel()
        self._marker = asyncio.get_running_loop().call_later(MARKER_DELAY_S, self._start_marking)

    def _start_marking(self) -> None:
        self._marking = asyncio.create_task(self._mark())

    async def _mark(self) -> None:
        with contextlib.suppress(PiError):
            await self._write_marker()

    async def _write_marker(self) -> None:
        """Write down a plain move that nothing has followed, so that it outlives the server.

        A session whose file is not there yet, or that may not be written, forgets the move.
        """
        if self._moved and not self.file.read_only and self.file.on_disk:
            await self.append({"type": "custom", "customType": LEAF_MARKER})

    async def _follow_path(self) -> None:
        """Model and thinking level are the path's: tell where it sets others than before."""
        model, level = self.model, self.thinking_level
        await self._look_up_path()
        if level != self.thinking_level:
            self._emit(ThinkingLevelChanged(level=self.thinking_level))
        if model != self.model:
            self.agent.resume()
            ref = self._ref() or (None, None)
            self._emit(ModelChanged(provider=ref[0], model_id=ref[1]))

    async def _look_up_path(self) -> None:
        """What the path sets. An append looks no further back than it must, however long the path is."""
        if not (self._path_is_new or self._path_has_new_model):
            return
        path = self.tree.path()
        if self._path_is_new:
            self.thinking_level = thinking_level_of(path)
        self._path_is_new = self._path_has_new_model = False
        named = model_of(path)
        if named != self._path_model or not self._model_is_known:
            self._path_model, self._model_is_known = named, True
            self.model = await asyncio.to_thread(self.environment.choose_model, named)

    # -- operations ------------------------------------------------------------------------------------

    async def operate(self, kind: OperationKind, work: Callable[[Operation], Awaitable[T]]) -> T:
        """Run the one operation a session may have. Raises Busy while another runs, Cancelled if stopped.

        Cancelling the caller is the same as the abort verbs: the work is cancelled and has cleaned up
        before this returns. Work that is already being written is waited for and its result returned.
        """
        operation = self.begin(kind, work)
        task = operation.task
        assert task is not None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                operation.cancel()
        if task.cancelled():
            raise Cancelled(f"{kind.capitalize()} cancelled")
        return task.result()

    def begin(self, kind: OperationKind, work: Callable[[Operation], Awaitable[Any]]) -> Operation:
        """Begin an operation without waiting for it: the session is busy from now on. Raises Busy."""
        if self._closed:
            raise NoSession("The session is closed")
        self.refuse_while_busy()
        operation = self._operation = Operation(kind)

        async def run() -> Any:
            return await work(operation)

        def over(_: asyncio.Task[Any]) -> None:
            self._operation = None
            if operation.over is not None:
                operation.over()
            self.usage_changed()
            self.agent.deliver(after_abort=kind == "run" and operation.stopped)

        operation.task = asyncio.create_task(run(), name=f"{kind} {self.id}")
        # no `finally` inside: a task cancelled before its first step has none
        operation.task.add_done_callback(over)
        return operation

    async def _abort(self, *kinds: OperationKind) -> bool:
        """Stop what runs, or the step it is at, if it is of one of these kinds.

        Its end is waited for in any case; False where it could not be stopped any more.
        """
        operation = self._operation
        if operation is not None and operation.kind not in kinds:
            operation = operation.now
        if operation is None or operation.kind not in kinds:
            return False
        stopped, task = operation.cancel(), operation.task
        while task is not None and not task.done() and operation in (self._operation, self._step()):
            await asyncio.wait([task], timeout=0.01)
        return stopped

    def _step(self) -> Operation | None:
        return self._operation.now if self._operation is not None else None

    async def abort_compaction(self) -> bool:
        """Stop a compaction; False where none runs or its entry is already being written."""
        return await self._abort("compaction")

    async def abort_branch_summary(self) -> bool:
        """Stop a navigation that is still summarizing; False where none runs or it is too late."""
        return await self._abort("navigation")

    async def abort(self) -> bool:
        """Stop whatever runs in the session, a command of the user included."""
        stopped_bash = await self.agent.abort_bash()
        return await self._abort("run", "compaction", "navigation") or stopped_bash

    async def after_run(self) -> None:
        """Wait until the agent is not at work."""
        while (
            self._operation is not None and self._operation.kind == "run" and self._operation.task is not None
        ):
            await asyncio.wait([self._operation.task])

    async def after_operation(self, *kinds: OperationKind) -> None:
        """Wait until no operation of one of these kinds is running."""
        while self._operation is not None and self._operation.kind in kinds:
            if self._operation.task is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait([self._operation.task])

    def refuse_while_busy(self) -> None:
        """Raises Busy while an operation runs: for verbs that must not come between its steps."""
        if self._operation is not None:
            operation = self.operation
            raise Busy(f"Wait for the {operation} that is running, or stop it first", operation=operation)

    async def compact(self, custom_instructions: str | None = None, progress: Progress | None = None) -> Json:
        """Compact by hand; the protocol's CompactionResult. Raises PiError; Cancelled when aborted.

        A run is ended first; what waits for it is delivered when the compaction has ended.
        """
        with self.agent.held():
            if self.is_running:
                await self._abort("run")
            work = self.operate(
                "compaction", lambda op: compacting.compact(self, op, custom_instructions, progress)
            )
            try:
                return await work
            finally:
                self._deliver_soon()

    def _deliver_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.agent.deliver)

    async def undo_compaction(self) -> Json:
        """Move the leaf to before the newest compaction of the path. Nothing is deleted."""
        return await self.operate("navigation", lambda op: navigating.undo_compaction(self))

    async def navigate_tree(
        self,
        target_id: str | None,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
        progress: Progress | None = None,
    ) -> Json:
        """Go to another entry, with or without a summary of the branch that is left.

        Returns the protocol's result; a cancelled navigation is one too. Raises PiError.
        """
        wish = navigating.Wish(
            target_id=target_id,
            summarize=summarize,
            custom_instructions=custom_instructions,
            replace_instructions=replace_instructions,
            label=label,
        )
        old_leaf_id = self.tree.leaf_id
        try:
            return await self.operate("navigation", lambda op: navigating.navigate(self, op, wish, progress))
        except Cancelled:
            return {"cancelled": True, "aborted": True, "leafId": old_leaf_id, "oldLeafId": old_leaf_id}

    def moved(
        self, old_leaf_id: str | None, summary_entry: Entry | None = None, *, from_extension: bool = False
    ) -> None:
        """Tell that the leaf moved by navigation or undo."""
        self._emit(
            SessionTreeMoved(
                new_leaf_id=self.tree.leaf_id,
                old_leaf_id=old_leaf_id,
                summary_entry=summary_entry.data if summary_entry is not None else msgspec.UNSET,
                from_extension=from_extension if summary_entry is not None else msgspec.UNSET,
            )
        )

    # -- small verbs -----------------------------------------------------------------------------------

    async def set_label(self, entry_id: str, label: str | None) -> Json:
        """Name an entry, or clear its name with None. The label entry is the leaf then."""
        self.entry(entry_id)
        text = session_name(label or "")
        if self.tree.labels.get(entry_id) != text:
            await self.append({"type": "label", "targetId": entry_id} | ({"label": text} if text else {}))
        return {"entryId": entry_id, "label": text, "leafId": self.tree.leaf_id}

    async def set_name(self, name: str) -> Json:
        """Name the session; an empty name clears it."""
        text = session_name(name)
        if text != self.name:
            await self.append({"type": "session_info", "name": text or ""})
        return self.state()

    async def set_model(self, provider: str, model_id: str) -> Json:
        """Use another model from here on."""
        if (provider, model_id) != model_of(self.tree.path()):
            await self.append({"type": "model_change", "provider": provider, "modelId": model_id})
        return self.state()

    async def set_thinking_level(self, level: str) -> Json:
        """Use another thinking level from here on."""
        if level != self.thinking_level:
            await self.append({"type": "thinking_level_change", "thinkingLevel": level})
        return self.state()

    async def set_auto_compaction(self, enabled: bool) -> Json:
        """Turn automatic compaction on or off, for this server and in the global settings file."""
        not_saved = await asyncio.to_thread(self.environment.settings.set_auto_compaction, enabled)
        self.usage_changed()
        return self.state() | ({"notSaved": not_saved} if not_saved else {})

    async def settings_changed(self) -> None:
        """Look again at everything the settings decide."""
        self._model_is_known, self._path_is_new = False, True
        self.agent.resume()
        await self._reset_counter()
        await self._follow_path()
        self.usage_changed()

    # -- looking ---------------------------------------------------------------------------------------

    async def context_usage(self, detail: bool = False) -> Json:
        """How full the context is; `{}` without a model or a usable window."""
        async with self._counting:
            return await asyncio.to_thread(reading.context_usage, self, self._meter, detail)

    def usage_changed(self) -> None:
        """Something may have changed the context's size: measure it and tell, off the loop."""
        self._usage_stale = True
        if self._usage_task is None or self._usage_task.done():
            self._usage_task = asyncio.create_task(self._tell_usage())

    async def _tell_usage(self) -> None:
        while self._usage_stale and not self._closed:
            self._usage_stale = False
            usage = await self.context_usage()
            self._note_window()
            if usage != self._told_usage:
                self._told_usage = usage
                self._emit(msgspec.convert(usage | {"event": "context_usage"}, ContextUsage))

    def _note_window(self) -> None:
        """Tell what keeps the meter, or automatic compaction, from working as one would expect."""
        if self.model is None:
            return
        window = self.model.context_window
        if window is None and self.model != OFFLINE:
            self._note(
                "windowUnknown",
                f"The context window of {self.model.ref} is not known; give it as contextWindow of that "
                f"model in {self.environment.agent_dir / 'models.json'}",
            )
        if window is None:
            return
        try:
            wanted = self.environment.settings.compaction(self._ref())
        except InvalidSettings as error:
            self._note_override(error)
            return
        if wanted.reserve_tokens >= window:
            self._note(
                "reserveTooLarge",
                f"compaction.reserveTokens ({wanted.reserve_tokens}) is not below the context window of "
                f"{self.model.ref} ({window}); half the window is used instead",
            )
        kept = kept_within(wanted, window).keep_recent_tokens
        if kept != wanted.keep_recent_tokens:
            self._note(
                "keepTooLarge",
                f"compaction.keepRecentTokens ({wanted.keep_recent_tokens}) leaves nothing to compact in the "
                f"context window of {self.model.ref} ({window}); {kept} is used instead",
            )

    def _note_override(self, error: InvalidSettings) -> None:
        """Tell of a wrong value for the model in use; an ordinary one was told when it was read."""
        file, key = str(error.data.get("file", "")), str(error.data.get("key", ""))
        if key.startswith("compaction.modelOverrides"):
            self.tell_once(SettingsProblem(file=file, key=key, message=error.message))

    async def stats(self) -> Json:
        """Counts and totals over the whole file, abandoned branches and summaries included."""
        return reading.stats(self) | await self._usage_part()

    async def _usage_part(self) -> Json:
        usage = await self.context_usage()
        return {"contextUsage": usage} if usage else {}

    async def preview_compaction(
        self, custom_instructions: str | None = None, keep_recent_tokens: int | None = None
    ) -> Json:
        """What `compact` would do, without a model."""
        path = tuple(self.tree.path())
        return await asyncio.to_thread(
            compacting.preview, self, path, custom_instructions, keep_recent_tokens
        )

    async def tree_page(self, **arguments: Any) -> Json:
        """A page of the tree (`pi.getTree`)."""
        return await asyncio.to_thread(reading.tree_page, self, **arguments)

    async def entries_page(self, since: str | None = None, limit: int | None = None) -> Json:
        """A page of the file's entries (`pi.getEntries`)."""
        return await asyncio.to_thread(reading.entries_page, self, since, limit)

    async def messages_page(
        self,
        leaf_id: str | msgspec.UnsetType | None = msgspec.UNSET,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """A page of the context's messages (`pi.getMessages`)."""
        return await asyncio.to_thread(reading.messages_page, self, leaf_id, limit, cursor)

    # -- other files -----------------------------------------------------------------------------------

    async def fork(self, entry_id: str) -> tuple[Path | None, str]:
        """A new session file holding the path before a user message, and that message's text.

        The path is None where nothing stands before the message: a new, empty session is the fork then.
        """
        return await self.operate("navigation", lambda op: navigating.fork(self, entry_id))

    async def clone(self) -> Path | None:
        """A new session file holding the current path; None where that is empty."""
        return await self.operate("navigation", lambda op: navigating.clone(self))

    async def export(self, format: Literal["markdown", "jsonl"], path: str | None = None) -> Path:
        """Write the session to a file outside its folder and return where. Raises WriteFailed."""
        return await asyncio.to_thread(reading.export, self, format, path)


def free_of_secrets(body: Json) -> Json:
    """An entry as it may be written: where a tool or a provider repeated a key, without it."""
    data = dumps(body)
    clean = without_secrets(data)
    return body if clean is data else loads(clean)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
