"""What a compaction would do: when one is due, where it cuts, what is summarized and what stays.

One straight calculation from a path of entries to a `CompactionPreparation`; nothing is asked of a model
here and nothing is written. The path is divided in three, in order, and no message is in two parts or none:

    window start …        turn start …          first kept …          leaf
    messages_to_summarize turn_prefix_messages  kept as they are

The middle part is there only where the cut goes through a turn. What lies before the window is told by the
previous compaction's summary. Sources: seed 002 for windows, cuts and split turns, seed 000 for the scaling
of the kept budget by measured usage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from pi_ls.core.context import (
    ContextMessage,
    build_session_context,
    context_edits,
    estimate_context_tokens,
    latest_compaction,
)
from pi_ls.core.entries import BranchSummaryBody, CompactionBody, Entry
from pi_ls.core.errors import AlreadyCompacted, NothingToCompact
from pi_ls.core.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    Usage,
    tool_calls,
)
from pi_ls.core.options import CompactionSettings
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.transcript import FileOps, details_file_ops, file_ops

HIGHEST_CALIBRATION = 4
"""How far measured usage may shrink the kept budget: a wild measurement must not keep next to nothing."""

TURN_STARTS = frozenset({"user", "bashExecution", "custom", "branchSummary"})
"""Roles of messages that begin a turn."""

CUT_ROLES = TURN_STARTS | {"assistant"}
"""Roles of messages that may come first after a cut; never a tool result, which belongs to its call."""


def should_compact(context_tokens: float, context_window: float, settings: CompactionSettings) -> bool:
    """Whether a context of so many tokens leaves less than the reserve free in a window of so many.

    False where automatic compaction is off. The window must be a usable one. Source: seed 001.
    """
    return settings.enabled and context_tokens > context_window - settings.reserve_tokens


class CutPoint(msgspec.Struct, frozen=True):
    """Where a path is cut, as places in the path.

    `turn_start_index` is where the turn begins that the cut goes through, -1 where it goes through none.
    """

    first_kept_index: int
    turn_start_index: int = -1
    is_split_turn: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """Why there is nothing to do: the `kind` and sentence of the error a person would get."""

    kind: Literal["AlreadyCompacted", "NothingToCompact"]
    message: str


class CompactionPreparation(msgspec.Struct, frozen=True, rename="camel"):
    """Everything a summary is made from. Ids and messages are in the order of the path."""

    first_kept_entry_id: str
    messages_to_summarize: tuple[Message, ...]
    """Whole turns that go into the summary."""
    turn_prefix_messages: tuple[Message, ...]
    """The beginning of the turn that the cut goes through, summarized by itself."""
    is_split_turn: bool
    tokens_before: float
    """Tokens of the context as it is now."""
    previous_summary: str | None
    """What the newest compaction of the path says, to be carried on."""
    previous_preserve_data: Any
    file_ops: FileOps
    settings: CompactionSettings
    summarized_entry_ids: tuple[str, ...]
    """The entries behind `messages_to_summarize`."""
    turn_prefix_entry_ids: tuple[str, ...]
    """The entries behind `turn_prefix_messages`."""
    kept_entry_ids: tuple[str, ...]
    """Every entry from the first kept one to the leaf, state entries included."""


class CompactionResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A finished compaction, before it is an entry."""

    summary: str
    first_kept_entry_id: str
    tokens_before: float
    estimated_tokens_after: float | None = None
    short_summary: str | None = None
    usage: Usage | None = None
    details: Any = None
    preserve_data: Any = None
    from_extension: bool = False


