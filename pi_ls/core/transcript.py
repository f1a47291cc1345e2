"""Messages as plain text for a summarizer, and which files they read and changed.

A conversation that is to be summarized goes out as text, not as messages: a model that is given turns would
answer them. Text is measured in UTF-16 code units, as everything in a session file is, and a cut never goes
through the middle of a character. Source: seeds 000 and 002, "message serialisation" and "file tracking".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from pi_ls.core.jsonvalues import is_array, is_object, loads, stringify
from pi_ls.core.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
    tool_calls,
)
from pi_ls.core.tokens import utf16_length

TOOL_RESULT_LIMIT = 2_000
"""Longest piece of one tool result in a transcript, in UTF-16 code units."""


def serialize_conversation(messages: Sequence[Message]) -> str:
    """Messages as labelled paragraphs, an empty line between them.

    Takes messages as `convert_to_llm` gives them; user, assistant and tool result messages speak, other
    roles say nothing here. Nothing is altered but tool results over `TOOL_RESULT_LIMIT`, which are cut, with
    a note that says how much was left out. Source: seed 002.
    """
    return "\n\n".join(paragraph for message in messages for paragraph in _paragraphs(message))


def _paragraphs(message: Message) -> Iterator[str]:
    match message:
        case UserMessage() if text := text_of(message.content):
            yield f"[User]: {text}"
        case AssistantMessage():
            yield from _answer(message)
        case ToolResultMessage() if text := text_of(message.content):
            yield f"[Tool result]: {_shortened(text)}"
        case _:
            pass


def _answer(message: AssistantMessage) -> Iterator[str]:
    thinking = [block.thinking for block in message.content if isinstance(block, ThinkingContent)]
    texts = [block.text for block in message.content if isinstance(block, TextContent)]
    calls = [_call(call) for call in tool_calls(message)]
    if thinking:
        yield "[Assistant thinking]: " + "\n".join(thinking)
    if texts:
        yield "[Assistant]: " + "\n".join(texts)
    if calls:
        yield "[Assistant tool calls]: " + "; ".join(calls)


def _call(call: ToolCall) -> str:
    ordered = loads(stringify(call.arguments))  # keys in JavaScript's order
    arguments = ", ".join(f"{key}={stringify(value)}" for key, value in ordered.items())
    return f"{call.name}({arguments})"


def _shortened(text: str) -> str:
    # Counted from the limit, as pi counts, also where the cut stops a unit short of it to spare a character.
    left_out = utf16_length(text) - TOOL_RESULT_LIMIT
    if left_out <= 0:
        return text
    return f"{cut_utf16(text, TOOL_RESULT_LIMIT)}\n\n[... {left_out} more characters truncated]"


def cut_utf16(text: str, limit: int) -> str:
    """The longest beginning of a text that has at most `limit` UTF-16 units and ends between characters.

    A surrogate pair is never split, whether it is one character or came as two lone halves.
    """
    head = text[:limit]
    while (over := utf16_length(head) - limit) > 0:
        head = head[: len(head) - (over + 1) // 2]  # a character is at most two units: never one too many
    halves = head[-1:] + text[len(head) : len(head) + 1]
    return head[:-1] if _PAIR.fullmatch(halves) else head


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class FileOps(msgspec.Struct, frozen=True):
    """Paths as tool calls name them: not normalised, not resolved."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    edited: frozenset[str] = frozenset()

    def __or__(self, other: FileOps) -> FileOps:
        return FileOps(self.read | other.read, self.written | other.written, self.edited | other.edited)


class FileLists(msgspec.Struct, frozen=True, rename="camel"):
    """The files of a summary, as its entry keeps them under `details`."""

    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()


_NO_OPS = FileOps()


def file_ops(messages: Iterable[Message]) -> FileOps:
    """The files that the tool calls of answers name: `read`, `write` and `edit` with a `path`."""
    paths: dict[str, set[str]] = {"read": set(), "write": set(), "edit": set()}
    for message in messages:
        for call in tool_calls(message) if isinstance(message, AssistantMessage) else ():
            path = call.arguments.get("path")
            if call.name in paths and isinstance(path, str) and path:
                paths[call.name].add(path)
    return FileOps(frozenset(paths["read"]), frozenset(paths["write"]), frozenset(paths["edit"]))


def details_file_ops(details: Any) -> FileOps:
    """The files that the `details` of an earlier summary entry list; none where they have another shape."""
    if not is_object(details):
        return _NO_OPS
    return FileOps(read=_paths(details.get("readFiles")), edited=_paths(details.get("modifiedFiles")))


def _paths(value: Any) -> frozenset[str]:
    return frozenset(path for path in value if isinstance(path, str)) if is_array(value) else frozenset()


def file_lists(ops: FileOps) -> FileLists:
    """Files that were changed, and files that were only read, in the order of their UTF-16 units."""
    modified = ops.written | ops.edited
    return FileLists(
        read_files=tuple(sorted(ops.read - modified, key=_utf16)),
        modified_files=tuple(sorted(modified, key=_utf16)),
    )


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
