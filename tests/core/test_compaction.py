from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pi_ls.core.compaction import (
    CompactionPreparation,
    CompactionResult,
    Refusal,
    find_cut_point,
    prepare_compaction,
    should_compact,
)
from pi_ls.core.context import build_session_context
from pi_ls.core.entries import Entry, message_of
from pi_ls.core.jsonvalues import Json, is_object
from pi_ls.core.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    tool_calls,
)
from pi_ls.core.options import CompactionSettings
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.transcript import file_lists
from pi_ls.core.tree import SessionTree
from tests.conformance_data import table
from tests.core.builders import (
    assistant,
    branch_summary,
    compaction,
    edit,
    label,
    leaf_marker,
    line,
    message,
    path,
    user,
)
from tests.core.recorded import (
    Recorded,
    is_recorded_list,
    is_recorded_text,
    leaf_id,
    leaves_with,
    table_sessions,
    text_for_model,
    tokens_before,
    yields_message,
)

PROMPT_IN_ENTRY = "system-messages"
"""The session in which the recorded program keeps its system prompt in the compaction entry; ours is no part
of a session."""


def keeping(tokens: int, *, calibrate: bool = False) -> CompactionSettings:
    return CompactionSettings(keep_recent_tokens=tokens, calibrate=calibrate)


def prepared(
    entries: Sequence[Entry], keep: int = 0, *, calibrate: bool = False, overhead: float = 0
) -> CompactionPreparation:
    preparation = prepare_compaction(entries, keeping(keep, calibrate=calibrate), None, overhead)
    assert isinstance(preparation, CompactionPreparation), preparation
    return preparation


