"""What can be looked at in a session: its state, usage, totals, pages of its tree, entries and context.

Every function here returns the protocol's JSON and changes nothing. Those that read entry bodies are
called in a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec

from pi_ls.core.breakdown import NO_OVERHEAD, breakdown
from pi_ls.core.context import ContextMessage, UsageMeter, build_session_context, message_of
from pi_ls.core.entries import Entry, SessionInfoBody
from pi_ls.core.errors import EntryNotFound, InvalidParams, InvalidSettings, WriteFailed
from pi_ls.core.jsonvalues import Json
from pi_ls.core.lines import Totals
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    encode_message,
    text_of,
)
from pi_ls.core.outline import outline
from pi_ls.secrets import without_secrets

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession

ENTRIES_LIMIT = 500
MESSAGES_LIMIT = 200
"""Entries and messages on a page where the caller names no limit."""


def name_of_session(entries: Sequence[Entry]) -> str | None:
    """The session's name: the last `session_info` counts."""
    for entry in reversed(entries):
        if entry.type == "session_info" and isinstance(body := entry.body, SessionInfoBody):
            return body.name
    return None


def state(session: AgentSession) -> Json:
    """The protocol's session state."""
    settings = session.environment.settings
    told: Json = {
        "sessionId": session.id,
        "sessionFile": str(session.file.path),
        "name": session.name,
        "cwd": session.file.header.cwd,
        "leafId": session.tree.leaf_id,
        "thinkingLevel": session.thinking_level,
        "isStreaming": session.is_running,
        "isCompacting": session.operation == "compaction",
        "autoCompactionEnabled": session.auto_compaction_enabled,
        "steeringMode": settings.steering_mode,
        "followUpMode": settings.follow_up_mode,
        "messageCount": session.file.totals.messages,
        "pendingMessageCount": session.agent.waiting,
        "unsaved": session.file.unsaved,
        "trusted": session.environment.trusted,
        "readOnly": session.file.read_only is not None,
        "problems": session.problems,
    }
    if session.model is not None:
        told["model"] = session.environment.model_row(session.model)
    if session.operation is not None:
        told["operation"] = session.operation
    return told


def context_usage(session: AgentSession, meter: UsageMeter, detail: bool) -> Json:
    """How full the context is (`pi.contextUsage`); `{}` without a model or a usable window."""
    model = session.model
    usage = meter.usage(session.tree.path(), model.context_window if model is not None else None)
    if usage is None:
        return {}
    told: Json = {
        "tokens": usage.tokens,
        "contextWindow": usage.context_window,
        "percent": usage.percent,
        "estimatedTokens": usage.estimated_tokens,
        "source": usage.source,
        "autoCompactionEnabled": session.auto_compaction_enabled,
        "autoCompactionPaused": session.auto_compaction_paused,
        "cost": session.file.totals.cost,
    }
    threshold = threshold_tokens(session, usage.context_window)
    if threshold is not None:
        told["thresholdTokens"] = threshold
    if detail:
        context = build_session_context(tuple(session.tree.path()))
        # an estimate is one of the messages alone
        overhead = session.agent.overhead if usage.source != "estimate" else NO_OVERHEAD
        messages = (one.message for one in context.messages)
        parts = breakdown(messages, session.counter, usage.tokens, overhead)
        told |= msgspec.to_builtins(parts)
    return told


