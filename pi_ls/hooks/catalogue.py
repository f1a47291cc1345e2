"""Every hook there is: its arguments, and what it may return.

An extension writes a function of a hook's name, with those of its arguments that it needs, in any order, and
marks it with `hookimpl`. It may be `async` or plain; neither runs on the server's own loop, so that it may
take its time. `context` is a `HookContext`. Answers are dictionaries with the keys named here, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pluggy

from pi_ls.core import events
from pi_ls.core.compaction import CompactionPreparation
from pi_ls.core.entries import Entry
from pi_ls.core.events import CompactionReason
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import Message
from pi_ls.hooks.context import HookContext, Signal

PROJECT = "pi_ls"
"""pluggy's name for us, and the group of entry points in which extensions are found."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class TreePreparation(msgspec.Struct, frozen=True, rename="camel"):
    """A navigation that is about to happen."""

    target_id: str | None
    old_leaf_id: str | None
    common_ancestor_id: str | None
    entries_to_summarize: tuple[Entry, ...]
    """What is left behind, oldest first."""
    user_wants_summary: bool


class Catalogue:
    """The hooks that have arguments of their own. For every other event see `EVENT_HOOKS`."""

    @hookspec
    def session_before_compact(
        self,
        preparation: CompactionPreparation,
        branch_entries: Sequence[Entry],
        custom_instructions: str | None,
        reason: CompactionReason,
        will_retry: bool,
        signal: Signal,
        context: HookContext,
    ) -> Any:
        """Before a compaction asks anybody for a summary.

        May return `{"cancel": True}`, or `{"compaction": {"summary", "firstKeptEntryId", "tokensBefore"?,
        "shortSummary"?, "usage"?, "details"?, "preserveData"?}}` to be used in place of a model's. The first
        kept entry must be on the current path, which is `branch_entries`.
        """

    @hookspec
    def session_compacting(
        self,
        preparation: CompactionPreparation,
        messages: Sequence[Message],
        signal: Signal,
        context: HookContext,
    ) -> Any:
        """Before a model is asked to summarize `messages`.

        May return `{"prompt"?: text, "context"?: [text], "preserveData"?}`: another summary prompt, what
        else the summarizer should know, and data to be kept on the compaction entry.
        """

    @hookspec
    def session_compact(
        self,
        compaction_entry: Entry,
        from_extension: bool,
        reason: CompactionReason,
        will_retry: bool,
        context: HookContext,
    ) -> None:
        """After a compaction: its entry is written and the context is rebuilt."""

    @hookspec
    def session_compact_failed(
        self,
        reason: CompactionReason,
        error_message: str | None,
        aborted: bool,
        will_retry: bool,
        from_extension: bool,
        context: HookContext,
    ) -> None:
        """After a compaction that failed or, without an error message, was aborted or cancelled."""

    @hookspec
    def session_before_tree(self, preparation: TreePreparation, signal: Signal, context: HookContext) -> Any:
        """Before a navigation, whether or not a summary of what is left is wanted.

        May return `{"cancel": True}`; `{"summary": {"summary", "usage"?, "details"?}}`, used where a summary
        is wanted; `{"customInstructions"?, "replaceInstructions"?, "label"?}` in place of what was asked for.
        """

    @hookspec
    def session_tree(
        self,
        new_leaf_id: str | None,
        old_leaf_id: str | None,
        summary_entry: Json | None,
        from_extension: bool,
        context: HookContext,
    ) -> None:
        """After the leaf was moved by navigation or by undoing a compaction."""


def _event_spec(kind: type[events.Event]) -> Any:
    def spec(self: Any, event: events.Event, context: HookContext) -> None:
        del self, event, context

    spec.__name__ = str(kind.__struct_config__.tag)
    spec.__doc__ = kind.__doc__
    return hookspec(spec)


_EVENTS: dict[str, type[events.Event]] = {
    str(kind.__struct_config__.tag): kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
}
EVENT_HOOKS: tuple[str, ...] = tuple(name for name in _EVENTS if not hasattr(Catalogue, name))
"""One hook for every event, under the event's name, with `event` and `context`."""

for _name in EVENT_HOOKS:
    setattr(Catalogue, _name, _event_spec(_EVENTS[_name]))

BEFORE_HOOKS: tuple[str, ...] = ("session_before_compact", "session_compacting", "session_before_tree")
"""The hooks that are waited for, however long they take, and whose failure is the operation's."""


def _arguments_of(name: str) -> tuple[str, ...]:
    code = getattr(Catalogue, name).__code__
    return tuple(code.co_varnames[1 : code.co_argcount])


HOOKS: dict[str, tuple[str, ...]] = {
    name: _arguments_of(name)
    for name in (
        "session_before_compact",
        "session_compacting",
        "session_compact",
        "session_compact_failed",
        "session_before_tree",
        "session_tree",
        *EVENT_HOOKS,
    )
}
"""Every hook and the names of its arguments."""
