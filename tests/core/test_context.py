from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pi_ls.core.context import (
    ContextTokens,
    ContextUsage,
    UsageMeter,
    build_session_context,
    context_entries,
    context_usage,
    convert_to_llm,
    estimate_context_tokens,
    latest_compaction,
    model_of,
    thinking_level_of,
)
from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Message,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
    blocks_of,
    decode_message,
    role_of,
)
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.tree import SessionTree
from tests.conformance_data import Session, opened_sessions, table
from tests.core.builders import (
    assistant,
    branch_summary,
    compaction,
    edit,
    label,
    line,
    message,
    path,
    result,
    tree,
    user,
)

LEAVES = [(case, leaf) for case in opened_sessions() for leaf in case.leaves]


def each(leaves: list[tuple[Session, Json]]) -> pytest.MarkDecorator:
    names = [f"{case}-{leaf['leaf']}" for case, leaf in leaves]
    return pytest.mark.parametrize(("case", "leaf"), leaves, ids=names)


at_every_leaf = each(LEAVES)


class At:
    """A recorded leaf: its path here, and how the expectations name its entries."""

    def __init__(self, case: Session, leaf: Json) -> None:
        entries = case.entries()
        self.tree = SessionTree(entries)
        self.names = case.references(entries)
        by_name = {name: entry for entry in entries if (name := self.names[id(entry)])}
        wanted: str | None = leaf["leaf"]
        self.path = self.tree.path_to(None if wanted is None else by_name[wanted].id)

    def name(self, entry: Entry) -> str:
        return self.names[id(entry)]


def abbreviated(items: list[Any], expected: Any) -> Any:
    """A list in the form its recording has: whole, or count and ends."""
    if isinstance(expected, list):
        return items
    short: Json = {"count": len(items), "first": items[0], "last": items[-1]}
    if "second" in expected:
        return short | {"second": items[1]}
    return short | {"first": items[:3], "last": items[-3:]}


def counted_estimate(case: Session, leaf: Json) -> Json:
    """What the size of the context must be: the recorded one, unless it rests on a stale measurement.

    A usage from before the newest compaction is not trusted; then every message is estimated.
    """
    recorded: Json = leaf["estimate"]
    newest: str | None = leaf["latestCompaction"]
    if newest is None or recorded["lastUsageIndex"] is None:
        return recorded
    branch: list[str] = leaf["branch"]
    messages: list[list[str]] = leaf["messages"]
    measured: int = recorded["lastUsageIndex"]
    if branch.index(messages[measured][1]) > branch.index(newest):
        return recorded
    weights: dict[str, list[list[Any]]] = case.expected["entryMessages"]
    total = sum(row[1] for role, source in messages for row in weights[source] if row[0] == role)
    return {"tokens": total, "usageTokens": 0, "trailingTokens": total, "lastUsageIndex": None}


@at_every_leaf
def test_the_context_is_the_one_pi_builds(case: Session, leaf: Json) -> None:
    at = At(case, leaf)
    names = [at.name(entry) for entry in at.path]
    branch = leaf["branch"]
    if isinstance(branch, dict):
        branch = [at.name(entry) for entry in at.tree.entries][: leaf["branch"]["firstN"]]
    assert names == branch

    newest = latest_compaction(at.path)
    assert (None if newest is None else at.name(newest[1])) == leaf["latestCompaction"]

    entries = [at.name(entry) for entry in context_entries(at.path)]
    assert abbreviated(entries, leaf["contextEntries"]) == leaf["contextEntries"]

    context = build_session_context(at.path)
    messages = [[role_of(one.message), at.name(one.entry)] for one in context.messages]
    assert abbreviated(messages, leaf["messages"]) == leaf["messages"]
    assert (context.model and [*context.model]) == leaf["model"]
    assert context.thinking_level == leaf["thinkingLevel"]


