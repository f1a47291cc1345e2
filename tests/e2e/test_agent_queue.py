"""What is said to the agent while it cannot listen: kept, and delivered once, in order."""

from __future__ import annotations

import asyncio

import pytest

from tests import sessions
from tests.e2e.colleague import Colleague, call, calls, overflows, says, texts
from tests.e2e.raw import Json
from tests.provider import Reply, error

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_RETRY: Json = {"retry": {"enabled": False}}


def said_by_user(colleague: Colleague) -> list[str]:
    return [message["content"][0]["text"] for message in colleague.messages("user")[2:]]


async def nothing_waits(colleague: Colleague) -> bool:
    return (await colleague.run("pi.sessionState"))["pendingMessageCount"] == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_prompts_during_a_compaction_by_hand_follow_it(colleague: Colleague, fails: bool):
    await colleague.open(sessions.two_long_turns(120_000), NO_RETRY)
    if fails:
        colleague.model.summaries = [error(400, "boom")]
    colleague.provider.hold()
    compacting = colleague.begin("pi.compact")
    await colleague.until_asked()
    for text in ("Q1", "Q2"):
        assert await colleague.run("pi.prompt", text=text) == {"disposition": "queued"}
    colleague.provider.release()
    assert ("error" in await colleague.answer(compacting)) is fails
    await colleague.settled()
    assert said_by_user(colleague) == ["Q1", "Q2"]
    kinds = [line["type"] for line in colleague.entries()]
    assert kinds[4:] == [*([] if fails else ["compaction"]), *["message"] * 4]
    first = texts(colleague.model.chats[0])
    assert first[-1] == "Q1"
    assert ("MARK-OLD" in first[0]) is fails
    assert await nothing_waits(colleague)


@pytest.mark.parametrize("fails", [False, True])
async def test_prompts_during_an_automatic_compaction_follow_it(colleague: Colleague, fails: bool):
    await colleague.open(sessions.two_long_turns(190_000), NO_RETRY)
    if fails:
        colleague.model.summaries = [error(400, "boom")]
    colleague.provider.hold()
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    for text in ("Q1", "Q2"):
        assert await colleague.run("pi.prompt", text=text) == {"disposition": "queued"}
    colleague.provider.release()
    await colleague.settled()
    assert said_by_user(colleague) == ["go", "Q1", "Q2"]
    assert await nothing_waits(colleague)


