"""When a compaction is due by itself, and when automatic compaction had better stop trying.

Both are functions of values: what the last answer was, how large the context is, what was compacted before.
Running a compaction and telling about it is the session's business. Source: seed 001 (`_checkCompaction`);
seed 000 for the two automatic reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pi_ls.core.compaction import should_compact
from pi_ls.core.context import estimate_context_tokens, latest_compaction, valid_usage
from pi_ls.core.entries import Entry
from pi_ls.core.messages import AssistantMessage, context_tokens
from pi_ls.core.options import CompactionSettings
from pi_ls.core.overflow import is_context_overflow
from pi_ls.core.tokens import TokenCounter

MOST_FAILURES = 3
"""Failed automatic compactions in a row after which it pauses."""


class Due(msgspec.Struct, frozen=True):
    """A compaction is due; `will_retry`: the answer it follows failed and is asked for again."""

    reason: Literal["threshold", "overflow"]
    will_retry: bool = False


def effective(settings: CompactionSettings, window: int) -> CompactionSettings:
    """The settings for a window that the reserve would leave no room in: half of it is reserved then."""
    if settings.reserve_tokens < window:
        return settings
    return msgspec.structs.replace(settings, reserve_tokens=window // 2)


def kept_within(settings: CompactionSettings, window: int) -> CompactionSettings:
    """The settings for a window whose threshold is reached before there is more than what they keep.

    Nothing could be compacted then until the window overflows: half of what fits below the threshold is kept.
    """
    room = window - effective(settings, window).reserve_tokens
    if settings.keep_recent_tokens < room:
        return settings
    return msgspec.structs.replace(settings, keep_recent_tokens=room // 2)


def overflow_due(
    answer: AssistantMessage, window: int, *, same_model: bool, known: bool | None = None
) -> Due | None:
    """Whether an answer shows that the request was longer than the window.

    `known` is what class and status of the provider's error said of a failed answer, None where there is
    only its text. Only an answer of the model in use counts: a smaller model's overflow says nothing about
    this one.
    """
    failed = answer.stop_reason == "error"
    overflowed = known if failed and known is not None else is_context_overflow(answer, window)
    if not same_model or not overflowed:
        return None
    return Due("overflow", will_retry=answer.stop_reason != "stop")


def threshold_due(
    path: Sequence[Entry],
    window: int,
    settings: CompactionSettings,
    counter: TokenCounter,
    extra_tokens: float = 0,
    *,
    before_prompt: bool = False,
) -> Due | None:
    """Whether a path's context has passed the threshold; `extra_tokens` is what is about to be added.

    What was measured before the newest compaction describes another context: where nothing was measured
    after it, nothing is due, unless no provider ever measured anything (then the estimate decides). With
    something about to be added, passing the window itself is always reason enough. `before_prompt`: what was
    measured of an aborted answer counts too, since the next request will be as long as its was.
    """
    tokens = measured_tokens(path, counter)
    if before_prompt:
        tokens = max((one for one in (tokens, _aborted_tokens(path)) if one is not None), default=None)
    if tokens is None:
        return None
    if should_compact(tokens, window, effective(settings, window)):
        return Due("threshold")
    crowded = settings.enabled and extra_tokens > 0 and tokens + extra_tokens > window
    return Due("threshold") if crowded else None


def measured_tokens(path: Sequence[Entry], counter: TokenCounter) -> float | None:
    """The size of a path's context as far as it can be trusted for a decision, else None."""
    size = estimate_context_tokens(path, counter)
    if size.last_usage_index is not None:
        return size.tokens
    if latest_compaction(path) is not None and any(_measured(entry) for entry in reversed(path)):
        return None
    return size.tokens


def _aborted_tokens(path: Sequence[Entry]) -> float | None:
    """What was measured of the newest answer after the newest compaction, if it was aborted."""
    for entry in reversed(path):
        if entry.type == "compaction":
            return None
        if entry.type == "message" and entry.role == "assistant":
            answer = entry.message
            if not isinstance(answer, AssistantMessage) or answer.stop_reason != "aborted":
                return None
            return context_tokens(answer.usage) if answer.usage is not None else None
    return None


def _measured(entry: Entry) -> bool:
    if entry.type != "message" or entry.role != "assistant":
        return False
    usage = valid_usage(entry.message)
    return usage is not None and context_tokens(usage) > 0


class Pause:
    """Whether automatic compaction has given up for now, and why.

    It pauses where it does not help: the first answer after one is over the threshold again, or several in
    a row failed. A person's next prompt that is answered under the threshold takes it up again, and so does
    anything that changes the odds (a compaction by hand, another model, other settings).
    """

    def __init__(self) -> None:
        self.reason: Literal["no_progress", "failures"] | None = None
        self._fresh = False
        self._failures = 0

    def compacted(self) -> None:
        """An automatic compaction succeeded."""
        self._fresh = True
        self._failures = 0

    def failed(self) -> bool:
        """An automatic compaction failed; True where that makes it pause."""
        self._failures += 1
        return self._failures >= MOST_FAILURES and self._pause("failures")

    def answered(self, *, over_threshold: bool) -> bool:
        """An answer came; True where that makes it pause."""
        fresh, self._fresh = self._fresh, False
        return fresh and over_threshold and self._pause("no_progress")

    def lift(self) -> bool:
        """Try again from here on; True where it was paused."""
        was_paused = self.reason is not None
        self.reason = None
        self._fresh = False
        self._failures = 0
        return was_paused

    def _pause(self, reason: Literal["no_progress", "failures"]) -> bool:
        first = self.reason is None
        self.reason = self.reason or reason
        return first
