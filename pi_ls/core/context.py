"""From a path to what a model sees of it: context messages, the model in use, and how full the context is.

The context of a path is the newest compaction's summary, the entries that compaction kept, and everything
after it; `context_edit` entries hide or replace single messages. How full it is comes from the last usage a
provider reported that still describes this context, plus estimates of what came after. Only the bodies that
are needed are read: a session may hold 40,000 entries.
Source: seeds 000 to 002 (`buildSessionContext`, `convertToLlm`, `estimateContextTokens`, `getContextUsage`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from pi_ls.core.entries import (
    BranchSummaryBody,
    CompactionBody,
    ContextEditBody,
    Entry,
    ModelChangeBody,
    ThinkingLevelChangeBody,
    message_of,
    time_of,
)
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    Message,
    OtherMessage,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    Usage,
    UserMessage,
    blocks_of,
    context_tokens,
)
from pi_ls.core.tokens import TokenCounter

__all__ = [
    "ContextMessage",
    "ContextTokens",
    "ContextUsage",
    "SessionContext",
    "UsageMeter",
    "build_session_context",
    "context_edits",
    "context_entries",
    "context_usage",
    "convert_to_llm",
    "edit_message",
    "estimate_context_tokens",
    "latest_compaction",
    "message_of",
    "model_of",
    "thinking_level_of",
    "valid_usage",
]


class ContextMessage(msgspec.Struct, frozen=True):
    """A message of a context and the entry it comes from; `edited` where a context edit gave its content."""

    message: Message
    entry: Entry
    edited: bool = False


class SessionContext(msgspec.Struct, frozen=True):
    """What the next request is made of, before `convert_to_llm`. `model` is (provider, model id)."""

    messages: tuple[ContextMessage, ...]
    model: tuple[str, str] | None
    thinking_level: str


def build_session_context(path: Sequence[Entry]) -> SessionContext:
    """The context of a path (root → leaf): its messages in order, the model and thinking level in force."""
    return SessionContext(tuple(_context_messages(path)), model_of(path), thinking_level_of(path))


def _context_messages(path: Sequence[Entry]) -> Iterable[ContextMessage]:
    entries = context_entries(path)
    edits = context_edits(entries)
    for place, entry in enumerate(entries):
        if entry.type == "compaction":
            if place > 0:
                continue  # an older one in the kept range: the newest summary covers it
            body = entry.body
            if isinstance(body, CompactionBody) and body.system_message is not None:
                yield ContextMessage(body.system_message, entry)
        message = message_of(entry)
        if message is None:
            continue
        edit = edits.get(entry.id)
        if edit is not None:
            message = edit_message(message, edit.replacement)
        if message is not None:
            yield ContextMessage(message, entry, edit is not None)


def context_entries(path: Sequence[Entry]) -> list[Entry]:
    """The entries a context is made of, in its order: the newest compaction, what it kept, what came after.

    Entries that yield no message are included; so are older compactions in the kept range, which add
    nothing. System messages from before the compaction are left out.
    """
    found = latest_compaction(path)
    if found is None:
        return list(path)
    at, compaction = found
    kept = (entry for entry in path[_kept_from(path, at) : at] if not _is_system(entry))
    return [compaction, *kept, *path[at + 1 :]]


def latest_compaction(path: Sequence[Entry]) -> tuple[int, Entry] | None:
    """The newest compaction of a path and its index there."""
    for index in range(len(path) - 1, -1, -1):
        if path[index].type == "compaction":
            return index, path[index]
    return None


def _kept_from(path: Sequence[Entry], at: int) -> int:
    """The index of the first entry that the compaction at index `at` kept; `at` itself where it kept none."""
    body = path[at].body
    first_kept = body.first_kept_entry_id if isinstance(body, CompactionBody) else ""
    for index in range(at - 1, -1, -1):
        if path[index].id == first_kept:
            return index
    return at


def _is_system(entry: Entry) -> bool:
    return entry.type == "message" and entry.role == "system"


def context_edits(entries: Iterable[Entry]) -> dict[str, ContextEditBody]:
    """Entry id → the edit in force for it; the last edit in the given order wins."""
    edits: dict[str, ContextEditBody] = {}
    for entry in entries:
        if entry.type == "context_edit" and isinstance(body := entry.body, ContextEditBody):
            edits[body.target_id] = body
    return edits


def edit_message(message: Message, replacement: Content | None) -> Message | None:
    """A message as a context edit leaves it: None hides it, anything else becomes its content.

    Only user, assistant, custom and tool result messages have content to replace; others stay as they are.
    """
    if replacement is None:
        return None
    match message:
        case UserMessage() | CustomMessage():
            return msgspec.structs.replace(message, content=replacement)
        case AssistantMessage() | ToolResultMessage():
            return msgspec.structs.replace(message, content=blocks_of(replacement))
        case _:
            return message


def model_of(path: Sequence[Entry]) -> tuple[str, str] | None:
    """The model in use at the end of a path, as (provider, model id): the last one chosen or answering."""
    for entry in reversed(path):
        if entry.type == "model_change":
            body = entry.body
            model = (body.provider, body.model_id) if isinstance(body, ModelChangeBody) else ("", "")
        elif entry.type == "message" and entry.role == "assistant":
            message = entry.message
            model = (message.provider, message.model) if isinstance(message, AssistantMessage) else ("", "")
        else:
            continue
        if model != ("", ""):
            return model
    return None


def thinking_level_of(path: Sequence[Entry]) -> str:
    """The thinking level in force at the end of a path; "off" where none was chosen."""
    for entry in reversed(path):
        if entry.type == "thinking_level_change":
            body = entry.body
            if isinstance(body, ThinkingLevelChangeBody) and body.thinking_level:
                return body.thinking_level
    return "off"


def convert_to_llm(
    messages: Iterable[Message],
    *,
    compaction_context: Callable[[str], str],
    branch_context: Callable[[str], str],
) -> list[Message]:
    """Context messages as the roles a model knows: user, assistant, toolResult, and system as it is.

    The two callables put a summary into the words that introduce it. Excluded bash commands and unknown
    roles are left out. Nothing else is mended here: failed answers and calls without results stay.
    """
    converted: list[Message] = []
    for message in messages:
        match message:
            case UserMessage() | AssistantMessage() | ToolResultMessage() | SystemMessage():
                converted.append(message)
            case CompactionSummaryMessage():
                converted.append(_user(compaction_context(message.summary), message.timestamp))
            case BranchSummaryMessage():
                converted.append(_user(branch_context(message.summary), message.timestamp))
            case CustomMessage():
                converted.append(UserMessage(blocks_of(message.content), message.timestamp))
            case BashExecutionMessage():
                if not message.exclude_from_context:
                    converted.append(_user(_bash_text(message), message.timestamp))
            case OtherMessage():
                pass
    return converted


def _user(text: str, timestamp: float) -> UserMessage:
    return UserMessage((TextContent(text),), timestamp)


def _bash_text(message: BashExecutionMessage) -> str:
    """A command the user ran, told to the model."""
    output = f"```\n{message.output}\n```" if message.output else "(no output)"
    text = f"Ran `{message.command}`\n{output}"
    if message.cancelled:
        text += "\n\n(command cancelled)"
    elif message.exit_code:
        text += f"\n\nCommand exited with code {message.exit_code}"
    if message.truncated and message.full_output_path:
        text += f"\n\n[Output truncated. Full output: {message.full_output_path}]"
    return text


class ContextTokens(msgspec.Struct, frozen=True):
    """The size of a context in tokens: what a provider measured and the estimate of what came after.

    `last_usage_index` is the index in the context's messages of the answer that was measured, None where
    everything is estimated (then `usage_tokens` is 0).
    """

    tokens: float
    usage_tokens: float
    trailing_tokens: float
    last_usage_index: int | None


def estimate_context_tokens(path: Sequence[Entry], counter: TokenCounter) -> ContextTokens:
    """The size of a path's context, from the last usage that can be trusted.

    Not trusted is what was measured before the newest compaction or context edit of the path, and what was
    measured when a tool result before it was not yet blanked: it describes another context.
    """
    reading = _Reading(path, counter)
    index = None if reading.usage_at is None else _message_index(path, path[reading.usage_at])
    return ContextTokens(
        reading.usage_tokens + reading.trailing_tokens, reading.usage_tokens, reading.trailing_tokens, index
    )


def _message_index(path: Sequence[Entry], target: Entry) -> int:
    """How many messages stand before that entry's in the context; reads hardly a body."""
    entries = context_entries(path)
    edits = context_edits(entries)
    count = 0
    for place, entry in enumerate(entries):
        if entry is target:
            break
        edit = edits.get(entry.id)
        hidden = edit is not None and edit.replacement is None
        count += _message_count(entry, newest_compaction=place == 0, hidden=hidden)
    return count


