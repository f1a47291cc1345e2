from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pi_ls.core.context import build_session_context
from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import UserMessage, role_of, text_of
from pi_ls.core.tree import Landing, SessionTree
from tests.conformance_data import Session, opened_sessions, same_text, table
from tests.core.builders import (
    TIMESTAMP,
    assistant,
    branch_summary,
    compaction,
    label,
    leaf_marker,
    line,
    tree,
    user,
)

OPENED = opened_sessions()
each_session = pytest.mark.parametrize("case", OPENED, ids=repr)


def ids(entries: Any) -> list[str]:
    return [entry.id for entry in entries]


def drawn(session: SessionTree) -> list[tuple[Entry, int]]:
    """Every entry with its depth, depth first."""
    found: list[tuple[Entry, int]] = []
    pending = [(entry, 0) for entry in reversed(session.children(None))]
    while pending:
        entry, depth = pending.pop()
        found.append((entry, depth))
        pending += [(child, depth + 1) for child in reversed(session.children(entry.id))]
    return found


@each_session
def test_the_leaf_on_opening_is_the_one_pi_has(case: Session) -> None:
    entries = case.entries()
    session = SessionTree(entries)
    names = case.references(entries)
    assert (None if session.leaf is None else names[id(session.leaf)]) == case.expected["open"]["leaf"]


@pytest.mark.parametrize(
    "case",
    # pi draws both lines of a repeated id, each with all children; here the later line alone has the id.
    [one for one in OPENED if one.name != "duplicate-ids"],
    ids=repr,
)
def test_the_tree_is_the_one_pi_draws(case: Session) -> None:
    entries = case.entries()
    session = SessionTree(entries)
    names = case.references(entries)
    rows = [
        [names[id(entry)], depth, *([found] if (found := session.labels.get(entry.id)) else [])]
        for entry, depth in drawn(session)
    ]
    recorded = case.expected["tree"]
    if isinstance(recorded, dict):
        assert recorded == {"linearChainInFileOrder": True, "nodes": len(rows)}
        assert rows == [[entry.id, depth] for depth, entry in enumerate(entries)]
    else:
        assert rows == recorded


@each_session
def test_labels_are_resolved_as_pi_resolves_them(case: Session) -> None:
    entries = case.entries()
    names = {entry.id: case.references(entries)[id(entry)] for entry in entries}
    labels = SessionTree(entries).labels
    # A label of an entry that is not in the file is kept, in case the entry comes; nothing shows it.
    shown = {names[target]: label for target, label in labels.items() if target in names}
    assert shown == case.expected["labels"]


PLAIN_MOVES = [
    (case, row)
    for case in OPENED
    for row in case.expected.get("navigate", [])
    if not row.get("appended") and not row.get("error") and not row.get("cancelled")
]


@pytest.mark.parametrize(
    ("case", "row"), PLAIN_MOVES, ids=[f"{case}-{row['from']}-{row['target']}" for case, row in PLAIN_MOVES]
)
def test_a_navigation_lands_where_pi_lands(case: Session, row: Json) -> None:
    entries = case.entries()
    by_name = {name: entry.id for entry in entries for name in [case.references(entries)[id(entry)]]}
    session = SessionTree(entries)
    if row["target"] == row["from"]:
        return  # nothing is navigated
    target: str | None = row["target"]
    landing = session.landing(None if target is None else by_name[target])
    expected: str | None = row["newLeaf"]
    assert landing.leaf_id == (None if expected is None else by_name[expected])
    text = landing.editor_text
    assert same_text(text, row["editorText"]) if text is not None else row["editorText"] is None


