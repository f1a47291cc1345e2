"""What a session tells the world. The tag of an event is its name on the wire (`pi/<tag>`).

Fields are snake_case here and camelCase outside, by one rename. Field values that are entries, results or
states are the JSON objects of the protocol.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pi_ls.core.jsonvalues import Json

CompactionReason = Literal["manual", "threshold", "overflow"]


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="event"):
    """Base of all events."""


class CompactionStart(Event, frozen=True, kw_only=True, tag="compaction_start"):
    """A compaction has begun; a `CompactionEnd` with the same reason always follows."""

    reason: CompactionReason


class CompactionEnd(Event, frozen=True, kw_only=True, tag="compaction_end"):
    """A compaction has ended: with a result, aborted, or with a sentence that says what failed."""

    reason: CompactionReason
    aborted: bool
    will_retry: bool
    result: Json | msgspec.UnsetType = msgspec.UNSET
    error_message: str | msgspec.UnsetType = msgspec.UNSET


class SessionCompactFailed(Event, frozen=True, kw_only=True, tag="session_compact_failed"):
    """A compaction failed or was aborted; `will_retry`: the answer would have been asked for again."""

    reason: CompactionReason
    aborted: bool
    will_retry: bool
    from_extension: bool
    error_message: str | msgspec.UnsetType = msgspec.UNSET


class ContextUsage(Event, frozen=True, kw_only=True, tag="context_usage"):
    """How full the context is. All fields absent where there is no model or no usable window.

    `tokens` and `percent` are None after a compaction until the next answer; `percent` may pass 100.
    """

    tokens: int | float | msgspec.UnsetType | None = msgspec.UNSET
    context_window: int | msgspec.UnsetType = msgspec.UNSET
    percent: int | float | msgspec.UnsetType | None = msgspec.UNSET
    estimated_tokens: int | float | msgspec.UnsetType = msgspec.UNSET
    source: Literal["measured", "measured+estimate", "estimate"] | msgspec.UnsetType = msgspec.UNSET
    threshold_tokens: int | msgspec.UnsetType = msgspec.UNSET
    auto_compaction_enabled: bool | msgspec.UnsetType = msgspec.UNSET
    auto_compaction_paused: bool | msgspec.UnsetType = msgspec.UNSET
    cost: float | msgspec.UnsetType = msgspec.UNSET


class SessionOpened(Event, frozen=True, kw_only=True, tag="session_opened"):
    """A session was opened or became current; `state` is the protocol's session state."""

    state: Json


class SessionClosed(Event, frozen=True, kw_only=True, tag="session_closed"):
    """A session was closed; `state` is the last one."""

    state: Json


class SessionInfoChanged(Event, frozen=True, kw_only=True, tag="session_info_changed"):
    """The session has another name (None: none)."""

    name: str | None


class SessionTreeMoved(Event, frozen=True, kw_only=True, tag="session_tree"):
    """The leaf moved by navigation or by undoing a compaction."""

    new_leaf_id: str | None
    old_leaf_id: str | None
    summary_entry: Json | msgspec.UnsetType = msgspec.UNSET
    from_extension: bool | msgspec.UnsetType = msgspec.UNSET


class EntryAppended(Event, frozen=True, kw_only=True, tag="entry_appended"):
    """An entry was added; `foreign` where another program wrote it."""

    entry: Json
    leaf_id: str | None
    foreign: bool


class SessionReloaded(Event, frozen=True, kw_only=True, tag="session_reloaded"):
    """The file was written anew."""

    reason: Literal["rewritten", "pruned", "migrated"]


class SessionProblem(Event, frozen=True, kw_only=True, tag="session_problem"):
    """Something about the session's file or settings a person may want to know; told once each."""

    file: str
    kind: str
    message: str
    line: int | msgspec.UnsetType = msgspec.UNSET
    entry_id: str | msgspec.UnsetType = msgspec.UNSET


class SettingsProblem(Event, frozen=True, kw_only=True, tag="settings_problem"):
    """A setting, or a whole file of them, that cannot be used."""

    file: str
    key: str
    message: str
    line: int | msgspec.UnsetType = msgspec.UNSET


class SummarizationRetryScheduled(Event, frozen=True, kw_only=True, tag="summarization_retry_scheduled"):
    """A summary request failed in passing and will be sent again after `delay_ms` milliseconds."""

    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str


class ModelChanged(Event, frozen=True, kw_only=True, tag="model_changed"):
    """The session uses another model from here on (None: none)."""

    provider: str | None
    model_id: str | None


class ThinkingLevelChanged(Event, frozen=True, kw_only=True, tag="thinking_level_changed"):
    """The session uses another thinking level from here on."""

    level: str


class AgentStart(Event, frozen=True, kw_only=True, tag="agent_start"):
    """The agent has begun to work; an `AgentEnd` always follows."""