def threshold_tokens(session: AgentSession, window: int) -> int | None:
    """Tokens above which automatic compaction begins; None where the settings are invalid.

    A reserve that is not below the window would leave no room at all: half the window is used then.
    """
    try:
        reserve = session.compaction_settings().reserve_tokens
    except InvalidSettings:
        return None
    return window - (reserve if reserve < window else window // 2)


def stats(session: AgentSession) -> Json:
    """Counts and totals over the whole file (`pi.sessionStats`)."""
    return totals_told(session.file.totals)


def totals_told(totals: Totals) -> Json:
    """The totals of a file in the shape of `pi.sessionStats`."""
    return {
        "userMessages": totals.roles.get("user", 0),
        "assistantMessages": totals.roles.get("assistant", 0),
        "toolCalls": totals.tool_calls,
        "toolResults": totals.roles.get("toolResult", 0),
        "totalMessages": totals.messages,
        "tokens": {
            "input": round(totals.input),
            "output": round(totals.output),
            "cacheRead": round(totals.cache_read),
            "cacheWrite": round(totals.cache_write),
            "total": round(totals.tokens),
        },
        "cost": totals.cost,
    }


def tree_page(session: AgentSession, **arguments: Any) -> Json:
    """A page of the tree (`pi.getTree`).

    Raises EntryNotFound for an unknown `root_id`, InvalidParams for a cursor this server did not give.
    """
    root_id, cursor = arguments.get("root_id"), arguments.get("cursor")
    if root_id is not None:
        session.entry(root_id)
    if cursor is not None and cursor not in session.tree:
        raise _foreign_cursor()
    page: Json = msgspec.to_builtins(outline(session.tree, session.counter, **arguments))
    return page


def entries_page(session: AgentSession, since: str | None, limit: int | None) -> Json:
    """Entries in file order (`pi.getEntries`), those after the entry `since`.

    Raises EntryNotFound for an unknown `since`.
    """
    entries = session.tree.entries
    start = 0
    if since is not None:
        start = entries.index(session.entry(since)) + 1
    shown: list[Json] = []
    count = limit or ENTRIES_LIMIT
    index = start
    while index < len(entries) and len(shown) < count:
        if not entries[index].is_leaf_marker:
            shown.append(entries[index].data)
        index += 1
    more = any(not entry.is_leaf_marker for entry in entries[index:])
    return {"entries": shown, "leafId": session.tree.leaf_id, "hasMore": more}


def messages_page(
    session: AgentSession, leaf_id: str | msgspec.UnsetType | None, limit: int | None, cursor: str | None
) -> Json:
    """Messages of the context at a leaf (`pi.getMessages`), own roles, oldest first.

    Raises EntryNotFound for an unknown leaf, InvalidParams for a cursor this server did not give.
    """
    if leaf_id is msgspec.UNSET:
        path = tuple(session.tree.path())
    else:
        if leaf_id is not None and leaf_id not in session.tree:
            raise EntryNotFound(f"There is no entry {leaf_id} in this session", entryId=leaf_id)
        path = tuple(session.tree.path_to(leaf_id))
    context = build_session_context(path)
    start = _offset(cursor)
    end = start + (limit or MESSAGES_LIMIT)
    told: Json = {
        "messages": [_told_message(one) for one in context.messages[start:end]],
        "thinkingLevel": context.thinking_level,
        "hasMore": end < len(context.messages),
    }
    if context.model is not None:
        told["model"] = {"provider": context.model[0], "id": context.model[1]}
    if told["hasMore"]:
        told["cursor"] = str(end)
    return told


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit():
        raise _foreign_cursor()
    return int(cursor)


def _foreign_cursor() -> InvalidParams:
    return InvalidParams("cursor is not one this server gave", path="cursor")


def _told_message(one: ContextMessage) -> Json:
    """A message as the file has it where it is one of the file's, else as the context made it."""
    raw = one.entry.data.get("message") if one.entry.type == "message" and not one.edited else None
    return (raw or encode_message(one.message)) | {"entryId": one.entry.id}


# -- export --------------------------------------------------------------------------------------------


def export(session: AgentSession, kind: Literal["markdown", "jsonl"], path: str | None) -> Path:
    """Write the current path as Markdown, or the whole file as it is, and return where.

    A relative path is taken from the workspace folder; a file that exists is never written over. Raises
    InvalidParams and WriteFailed.
    """
    suffix = ".md" if kind == "markdown" else ".jsonl"
    folder = session.environment.folder
    target = folder / path if path is not None else _free_name(folder, session.file.path.stem, suffix)
    pieces = markdown(session) if kind == "markdown" else jsonl(session)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            _write(file, target, pieces)
    except OSError as error:
        if isinstance(error, FileExistsError) and os.path.lexists(target):  # not a file in the way to it
            raise InvalidParams(f"{target} exists already; name another file", path="path") from None
        raise WriteFailed(f"The session could not be exported to {target}: {error.strerror}") from error
    return target


def _write(file: BinaryIO, target: Path, pieces: Iterable[bytes]) -> None:
    """Write a file whole or not at all; piece by piece, since a session may be larger than memory is free."""
    try:
        for piece in pieces:
            file.write(without_secrets(piece))
        file.flush()
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def jsonl(session: AgentSession) -> Iterator[bytes]:
    """The whole session as a session file of the present version, its entries as they stand on disk."""
    yield session.file.header_record() + b"\n"
    for entry in tuple(session.tree.entries):
        yield session.file.record_of(entry) + b"\n"


def _free_name(folder: Path, stem: str, suffix: str) -> Path:
    candidates = (folder / f"{stem}{tail}{suffix}" for tail in _tails())
    return next(path for path in candidates if not path.exists())


def _tails() -> Iterator[str]:
    yield ""
    number = 2
    while True:
        yield f"-{number}"
        number += 1


def markdown(session: AgentSession) -> Iterator[bytes]:
    """The current path as a Markdown transcript, what compactions replaced included."""
    yield f"# {session.name or f'Session {session.id}'}\n".encode("utf-8", "replace")
    for paragraph in _paragraphs(session):
        if paragraph:
            yield f"\n{paragraph}\n".encode("utf-8", "replace")


def _paragraphs(session: AgentSession) -> Iterator[str]:
    yield f"{session.file.header.cwd} · {session.file.header.timestamp}"
    for entry in tuple(session.tree.path()):
        message = message_of(entry)
        if message is not None:
            yield from _markdown_of(message)


def _markdown_of(message: Message) -> Iterable[str]:
    match message:
        case UserMessage() | CustomMessage():
            yield "## User" if isinstance(message, UserMessage) else f"## {message.custom_type or 'Note'}"
            yield text_of(message.content, "\n\n")
        case AssistantMessage():
            yield "## Assistant"
            yield text_of(message.content, "\n\n")
            for call in message.content:
                if isinstance(call, ToolCall):
                    yield f"**{call.name}**\n\n{_fenced(_arguments(call))}"
            if message.error_message:
                yield f"> {message.stop_reason}: {message.error_message}"
        case ToolResultMessage():
            yield f"### Result of {message.tool_name}{' (error)' if message.is_error else ''}"
            yield _fenced(text_of(message.content))
        case BashExecutionMessage():
            yield f"## `{message.command}`"
            yield _fenced(message.output)
        case CompactionSummaryMessage():
            yield "## Summary of what came before"
            yield message.summary
        case BranchSummaryMessage():
            yield "## Summary of a branch that was left"
            yield message.summary
        case SystemMessage() | _:
            return


def _arguments(call: ToolCall) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in call.arguments.items()
    )


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any inside it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
