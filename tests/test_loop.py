from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pi_ls.core import events
from pi_ls.core.chat import Answer, ChatRequest, StreamEvent, ToolOutput, ToolSpec
from pi_ls.core.errors import ContextOverflow, ProviderError
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    AssistantMessage,
    Message,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    decode_message,
    text_of,
    tool_calls,
)
from pi_ls.core.request import good_messages
from pi_ls.loop import AbortSignal, run
from pi_ls.testing import ScriptedModel, answer, call, result, user
from pi_ls.tools import DEFAULT_TOOLS, NoEditor, ProcessGroups, Tool, Toolbox, ToolContext


class Talk:
    """A conversation that is kept in a list, as a session keeps it in a file."""

    def __init__(self, *prompts: Message) -> None:
        self.messages: list[Message] = []
        self.steer: list[Message] = [*prompts]
        self.later: list[Message] = []
        self.tools: Sequence[ToolSpec] = ()

    async def request(self) -> ChatRequest:
        return ChatRequest(messages=tuple(self.messages), tools=tuple(self.tools))

    def steering(self) -> list[Message]:
        taken, self.steer = self.steer, []
        return taken

    def follow_ups(self) -> list[Message]:
        taken, self.later = self.later[:1], self.later[1:]
        return taken


class Notes:
    """A tool that answers with its arguments, shows what it has so far, and can be made to wait."""

    def __init__(self, hold: asyncio.Event | None = None) -> None:
        self.hold = hold
        self.ran: list[str] = []
        self.cancelled = 0
        self.started = asyncio.Event()

    def specs(self) -> list[ToolSpec]:
        return [ToolSpec("note", "", {})]

    async def run(self, call: ToolCall, update: Callable[[ToolOutput], None]) -> ToolOutput:
        self.ran.append(call.id)
        self.started.set()
        update(ToolOutput.of("so far"))
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ToolOutput.of(str(call.arguments.get("text", "")), details={"n": 1})


class Play:
    """A run that is watched to its end: its events, and what it kept."""

    def __init__(self, talk: Talk, model: ScriptedModel, tools: Any = None) -> None:
        self.talk, self.model = talk, model
        self.tools = Notes() if tools is None else tools
        self.signal = AbortSignal()
        self.events: list[events.Event] = []
        self.on: Callable[[events.Event], None] = lambda _: None

    async def to_end(self) -> list[str]:
        async for event in run(self.talk, self.model, self.tools, self.signal):
            self.events.append(event)
            if isinstance(event, events.MessageEnd):
                kept = decode_message(event.message)
                assert kept is not None
                self.talk.messages.append(kept)
            self.on(event)
        return self.names()

    def names(self) -> list[str]:
        return [events.name_of(event) for event in self.events if not isinstance(event, events.MessageUpdate)]

    def said(self) -> list[str]:
        return [
            text_of(one.content)
            for one in self.talk.messages
            if isinstance(one, UserMessage | ToolResultMessage)
        ]

    def last_answer(self) -> AssistantMessage:
        last = self.talk.messages[-1]
        assert isinstance(last, AssistantMessage)
        return last

    def end(self) -> Json:
        assert isinstance(self.events[-1], events.AgentEnd)
        return events.params_of(self.events[-1])


def pairs(names: Sequence[str]) -> None:
    """Every start has its end, and they are nested."""
    open_: list[str] = []
    for name in names:
        if name.endswith("_start"):
            open_.append(name.removesuffix("_start"))
        elif name.endswith("_end"):
            assert open_.pop() == name.removesuffix("_end")
    assert open_ == []


MESSAGE = ["message_start", "message_end"]


async def test_an_answer_without_calls_is_one_turn() -> None:
    play = Play(Talk(user("hi")), ScriptedModel(answer("hello")))
    assert await play.to_end() == ["agent_start", "turn_start", *MESSAGE, *MESSAGE, "turn_end", "agent_end"]
    assert play.talk.messages == [user("hi"), answer("hello").message]
    assert play.end() == {}


async def test_calls_are_run_in_order_and_the_model_is_asked_again() -> None:
    both = answer("now", call("note", "c1", text="a"), call("note", "c2", text="b"))
    play = Play(Talk(user("do")), ScriptedModel(both, answer("done")))
    tool = ["tool_execution_start", "tool_execution_update", "tool_execution_end", *MESSAGE]
    first = ["turn_start", *MESSAGE, *MESSAGE, *tool, *tool, "turn_end"]
    assert await play.to_end() == ["agent_start", *first, "turn_start", *MESSAGE, "turn_end", "agent_end"]
    assert play.said() == ["do", "a", "b"]
    assert play.model.requests[1].messages == tuple(play.talk.messages[:-1])
    [turn, _] = [event for event in play.events if isinstance(event, events.TurnEnd)]
    assert [one["toolCallId"] for one in turn.tool_results] == ["c1", "c2"]
    assert turn.message == [event.message for event in play.events if isinstance(event, events.MessageEnd)][1]