def _message_count(entry: Entry, *, newest_compaction: bool, hidden: bool) -> int:
    match entry.type:
        case "message":
            return 0 if hidden or entry.role is None else 1
        case "custom_message":
            return 0 if hidden else 1
        case "branch_summary":
            body = entry.body
            return 1 if isinstance(body, BranchSummaryBody) and body.summary and not hidden else 0
        case "compaction" if newest_compaction:
            body = entry.body
            with_system = isinstance(body, CompactionBody) and body.system_message is not None
            return with_system + (not hidden)
        case _:
            return 0


def valid_usage(message: Message | None) -> Usage | None:
    """What a provider measured for an answer; None where it gave none, failed or was interrupted."""
    if isinstance(message, AssistantMessage) and message.stop_reason not in ("aborted", "error"):
        return message.usage
    return None


class ContextUsage(msgspec.Struct, frozen=True):
    """How full a model's window is.

    `tokens` and `percent` (0 to 100 and more, not rounded) are None after a compaction until the next answer
    is measured. `estimated_tokens` is always a number: `tokens`, or else an estimate of the whole context.
    """

    tokens: float | None
    percent: float | None
    context_window: int
    estimated_tokens: float
    source: Literal["measured", "measured+estimate", "estimate"]


def context_usage(path: Sequence[Entry], window: int | None, counter: TokenCounter) -> ContextUsage | None:
    """How full a window of that many tokens is with a path's context; None without a usable window."""
    return UsageMeter(counter).usage(path, window)


