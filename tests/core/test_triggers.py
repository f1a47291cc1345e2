"""When a compaction is due by itself: the recorded decisions, and when automatic compaction gives up."""

from __future__ import annotations

from typing import Any

import pytest

from pi_ls.core.entries import Entry
from pi_ls.core.messages import AssistantMessage, decode_message
from pi_ls.core.options import CompactionSettings
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.triggers import Due, Pause, effective, overflow_due, threshold_due
from pi_ls.testing import chain
from tests.conformance_data import Json, table

WINDOW = 200_000

DIFFERENT = {
    "no model": "a session without a model does not ask",
    "context window zero": "nor does one without a usable window",
}
BY_SIZE = {"error without any usage, huge estimated context", "usage missing, huge estimated context"}
"""With no usage anywhere the size decides here."""

ROWS = [row for row in table("auto-compaction-decision") if row["name"] not in DIFFERENT]


def answer_of(row: Json) -> AssistantMessage:
    raw: Json = {"role": "assistant", "content": [], "provider": "p", "model": "m", "stopReason": "stop"}
    message = decode_message(raw | row["input"]["assistant"])
    assert isinstance(message, AssistantMessage)
    return message


def path_of(row: Json) -> list[Entry]:
    """The messages in the order of their times, with the compaction, if any, in its place among them."""
    given: Json = row["input"]
    messages = [decode_message(raw) for raw in given.get("stateBefore", ())]
    entries = chain([*(one for one in messages if one is not None), answer_of(row)])
    at = given.get("compactionAt")
    if at is None:
        return entries
    place = len(entries) if at >= 1_000 else len(entries) - 1
    compaction: Json = {"type": "compaction", "id": "c", "parentId": None, "summary": "S", "tokensBefore": 1}
    before = entries[:place]
    kept = before[-1].id if before else "none"
    entries.insert(
        place, Entry.of(compaction | {"firstKeptEntryId": kept, "timestamp": "2026-01-01T00:00:00Z"})
    )
    return entries


def decide(row: Json) -> tuple[str, bool]:
    """Action and whether to retry, put together as a run does it."""
    given: Json = row["input"]
    window = given.get("model", {}).get("contextWindow", WINDOW)
    reserve = given.get("settings", {}).get("reserveTokens", 16_384)
    settings = CompactionSettings(
        enabled=given.get("settings", {}).get("enabled", True), reserve_tokens=reserve
    )
    path, answer = path_of(row), answer_of(row)
    aborted = answer.stop_reason == "aborted"
    before_prompt = given.get("skipAbortedCheck") is False
    if not settings.enabled or (aborted and not before_prompt) or path[-1].type == "compaction":
        return "none", False
    due: Due | None = None
    if not before_prompt:
        due = overflow_due(answer, window, same_model=(answer.provider, answer.model) == ("p", "m"))
        if due is not None and due.will_retry and given.get("alreadyRecovered"):
            return "none", False
    due = due or threshold_due(path, window, settings, TokenCounter(), before_prompt=before_prompt)
    return ("none", False) if due is None else (due.reason, due.will_retry)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_recorded_decisions(row: Json) -> None:
    wanted: Any = row["expected"]
    if row["name"] in BY_SIZE:
        wanted = row["oracle"]
    assert decide(row) == (wanted["action"], bool(wanted["willRetry"]))


def test_class_and_status_count_before_the_text() -> None:
    failed = AssistantMessage(stop_reason="error", error_message="prompt is too long")
    assert overflow_due(failed, WINDOW, same_model=True, known=False) is None
    failed = AssistantMessage(stop_reason="error", error_message="no such luck")
    assert overflow_due(failed, WINDOW, same_model=True, known=True) == Due("overflow", will_retry=True)


@pytest.mark.parametrize(("reserve", "wanted"), [(8_191, 8_191), (8_192, 4_096), (16_384, 4_096)])
def test_a_reserve_must_leave_room(reserve: int, wanted: int) -> None:
    assert effective(CompactionSettings(reserve_tokens=reserve), 8_192).reserve_tokens == wanted


def test_it_pauses_where_the_first_answer_afterwards_is_over_again() -> None:
    pause = Pause()
    pause.compacted()
    assert pause.answered(over_threshold=True)
    assert pause.reason == "no_progress"
    assert pause.lift()
    assert not pause.answered(over_threshold=True)


def test_an_answer_that_fits_makes_the_next_compaction_as_good_as_new() -> None:
    pause = Pause()
    pause.compacted()
    assert not pause.answered(over_threshold=False)
    assert not pause.answered(over_threshold=True)


def test_it_pauses_after_three_failures_in_a_row() -> None:
    pause = Pause()
    assert [pause.failed(), pause.failed()] == [False, False]
    pause.compacted()
    assert [pause.failed(), pause.failed(), pause.failed()] == [False, False, True]
    assert pause.reason == "failures"
