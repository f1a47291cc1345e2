"""One session's side of the hooks: what they are told and asked, and what they may ask for in return.

Hooks get copies: whatever an extension does with what it is given, the session keeps its own.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pi_ls.core.branch import collect_entries_for_branch_summary
from pi_ls.core.compaction import CompactionPreparation
from pi_ls.core.context import UsageMeter
from pi_ls.core.entries import Entry
from pi_ls.core.events import CompactionReason, Event
from pi_ls.core.jsonvalues import Json
from pi_ls.hooks import AfterCompacting, BeforeCompact, BeforeTree, HookContext, TreePreparation
from pi_ls.hooks.context import OnComplete, OnError
from pi_ls.hooks.running import call_back
from pi_ls.session import reading

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession


class Extending:
    """The hooks as a session sees them, and the session as they see it."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._hooks = session.environment.hooks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = HookContext(self)

    def begin(self) -> None:
        """Let extensions be loaded in the background, unless another session of the folder has."""
        self._loop = asyncio.get_running_loop()
        self._hooks.begin(self._session.emit)

    def tell(self, event: Event) -> None:
        """Something has happened."""
        if self._loop is not None:
            self._hooks.tell_event(event, self._context, self._session.emit)

    async def settle(self) -> None:
        """Give after-hooks that have something to do a moment to do it."""
        await self._hooks.settle()

    # -- compaction ------------------------------------------------------------------------------------

    async def before_compact(
        self,
        preparation: CompactionPreparation,
        instructions: str | None,
        reason: CompactionReason,
        will_retry: bool,
    ) -> BeforeCompact:
        """Ask whether to compact, and whether somebody has a summary. Raises ExtensionError."""
        if not await self._hooks.has("session_before_compact"):
            return BeforeCompact()
        path = tuple(self._session.tree.path())
        arguments = {
            "preparation": await asyncio.to_thread(copy.deepcopy, preparation),
            "branch_entries": tuple(lent(path)),
            "custom_instructions": instructions,
            "reason": reason,
            "will_retry": will_retry,
            "context": self._context,
        }
        ids = frozenset(entry.id for entry in path)
        return await self._hooks.before_compact(arguments, preparation, ids, self._session.emit)

    async def compacting(self, preparation: CompactionPreparation) -> AfterCompacting:
        """Ask how to summarize. Raises ExtensionError."""
        if not await self._hooks.has("session_compacting"):
            return AfterCompacting()
        given = await asyncio.to_thread(copy.deepcopy, preparation)
        messages = (*given.messages_to_summarize, *given.turn_prefix_messages)
        arguments = {"preparation": given, "messages": messages, "context": self._context}
        return await self._hooks.compacting(arguments, self._session.emit)

    def compacted(
        self, entry: Entry, from_extension: bool, reason: CompactionReason, will_retry: bool
    ) -> None:
        """A compaction is written."""
        [compaction_entry] = lent([entry])
        arguments = {
            "compaction_entry": compaction_entry,
            "from_extension": from_extension,
            "reason": reason,
            "will_retry": will_retry,
            "context": self._context,
        }
        self._hooks.enqueue("session_compact", arguments, self._session.emit)

    # -- navigation ------------------------------------------------------------------------------------

    async def before_tree(self, target_id: str | None, *, wants_summary: bool) -> BeforeTree:
        """Ask whether and how to navigate. Raises ExtensionError."""
        if not await self._hooks.has("session_before_tree"):
            return BeforeTree()
        tree = self._session.tree
        left = collect_entries_for_branch_summary(tree, tree.leaf_id, target_id)
        preparation = TreePreparation(
            target_id=target_id,
            old_leaf_id=tree.leaf_id,
            common_ancestor_id=left.common_ancestor_id,
            entries_to_summarize=tuple(lent(left.entries)),
            user_wants_summary=wants_summary,
        )
        return await self._hooks.before_tree(preparation, self._context, self._session.emit)

    # -- what hooks may ask for (`hooks.Host`), from any thread ----------------------------------------

    @property
    def folder(self) -> Path:
        """The workspace folder."""
        return self._session.environment.folder

    @property
    def session_id(self) -> str | None:
        """The session's id."""
        return self._session.id

    @property
    def session_file(self) -> Path | None:
        """The session's file."""
        return self._session.file.path

    def get_context_usage(self) -> Json | None:
        """How full the context is; measured anew, by a meter of its own."""
        meter = UsageMeter(self._session.counter)
        return reading.context_usage(self._session, meter, detail=False) or None

    def compact(
        self, custom_instructions: str | None, on_complete: OnComplete | None, on_error: OnError | None
    ) -> None:
        """Begin a compaction on the session's loop."""
        assert self._loop is not None
        try:
            caller = asyncio.get_running_loop()
        except RuntimeError:  # a thread
            caller = None

        def begin() -> None:
            self._hooks.keep(self._compact(custom_instructions, on_complete, on_error, caller))

        self._loop.call_soon_threadsafe(begin)

    async def _compact(
        self,
        instructions: str | None,
        on_complete: OnComplete | None,
        on_error: OnError | None,
        caller: asyncio.AbstractEventLoop | None,
    ) -> None:
        try:
            await self._session.after_operation("compaction", "navigation")
            result = await self._session.compact(instructions)
        except Exception as error:  # noqa: BLE001  # all of them are the extension's to hear of
            await self._call_back("on_error", on_error, error, caller)
        else:
            await self._call_back("on_complete", on_complete, result, caller)

    async def _call_back(
        self,
        name: str,
        function: OnComplete | OnError | None,
        value: Any,
        caller: asyncio.AbstractEventLoop | None,
    ) -> None:
        if function is None:
            return
        try:
            await call_back(caller, function, value)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # foreign code
            self._hooks.report_callback(self._session.emit, function, name, error)


def lent(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Entries for foreign hands: their bodies are copies, read when they are looked at."""
    for entry in entries:
        yield Entry(
            entry.id,
            entry.parent_id,
            entry.type,
            entry.timestamp,
            entry.role,
            read=lambda _lent, entry=entry: copy.deepcopy(entry.data),
        )


def chosen(value: Any, otherwise: Any) -> Any:
    """What a hook said, or what holds where it said nothing."""
    return otherwise if value is msgspec.UNSET else value
