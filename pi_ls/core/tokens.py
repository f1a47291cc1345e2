"""How many tokens messages and entries weigh, by estimate.

Two scales. With a tokenizer, the text that goes out is counted exactly. Without one, pi's heuristic: a
token for every four UTF-16 code units. What a provider measured is not here but in `context.py`.
Source: seeds 001 and 002 (`estimateTokens`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from pi_ls.core.entries import Entry, message_of
from pi_ls.core.jsonvalues import stringify
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    ImageContent,
    Message,
    OtherMessage,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

CountText = Callable[[str], int]
"""The number of tokens of a text; may be called from any thread."""

CHARS_PER_TOKEN: Final = 4
IMAGE_CHARS: Final = 4_800
"""What an image weighs in the heuristic, whatever its size: providers bill pixels, not base64."""
IMAGE_TOKENS: Final = 1_200
"""What an image weighs beside counted text."""


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units, which is JavaScript's `length`."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def estimate_tokens(message: Message, count_text: CountText | None = None) -> int:
    """The tokens of one message: counted with `count_text`, or by pi's heuristic where that is None.

    System messages and roles nobody knows weigh nothing: they are no part of the conversation. An excluded
    bash command weighs nothing when counted, since it is not sent; the heuristic counts it, as pi does.
    """
    texts, images = _weighable(message)
    if count_text is None:
        chars = sum(map(utf16_length, texts)) + images * IMAGE_CHARS
        return -(-chars // CHARS_PER_TOKEN)
    if isinstance(message, BashExecutionMessage) and message.exclude_from_context:
        return 0
    return sum(count_text(text) for text in texts if text) + images * IMAGE_TOKENS


def _weighable(message: Message) -> tuple[list[str], int]:
    """The texts of a message and the number of its images."""
    match message:
        case UserMessage() | ToolResultMessage() | CustomMessage():
            return _of_content(message.content)
        case AssistantMessage():
            texts: list[str] = []
            for block in message.content:
                match block:
                    case TextContent():
                        texts.append(block.text)
                    case ThinkingContent():
                        texts.append(block.thinking)
                    case ToolCall():
                        texts += (block.name, stringify(block.arguments))
                    case _:
                        pass
            return texts, 0
        case BashExecutionMessage():
            return [message.command, message.output], 0
        case CompactionSummaryMessage() | BranchSummaryMessage():
            return [message.summary], 0
        case SystemMessage() | OtherMessage():
            return [], 0


def _of_content(content: Content) -> tuple[list[str], int]:
    if isinstance(content, str):
        return [content], 0
    texts = [block.text for block in content if isinstance(block, TextContent)]
    return texts, sum(isinstance(block, ImageContent) for block in content)


class TokenCounter:
    """Tokens of messages and entries on one scale; each entry is read and counted once.

    One counter belongs to one session: entries are known by their ids. Two threads may use it at a time; at
    worst both count the same entry.
    """

    def __init__(self, count_text: CountText | None = None) -> None:
        self._count_text = count_text
        self._known: dict[str, int] = {}
        self.name: Literal["chars", "tiktoken"] = "chars" if count_text is None else "tiktoken"
        """Which scale it is, by the name the setting has."""

    def message(self, message: Message) -> int:
        """The tokens of a message (not remembered: a message has no id)."""
        return estimate_tokens(message, self._count_text)

    def entry(self, entry: Entry) -> int:
        """The tokens of the context message the entry yields by itself; 0 for a state entry."""
        tokens = self._known.get(entry.id)
        if tokens is None:
            message = message_of(entry)
            tokens = 0 if message is None else self.message(message)
            self._known[entry.id] = tokens
        return tokens

    def forget(self, entry_id: str) -> None:
        """Count the entry again when it is next asked for: its content has changed."""
        self._known.pop(entry_id, None)