def big(characters: int) -> str:
    return ("abcdefg " * (characters // 8 + 1))[:characters]


def calls(id: str, parent: str | None, *ids: str, name: str = "bash", **arguments: Any) -> Json:
    """An answer that calls a tool once for each of the ids."""
    content = [{"type": "toolCall", "id": one, "name": name, "arguments": arguments} for one in ids]
    return message(id, parent, "assistant", content, stopReason="toolUse")


def answered(id: str, parent: str | None, call: str, text: str = "output", **fields: Any) -> Json:
    content = [{"type": "text", "text": text}]
    return message(id, parent, "toolResult", content, toolCallId=call, toolName="bash", **fields)


def texts(messages: Sequence[Message]) -> str:
    return text_for_model(messages)


def after(entries: Sequence[Entry], preparation: CompactionPreparation, summary: str = "S") -> list[Entry]:
    """The path with the compaction appended that was prepared."""
    new = compaction("new", entries[-1].id, preparation.first_kept_entry_id, summary)
    return [*entries, Entry.of(new)]


# When


@pytest.mark.parametrize("row", table("should-compact"), ids=str)
def test_a_compaction_is_due_when_pi_says_so(row: list[Any]) -> None:
    tokens, window, reserve, enabled, expected = row
    settings = CompactionSettings(enabled=enabled, reserve_tokens=reserve)
    assert should_compact(tokens, window, settings) is expected


def test_without_a_reserve_the_whole_window_may_be_used() -> None:
    settings = CompactionSettings(reserve_tokens=0)
    assert not should_compact(200_000, 200_000, settings)
    assert should_compact(200_001, 200_000, settings)


# What was recorded


@pytest.mark.parametrize(("one", "leaf"), leaves_with("cutPoints"), ids=leaf_id)
def test_cuts_are_where_pi_cuts(one: Recorded, leaf: Json) -> None:
    entries = one.path(leaf["leaf"])
    counter = TokenCounter()
    for start, end, keep, first_kept, turn_start, is_split in leaf["cutPoints"]:
        cut = find_cut_point(entries, start, end, keep, counter)
        assert cut.first_kept_index == first_kept
        if yields_message(entries, first_kept):
            assert (cut.turn_start_index, cut.is_split_turn) == (turn_start, is_split)


@pytest.mark.parametrize(("one", "leaf"), leaves_with("prepare"), ids=leaf_id)
def test_preparations_are_those_of_pi(one: Recorded, leaf: Json) -> None:
    entries = one.path(leaf["leaf"])
    for row in leaf["prepare"]:
        found = prepare_compaction(entries, keeping(row["keep"]))
        if "firstKept" not in row:
            assert isinstance(found, Refusal)
            assert found.message == row["reason"]
            continue
        assert isinstance(found, CompactionPreparation)
        assert one.name(found.first_kept_entry_id) == row["firstKept"]
        assert found.tokens_before == tokens_before(one, leaf, row["tokensBefore"])
        if not starts_with_state(entries, found):
            check_ranges(one, found, row)
            check_files(one, entries, found, row)


def starts_with_state(entries: Sequence[Entry], found: CompactionPreparation) -> bool:
    """Whether a state entry is kept first: the recorded program takes that for a split turn."""
    ids = [entry.id for entry in entries]
    return not yields_message(entries, ids.index(found.first_kept_entry_id))


def check_ranges(one: Recorded, found: CompactionPreparation, row: Json) -> None:
    assert found.is_split_turn == row["isSplitTurn"]
    assert is_recorded_list(one.names_of(found.summarized_entry_ids), row["messagesToSummarize"])
    assert is_recorded_list(one.names_of(found.turn_prefix_entry_ids), row["turnPrefixMessages"])
    assert found.previous_summary == row["previousSummary"]
    assert is_recorded_text(texts(found.messages_to_summarize), row["historyText"], one.case)
    assert is_recorded_text(texts(found.turn_prefix_messages), row.get("prefixText") or "", one.case)


def check_files(one: Recorded, entries: Sequence[Entry], found: CompactionPreparation, row: Json) -> None:
    """The recorded files; where a branch summary with details is summarized, at least those."""
    ops, lists = found.file_ops, file_lists(found.file_ops)
    listed = {**row["fileOps"], "readFiles": row["readFiles"], "modifiedFiles": row["modifiedFiles"]}
    summarized = {*found.summarized_entry_ids, *found.turn_prefix_entry_ids}
    if any(entry.type == "branch_summary" and entry.id in summarized for entry in entries):
        assert ops.read >= {*listed["read"]}
        assert ops.written >= {*listed["written"]}
        assert ops.edited >= {*listed["edited"]}
        return
    assert ops.read == {*listed["read"]}
    assert ops.written == {*listed["written"]}
    assert ops.edited == {*listed["edited"]}
    assert [*lists.read_files] == listed["readFiles"]
    assert [*lists.modified_files] == listed["modifiedFiles"]


def sources_of(messages: Any) -> Any:
    """Recorded `[role, source]` rows, or the abbreviation of a long list, without the roles."""
    if is_object(messages):
        return messages | {"first": messages["first"][1], "last": messages["last"][1]}
    return [source for _, source in messages]


@pytest.mark.parametrize(("one", "leaf"), leaves_with("compactRuns"), ids=leaf_id)
def test_the_context_after_a_compaction_is_the_one_pi_has(one: Recorded, leaf: Json) -> None:
    entries = one.path(leaf["leaf"])
    for row in leaf["compactRuns"]:
        if "firstKept" not in row:
            continue
        found = prepared(entries, row["keep"])
        assert one.name(found.first_kept_entry_id) == row["firstKept"]
        assert found.tokens_before == tokens_before(one, leaf, row["tokensBefore"])
        context = build_session_context(after(entries, found, row["summary"])).messages
        sources = ["<new>" if each.entry.id == "new" else one.name(each.entry) for each in context]
        if one.case.name == PROMPT_IN_ENTRY:
            sources.insert(0, "<new>")
        assert is_recorded_list(sources, sources_of(row["after"]["messages"]))
        if starts_with_state(entries, found):
            continue
        counter = TokenCounter()
        assert sum(counter.message(each.message) for each in context) == row["after"]["estimatedTokensAfter"]
        for asked in row["calls"]:
            prefix = asked["kind"] == "turnPrefix"
            asked_about = found.turn_prefix_messages if prefix else found.messages_to_summarize
            assert is_recorded_text(texts(asked_about), asked["conversation"], one.case)
            assert asked["previousSummary"] == (None if prefix else found.previous_summary)


# Where the recordings of seed 000 can be compared: sessions without an earlier compaction (there the window
# begins elsewhere) whose last answer was measured (an unmeasured one switches scaling off there), and ratios
# that the highest calibration does not bound.
SCALED = [("linear", 20), ("linear", 60), ("linear", 20_000)] + [
    ("bigMixed+turns+len", keep) for keep in (500, 2_000, 6_000)
]


@pytest.mark.parametrize(("name", "keep"), SCALED)
def test_measured_usage_scales_what_is_kept_as_in_seed_000(name: str, keep: int) -> None:
    (row,) = (
        row["expected"]
        for row in table("omp-prepare-compaction")
        if (row["session"], row["keep"]) == (name, keep)
    )
    found = prepare_compaction(
        table_sessions("omp-prepare-compaction")[name].path(), keeping(keep, calibrate=True)
    )
    if row is None:
        assert isinstance(found, Refusal)
        return
    assert isinstance(found, CompactionPreparation)
    assert found.first_kept_entry_id == row["firstKept"]
    assert [*found.summarized_entry_ids] == row["messagesToSummarize"]
    assert [*found.turn_prefix_entry_ids] == row["turnPrefixMessages"]
    assert found.tokens_before == row["tokensBefore"]


@pytest.mark.parametrize(
    "row",
    [row for row in table("compaction-flow") if "firstKept" in str(row["expected"].get("returned"))],
    ids=lambda row: row["name"],
)
def test_a_recorded_run_rests_on_the_same_preparation(row: Json) -> None:
    returned = row["expected"]["returned"]
    entries = table_sessions("compaction-flow")[row["session"]].path()
    found = prepared(entries, row["keepRecentTokens"])
    assert found.first_kept_entry_id == returned["firstKept"]
    if returned["tokensBefore"] != 4_242:  # else an extension's number
        assert found.tokens_before == returned["tokensBefore"]
    lists = file_lists(found.file_ops)
    if returned["details"] != {"mine": True}:
        assert returned["details"] == {
            "readFiles": [*lists.read_files],
            "modifiedFiles": [*lists.modified_files],
        }


# Saying no


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        (path(), "NothingToCompact"),
        (path(line("model_change", "m", None)), "NothingToCompact"),
        (path(user("u", None)), "NothingToCompact"),
        (path(user("u", None), compaction("c", "u", "u")), "AlreadyCompacted"),
        (path(user("u", None), compaction("c", "u", "u"), leaf_marker("l", "c")), "AlreadyCompacted"),
    ],
    ids=["empty", "state only", "one message", "compacted", "compacted and moved"],
)
def test_with_nothing_to_do_a_reason_is_given(entries: list[Entry], kind: str) -> None:
    found = prepare_compaction(entries, keeping(20_000))
    assert isinstance(found, Refusal)
    assert found.kind == kind


