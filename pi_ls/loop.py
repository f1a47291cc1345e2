"""The agent loop: ask the model, run the tools it calls, and so on until it calls none.

It knows no session: where messages come from and go to, what a tool may do and what happens between two
turns are other people's business. It yields every event in order and goes on when the next one is asked for,
so whoever reads it can do its own work in between, such as keeping a message or making room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol, TypeVar

import msgspec

from pi_ls.core import events
from pi_ls.core.chat import (
    Answer,
    ChatModel,
    ChatRequest,
    Draft,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolOutput,
    ToolSpec,
)
from pi_ls.core.errors import PiError
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    encode_message,
    text_of,
    tool_calls,
)
from pi_ls.core.request import FAILED_STOPS

T = TypeVar("T")
ABORTED = "aborted"
NOT_RUN = "not run: the run was aborted"
Events = AsyncGenerator[events.Event, None]


class Aborted(Exception):
    """Somebody asked for the run to stop. Raised by `AbortSignal.guard`; a run itself ends in order."""


class AbortSignal:
    """Asks a run to stop, once and for all."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def aborted(self) -> bool:
        """Whether the run shall stop."""
        return self._event.is_set()

    def abort(self) -> None:
        """Stop the run. What it waits for is cancelled at once."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until the run shall stop."""
        await self._event.wait()

    async def guard(self, work: Awaitable[T]) -> T:
        """Wait for `work`; cancelled, to its end, where the signal comes first, and then raises Aborted."""
        if self.aborted:
            if isinstance(work, Coroutine):
                work.close()
            raise Aborted
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Aborted
        finally:
            stop.cancel()
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # of something that was given up: nobody else asks


class Conversation(Protocol):
    """Where a run gets its messages from. Those it makes are told in `MessageEnd` and kept by its reader."""

    async def request(self) -> ChatRequest:
        """The next request, made of everything that was kept so far."""
        ...

    def steering(self) -> Sequence[Message]:
        """Messages that wait for the end of the turn (at the start: the prompt), taken out of their queue."""
        ...

    def follow_ups(self) -> Sequence[Message]:
        """Messages that wait until the agent would stop, taken out of their queue."""
        ...


class Tools(Protocol):
    """What the agent can do."""

    def specs(self) -> Sequence[ToolSpec]:
        """The tools as a model is told of them."""
        ...

    async def run(self, call: ToolCall, update: Callable[[ToolOutput], None]) -> ToolOutput:
        """Carry out a call. Does not raise: what goes wrong is an output that says so."""
        ...


async def run(conversation: Conversation, model: ChatModel, tools: Tools, signal: AbortSignal) -> Events:
    """Work until the model calls no tool and nobody has anything to add, or an answer fails or is aborted.

    Everything that was started is also ended, in whatever way it goes. What the model raised is raised again
    after the last event; a run that was aborted ends without.
    """
    waiting = conversation.steering()
    yield events.AgentStart()
    while True:
        yield events.TurnStart()
        for message in waiting:
            yield events.MessageStart(message=encode_message(message))
            yield events.MessageEnd(message=encode_message(message))
        asking = _Asking(conversation, model, signal)
        async with aclosing(asking.play()) as said:
            async for event in said:
                yield event
        answer, failed = asking.message, asking.message.stop_reason in FAILED_STOPS
        results: list[Json] = []
        calls = () if failed else tool_calls(answer)
        for call in calls:
            acting = _Acting(call, tools, signal, asking.bad_arguments)
            async with aclosing(acting.play()) as done:
                async for event in done:
                    yield event
            results.append(acting.result)
        yield events.TurnEnd(message=encode_message(answer), tool_results=results)
        if failed or signal.aborted:
            break
        waiting = conversation.steering() or ([] if calls else conversation.follow_ups())
        if not calls and not waiting:
            break
    error = answer.error_message if answer.stop_reason == "error" else None
    yield events.AgentEnd(error_message=error or msgspec.UNSET)
    if asking.failure is not None:
        raise asking.failure