def prepare_compaction(
    path: Sequence[Entry],
    settings: CompactionSettings,
    counter: TokenCounter | None = None,
    overhead_tokens: float = 0,
) -> CompactionPreparation | Refusal:
    """What a compaction of a path (root → leaf) would summarize and keep, or why there is nothing to do.

    `counter` estimates tokens (default: by characters). `overhead_tokens` is what system prompt and tool
    descriptions are estimated at: measured usage holds them, the messages of a context do not.
    Sources: seeds 000 and 002.
    """
    counter = counter or TokenCounter()
    path = _without_trailing_markers(path)
    if path and path[-1].type == "compaction":
        return Refusal("AlreadyCompacted", AlreadyCompacted().message)

    context = build_session_context(path).messages
    measured = estimate_context_tokens(path, counter)
    previous = latest_compaction(path)
    start = _window_start(path, previous)

    keep = settings.keep_recent_tokens
    if settings.calibrate:
        keep = _calibrated(keep, context, measured.last_usage_index, overhead_tokens, counter)
    cut = find_cut_point(path, start, len(path), keep, counter, _edited(path, context))
    history_end = cut.turn_start_index if cut.is_split_turn else cut.first_kept_index
    history = _messages_between(path[start:history_end], context)
    prefix = _messages_between(path[history_end : cut.first_kept_index], context)
    if not history and not prefix:
        return Refusal("NothingToCompact", NothingToCompact().message)

    body = previous[1].body if previous else None
    before = body if isinstance(body, CompactionBody) else None
    return CompactionPreparation(
        first_kept_entry_id=path[cut.first_kept_index].id,
        messages_to_summarize=tuple(one.message for one in history),
        turn_prefix_messages=tuple(one.message for one in prefix),
        is_split_turn=cut.is_split_turn,
        tokens_before=measured.tokens,
        previous_summary=before.summary or None if before else None,
        previous_preserve_data=before.preserve_data if before else None,
        file_ops=_files_of(before, [*history, *prefix]),
        settings=settings,
        summarized_entry_ids=tuple(one.entry.id for one in history),
        turn_prefix_entry_ids=tuple(one.entry.id for one in prefix),
        kept_entry_ids=tuple(entry.id for entry in path[cut.first_kept_index :]),
    )


def _without_trailing_markers(path: Sequence[Entry]) -> Sequence[Entry]:
    end = len(path)
    while end and path[end - 1].is_leaf_marker:
        end -= 1
    return path[:end]


def _window_start(path: Sequence[Entry], previous: tuple[int, Entry] | None) -> int:
    """Where what has not been summarized yet begins.

    What the previous compaction kept is summarized now; if its boundary is gone, only what came after it is
    known to be unsummarized.
    """
    if previous is None:
        return 0
    place, compaction = previous
    body = compaction.body
    kept = body.first_kept_entry_id if isinstance(body, CompactionBody) else None
    return next((at for at in range(place) if path[at].id == kept), place + 1)


def _calibrated(
    keep: int,
    context: Sequence[ContextMessage],
    measured_at: int | None,
    overhead_tokens: float,
    counter: TokenCounter,
) -> int:
    """The kept budget in the estimate's currency, where a measurement says that estimates run low.

    The answer at `measured_at` reports how long the prompt before it really was.
    """
    if measured_at is None or measured_at >= len(context):  # there, but not to be read any more
        return keep
    answer = context[measured_at].message
    if not isinstance(answer, AssistantMessage) or answer.usage is None:
        return keep
    usage = answer.usage
    prompt = usage.input + usage.cache_read + usage.cache_write - overhead_tokens
    estimate = 0
    for one in reversed(context[:measured_at]):
        estimate += _tokens_in_context(one, counter)
        if estimate >= prompt:
            return keep  # estimates do not run low; however long the rest is, nothing of it need be read
    if not prompt > estimate > 0:
        return keep
    return max(1, int(keep / min(prompt / estimate, HIGHEST_CALIBRATION)))


def _tokens_in_context(one: ContextMessage, counter: TokenCounter) -> int:
    of_its_own = one.edited or isinstance(one.message, SystemMessage)
    return counter.message(one.message) if of_its_own else counter.entry(one.entry)


def _edited(path: Sequence[Entry], context: Sequence[ContextMessage]) -> Mapping[str, Message | None]:
    """What the context holds in place of the entries that context edits name; None where one is hidden."""
    edits = context_edits(path)
    shown = {one.entry.id: one.message for one in context if one.edited}
    return {entry_id: shown.get(entry_id) for entry_id in edits}