def test_after_a_compaction_a_new_message_makes_the_next_one_possible() -> None:
    entries = path(
        user("u1", None), assistant("a1", "u1"), compaction("c", "a1", "a1"), label("l", "c", "u1", "x"),
        user("u2", "l"), assistant("a2", "u2"),
    )  # fmt: skip
    found = prepared(entries, 1)
    assert found.first_kept_entry_id == "a2"
    assert found.summarized_entry_ids + found.turn_prefix_entry_ids == ("a1", "u2")


# Cuts


def long_tool_loop() -> list[Entry]:
    """One turn: a call with a result of 15,000 tokens, two calls at once with a long and a short one."""
    return path(
        user("u1", None, big(200_000)),
        calls("a1", "u1", "c1", command="ls"),
        answered("r1", "a1", "c1", big(60_000)),
        calls("a2", "r1", "c2", "c3"),
        answered("r2", "a2", "c2", big(100_000)),
        answered("r3", "r2", "c3", big(8_000)),
        assistant("a3", "r3", "done", 100_000),
    )


def pairs_are_whole(messages: Sequence[Message]) -> bool:
    """Whether every result follows its call, and every call of the messages that had a result has it."""
    called: list[str] = []
    results: list[str] = []
    for each in messages:
        if isinstance(each, AssistantMessage):
            called += [call.id for call in tool_calls(each)]
        elif isinstance(each, ToolResultMessage):
            if each.tool_call_id not in called:
                return False
            results.append(each.tool_call_id)
    return sorted(called) == sorted(results)


