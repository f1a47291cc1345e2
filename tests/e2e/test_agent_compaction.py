"""Compactions that a run makes by itself: when, around what, how often, and what goes on afterwards."""

from __future__ import annotations

import itertools
import json

import pytest

from tests import sessions
from tests.e2e.colleague import (
    CONTINUE,
    OVERFLOW,
    Colleague,
    call,
    calls,
    is_chat,
    overflows,
    says,
    texts,
)
from tests.e2e.raw import Json
from tests.provider import Reply, error

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_CONTINUATION: Json = {"compaction": {"autoContinue": False}}
NO_RETRY: Json = {"retry": {"enabled": False}}
SOON: Json = {"retry": {"baseDelayMs": 1, "maxRetries": 3}}


def one_turn(total: int = 35, text: str = "hi") -> list[Json]:
    return [
        sessions.header(),
        sessions.user("u1", None, text),
        sessions.assistant("a1", "u1", "x", total=total),
    ]


def just_compacted() -> list[Json]:
    return [
        sessions.header(),
        sessions.user("u1", None, sessions.filler(90_000)),
        sessions.assistant("a1", "u1", "x", total=190_000),
        sessions.compaction("c1", "a1", "S", "a1", before=190_000),
        sessions.custom_message("m1", "c1", "recovery note"),
    ]


# -- the threshold


@pytest.mark.parametrize("keep", [20_000, 1])
async def test_the_first_prompt_after_a_compaction_just_runs(colleague: Colleague, keep: int):
    """Whether or not there would be anything to compact."""
    await colleague.open(just_compacted(), {"compaction": {"keepRecentTokens": keep}})
    colleague.model.default = says(total=9_000)
    await colleague.say("go")
    assert colleague.model.order == ["chat"]
    assert len(colleague.entries("compaction")) == 1
    assert colleague.compactions() == []


@pytest.mark.parametrize(
    ("reserve", "total", "compacts"),
    [(None, 183_616, False), (None, 183_617, True), (0, 200_000, False), (0, 200_001, True)],
)
async def test_the_threshold_is_passed_by_one_token_more_than_the_window_less_the_reserve(
    colleague: Colleague, reserve: int | None, total: int, compacts: bool
):
    own: Json = {} if reserve is None else {"reserveTokens": reserve}
    await colleague.open(sessions.two_long_turns(100_000), {"compaction": {"autoContinue": False} | own})
    colleague.model.default = says(total=total)
    await colleague.say("go")
    assert colleague.model.order == (["chat", "summary"] if compacts else ["chat"])
    assert colleague.compactions() == (["start threshold", "end threshold"] if compacts else [])


async def test_between_two_turns_the_context_is_compacted_before_the_next_request(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(80_000))
    colleague.model.answers = [
        calls(call("bash", command="echo 1"), total=184_000),
        says("done", total=30_000),
    ]
    await colleague.say("loop")
    assert colleague.model.order == ["chat", "summary", "chat"]
    told = colleague.events("tool_execution_end", "compaction_start", "compaction_end", "turn_start")
    assert told == ["turn_start", "tool_execution_end", "compaction_start", "compaction_end", "turn_start"]
    second = colleague.model.chats[1]
    assert "S" in texts(second, "user")[0]
    assert texts(second, "tool") == ["1"]
    assert [m["message"]["role"] for m in colleague.entries("message")[-2:]] == ["toolResult", "assistant"]
    assert len(colleague.named("agent_start")) == 1


async def test_a_large_tool_result_counts_before_it_is_sent(colleague: Colleague):
    """The answer alone was under the threshold; with its result the context is not."""
    await colleague.open(sessions.two_long_turns(80_000))
    colleague.model.answers = [
        calls(call("bash", command="head -c 50000 /dev/zero | tr '\\0' x"), total=175_000),
        says("done", total=30_000),
    ]
    await colleague.say("loop")
    assert colleague.compactions() == ["start threshold", "end threshold"]
    assert colleague.model.order[0:2] == ["chat", "summary"]
    assert colleague.model.order.count("chat") == 2


