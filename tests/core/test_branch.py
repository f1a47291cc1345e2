from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pi_ls.core.branch import BranchPreparation, collect_entries_for_branch_summary, prepare_branch_entries
from pi_ls.core.entries import BranchSummaryBody, CompactionBody, Entry, MessageBody
from pi_ls.core.jsonvalues import Json, is_object
from pi_ls.core.messages import AssistantMessage
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.transcript import file_lists
from pi_ls.core.tree import SessionTree
from tests.conformance_data import table
from tests.core.builders import (
    assistant,
    branch_summary,
    compaction,
    edit,
    leaf_marker,
    line,
    message,
    path,
    result,
    tree,
    user,
)
from tests.core.recorded import (
    Recorded,
    is_recorded_list,
    is_recorded_text,
    recorded,
    table_sessions,
    text_for_model,
)

DEFAULT_WINDOW = 128_000


def reads(id: str, parent: str | None, *files: str, name: str = "read") -> Json:
    content = [{"type": "toolCall", "id": file, "name": name, "arguments": {"path": file}} for file in files]
    return message(id, parent, "assistant", content, stopReason="toolUse")


def forked() -> SessionTree:
    """root A; E and F on one side, B, C and D on the other, which is where the leaf is."""
    return tree(
        assistant("A", None, "root"), user("E", "A", "e"), assistant("F", "E", "f"),
        user("B", "A", "b"), assistant("C", "B", "c"), user("D", "C", "d"), assistant("G", "D", "g"),
    )  # fmt: skip


def told_by_us(entry: Entry) -> bool:
    """Whether the entry may be told; the recorded program also tells failed answers and empty summaries."""
    match entry.body:
        case MessageBody(AssistantMessage(stop_reason="error")):
            return False
        case BranchSummaryBody(summary):
            return summary != ""
        case _:
            return True


def lists_files(entries: Sequence[Entry]) -> bool:
    """Whether a compaction of this program is among them that lists files."""
    return any(
        isinstance(body := entry.body, CompactionBody) and body.details and not body.from_extension
        for entry in entries
        if entry.type == "compaction"
    )


def left_behind(*lines: Json) -> list[Entry]:
    return path(*lines)


def told(found: BranchPreparation) -> str:
    return text_for_model(found.messages)


# What was recorded


@pytest.mark.parametrize(
    "one", [one for one in recorded() if one.case.expected.get("branchSummary")], ids=repr
)
def test_the_entries_left_behind_are_those_of_pi(one: Recorded) -> None:
    for row in one.case.expected["branchSummary"]:
        old, target = one.entry_id(row["old"]), one.entry_id(row["target"])
        found = collect_entries_for_branch_summary(one.tree, old, target)
        ancestor = found.common_ancestor_id
        assert is_recorded_list(one.names_of(found.entries), row["entries"])
        assert (None if ancestor is None else one.name(ancestor)) == row["commonAncestor"]


@pytest.mark.parametrize(
    "one", [one for one in recorded() if one.case.expected.get("branchSummary")], ids=repr
)
def test_what_goes_into_a_branch_summary_is_what_pi_takes(one: Recorded) -> None:
    counter = TokenCounter()
    for row in one.case.expected["branchSummary"]:
        entries = collect_entries_for_branch_summary(
            one.tree, one.entry_id(row["old"]), one.entry_id(row["target"])
        ).entries
        preparations = row.get("prepare")
        if not isinstance(preparations, list):
            continue  # the recorded program crashed
        unlike = {one.name(entry): counter.entry(entry) for entry in entries if not told_by_us(entry)}
        for expected in cast("list[Json]", preparations):
            if sum(unlike.values()) and expected["budget"] > 0:
                continue  # there what we leave out took room
            found = prepare_branch_entries(entries, expected["budget"], counter)
            names: list[str] = expected["messages"]
            assert is_recorded_list(one.names_of(found.entry_ids), without(names, unlike))
            assert found.total_tokens == expected["totalTokens"] - sum(unlike.values())
            lists = file_lists(found.file_ops)
            if lists_files(entries):  # counted here, not there
                known = {*lists.read_files, *lists.modified_files}
                assert known >= {*expected["readFiles"], *expected["modifiedFiles"]}
                assert {*lists.modified_files} >= {*expected["modifiedFiles"]}
            elif not sum(unlike.values()):
                assert [*lists.read_files] == expected["readFiles"]
                assert [*lists.modified_files] == expected["modifiedFiles"]
        if unlike:
            continue
        if "serialized" in row:
            text = told(prepare_branch_entries(entries, 0, counter))
            assert is_recorded_text(text, row["serialized"], one.case)