@pytest.mark.parametrize("calibrate", [False, True])
def test_whatever_is_to_be_kept_calls_stay_with_their_results(calibrate: bool) -> None:
    entries = long_tool_loop()
    kept: set[str] = set()
    for keep in range(0, 60_001, 500):
        found = prepare_compaction(entries, keeping(keep, calibrate=calibrate))
        if isinstance(found, CompactionPreparation):
            kept.add(found.first_kept_entry_id)
            context = build_session_context(after(entries, found)).messages
            assert pairs_are_whole([each.message for each in context])
    assert kept <= {"u1", "a1", "a2", "a3"}
    assert len(kept) > 1


def test_a_message_between_a_call_and_its_result_is_no_place_to_cut() -> None:
    note = line("custom_message", "n", "a1", customType="t", content=big(400), display=True)
    entries = path(user("u1", None), calls("a1", "u1", "c1"), note, answered("r1", "n", "c1", big(400)))
    for keep in (0, 100, 150, 200):
        assert prepared(entries, keep).first_kept_entry_id == "a1"


def test_a_call_that_was_never_answered_closes_nothing_off() -> None:
    entries = path(
        user("u1", None), calls("a1", "u1", "c1", "c2"), answered("r1", "a1", "c1"), user("u2", "r1"),
        assistant("a2", "u2"),
    )  # fmt: skip
    assert prepared(entries, 1).first_kept_entry_id == "a2"
    assert prepared(entries, 3).first_kept_entry_id == "u2"


def test_a_huge_tool_result_at_the_end_is_kept_with_its_call() -> None:
    entries = path(
        user("u1", None), assistant("a1", "u1"), user("u2", "a1"), calls("a2", "u2", "c1"),
        answered("r2", "a2", "c1", big(400_000)),
    )  # fmt: skip
    found = prepared(entries, 20_000)
    assert found.first_kept_entry_id == "a2"
    assert found.turn_prefix_entry_ids == ("u2",)


def test_custom_messages_count_towards_what_is_kept() -> None:
    note = line("custom_message", "n", "a1", customType="t", content=big(4_000), display=True)
    entries = path(user("u1", None), assistant("a1", "u1"), note, user("u2", "n"), assistant("a2", "u2"))
    assert prepared(entries, 900).first_kept_entry_id == "n"


def test_state_entries_before_the_cut_are_kept_with_it() -> None:
    entries = path(
        user("u1", None), assistant("a1", "u1"), line("session_info", "s", "a1", name="Title"),
        label("l", "s", "u1", "here"), user("u2", "l"), assistant("a2", "u2"),
    )  # fmt: skip
    found = prepared(entries, 3)
    assert found.first_kept_entry_id == "s"
    assert found.kept_entry_ids == ("s", "l", "u2", "a2")
    assert not found.is_split_turn


def test_titles_and_other_state_are_never_summarized() -> None:
    entries = path(
        line("session_info", "s", None, name="SECRET TITLE"), user("u1", "s"), assistant("a1", "u1"),
        line("custom", "x", "a1", customType="e", data="SECRET DATA"), user("u2", "x"), assistant("a2", "u2"),
    )  # fmt: skip
    found = prepared(entries, 1)
    assert "SECRET" not in texts(found.messages_to_summarize + found.turn_prefix_messages)
    assert found.summarized_entry_ids + found.turn_prefix_entry_ids == ("u1", "a1", "u2")