async def test_an_answer_arrives_in_pieces_that_make_it_up() -> None:
    said = answer(
        ThinkingContent("thinking hard about it", "SIG"), "some longer text", call("note", text="quoted")
    )
    play = Play(Talk(user("do")), ScriptedModel(said, answer("")))
    await play.to_end()
    pieces = [
        event.assistant_message_event for event in play.events if isinstance(event, events.MessageUpdate)
    ]
    joined = {
        (one.type, one.content_index): "".join(
            piece.delta for piece in pieces if piece.content_index == one.content_index
        )
        for one in pieces
    }
    assert joined == {
        ("thinking_delta", 0): "thinking hard about it",
        ("text_delta", 1): "some longer text",
        ("toolcall_delta", 2): '{"text":"quoted"}',
    }
    assert events.params_of(
        next(event for event in play.events if isinstance(event, events.MessageUpdate))
    ) == {"assistantMessageEvent": {"type": "thinking_delta", "contentIndex": 0, "delta": "thinking h"}}
    [first] = [piece for piece in pieces if piece.tool_call_id == "c1"]
    assert (first.content_index, first.tool_name) == (2, "note")


async def test_events_of_tools_say_what_was_called_and_what_came_of_it() -> None:
    play = Play(Talk(user("do")), ScriptedModel(answer(call("note", text="a")), answer("")))
    await play.to_end()
    told = [events.params_of(event) for event in play.events if events.name_of(event).startswith("tool_")]
    named = {"toolCallId": "c1", "toolName": "note"}
    assert told == [
        named | {"args": {"text": "a"}},
        named | {"args": {"text": "a"}, "partialResult": told_text("so far")},
        named | {"result": told_text("a") | {"details": {"n": 1}}, "isError": False},
    ]