class Recording:
    """Carries out the operations of the table `append-operations` on a tree."""

    def __init__(self) -> None:
        self.tree = SessionTree()
        self.made: list[str] = []

    def add(self, type: str, parent: str | None, **fields: Any) -> None:
        self.made.append(f"e{len(self.made)}")
        self.tree.append(Entry.of(line(type, self.made[-1], parent, **fields)))

    def real(self, name: str | None) -> str | None:
        return self.made[int(name[1:])] if name and name.startswith("$") else name

    def told(self, entry_id: str | None) -> str | None:
        return f"${self.made.index(entry_id)}" if entry_id in self.made else entry_id

    def carry_out(self, name: str, *args: Any) -> None:
        at = self.tree.leaf_id
        match name, args:
            case (("user" | "assistant"), (text,)):
                self.add("message", at, message={"role": name, "content": text})
            case "branch", (target,):
                self.tree.move(self.real(target))
            case "reset", ():
                self.tree.move(None)
            case "label", (target, label):
                if self.real(target) not in self.tree:
                    raise KeyError(target)
                self.add("label", at, targetId=self.real(target), label=label)
            case "branchWithSummary", (target, summary, *_):
                self.tree.move(self.real(target))
                self.add("branch_summary", self.tree.leaf_id, summary=summary, fromId=at or "root")
            case "compaction", (summary, first_kept, *_):
                self.add("compaction", at, summary=summary, firstKeptEntryId=self.real(first_kept))
            case "model", (provider, model_id):
                self.add("model_change", at, provider=provider, modelId=model_id)
            case "thinking", (level,):
                self.add("thinking_level_change", at, thinkingLevel=level)
            case "custom", (custom_type, data):
                self.add("custom", at, customType=custom_type, data=data)
            case "customMessage", (custom_type, content, display):
                self.add("custom_message", at, customType=custom_type, content=content, display=display)
            case "name", (text,):
                self.add("session_info", at, name=text)
            case _:
                raise AssertionError(name)


@pytest.mark.parametrize("row", table("append-operations"), ids=lambda row: row["name"])
def test_appending_and_branching_grow_the_tree_pi_grows(row: Json) -> None:
    session = Recording()
    for step in row["expected"]["steps"]:
        if "error" in step:
            with pytest.raises(KeyError):
                session.carry_out(*step["op"])
        else:
            session.carry_out(*step["op"])
        assert session.told(session.tree.leaf_id) == step["leaf"]
        if "entry" in step:
            leaf = session.tree.leaf
            assert leaf is not None
            assert session.told(leaf.parent_id) == step["entry"]["parentId"]
    final = row["expected"]["final"]
    assert [[session.told(entry.id), depth] for entry, depth in drawn(session.tree)] == final["tree"]
    assert [session.told(entry.id) for entry in session.tree.path()] == final["branch"]
    messages: list[list[str]] = []
    for one in build_session_context(session.tree.path()).messages:
        content = getattr(one.message, "content", None)
        text = getattr(one.message, "summary", "") if content is None else text_of(content)
        messages.append([role_of(one.message), text])
    assert messages == final["messages"]


# The leaf


def test_a_leaf_marker_is_passed_over_wherever_a_leaf_is_told() -> None:
    session = tree(user("u1", None), assistant("a1", "u1"), leaf_marker("m1", "u1"), leaf_marker("m2", "m1"))
    assert session.leaf_id == "u1"
    session.append(Entry.of(leaf_marker("m3", "a1")))
    assert session.leaf_id == "u1"
    session.move("m3")
    assert session.leaf_id == "a1"


def test_an_entry_another_program_hung_on_a_marker_has_the_whole_path() -> None:
    session = tree(user("u1", None), leaf_marker("m1", "u1"))
    session.append(Entry.of(assistant("a1", "m1")))
    assert (session.leaf_id, ids(session.path())) == ("a1", ["u1", "m1", "a1"])


def test_moving_to_an_unknown_entry_is_refused_and_moves_nothing() -> None:
    session = tree(user("u1", None))
    with pytest.raises(KeyError):
        session.move("nowhere")
    assert session.leaf_id == "u1"


def test_an_entry_may_be_appended_elsewhere_without_moving_the_leaf() -> None:
    session = tree(user("u1", None), assistant("a1", "u1"))
    session.append(Entry.of(assistant("a2", "u1")), move_leaf=False)
    assert (session.leaf_id, ids(session.children("u1"))) == ("a1", ["a1", "a2"])


def test_the_path_of_a_growing_session_is_one_growing_list() -> None:
    session = tree(user("u1", None))
    before = session.path()
    session.append(Entry.of(assistant("a1", "u1")))
    assert session.path() is before
    session.move("u1")
    assert session.path() is not before


# The order of children


