"""For tests and for people who write hooks: a model that follows a script, and small builders.

Nothing here pretends to be a provider; it stands where one would be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any

import msgspec

from pi_ls.core.chat import (
    Answer,
    ChatRequest,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from pi_ls.core.entries import SESSION_VERSION, Entry, Header, iso_time
from pi_ls.core.errors import PiError
from pi_ls.core.jsonvalues import Json, dumps
from pi_ls.core.messages import (
    AssistantMessage,
    Block,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    encode_message,
)

PROVIDER, MODEL, API = "fake", "scripted", "scripted"

Step = Answer | PiError | Callable[[ChatRequest], "Answer | PiError"]
"""One answer of a script: as it is, an error to raise, or made from the request."""


class ScriptedModel:
    """A model that answers with the steps of a script, in order, and keeps the requests it got.

    Texts are streamed in pieces of `piece` characters. `hold` makes it wait before it answers until the event
    is set; a script that is over answers `after`.
    """

    def __init__(
        self, *script: Step, piece: int = 10, after: Step | None = None, hold: asyncio.Event | None = None
    ) -> None:
        self.provider, self.id, self.api = PROVIDER, MODEL, API
        self.requests: list[ChatRequest] = []
        self.closed = 0
        """How many streams were left before their end."""
        self._script = list(script)
        self._after = after
        self._piece = piece
        self._hold = hold

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        """The next answer of the script, piece by piece."""
        self.requests.append(request)
        try:
            step = self._script.pop(0) if self._script else self._after
            if step is None:
                raise AssertionError(f"the script has no answer to request {len(self.requests)}")
            if self._hold is not None:
                await self._hold.wait()
            made = step(request) if callable(step) else step
            if isinstance(made, PiError):
                raise made
            for index, block in enumerate(made.message.content):
                for delta in self._pieces(index, block):
                    yield delta
                    await asyncio.sleep(0)
            yield made
        except (asyncio.CancelledError, GeneratorExit):
            self.closed += 1
            raise

    def _pieces(self, index: int, block: Block) -> Iterable[StreamEvent]:
        match block:
            case TextContent():
                yield from (TextDelta(index, part) for part in self._cut(block.text))
            case ThinkingContent():
                yield from (ThinkingDelta(index, part) for part in self._cut(block.thinking))
            case ToolCall():
                first, *rest = [*self._cut(dumps(block.arguments).decode())]
                yield ToolCallDelta(index, first, block.id, block.name)
                yield from (ToolCallDelta(index, part) for part in rest)
            case _:
                pass

    def _cut(self, text: str) -> Iterable[str]:
        return (text[at : at + self._piece] for at in range(0, len(text), self._piece))


def user(text: str) -> UserMessage:
    """What a person says."""
    return UserMessage((TextContent(text),), timestamp=1)


def call(name: str, id: str = "c1", **arguments: Any) -> ToolCall:
    """A tool call."""
    return ToolCall(id, name, arguments)


def assistant(
    *said: str | Block, total: float = 0, stop_reason: str | None = None, error: str | None = None
) -> AssistantMessage:
    """An answer of texts and blocks; `total` is its measured usage (0: none was told)."""
    content = tuple(TextContent(one) if isinstance(one, str) else one for one in said)
    calls = any(isinstance(block, ToolCall) for block in content)
    return AssistantMessage(
        content=content,
        api=API,
        provider=PROVIDER,
        model=MODEL,
        usage=Usage(input=total, total_tokens=total) if total else None,
        stop_reason=stop_reason or ("toolUse" if calls else "stop"),
        error_message=error,
        timestamp=2,
    )


def answer(*said: str | Block, total: float = 0, stop_reason: str | None = None) -> Answer:
    """A step of a script: an answer of texts and blocks."""
    return Answer(assistant(*said, total=total, stop_reason=stop_reason))


def result(
    text: str, call_id: str = "c1", tool: str = "bash", *, is_error: bool = False
) -> ToolResultMessage:
    """What a tool answered."""
    return ToolResultMessage(call_id, tool, (TextContent(text),), is_error, timestamp=3)


def chain(messages: Iterable[Message], *, start_ms: float = 1_767_225_600_000) -> list[Entry]:
    """The messages as entries of one branch, a second apart, with ids `00000001` and so on."""
    parent: str | None = None
    entries: list[Entry] = []
    for number, message in enumerate(messages, 1):
        data: Json = {
            "type": "message",
            "id": f"{number:08x}",
            "parentId": parent,
            "timestamp": iso_time(start_ms + number * 1000),
            "message": encode_message(message),
        }
        parent = data["id"]
        entries.append(Entry.of(data))
    return entries


def session_text(entries: Sequence[Entry], *, cwd: str = "/project", id: str = "session") -> bytes:
    """The bytes of a session file that holds the entries."""
    header = Header(id=id, version=SESSION_VERSION, timestamp=iso_time(1_767_225_600_000), cwd=cwd)
    first: Json = {"type": "session"} | msgspec.to_builtins(header)
    return b"".join(dumps(line) + b"\n" for line in [first, *(entry.data for entry in entries)])
