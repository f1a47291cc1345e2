"""Blanking old tool output: which results of a context lose their content, and what they become.

The newest output is protected, older output is replaced by a note of its size, and only where that saves
enough. The decision and the new lines are values; keeping the originals and rewriting the file belong to
the store. Source: seed 000 (`pruneToolOutputs`); the floor for small results is ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from pi_ls.core.context import ContextMessage
from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json, is_object
from pi_ls.core.messages import TextContent, ToolResultMessage
from pi_ls.core.options import PruningSettings
from pi_ls.core.tokens import TokenCounter


class OldOutput(msgspec.Struct, frozen=True):
    """A tool result to be blanked: its entry, the tokens it has, and how many fewer it will have."""

    entry: Entry
    tokens: int
    saved: int

    def blanked(self, pruned_at: float) -> Json:
        """The entry's line with the content replaced; `pruned_at` is in milliseconds since 1970."""
        data = self.entry.data
        content = [{"type": "text", "text": placeholder(self.tokens)}]
        return data | {"message": data["message"] | {"content": content, "prunedAt": pruned_at}}


class PruningPlan(msgspec.Struct, frozen=True):
    """What would be blanked, in the order of the context; nothing where it is not worth it."""

    outputs: tuple[OldOutput, ...] = ()

    @property
    def pruned_count(self) -> int:
        """How many results."""
        return len(self.outputs)

    @property
    def tokens_saved(self) -> int:
        """How many tokens the context loses, the placeholders taken off."""
        return sum(output.saved for output in self.outputs)

    def originals(self) -> list[Json]:
        """The lines to put away before anything is rewritten."""
        return [output.entry.data for output in self.outputs]

    def replacements(self, pruned_at: float) -> dict[str, Json]:
        """Entry id → its new line."""
        return {output.entry.id: output.blanked(pruned_at) for output in self.outputs}


def placeholder(tokens: int) -> str:
    """What stands in place of an output of that many tokens."""
    return f"[Output truncated - {tokens} tokens]"


def plan_pruning(
    context: Sequence[ContextMessage], settings: PruningSettings, counter: TokenCounter
) -> PruningPlan:
    """Which tool results of a context to blank. Does not look at `settings.enabled`.

    All results count towards the protected newest tokens, also those that are never blanked: of a protected
    tool, blanked before, shown otherwise by a context edit, or smaller than `min_tokens`.
    """
    newest_first: list[OldOutput] = []
    protected = 0
    for shown in reversed(context):
        if not isinstance(shown.message, ToolResultMessage):
            continue
        tokens = counter.message(shown.message) if shown.edited else counter.entry(shown.entry)
        if protected < settings.protect_tokens:
            protected += tokens
        elif _may_be_blanked(shown, shown.message, tokens, settings):
            saved = max(0, tokens - counter.message(_blank(tokens)))
            newest_first.append(OldOutput(shown.entry, tokens, saved))
    plan = PruningPlan(tuple(reversed(newest_first)))
    return plan if plan.tokens_saved >= settings.minimum_savings else PruningPlan()


def _may_be_blanked(
    shown: ContextMessage, result: ToolResultMessage, tokens: int, settings: PruningSettings
) -> bool:
    return not (
        shown.edited
        or result.pruned_at is not None
        or result.tool_name in settings.protected_tools
        or tokens < settings.min_tokens
    )


def _blank(tokens: int) -> ToolResultMessage:
    return ToolResultMessage(content=(TextContent(placeholder(tokens)),))


def plan_restoring(
    entries: Iterable[Entry],
    archived: Iterable[Json],
    entry_ids: Collection[str] | None = None,
) -> dict[str, Json]:
    """Entry id → the line it had before it was blanked, for the blanked entries of a session.

    `archived` are the lines that were put away, oldest first; `entry_ids` limits which are restored. An
    archived line counts only where it is of the same call as the entry that has its id now, so that a file
    that was mixed up cannot bring in anything else.
    """
    blanked = {entry.id: message for entry in entries if (message := _blanked_message(entry)) is not None}
    originals: dict[str, Json] = {}
    for line in archived:
        entry_id, message = line.get("id"), line.get("message")
        if not isinstance(entry_id, str) or not is_object(message):
            continue
        wanted = entry_ids is None or entry_id in entry_ids
        now = blanked.get(entry_id)
        if wanted and now is not None and message.get("toolCallId") == now.tool_call_id:
            originals[entry_id] = line
    return originals


def _blanked_message(entry: Entry) -> ToolResultMessage | None:
    message = entry.message if entry.role == "toolResult" else None
    return message if isinstance(message, ToolResultMessage) and message.pruned_at is not None else None
