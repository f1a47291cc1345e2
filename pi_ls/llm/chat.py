"""A conversation over litellm: requests with tools, and answers as they are written.

What a provider streams is put together here: pieces of text, reasoning with its signature, several tool calls
at once. Servers differ in how they number and name the pieces of a call, and none of that may show.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from pi_ls.core.arguments import BadArguments, parse_arguments
from pi_ls.core.chat import Answer, ChatRequest, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta
from pi_ls.core.jsonvalues import Json, is_object, string
from pi_ls.core.messages import AssistantMessage, Block, TextContent, ThinkingContent, ToolCall
from pi_ls.core.request import ChatForm, chat_messages, chat_tools, good_messages
from pi_ls.llm.answers import usage_from_litellm
from pi_ls.llm.asking import limit_name, session_routing, thinking
from pi_ls.llm.connection import Connection
from pi_ls.llm.library import library

if TYPE_CHECKING:
    from pi_ls.models import ModelInfo

_STOP_REASONS = {"stop": "stop", "length": "length", "tool_calls": "toolUse", "function_call": "toolUse"}
_LONGEST_ANSWER = 32_000
_SHORTEST_ANSWER = 1_024
_INEXACT = 1.02
"""How much longer a request may be than it is thought to be."""
_ANTHROPIC_ANSWER = 8_192
"""Tokens of an answer where nothing is known: that interface must be told a limit."""


class LitellmChat:
    """A model that holds a conversation (`core.chat.ChatModel`), reached through litellm."""

    def __init__(
        self, info: ModelInfo, api_key: str | None = None, *, routing_id: str, timeout_ms: int = 120_000
    ) -> None:
        """Args:
        info: What to ask, and where.
        api_key: The provider's key; None where it needs none.
        routing_id: The same for all requests of one conversation, so that a provider finds its cache again.
        timeout_ms: The longest silence between two bytes, in milliseconds.
        """
        self.provider, self.id = info.provider, info.id
        self.api = info.api or info.litellm_model.partition("/")[0]
        self._info = info
        self._routing_id = routing_id
        self._connection = Connection(info, api_key, timeout_ms)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        """See `ChatModel.stream`."""
        self._connection.require_supported()
        told = library.stream(lambda litellm: self._stream(litellm, request))
        async with contextlib.aclosing(told) as events:
            async for event in events:
                yield event

    async def _stream(self, litellm: Any, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        info = self._info
        anthropic = info.litellm_model.startswith("anthropic/")
        form = ChatForm(provider=self.provider, model=self.id, thinking_blocks=anthropic)
        messages = chat_messages(good_messages(request.messages), form, system=request.system)
        limit = _limit(info, anthropic, request.tokens)
        more: Json = {} if limit is None else {limit_name(info): limit}
        more |= session_routing(info, self._routing_id)
        more |= thinking(info, request.thinking_level, limit or _LONGEST_ANSWER, litellm.model_cost)
        if request.tools:
            more["tools"] = chat_tools(request.tools)
        writing = _Writing()
        async with contextlib.aclosing(self._connection.chunks(litellm, messages, **more)) as chunks:
            async for chunk in chunks:
                for event in writing.add(chunk):
                    yield event
        if writing.is_nothing:
            raise self._connection.failure("the answer was empty", retryable=True)
        yield writing.answer(self)

    @property
    def info(self) -> ModelInfo:
        """What the model is."""
        return self._info


def _limit(info: ModelInfo, anthropic: bool, tokens: float) -> int | None:
    """The longest answer to ask for; None leaves it to the provider.

    Never more than half the window, nor than what a request of so many tokens leaves of it: some providers
    refuse a request whose answer might not fit.
    """
    known = info.max_tokens or (_ANTHROPIC_ANSWER if anthropic else None)
    if known is None:
        return None
    limit = min(known, _LONGEST_ANSWER)
    if info.context_window:
        room = int(info.context_window - tokens * _INEXACT)
        limit = min(limit, info.context_window // 2, max(room, _SHORTEST_ANSWER))
    return max(1, limit)


class _Call:
    """A tool call that is being written."""

    def __init__(self, number: int | None) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.arguments = ""


class _Thought:
    """Reasoning that is being written."""

    def __init__(self) -> None:
        self.text = ""
        self.signature = ""
        self.redacted = False


class _Text:
    """Text that is being written."""

    def __init__(self) -> None:
        self.text = ""


class _Writing:
    """Takes in litellm's chunks, tells what is new in each, and puts the answer together."""

    def __init__(self) -> None:
        self._blocks: list[_Call | _Thought | _Text] = []
        self._usage: Json = {}
        self._finish = "stop"

    @property
    def is_nothing(self) -> bool:
        """Whether nothing at all came: some servers answer so instead of failing."""
        return not self._blocks and not self._usage and self._finish == "stop"

    def add(self, chunk: Any) -> Iterable[StreamEvent]:
        """One more chunk; text, reasoning, calls, finish and usage come in any of them."""
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self._usage = usage.model_dump(exclude_none=True)
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        yield from self._add_thinking(choice.delta)
        if choice.delta.content:
            yield from self._add_text(choice.delta.content)
        for piece in choice.delta.tool_calls or ():
            yield from self._add_call(piece)
        if choice.finish_reason:
            self._finish = choice.finish_reason

    def _add_text(self, text: str) -> Iterable[StreamEvent]:
        block = self._blocks[-1] if self._blocks else None
        if not isinstance(block, _Text):
            block = _Text()
            self._blocks.append(block)
        block.text += text
        yield TextDelta(len(self._blocks) - 1, text)

    def _add_thinking(self, delta: Any) -> Iterable[StreamEvent]:
        signed = [part for part in getattr(delta, "thinking_blocks", None) or () if is_object(part)]
        for part in signed:
            if part.get("type") == "redacted_thinking":
                block = _Thought()
                block.signature, block.redacted = string(part.get("data")), True
                self._blocks.append(block)
        text = getattr(delta, "reasoning_content", None) or ""
        signature = "".join(string(part.get("signature")) for part in signed)
        if not text and not signature:
            return
        block = self._blocks[-1] if self._blocks else None
        if not isinstance(block, _Thought) or block.redacted or (block.signature and text):
            block = _Thought()
            self._blocks.append(block)
        block.text += text
        block.signature += signature
        if text:
            yield ThinkingDelta(len(self._blocks) - 1, text)

    def _add_call(self, piece: Any) -> Iterable[StreamEvent]:
        call = self._call_of(piece.id or "", getattr(piece, "index", None))
        if call is None:
            call = _Call(getattr(piece, "index", None))
            self._blocks.append(call)
        index = self._blocks.index(call)
        call.id = call.id or piece.id or ""
        first = not call.name
        call.name = call.name or piece.function.name or ""
        arguments = piece.function.arguments or ""
        call.arguments += arguments
        named = first and bool(call.name)
        if arguments or named:
            yield ToolCallDelta(index, arguments, call.id if named else "", call.name if named else "")

    def _call_of(self, call_id: str, number: int | None) -> _Call | None:
        """The call a piece belongs to: by its id, else by its number; a new id begins a new call."""
        calls = [block for block in self._blocks if isinstance(block, _Call)]
        if call_id:
            known = next((call for call in calls if call.id == call_id), None)
            unnamed = next((call for call in reversed(calls) if call.number == number and not call.id), None)
            return known or unnamed
        if number is None:
            return calls[-1] if calls else None
        return next((call for call in reversed(calls) if call.number == number), None)

    def answer(self, model: LitellmChat) -> Answer:
        """The whole answer, once the stream has ended."""
        bad: dict[str, str] = {}
        content = tuple(self._block(block, bad) for block in self._blocks)
        calls = any(isinstance(block, ToolCall) for block in content)
        stop = _STOP_REASONS.get(self._finish, "error")
        withheld = f"The provider withheld the answer ({self._finish})." if stop == "error" else None
        message = AssistantMessage(
            content=content,
            api=model.api,
            provider=model.provider,
            model=model.id,
            usage=usage_from_litellm(self._usage, model.info.cost),
            stop_reason="toolUse" if calls and stop == "stop" else stop,
            error_message=withheld,
            timestamp=time.time_ns() // 1_000_000,
        )
        return Answer(message, bad)

    @staticmethod
    def _block(block: _Call | _Thought | _Text, bad: dict[str, str]) -> Block:
        match block:
            case _Text():
                return TextContent(block.text)
            case _Thought():
                return ThinkingContent(block.text, block.signature or None, block.redacted)
            case _Call():
                call = ToolCall(block.id or f"call_{uuid.uuid4().hex[:24]}", block.name)
                try:
                    return msgspec.structs.replace(call, arguments=parse_arguments(block.arguments))
                except BadArguments as error:
                    bad[call.id] = str(error)
                    return call
