from __future__ import annotations

from typing import Any

import pytest

from pi_ls.core.entries import (
    BranchSummaryBody,
    CompactionBody,
    ContextEditBody,
    CustomBody,
    CustomMessageBody,
    Entry,
    LabelBody,
    MessageBody,
    ModelChangeBody,
    SessionInfoBody,
    ThinkingLevelChangeBody,
    UnknownBody,
    UsageBody,
    decode_body,
    iso_time,
    message_of,
    session_name,
    time_of,
)
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    SystemMessage,
    TextContent,
    Usage,
    UserMessage,
    blocks_of,
    role_of,
)
from tests.conformance_data import OLD_VERSIONS, Session, same_text, sessions
from tests.core.builders import compaction, edit, line, message, result, user

CURRENT = [one for one in sessions() if one.was_opened and one.name not in OLD_VERSIONS]


@pytest.mark.parametrize("case", CURRENT, ids=repr)
def test_entries_are_read_as_pi_reads_them(case: Session) -> None:
    entries = case.entries()
    names = case.references(entries)
    later = {entry.id: names[id(entry)] for entry in entries}  # of a repeated id the later entry is meant
    rows: list[list[Any]] = []
    for entry in entries:
        role = entry.role if entry.type == "message" else None
        parent = None if entry.parent_id is None else later.get(entry.parent_id, entry.parent_id)
        rows.append([names[id(entry)], entry.type, role, parent])
    assert rows == [row[:4] for row in case.expected["entries"]]


@pytest.mark.parametrize("case", CURRENT, ids=repr)
def test_a_compaction_names_the_first_entry_it_kept(case: Session) -> None:
    entries = case.entries()
    names = {entry.id: case.references(entries)[id(entry)] for entry in entries}
    kept: dict[str, str] = {}
    for entry in entries:
        if isinstance(body := entry.body, CompactionBody):
            first = body.first_kept_entry_id
            kept[names[entry.id]] = names.get(first, first)
    assert kept == {row[0]: row[4]["firstKept"] for row in case.expected["entries"] if len(row) > 4}


@pytest.mark.parametrize("case", CURRENT, ids=repr)
def test_entries_yield_the_messages_pi_makes_of_them(case: Session) -> None:
    entries = case.entries()
    names = case.references(entries)
    recorded: dict[str, list[list[Any]]] = case.expected["entryMessages"]
    # A compaction's own system message comes with it only in a context; there it is tested.
    of_itself = {
        name: [row for row in rows if len(rows) == 1 or row[0] != "system"] for name, rows in recorded.items()
    }
    for entry in entries:
        found = message_of(entry)
        rows = of_itself.pop(names[id(entry)], [])
        assert [role_of(found)] * (found is not None) == [row[0] for row in rows] if found else not rows
        for row in rows:
            if found is not None and len(row) > 2:
                assert same_text(whole_text(found), row[3])
    assert not any(of_itself.values())


def whole_text(one: Any) -> str:
    match role_of(one):
        case "bashExecution":
            return f"{one.command}\n{one.output}"
        case "compactionSummary" | "branchSummary":
            return one.summary
        case _:
            return "\n".join(block.text for block in blocks_of(one.content) if isinstance(block, TextContent))


@pytest.mark.parametrize("case", CURRENT, ids=repr)
def test_the_sessions_name_is_the_last_one_set(case: Session) -> None:
    names = [body.name for entry in case.entries() if isinstance(body := entry.body, SessionInfoBody)]
    assert (names[-1] if names else None) == case.expected["open"]["sessionName"]


FIELDS = [
    "message", "summary", "firstKeptEntryId", "tokensBefore", "usage", "details", "fromId", "customType",
    "content", "targetId", "label", "name", "provider", "modelId", "thinkingLevel", "kind", "replacement",
    "systemMessage",
]  # fmt: skip

USAGE: Json = {"input": 3, "output": 4}


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"type": "message", "message": {"role": "user", "content": "a"}}, MessageBody(UserMessage("a"))),
        ({"type": "message", "message": None}, MessageBody(None)),
        ({"type": "message", "message": {"content": "no role"}}, MessageBody(None)),
        ({"type": "branch_summary", "summary": "s", "fromId": "x"}, BranchSummaryBody("s", "x")),
        ({"type": "custom", "customType": "t", "data": [1]}, CustomBody("t", [1])),
        (
            {"type": "custom_message", "customType": "t", "content": None, "display": True},
            CustomMessageBody("t", (), True),
        ),
        ({"type": "label", "targetId": "x", "label": "l"}, LabelBody("x", "l")),
        ({"type": "label", "targetId": "x", "label": ""}, LabelBody("x", None)),
        ({"type": "label", "targetId": "x"}, LabelBody("x", None)),
        ({"type": "session_info", "name": "  a\nb "}, SessionInfoBody("a b")),
        ({"type": "session_info"}, SessionInfoBody(None)),
        ({"type": "model_change", "provider": "p", "modelId": "m"}, ModelChangeBody("p", "m")),
        ({"type": "thinking_level_change", "thinkingLevel": "low"}, ThinkingLevelChangeBody("low")),
        (
            {"type": "usage", "kind": "k", "provider": "p", "model": "m", "usage": USAGE},
            UsageBody("k", "p", "m", Usage(input=3, output=4)),
        ),
        ({"type": "context_edit", "targetId": "x", "replacement": None}, ContextEditBody("x", None)),
        (
            {"type": "context_edit", "targetId": "x", "replacement": {"content": "c"}},
            ContextEditBody("x", "c"),
        ),
        ({"type": "context_edit", "targetId": "x", "replacement": "c"}, ContextEditBody("x", "c")),
        ({"type": "thing_of_the_future", "summary": "s"}, UnknownBody()),
    ],
    ids=str,
)
def test_a_body_is_read_by_its_type(fields: Json, body: Any) -> None:
    assert decode_body(fields) == body


