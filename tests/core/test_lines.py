from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pi_ls.core.entries import CompactionBody, Entry
from pi_ls.core.jsonvalues import Json, dumps, loads
from pi_ls.core.lines import NotASession, PlacedEntry, Scan, split_records
from tests.conformance_data import Session, session, sessions

TIME = "2026-01-01T00:00:00.000Z"
HEADER: Json = {"type": "session", "version": 3, "id": "s-1", "timestamp": TIME, "cwd": "/w/p"}


def user(entry_id: str, parent: str | None, text: Any = "hello", **more: Any) -> Json:
    message = {"role": "user", "content": text, "timestamp": 1}
    return {
        "type": "message",
        "id": entry_id,
        "parentId": parent,
        "timestamp": TIME,
        "message": message,
        **more,
    }


def assistant(entry_id: str, parent: str | None, **more: Any) -> Json:
    message = {"role": "assistant", "content": [{"type": "text", "text": "ok"}], **more}
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": TIME, "message": message}


def usage(input_: Any, output: Any, **more: Any) -> Json:
    return {"input": input_, "output": output, **more}


def lines(*objects: Json) -> bytes:
    return b"".join(dumps(one) + b"\n" for one in objects)


class Read:
    """A whole file taken in, with the bytes to read bodies from."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.scan = Scan(self._body)
        self.entries = self.scan.take(io.BytesIO(data))

    def _body(self, entry: Entry) -> Json:
        assert isinstance(entry, PlacedEntry)
        return self.scan.upgraded(loads(self.data[entry.offset : entry.offset + entry.length]), entry)

    @property
    def ids(self) -> list[str]:
        return [entry.id for entry in self.entries]

    @property
    def problems(self) -> list[tuple[str, int | None]]:
        return [(one.kind, one.line) for one in self.scan.problems]


def read(*objects: Json) -> Read:
    return Read(lines(*objects))


# ---- the recorded sessions

OPENED = [one for one in sessions() if one.was_opened]
REFUSED = [one for one in sessions() if not one.was_opened and one.name != "bom-header"]  # a BOM is skipped


def reference(recorded: Session, entries: list[PlacedEntry], entry_id: Any) -> Any:
    if entry_id is None or recorded.expected["idScheme"] != "index":
        return entry_id
    last = {entry.id: at for at, entry in enumerate(entries)}
    return f"@{last[entry_id]}" if entry_id in last else f"missing:{entry_id}"


@pytest.mark.parametrize("recorded", OPENED, ids=repr)
def test_entries_are_the_recorded_ones(recorded: Session) -> None:
    found = Read(recorded.raw)
    names = recorded.references(list[Entry](found.entries))
    rows: list[list[Any]] = []
    for entry in found.entries:
        role = entry.role if entry.type == "message" else None
        parent = reference(recorded, found.entries, entry.parent_id)
        rows.append([names[id(entry)], entry.type, role, parent])
        if entry.type == "compaction":
            kept = reference(recorded, found.entries, entry.data.get("firstKeptEntryId"))
            rows[-1].append({"firstKept": kept, "hasIndexField": "firstKeptEntryIndex" in entry.data})
    assert rows == recorded.expected["entries"]


@pytest.mark.parametrize("recorded", OPENED, ids=repr)
def test_every_body_is_found_at_its_place(recorded: Session) -> None:
    found = Read(recorded.raw)
    assert [entry.data["id"] for entry in found.entries] == found.ids
    assert [entry.data["type"] for entry in found.entries] == [entry.type for entry in found.entries]


@pytest.mark.parametrize("recorded", REFUSED, ids=repr)
def test_what_was_refused_has_no_header(recorded: Session) -> None:
    try:
        scan = Read(recorded.raw).scan
    except NotASession:
        return
    assert scan.header is None
    assert scan.problems


# ---- lines


def test_a_line_ends_at_a_line_feed_only() -> None:
    text = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg\rh"
    for ascii_only in (False, True):
        raw = json.dumps(user("u1", None, text), ensure_ascii=ascii_only).encode()
        found = Read(lines(HEADER) + raw + b"\n" + lines(assistant("a1", "u1")))
        assert found.ids == ["u1", "a1"]
        assert found.entries[0].data["message"]["content"] == text
        assert not found.problems


def test_carriage_returns_blank_lines_and_a_byte_order_mark_are_accepted() -> None:
    data = lines(HEADER, user("u1", None), assistant("a1", "u1"))
    found = Read(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n\r\n   \n\n"))
    assert found.ids == ["u1", "a1"]
    assert found.entries[1].data["message"]["role"] == "assistant"
    assert not found.problems


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type":"message","id":"zz"',
        b"\0" * 64,
        b"\xff\xfe\0A",
        b"[]",
        b"null",
        b'"text"',
        b"17",
        b'{"type":"message"}',
        b'{"id":"q","type":7}',
        b'{"type":"message","id":7,"parentId":null}',
        b'{"type":"custom","id":"n","parentId":null,"data":NaN}',
        b'{"a":' * 100_000,
        b"[" * 100_000,
        b'{"type":"custom","id":"d","parentId":null,"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda bad: bad[:40].decode("latin-1"),
)
def test_a_malformed_line_is_passed_over_and_reported_with_its_number(bad: bytes) -> None:
    before = lines(HEADER, user("u1", None), assistant("a1", "u1"))
    found = Read(before + bad + b"\n" + lines(user("u2", "a1"), assistant("a2", "u2")))
    assert found.ids == ["u1", "a1", "u2", "a2"]
    assert found.problems == [("malformedLine", 4)]


def test_a_message_that_is_null_is_an_entry_without_content() -> None:
    found = read(HEADER, {**user("q", None), "message": None}, {**user("r", "q"), "message": "text"})
    assert found.ids == ["q", "r"]
    assert [entry.message for entry in found.entries] == [None, None]
    assert not found.problems


def test_an_entry_whose_parent_id_is_no_text_is_a_root_and_reported() -> None:
    found = read(HEADER, user("u1", None), {**user("u2", None), "parentId": 5})
    assert [(entry.id, entry.parent_id) for entry in found.entries] == [("u1", None), ("u2", None)]
    assert [(one.kind, one.line, one.entry_id) for one in found.scan.problems] == [("malformedLine", 3, "u2")]


def test_a_timestamp_may_be_text_or_a_number_or_nothing() -> None:
    stamps: list[Any] = [TIME, 1, 1.5, None, {}]
    odd = [{**user(f"u{at}", None), "timestamp": value} for at, value in enumerate(stamps)]
    found = read(HEADER, *odd)
    assert len(found.entries) == 5
    assert [entry.timestamp for entry in found.entries[:4]] == [TIME, 1, 1.5, None]


def test_half_a_character_in_a_line_is_read_as_it_is() -> None:
    raw = b'{"type":"message","id":"u1","parentId":null,"message":{"role":"user","content":"x \\ud83d y"}}\n'
    label = b'{"type":"label","id":"l1","parentId":"u1","targetId":"u1","label":"\\ud83d"}\n'
    found = Read(lines(HEADER) + raw + label)
    assert found.ids == ["u1", "l1"]
    assert found.entries[0].data["message"]["content"] == "x \ud83d y"
    assert found.entries[1].data["label"] == "\ud83d"
    assert not found.problems


def test_bytes_that_are_no_utf8_are_replaced_when_read() -> None:
    raw = dumps(user("u1", None, "good XX byte")).replace(b"XX", b"\xff")
    assert Read(lines(HEADER) + raw + b"\n").entries[0].data["message"]["content"] == "good \ufffd byte"


# ---- torn and glued


def test_a_torn_last_line_is_reported_and_taken_in_once_it_is_whole() -> None:
    found = read(HEADER, user("u1", None))
    rest = dumps(assistant("a1", "u1"))
    assert found.scan.take([rest[:30]]) == []
    assert found.problems == [("tornLine", 3)]
    assert [entry.id for entry in found.scan.take([rest + b"\n"])] == ["a1"]
    assert found.problems == [("tornLine", 3)]
    assert (found.scan.lines, found.scan.offset) == (3, len(found.data) + len(rest) + 1)


def test_a_torn_last_line_that_is_ended_is_reported_once() -> None:
    found = Read(lines(HEADER, user("u1", None)) + b'{"type":"mess')
    found.scan.take([b'{"type":"mess\n', dumps(user("u2", "u1")) + b"\n"])
    assert found.problems == [("tornLine", 3)]
    assert found.scan.lines == 4


def test_what_another_program_is_just_writing_is_not_reported() -> None:
    found = read(HEADER, user("u1", None))
    assert found.scan.take([b'{"type":"mess'], report_torn=False) == []
    assert found.problems == []
    found.scan.take([b'{"type":"mess\n'])
    assert found.problems == [("malformedLine", 3)]


def test_a_complete_last_line_needs_no_line_end() -> None:
    data = lines(HEADER, user("u1", None), assistant("a1", "u1"))
    found = Read(data[:-1])
    assert found.ids == ["u1", "a1"]
    assert found.entries[1].data["id"] == "a1"
    assert not found.problems
    more = found.scan.take([b"\n", dumps(user("u2", "a1")) + b"\n", b"broken\n"])
    assert [entry.id for entry in more] == ["u2"]
    assert found.problems == [("malformedLine", 5)]


def test_several_records_on_one_line_are_all_found_and_reported() -> None:
    glued = b" ".join(dumps(user(name, None, "{{}}é")) for name in ("u1", "u2", "u3"))
    found = Read(lines(HEADER) + glued + b"\n")
    assert found.ids == ["u1", "u2", "u3"]
    assert [entry.data["message"]["content"] for entry in found.entries] == ["{{}}é"] * 3
    assert found.problems == [("malformedLine", 2)]


def test_records_after_a_torn_one_are_found_on_its_line() -> None:
    torn = dumps(user("lost", None, 'é {"type":"message"} '))
    for cut in range(1, len(torn)):
        found = Read(lines(HEADER) + torn[:cut] + dumps(user("u1", None)) + b"\n" + lines(user("u2", "u1")))
        assert found.ids == ["u1", "u2"], torn[:cut]
        assert found.entries[0].data["message"]["content"] == "hello"
        assert found.problems == [("malformedLine", 2)]


def test_a_record_before_a_torn_one_is_found() -> None:
    found = Read(
        lines(HEADER) + dumps(user("u1", None)) + b'{"type":"message","id":"x\n' + lines(user("u2", "u1"))
    )
    assert found.ids == ["u1", "u2"]
    assert found.problems == [("malformedLine", 2)]


def test_a_block_inside_a_torn_record_is_no_entry() -> None:
    call = {"type": "toolCall", "id": "call_1", "name": "bash", "arguments": {"command": "ls"}}
    whole = dumps(assistant("a1", None, content=[call]))
    for cut in range(1, len(whole)):
        assert split_records(whole[:cut])[0] == [], whole[:cut]


def test_a_header_glued_to_an_entry_is_still_the_header() -> None:
    found = Read(dumps(HEADER) + dumps(user("u1", None)) + b"\n")
    assert found.scan.header is not None
    assert found.ids == ["u1"]


RECORDS = st.lists(
    st.one_of(
        st.just("record"),
        st.just("end"),
        st.binary(max_size=12).map(lambda junk: bytes(byte for byte in junk if byte not in b"{}[],:\n")),
    ),
    max_size=12,
)


@given(RECORDS)
@settings(max_examples=200, deadline=None)
def test_no_complete_record_is_lost_whatever_stands_between_line_ends(parts: list[str | bytes]) -> None:
    """Records each begin after a record or a line end, or after junk that is no piece of a larger object."""
    data = lines(HEADER)
    wanted: list[str] = []
    for part in parts:
        if part == "record":
            wanted.append(f"e{len(wanted)}")
            data += dumps(user(wanted[-1], None))
        else:
            data += b"\n" if isinstance(part, str) else part
    found = Read(data + b"\n")
    assert found.ids == wanted
    assert found.scan.offset == len(data) + 1


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_no_bytes_stop_the_reading(junk: bytes) -> None:
    found = Read(lines(HEADER) + junk + b"\n" + lines(user("last", None)))
    assert found.ids[-1] == "last"


def test_a_long_torn_line_does_not_take_long() -> None:
    nested = dumps(user("u1", None, '{"type":"x",' * 50_000))[:-10]
    open_ended = b'{"type":"m","x":' * 20_000
    found = Read(lines(HEADER) + nested + b"\n" + open_ended + b"\n" + lines(user("u2", None)))
    assert found.ids == ["u2"]


# ---- the header


@pytest.mark.parametrize(
    "first",
    [
        user("u1", None),
        {"type": "session", "version": 3},
        {"type": "session", "version": 3, "id": 5},
        {"a": 1},
    ],
)
def test_the_first_object_must_be_a_header_with_an_id(first: Json) -> None:
    with pytest.raises(NotASession):
        read(first, HEADER, user("u2", None))


def test_what_stands_before_the_header_is_reported() -> None:
    found = Read(b"garbage\n[1]\n\n" + lines(HEADER, user("u1", None)))
    assert found.ids == ["u1"]
    assert found.problems == [("malformedLine", 1), ("malformedLine", 2)]
    start, length = found.scan.header_place or (0, 0)
    assert loads(found.data[start : start + length]) == HEADER


def test_an_object_beside_something_else_is_no_first_object() -> None:
    found = Read(b'{"a":1} garbage\n' + lines(HEADER, user("u1", None)))
    assert found.ids == ["u1"]
    assert found.problems == [("malformedLine", 1)]


def test_a_second_header_is_passed_over_and_reported() -> None:
    found = read(HEADER, user("u1", None), {**HEADER, "id": "other"}, user("u2", "u1"))
    assert found.ids == ["u1", "u2"]
    assert found.scan.header is not None
    assert found.scan.header.id == "s-1"
    assert found.problems == [("malformedLine", 3)]


@pytest.mark.parametrize(
    ("written", "version"), [(3, 3), (3.0, 3), (9, 9), (None, 1), ("3", 3), (True, 3), (0, 1), (1e400, 3)]
)
def test_a_version_is_read_for_what_it_can_mean(written: Any, version: int) -> None:
    header = {**HEADER, "version": written}
    found = Read(json.dumps(header).replace("Infinity", "1e400").encode() + b"\n")
    assert found.scan.header is not None
    assert found.scan.header.version == version


# ---- older versions

V1: list[Json] = [
    {"type": "session", "id": "s", "timestamp": TIME, "cwd": "/w/p"},
    {"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "hello"}},
    {"type": "message", "timestamp": TIME, "message": {"role": "assistant", "content": "hi"}},
    {"type": "compaction", "timestamp": TIME, "summary": "S", "firstKeptEntryIndex": 2, "tokensBefore": 9},
    {"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "more"}},
]


def test_version_1_gets_a_chain_of_ids_and_an_id_for_its_index() -> None:
    found = read(*V1)
    assert all(len(one) == 8 and int(one, 16) >= 0 for one in found.ids)
    assert [entry.parent_id for entry in found.entries] == [None, *found.ids[:-1]]
    body = found.entries[2].body
    assert isinstance(body, CompactionBody)
    assert body.first_kept_entry_id == found.ids[1]
    assert "firstKeptEntryIndex" not in found.entries[2].data
    assert found.entries[0].data["parentId"] is None


def test_two_readings_of_version_1_give_the_same_ids() -> None:
    assert read(*V1).ids == read(*V1).ids
    assert read({**V1[0], "id": "other"}, *V1[1:]).ids != read(*V1).ids


def test_ids_for_version_1_do_not_depend_on_what_comes_later() -> None:
    assert read(*V1[:3]).ids == read(*V1).ids[:2]


@pytest.mark.parametrize("index", [0, -1, 99, "2", None, 2.5])
def test_an_index_of_version_1_that_leads_nowhere_becomes_no_id(index: Any) -> None:
    found = read(*V1[:3], {**V1[3], "firstKeptEntryIndex": index})
    assert "firstKeptEntryId" not in found.entries[2].data
    assert "firstKeptEntryIndex" not in found.entries[2].data


def test_records_glued_in_version_1_are_found_too() -> None:
    found = Read(lines(V1[0]) + dumps(V1[1])[:40] + dumps(V1[1]) + dumps(V1[2]) + b"\n" + lines(V1[4]))
    assert [entry.data["message"]["content"] for entry in found.entries] == ["hello", "hi", "more"]
    assert len(set(found.ids)) == 3


def test_the_old_name_of_a_custom_role_is_upgraded_in_old_versions_only() -> None:
    hook = {**user("u1", None), "message": {"role": "hookMessage", "content": "x", "customType": "t"}}
    for version, role in ((2, "custom"), (3, "hookMessage")):
        found = read({**HEADER, "version": version}, hook, user("u2", "u1"))
        assert found.entries[0].role == role
        assert found.entries[0].data["message"] == {"role": role, "content": "x", "customType": "t"}
        assert found.scan.totals.roles == {role: 1, "user": 1}


# ---- totals


def test_totals_count_messages_calls_and_the_usage_of_every_kind_of_entry() -> None:
    call: Json = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {}}
    counted = usage(10, 5, cacheRead=3, cacheWrite=2, totalTokens=20, cost={"total": 0.5})
    found = read(
        HEADER,
        user("u1", None),
        assistant("a1", "u1", content=[call, {"type": "text", "text": "x"}, call], usage=counted),
        {"type": "message", "id": "r1", "parentId": "a1", "message": {"role": "toolResult", "content": []}},
        {"type": "compaction", "id": "c1", "parentId": "r1", "summary": "s", "usage": counted},
        {"type": "branch_summary", "id": "b1", "parentId": "c1", "summary": "s", "usage": counted},
        {"type": "usage", "id": "x1", "parentId": "b1", "kind": "k", "usage": counted},
        {"type": "future", "id": "f1", "parentId": "x1", "usage": counted},
        user("u2", "f1", usage=counted),
    )
    totals = found.scan.totals
    assert totals.messages == 4
    assert totals.roles == {"user": 2, "assistant": 1, "toolResult": 1}
    assert totals.tool_calls == 2
    assert (totals.input, totals.output, totals.cache_read, totals.cache_write) == (40, 20, 12, 8)
    assert totals.tokens == 80
    assert totals.cost == 2.0


USAGES = [
    usage(10, 5),
    usage(10, 5, totalTokens=0),
    usage(0, 0, totalTokens=0),
    usage(-1, 5, totalTokens=9),
    usage(None, 5),
    usage("10", 5),
    usage(10, 5, totalTokens=-3),
    usage(10, 5, cost=None),
    usage(10, 5, cost={"total": "x"}),
    usage(10, 5, cacheRead=None),
    usage(True, 5),
    usage(1.5, 2.5),
    "text",
    None,
]


@pytest.mark.parametrize("raw", USAGES, ids=repr)
def test_totals_are_the_same_by_the_fast_way_and_by_the_slow_one(raw: Any) -> None:
    slow = "\ud83d"  # a line with half a character is decoded the slow way
    fast_totals = read(HEADER, assistant("a1", None, usage=raw)).scan.totals
    slow_totals = read(HEADER, assistant("a1", None, usage=raw, errorMessage=slow)).scan.totals
    for name in fast_totals.__slots__:
        assert getattr(fast_totals, name) == getattr(slow_totals, name), name


@pytest.mark.parametrize(
    "message", [None, "text", {}, {"role": 5}, {"role": None}, {"role": "new"}], ids=repr
)
def test_messages_of_every_kind_are_counted_the_same_by_both_ways(message: Any) -> None:
    fast = read(HEADER, {**user("u1", None), "message": message}).scan.totals
    slow = read(HEADER, {**user("u1", None), "message": message, "zz": "\ud83d"}).scan.totals
    assert fast.messages == slow.messages == 1
    assert fast.roles == slow.roles == ({"new": 1} if message == {"role": "new"} else {})


def test_the_recorded_sessions_add_up_the_same_by_both_ways() -> None:
    for recorded in (session("realistic-default-budget"), session("usage-zero-aborted-error")):
        found = Read(recorded.raw)
        again = Scan(lambda entry: {}).totals
        for entry in found.entries:
            again.add(entry.data)
        for name in again.__slots__:
            assert getattr(again, name) == pytest.approx(getattr(found.scan.totals, name)), name  # pyright: ignore[reportUnknownMemberType]
