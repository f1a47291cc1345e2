"""Pushes: their shape, their size, their pace, and a client that does not read them."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from pi_ls.core.events import CompactionEnd, ContextUsage, EntryAppended, Event, SessionInfoChanged
from pi_ls.core.jsonvalues import Json
from pi_ls.server.notifications import MAX_PUSH_BYTES, MAX_TEXT_BYTES, Channel, Notifier, fit
from pi_ls.server.protocol import EVENT_NAMES, NOTIFICATIONS
from pi_ls.server.writer import Message


def pushed(*events: Event, wanted: list[str] | None = None) -> list[Json]:
    """What an open notifier sends for these events."""
    sent: list[Message] = []
    notifier = Notifier(sent.append, lambda _: None)
    notifier.want(wanted)
    notifier.open()
    for event in events:
        notifier.push("file:///w", "s", event)
    return [json.loads(message.head + b"1" + message.tail) for message in sent]


def test_every_event_has_its_notification():
    assert "pi/compaction_start" in NOTIFICATIONS
    assert [f"pi/{name}" for name in EVENT_NAMES] == list(NOTIFICATIONS)
    assert len(set(NOTIFICATIONS)) == len(NOTIFICATIONS)


def test_a_push_is_the_event_with_its_address():
    [push] = pushed(SessionInfoChanged(name="n"))
    assert push == {
        "jsonrpc": "2.0",
        "method": "pi/session_info_changed",
        "params": {"workspace": "file:///w", "sessionId": "s", "seq": 1, "name": "n"},
    }


def test_a_push_without_fields_of_its_own_is_well_formed():
    [push] = pushed(ContextUsage())
    assert push["params"] == {"workspace": "file:///w", "sessionId": "s", "seq": 1}


def test_only_wanted_events_are_pushed():
    [push] = pushed(SessionInfoChanged(name="n"), ContextUsage(), wanted=["context_usage"])
    assert push["method"] == "pi/context_usage"


def test_text_over_the_limit_is_cut_between_characters():
    params = json.loads(fit({"text": "é" * MAX_TEXT_BYTES, "short": "x"}))
    assert params == {"text": "é" * (MAX_TEXT_BYTES // 2), "short": "x", "truncated": True}
    assert json.loads(fit({"text": "x" * MAX_TEXT_BYTES})) == {"text": "x" * MAX_TEXT_BYTES}


def test_image_data_is_left_out():
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    params = json.loads(fit({"entry": {"content": [image]}}))
    assert params == {"entry": {"content": [{"type": "image", "mimeType": "image/png"}]}, "truncated": True}


def test_no_push_is_over_the_limit_whatever_is_in_it():
    def deep(levels: int) -> Any:
        return {"level": levels, "more": deep(levels - 1) if levels else None, "text": "x" * 5_000}

    for details in (
        {"files": [f"file {n}" for n in range(100_000)]},
        {f"key {n}": "x" * 1_000 for n in range(10_000)},
        {"texts": ["\ud83d" * 10_000] * 100},
        deep(200),
        {"lists": [[["x" * 200] * 20] * 20] * 20},
    ):
        [push] = pushed(CompactionEnd(reason="manual", aborted=False, will_retry=False, result=details))
        assert (
            len(json.dumps(push, ensure_ascii=False).encode("utf-8", "surrogatepass")) <= MAX_PUSH_BYTES + 500
        )
        assert push["params"]["truncated"] is True
        assert push["params"]["reason"] == "manual"


async def test_usage_is_pushed_five_times_a_second_at_most_and_the_last_one_always():
    sent: list[tuple[float, Json]] = []
    loop = asyncio.get_running_loop()
    last = asyncio.Event()

    def send(message: Message) -> None:
        params = json.loads(message.head + b"0" + message.tail)["params"]
        sent.append((loop.time(), params))
        if params["tokens"] == 499:
            last.set()

    notifier = Notifier(send, lambda _: None)
    notifier.open()
    channel = Channel(notifier, "file:///w")
    channel.bind("s")
    for number in range(500):
        channel.emit(ContextUsage(tokens=number))
        if number % 100 == 0:
            await asyncio.sleep(0.05)
    await asyncio.wait_for(last.wait(), 2)
    assert sent[0][1]["tokens"] == 0, "the first one goes at once"
    assert 2 <= len(sent) <= 3
    assert all(later[0] - earlier[0] >= 0.19 for earlier, later in itertools.pairwise(sent))


def test_entries_are_pushed_as_they_are():
    [push] = pushed(EntryAppended(entry={"id": "a"}, leaf_id=None, foreign=False))
    assert push["params"]["entry"] == {"id": "a"}
    assert push["params"]["leafId"] is None