@pytest.mark.parametrize("flag", ["fromHook", "fromExtension"])
@pytest.mark.parametrize("type", ["compaction", "branch_summary"])
def test_a_summary_an_extension_made_is_known_under_either_name(type: str, flag: str) -> None:
    for value, expected in ((True, True), (False, False), ("yes", False)):
        body = decode_body({"type": type, "summary": "s", flag: value})
        assert isinstance(body, CompactionBody | BranchSummaryBody)
        assert body.from_extension is expected


def test_a_compaction_has_all_of_its_fields() -> None:
    body = decode_body(
        compaction("c", None, "k", "s")
        | {
            "shortSummary": "short",
            "usage": USAGE,
            "details": {"readFiles": []},
            "preserveData": 1,
            "systemMessage": {"role": "system", "content": "whole"},
        }
    )
    assert body == CompactionBody(
        summary="s",
        first_kept_entry_id="k",
        tokens_before=1,
        short_summary="short",
        usage=Usage(input=3, output=4),
        details={"readFiles": []},
        preserve_data=1,
        system_message=SystemMessage("whole"),
    )


@pytest.mark.parametrize("junk", [None, 0, True, [], {}, "", [1, [2]], {"role": 1}, 1e300])
@pytest.mark.parametrize(
    "type", ["message", "compaction", "branch_summary", "custom_message", "custom", "label", "session_info",
             "model_change", "thinking_level_change", "usage", "context_edit"],
)  # fmt: skip
def test_fields_of_any_wrong_type_are_read_without_a_word(type: str, junk: Any) -> None:
    entry = Entry.of(
        {"type": type, "id": "x", "parentId": junk, "timestamp": junk} | dict.fromkeys(FIELDS, junk)
    )
    assert isinstance(entry.body, object)
    message_of(entry)
    assert entry.pruned_at is None


def test_the_role_is_the_messages_or_the_custom_type() -> None:
    roles = [
        Entry.of(one).role
        for one in (
            user("u", None),
            line("custom", "c", None, customType="t", message={"role": "user"}),
            line("custom_message", "m", None, customType="t"),
            line("message", "n", None, message=None, customType="t"),
            line("label", "l", None, customType="t"),
        )
    ]
    assert roles == ["user", "t", None, None, None]


def test_a_leaf_marker_is_a_custom_entry_of_its_name_only() -> None:
    marker = line("custom", "c", None, customType="pi_ls.leaf")
    assert Entry.of(marker).is_leaf_marker
    assert not Entry.of(marker | {"type": "custom_message"}).is_leaf_marker
    assert not Entry.of(message("m", None, "pi_ls.leaf", "x")).is_leaf_marker


def test_what_entries_yield_by_themselves() -> None:
    when = 1_767_225_600_000
    assert message_of(Entry.of(compaction("c", None, "k", "s"))) == CompactionSummaryMessage("s", 1, when)
    assert message_of(
        Entry.of(line("branch_summary", "b", None, summary="s", fromId="x"))
    ) == BranchSummaryMessage("s", "x", when)
    assert message_of(
        Entry.of(line("custom_message", "m", None, customType="t", content="c", display=True, details=1))
    ) == CustomMessage("t", "c", True, 1, when)
    assert message_of(Entry.of(line("custom", "s", None, customType="t"))) is None
    assert message_of(Entry.of(edit("e", None, "x"))) is None


def test_a_pruning_is_read_from_the_body_unless_it_was_told() -> None:
    reads: list[str] = []

    def read(entry: Entry) -> Json:
        reads.append(entry.id)
        return result(entry.id, None, prunedAt=5)

    told = Entry("told", None, "message", None, "toolResult", read, pruned_at=7)
    untold = Entry("untold", None, "message", None, "toolResult", read)
    other = Entry("other", None, "message", None, "user", read)
    assert [told.pruned_at, untold.pruned_at, untold.pruned_at, other.pruned_at] == [7, 5, 5, None]
    assert reads == ["untold"]


@pytest.mark.parametrize(
    ("timestamp", "milliseconds"),
    [
        ("2026-01-01T00:00:01.500Z", 1_767_225_601_500),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("2026-01-01T00:00:00", 1_767_225_600_000),
        (12.5, 12.5),
        ("", 0),
        ("yesterday", 0),
        ("99999-01-01T00:00:00Z", 0),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200_000),
        (None, 0),
        (1e400, 0),
        (True, 0),
    ],
)
def test_a_time_is_read_in_either_form(timestamp: Any, milliseconds: float) -> None:
    assert time_of(timestamp) == milliseconds


def test_a_time_is_written_as_pi_writes_it() -> None:
    assert iso_time(1_767_225_601_500) == "2026-01-01T00:00:01.500Z"
    assert time_of(iso_time(1_767_225_601_007)) == 1_767_225_601_007


@pytest.mark.parametrize(
    ("text", "name"), [("  My\nname ", "My name"), ("a\r\nb", "a b"), (" \n ", None), ("", None), ("a", "a")]
)
def test_a_name_is_one_trimmed_line(text: str, name: str | None) -> None:
    assert session_name(text) == name
