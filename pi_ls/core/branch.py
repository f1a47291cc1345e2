"""What a navigation leaves behind, and as much of it as a summary's budget allows.

From a tree and two places in it to the messages of a branch summary; nothing is asked of a model here. The
newest work comes first into the budget, since that is what a person means who comes back. Sources: seed 000
for the two passes, seed 002 for the common ancestor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pi_ls.core.context import context_edits, edit_message
from pi_ls.core.entries import BranchSummaryBody, CompactionBody, Entry, message_of
from pi_ls.core.messages import (
    AssistantMessage,
    Message,
    ToolResultMessage,
)
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.transcript import FileOps, details_file_ops, file_ops
from pi_ls.core.tree import SessionTree

EDGE = 0.9
"""A summary entry may exceed the budget while less than this part of it is used: it stands for much."""


class BranchEntries(msgspec.Struct, frozen=True, rename="camel"):
    """The entries a navigation leaves, oldest first, and where the two paths part."""

    entries: tuple[Entry, ...]
    common_ancestor_id: str | None
    """The deepest entry of both paths; None where they share none."""


class BranchPreparation(msgspec.Struct, frozen=True, rename="camel"):
    """Everything a branch summary is made from. Messages and ids are in the order of the path."""

    messages: tuple[Message, ...]
    file_ops: FileOps
    total_tokens: int
    """Tokens of `messages`, by estimate."""
    entry_ids: tuple[str, ...]
    """The entries behind `messages`."""


def collect_entries_for_branch_summary(
    tree: SessionTree, old_leaf_id: str | None, target_id: str | None
) -> BranchEntries:
    """The entries from the common ancestor (not included) to the old leaf; None is before the first entry.

    Compactions do not stop the walk, and an entry's own `fromId` is not looked at. Raises KeyError for an id
    that is not there. Source: seed 002.
    """
    ancestor = tree.common_ancestor(old_leaf_id, target_id)
    left: list[Entry] = []
    for entry in reversed(tree.path_to(old_leaf_id)):
        if entry.id == ancestor:
            break
        left.append(entry)
    return BranchEntries(tuple(reversed(left)), ancestor)


def prepare_branch_entries(
    entries: Sequence[Entry], token_budget: float = 0, counter: TokenCounter | None = None
) -> BranchPreparation:
    """The newest messages of a left branch that fit a budget in tokens (0 or less: no limit).

    Files come from two places: what earlier summaries list (extensions' are their own), wherever in the
    branch they stand; and the tool calls of the messages that were looked at, the first one that no longer
    fits included. Source: seed 000.
    """
    counter = counter or TokenCounter()
    files = FileOps()
    for entry in entries:
        files |= _listed_files(entry)

    taken: list[tuple[Entry, Message]] = []
    total = 0
    for entry, message in _newest_first(entries):
        files |= file_ops([message])
        tokens = counter.message(message)
        if 0 < token_budget < total + tokens:
            if entry.type in ("compaction", "branch_summary") and total < token_budget * EDGE:
                taken.append((entry, message))
                total += tokens
            break
        taken.append((entry, message))
        total += tokens
    taken.reverse()
    return BranchPreparation(
        messages=tuple(message for _, message in taken),
        file_ops=files,
        total_tokens=total,
        entry_ids=tuple(entry.id for entry, _ in taken),
    )


def _listed_files(entry: Entry) -> FileOps:
    if entry.type not in ("compaction", "branch_summary"):
        return FileOps()
    match entry.body:
        case CompactionBody() | BranchSummaryBody() as body if not body.from_extension:
            return details_file_ops(body.details)
        case _:
            return FileOps()


def _newest_first(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Message]]:
    """The messages to tell, with context edits applied: no tool results and no failed answers."""
    edits = context_edits(entries)
    for entry in reversed(entries):
        message = message_of(entry)
        if message is not None and entry.id in edits:
            message = edit_message(message, edits[entry.id].replacement)
        match message:
            case None | ToolResultMessage() | AssistantMessage(stop_reason="error"):
                continue
            case _:
                yield entry, message