def test_a_turn_longer_than_the_budget_is_split_and_its_beginning_told_apart() -> None:
    lines = [user("u0", None), assistant("a0", "u0"), user("u1", "a0")]
    for at in range(6):
        lines += [
            calls(f"a{at}x", lines[-1]["id"], f"c{at}"),
            answered(f"r{at}", f"a{at}x", f"c{at}", big(400)),
        ]
    found = prepared(path(*lines), 250)
    assert found.is_split_turn
    assert found.summarized_entry_ids == ("u0", "a0")
    assert found.turn_prefix_entry_ids[0] == "u1"
    assert found.first_kept_entry_id == "a4x"


# Context edits


def test_what_a_context_edit_hid_is_neither_summarized_nor_counted() -> None:
    entries = path(
        user("u1", None, "first"), assistant("a1", "u1", "HIDDEN " + big(4_000)), edit("e", "a1", "a1"),
        user("u2", "e", "second"), assistant("a2", "u2", "third"), user("u3", "a2", "fourth"),
    )  # fmt: skip
    assert isinstance(prepare_compaction(entries, keeping(1_000)), Refusal)
    found = prepared(entries, 4)
    assert "HIDDEN" not in texts(found.messages_to_summarize)
    assert found.summarized_entry_ids == ("u1",)


def test_what_a_context_edit_replaced_is_summarized_as_it_reads_now() -> None:
    entries = path(
        user("u1", None, "the ORIGINAL words"), edit("e", "u1", "u1", "the NEW words"), assistant("a1", "e"),
        user("u2", "a1"), assistant("a2", "u2"),
    )  # fmt: skip
    text = texts(prepared(entries, 3).messages_to_summarize)
    assert "NEW" in text
    assert "ORIGINAL" not in text


def test_a_replaced_message_counts_with_its_new_size() -> None:
    def first_kept(*edits: Json) -> str:
        lines = [user("u1", None), assistant("a1", "u1", big(4_000)), user("u2", "a1"), *edits]
        return prepared(path(*lines, assistant("a2", lines[-1]["id"])), 500).first_kept_entry_id

    assert first_kept() == "a1"
    assert first_kept(edit("e", "u2", "u2", big(4_000))) == "u2"


def test_what_is_hidden_begins_neither_a_turn_nor_what_is_kept() -> None:
    entries = path(
        user("u1", None), assistant("a1", "u1"), user("x", "a1", big(400)), edit("e", "x", "x"),
        assistant("a2", "e"), assistant("a3", "a2"),
    )  # fmt: skip
    found = prepared(entries, 3)
    assert found.first_kept_entry_id == "e"
    assert found.turn_prefix_entry_ids == ("u1", "a1")


def test_calibration_compares_with_what_was_really_sent() -> None:
    lines = [user("u0", None, big(80_000)), edit("e", "u0", "u0", "short")]
    for at in range(1, 10):
        lines.append(user(f"u{at}", lines[-1]["id"], big(800)))
        lines.append(assistant(f"a{at}", f"u{at}", big(200), 4_410 if at == 9 else None))  # twice as much
    assert prepared(path(*lines), 1_000, calibrate=True).first_kept_entry_id == "u8"


# Several compactions


def test_what_the_first_compaction_kept_is_summarized_by_the_second() -> None:
    lines = [
        user("u1", None, "MARK1 " + big(100_000)), assistant("a1", "u1", "MARK2"),
        user("u2", "a1", "MARK3 " + big(40_000)), assistant("a2", "u2", "MARK4", 40_000),
        compaction("c1", "a2", "u2", "OLD-SUMMARY"),
        user("u3", "c1", "MARK5 " + big(100_000)), assistant("a3", "u3", "MARK6", 90_000),
        user("u4", "a3", "MARK7 " + big(200_000)), assistant("a4", "u4", "MARK8", 190_100),
    ]  # fmt: skip
    entries = path(*lines)
    for calibrate in (False, True):
        found = prepared(entries, 20_000, calibrate=calibrate)
        asked = texts(found.messages_to_summarize + found.turn_prefix_messages)
        context = build_session_context(after(entries, found)).messages
        sent = texts([each.message for each in context])
        assert found.previous_summary == "OLD-SUMMARY"
        for mark in range(3, 9):
            assert (f"MARK{mark}" in asked) != (f"MARK{mark}" in sent)
        assert "MARK1" not in asked + sent
        assert "MARK2" not in asked + sent
        assert sum(isinstance(each.message, CompactionSummaryMessage) for each in context) == 1