async def test_what_steers_the_run_counts_before_it_is_sent(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(80_000))
    colleague.model.answers = [says("first", total=183_000, delay=0.3), says("done", total=30_000)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await colleague.run("pi.steer", text="also " + sessions.filler(80_000))
    await colleague.settled()
    assert colleague.model.order == ["chat", "summary", "chat"]
    assert colleague.entries("message")[-1]["message"]["content"][0]["text"] == "done"


async def test_usage_that_stays_over_the_limit_pauses_and_never_loops(colleague: Colleague):
    await colleague.open([sessions.header()], NO_CONTINUATION)
    colleague.model.default = says(total=190_000)
    for number in range(1, 6):
        before = len(colleague.named("compaction_start"))
        await colleague.say(sessions.filler(100_000))
        assert len(colleague.messages("assistant")) == number
        assert len(colleague.named("compaction_start")) - before <= 1
        assert "operation" not in await colleague.run("pi.sessionState")
    kinds = [
        line["type"] if line["type"] == "compaction" else line["message"]["role"]
        for line in colleague.entries()
        if line["type"] in ("message", "compaction")
    ]
    assert kinds.count("compaction") >= 1
    for first, second in itertools.pairwise(kinds):
        assert (first, second) != ("compaction", "compaction")
    [paused] = colleague.named("auto_compaction_paused")
    assert paused["reason"] == "no_progress"
    told = colleague.events("compaction_start", "auto_compaction_paused")
    assert told[-1] == "auto_compaction_paused", "from there on it is left"
    assert len(told) < 5
    assert (await colleague.usage())["autoCompactionPaused"] is True


async def test_a_paused_session_takes_it_up_again_after_an_answer_under_the_threshold(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000), NO_CONTINUATION)
    colleague.model.answers = [says(total=190_000), says(total=190_000), says(total=1_000)]
    for text in ("one", "two", "three"):
        await colleague.say(text)
    assert colleague.events("auto_compaction_paused", "auto_compaction_resumed") == [
        "auto_compaction_paused",
        "auto_compaction_resumed",
    ]
    assert (await colleague.usage())["autoCompactionPaused"] is False


@pytest.mark.parametrize("model", ["m8", "m16"])
async def test_a_reserve_that_is_no_smaller_than_the_window_leaves_half_of_it(
    colleague: Colleague, model: str
):
    settings = {"compaction": {"keepRecentTokens": 100}, "defaultProvider": "fake", "defaultModel": model}
    await colleague.open([sessions.header()], settings)
    for number in range(1, 13):
        colleague.model.default = says(total=150 * number)
        before = len(colleague.named("compaction_start"))
        await colleague.say("hello " * 60)
        assert len(colleague.messages("assistant")) == number
        assert len(colleague.named("compaction_start")) - before <= (0 if number == 1 else 1)
    problems = [one["kind"] for one in colleague.named("session_problem")]
    assert problems == ["reserveTooLarge"]