@at_every_leaf
def test_the_size_of_the_context_is_the_one_pi_measures(case: Session, leaf: Json) -> None:
    at = At(case, leaf)
    expected = counted_estimate(case, leaf)
    found = estimate_context_tokens(at.path, TokenCounter())
    assert found == ContextTokens(
        expected["tokens"], expected["usageTokens"], expected["trailingTokens"], expected["lastUsageIndex"]
    )
    if leaf["latestCompaction"] is None:  # else the recorded last usage may be stale
        assert (found.usage_tokens or None) == leaf["lastUsageTokens"]


@at_every_leaf
def test_the_meter_shows_what_pi_shows(case: Session, leaf: Json) -> None:
    at = At(case, leaf)
    for window, *expected in leaf["contextUsage"]:
        usage = context_usage(at.path, window, TokenCounter())
        shown = ["undefined"] if usage is None else [usage.tokens, usage.percent]
        assert shown == expected


@at_every_leaf
def test_a_meter_that_followed_every_append_shows_the_same(case: Session, leaf: Json) -> None:
    at = At(case, leaf)
    counter = TokenCounter()
    meter = UsageMeter(counter)
    growing: list[Entry] = []
    for entry in at.path:
        meter.usage(growing, 4096)
        growing.append(entry)
    assert meter.usage(growing, 4096) == context_usage(at.path, 4096, TokenCounter())


@each([(case, leaf) for case, leaf in LEAVES if "llmRoles" in leaf])
def test_the_roles_sent_to_a_model_are_those_pi_sends(case: Session, leaf: Json) -> None:
    context = build_session_context(At(case, leaf).path)
    sent = to_llm([one.message for one in context.messages])
    assert " ".join(map(role_of, sent)) == leaf["llmRoles"]


def to_llm(messages: Sequence[Message]) -> list[Message]:
    return convert_to_llm(
        messages,
        compaction_context=lambda summary: f"<compacted>{summary}",
        branch_context=lambda summary: f"<branch>{summary}",
    )


def texts(entries: Sequence[Entry]) -> list[str]:
    """The context of a path, each message as its text."""
    return [shown(one.message) for one in build_session_context(entries).messages]


def shown(message: Message) -> str:
    content = getattr(message, "content", None)
    if content is None:
        return str(getattr(message, "summary", ""))
    return "".join(block.text for block in blocks_of(content) if isinstance(block, TextContent))


# What a context is made of


def test_the_newest_compaction_of_the_path_counts_not_that_of_the_file() -> None:
    session = tree(
        user("u1", None, "a"),
        assistant("a1", "u1", "b", 10),
        compaction("c1", "a1", "a1", "S1"),
        user("u2", "c1", "c"),
        assistant("a2", "u2", "d", 20),
        compaction("c2", "a2", "a2", "S2"),
        assistant("x1", "a1", "side", 30),
        compaction("c9", "x1", "x1", "S9"),
        label("l1", "c2", "a2", "here"),
    )
    assert texts(session.path()) == ["S2", "d"]
    assert texts(session.path_to("a2")) == ["S1", "b", "c", "d"]
    assert texts(session.path_to("x1")) == ["a", "b", "side"]


def test_only_the_path_counts_however_much_lies_on_abandoned_branches() -> None:
    session = tree(
        user("u1", None, "a"),
        assistant("a1", "u1", "b", 50),
        user("x1", "a1", "DEAD " + "abcdefg " * 250_000),
        assistant("x2", "x1", "DEAD2", 500_000),
        user("u2", "a1", "LIVE"),
        assistant("a2", "u2", "c", 25_000),
        user("u3", "a2", "d"),
        assistant("a3", "u3", "e", 25_100),
    )
    usage = context_usage(session.path(), 200_000, TokenCounter())
    assert usage is not None
    assert usage.tokens == 25_100
    assert texts(session.path()) == ["a", "b", "LIVE", "c", "d", "e"]