def test_the_newest_compaction_of_the_path_counts() -> None:
    entries = path(
        user("u1", None), assistant("a1", "u1"), compaction("c1", "a1", "a1", "FIRST"), user("u2", "c1"),
        assistant("a2", "u2"), compaction("c2", "a2", "a2", "SECOND"), user("u3", "c2"),
        assistant("a3", "u3"),
    )  # fmt: skip
    found = prepared(entries)
    assert found.previous_summary == "SECOND"
    assert found.summarized_entry_ids + found.turn_prefix_entry_ids == ("a2", "u3")


def test_without_its_boundary_a_compaction_is_followed_by_what_comes_after_it() -> None:
    entries = path(
        user("u1", None), assistant("a1", "u1"), compaction("c1", "a1", "gone", big(40_000)),
        user("u2", "c1"), assistant("a2", "u2"),
    )  # fmt: skip
    assert prepared(entries).turn_prefix_entry_ids == ("u2",)
    assert isinstance(prepare_compaction(entries, keeping(100)), Refusal)  # its summary takes no room


def test_a_previous_summary_that_says_nothing_is_none() -> None:
    entries = path(
        user("u1", None), compaction("c1", "u1", "u1", ""), user("u2", "c1"), assistant("a2", "u2")
    )
    assert prepared(entries).previous_summary is None


def test_a_fork_below_a_compaction_keeps_its_boundary() -> None:
    tree = SessionTree(
        path(
            user("u1", None), assistant("a1", "u1"), user("u2", "a1"), assistant("a2", "u2"),
            compaction("c1", "a2", "u2", "S"), user("u3", "c1"), assistant("a3", "u3"),
            user("side", "c1"), assistant("side2", "side"),
        )
    )  # fmt: skip
    found = prepared(tree.path_to("side2"))
    assert found.previous_summary == "S"
    assert found.summarized_entry_ids + found.turn_prefix_entry_ids == ("u2", "a2", "side")


def test_only_the_path_is_looked_at() -> None:
    tree = SessionTree(
        path(
            user("u1", None, "a"), assistant("a1", "u1", "b", 50),
            user("x1", "a1", "DEAD " + big(2_000_000)), assistant("x2", "x1", "DEAD2", 500_000),
            user("u2", "a1", "LIVE " + big(100_000)), assistant("a2", "u2", "c", 25_000),
            user("u3", "a2", "d"), assistant("a3", "u3", "e", 25_100),
        )
    )  # fmt: skip
    found = prepared(tree.path(), 100)
    assert "DEAD" not in texts(found.messages_to_summarize + found.turn_prefix_messages)
    assert found.first_kept_entry_id in {entry.id for entry in tree.path()}
    assert 20_000 <= found.tokens_before <= 40_000


def test_system_messages_and_earlier_compactions_are_not_summarized_as_messages() -> None:
    entries = path(
        message("s", None, "system", "PROMPT"), user("u1", "s"), assistant("a1", "u1"),
        compaction("c1", "a1", "u1", "FIRST"), user("u2", "c1"), assistant("a2", "u2"),
        compaction("c2", "a2", "u1", "SECOND"), user("u3", "c2"), assistant("a3", "u3"),
    )  # fmt: skip
    found = prepared(entries)
    summarized = found.messages_to_summarize + found.turn_prefix_messages
    assert not [each for each in summarized if isinstance(each, CompactionSummaryMessage | SystemMessage)]
    assert found.summarized_entry_ids + found.turn_prefix_entry_ids == ("u1", "a1", "u2", "a2", "u3")


def test_what_an_earlier_compaction_preserved_is_handed_on() -> None:
    earlier = compaction("c1", "a1", "a1") | {"preserveData": {"mine": [1]}}
    entries = path(user("u1", None), assistant("a1", "u1"), earlier, user("u2", "c1"), assistant("a2", "u2"))
    assert prepared(entries).previous_preserve_data == {"mine": [1]}


