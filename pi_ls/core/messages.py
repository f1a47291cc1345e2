"""Messages and their content blocks, as a session file holds them and as a context is made of them.

A message carries no id and does not know where in the tree it is kept; that is an entry's business
(`entries.py`). Decoding is lenient on purpose: session files are written by several programs over many
versions, so a missing or null content reads as empty, and a block or role nobody knows is kept as an
`OtherBlock` / `OtherMessage` that adds nothing to a context. Source: pi's session format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pi_ls.core.jsonvalues import Json, is_array, is_count, is_object, number, optional_string, string


class TextContent(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="text"):
    """A piece of text."""

    text: str = ""


class ImageContent(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="image"):
    """An image, base64 in `data`."""

    data: str = ""
    mime_type: str = ""


class ThinkingContent(
    msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="thinking", omit_defaults=True
):
    """A model's reasoning. The signature belongs to the bytes before it and is never altered."""

    thinking: str = ""
    thinking_signature: str | None = None
    redacted: bool = False


class ToolCall(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="toolCall"):
    """A call of a tool; `arguments` is always a JSON object."""

    id: str = ""
    name: str = ""
    arguments: Json = msgspec.field(default_factory=dict[str, Any])


class OtherBlock(msgspec.Struct, frozen=True):
    """A block of a type this program does not know; counts and sends nothing."""

    type: str
    raw: Json = msgspec.field(default_factory=dict[str, Any])


Block = TextContent | ImageContent | ThinkingContent | ToolCall | OtherBlock


class Cost(msgspec.Struct, frozen=True, rename="camel"):
    """What a request cost, in dollars."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    total: float = 0


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """What a provider reported for one request, in tokens; cached tokens are not part of `input`."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    total_tokens: float = 0
    cost: Cost = Cost()

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            total_tokens=self.total_tokens + other.total_tokens,
            cost=Cost(
                input=self.cost.input + other.cost.input,
                output=self.cost.output + other.cost.output,
                cache_read=self.cost.cache_read + other.cost.cache_read,
                cache_write=self.cost.cache_write + other.cost.cache_write,
                total=self.cost.total + other.cost.total,
            ),
        )


Content = str | tuple[Block, ...]


class UserMessage(msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="user"):
    """What a person said; `synthetic` is True where the program itself said it to go on."""

    content: Content = ""
    timestamp: float = 0
    synthetic: bool | None = None


class AssistantMessage(msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="assistant"):
    """A model's answer. `usage` is None where the provider gave none that can be read."""

    content: tuple[Block, ...] = ()
    api: str = ""
    provider: str = ""
    model: str = ""
    usage: Usage | None = None
    stop_reason: str = "stop"
    error_message: str | None = None
    timestamp: float = 0


class ToolResultMessage(msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="toolResult"):
    """What a tool answered. `pruned_at` (ms) is set where old output was blanked."""

    tool_call_id: str = ""
    tool_name: str = ""
    content: Content = ()
    is_error: bool = False
    details: Any = None
    pruned_at: float | None = None
    timestamp: float = 0


class BashExecutionMessage(
    msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="bashExecution"
):
    """A command the user ran in the session."""

    command: str = ""
    output: str = ""
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool = False
    timestamp: float = 0


class CustomMessage(msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="custom"):
    """A message an extension put into the context."""

    custom_type: str = ""
    content: Content = ""
    display: bool = False
    details: Any = None
    timestamp: float = 0


class SystemMessage(msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="system"):
    """Part of the system prompt as newer pi records it; never summarized."""

    content: Content = ""
    timestamp: float = 0


class CompactionSummaryMessage(
    msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="compactionSummary"
):
    """Stands in the context for everything a compaction replaced."""

    summary: str = ""
    tokens_before: float = 0
    timestamp: float = 0


class BranchSummaryMessage(
    msgspec.Struct, frozen=True, rename="camel", tag_field="role", tag="branchSummary"
):
    """Stands in the context for a branch that was left."""

    summary: str = ""
    from_id: str = ""
    timestamp: float = 0


class OtherMessage(msgspec.Struct, frozen=True):
    """A message of a role this program does not know; counts and sends nothing."""

    role: str
    content: Content = ""
    timestamp: float = 0


Message = (
    UserMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | CustomMessage
    | SystemMessage
    | CompactionSummaryMessage
    | BranchSummaryMessage
    | OtherMessage
)


def role_of(message: Message) -> str:
    """The role as it stands on the wire (`toolResult`, `compactionSummary`, …)."""
    if isinstance(message, OtherMessage):
        return message.role
    return str(type(message).__struct_config__.tag)


def blocks_of(content: Content) -> tuple[Block, ...]:
    """Content as blocks: a string is one text block, an empty string none."""
    if isinstance(content, str):
        return (TextContent(content),) if content else ()
    return content


def text_of(content: Content, separator: str = "") -> str:
    """The text blocks of a content, joined."""
    if isinstance(content, str):
        return content
    return separator.join(block.text for block in content if isinstance(block, TextContent))