def test_a_compaction_that_kept_nothing_leaves_its_summary_and_what_came_after() -> None:
    for first_kept in ("c", "gone", "later"):
        lines = [
            user("u", None, "old"),
            compaction("c", "u", first_kept, "S"),
            user("later", "c", "new"),
        ]
        assert texts(path(*lines)) == ["S", "new"]


def test_a_compaction_brings_its_own_system_message_and_drops_earlier_ones() -> None:
    entries = path(
        message("s1", None, "system", "first"),
        user("u1", "s1", "a"),
        message("s2", "u1", "system", "second"),
        compaction("c", "s2", "u1", "S") | {"systemMessage": {"role": "system", "content": "whole"}},
        message("s3", "c", "system", "third"),
    )
    assert texts(entries) == ["whole", "S", "a", "third"]
    assert isinstance(build_session_context(entries).messages[0].message, SystemMessage)
    assert texts(entries[:3]) == ["first", "a", "second"]


def test_a_branch_summary_without_text_and_a_null_message_are_not_in_context() -> None:
    entries = path(
        branch_summary("b1", None, "went there"),
        branch_summary("b2", "b1", ""),
        line("message", "n", "b2", message=None),
        line("custom_message", "m", "n", customType="note", content="noted", display=True),
        line("custom", "s", "m", customType="note", data="state"),
    )
    assert texts(entries) == ["went there", "noted"]


def test_model_and_thinking_level_belong_to_the_path() -> None:
    session = tree(
        line("model_change", "k1", None, provider="fake", modelId="m200"),
        line("thinking_level_change", "t1", "k1", thinkingLevel="low"),
        user("u1", "t1"),
        assistant("a1", "u1", total=10),
        line("model_change", "k2", "a1", provider="fake", modelId="m1000"),
        line("thinking_level_change", "t2", "k2", thinkingLevel="high"),
        user("u2", "t2"),
        assistant("a2", "u2", total=20, model="m1000"),
    )
    assert (model_of(session.path()), thinking_level_of(session.path())) == (("fake", "m1000"), "high")
    left = session.path_to("a1")
    assert (model_of(left), thinking_level_of(left)) == (("fake", "m200"), "low")
    assert (model_of([]), thinking_level_of([])) == (None, "off")


def test_a_chosen_model_holds_until_another_one_answers() -> None:
    entries = path(
        assistant("a1", None, model="m1"),
        line("model_change", "k", "a1", provider="other", modelId="m2"),
        assistant("a2", "k", model="m3"),
    )
    assert [model_of(entries[: at + 1]) for at in range(3)] == [
        ("fake", "m1"),
        ("other", "m2"),
        ("fake", "m3"),
    ]


def test_an_answer_that_names_no_model_sets_none() -> None:
    entries = path(assistant("a1", None, model="m1"), assistant("a2", "a1", provider=None, model=None))
    assert model_of(entries) == ("fake", "m1")


# Context edits


def test_a_context_edit_hides_or_replaces_from_its_place_on() -> None:
    entries = path(
        user("u1", None, "secret"),
        assistant("a1", "u1", "long answer"),
        result("r1", "a1", "long output"),
        edit("e1", "r1", "u1"),
        edit("e2", "e1", "a1", "short"),
        edit("e3", "e2", "r1", [{"type": "text", "text": "cut"}]),
    )
    assert texts(entries[:3]) == ["secret", "long answer", "long output"]
    assert texts(entries[:4]) == ["long answer", "long output"]
    assert texts(entries) == ["short", "cut"]
    assert [one.edited for one in build_session_context(entries).messages] == [True, True]


def test_the_latest_edit_of_an_entry_wins() -> None:
    entries = path(
        user("u1", None, "one"), edit("e1", "u1", "u1"), edit("e2", "e1", "u1", "two"), edit("e3", "e2", "x")
    )
    assert texts(entries) == ["two"]


