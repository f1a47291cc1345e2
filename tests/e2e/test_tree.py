"""The tree and its branches as an editor sees them: moving, summaries of what is left, filters, and forks."""

from __future__ import annotations

from typing import Any

import pytest

from tests import sessions
from tests.e2e.office import Desk
from tests.e2e.raw import Json
from tests.models import conversation
from tests.provider import Call, Reply, error

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def texts(desk: Desk) -> list[str]:
    """The texts of the context."""
    return [text for _, text in await desk.context()]


# -- moving


async def test_after_a_move_the_context_and_the_meter_are_those_of_the_new_place(desk: Desk):
    await desk.open(
        [
            sessions.header(),
            sessions.user("u1", None, "root"),
            sessions.assistant("a1", "u1", "ok", total=10),
            sessions.user("u2", "a1", "TOKEN-773"),
            sessions.assistant("a2", "u2", "TOKEN-773 noted", total=20),
        ]
    )
    assert (await desk.usage())["tokens"] == 20
    move = await desk.run("pi.navigateTree", targetId="a1")
    assert move == {"cancelled": False, "leafId": "a1", "oldLeafId": "a2"}
    assert await texts(desk) == ["root", "ok"]
    assert (await desk.usage())["tokens"] == 10
    [moved] = desk.named("session_tree")
    assert (moved["oldLeafId"], moved["newLeafId"]) == ("a2", "a1")
    await desk.until_told("context_usage", tokens=10)
    assert desk.provider.requests == []


async def test_model_thinking_level_and_window_belong_to_the_path(desk: Desk):
    state = await desk.open(sessions.small_model_then_large())
    assert (state["model"]["id"], state["thinkingLevel"]) == ("m1000", "high")
    assert (await desk.usage())["contextWindow"] == 1_000_000
    await desk.run("pi.navigateTree", targetId="a1")
    state = await desk.run("pi.sessionState")
    assert (state["model"]["id"], state["thinkingLevel"]) == ("m200", "low")
    assert (await desk.usage())["contextWindow"] == 200_000
    [model], [level] = desk.named("model_changed"), desk.named("thinking_level_changed")
    assert (model["provider"], model["modelId"], level["level"]) == ("fake", "m200", "low")
    assert desk.events("model_changed", "thinking_level_changed", "session_tree")[-1] == "session_tree"


async def test_the_newest_compaction_of_each_path_counts_there(desk: Desk):
    await desk.open(
        [
            sessions.header(),
            sessions.user("u1", None, "a"),
            sessions.assistant("a1", "u1", "b", total=10),
            sessions.compaction("c1", "a1", "S1", "a1"),
            sessions.user("u2", "c1", "c"),
            sessions.assistant("a2", "u2", "d", total=20),
            sessions.compaction("c2", "a2", "S2", "a2"),
            sessions.assistant("x1", "a1", "side", total=30),
            sessions.compaction("c9", "x1", "S9", "x1"),
            sessions.label("l1", "c2", "a2", "here"),
        ]
    )
    assert await texts(desk) == ["S2", "d"]
    await desk.run("pi.navigateTree", targetId="a2")
    assert await texts(desk) == ["S1", "b", "c", "d"]
    await desk.run("pi.navigateTree", targetId="x1")
    assert await texts(desk) == ["a", "b", "side"]