def _messages_between(entries: Sequence[Entry], context: Sequence[ContextMessage]) -> list[ContextMessage]:
    """The messages of a stretch of the path as the context has them.

    System messages are no part of a summary, and an earlier compaction is carried on as previous summary.
    """
    ids = {entry.id for entry in entries}
    return [
        one
        for one in context
        if one.entry.id in ids and not isinstance(one.message, SystemMessage | CompactionSummaryMessage)
    ]


def _files_of(previous: CompactionBody | None, summarized: Sequence[ContextMessage]) -> FileOps:
    """Files of the tool calls, and those that earlier summaries of this program have counted before.

    An extension's details are its own and may mean anything.
    """
    ops = file_ops(one.message for one in summarized)
    branches = [one.entry.body for one in summarized if one.entry.type == "branch_summary"]
    for body in (previous, *branches):
        if isinstance(body, CompactionBody | BranchSummaryBody) and not body.from_extension:
            ops |= details_file_ops(body.details)
    return ops


def find_cut_point(
    path: Sequence[Entry],
    start: int,
    end: int,
    keep_recent_tokens: float,
    counter: TokenCounter,
    edited: Mapping[str, Message | None] = MappingProxyType({}),
) -> CutPoint:
    """Where to cut `path[start:end]` so that about `keep_recent_tokens` stay, and the turn the cut splits.

    `edited` says what the context holds in place of entries that were edited (None: nothing). Where no cut is
    possible everything is kept. Source: seed 002.
    """
    paired = _between_call_and_result(path[start:end])
    roles = [None if at in paired else _role(entry, edited) for at, entry in enumerate(path[start:end])]
    cuts = [start + at for at, role in enumerate(roles) if role in CUT_ROLES]
    if not cuts:
        return CutPoint(start)
    full = _budget_reached(path, start, end, keep_recent_tokens, counter, edited)
    cut = cuts[0] if full is None else next((at for at in cuts if at >= full), cuts[-1])

    first_kept = cut
    while first_kept > start and _is_state(path[first_kept - 1]):
        first_kept -= 1
    if _role(path[cut], edited) in TURN_STARTS:
        return CutPoint(first_kept)
    before = range(cut - 1, start - 1, -1)
    turn_start = next((at for at in before if _role(path[at], edited) in TURN_STARTS), -1)
    return CutPoint(first_kept, turn_start, is_split_turn=turn_start >= 0)


def _budget_reached(
    path: Sequence[Entry],
    start: int,
    end: int,
    budget: float,
    counter: TokenCounter,
    edited: Mapping[str, Message | None],
) -> int | None:
    """Going back from the end: the entry with which the budget is full, None where all fits into it."""
    total = 0
    for at in range(end - 1, start - 1, -1):
        entry = path[at]
        message = edited.get(entry.id)
        if message is not None:
            tokens = counter.message(message)
        else:
            tokens = 0 if entry.id in edited else counter.entry(entry)
        total += tokens
        if tokens and total >= budget:
            return at
    return None


def _between_call_and_result(entries: Sequence[Entry]) -> set[int]:
    """Places where a cut would keep a tool result and lose its call: after a call, up to its result.

    Results follow their call directly as a rule, but an extension may put a message between them. A call that
    was never answered closes nothing off.
    """
    called: dict[str, int] = {}
    between: set[int] = set()
    for at, entry in enumerate(entries):
        if entry.type != "message" or entry.role not in ("assistant", "toolResult"):
            continue
        match entry.message:
            case AssistantMessage() as answer:
                called |= {call.id: at for call in tool_calls(answer)}
            case ToolResultMessage() as result:
                between.update(range(called.pop(result.tool_call_id, at) + 1, at + 1))
            case _:
                pass
    return between


def _role(entry: Entry, edited: Mapping[str, Message | None] = MappingProxyType({})) -> str | None:
    """The role of the message an entry puts into the context, None where it puts none."""
    if entry.id in edited and edited[entry.id] is None:
        return None
    match entry.type:
        case "message":
            return entry.role
        case "custom_message":
            return "custom"
        case "compaction":
            return "compactionSummary"
        case "branch_summary":
            body = entry.body
            return "branchSummary" if isinstance(body, BranchSummaryBody) and body.summary else None
        case _:
            return None


def _is_state(entry: Entry) -> bool:
    return entry.type != "message" and _role(entry) is None