@pytest.mark.parametrize(("model", "window"), [("m8", 8_192), ("m16", 16_384)])
async def test_in_a_small_window_less_is_kept_so_that_there_is_something_to_compact(
    colleague: Colleague, model: str, window: int
):
    settings = {"defaultProvider": "fake", "defaultModel": model}
    await colleague.open([sessions.header()], settings)
    for number in range(1, 9):
        colleague.model.default = says(total=number * window // 12)
        await colleague.say(sessions.filler(window * 4 // 12))
    [compaction] = colleague.named("compaction_end")
    assert compaction["result"]["tokensBefore"] == 7 * window // 12
    [problem] = [one for one in colleague.named("session_problem") if one["kind"] == "keepTooLarge"]
    assert f"{window // 4} is used instead" in problem["message"]


async def test_a_smaller_model_is_checked_against_before_anything_is_sent(colleague: Colleague):
    lines = [*sessions.grown_in_a_large_window(), sessions.model_change("k2", "z", "fake", "m200")]
    await colleague.open(lines, {"compaction": {"pruning": {"enabled": False}}})
    usage = await colleague.usage()
    assert (usage["contextWindow"], round(usage["percent"])) == (200_000, 300)
    await colleague.say("x")
    assert colleague.model.order[0] == "summary"
    [request] = colleague.model.chats
    assert sum(len(text) for text in texts(request)) / 4 < 200_000


async def test_a_compaction_that_runs_keeps_the_model_it_began_with(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000), NO_CONTINUATION)
    colleague.provider.hold()
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await colleague.run("pi.setModel", provider="fake", modelId="m1000")
    colleague.provider.release()
    await colleague.settled()
    assert [request.body["model"] for request in colleague.provider.requests] == ["m200", "m1000"]


async def test_without_any_usage_the_size_decides(colleague: Colleague):
    await colleague.open([sessions.header()], NO_CONTINUATION)
    colleague.model.default = says(total=None)
    for number in range(3):
        await colleague.say(sessions.filler(400_000))
        told = colleague.compactions()
        assert told[:2] == ([] if number == 0 else ["start threshold", "end threshold"])
    usage = await colleague.usage()
    assert usage["tokens"] is None or usage["tokens"] < 200_000


async def test_an_aborted_answer_over_the_threshold_compacts_before_the_next_prompt(colleague: Colleague):
    aborted = sessions.assistant("a3", "u3", "half", total=199_000, stop="aborted")
    lines = [*sessions.two_long_turns(100_000), sessions.user("u3", "a2", "stop me"), aborted]
    await colleague.open(lines)
    await colleague.say("go on")
    assert colleague.model.order == ["summary", "chat"]


async def test_an_answer_that_is_aborted_at_the_threshold_compacts_nothing(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(183_000))
    colleague.model.answers = [says("x" * 2_000, total=190_000, hang_after=20)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("message_update")
    assert await colleague.run("pi.abort") == {"aborted": True}
    assert (await colleague.settled())["aborted"] is True
    assert colleague.model.order == ["chat"]
    assert colleague.compactions() == []


async def test_a_run_that_is_aborted_at_a_tool_compacts_nothing_though_the_threshold_is_passed(
    colleague: Colleague,
):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [calls(call("bash", command="sleep 60"), total=190_000)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("tool_execution_start")
    await colleague.run("pi.steer", text="something that waits")
    assert await colleague.run("pi.abort") == {"aborted": True}
    assert (await colleague.settled())["aborted"] is True
    assert colleague.model.order == ["chat"]
    assert colleague.compactions() == []
    assert [text for text, _ in colleague.results()] == ["aborted"]


async def test_a_failed_answer_goes_by_the_last_good_usage(colleague: Colleague):
    """During a long outage the context is compacted all the same."""
    await colleague.open(sessions.two_long_turns(183_600), NO_RETRY | NO_CONTINUATION)
    colleague.model.answers = [error(500, "down")]
    await colleague.say(sessions.filler(400))
    assert colleague.model.order == ["chat", "summary"]


async def test_with_nothing_to_compact_the_prompt_is_answered_and_nothing_is_told(colleague: Colleague):
    lines = [*one_turn(9_000), sessions.compaction("c1", "a1", "S", "u1")]
    await colleague.open(lines, {"defaultProvider": "fake", "defaultModel": "m8"})
    colleague.model.default = says(total=8_000)
    await colleague.run("pi.setModel", provider="fake", modelId="m8")
    await colleague.say("x")
    assert colleague.model.order == ["chat"]
    assert colleague.events("compaction_start", "compaction_end", "session_compact_failed") == []
    assert "errorMessage" not in colleague.named("agent_end")[0]


async def test_an_invalid_setting_keeps_it_off_and_says_so_once(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(150_000), {"compaction": {"reserveTokens": -1}})
    colleague.model.default = says(total=190_000)
    for text in ("one", "two"):
        await colleague.say(text)
    assert colleague.model.order == ["chat", "chat"]
    [paused] = colleague.named("auto_compaction_paused")
    assert (paused["reason"], "reserveTokens" in paused["message"]) == ("settings", True)


@pytest.mark.parametrize(("total", "least", "most"), [(1_000, 32_000, 32_000), (180_000, 14_000, 20_000)])
async def test_an_answer_is_asked_for_no_longer_than_the_window_leaves(
    colleague: Colleague, total: int, least: int, most: int
):
    """Some providers refuse a request whose answer might not fit: an overflow far too early."""
    await colleague.open([*one_turn(total), sessions.model_change("k", "a1", "fake", "wide")])
    await colleague.say("x")
    assert least <= (colleague.model.chats[0].max_tokens or 0) <= most


# -- overflow


async def test_an_overflow_is_recovered_from_once_and_then_told(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(150_000))
    colleague.model.default = overflows()
    await colleague.say("go")
    assert colleague.model.order == ["chat", "summary", "chat"]
    assert colleague.compactions() == ["start overflow", "end overflow"]
    first, last = colleague.named("agent_end")
    assert OVERFLOW in first["errorMessage"]
    assert last["errorMessage"].startswith("Context overflow recovery failed: ")
    [failed] = colleague.named("session_compact_failed")
    assert (failed["reason"], failed["aborted"], failed["willRetry"]) == ("overflow", False, True)
    assert failed["errorMessage"] == last["errorMessage"]
    assert [OVERFLOW in m["errorMessage"] for m in colleague.messages("assistant")[2:]] == [True, True]

    colleague.model.default = says("fine")
    await colleague.say("again")
    assert colleague.messages("assistant")[-1]["content"][0]["text"] == "fine"
    sent = colleague.model.chats[-1]
    assert not any(OVERFLOW in text for text in texts(sent))
    assert [m["role"] for m in sent.body["messages"]].count("assistant") == 1  # `y`, which was kept


async def test_after_the_recovery_the_users_own_prompt_is_asked_again(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [overflows()]
    await colleague.say("p")
    assert colleague.model.order == ["chat", "summary", "chat"]
    assert texts(colleague.model.chats[-1])[-1] == "p"
    assert not any(CONTINUE in text for text in texts(colleague.model.chats[-1]))
    [end] = colleague.named("compaction_end")
    assert end["willRetry"] is True


async def test_switched_off_means_off_and_by_hand_still_works(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(199_000), {"compaction": {"enabled": False}})
    colleague.model.answers = [overflows()]
    await colleague.say("go")
    assert colleague.model.order == ["chat"]
    assert colleague.compactions() == []
    [end] = colleague.named("agent_end")
    assert OVERFLOW in end["errorMessage"]
    assert (await colleague.run("pi.compact"))["summary"].startswith("S")
    assert len(colleague.entries("compaction")) == 1


REFUSALS = [
    (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    (400, "input length and max_tokens exceed context limit: 190000 + 32000 > 200000"),
    (400, "This model's maximum context length is 128000 tokens"),
    (400, "Input tokens exceed the configured limit of 300000 tokens"),
    (400, "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)"),
    (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
    (401, "supports only 256K context"),
    (413, "no such luck"),
]


@pytest.mark.parametrize(("status", "text"), REFUSALS, ids=lambda one: str(one)[:20])
async def test_every_way_of_refusing_a_long_request_is_recovered_from(
    colleague: Colleague, status: int, text: str
):
    await colleague.open(sessions.two_long_turns(120_000), NO_RETRY)
    colleague.model.answers = [overflows(text, status)] * 2
    await colleague.say("p")
    assert colleague.model.order == ["chat", "summary", "chat"]
    assert colleague.compactions() == ["start overflow", "end overflow"]
    assert colleague.named("agent_end")[-1]["errorMessage"].startswith("Context overflow recovery failed: ")


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 400000 > 65536, which is the maximum allowed",
        "messages.3: tool_use ids were found without tool_result",
    ],
)
async def test_other_refusals_compact_nothing(colleague: Colleague, text: str):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [overflows(text)]
    await colleague.say("p")
    assert colleague.model.order == ["chat"]
    [end] = colleague.named("agent_end")
    assert text in end["errorMessage"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (429, ""),
        (429, "Request too large: too many tokens per minute, limit 30000, requested 31000"),
        (503, "too many tokens"),
        (529, "too many tokens"),
    ],
)
async def test_a_limit_of_rates_is_waited_out_and_rewrites_nothing(
    colleague: Colleague, status: int, text: str
):
    await colleague.open(one_turn(), SOON)
    body = "" if not text else {"error": {"message": text}}
    colleague.model.answers = [Reply(status=status, body=body)]
    await colleague.say("go")
    assert colleague.compactions() == []
    assert colleague.entries("compaction") == []
    assert colleague.model.order == ["chat", "chat"]
    assert len(colleague.named("auto_retry_start")) == 1
    assert colleague.named("auto_retry_end")[0]["success"] is True


async def test_failures_in_passing_are_tried_again_so_many_times_and_no_more(colleague: Colleague):
    await colleague.open(one_turn(), {"retry": {"baseDelayMs": 1, "maxRetries": 2}})
    colleague.model.default = error(500, "down")
    await colleague.say("go")
    assert colleague.model.order == ["chat"] * 3
    assert [one["attempt"] for one in colleague.named("auto_retry_start")] == [1, 2]
    [end] = colleague.named("auto_retry_end")
    assert (end["success"], end["attempt"]) == (False, 2)
    assert "down" in colleague.named("agent_end")[-1]["errorMessage"]


async def test_waiting_for_another_try_can_be_stopped(colleague: Colleague):
    await colleague.open(one_turn(), {"retry": {"baseDelayMs": 600_000, "maxAgentDelayMs": 600_000}})
    colleague.model.default = error(500, "down")
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("auto_retry_start")
    assert await colleague.run("pi.abort") == {"aborted": True}
    assert (await colleague.settled())["aborted"] is True
    assert colleague.named("auto_retry_end")[0]["success"] is False


async def test_another_try_that_is_stopped_has_an_end_and_is_no_success(colleague: Colleague):
    await colleague.open(one_turn(), SOON)
    colleague.model.answers = [error(500, "down"), Reply(hang=True)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked(2)
    assert await colleague.run("pi.abort") == {"aborted": True}
    await colleague.settled()
    told = colleague.events("auto_retry_start", "auto_retry_end", "agent_settled")
    assert told == ["auto_retry_start", "auto_retry_end", "agent_settled"]
    [end] = colleague.named("auto_retry_end")
    assert (end["success"], end["attempt"]) == (False, 1)


async def test_an_answer_that_had_no_room_left_is_an_overflow(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    full = {"prompt_tokens": 199_000, "completion_tokens": 0, "total_tokens": 199_000}
    colleague.model.answers = [Reply(text="", finish="length", usage=full)]
    await colleague.say("p")
    assert colleague.model.order == ["chat", "summary", "chat"]
    assert colleague.compactions() == ["start overflow", "end overflow"]


async def test_a_finished_answer_past_the_window_compacts_and_is_not_asked_for_again(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [says("whole", total=200_100)]
    await colleague.say("p")
    assert colleague.model.order == ["chat", "summary"]
    [end] = colleague.named("compaction_end")
    assert (end["reason"], end["willRetry"], "result" in end) == ("overflow", False, True)


async def test_another_models_overflow_is_not_ours(colleague: Colleague):
    """The person switches to another model while the answer that overflows is on its way."""
    await colleague.open(sessions.two_long_turns(120_000), NO_RETRY)
    colleague.model.answers = [overflows()]
    colleague.provider.hold()
    await colleague.run("pi.prompt", text="p")
    await colleague.until_asked()
    await colleague.run("pi.setModel", provider="fake", modelId="m1000")
    colleague.provider.release()
    await colleague.settled()
    assert colleague.model.order == ["chat"]
    assert colleague.compactions() == []


# -- failures


async def test_each_failure_of_an_automatic_compaction_is_told_by_its_own_sentence(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(150_000), NO_RETRY | NO_CONTINUATION)
    colleague.model.default_summary = error(400, "boom")
    colleague.model.answers = [says(total=190_000), overflows()]
    await colleague.say("threshold")
    colleague.model.answers = [overflows()]
    await colleague.say("overflow")
    ends = colleague.named("compaction_end")
    assert [end["reason"] for end in ends] == ["threshold", "threshold", "overflow"]
    for end in ends:
        known = {"threshold": "Auto-compaction failed: ", "overflow": "Context overflow recovery failed: "}
        assert end["errorMessage"].startswith(known[end["reason"]])
        assert "boom" in end["errorMessage"]
        assert (end["aborted"], end["willRetry"], "result" in end) == (False, False, False)
    failed = colleague.named("session_compact_failed")
    assert [(one["reason"], one["willRetry"]) for one in failed] == [
        ("threshold", False),
        ("threshold", False),
        ("overflow", True),
    ]
    assert colleague.entries("compaction") == []
    [paused] = colleague.named("auto_compaction_paused")
    assert paused["reason"] == "failures"


async def test_a_compaction_by_hand_takes_up_again_what_had_paused(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000), NO_RETRY | NO_CONTINUATION)
    colleague.model.summaries = [error(400, "boom")] * 3
    colleague.model.default = says(total=190_000)
    for text in ("one", "two"):
        await colleague.say(text)
    assert colleague.named("auto_compaction_paused")[0]["reason"] == "failures"
    await colleague.run("pi.compact")
    assert len(colleague.named("auto_compaction_resumed")) == 1


# -- stopping


async def test_stopping_a_run_stops_the_compaction_it_is_at(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [calls(call("bash", command="echo 1"), total=190_000)]
    colleague.model.default_summary = Reply(hang=True)
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("compaction_start")
    await colleague.until_asked(2)
    assert await colleague.run("pi.abort") == {"aborted": True}
    assert (await colleague.settled())["aborted"] is True
    await colleague.until_left()
    [end] = colleague.named("compaction_end")
    assert (end["aborted"], end["reason"]) == (True, "threshold")
    assert not {"result", "errorMessage"} & end.keys()
    told = colleague.events("compaction_end", "agent_end", "agent_settled")
    assert told == ["compaction_end", "agent_end", "agent_settled"]
    assert colleague.model.order == ["chat", "summary"]
    colleague.model.default_summary = Reply(text="S")
    await colleague.say("on with it")
    assert colleague.model.order == ["chat", "summary", "summary", "chat"]


async def test_stopping_the_compaction_alone_lets_the_run_go_on(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000), NO_CONTINUATION)
    colleague.model.default_summary = Reply(hang=True)
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    assert (await colleague.run("pi.sessionState"))["operation"] == "compaction"
    assert await colleague.run("pi.abortCompaction") == {"aborted": True}
    assert (await colleague.settled())["aborted"] is False
    assert colleague.named("compaction_end")[0]["aborted"] is True
    assert colleague.model.order == ["summary", "chat"]
    assert colleague.messages()[-1]["content"][0]["text"] == "ok"


async def test_compacting_by_hand_ends_an_automatic_compaction_and_keeps_the_prompt(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000))
    colleague.model.summaries = [Reply(hang=True)]
    await colleague.run("pi.prompt", text="the prompt that waits")
    await colleague.until_asked()
    result = await colleague.run("pi.compact")
    assert result["summary"].startswith("S")
    await colleague.settled(2)
    assert colleague.compactions() == ["start threshold", "end threshold", "start manual", "end manual"]
    assert [end["aborted"] for end in colleague.named("compaction_end")] == [True, False]
    assert colleague.model.order == ["summary", "summary", "chat"]
    sent = texts(colleague.model.chats[0])
    assert (sent.count("the prompt that waits"), "S" in sent[0]) == (1, True)
    [kept] = [m for m in colleague.messages("user") if "that waits" in str(m["content"])]
    assert kept
    assert (await colleague.run("pi.sessionState"))["pendingMessageCount"] == 0


async def test_compacting_by_hand_ends_a_run(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [says("x" * 2_000, hang_after=20)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("message_update")
    await colleague.run("pi.compact")
    assert colleague.named("agent_settled")[0]["aborted"] is True
    told = colleague.events("agent_settled", "compaction_start", "compaction_end")
    assert told == ["agent_settled", "compaction_start", "compaction_end"]
    assert colleague.model.order == ["chat", "summary"]


# -- what goes on afterwards


async def test_after_a_compaction_by_hand_nothing_goes_on(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    await colleague.run("pi.compact")
    await colleague.run("pi.sessionState")
    assert colleague.model.order == ["summary"]
    assert colleague.named("agent_start") == []


@pytest.mark.parametrize(("wanted", "chats"), [(True, 2), (False, 1), ("unfinished", 1)])
async def test_after_a_run_that_crossed_the_threshold_the_agent_goes_on_once_if_wanted(
    colleague: Colleague, wanted: bool | str, chats: int
):
    await colleague.open(sessions.two_long_turns(120_000), {"compaction": {"autoContinue": wanted}})
    colleague.model.answers = [says("final", total=190_000)]
    colleague.model.default = says(total=30_000)
    await colleague.say("p")
    assert colleague.model.order == ["chat", "summary", "chat"][: chats + 1]
    if chats == 2:
        assert texts(colleague.model.chats[-1], "user")[-1] == CONTINUE
        assert [m.get("synthetic") for m in colleague.messages("user")[-2:]] == [None, True]
    assert len(colleague.named("agent_settled")) == 1


async def test_it_goes_on_by_itself_at_most_once_between_two_prompts(colleague: Colleague):
    """Also where a second compaction of the same prompt has helped."""
    await colleague.open(sessions.two_long_turns(120_000), {"compaction": {"keepRecentTokens": 1}})
    again = calls(call("bash", command="echo"), total=1_000)
    colleague.model.answers = [says(total=190_000), again, says(total=190_000)]
    await colleague.say("p")
    order = [kind for kind, _ in itertools.groupby(colleague.model.order)]
    assert order == ["chat", "summary", "chat", "summary"]
    assert [CONTINUE in str(m["content"]) for m in colleague.messages("user")].count(True) == 1


async def test_a_compaction_before_a_prompt_is_followed_by_that_prompt_alone(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000))
    await colleague.say("p")
    assert colleague.model.order == ["summary", "chat"]
    assert texts(colleague.model.chats[0])[-1] == "p"
    kinds = [line["type"] for line in colleague.entries()][-3:]
    assert kinds == ["compaction", "message", "message"]


async def test_after_a_recovered_overflow_a_final_answer_over_the_threshold_compacts_again(
    colleague: Colleague,
):
    """The recovery is no reason to leave the context as full as it is."""
    await colleague.open(sessions.two_long_turns(120_000), NO_CONTINUATION)
    colleague.model.answers = [overflows(), calls(call("read", path="."), total=30_000), says(total=100_000)]
    await colleague.say("p")
    assert colleague.model.order == ["chat", "summary", "chat", "chat"]


# -- the system prompt


async def test_standing_instructions_hold_after_a_compaction_byte_for_byte(colleague: Colleague):
    (colleague.folder / "AGENTS.md").write_text("RULE-OWL: never touch lib/ ü 你好 😀", encoding="utf-8")
    await colleague.open(sessions.two_long_turns(120_000))
    await colleague.say("a")
    await colleague.run("pi.compact")
    await colleague.say("b")
    before, after = colleague.model.chats
    assert before.system == after.system
    assert before.system.count("RULE-OWL: never touch lib/ ü 你好 😀") == 1
    assert before.body["tools"] == after.body["tools"]


async def test_summaries_ask_in_plain_text_and_signed_thinking_stays_in_the_file(colleague: Colleague):
    wanted = sessions.call("c1", "bash", command="ls")
    lines = [
        sessions.header(),
        sessions.user("u1", None, sessions.filler(400_000)),
        sessions.assistant("a1", "u1", "t1", thinking=("why", "SIG-A")),
        sessions.user("u2", "a1", "b"),
        sessions.assistant("a2", "u2", "", wanted, thinking=("because " * 400, "SIG-B")),
        sessions.result("r2", "a2", "c1", "out"),
        sessions.assistant("a3", "r2", "done", total=150_000),
    ]
    await colleague.open(lines, {"compaction": {"keepRecentTokens": 400}})
    before = {line["id"]: line for line in colleague.entries()}
    await colleague.run("pi.compact")
    for request in colleague.model.asked_for_summaries:
        assert [m["role"] for m in request.body["messages"]] == ["system", "user"]
        assert all(isinstance(m["content"], str) for m in request.body["messages"])
        assert "tools" not in request.body
        assert not any("SIG-" in str(m) for m in request.body["messages"])
    await colleague.say("x")
    kept = [m for m in colleague.model.chats[0].body["messages"] if m["role"] == "assistant"]
    assert [bool(m.get("tool_calls")) for m in kept] == [True, False]
    after = {line["id"]: line for line in colleague.entries()}
    assert all(after[entry_id] == line for entry_id, line in before.items())


def tell_of_a_signer(colleague: Colleague) -> Json:
    """A model whose provider signs its thinking; what its answers name."""
    own: Json = {"baseUrl": colleague.provider.anthropic, "apiKey": "k", "api": "anthropic-messages"}
    own["models"] = [{"id": "signer", "contextWindow": 200_000, "maxTokens": 16_384, "reasoning": True}]
    colleague.office.home.tell_models({"signing": own})
    return {"provider": "signing", "model": "signer", "api": "anthropic-messages"}


def signed(text: list[str], signature: list[str], wanted: Json) -> Reply:
    """An answer whose thinking and signature come in these pieces, and which then calls a tool."""
    usage = {"input_tokens": 70, "output_tokens": 30}
    message: Json = {"id": "msg-1", "type": "message", "role": "assistant", "model": "signer", "content": []}
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in text]
    deltas += [{"type": "signature_delta", "signature": piece} for piece in signature]
    call: Json = {"type": "tool_use", "id": "c1", "name": wanted["name"], "input": {}}
    arguments = {"type": "input_json_delta", "partial_json": json.dumps(wanted["arguments"])}
    events: list[Json] = [
        {"type": "message_start", "message": message | {"usage": usage}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        {"type": "content_block_delta", "index": 1, "delta": arguments},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]
    return Reply(raw="".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events))


async def test_thinking_goes_back_with_its_signature_as_they_came(colleague: Colleague):
    here = tell_of_a_signer(colleague)
    level = sessions.thinking_level("t", "k", "low")
    lines = [sessions.header(), sessions.model_change("k", None, here["provider"], here["model"]), level]
    await colleague.open(lines)
    text, signature = [" be", "cause  \n", "of 😀"], ["Eo+/", "Zg", "=="]
    colleague.model.answers = [signed(text, signature, {"name": "read", "arguments": {"path": "x"}})]
    await colleague.say("go")
    thought = {"type": "thinking", "thinking": "".join(text), "thinkingSignature": "".join(signature)}
    assert colleague.messages("assistant")[0]["content"][0] == thought
    [asked] = [m for m in colleague.model.chats[1].body["messages"] if m["role"] == "assistant"]
    sent = {"type": "thinking", "thinking": "".join(text), "signature": "".join(signature)}
    assert asked["content"][0] == sent


async def test_kept_thinking_is_sent_with_its_signature_as_it_stands_in_the_file(colleague: Colleague):
    """To the provider that signed it; nobody else could make anything of it."""
    here = tell_of_a_signer(colleague)
    wanted = sessions.call("c1", "bash", command="ls")
    thoughts = ("because  \n" * 400, "SIG-B+/==")
    lines = [
        sessions.header(),
        sessions.user("u1", None, sessions.filler(400_000)),
        sessions.assistant("a1", "u1", "t1", thinking=("why", "SIG-A"), **here),
        sessions.user("u2", "a1", "b"),
        sessions.assistant("a2", "u2", "so", wanted, thinking=thoughts, **here),
        sessions.result("r2", "a2", "c1", "out"),
        sessions.assistant("a3", "r2", "done", total=150_000, **here),
    ]
    await colleague.open(lines, {"compaction": {"keepRecentTokens": 400}})
    assert (await colleague.run("pi.compact"))["firstKeptEntryId"] == "a2"
    assert not any("SIG-" in str(request.body) for request in colleague.model.asked_for_summaries)
    await colleague.run("pi.setThinkingLevel", level="low")
    await colleague.say("x")
    [kept, _] = [m for m in colleague.model.chats[0].body["messages"] if m["role"] == "assistant"]
    text, signature = thoughts
    assert kept["content"][:2] == [
        {"type": "thinking", "thinking": text, "signature": signature},
        {"type": "text", "text": "so"},
    ]
    assert [block["type"] for block in kept["content"]] == ["thinking", "text", "tool_use"]


# -- the same with a summary that fails


async def test_a_failed_summary_leaves_the_next_request_as_it_would_have_been(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    context = await colleague.context()
    colleague.model.summaries = [Reply(text="   \n\t")]
    refused = await colleague.refusal("pi.compact")
    assert "Summary is empty" in refused["message"]
    assert await colleague.context() == context
    await colleague.say("x")
    assert texts(colleague.model.chats[0]) == [*(text for _, text in context), "x"]


async def test_the_summary_is_never_asked_for_with_tools(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000))
    await colleague.say("x")
    assert [is_chat(request) for request in colleague.provider.requests] == [False, True]