class AgentEnd(Event, frozen=True, kw_only=True, tag="agent_end"):
    """The agent has stopped asking the model; `error_message` where the last answer failed."""

    error_message: str | msgspec.UnsetType = msgspec.UNSET


class TurnStart(Event, frozen=True, kw_only=True, tag="turn_start"):
    """One answer and the tool calls in it are about to come; a `TurnEnd` always follows."""


class TurnEnd(Event, frozen=True, kw_only=True, tag="turn_end"):
    """An answer and the results of its tool calls are complete. All of them are messages."""

    message: Json
    tool_results: list[Json]


class MessageStart(Event, frozen=True, kw_only=True, tag="message_start"):
    """A message begins: one that is whole already, or an answer whose pieces follow."""

    message: Json


class MessageDelta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A piece of the content block at `content_index` of an answer.

    The first piece of a tool call has the call's id and name; its pieces are parts of a JSON text.
    """

    type: Literal["text_delta", "thinking_delta", "toolcall_delta"]
    content_index: int
    delta: str
    tool_call_id: str | msgspec.UnsetType = msgspec.UNSET
    tool_name: str | msgspec.UnsetType = msgspec.UNSET


class MessageUpdate(Event, frozen=True, kw_only=True, tag="message_update"):
    """More of the answer that is being written: the piece alone, never what came before it."""

    assistant_message_event: MessageDelta


class MessageEnd(Event, frozen=True, kw_only=True, tag="message_end"):
    """A message is complete and belongs to the conversation from now on.

    `entry_id` is the entry that holds it, once there is one.
    """

    message: Json
    entry_id: str | msgspec.UnsetType = msgspec.UNSET


class ToolExecutionStart(Event, frozen=True, kw_only=True, tag="tool_execution_start"):
    """A tool call is being carried out; a `ToolExecutionEnd` always follows."""

    tool_call_id: str
    tool_name: str
    args: Json


class ToolExecutionUpdate(Event, frozen=True, kw_only=True, tag="tool_execution_update"):
    """What a tool has to show while it runs; each one replaces the one before."""

    tool_call_id: str
    tool_name: str
    args: Json
    partial_result: Json


class ToolExecutionEnd(Event, frozen=True, kw_only=True, tag="tool_execution_end"):
    """A tool call has been answered; `result` has `content` and, where the tool gave any, `details`."""

    tool_call_id: str
    tool_name: str
    result: Json
    is_error: bool


class AgentSettled(Event, frozen=True, kw_only=True, tag="agent_settled"):
    """Nothing of a prompt is left to do: no retry, compaction, queued message or continuation."""

    aborted: bool


class QueueUpdate(Event, frozen=True, kw_only=True, tag="queue_update"):
    """Other messages wait for the agent; their texts, in order."""

    steering: list[str]
    follow_up: list[str]


class AutoRetryStart(Event, frozen=True, kw_only=True, tag="auto_retry_start"):
    """An answer failed in passing and will be asked for again after `delay_ms` milliseconds."""

    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str


class AutoRetryEnd(Event, frozen=True, kw_only=True, tag="auto_retry_end"):
    """Asking again has come to an end, well or badly."""

    success: bool
    attempt: int
    error_message: str | msgspec.UnsetType = msgspec.UNSET


class AutoCompactionPaused(Event, frozen=True, kw_only=True, tag="auto_compaction_paused"):
    """Automatic compaction has given up for now, and what would take it up again."""

    reason: Literal["no_progress", "failures", "settings"]
    message: str


class AutoCompactionResumed(Event, frozen=True, kw_only=True, tag="auto_compaction_resumed"):
    """Automatic compaction is on again."""


class ApprovalRequest(Event, frozen=True, kw_only=True, tag="approval_request"):
    """A tool call waits for a person's word; answered by `pi.answerApproval`."""

    approval_id: str
    tool_name: str
    args: Json
    summary: str


class ApprovalResolved(Event, frozen=True, kw_only=True, tag="approval_resolved"):
    """A question was answered, here or elsewhere, or is not asked any more."""

    approval_id: str
    decision: Literal["once", "session", "always", "no"]


class TrustChanged(Event, frozen=True, kw_only=True, tag="trust_changed"):
    """The workspace folder is trusted from here on, or is not any more."""

    trusted: bool


class ExtensionFailed(Event, frozen=True, kw_only=True, tag="extension_error"):
    """An extension could not be loaded (`hook` is "load"), or one of its hooks failed or takes very long.

    `error` is a sentence, with file and line where the cause has them.
    """

    extension: str
    hook: str
    error: str


def name_of(event: Event) -> str:
    """The event's name, which is also the end of its notification's method."""
    return str(type(event).__struct_config__.tag)


def params_of(event: Event) -> Json:
    """The event's fields as the JSON object that goes out (a session's state as the object itself)."""
    params: Json = msgspec.to_builtins(event)
    del params["event"]
    return params["state"] if isinstance(event, SessionOpened | SessionClosed) else params
