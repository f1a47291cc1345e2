"""What the agent asks a model, and how the answer comes back: values and one protocol, no provider.

Whoever speaks to a provider turns its stream into these events; the loop knows nothing else of it. A
standalone question that needs no tools (a summary) is another, simpler thing and not here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

import msgspec

from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import AssistantMessage, Block, Message, TextContent, ThinkingContent


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Json


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request: a system prompt, the conversation as it is kept, and the tools there are.

    `messages` hold the roles `user`, `assistant`, `toolResult` and `system` only. They are made good for
    the provider (`request.good_messages`) by whoever sends them.
    """

    system: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    thinking_level: str = "off"
    tokens: float = 0
    """How long it is thought to be; 0 where nobody knows. An answer has what the window leaves."""


class TextDelta(msgspec.Struct, frozen=True):
    """More text of the content block at `index`."""

    index: int
    delta: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """More reasoning of the content block at `index`."""

    index: int
    delta: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """More argument text of the tool call at `index`; the first one of a call has its id and name."""

    index: int
    delta: str
    id: str = ""
    name: str = ""


class Answer(msgspec.Struct, frozen=True):
    """The whole answer; always the last event of a stream.

    The ids of its tool calls are not empty and differ. `bad_arguments` maps the id of each call whose
    arguments could not be read (`arguments.parse_arguments`) to a sentence that says why; such a call holds
    an empty object and is never run.
    """

    message: AssistantMessage
    bad_arguments: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


StreamEvent = TextDelta | ThinkingDelta | ToolCallDelta | Answer


class ChatModel(Protocol):
    """A model that holds a conversation.

    `stream` yields deltas as they arrive and then one `Answer`; it sends one request. It raises a
    `ProviderError` (`ContextOverflow` where the request was too long) or `NoCredentials`, also after some
    deltas; cancelling the task that reads it closes the connection at once. `provider`, `id` and `api` are
    what an answer is stored with.
    """

    @property
    def provider(self) -> str:
        """pi's id of the provider."""
        ...

    @property
    def id(self) -> str:
        """The provider's id of the model."""
        ...

    @property
    def api(self) -> str:
        """pi's name of the interface the model is reached by."""
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        """The answer to a request, piece by piece."""
        ...


class Draft:
    """An answer as far as it has come: what is kept of it when the stream breaks off or is stopped.

    Half a tool call is worth nothing, and reasoning without its signature can be shown but not sent again.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[type[TextContent] | type[ThinkingContent], list[str]]] = {}

    def add(self, event: StreamEvent) -> None:
        """Take in one event of the stream."""
        match event:
            case TextDelta():
                self._pieces.setdefault(event.index, (TextContent, []))[1].append(event.delta)
            case ThinkingDelta():
                self._pieces.setdefault(event.index, (ThinkingContent, []))[1].append(event.delta)
            case _:
                pass

    def message(
        self, model: ChatModel, stop_reason: str, error: str | None, now_ms: float
    ) -> AssistantMessage:
        """The answer so far as a message that ended in `stop_reason` (`error` or `aborted`)."""
        blocks: list[Block] = [kind("".join(pieces)) for _, (kind, pieces) in sorted(self._pieces.items())]
        return AssistantMessage(
            content=tuple(blocks),
            api=model.api,
            provider=model.provider,
            model=model.id,
            stop_reason=stop_reason,
            error_message=error,
            timestamp=now_ms,
        )


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answered: content for the model, `details` for whoever shows it (plain JSON or None)."""

    content: tuple[Block, ...] = ()
    is_error: bool = False
    details: Any = None

    @classmethod
    def of(cls, text: str, *, is_error: bool = False, details: Any = None) -> ToolOutput:
        """An output of one text."""
        return cls(content=(TextContent(text),), is_error=is_error, details=details)