def test_children_are_ordered_by_time_then_place_and_roots_by_place() -> None:
    late, early = "2026-01-01T00:00:09Z", 1_767_225_601_000
    session = tree(
        user("r1", None) | {"timestamp": late},
        user("c1", "r1") | {"timestamp": late},
        user("c2", "r1"),
        user("c3", "r1"),
        user("r2", None),
    )
    assert ids(session.children("r1")) == ["c2", "c3", "c1"]
    assert ids(session.children(None)) == ["r1", "r2"]
    session.append(Entry.of(user("c4", "r1") | {"timestamp": early}))
    session.append(Entry.of(user("r0", None) | {"timestamp": "2020-01-01T00:00:00Z"}))
    assert ids(session.children("r1")) == ["c2", "c3", "c4", "c1"]
    assert ids(session.children(None)) == ["r1", "r2", "r0"]


# What is broken


def problems(session: SessionTree) -> list[tuple[str, str]]:
    return [(problem.kind, problem.entry_id) for problem in session.problems]


def test_a_cycle_is_cut_at_its_entry_that_comes_first() -> None:
    session = tree(user("u1", "a2"), assistant("a1", "u1"), user("u2", "a1"), assistant("a2", "u2"))
    assert ids(session.path()) == ["u1", "a1", "u2", "a2"]
    assert ids(session.children(None)) == ["u1"]
    assert problems(session) == [("cycle", "u1")]


def test_two_cycles_and_what_hangs_on_them_are_all_kept() -> None:
    session = tree(
        user("x", "b"), user("a", "b"), user("b", "a"), user("c", "d"), user("d", "c"), user("y", "d")
    )
    assert sorted(entry.id for entry, _ in drawn(session)) == ["a", "b", "c", "d", "x", "y"]
    assert problems(session) == [("cycle", "a"), ("cycle", "c")]


def test_an_entry_that_names_itself_is_a_root_on_opening_and_on_appending() -> None:
    session = tree(user("u1", "u1"))
    assert (ids(session.path()), problems(session)) == (["u1"], [("cycle", "u1")])
    brought = session.append(Entry.of(user("u2", "u2")))
    assert [(one.kind, one.entry_id) for one in brought] == [("cycle", "u2")]
    assert ids(session.path()) == ["u2"]
    assert problems(session) == [("cycle", "u1"), ("cycle", "u2")]


def test_of_two_entries_with_one_id_the_later_has_it() -> None:
    session = tree(
        user("u1", None), user("u2", "u1", "first"), assistant("a2", "u2"), user("u2", "a2", "second")
    )
    message = session.path()[-1].message
    assert isinstance(message, UserMessage)
    assert ("duplicateId", "u2") in problems(session)
    assert message.content == "second"
    assert sorted(entry.id for entry, _ in drawn(session)) == ["a2", "u1", "u2"]


def test_an_appended_entry_that_repeats_an_id_takes_its_place() -> None:
    session = tree(user("u1", None), user("u2", "u1", "first"))
    brought = session.append(Entry.of(user("u2", "u1", "second")))
    assert [one.kind for one in brought] == ["duplicateId"]
    assert (len(session), session.leaf_id, ids(session.path())) == (2, "u2", ["u1", "u2"])


def test_a_missing_parent_leaves_two_islands_and_a_warning() -> None:
    session = tree(user("u1", None), assistant("a1", "u1"), user("u3", "LOST"), assistant("a3", "u3"))
    assert ids(session.path()) == ["u3", "a3"]
    assert ids(session.children(None)) == ["u1", "u3"]
    assert [entry.id for entry in session.entries if session.is_orphan(entry)] == ["u3"]
    (problem,) = session.problems
    assert (problem.kind, problem.entry_id) == ("missingParent", "u3")
    assert "LOST" in problem.message
    assert "earlier history" in problem.message
    assert ids(session.path_to("a1")) == ["u1", "a1"]


def test_a_missing_parent_that_arrives_later_joins_the_islands() -> None:
    session = tree(user("u1", None), user("u3", "LOST"))
    assert session.append(Entry.of(assistant("LOST", "u1")), move_leaf=False) == []
    assert ids(session.path()) == ["u1", "LOST", "u3"]
    assert not session.is_orphan(session.path()[-1])


def test_a_tree_with_an_orphan_grows_without_being_indexed_anew() -> None:
    session = tree(user("u3", "LOST"))
    path = session.path()
    session.append(Entry.of(assistant("a3", "u3")))
    assert session.path() is path


def test_a_problem_is_told_by_the_append_that_brought_it() -> None:
    session = tree(user("u1", None))
    assert session.append(Entry.of(assistant("a1", "u1"))) == []
    (problem,) = session.append(Entry.of(user("u9", "GONE")))
    assert problem.kind == "missingParent"