# Files


@pytest.mark.parametrize("flag", ["fromHook", "fromExtension"])
def test_files_of_earlier_summaries_are_carried_on_unless_an_extension_wrote_them(flag: str) -> None:
    def files(by_extension: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        more = {"details": {"readFiles": ["r"], "modifiedFiles": ["m"]}, flag: by_extension}
        branch = {"details": {"readFiles": ["br"], "modifiedFiles": []}, flag: by_extension}
        entries = path(
            user("u1", None), assistant("a1", "u1"), compaction("c1", "a1", "a1") | more,
            branch_summary("b", "c1") | branch, calls("a2", "b", "c", name="edit", path="mine"),
            answered("r2", "a2", "c"), user("u3", "r2"),
        )  # fmt: skip
        lists = file_lists(prepared(entries).file_ops)
        return lists.read_files, lists.modified_files

    assert files(False) == (("br", "r"), ("m", "mine"))
    assert files(True) == ((), ("mine",))


def test_files_of_a_split_turns_beginning_count_too() -> None:
    entries = path(
        user("u1", None), calls("a1", "u1", "c1", name="read", path="early"), answered("r1", "a1", "c1"),
        calls("a2", "r1", "c2", name="write", path="late"), answered("r2", "a2", "c2"),
    )  # fmt: skip
    found = prepared(entries, 1)
    assert found.first_kept_entry_id == "a2"
    assert file_lists(found.file_ops).read_files == ("early",)
    assert file_lists(found.file_ops).modified_files == ()


# Calibration


def measured_turns(total: float) -> list[Entry]:
    """Ten turns of about 250 tokens each; the last answer was measured at so many tokens."""
    lines: list[Json] = []
    for at in range(10):
        lines.append(user(f"u{at}", lines[-1]["id"] if lines else None, big(800)))
        lines.append(assistant(f"a{at}", f"u{at}", big(200), total if at == 9 else None))
    return path(*lines)


def kept_with(total: float, *, calibrate: bool = True, overhead: float = 0) -> str:
    entries = measured_turns(total)
    return prepared(entries, 1_000, calibrate=calibrate, overhead=overhead).first_kept_entry_id


def test_a_measurement_above_the_estimate_shrinks_what_is_kept() -> None:
    estimate = 2_450  # of the messages before the measured answer
    assert kept_with(estimate) == "u6"
    assert kept_with(2 * estimate) == "u8"
    assert kept_with(2 * estimate, calibrate=False) == "u6"


def test_a_measurement_below_the_estimate_changes_nothing() -> None:
    assert kept_with(100) == "u6"


def test_system_prompt_and_tools_are_taken_off_a_measurement() -> None:
    assert kept_with(2 * 2_450, overhead=2_450) == "u6"


def test_a_wild_measurement_shrinks_to_a_quarter_at_most() -> None:
    assert kept_with(2_450 * 1_000) == kept_with(2_450 * 4)


def test_a_measurement_from_before_the_compaction_does_not_count() -> None:
    entries = path(
        user("u1", None, big(400)), assistant("a1", "u1", big(400), 1_000_000), compaction("c", "a1", "u1"),
        user("u2", "c", big(400)), assistant("a2", "u2", big(400)),
    )  # fmt: skip
    found = prepare_compaction(entries, keeping(300, calibrate=True))
    assert isinstance(found, CompactionPreparation)
    assert found.first_kept_entry_id == "a1"


# For any path


@st.composite
def paths(draw: st.DrawFn) -> list[Entry]:
    """Paths of every kind of entry, calls with results that come at once, late, or never."""
    lines: list[Json] = []
    waiting: list[str] = []
    kinds = [
        "user",
        "answer",
        "calls",
        "result",
        "note",
        "branch",
        "state",
        "compaction",
        "edit",
        "bash",
        "empty",
    ]
    for at, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=25))):
        id, parent = f"e{at}", lines[-1]["id"] if lines else None
        text = "x" * draw(st.integers(0, 120))
        match kind:
            case "user":
                lines.append(user(id, parent, text))
            case "answer":
                lines.append(assistant(id, parent, text, draw(st.none() | st.integers(1, 2_000))))
            case "calls":
                lines.append(calls(id, parent, f"c{at}", f"d{at}"))
                waiting += [f"c{at}", f"d{at}"]
            case "result":
                call = waiting.pop(draw(st.integers(0, len(waiting) - 1))) if waiting else "nobody"
                lines.append(answered(id, parent, call, text))
            case "note":
                lines.append(line("custom_message", id, parent, customType="t", content=text, display=True))
            case "branch":
                lines.append(branch_summary(id, parent, text))
            case "state":
                lines.append(line("session_info", id, parent, name="title"))
            case "bash":
                lines.append(message(id, parent, "bashExecution", None, command="ls", output=text))
            case "empty":
                lines.append(line("message", id, parent, message=None))
            case _:
                target = draw(st.sampled_from(lines))["id"] if lines else "gone"
                lines.append(
                    compaction(id, parent, target) if kind == "compaction" else edit(id, parent, target)
                )
    return path(*lines)