def told_text(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


async def test_steering_comes_after_the_running_batch_and_before_the_next_request() -> None:
    play = Play(
        Talk(user("do")), ScriptedModel(answer(call("note"), call("note", "c2")), answer("ok"), answer("x"))
    )

    def steer(event: events.Event) -> None:
        if isinstance(event, events.ToolExecutionStart) and event.tool_call_id == "c1":
            play.talk.steer.append(user("faster"))

    play.on = steer
    await play.to_end()
    assert play.said() == ["do", "", "", "faster"]
    assert play.talk.messages[4] == play.model.requests[1].messages[-1] == user("faster")
    assert len(play.model.requests) == 2


async def test_follow_ups_wait_until_the_agent_would_stop_and_steering_goes_first() -> None:
    play = Play(Talk(user("do")), ScriptedModel(answer(call("note")), after=answer("ok")))
    play.talk.later = [user("then"), user("at last")]

    def steer(event: events.Event) -> None:
        if isinstance(event, events.TurnEnd) and len(play.model.requests) == 2:
            play.talk.steer.append(user("first"))

    play.on = steer
    await play.to_end()
    assert play.said() == ["do", "", "first", "then", "at last"]
    assert len(play.model.requests) == 5


@pytest.mark.parametrize("kind", [ProviderError, ContextOverflow])
async def test_a_failing_provider_ends_everything_and_is_raised(kind: type[ProviderError]) -> None:
    play = Play(Talk(user("do")), ScriptedModel(kind("The provider is down.", provider="fake")))
    with pytest.raises(kind, match="is down"):
        await play.to_end()
    pairs(play.names())
    assert play.end() == {"errorMessage": "The provider is down."}
    last = play.last_answer()
    assert (last.stop_reason, last.error_message, last.model) == (
        "error",
        "The provider is down.",
        "scripted",
    )


async def test_what_had_arrived_before_a_failure_is_kept() -> None:
    class Breaks(ScriptedModel):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
            async for event in super().stream(request):
                if isinstance(event, Answer):
                    raise ProviderError("gone", provider="fake")
                yield event

    play = Play(Talk(user("do")), Breaks(answer(ThinkingContent("hm"), "half of it", call("note"))))
    with pytest.raises(ProviderError):
        await play.to_end()
    last = play.last_answer()
    assert (text_of(last.content), tool_calls(last), last.stop_reason) == ("half of it", [], "error")


async def test_a_fault_of_the_model_s_code_ends_everything_too() -> None:
    play = Play(Talk(user("do")), ScriptedModel(lambda _: answer(str(1 // 0))))
    with pytest.raises(ZeroDivisionError):
        await play.to_end()
    pairs(play.names())
    assert "ZeroDivisionError" in play.end()["errorMessage"]


async def test_an_answer_that_failed_by_itself_runs_no_tool() -> None:
    play = Play(Talk(user("do")), ScriptedModel(answer("no", call("note"), stop_reason="error")))
    await play.to_end()
    assert play.tools.ran == []
    assert len(play.model.requests) == 1


async def test_bad_arguments_are_answered_and_never_run() -> None:
    made = answer(call("note", "c1"), call("note", "c2", text="fine"))
    bad = Answer(made.message, {"c1": "The arguments are not valid JSON."})
    play = Play(Talk(user("do")), ScriptedModel(bad, answer("ok")))
    await play.to_end()
    assert play.tools.ran == ["c2"]
    assert play.said() == ["do", "The arguments are not valid JSON.", "fine"]
    told = play.talk.messages[2]
    assert isinstance(told, ToolResultMessage)
    assert told.is_error


async def test_aborting_while_the_model_is_silent_closes_the_stream_at_once() -> None:
    play = Play(Talk(user("do")), ScriptedModel(answer("never"), hold=asyncio.Event()))
    task = asyncio.ensure_future(play.to_end())
    while not play.model.requests:
        await asyncio.sleep(0)
    started = time.monotonic()
    play.signal.abort()
    pairs(await task)
    assert time.monotonic() - started < 0.5
    assert play.model.closed == 1
    assert play.end() == {}
    last = play.last_answer()
    assert (last.stop_reason, last.content) == ("aborted", ())


async def test_aborting_in_the_middle_of_an_answer_keeps_its_text() -> None:
    play = Play(Talk(user("do")), ScriptedModel(answer("0123456789 and more", call("note"))))

    def stop(event: events.Event) -> None:
        if isinstance(event, events.MessageUpdate):
            play.signal.abort()

    play.on = stop
    pairs(await play.to_end())
    last = play.last_answer()
    assert (text_of(last.content), last.stop_reason) == ("0123456789", "aborted")
    assert play.tools.ran == []


async def test_aborting_a_tool_answers_its_call_with_what_it_had_shown_and_those_that_wait() -> None:
    tools = Notes(asyncio.Event())
    play = Play(Talk(user("do")), ScriptedModel(answer(call("note", "c1"), call("note", "c2"))), tools)
    task = asyncio.ensure_future(play.to_end())
    await tools.started.wait()
    play.signal.abort()
    pairs(await task)
    assert (tools.ran, tools.cancelled) == (["c1"], 1)
    assert play.said() == ["do", "so far\n\naborted", "not run: the run was aborted"]
    assert len(play.model.requests) == 1
    assert good_messages(play.talk.messages) == play.talk.messages  # whole, and ready to go on with


async def test_a_run_whose_reader_leaves_cancels_what_it_was_doing() -> None:
    tools = Notes(asyncio.Event())
    playing = run(Talk(user("do")), ScriptedModel(answer(call("note"))), tools, AbortSignal())
    async for event in playing:
        if isinstance(event, events.ToolExecutionUpdate):
            break
    await playing.aclose()
    assert tools.cancelled == 1


async def test_a_run_whose_task_is_cancelled_cancels_what_it_was_doing() -> None:
    tools = Notes(asyncio.Event())
    task = asyncio.ensure_future(Play(Talk(user("do")), ScriptedModel(answer(call("note"))), tools).to_end())
    await tools.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tools.cancelled == 1


async def test_going_on_needs_no_new_message() -> None:
    talk = Talk()
    talk.messages = [user("do"), *answer_and_result()]
    play = Play(talk, ScriptedModel(answer("done")))
    assert await play.to_end() == ["agent_start", "turn_start", *MESSAGE, "turn_end", "agent_end"]


def answer_and_result() -> list[Message]:
    return [answer(call("note")).message, result("out", tool="note")]


async def test_an_agent_with_real_tools_changes_a_real_file(tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text("def add(a, b):\n    return a - b\n")

    async def allow(call: ToolCall, tool: Tool[Any], summary: str) -> None:
        return None

    context = ToolContext(folder=tmp_path, workspace=NoEditor(), trusted=True, processes=ProcessGroups())
    script = [
        answer("Looking.", call("read", "c1", path="sum.py")),
        answer(call("edit", "c2", path="sum.py", edits=[{"oldText": "a - b", "newText": "a + b"}])),
        answer(call("bash", "c3", command="grep -c 'a + b' sum.py"), call("read", "c4", path="missing")),
        answer("Done."),
    ]
    play = Play(Talk(user("fix it")), ScriptedModel(*script), Toolbox(DEFAULT_TOOLS, context, allow))
    pairs(await play.to_end())
    assert play.said()[1:4] == [
        "def add(a, b):\n    return a - b\n",
        "Replaced 1 piece of text in sum.py.",
        "1",
    ]
    assert "No such file" in play.said()[4]
    assert (tmp_path / "sum.py").read_text() == "def add(a, b):\n    return a + b\n"


async def test_aborting_a_real_command_leaves_no_process_and_takes_less_than_a_second(tmp_path: Path) -> None:
    async def allow(call: ToolCall, tool: Tool[Any], summary: str) -> None:
        return None

    processes = ProcessGroups()
    context = ToolContext(folder=tmp_path, workspace=NoEditor(), trusted=True, processes=processes)
    model = ScriptedModel(answer(call("bash", command="echo $$; sleep 60")))
    play = Play(Talk(user("wait")), model, Toolbox(DEFAULT_TOOLS, context, allow))
    pids: list[str] = []
    stopped = 0.0

    def stop(event: events.Event) -> None:
        nonlocal stopped
        if isinstance(event, events.ToolExecutionUpdate):
            pids.append(event.partial_result["content"][0]["text"].strip())
            stopped = time.monotonic()
            play.signal.abort()

    play.on = stop
    pairs(await play.to_end())
    assert time.monotonic() - stopped < 1
    assert not Path(f"/proc/{pids[0]}").exists()
