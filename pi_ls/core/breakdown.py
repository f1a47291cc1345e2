"""What a context is made of: estimated tokens by category and by file.

The categories are those an editor shows beside its meter. They are estimates of the same messages the
model sees; what a measured total holds beyond them (the provider's own framing, a system prompt we do not
know) is told as `unattributed`, so that the rows always add up to the total.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Block,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    ImageContent,
    Message,
    SystemMessage,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks_of,
)
from pi_ls.core.tokens import TokenCounter

CATEGORIES = (
    "system",
    "tools",
    "summary",
    "user",
    "assistant",
    "thinking",
    "toolResults",
    "bash",
    "custom",
    "images",
    "unattributed",
)


class Overhead(msgspec.Struct, frozen=True):
    """Estimated tokens of what every request holds besides its messages."""

    system: float = 0
    """The system prompt."""
    tools: float = 0
    """The descriptions of the tools."""

    @property
    def tokens(self) -> float:
        """All of it."""
        return self.system + self.tools


NO_OVERHEAD = Overhead()


class FileTokens(msgspec.Struct, frozen=True):
    """Tokens that tool calls about one file, and their results, take up."""

    path: str
    tokens: float


class Breakdown(msgspec.Struct, frozen=True):
    """`categories` adds up to the total it was made for; `files` is sorted, the largest first."""

    categories: dict[str, float]
    files: tuple[FileTokens, ...]


def breakdown(
    messages: Iterable[Message],
    counter: TokenCounter,
    total: float | None,
    overhead: Overhead = NO_OVERHEAD,
) -> Breakdown:
    """Tokens of a context's messages by category and by file.

    `total` is the size the meter shows, None where it is unknown; what the estimates do not explain goes
    to `unattributed` (never below 0: estimates above the total are scaled down to it). `overhead` is
    what the total holds besides the messages.
    """
    categories: dict[str, float] = dict.fromkeys(CATEGORIES, 0)
    categories |= {"system": overhead.system, "tools": overhead.tools}
    files: dict[str, float] = {}
    path_of_call: dict[str, str] = {}
    for message in messages:
        for category, tokens in _parts(message, counter):
            categories[category] += tokens
        _count_files(message, counter, files, path_of_call)
    estimated = sum(categories.values())
    if total is not None and estimated <= total:
        categories["unattributed"] = total - estimated
    elif total is not None:
        scale = total / estimated
        categories = {category: tokens * scale for category, tokens in categories.items()}
    ranked = sorted(files.items(), key=lambda row: (-row[1], row[0]))
    return Breakdown(categories, tuple(FileTokens(path, tokens) for path, tokens in ranked))


def _parts(message: Message, counter: TokenCounter) -> Iterable[tuple[str, float]]:
    match message:
        case UserMessage():
            yield from _with_images("user", message.content, counter)
        case AssistantMessage():
            thinking = tuple(block for block in message.content if isinstance(block, ThinkingContent))
            rest = tuple(block for block in message.content if not isinstance(block, ThinkingContent))
            yield "thinking", counter.message(AssistantMessage(content=thinking))
            yield "assistant", counter.message(AssistantMessage(content=rest))
        case ToolResultMessage():
            yield from _with_images("toolResults", message.content, counter)
        case BashExecutionMessage():
            yield "bash", counter.message(message)
        case CustomMessage():
            yield from _with_images("custom", message.content, counter)
        case CompactionSummaryMessage() | BranchSummaryMessage():
            yield "summary", counter.message(message)
        case SystemMessage():
            yield "system", counter.message(message)
        case _:
            return


def _with_images(category: str, content: Content, counter: TokenCounter) -> Iterable[tuple[str, float]]:
    blocks = blocks_of(content)
    images: tuple[Block, ...] = tuple(block for block in blocks if isinstance(block, ImageContent))
    texts: tuple[Block, ...] = tuple(block for block in blocks if not isinstance(block, ImageContent))
    yield category, counter.message(UserMessage(texts))
    yield "images", counter.message(UserMessage(images))


def _count_files(
    message: Message, counter: TokenCounter, files: dict[str, float], path_of_call: dict[str, str]
) -> None:
    if isinstance(message, AssistantMessage):
        for call in message.content:
            if isinstance(call, ToolCall) and isinstance(path := call.arguments.get("path"), str):
                path_of_call[call.id] = path
                files[path] = files.get(path, 0) + counter.message(AssistantMessage(content=(call,)))
    elif isinstance(message, ToolResultMessage) and message.tool_call_id in path_of_call:
        path = path_of_call[message.tool_call_id]
        files[path] += counter.message(message)
