from __future__ import annotations

import time

import msgspec
import pytest

from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json
from pi_ls.core.outline import Filter, OutlinePage, one_line, outline
from pi_ls.core.tokens import TokenCounter, utf16_length
from pi_ls.core.tree import SessionTree
from tests.core.builders import (
    assistant,
    branch_summary,
    compaction,
    edit,
    label,
    leaf_marker,
    line,
    message,
    result,
    tree,
    user,
)


def page(session: SessionTree, **how: object) -> OutlinePage:
    return outline(session, TokenCounter(), **how)  # pyright: ignore[reportArgumentType] - keywords of a test


def drawn(session: SessionTree, **how: object) -> list[tuple[str, str | None]]:
    """The shown nodes, each with the node it hangs on."""
    return [(node.id, node.parent_id) for node in page(session, **how).nodes]


def with_a_tool_call(text: str = "") -> SessionTree:
    call: Json = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "x"}}
    answer = assistant("a1", "u1", text, stopReason="toolUse")
    answer["message"]["content"].append(call)
    return tree(
        user("u1", None, "a"),
        answer,
        result("r1", "a1", "o"),
        assistant("a2", "r1", "b", 1),
        user("u2", "a2", "c"),
        user("u3", "r1", "d"),
        label("l1", "u3", "u2", "mark"),
    )


def test_all_shows_every_entry_where_it_stands() -> None:
    assert drawn(with_a_tool_call(), filter="all") == [
        ("u1", None), ("a1", "u1"), ("r1", "a1"), ("a2", "r1"), ("u2", "a2"), ("u3", "r1"), ("l1", "u3"),
    ]  # fmt: skip


def test_default_hides_state_entries() -> None:
    assert [node_id for node_id, _ in drawn(with_a_tool_call())] == ["u1", "a1", "r1", "a2", "u2", "u3"]


def test_without_tools_the_children_of_a_silent_call_hang_on_the_message_before() -> None:
    assert drawn(with_a_tool_call(), filter="no-tools") == [
        ("u1", None), ("a2", "u1"), ("u2", "a2"), ("u3", "u1"),
    ]  # fmt: skip
    assert drawn(with_a_tool_call("let me see"), filter="no-tools") == [
        ("u1", None), ("a1", "u1"), ("a2", "a1"), ("u2", "a2"), ("u3", "a1"),
    ]  # fmt: skip


def test_user_only_hangs_user_messages_on_each_other() -> None:
    assert drawn(with_a_tool_call(), filter="user-only") == [("u1", None), ("u2", "u1"), ("u3", "u1")]


def test_labeled_only_makes_a_labelled_entry_a_root() -> None:
    (node,) = page(with_a_tool_call(), filter="labeled-only").nodes
    assert (node.id, node.parent_id, node.label) == ("u2", None, "mark")


@pytest.mark.parametrize(
    ("filter", "marked"),
    [("all", "l1"), ("default", "u3"), ("no-tools", "u3"), ("user-only", "u3"), ("labeled-only", None)],
)
def test_the_leaf_or_its_nearest_shown_ancestor_is_marked(filter: Filter, marked: str | None) -> None:
    shown = page(with_a_tool_call(), filter=filter)
    assert [node.id for node in shown.nodes if node.is_leaf] == ([marked] if marked else [])
    assert shown.leaf_id == "l1"


def test_nodes_on_the_path_are_marked() -> None:
    assert [node.id for node in page(with_a_tool_call()).nodes if node.on_path] == ["u1", "a1", "r1", "u3"]


def test_children_are_counted_as_they_are_shown() -> None:
    counts = {node.id: node.child_count for node in page(with_a_tool_call(), filter="user-only").nodes}
    assert counts == {"u1": 2, "u2": 0, "u3": 0}


def test_a_leaf_marker_is_never_shown_and_what_hangs_on_it_stays() -> None:
    session = tree(user("u1", None), leaf_marker("m", "u1"), user("u2", "m"))
    assert drawn(session, filter="all") == [("u1", None), ("u2", "u1")]


def test_a_cut_off_entry_is_a_marked_root() -> None:
    session = tree(user("u1", None), assistant("a1", "u1"), user("u3", "LOST"), assistant("a3", "u3"))
    roots = [(node.id, node.orphan) for node in page(session).nodes if node.parent_id is None]
    assert roots == [("u1", False), ("u3", True)]


def test_a_cycle_and_a_repeated_id_are_drawn_once() -> None:
    session = tree(
        user("u1", "a2"),
        assistant("a1", "u1"),
        user("u2", "a1"),
        assistant("a2", "u2"),
        user("u2", "a1", "new"),
    )
    assert drawn(session) == [("u1", None), ("a1", "u1"), ("u2", "a1"), ("a2", "u2")]


def test_what_holds_no_message_is_a_state_entry() -> None:
    session = tree(
        line("message", "null", None, message=None),
        line("thing", "new", "null"),
        branch_summary("b", "new", ""),
        edit("e", "b", "b"),
        compaction("c", "e", "b"),
        message("odd", "c", "oddRole", "x"),
    )
    assert drawn(session) == [("b", None), ("c", "b"), ("odd", "c")]


