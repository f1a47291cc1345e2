"""Session header and entries: the envelope of a line at once, its body when it is first needed.

An entry is one line of a session file. Its envelope (`id`, `parent_id`, `type`, `role`, `timestamp`) is
enough for lists and trees; the rest may lie unread on disk, so `Entry.data` decodes it on demand through
the reader the store gave. Bodies are read leniently, like messages: a field of a wrong type reads as its
default, an unknown type is an `UnknownBody` that adds nothing to a context. Source: pi's session format,
seeds 000 and 002 for the two summary entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from pi_ls.core.jsonvalues import Json, is_object, number, optional_string, string
from pi_ls.core.messages import (
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    Usage,
    decode_content,
    decode_message,
    decode_usage,
)

SESSION_VERSION = 3
"""The version of the session format that is written."""

LEAF_MARKER = "pi_ls.leaf"
"""`customType` of the state entry that remembers a plain move; it is passed over wherever a leaf is told."""


class Header(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The first line of a session file. Unknown fields stay on disk."""

    id: str
    version: int = 1
    timestamp: str = ""
    cwd: str = ""
    parent_session: str | None = None


class MessageBody(msgspec.Struct, frozen=True):
    """`message`: None where the line holds no readable message."""

    message: Message | None


class CompactionBody(msgspec.Struct, frozen=True):
    """`compaction`: everything before `first_kept_entry_id` is told by `summary`.

    `from_extension` is `fromHook` on disk (pi's name; `fromExtension` is read too).
    """

    summary: str
    first_kept_entry_id: str
    tokens_before: float
    short_summary: str | None = None
    usage: Usage | None = None
    details: Any = None
    preserve_data: Any = None
    from_extension: bool = False
    system_message: SystemMessage | None = None


class BranchSummaryBody(msgspec.Struct, frozen=True):
    """`branch_summary`: what was done on a branch that was left. `from_id` is never relied on when read."""

    summary: str
    from_id: str = ""
    usage: Usage | None = None
    details: Any = None
    from_extension: bool = False


class CustomMessageBody(msgspec.Struct, frozen=True):
    """`custom_message`: in context as a `custom` message."""

    custom_type: str
    content: Content
    display: bool = False
    details: Any = None


class CustomBody(msgspec.Struct, frozen=True):
    """`custom`: an extension's state, not in context."""

    custom_type: str
    data: Any = None


class LabelBody(msgspec.Struct, frozen=True):
    """`label`: names another entry; None or empty clears."""

    target_id: str
    label: str | None


class SessionInfoBody(msgspec.Struct, frozen=True):
    """`session_info`: the session's name, None where it was cleared."""

    name: str | None


class ModelChangeBody(msgspec.Struct, frozen=True):
    """`model_change`: the model in use from here on."""

    provider: str
    model_id: str


class ThinkingLevelChangeBody(msgspec.Struct, frozen=True):
    """`thinking_level_change`: the thinking level in use from here on."""

    thinking_level: str


class UsageBody(msgspec.Struct, frozen=True):
    """`usage`: a request outside the conversation; counts in totals only."""

    kind: str
    provider: str
    model: str
    usage: Usage | None


class ContextEditBody(msgspec.Struct, frozen=True):
    """`context_edit`: hides (`None`) or replaces the content of `target_id` from here on."""

    target_id: str
    replacement: Content | None


class UnknownBody(msgspec.Struct, frozen=True):
    """An entry of a type this program does not know."""


Body = (
    MessageBody
    | CompactionBody
    | BranchSummaryBody
    | CustomMessageBody
    | CustomBody
    | LabelBody
    | SessionInfoBody
    | ModelChangeBody
    | ThinkingLevelChangeBody
    | UsageBody
    | ContextEditBody
    | UnknownBody
)

Timestamp = str | int | float | None