def without(names: Any, unlike: Collection[str]) -> Any:
    return names if is_object(names) else [name for name in names if name not in unlike]


@pytest.mark.parametrize("row", table("branch-summary-run"), ids=lambda row: row["name"])
def test_a_recorded_run_rests_on_the_same_conversation(row: Json) -> None:
    if row["session"] is None:
        assert prepare_branch_entries([]).messages == ()
        return
    entries = table_sessions("branch-summary-run")[row["session"]].path()
    window = row["options"]["window"] or DEFAULT_WINDOW
    found = prepare_branch_entries(entries, window - row["options"].get("reserve", 16_384))
    expected = row["expected"]
    if expected["conversation"] is None:
        assert found.messages == ()
        return
    assert is_recorded_text(told(found), expected["conversation"], recorded()[0].case)
    lists = file_lists(found.file_ops)
    if "readFiles" in expected and not lists_files(entries):
        assert [*lists.read_files] == expected["readFiles"]
        assert [*lists.modified_files] == expected["modifiedFiles"]


# Entries


def test_what_is_left_reaches_from_the_old_leaf_to_where_the_paths_part() -> None:
    found = collect_entries_for_branch_summary(forked(), "G", "F")
    assert [entry.id for entry in found.entries] == ["B", "C", "D", "G"]
    assert found.common_ancestor_id == "A"


def test_going_before_the_first_entry_leaves_the_whole_path() -> None:
    found = collect_entries_for_branch_summary(forked(), "G", None)
    assert [entry.id for entry in found.entries] == ["A", "B", "C", "D", "G"]
    assert found.common_ancestor_id is None


def test_going_back_on_the_own_path_leaves_what_comes_after() -> None:
    found = collect_entries_for_branch_summary(forked(), "G", "B")
    assert [entry.id for entry in found.entries] == ["C", "D", "G"]


@pytest.mark.parametrize(("old", "target"), [(None, "F"), ("F", "F"), ("A", "F"), (None, None)])
def test_going_forward_leaves_nothing(old: str | None, target: str | None) -> None:
    assert collect_entries_for_branch_summary(forked(), old, target).entries == ()


def test_an_id_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        collect_entries_for_branch_summary(forked(), "G", "nowhere")


def test_compactions_do_not_stop_the_walk() -> None:
    session = tree(
        user("u1", None),
        assistant("a1", "u1"),
        user("u2", "a1"),
        compaction("c", "u2", "u2"),
        user("u3", "c"),
    )
    found = collect_entries_for_branch_summary(session, "u3", "a1")
    assert [entry.id for entry in found.entries] == ["u2", "c", "u3"]


def test_the_origin_an_older_summary_names_is_not_looked_at() -> None:
    wrong = branch_summary("b", "u1") | {"fromId": "nowhere"}
    found = collect_entries_for_branch_summary(tree(user("u1", None), wrong), "b", "u1")
    assert [entry.id for entry in found.entries] == ["b"]


# Messages


def test_failed_answers_tool_results_and_state_are_not_told() -> None:
    found = prepare_branch_entries(
        left_behind(
            user("u", None, "QUESTION"), assistant("e", "u", "HALF AN ANSWER", stopReason="error"),
            reads("a", "e", "file"), result("r", "a", "CONTENT"),
            line("session_info", "t", "r", name="TITLE"), leaf_marker("l", "t"),
            assistant("z", "l", "ANSWER"),
        )
    )  # fmt: skip
    assert found.entry_ids == ("u", "a", "z")
    assert (
        told(found) == '[User]: QUESTION\n\n[Assistant tool calls]: read(path="file")\n\n[Assistant]: ANSWER'
    )