def decode_message(raw: Any) -> Message | None:
    """A message from its decoded JSON; None where it is no object or has no role (`message: null`).

    Never raises: a field of a wrong type reads as that field's default.
    """
    if not is_object(raw) or not isinstance(raw.get("role"), str):
        return None
    timestamp = number(raw.get("timestamp"))
    match raw["role"]:
        case "user":
            synthetic = True if raw.get("synthetic") is True else None
            return UserMessage(decode_content(raw.get("content")), timestamp, synthetic)
        case "assistant":
            return AssistantMessage(
                content=blocks_of(decode_content(raw.get("content"))),
                api=string(raw.get("api")),
                provider=string(raw.get("provider")),
                model=string(raw.get("model")),
                usage=decode_usage(raw.get("usage")),
                stop_reason=string(raw.get("stopReason"), "stop"),
                error_message=optional_string(raw.get("errorMessage")),
                timestamp=timestamp,
            )
        case "toolResult":
            pruned_at = raw.get("prunedAt")
            return ToolResultMessage(
                tool_call_id=string(raw.get("toolCallId")),
                tool_name=string(raw.get("toolName")),
                content=decode_content(raw.get("content")),
                is_error=raw.get("isError") is True,
                details=raw.get("details"),
                pruned_at=number(pruned_at) if pruned_at is not None else None,
                timestamp=timestamp,
            )
        case "bashExecution":
            code = raw.get("exitCode")
            return BashExecutionMessage(
                command=string(raw.get("command")),
                output=string(raw.get("output")),
                exit_code=code if isinstance(code, int) else None,
                cancelled=raw.get("cancelled") is True,
                truncated=raw.get("truncated") is True,
                full_output_path=optional_string(raw.get("fullOutputPath")),
                exclude_from_context=raw.get("excludeFromContext") is True,
                timestamp=timestamp,
            )
        case "custom":
            return CustomMessage(
                custom_type=string(raw.get("customType")),
                content=decode_content(raw.get("content")),
                display=raw.get("display") is True,
                details=raw.get("details"),
                timestamp=timestamp,
            )
        case "system":
            return SystemMessage(decode_content(raw.get("content")), timestamp)
        case "compactionSummary":
            return CompactionSummaryMessage(
                string(raw.get("summary")), number(raw.get("tokensBefore")), timestamp
            )
        case "branchSummary":
            return BranchSummaryMessage(string(raw.get("summary")), string(raw.get("fromId")), timestamp)
        case role:
            return OtherMessage(role, decode_content(raw.get("content")), timestamp)


def decode_content(raw: Any) -> Content:
    """Content from decoded JSON; missing, null or of a wrong type reads as empty."""
    if isinstance(raw, str):
        return raw
    if not is_array(raw):
        return ()
    return tuple(decode_block(block) for block in raw if is_object(block))


def decode_block(raw: Json) -> Block:
    """One content block from decoded JSON."""
    match raw.get("type"):
        case "text":
            return TextContent(string(raw.get("text")))
        case "image":
            return ImageContent(string(raw.get("data")), string(raw.get("mimeType")))
        case "thinking":
            return ThinkingContent(
                thinking=string(raw.get("thinking")),
                thinking_signature=optional_string(raw.get("thinkingSignature")),
                redacted=raw.get("redacted") is True,
            )
        case "toolCall":
            arguments = raw.get("arguments")
            return ToolCall(
                id=string(raw.get("id")),
                name=string(raw.get("name")),
                arguments=arguments if is_object(arguments) else {},
            )
        case kind:
            return OtherBlock(string(kind), raw)


def decode_usage(raw: Any) -> Usage | None:
    """A usage from decoded JSON, or None where it cannot be trusted.

    Input and output must be finite and not negative (cache counts that are not are 0), and the total of
    the request must be finite and above zero; anything else is as good as no usage (a provider that reports
    none, an aborted answer).
    """
    if not is_object(raw):
        return None
    input_, output = raw.get("input"), raw.get("output")
    if not (is_count(input_) and is_count(output)):
        return None
    cost = raw.get("cost")
    usage = Usage(
        input=number(input_),
        output=number(output),
        cache_read=_count(raw.get("cacheRead")),
        cache_write=_count(raw.get("cacheWrite")),
        total_tokens=_count(raw.get("totalTokens")),
        cost=decode_cost(cost) if is_object(cost) else Cost(),
    )
    return usage if _count(context_tokens(usage)) > 0 else None


def _count(value: Any) -> float:
    return value if is_count(value) else 0


def decode_cost(raw: Json) -> Cost:
    """A cost from decoded JSON; what is not a finite number is 0."""
    return Cost(
        input=number(raw.get("input")),
        output=number(raw.get("output")),
        cache_read=number(raw.get("cacheRead")),
        cache_write=number(raw.get("cacheWrite")),
        total=number(raw.get("total")),
    )


def context_tokens(usage: Usage) -> float:
    """Tokens of context a request used (`calculateContextTokens`): the provider's total, or else the sum."""
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def encode_message(message: Message) -> Json:
    """A message as the JSON object a session file holds; absent optional fields are left out."""
    if isinstance(message, OtherMessage):
        return {"role": message.role, "content": _plain(message.content), "timestamp": message.timestamp}
    raw: Json = msgspec.to_builtins(message)
    if "content" in raw:
        raw["content"] = _plain(getattr(message, "content"))  # noqa: B009 - the union has no such field in common
    return {key: value for key, value in raw.items() if value is not None}


def tool_calls(message: AssistantMessage) -> Sequence[ToolCall]:
    """The tool calls of an answer, in order."""
    return [block for block in message.content if isinstance(block, ToolCall)]


def _plain(content: Content) -> Any:
    if isinstance(content, str):
        return content
    return [block.raw if isinstance(block, OtherBlock) else msgspec.to_builtins(block) for block in content]