def test_a_replaced_answer_and_result_hold_blocks_and_keep_their_other_fields() -> None:
    entries = path(
        assistant("a1", None, "old", 5),
        result("r1", "a1", "old", isError=True),
        edit("e1", "r1", "a1", "new"),
        edit("e2", "e1", "r1", "new"),
    )
    answer, output = (one.message for one in build_session_context(entries).messages)
    assert isinstance(answer, AssistantMessage)
    assert isinstance(output, ToolResultMessage)
    assert answer.content == output.content == (TextContent("new"),)
    assert (answer.model, output.is_error) == ("m200", True)


def test_an_edit_on_a_kept_message_holds_after_a_compaction() -> None:
    entries = path(
        user("u0", None, "gone"), user("u1", "u0", "kept"), edit("e1", "u1", "u1", "new"),
        compaction("c", "e1", "u1", "S"),
    )  # fmt: skip
    assert texts(entries) == ["S", "new"]
    assert estimate_context_tokens(entries, TokenCounter()).tokens == 2


# The size of a context


def usage_of(*lines: Json, window: int | None = 200_000) -> ContextUsage | None:
    return context_usage(path(*lines), window, TokenCounter())


def known_usage(*lines: Json) -> ContextUsage:
    usage = usage_of(*lines)
    assert usage is not None
    return usage


def test_after_a_compaction_the_size_is_unknown_until_the_next_answer() -> None:
    lines = [
        user("u1", None, "abcdefg " * 50_000),
        assistant("a1", "u1", "x", 190_000),
        compaction("c1", "a1", "a1", "S"),
    ]
    usage = known_usage(*lines)
    assert (usage.tokens, usage.percent, usage.context_window) == (None, None, 200_000)
    assert (usage.estimated_tokens, usage.source) == (2, "estimate")

    lines += [user("u2", "c1", "x"), assistant("a2", "u2", "ok", 30_000)]
    usage = known_usage(*lines)
    assert (usage.tokens, usage.percent, usage.source) == (30_000, 15.0, "measured")

    lines += [assistant("a3", "a2", "half an", 31_000, stopReason="aborted")]
    usage = known_usage(*lines)
    assert (usage.tokens, usage.source) == (30_002, "measured+estimate")


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": None},
        {"usage": {}},
        {"usage": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}},
        {"usage": {"input": None, "output": 5}},
        {"usage": {"input": "12", "output": 1}},
        {"usage": {"totalTokens": -5, "input": -5, "output": 0, "cacheRead": 0, "cacheWrite": 0}},
        {"usage": {"input": 1e308, "output": 1e308}},
        {"stopReason": "error", "usage": {"input": 60_000, "output": 0, "totalTokens": 60_000}},
        {"stopReason": "aborted", "usage": {"input": 60_000, "output": 0, "totalTokens": 60_000}},
    ],
    ids=str,
)
def test_an_answer_whose_usage_says_nothing_is_estimated_on_top_of_the_last_good_one(fields: Json) -> None:
    usage = known_usage(
        user("u1", None, "a"),
        assistant("a1", "u1", "x", 50_000),
        user("u2", "a1", "b"),
        assistant("a2", "u2", "y", **fields),
    )
    assert usage.tokens == 50_002
    assert usage.percent == pytest.approx(25.001)


@pytest.mark.parametrize("window", [None, 0, -1])
def test_without_a_usable_window_there_is_nothing_to_show(window: int | None) -> None:
    assert usage_of(assistant("a1", None, "x", 50_000), window=window) is None


def test_a_context_may_be_larger_than_the_window() -> None:
    usage = usage_of(assistant("a1", None, "x", 50_000), window=40_000)
    assert usage is not None
    assert usage.percent == 125.0