def test_a_query_shows_what_holds_all_of_its_words_in_text_role_or_label() -> None:
    session = tree(
        user("u1", None, "Fix the Parser"),
        assistant("a1", "u1", "The parser is fixed"),
        user("u2", "a1", "thanks"),
        label("l", "u2", "u2", "parser done"),
    )
    assert drawn(session, query="parser") == [("u1", None), ("a1", "u1"), ("u2", "a1")]
    assert drawn(session, query="PARSER user") == [("u1", None), ("u2", "u1")]
    assert drawn(session, query="  ") == drawn(session)
    assert drawn(session, query="nowhere") == []


def test_a_root_and_a_depth_cut_out_a_part() -> None:
    session = with_a_tool_call()
    assert drawn(session, root_id="r1") == [("r1", "a1"), ("a2", "r1"), ("u2", "a2"), ("u3", "r1")]
    assert drawn(session, root_id="r1", depth=1) == [("r1", "a1"), ("a2", "r1"), ("u3", "r1")]
    assert drawn(session, depth=0) == [("u1", None)]
    assert drawn(session, root_id="r1", filter="user-only", depth=0) == [("u2", "u1"), ("u3", "u1")]
    (root,) = page(session, depth=0).nodes
    assert root.child_count == 1


@pytest.mark.parametrize("filter", ["default", "no-tools", "user-only", "labeled-only", "all"])
@pytest.mark.parametrize("depth", [None, 0, 1, 2])
@pytest.mark.parametrize("root_id", [None, "r1"])
def test_pages_together_are_the_whole(filter: Filter, depth: int | None, root_id: str | None) -> None:
    session = with_a_tool_call()
    whole = page(session, filter=filter, depth=depth, root_id=root_id)
    nodes, cursor = list(whole.nodes[:0]), None
    while True:
        part = page(session, filter=filter, depth=depth, root_id=root_id, limit=1, cursor=cursor)
        nodes += part.nodes
        if not part.has_more:
            break
        assert isinstance(part.cursor, str)
        cursor = part.cursor
    assert nodes == whole.nodes
    assert not whole.has_more


@pytest.mark.parametrize("where", [{"root_id": "nowhere"}, {"cursor": "nowhere"}])
def test_an_unknown_root_or_cursor_is_refused(where: Json) -> None:
    with pytest.raises(KeyError, match="nowhere"):
        page(with_a_tool_call(), **where)


def test_a_node_goes_out_as_the_protocol_writes_it() -> None:
    session = tree(user("u1", None, "two\n  words"), label("l", "u1", "u1", "mark"))
    assert msgspec.to_builtins(page(session)) == {
        "nodes": [
            {
                "id": "u1",
                "parentId": None,
                "type": "message",
                "role": "user",
                "text": "two words",
                "label": "mark",
                "timestamp": "2026-01-01T00:00:00.000Z",
                "tokens": 3,
                "childCount": 0,
                "onPath": True,
                "isLeaf": True,
            }
        ],
        "leafId": "l",
        "hasMore": False,
    }


def calls(*named: tuple[str, Json]) -> Json:
    blocks = [{"type": "toolCall", "id": name, "name": name, "arguments": given} for name, given in named]
    return message("x", None, "assistant", blocks)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (assistant("x", None, "", stopReason="error", errorMessage="boom"), "boom"),
        (calls(("bash", {"timeout": 9, "command": "ls\n-a"}), ("read", {})), "bash: ls -a, read"),
        (message("x", None, "user", [{"type": "image", "data": "A"}]), "[image]"),
        (line("message", "x", None, message={"role": "bashExecution", "command": "ls"}), "$ ls"),
        (compaction("x", None, "x", "told"), "told"),
        (line("session_info", "x", None, name="a\nname"), "a name"),
        (line("model_change", "x", None, provider="p", modelId="m"), "p/m"),
        (line("thinking_level_change", "x", None, thinkingLevel="high"), "high"),
        (label("x", None, "y", "mark"), "y: mark"),
        (label("x", None, "y", None), "y: label cleared"),
        (edit("x", None, "y"), "y: hidden"),
        (line("custom", "x", None, customType="state"), "state"),
        (line("unheard-of", "x", None), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_entry_has_a_line_of_its_own(entry: Json, text: str) -> None:
    (node,) = page(tree(entry), filter="all").nodes
    assert node.text == text


def test_a_long_text_is_cut_at_its_limit_and_never_inside_a_character() -> None:
    for text in ("x" * 500, "🙂" * 500, "x" + "🙂" * 500, " " * 5_000 + "word " * 500):
        cut = one_line(text)
        assert utf16_length(cut) <= 120
        assert utf16_length(cut) > 110
        assert cut.endswith("…")
        cut.encode("utf-8")
    assert one_line("x" * 120) == "x" * 120
    assert one_line("half \ud83d") == "half �"


def test_a_long_chain_is_drawn_without_recursion_and_reads_only_the_page() -> None:
    reads: list[str] = []

    def read(entry: Entry) -> Json:
        reads.append(entry.id)
        return user(entry.id, entry.parent_id)

    chain = [
        Entry(f"e{at}", f"e{at - 1}" if at else None, "message", None, "user", read) for at in range(20_000)
    ]
    session = SessionTree(chain)
    began = time.perf_counter()
    first = page(session, limit=10)
    assert [node.id for node in first.nodes] == [f"e{at}" for at in range(10)]
    last = page(session, limit=10, cursor="e19994")
    assert [node.id for node in last.nodes] == [f"e{at}" for at in range(19_995, 20_000)]
    assert set(reads) == {*(f"e{at}" for at in range(10)), *(f"e{at}" for at in range(19_995, 20_000))}
    assert time.perf_counter() - began < 5