@given(paths(), st.integers(0, 300), st.booleans())
def test_every_message_is_kept_or_summarized_exactly_once(
    entries: list[Entry], keep: int, calibrate: bool
) -> None:
    found = prepare_compaction(entries, keeping(keep, calibrate=calibrate))
    if isinstance(found, Refusal):
        return
    before = [each for each in build_session_context(entries).messages if each.entry.type != "compaction"]
    now = build_session_context(after(entries, found)).messages
    kept = [each.entry.id for each in now if each.entry.type != "compaction"]
    told = [*found.summarized_entry_ids, *found.turn_prefix_entry_ids]
    assert told + kept == [each.entry.id for each in before]
    assert [*found.messages_to_summarize, *found.turn_prefix_messages] == [
        each.message for each in before if each.entry.id in told
    ]
    assert told
    assert found.is_split_turn == bool(found.turn_prefix_messages)


@given(paths(), st.integers(0, 300))
def test_a_cut_never_separates_a_call_from_its_result(entries: list[Entry], keep: int) -> None:
    found = prepare_compaction(entries, keeping(keep))
    if isinstance(found, Refusal):
        return
    told = {*found.summarized_entry_ids, *found.turn_prefix_entry_ids}
    calls_told = {
        call.id
        for entry in entries
        if entry.id in told and isinstance(each := message_of(entry), AssistantMessage)
        for call in tool_calls(each)
    }
    kept = {
        each.message.tool_call_id
        for each in build_session_context(after(entries, found)).messages
        if isinstance(each.message, ToolResultMessage)
    }
    assert not calls_told & kept


@given(paths(), st.integers(0, 300), st.integers(0, 300))
def test_a_second_compaction_loses_nothing(entries: list[Entry], first: int, second: int) -> None:
    one = prepare_compaction(entries, keeping(first))
    if isinstance(one, Refusal):
        return
    once = [*after(entries, one), *path(user("u-new", "new"), assistant("a-new", "u-new"))]
    two = prepare_compaction(once, keeping(second))
    if isinstance(two, Refusal):
        return
    assert two.previous_summary == "S"
    kept_by_first = [
        each.entry.id
        for each in build_session_context(once).messages
        if not isinstance(each.message, CompactionSummaryMessage | SystemMessage)
    ]
    told = [*two.summarized_entry_ids, *two.turn_prefix_entry_ids]
    assert kept_by_first[: len(told)] == told
    assert {*kept_by_first[len(told) :]} <= {*two.kept_entry_ids}


def test_a_result_says_on_the_wire_only_what_it_has() -> None:
    result = CompactionResult("S", "e1", 10, details={"readFiles": []})
    assert msgspec.to_builtins(result) == {
        "summary": "S",
        "firstKeptEntryId": "e1",
        "tokensBefore": 10,
        "details": {"readFiles": []},
    }