class UsageMeter:
    """Context usage of a session that grows: after an append only the new entries are looked at."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._path: Sequence[Entry] | None = None
        self._length = 0
        self._reading: _Reading | None = None

    def usage(self, path: Sequence[Entry], window: int | None) -> ContextUsage | None:
        """As `context_usage`. `path` is the tree's own list: another list object is read anew."""
        if window is None or window <= 0:
            return None
        return _usage_of(self._follow(path), window)

    def _follow(self, path: Sequence[Entry]) -> _Reading:
        reading = self._reading
        if reading is None or path is not self._path or len(path) < self._length:
            reading = self._reading = _Reading(path, self._counter)
        else:
            for index in range(self._length, len(path)):
                if not reading.grow(index):
                    reading = self._reading = _Reading(path, self._counter)
                    break
        self._path = path
        self._length = len(path)
        return reading


def _usage_of(reading: _Reading, window: int) -> ContextUsage:
    tokens = reading.usage_tokens + reading.trailing_tokens
    if reading.compacted and not reading.answered:
        return ContextUsage(None, None, window, tokens, "estimate")
    if reading.usage_at is None:
        source = "estimate"
    else:
        source = "measured+estimate" if reading.trailing_tokens else "measured"
    return ContextUsage(tokens, tokens / window * 100, window, tokens, source)