# Labels, ancestors, landing


def test_the_last_label_in_the_file_counts_and_an_empty_one_clears() -> None:
    session = tree(
        user("u1", None),
        label("l1", "u1", "u1", "one"),
        label("l2", "l1", "u1", "two"),
        label("l3", "u1", "l1", "x"),
    )
    assert session.labels == {"u1": "two", "l1": "x"}
    session.append(Entry.of(label("l4", "l3", "u1", None)))
    session.append(Entry.of(label("l5", "l4", "l1", "")))
    assert session.labels == {}


def test_the_common_ancestor_is_the_deepest_entry_on_both_paths() -> None:
    session = tree(user("r", None), user("a", "r"), user("b", "a"), user("c", "a"), user("other", None))
    assert session.common_ancestor("b", "c") == "a"
    assert session.common_ancestor("b", "a") == "a"
    assert session.common_ancestor("b", "b") == "b"
    assert session.common_ancestor("b", "other") is None
    assert session.common_ancestor(None, "b") is None


def test_a_user_or_custom_message_is_taken_back_into_the_editor() -> None:
    session = tree(
        user("u1", None, [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]),
        line("custom_message", "m", "u1", customType="note", content="noted", display=True),
        branch_summary("b", "m"),
        compaction("c", "b", "u1"),
        leaf_marker("k", "u1"),
        user("u2", "k", "three"),
    )
    assert session.landing("u1") == Landing(None, "one two")
    assert session.landing("m") == Landing("u1", "noted")
    assert session.landing("b") == Landing("b")
    assert session.landing("c") == Landing("c")
    assert session.landing("u2") == Landing("u1", "three")
    assert session.landing(None) == Landing(None)
    with pytest.raises(KeyError):
        session.landing("nowhere")


def test_forty_thousand_entries_in_a_chain_are_no_matter() -> None:
    session = tree(*(user(f"e{at}", f"e{at - 1}" if at else None) for at in range(40_000)))
    assert len(session.path()) == 40_000
    assert session.path()[0].timestamp == TIMESTAMP
    assert session.common_ancestor("e39999", "e20000") == "e20000"


class Trap(str):
    """An id that lets something happen, once, when it is looked up: as another thread may at any moment."""

    happens: Callable[[], Any] | None = None

    def __hash__(self) -> int:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().__hash__()


LOOKS: dict[str, tuple[Callable[[SessionTree], Any], Any]] = {
    "path": (lambda session: ids(session.path()), ["u1", "a1", "u2", "l1", "l2"]),
    "children": (lambda session: ids(session.children("a1")), ["u2"]),
    "labels": (lambda session: session.labels, {"u1": "one", "a1": "two"}),
}


@pytest.mark.parametrize("what", LOOKS)
def test_what_is_derived_while_an_entry_comes_in_is_made_anew(what: str) -> None:
    look, expected = LOOKS[what]
    session = tree(user("u1", None), assistant("a1", "u1"), user("u2", "a1"))
    session.append(Entry.of(label("l1", "u2", "u1", "one")))
    last = session.entries[-1]
    trap = Trap("u2")
    trap.happens = lambda: session.append(Entry.of(label("l2", "l1", "a1", "two")))
    if what == "labels":
        last._read = lambda entry: (hash(trap), label("l1", "u2", "u1", "one"))[1]  # pyright: ignore
    else:
        last.parent_id = trap
    look(session)
    assert trap.happens is None
    assert look(session) == expected
    assert ids(session.children("l1")) == ["l2"]


def test_a_repeated_id_leaves_no_moment_without_an_index() -> None:
    session = tree(user("u1", None), assistant("a1", "u1"), assistant("a2", "a1"))
    seen: list[Any] = []
    trap = Trap("u1")
    trap.happens = lambda: seen.extend([ids(session.entries), ids(session.path())])
    session.entries[1].parent_id = trap
    session.append(Entry.of(assistant("a2", "a1", "again")))
    assert seen == [["u1", "a1", "a2"]] * 2
    assert session.path()[-1].data["message"]["content"][0]["text"] == "again"


def test_children_somebody_is_walking_along_stay_as_they_are() -> None:
    session = tree(user("u1", None), assistant("a1", "u1"))
    children = session.children("u1")
    session.append(Entry.of(assistant("a2", "u1")))
    assert (ids(children), ids(session.children("u1"))) == (["a1"], ["a1", "a2"])