async def test_after_a_compaction_that_was_stopped_a_prompt_is_answered(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    before = colleague.file.read_bytes()
    colleague.model.default_summary = Reply(hang=True)
    compaction = colleague.begin("pi.compact")
    await colleague.until_asked()
    assert await colleague.run("pi.abort") == {"aborted": True}
    assert (await colleague.answer(compaction))["error"]["data"]["kind"] == "Cancelled"
    await colleague.until_left()
    assert colleague.file.read_bytes() == before
    await colleague.say("hi")
    assert texts(colleague.model.chats[0])[-1] == "hi"
    assert [m["role"] for m in colleague.messages()[-2:]] == ["user", "assistant"]


async def test_a_prompt_during_a_branch_summary_follows_it(colleague: Colleague):
    await colleague.open(sessions.fork_with_two_branches())
    colleague.provider.hold()
    moving = colleague.begin("pi.navigateTree", targetId="Ff", summarize=True)
    await colleague.until_asked()
    assert await colleague.run("pi.prompt", text="Q") == {"disposition": "queued"}
    colleague.provider.release()
    assert "result" in await colleague.answer(moving)
    await colleague.settled()
    sent = texts(colleague.model.chats[0])
    assert (sent[:3], sent[-1]) == (["root", "e", "f"], "Q")
    assert len(sent) == 5


async def test_prompts_sent_at_once_are_answered_in_their_order(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(1_000))
    wanted = [f"P{number}" for number in range(12)]
    asked = [colleague.begin("pi.prompt", text=text) for text in wanted]
    told = [(await colleague.answer(one))["result"]["disposition"] for one in asked]
    assert told == ["started", *["queued"] * 11]
    await colleague.settled()
    assert said_by_user(colleague) == wanted


async def test_prompts_at_once_begin_one_session(colleague: Colleague):
    asked = [colleague.begin("pi.prompt", text=text) for text in ("one", "two", "three")]
    for one in asked:
        assert "result" in await colleague.answer(one)
    await colleague.settled()
    assert len((await colleague.run("pi.listSessions"))["sessions"]) == 1
    assert len(colleague.named("session_opened")) == 1


async def test_steering_comes_after_the_tools_and_follow_ups_when_the_agent_would_stop(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [
        calls(call("bash", "c1", command="echo 1"), call("bash", "c2", command="echo 2"), delay=0.2),
        says("saw it"),
    ]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await colleague.run("pi.followUp", text="F")
    await colleague.run("pi.steer", text="S1")
    await colleague.run("pi.prompt", text="S2", streamingBehavior="steer")
    await colleague.settled()
    roles = [(m["role"], str(m["content"])) for m in colleague.messages()]
    said = [next((t for t in ("go", "S1", "S2", "F") if f"'{t}'" in text), role) for role, text in roles]
    assert said == [
        "go",
        "assistant",
        "toolResult",
        "toolResult",
        "S1",
        "assistant",
        "S2",
        "assistant",
        "F",
        "assistant",
    ]
    assert colleague.named("queue_update")[-1]["steering"] == []
    assert colleague.named("queue_update")[-1]["followUp"] == []


async def test_all_that_waits_can_be_delivered_together(colleague: Colleague):
    await colleague.open([sessions.header()], {"steeringMode": "all", "followUpMode": "all"})
    colleague.model.answers = [calls(call("bash", command="echo 1"), delay=0.2)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    for text in ("S1", "S2"):
        await colleague.run("pi.steer", text=text)
    for text in ("F1", "F2"):
        await colleague.run("pi.followUp", text=text)
    await colleague.settled()
    assert [texts(request, "user") for request in colleague.model.chats] == [
        ["go"],
        ["go", "S1", "S2"],
        ["go", "S1", "S2", "F1", "F2"],
    ]


async def test_what_waits_can_be_taken_back(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [says(delay=0.2)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await colleague.run("pi.steer", text="S")
    await colleague.run("pi.followUp", text="F")
    assert await colleague.run("pi.clearQueue") == {"steering": ["S"], "followUp": ["F"]}
    await colleague.settled()
    assert colleague.model.order == ["chat"]


async def test_what_waited_through_an_aborted_run_goes_first_with_the_next_prompt(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [says("x" * 500, hang_after=10)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("message_update")
    await colleague.run("pi.followUp", text="first")
    assert await colleague.run("pi.abort") == {"aborted": True}
    await colleague.settled()
    assert (await colleague.run("pi.sessionState"))["pendingMessageCount"] == 1
    await colleague.run("pi.prompt", text="second")
    await colleague.settled(2)
    assert [m["content"][0]["text"] for m in colleague.messages("user")] == ["go", "first", "second"]


async def test_what_was_to_steer_an_aborted_run_goes_before_what_was_to_follow_it(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [says("x" * 500, hang_after=10)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("message_update")
    await colleague.run("pi.followUp", text="follows")
    await colleague.run("pi.steer", text="steers")
    await colleague.run("pi.abort")
    await colleague.settled()
    await colleague.run("pi.prompt", text="more")
    await colleague.settled(2)
    said = [m["content"][0]["text"] for m in colleague.messages("user")]
    assert said == ["go", "steers", "follows", "more"]


async def test_a_prompt_that_waited_for_room_in_vain_is_still_the_first(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000))
    colleague.model.summaries = [Reply(hang=True)]
    await colleague.run("pi.prompt", text="one")
    await colleague.until_asked()
    await colleague.run("pi.followUp", text="two")
    assert await colleague.run("pi.abort") == {"aborted": True}
    await colleague.settled()
    await colleague.run("pi.prompt", text="three")
    await colleague.settled(2)
    assert said_by_user(colleague) == ["one", "two", "three"]


async def test_room_is_made_before_a_queued_prompt_too(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(80_000))
    colleague.model.answers = [says(total=190_000, delay=0.2)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await colleague.run("pi.followUp", text="next")
    await colleague.settled()
    assert colleague.model.order == ["chat", "summary", "chat"]
    assert texts(colleague.model.chats[1])[-1] == "next"


async def test_each_queued_prompt_has_a_recovery_of_its_own(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [overflows(), says(delay=0.2), overflows()]
    await colleague.run("pi.prompt", text="one")
    await colleague.until_asked(3)
    await colleague.run("pi.followUp", text=sessions.filler(90_000))
    await colleague.settled()
    assert colleague.named("agent_end")[-1].get("errorMessage") is None
    assert [end["willRetry"] for end in colleague.named("compaction_end")] == [True, True]


async def test_a_failed_answer_does_not_hold_up_what_waits(colleague: Colleague):
    await colleague.open([sessions.header()], NO_RETRY)
    colleague.model.answers = [Reply(status=400, body={"error": {"message": "no"}}, delay=0.2)]
    await colleague.run("pi.prompt", text="one")
    await colleague.until_asked()
    await colleague.run("pi.followUp", text="two")
    await colleague.settled()
    assert [m["stopReason"] for m in colleague.messages("assistant")] == ["error", "stop"]
    assert len(colleague.named("agent_settled")) == 1


async def test_the_agent_can_be_asked_to_continue(colleague: Colleague):
    await colleague.open([sessions.header()], NO_RETRY)
    colleague.model.answers = [error(400, "no")]
    await colleague.say("one")
    assert await colleague.run("pi.continue") == {"disposition": "started"}
    await colleague.settled(2)
    assert texts(colleague.model.chats[-1]) == ["one"]
    refused = await colleague.refusal("pi.continue")
    assert refused["data"]["kind"] == "InvalidParams"


async def test_a_prompt_is_refused_where_no_waiting_would_help(colleague: Colleague):
    await colleague.open([sessions.header(version=4)])
    assert (await colleague.refusal("pi.prompt", text="x"))["data"]["kind"] == "SessionReadOnly"
    assert (await colleague.refusal("pi.bash", command="echo"))["data"]["kind"] == "SessionReadOnly"


async def test_settling_leaves_the_session_free(colleague: Colleague):
    """Whoever hears of the end may begin something at once."""
    await colleague.open(sessions.two_long_turns(1_000))
    for number in range(5):
        await colleague.run("pi.prompt", text=str(number))
        await colleague.settled(number + 1)
        assert (await colleague.run("pi.navigateTree", targetId=None))["leafId"] is None
        assert (await colleague.run("pi.navigateTree", targetId="a2"))["leafId"] == "a2"


async def test_a_command_of_the_user_waits_with_its_entry_not_with_its_answer(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [calls(call("bash", command="sleep 30"))]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("tool_execution_start")
    result = await colleague.run("pi.bash", command="echo mine")
    assert (result["output"].strip(), result["exitCode"]) == ("mine", 0)
    await colleague.run("pi.abort")
    await colleague.server.until(lambda: "bashExecution" in str(colleague.named("entry_appended")), 20)
    roles = [message["role"] for message in colleague.messages()]
    assert roles == ["user", "assistant", "toolResult", "bashExecution"]


@pytest.mark.parametrize("way", ["pi.abortBash", "pi.abort", "$/cancelRequest"])
async def test_a_command_of_the_user_that_is_stopped_keeps_what_it_wrote(colleague: Colleague, way: str):
    await colleague.open([sessions.header()])
    command = "echo so far; touch wrote; sleep 60"
    running = colleague.begin("pi.bash", command=command)
    async with asyncio.timeout(20):
        while not (colleague.folder / "wrote").exists():
            await asyncio.sleep(0.01)
    if way == "$/cancelRequest":
        colleague.server.notify(way, {"id": running})
    else:
        assert await colleague.run(way) == {"aborted": True}
    answer = (await colleague.answer(running))["result"]
    assert answer == {"output": "so far\n", "exitCode": None, "cancelled": True, "truncated": False}
    [kept] = colleague.messages("bashExecution")
    assert (kept["command"], kept["output"], kept["cancelled"]) == (command, "so far\n", True)
    await colleague.say("next")
    [_, told, _] = colleague.model.chats[-1].body["messages"]
    assert "so far" in told["content"]
    assert "(command cancelled)" in told["content"]


async def test_a_prompt_and_another_operation_at_once_lose_nothing(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(120_000))
    asked = [
        colleague.begin("pi.prompt", text="mine"),
        colleague.begin("pi.compact"),
        colleague.begin("pi.navigateTree", targetId="a1"),
    ]
    answers = await asyncio.gather(*(colleague.answer(one) for one in asked))
    assert answers[0]["result"]["disposition"] in ("started", "queued")
    await colleague.server.until(
        lambda: any("mine" in str(m["content"]) for m in colleague.messages("user")), 20
    )
    assert said_by_user(colleague).count("mine") == 1