class _Reading:
    """The size of one path's context, found by walking back from the leaf and kept up as the path grows."""

    def __init__(self, path: Sequence[Entry], counter: TokenCounter) -> None:
        self._path = path
        self._counter = counter
        found = latest_compaction(path)
        self.compacted = found is not None
        """Whether there is a compaction on the path."""
        self.answered = False
        """Whether an answer after the newest compaction was measured, trusted or not."""
        self.usage_at: int | None = None
        """The index on the path of the answer whose usage counts."""
        self.usage_tokens: float = 0
        self.trailing_tokens: float = 0
        self._after = 0 if found is None else found[0] + 1
        kept_from = 0 if found is None else _kept_from(path, found[0])
        self._prunings = _Prunings(path, kept_from)
        self._look_back()
        if self.usage_at is not None:
            self.trailing_tokens = sum(map(counter.entry, path[self.usage_at + 1 :]))
        else:
            self.trailing_tokens = _whole_estimate(path, counter)

    def _look_back(self) -> None:
        edited = False
        for index in range(len(self._path) - 1, self._after - 1, -1):
            entry = self._path[index]
            if entry.type == "context_edit":
                edited = True
            usage = _usage_at(entry)
            if usage is None:
                continue
            self.answered = True
            if edited:
                return
            if self._is_trusted(index, usage):
                self.usage_at, self.usage_tokens = index, context_tokens(usage.usage)
                return

    def _is_trusted(self, index: int, usage: _Measured) -> bool:
        return usage.time > self._prunings.latest_before(index)

    def grow(self, index: int) -> bool:
        """Take in the entry that was appended at that index; False: it changes what came before it."""
        entry = self._path[index]
        if entry.type in ("compaction", "context_edit"):
            return False
        usage = _usage_at(entry)
        if usage is not None:
            self.answered = True
            if self._is_trusted(index, usage):
                self.usage_at, self.usage_tokens = index, context_tokens(usage.usage)
                self.trailing_tokens = 0
                return True
        self.trailing_tokens += self._counter.entry(entry)
        return True


class _Measured(msgspec.Struct, frozen=True):
    usage: Usage
    time: float


def _usage_at(entry: Entry) -> _Measured | None:
    if entry.role != "assistant" or entry.type != "message":
        return None
    message = entry.message
    usage = valid_usage(message)
    if message is None or usage is None:
        return None
    return _Measured(usage, message.timestamp or time_of(entry.timestamp))


def _whole_estimate(path: Sequence[Entry], counter: TokenCounter) -> float:
    """Estimates of all messages of a context; cached ones are not read again."""
    entries = context_entries(path)
    edits = context_edits(entries)
    return sum(
        _estimate_entry(entry, edits, counter)
        for place, entry in enumerate(entries)
        if place == 0 or entry.type != "compaction"
    )


def _estimate_entry(entry: Entry, edits: Mapping[str, ContextEditBody], counter: TokenCounter) -> float:
    edit = edits.get(entry.id)
    if edit is None:
        return counter.entry(entry)
    message = message_of(entry)
    edited = None if message is None else edit_message(message, edit.replacement)
    return 0 if edited is None else counter.message(edited)


class _Prunings:
    """When the tool results of a context were blanked, found in one pass that goes only as far as asked."""

    def __init__(self, path: Sequence[Entry], start: int) -> None:
        self._path = path
        self._scanned = start
        self._at: list[int] = []
        self._latest: list[float] = []

    def latest_before(self, index: int) -> float:
        """The latest `prunedAt` (ms) of the results before that index of the path; -infinity for none."""
        for place in range(self._scanned, index):
            entry = self._path[place]
            if entry.role == "toolResult" and (pruned_at := entry.pruned_at) is not None:
                self._at.append(place)
                self._latest.append(max(pruned_at, self._latest[-1]) if self._latest else pruned_at)
        self._scanned = max(self._scanned, index)
        before = bisect_left(self._at, index)
        return self._latest[before - 1] if before else float("-inf")