class Entry:
    """One line of a session file.

    `role` is the message's role for entries of type `message`, the `customType` for `custom` entries,
    else None. `parent_id` is what the line says, even if no such entry exists. `read` gives the whole
    decoded JSON object. `pruned_at` is the message's `prunedAt`; whoever scans the lines should give it (None
    for none), or else it is read from the body, once for every tool result.
    """

    __slots__ = ("_pruned_at", "_read", "id", "parent_id", "role", "timestamp", "type")

    def __init__(
        self,
        id: str,
        parent_id: str | None,
        type: str,
        timestamp: Timestamp,
        role: str | None,
        read: Callable[[Entry], Json],
        pruned_at: float | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> None:
        self.id = id
        self.parent_id = parent_id
        self.type = type
        self.timestamp = timestamp
        self.role = role
        self._read = read
        self._pruned_at = pruned_at

    @classmethod
    def of(cls, data: Json) -> Entry:
        """An entry whose whole JSON object is at hand (`type` and `id` must be strings)."""
        message = data.get("message")
        match data["type"]:
            case "message":
                role = message.get("role") if is_object(message) else None
            case "custom":
                role = data.get("customType")
            case _:
                role = None
        parent = data.get("parentId")
        return cls(
            id=data["id"],
            parent_id=parent if isinstance(parent, str) else None,
            type=data["type"],
            timestamp=data.get("timestamp"),
            role=role if isinstance(role, str) else None,
            read=lambda _entry: data,
        )

    @property
    def data(self) -> Json:
        """The whole JSON object of the line, read again if it is not in memory. Do not change it."""
        return self._read(self)

    @property
    def body(self) -> Body:
        """What the entry says, by its type."""
        return decode_body(self.data)

    @property
    def message(self) -> Message | None:
        """The message of an entry of type `message`, else None."""
        return decode_message(self.data.get("message")) if self.type == "message" else None

    @property
    def pruned_at(self) -> float | None:
        """When the output of a tool result was blanked (ms since 1970), None if it was not."""
        if isinstance(self._pruned_at, msgspec.UnsetType):
            message = self.message if self.role == "toolResult" else None
            self._pruned_at = message.pruned_at if isinstance(message, ToolResultMessage) else None
        return self._pruned_at

    def content_changed(self) -> None:
        """Forget what is known of the body: the line was replaced by another one with the same envelope."""
        self._pruned_at = msgspec.UNSET

    @property
    def is_leaf_marker(self) -> bool:
        """Whether this is the state entry that only remembers where the leaf was."""
        return self.type == "custom" and self.role == LEAF_MARKER

    def __repr__(self) -> str:
        return f"Entry({self.type} {self.id} under {self.parent_id})"


def decode_body(data: Json) -> Body:
    """The body of a decoded line, by its `type`. Never raises."""
    match data.get("type"):
        case "message":
            return MessageBody(decode_message(data.get("message")))
        case "compaction":
            system = decode_message(data.get("systemMessage"))
            return CompactionBody(
                summary=string(data.get("summary")),
                first_kept_entry_id=string(data.get("firstKeptEntryId")),
                tokens_before=number(data.get("tokensBefore")),
                short_summary=optional_string(data.get("shortSummary")),
                usage=decode_usage(data.get("usage")),
                details=data.get("details"),
                preserve_data=data.get("preserveData"),
                from_extension=_from_extension(data),
                system_message=system if isinstance(system, SystemMessage) else None,
            )
        case "branch_summary":
            return BranchSummaryBody(
                summary=string(data.get("summary")),
                from_id=string(data.get("fromId")),
                usage=decode_usage(data.get("usage")),
                details=data.get("details"),
                from_extension=_from_extension(data),
            )
        case "custom_message":
            return CustomMessageBody(
                custom_type=string(data.get("customType")),
                content=decode_content(data.get("content")),
                display=data.get("display") is True,
                details=data.get("details"),
            )
        case "custom":
            return CustomBody(string(data.get("customType")), data.get("data"))
        case "label":
            return LabelBody(string(data.get("targetId")), optional_string(data.get("label")) or None)
        case "session_info":
            return SessionInfoBody(session_name(string(data.get("name"))))
        case "model_change":
            return ModelChangeBody(string(data.get("provider")), string(data.get("modelId")))
        case "thinking_level_change":
            return ThinkingLevelChangeBody(string(data.get("thinkingLevel")))
        case "usage":
            return UsageBody(
                kind=string(data.get("kind")),
                provider=string(data.get("provider")),
                model=string(data.get("model")),
                usage=decode_usage(data.get("usage")),
            )
        case "context_edit":
            # pi writes {"content": …}; the bare content is taken too.
            replacement = data.get("replacement")
            content = replacement.get("content") if is_object(replacement) else replacement
            return ContextEditBody(
                target_id=string(data.get("targetId")),
                replacement=None if replacement is None else decode_content(content),
            )
        case _:
            return UnknownBody()


def message_of(entry: Entry) -> Message | None:
    """The context message an entry yields by itself; None for a state entry, which yields none.

    Where the entry stands is not looked at: an older compaction yields its summary here too, although a
    context holds only the newest one.
    """
    match entry.type:
        case "message":
            return entry.message
        case "compaction" | "branch_summary" | "custom_message":
            return _message_of_body(entry.body, time_of(entry.timestamp))
        case _:
            return None


def _message_of_body(body: Body, timestamp: float) -> Message | None:
    match body:
        case CompactionBody():
            return CompactionSummaryMessage(body.summary, body.tokens_before, timestamp)
        case BranchSummaryBody():
            return BranchSummaryMessage(body.summary, body.from_id, timestamp) if body.summary else None
        case CustomMessageBody():
            return CustomMessage(body.custom_type, body.content, body.display, body.details, timestamp)
        case _:
            return None


def session_name(text: str) -> str | None:
    """A session's name as it is kept: trimmed, line breaks as spaces, None where nothing is left."""
    return re.sub(r"[\r\n]+", " ", text).strip() or None


def time_of(timestamp: Timestamp) -> float:
    """An entry's timestamp in milliseconds since 1970 (ISO 8601 or a number), 0 where it is neither."""
    if isinstance(timestamp, str):
        try:
            moment = datetime.fromisoformat(timestamp)
        except ValueError:
            return 0
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
    return number(timestamp)


def iso_time(milliseconds: float) -> str:
    """Milliseconds since 1970 as pi writes them: `2026-01-05T10:00:01.000Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _from_extension(data: Json) -> bool:
    return data.get("fromHook") is True or data.get("fromExtension") is True