class _Asking:
    """One request and its answer."""

    def __init__(self, conversation: Conversation, model: ChatModel, signal: AbortSignal) -> None:
        self._conversation, self._model, self._signal = conversation, model, signal
        self._draft = Draft()
        self.message = AssistantMessage()
        self.failure: Exception | None = None
        self.bad_arguments: Mapping[str, str] = {}

    async def play(self) -> Events:
        begun = False
        answer: Answer | None = None
        try:
            request = await self._signal.guard(self._conversation.request())
            async with aclosing(self._model.stream(request)) as stream:
                while (piece := await self._signal.guard(anext(stream, None))) is not None:
                    if not begun:
                        begun = True
                        yield events.MessageStart(message=encode_message(self._so_far("stop")))
                    if isinstance(piece, Answer):
                        answer = piece
                    else:
                        self._draft.add(piece)
                        yield _update(piece)
        except Aborted:
            self.message = self._so_far("aborted", ABORTED)
        except Exception as error:  # noqa: BLE001 - raised again by `run` once everything is ended
            self.failure = error
            told = error.message if isinstance(error, PiError) else f"{type(error).__name__}: {error}"
            self.message = self._so_far("error", told)
        else:
            if answer is None:
                self.message = self._so_far("error", "The model's answer has no end.")
            else:
                self.message, self.bad_arguments = answer.message, answer.bad_arguments
        if not begun:
            yield events.MessageStart(message=encode_message(self.message))
        yield events.MessageEnd(message=encode_message(self.message))

    def _so_far(self, stop_reason: str, error: str | None = None) -> AssistantMessage:
        return self._draft.message(self._model, stop_reason, error, _now_ms())


class _Acting:
    """One tool call and its result, which is a message of its own."""

    def __init__(self, call: ToolCall, tools: Tools, signal: AbortSignal, bad: Mapping[str, str]) -> None:
        self._call, self._tools, self._signal, self._bad = call, tools, signal, bad
        self.result: Json = {}

    async def play(self) -> Events:
        call = self._call
        yield events.ToolExecutionStart(tool_call_id=call.id, tool_name=call.name, args=call.arguments)
        output = ToolOutput.of(ABORTED if not self._signal.aborted else NOT_RUN, is_error=True)
        if call.id in self._bad:
            output = ToolOutput.of(self._bad[call.id], is_error=True)
        elif not self._signal.aborted:
            shown: asyncio.Queue[ToolOutput | None] = asyncio.Queue()
            running = asyncio.ensure_future(self._signal.guard(self._tools.run(call, shown.put_nowait)))
            running.add_done_callback(lambda _: shown.put_nowait(None))
            try:
                while (partial := await shown.get()) is not None:
                    output = _broken_off(partial)
                    yield events.ToolExecutionUpdate(
                        tool_call_id=call.id,
                        tool_name=call.name,
                        args=call.arguments,
                        partial_result=_result_of(partial),
                    )
                output = await running
            except Aborted:
                pass
            finally:
                running.cancel()
                await asyncio.wait({running})
        message = ToolResultMessage(
            tool_call_id=call.id,
            tool_name=call.name,
            content=output.content,
            is_error=output.is_error,
            details=output.details,
            timestamp=_now_ms(),
        )
        self.result = encode_message(message)
        yield events.ToolExecutionEnd(
            tool_call_id=call.id, tool_name=call.name, result=_result_of(output), is_error=output.is_error
        )
        yield events.MessageStart(message=self.result)
        yield events.MessageEnd(message=self.result)


def _broken_off(partial: ToolOutput) -> ToolOutput:
    """What a tool that was aborted answers: what it has done and shown until then has happened."""
    shown = text_of(partial.content).rstrip()
    return ToolOutput.of(f"{shown}\n\n{ABORTED}".lstrip(), is_error=True)


def _update(piece: TextDelta | ThinkingDelta | ToolCallDelta) -> events.MessageUpdate:
    kinds = {TextDelta: "text_delta", ThinkingDelta: "thinking_delta", ToolCallDelta: "toolcall_delta"}
    delta = {"type": kinds[type(piece)], "contentIndex": piece.index, "delta": piece.delta}
    if isinstance(piece, ToolCallDelta) and piece.id:
        delta |= {"toolCallId": piece.id, "toolName": piece.name}
    return events.MessageUpdate(assistant_message_event=msgspec.convert(delta, events.MessageDelta))


def _result_of(output: ToolOutput) -> Json:
    result: Json = {"content": [msgspec.to_builtins(block) for block in output.content]}
    return result if output.details is None else result | {"details": output.details}


def _now_ms() -> float:
    return int(time.time() * 1000)