def test_an_answer_that_was_interrupted_is_told() -> None:
    found = prepare_branch_entries(left_behind(assistant("a", None, "so far", stopReason="aborted")))
    assert told(found) == "[Assistant]: so far"


def test_context_edits_hold_in_a_branch_summary_too() -> None:
    found = prepare_branch_entries(
        left_behind(
            user("u1", None, "HIDDEN"), user("u2", "u1", "OLD"), edit("e1", "u2", "u1"),
            edit("e2", "e1", "u2", "FIRST"), edit("e3", "e2", "u2", "NOW"), assistant("a", "e3", "answer"),
        )
    )  # fmt: skip
    assert told(found) == "[User]: NOW\n\n[Assistant]: answer"
    assert found.total_tokens == 3


def test_the_newest_messages_fit_the_budget_first() -> None:
    entries = left_behind(*chain_of_hundreds(5))
    assert prepare_branch_entries(entries, 250).entry_ids == ("u3", "u4")
    assert prepare_branch_entries(entries, 300).entry_ids == ("u2", "u3", "u4")
    assert prepare_branch_entries(entries, 50).entry_ids == ()


@pytest.mark.parametrize("budget", [0, -1])
def test_without_a_budget_all_goes_in(budget: int) -> None:
    assert len(prepare_branch_entries(left_behind(*chain_of_hundreds(5)), budget).messages) == 5


def chain_of_hundreds(count: int, parent: str | None = None) -> list[Json]:
    """User messages of 100 tokens each."""
    lines: list[Json] = []
    for at in range(count):
        lines.append(user(f"u{at}", parent, "x" * 400))
        parent = f"u{at}"
    return lines


@pytest.mark.parametrize("kind", ["compaction", "branch"])
def test_a_summary_may_go_in_at_the_edge_while_there_is_room(kind: str) -> None:
    long = "s" * 2_000
    summary = compaction("s", None, "gone", long) if kind == "compaction" else branch_summary("s", None, long)
    entries = left_behind(user("first", None), summary, *chain_of_hundreds(3, "s"))
    assert prepare_branch_entries(entries, 334).entry_ids == ("s", "u0", "u1", "u2")
    assert prepare_branch_entries(entries, 333).entry_ids == ("u0", "u1", "u2")  # over nine tenths used


def test_nothing_worth_telling_makes_an_empty_preparation() -> None:
    entries = left_behind(line("session_info", "s", None, name="x"), branch_summary("b", "s", ""))
    found = prepare_branch_entries(entries)
    assert found == BranchPreparation((), found.file_ops, 0, ())


# Files


def test_files_are_those_of_the_messages_looked_at_and_of_every_summary() -> None:
    details = {"details": {"readFiles": ["old"], "modifiedFiles": ["older"]}}
    foreign = {"details": {"readFiles": ["foreign"]}, "fromHook": True}
    entries = left_behind(
        branch_summary("b", None, "s" * 4_000) | details,
        branch_summary("f", "b", "s" * 4_000) | foreign,
        reads("far", "f", "never looked at"),
        reads("edge", "far", "no longer fits"),
        *chain_of_hundreds(2, "edge"),
        reads("new", "u1", "fits"),
    )
    lists = file_lists(prepare_branch_entries(entries, 208).file_ops)
    assert lists.read_files == ("fits", "no longer fits", "old")
    assert lists.modified_files == ("older",)


@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 200))
def test_a_budget_is_kept_and_cuts_off_the_oldest(sizes: list[int], budget: int) -> None:
    lines: list[Json] = []
    for at, size in enumerate(sizes):
        lines.append(user(f"u{at}", f"u{at - 1}" if at else None, "x" * 4 * size))
    found = prepare_branch_entries(left_behind(*lines), budget)
    all_ids = [entry["id"] for entry in lines]
    assert found.total_tokens == sum(sizes[len(sizes) - len(found.entry_ids) :]) <= budget
    assert [*found.entry_ids] == all_ids[len(all_ids) - len(found.entry_ids) :]
    if len(found.entry_ids) < len(sizes):
        assert found.total_tokens + sizes[len(sizes) - len(found.entry_ids) - 1] > budget