def test_a_usage_from_before_the_newest_compaction_is_stale() -> None:
    entries = path(
        assistant("a0", None, "zero", 70_000),
        assistant("a1", "a0", "kept", 90_000),
        compaction("c", "a1", "a1", "four"),
        user("u2", "c", "next"),
    )
    assert estimate_context_tokens(entries, TokenCounter()) == ContextTokens(3, 0, 3, None)


def test_a_usage_from_before_a_context_edit_is_stale() -> None:
    lines = [
        user("u1", None, "four"),
        assistant("a1", "u1", "text", 90_000),
        edit("e", "a1", "u1", "12345678"),
    ]
    assert known_usage(*lines).tokens == 3
    assert known_usage(*lines).source == "estimate"
    lines.append(assistant("a2", "e", "next", 500))
    assert known_usage(*lines).tokens == 500


def test_a_hidden_message_weighs_nothing() -> None:
    assert (
        known_usage(user("u1", None, "12345678"), user("u2", "u1", "four"), edit("e", "u2", "u1")).tokens == 1
    )


def test_with_an_edit_after_the_answer_to_a_compaction_the_size_is_estimated_not_unknown() -> None:
    usage = known_usage(
        user("u1", None, "four"),
        compaction("c", "u1", "u1", "four"),
        assistant("a", "c", "four", 9_000),
        edit("e", "a", "u1"),
    )
    assert (usage.tokens, usage.source) == (2, "estimate")


def test_a_usage_not_later_than_the_pruning_of_a_result_before_it_is_stale() -> None:
    def lines(measured_at: float) -> list[Json]:
        early = assistant("a1", None, "four", 100)
        early["message"]["timestamp"] = 50
        late = assistant("a2", "r1", "four", 9_000)
        late["message"]["timestamp"] = measured_at
        return [early, result("r1", "a1", "four", prunedAt=1_000), late]

    assert known_usage(*lines(1_000)).tokens == 102  # falls back on the answer before the result
    assert known_usage(*lines(1_001)).tokens == 9_000


def test_pruning_a_result_after_an_answer_does_not_touch_its_usage() -> None:
    lines = [assistant("a1", None, "four", 100), result("r1", "a1", "four", prunedAt=1_000)]
    assert known_usage(*lines).tokens == 101


def test_the_pruning_of_a_result_the_compaction_kept_counts_and_of_one_it_did_not_keep_does_not() -> None:
    def lines(first_kept: str) -> list[Json]:
        answer = assistant("a", "c", "four", 700)
        answer["message"]["timestamp"] = 10
        return [
            result("r0", None, "four", prunedAt=1_000),
            user("u", "r0", "four"),
            compaction("c", "u", first_kept, "four"),
            answer,
        ]

    assert known_usage(*lines("r0")).tokens == 4
    assert known_usage(*lines("u")).tokens == 700


def test_an_answer_without_a_time_of_its_own_is_measured_when_its_entry_was_written() -> None:
    answer = assistant("a", "r", "four", 700)  # its message says 0, its entry 2026
    assert known_usage(result("r", None, "four", prunedAt=1_000), answer).tokens == 700


# The meter


def test_the_first_usage_reads_only_bodies_from_the_leaf_back_to_the_last_measured_answer() -> None:
    reads: list[str] = []

    def lazily(data: Json) -> Entry:
        def read(entry: Entry) -> Json:
            reads.append(entry.id)
            return data

        whole = Entry.of(data)
        return Entry(whole.id, whole.parent_id, whole.type, whole.timestamp, whole.role, read, pruned_at=None)

    old = [lazily(result(f"r{at}", None)) for at in range(50)]
    recent = [user("u", None), assistant("a", "u", total=10), result("r", "a"), user("u2", "r")]
    usage = UsageMeter(TokenCounter()).usage([*old, *map(lazily, recent)], 200_000)
    assert usage is not None
    assert set(reads) == {"a", "r", "u2"}