async def test_to_where_one_is_already_nobody_goes(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    before = desk.file.read_bytes()
    for summarize in (False, True):
        move = await desk.run("pi.navigateTree", targetId="Dd", summarize=summarize, label="a label")
        assert move == {"cancelled": False, "leafId": "Dd", "oldLeafId": "Dd"}
    assert desk.file.read_bytes() == before
    assert desk.events("session_tree") == []
    assert desk.provider.requests == []


async def test_without_a_wish_for_a_summary_nobody_is_asked_for_one(desk: Desk):
    await desk.open(sessions.fork_with_two_branches(), {"branchSummary": {"enabled": True}})
    move = await desk.run("pi.navigateTree", targetId="Ff")
    assert move == {"cancelled": False, "leafId": "Ff", "oldLeafId": "Dd"}
    assert desk.provider.requests == []
    assert sessions.types(desk.written()).count("branch_summary") == 0


async def test_an_entry_that_is_not_there_is_an_error_and_nothing_moves(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    refusal = await desk.refusal("pi.navigateTree", targetId="nope")
    assert (refusal["code"], refusal["data"]) == (-32803, {"kind": "EntryNotFound", "entryId": "nope"})
    assert (await desk.run("pi.sessionState"))["leafId"] == "Dd"


async def test_a_label_given_on_the_way_is_the_leaf_and_names_the_target(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    move = await desk.run("pi.navigateTree", targetId="Ff", label="back here")
    [*_, label] = desk.written()
    assert (label["type"], label["parentId"], label["targetId"]) == ("label", "Ff", "Ff")
    assert move["leafId"] == label["id"]
    nodes = {node["id"]: node for node in (await desk.run("pi.getTree"))["nodes"]}
    assert nodes["Ff"]["label"] == "back here"
    assert nodes["Ff"]["isLeaf"] is True


# -- branch summaries


async def test_a_branch_summary_stands_at_the_new_place_and_names_the_leaf_that_was_left(desk: Desk):
    desk.provider.default = Reply(text="WHAT-WAS-LEFT")
    await desk.open(sessions.fork_with_two_branches())
    before = desk.file.read_bytes()
    move = await desk.run("pi.navigateTree", targetId="Ff", summarize=True)
    [request] = desk.provider.requests
    said = conversation(request.prompt)
    assert said == "[User]: b\n\n[Assistant]: c\n\n[User]: d\n\n[Assistant]: dd"
    assert desk.file.read_bytes().startswith(before)
    [entry] = desk.written()[8:]
    assert (entry["type"], entry["parentId"], entry["fromId"]) == ("branch_summary", "Ff", "Dd")
    assert "WHAT-WAS-LEFT" in entry["summary"]
    assert entry["usage"]["totalTokens"] == 100
    assert move == {"cancelled": False, "leafId": entry["id"], "oldLeafId": "Dd", "summaryEntry": entry}
    assert (await texts(desk))[:3] == ["root", "e", "f"]
    assert [role for role, _ in await desk.context()][3:] == ["branchSummary"]
    [moved] = desk.named("session_tree")
    assert moved["summaryEntry"] == entry
    assert desk.events("entry_appended", "session_tree") == ["entry_appended", "session_tree"]


async def test_a_branch_summary_may_stand_before_the_first_entry(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    move = await desk.run("pi.navigateTree", targetId=None, summarize=True)
    [entry] = desk.written()[8:]
    assert (entry["parentId"], entry["fromId"], move["leafId"]) == (None, "Dd", entry["id"])
    assert [role for role, _ in await desk.context()] == ["branchSummary"]
    [request] = desk.provider.requests
    assert conversation(request.prompt).startswith("[Assistant]: root")


async def test_a_user_message_is_gone_to_by_way_of_its_parent_and_its_text_comes_back(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    move = await desk.run("pi.navigateTree", targetId="Ee", summarize=True, label="again")
    summary, label = desk.written()[8:]
    assert (summary["parentId"], summary["fromId"]) == ("A", "Dd")
    assert (label["parentId"], label["targetId"]) == (summary["id"], summary["id"])
    assert (move["editorText"], move["leafId"]) == ("e", label["id"])
    assert move["summaryEntry"] == summary


async def test_instructions_reach_the_request_beside_ours_or_instead_of_them(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    await desk.run("pi.navigateTree", targetId="Ff", summarize=True)
    await desk.run("pi.navigateTree", targetId="Dd")
    await desk.run("pi.navigateTree", targetId="Ff", summarize=True, customInstructions="KIWI")
    await desk.run("pi.navigateTree", targetId="Dd")
    await desk.run(
        "pi.navigateTree", targetId="Ff", summarize=True, customInstructions="KIWI", replaceInstructions=True
    )
    ours, beside, instead = (
        request.prompt.split("</conversation>")[1].strip() for request in desk.provider.requests
    )
    assert "KIWI" not in ours
    assert beside.startswith(ours)
    assert "KIWI" in beside
    assert instead == "KIWI"


async def test_failed_answers_and_what_was_hidden_are_no_part_of_a_branch_summary(desk: Desk):
    await desk.open(
        [
            *sessions.fork_with_two_branches(),
            sessions.user("v1", "Dd", "ORIGINAL-SECRET"),
            sessions.assistant("w1", "v1", "HALF-AN-ANSWER", stop="error", errorMessage="boom"),
            sessions.assistant("w2", "w1", "", sessions.call("c1", "edit", path="src/a.py"), total=10),
            sessions.result("w3", "w2", "c1", "RESULT-TEXT", name="edit"),
            sessions.entry("context_edit", "x1", "w3", targetId="v1", replacement=None),
        ]
    )
    await desk.run("pi.navigateTree", targetId="Ff", summarize=True)
    [request] = desk.provider.requests
    for gone in ("ORIGINAL-SECRET", "HALF-AN-ANSWER", "RESULT-TEXT"):
        assert gone not in request.prompt
    assert "edit(" in request.prompt
    [*_, entry] = desk.written()
    assert entry["details"] == {"readFiles": [], "modifiedFiles": ["src/a.py"]}
    assert entry["summary"].endswith("<modified-files>\nsrc/a.py\n</modified-files>")
    assert entry["fromId"] == "x1"


async def test_a_branch_summary_has_the_thinking_level_and_a_limit_that_leaves_room_for_it(desk: Desk):
    lines = sessions.fork_with_two_branches()
    last = [sessions.model_change("k1", "Dd", "fake", "thinker"), sessions.thinking_level("t1", "k1", "high")]
    await desk.open([*lines, *last])
    await desk.run("pi.navigateTree", targetId="Ff", summarize=True)
    [request] = desk.provider.requests
    assert (request.body["model"], request.body["reasoning_effort"]) == ("thinker", "high")
    assert request.max_tokens == 8_192
    assert (await desk.run("pi.sessionState"))["thinkingLevel"] == "off", "the new place has its own"


async def test_where_nothing_is_left_there_is_nothing_to_summarize(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    await desk.run("pi.navigateTree", targetId="A")
    move = await desk.run("pi.navigateTree", targetId="Ff", summarize=True)
    assert move == {"cancelled": False, "leafId": "Ff", "oldLeafId": "A"}
    assert desk.provider.requests == []


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        pytest.param(Reply(text=""), "Summary is empty", id="empty"),
        pytest.param(Reply(text=None, reasoning="hm " * 50), "Summary is empty", id="only reasoning"),
        pytest.param(
            Reply(text="half", finish="length"), "Summary is incomplete (token limit)", id="cut off"
        ),
        pytest.param(Reply(text="S", calls=[Call()]), "Summary tried to call a tool", id="a tool call"),
        pytest.param(error(500, "boom"), "boom", id="500"),
        pytest.param(Reply(text="a long answer " * 9, drop_after=3), "", id="dropped stream"),
    ],
)
async def test_a_branch_summary_that_fails_leaves_the_leaf_where_it_is(
    desk: Desk, reply: Reply, sentence: str
):
    desk.provider.default = reply
    await desk.open(sessions.fork_with_two_branches(), {"retry": {"enabled": False}})
    before = desk.file.read_bytes()
    refusal = await desk.refusal("pi.navigateTree", targetId="Ff", summarize=True, label="never")
    assert sentence in refusal["message"]
    state = await desk.run("pi.sessionState")
    assert (state["leafId"], state.get("operation")) == ("Dd", None)
    assert desk.file.read_bytes() == before
    assert desk.events("session_tree", "entry_appended") == []
    desk.provider.default = Reply(text="S")
    assert "summaryEntry" in await desk.run("pi.navigateTree", targetId="Ff", summarize=True)


async def test_while_a_branch_is_summarized_the_rest_goes_on_or_is_told_to_wait(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    desk.provider.hold()
    navigation = desk.begin("pi.navigateTree", targetId="Ff", summarize=True)
    await desk.until_asked()
    waiting: dict[str, Json] = {
        "pi.compact": {},
        "pi.navigateTree": {"targetId": "A"},
        "pi.undoCompaction": {},
        "pi.forkSession": {"entryId": "B"},
        "pi.cloneSession": {},
        "pi.closeSession": {},
    }
    for command, arguments in waiting.items():
        refusal = await desk.refusal(command, **arguments)
        assert (refusal["data"]["kind"], refusal["data"]["operation"]) == ("Busy", "navigation"), command
        assert refusal["message"].startswith("Wait for the navigation"), command
    assert desk.events("compaction_start", "compaction_end") == []
    state = await desk.run("pi.sessionState")
    assert (state["leafId"], state["operation"], state["isCompacting"]) == ("Dd", "navigation", False)
    assert (await desk.usage())["tokens"] == 120
    desk.provider.release()
    assert (await desk.answer(navigation))["result"]["cancelled"] is False
    assert "operation" not in await desk.run("pi.sessionState")


async def test_a_label_set_while_a_branch_is_summarized_is_left_with_it(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    desk.provider.hold()
    navigation = desk.begin("pi.navigateTree", targetId="Ff", summarize=True)
    await desk.until_asked()
    label = await desk.run("pi.setLabel", entryId="Cc", label="meanwhile")
    desk.provider.release()
    move = (await desk.answer(navigation))["result"]
    [written, summary] = desk.written()[8:]
    assert (written["id"], written["parentId"]) == (label["leafId"], "Dd")
    assert summary["parentId"] == "Ff"
    assert move["leafId"] == summary["id"]
    assert (await desk.run("pi.sessionState"))["leafId"] == summary["id"]
    assert summary["fromId"] == move["oldLeafId"]


# -- the tree itself


def tree_with_a_silent_call() -> list[Json]:
    return [
        sessions.header(),
        sessions.user("u1", None, "a"),
        sessions.assistant("a1", "u1", "", sessions.call("c1", "bash", command="x")),
        sessions.result("r1", "a1", "c1", "o"),
        sessions.assistant("a2", "r1", "b", total=1),
        sessions.user("u2", "a2", "c"),
        sessions.user("u3", "r1", "d"),
        sessions.label("l1", "u3", "u2", "mark"),
    ]


@pytest.mark.parametrize(
    ("name", "shown", "leaf"),
    [
        (
            "all",
            {"u1": None, "a1": "u1", "r1": "a1", "a2": "r1", "u2": "a2", "u3": "r1", "l1": "u3"},
            "l1",
        ),
        ("default", {"u1": None, "a1": "u1", "r1": "a1", "a2": "r1", "u2": "a2", "u3": "r1"}, "u3"),
        ("no-tools", {"u1": None, "a2": "u1", "u2": "a2", "u3": "u1"}, "u3"),
        ("user-only", {"u1": None, "u2": "u1", "u3": "u1"}, "u3"),
        ("labeled-only", {"u2": None}, None),
    ],
)
async def test_under_a_filter_children_hang_on_the_nearest_entry_that_is_shown(
    desk: Desk, name: str, shown: dict[str, str | None], leaf: str | None
):
    await desk.open(tree_with_a_silent_call())
    page = await desk.run("pi.getTree", filter=name)
    nodes = {node["id"]: node for node in page["nodes"]}
    assert {key: node["parentId"] for key, node in nodes.items()} == shown
    assert [key for key, node in nodes.items() if node["isLeaf"]] == ([leaf] if leaf else [])
    assert nodes["u2"]["label"] == "mark"
    assert page["leafId"] == "l1"


async def test_a_label_is_an_entry_and_its_absence_too(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    label = await desk.run("pi.setLabel", entryId="Cc", label="  two\nlines ")
    assert (label["entryId"], label["label"]) == ("Cc", "two lines")
    cleared = await desk.run("pi.setLabel", entryId="Cc", label=None)
    assert cleared == {"entryId": "Cc", "label": None, "leafId": desk.written()[-1]["id"]}
    first, second = desk.written()[8:]
    assert (first["parentId"], first["targetId"], first["label"]) == ("Dd", "Cc", "two lines")
    assert (second["parentId"], second["targetId"], "label" in second) == (first["id"], "Cc", False)
    assert (await desk.refusal("pi.setLabel", entryId="no", label="x"))["data"]["kind"] == "EntryNotFound"
    assert (await texts(desk)) == ["root", "b", "c", "d", "dd"]


async def test_where_one_went_is_where_one_is_after_a_restart(desk: Desk):
    await desk.open(sessions.fork_with_two_branches())
    before = desk.file.read_bytes()
    await desk.run("pi.navigateTree", targetId="Ff")
    await desk.run("pi.closeSession")
    assert desk.file.read_bytes().startswith(before)
    assert (await desk.run("pi.openSession", path=str(desk.file)))["leafId"] == "Ff"
    assert {node["id"] for node in (await desk.run("pi.getTree", filter="all"))["nodes"]} == {
        *("A", "Ee", "Ff", "B", "Cc", "D", "Dd")
    }


# -- undoing, forking


async def test_an_undone_compaction_is_left_with_what_came_after_it(desk: Desk):
    await desk.open(
        [
            *sessions.two_long_turns(120_000),
            sessions.compaction("c1", "a2", "S", "u2"),
            sessions.user("u3", "c1", "later"),
            sessions.assistant("a3", "u3", "answer", total=60_000),
        ]
    )
    before = desk.file.read_bytes()
    undone = await desk.run("pi.undoCompaction")
    assert undone == {"leafId": "a2", "oldLeafId": "a3", "entriesLeft": 2}
    assert [role for role, _ in await desk.context()] == ["user", "assistant", "user", "assistant"]
    assert (await desk.usage())["tokens"] == 120_000
    assert desk.file.read_bytes().startswith(before)
    refusal = await desk.refusal("pi.undoCompaction")
    assert refusal["data"]["kind"] == "EntryNotFound"


async def test_a_fork_below_a_compaction_keeps_its_boundary(desk: Desk):
    lines = [
        *sessions.two_long_turns(120_000),
        sessions.compaction("c1", "a2", "SUMMED-UP", "u2"),
        sessions.user("u3", "c1", "later"),
        sessions.assistant("a3", "u3", "answer", total=60_000),
        sessions.user("u4", "a3", "and more"),
    ]
    await desk.open(lines)
    original = desk.file.read_bytes()
    fork = await desk.run("pi.forkSession", entryId="u4")
    assert (fork["text"], fork["session"]["leafId"]) == ("and more", "a3")
    assert fork["session"]["sessionFile"] != str(desk.file)
    context: list[Any] = await desk.context()
    assert [role for role, _ in context] == ["compactionSummary", "user", "assistant", "user", "assistant"]
    assert context[0][1] == "SUMMED-UP"
    assert not any("MARK-OLD" in text for _, text in context)
    assert desk.file.read_bytes() == original