def test_an_append_reads_only_the_new_entry() -> None:
    session = tree(user("u1", None), assistant("a1", "u1", total=10))
    meter = UsageMeter(TokenCounter())
    meter.usage(session.path(), 200_000)
    reads: list[str] = []

    def read(entry: Entry) -> Json:
        reads.append(entry.id)
        return user("u2", "a1", "four")

    session.append(Entry("u2", "a1", "message", None, "user", read))
    usage = meter.usage(session.path(), 200_000)
    assert usage is not None
    assert (usage.tokens, reads) == (11, ["u2"])


def test_the_meter_follows_a_move_of_the_leaf() -> None:
    session = tree(assistant("a1", None, total=10), assistant("a2", "a1", total=20))
    meter = UsageMeter(TokenCounter())
    before = meter.usage(session.path(), 100)
    session.move("a1")
    after = meter.usage(session.path(), 100)
    session.append(Entry.of(assistant("a3", "a1", total=30)))
    appended = meter.usage(session.path(), 100)
    assert [before and before.tokens, after and after.tokens, appended and appended.tokens] == [20, 10, 30]


def test_the_meter_follows_a_move_to_a_branch_of_the_same_length() -> None:
    session = tree(user("u", None), assistant("a1", "u", total=10), assistant("a2", "u", total=20))
    meter = UsageMeter(TokenCounter())
    shown: list[float | None] = []
    for leaf in ("a2", "a1", "a2"):
        session.move(leaf)
        usage = meter.usage(session.path(), 100)
        shown.append(usage and usage.tokens)
    assert shown == [20, 10, 20]


def test_the_meter_follows_an_edit_and_a_compaction_that_are_appended() -> None:
    session = tree(user("u1", None, "four"), assistant("a1", "u1", "four", total=9_000))
    meter = UsageMeter(TokenCounter())
    shown: list[tuple[float | None, float]] = []
    for appended in (
        edit("e", "a1", "u1", "12345678"),
        compaction("c", "e", "a1", "four"),
        user("u2", "c", "four"),
        assistant("a2", "u2", "four", total=50),
    ):
        meter.usage(session.path(), 100)
        session.append(Entry.of(appended))
        usage = meter.usage(session.path(), 100)
        assert usage is not None
        shown.append((usage.tokens, usage.estimated_tokens))
    assert shown == [(3, 3), (None, 2), (None, 3), (50, 50)]


def test_the_meter_takes_a_change_of_the_window_at_once() -> None:
    session = tree(assistant("a1", None, total=10))
    meter = UsageMeter(TokenCounter())
    shares = [meter.usage(session.path(), window) for window in (100, None, 20)]
    assert [usage and usage.percent for usage in shares] == [10.0, None, 50.0]


def test_an_empty_path_is_an_empty_context() -> None:
    assert usage_of() == ContextUsage(0, 0, 200_000, 0, "estimate")


# What is sent


@pytest.mark.parametrize(
    "row",
    [row for row in table("serialize-conversation") if row["name"].startswith("bash")],
    ids=lambda row: row["name"],
)
def test_a_bash_command_is_told_as_pi_tells_it(row: Json) -> None:
    messages = [found for raw in row["messages"] if (found := decode_message(raw)) is not None]
    sent = to_llm(messages)
    assert "\n\n".join(f"[User]: {shown(one)}" for one in sent) == row["expected"]


def test_summaries_and_custom_messages_are_sent_as_user_messages() -> None:
    entries = path(
        compaction("c", None, "c", "S"),
        branch_summary("b", "c", "B"),
        line("custom_message", "m", "b", customType="note", content="N", display=False),
    )
    sent = to_llm([one.message for one in build_session_context(entries).messages])
    assert all(isinstance(one, UserMessage) for one in sent)
    assert [shown(one) for one in sent] == ["<compacted>S", "<branch>B", "N"]


def test_an_excluded_command_is_not_sent() -> None:
    assert to_llm([BashExecutionMessage("ls", "out", exclude_from_context=True)]) == []
