"""A tree as the list of nodes a person sees: filtered, searched, in depth-first order, page by page.

A hidden entry's children hang on its nearest shown ancestor, so that no filter tears the tree. Nothing here
recurses (a session is a chain of tens of thousands of entries), and bodies are read only for the nodes of
the page, and where a filter or a query has to look into an entry to know whether it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec

from pi_ls.core.entries import (
    ContextEditBody,
    CustomMessageBody,
    Entry,
    LabelBody,
    ModelChangeBody,
    SessionInfoBody,
    ThinkingLevelChangeBody,
    Timestamp,
    message_of,
)
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    ImageContent,
    Message,
    ToolCall,
    blocks_of,
    text_of,
    tool_calls,
)
from pi_ls.core.tokens import TokenCounter, utf16_length
from pi_ls.core.tree import SessionTree

Filter = Literal["default", "no-tools", "user-only", "labeled-only", "all"]

TEXT_LIMIT: Final = 120
"""The longest text of a node, in UTF-16 code units."""

_SHOWN_TYPES: Final = frozenset({"message", "compaction", "branch_summary", "custom_message"})


class OutlineNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One shown entry. `parent_id` and `child_count` speak of shown entries, `tokens` of this one alone."""

    id: str
    parent_id: str | None
    type: str
    text: str
    """One line that tells the entry, at most `TEXT_LIMIT` long."""
    timestamp: Timestamp
    """As the file has it: ISO 8601, or milliseconds in old files."""
    tokens: int
    child_count: int
    on_path: bool
    """Whether the entry lies on the path from its root to the leaf."""
    is_leaf: bool
    """Whether it is the leaf, or the nearest shown ancestor of a hidden leaf."""
    role: str | msgspec.UnsetType = msgspec.UNSET
    label: str | msgspec.UnsetType = msgspec.UNSET
    orphan: bool = False
    """Whether the entry names a parent that is not in the file."""


class OutlinePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A page of nodes in depth-first order; `cursor` asks for the next one."""

    nodes: list[OutlineNode]
    leaf_id: str | None
    has_more: bool
    cursor: str | msgspec.UnsetType = msgspec.UNSET


def outline(
    tree: SessionTree,
    counter: TokenCounter,
    *,
    filter: Filter = "default",
    query: str | None = None,
    root_id: str | None = None,
    depth: int | None = None,
    limit: int = 2_000,
    cursor: str | None = None,
) -> OutlinePage:
    """One page of a tree's shown nodes.

    `default` hides state entries; `no-tools` also tool results and answers without text. Of the entries a
    filter shows, `query` leaves those that hold all of its words, in whatever case. `root_id` begins at that
    entry instead of the roots; nodes more than `depth` steps below the first ones are left out (0: only
    those), though they count as children. A cursor is the id of the node its page ended with.
    Raises KeyError where `root_id` or `cursor` is no entry.
    """
    view = _View(tree, _rule(tree, filter, query))
    nodes: list[OutlineNode] = []
    last: str | None = None
    for entry, parent_id in view.walk(root_id, depth, after=cursor):
        if len(nodes) == max(limit, 1):
            return OutlinePage(nodes=nodes, leaf_id=tree.leaf_id, has_more=True, cursor=last or "")
        nodes.append(_node(view, entry, parent_id, counter))
        last = entry.id
    return OutlinePage(nodes=nodes, leaf_id=tree.leaf_id, has_more=False)


class _View:
    """A tree as one rule shows it."""

    def __init__(self, tree: SessionTree, is_shown: Callable[[Entry], bool]) -> None:
        self.tree = tree
        self._rule = is_shown
        self._shown: dict[str, bool] = {}
        self._above: dict[str, str | None] = {}
        self.on_path = {entry.id for entry in tree.path()}
        self.leaf_id = self._nearest(tree.leaf)
        """The leaf, or the nearest shown entry above it."""

    def is_shown(self, entry: Entry) -> bool:
        shown = self._shown.get(entry.id)
        if shown is None:
            shown = self._shown[entry.id] = not entry.is_leaf_marker and self._rule(entry)
        return shown

    def _nearest(self, entry: Entry | None) -> str | None:
        """The id of the entry itself where it is shown, else of its nearest shown ancestor."""
        passed: list[str] = []
        found: str | None = None
        for one in self.tree.ancestry(entry):
            if self.is_shown(one):
                found = one.id
                break
            if one.id in self._above:
                found = self._above[one.id]
                break
            passed.append(one.id)
        self._above.update(dict.fromkeys(passed, found))
        return found

    def walk(
        self, root_id: str | None, depth: int | None, *, after: str | None
    ) -> Iterator[tuple[Entry, str | None]]:
        """Shown entries from the roots (or one entry) down, depth first, each with its shown parent's id.

        Entries up to and including `after` are passed over without being looked into.
        """
        first = self._entry(root_id) if root_id is not None else None
        pending = [first] if first is not None else [*reversed(self.tree.children(None))]
        if after is not None:
            pending = self._resume(first, self._entry(after))
        top = self._nearest(self.tree.parent(first)) if first is not None else None
        steps: dict[str | None, int] = {top: -1}
        while pending:
            entry = pending.pop()
            if self.is_shown(entry):
                parent_id = self._nearest(self.tree.parent(entry))
                at = steps[entry.id] = self._steps(parent_id, top, steps) + 1
                if depth is not None and at > depth:
                    continue
                yield entry, parent_id
            pending.extend(reversed(self.tree.children(entry.id)))

    def _resume(self, first: Entry | None, after: Entry) -> list[Entry]:
        """What a walk has still to visit once it has visited `after`: its children, later siblings of it and
        of its ancestors; the next one last."""
        pending: list[list[Entry]] = [[*self.tree.children(after.id)]]
        for entry in self.tree.ancestry(after):
            if entry is first:
                break
            parent = self.tree.parent(entry)
            siblings = self.tree.children(parent.id if parent is not None else None)
            pending.append([*siblings[siblings.index(entry) + 1 :]])
        return [entry for group in reversed(pending) for entry in reversed(group)]

    def _steps(self, entry_id: str | None, top: str | None, steps: dict[str | None, int]) -> int:
        """How many shown entries lie between that one and the top of the walk."""
        trail: list[str | None] = []
        while entry_id not in steps:
            trail.append(entry_id)
            entry_id = self._nearest(self.tree.parent(self._entry(entry_id))) if entry_id is not None else top
        at = steps[entry_id]
        for one in reversed(trail):
            at = steps[one] = at + 1
        return at

    def child_count(self, entry: Entry) -> int:
        """How many shown entries hang on a shown one."""
        count = 0
        pending = [*self.tree.children(entry.id)]
        while pending:
            one = pending.pop()
            if self.is_shown(one):
                count += 1
            else:
                pending.extend(self.tree.children(one.id))
        return count

    def _entry(self, entry_id: str) -> Entry:
        entry = self.tree.get(entry_id)
        if entry is None:
            raise KeyError(entry_id)
        return entry


def _rule(tree: SessionTree, filter: Filter, query: str | None) -> Callable[[Entry], bool]:
    """Which entries are shown."""
    words = (query or "").casefold().split()
    if not words:
        return lambda entry: _passes(tree, entry, filter)
    return lambda entry: _passes(tree, entry, filter) and _holds(tree, entry, words)


def _passes(tree: SessionTree, entry: Entry, filter: Filter) -> bool:
    match filter:
        case "all":
            return True
        case "user-only":
            return entry.type == "message" and entry.role == "user"
        case "labeled-only":
            return entry.id in tree.labels
        case "default":
            return _is_conversation(entry)
        case "no-tools":
            return _is_conversation(entry) and entry.role != "toolResult" and not _only_calls(entry)


def _is_conversation(entry: Entry) -> bool:
    """Whether the entry is no state entry (an empty branch summary is shown: it marks a place)."""
    return entry.type in _SHOWN_TYPES and (entry.type != "message" or entry.role is not None)


def _only_calls(entry: Entry) -> bool:
    if entry.role != "assistant":
        return False
    message = entry.message
    return isinstance(message, AssistantMessage) and not text_of(message.content).strip()


def _holds(tree: SessionTree, entry: Entry, words: list[str]) -> bool:
    hay = " ".join((entry.type, entry.role or "", tree.labels.get(entry.id, ""), _text(entry))).casefold()
    return all(word in hay for word in words)


def _node(view: _View, entry: Entry, parent_id: str | None, counter: TokenCounter) -> OutlineNode:
    return OutlineNode(
        id=entry.id,
        parent_id=parent_id,
        type=entry.type,
        role=entry.role if entry.role is not None else msgspec.UNSET,
        text=one_line(_text(entry)),
        label=view.tree.labels.get(entry.id, msgspec.UNSET),
        timestamp=entry.timestamp,
        tokens=counter.entry(entry),
        child_count=view.child_count(entry),
        on_path=entry.id in view.on_path,
        is_leaf=entry.id == view.leaf_id,
        orphan=view.tree.is_orphan(entry),
    )


def _text(entry: Entry) -> str:
    """What an entry says, as far as a list of entries can tell."""
    message = message_of(entry)
    return _state_text(entry) if message is None else _message_text(message)


def _message_text(message: Message) -> str:
    match message:
        case AssistantMessage():
            calls = ", ".join(map(_call_text, tool_calls(message)))
            return text_of(message.content, " ").strip() or message.error_message or calls
        case BashExecutionMessage():
            return f"$ {message.command}"
        case CompactionSummaryMessage() | BranchSummaryMessage():
            return message.summary
        case _:
            text = text_of(message.content, " ")
            if text or not any(isinstance(block, ImageContent) for block in blocks_of(message.content)):
                return text
            return "[image]"


def _call_text(call: ToolCall) -> str:
    """A tool's name and the first of its arguments that is a text: the command, the path, the pattern."""
    telling = next(
        (value for value in call.arguments.values() if isinstance(value, str) and value.strip()), ""
    )
    return f"{call.name}: {one_line(telling)}" if telling else call.name


def _state_text(entry: Entry) -> str:
    match entry.body:
        case LabelBody(target_id=target, label=label):
            return f"{target}: {label}" if label else f"{target}: label cleared"
        case SessionInfoBody(name=name):
            return name or ""
        case ModelChangeBody(provider=provider, model_id=model_id):
            return f"{provider}/{model_id}"
        case ThinkingLevelChangeBody(thinking_level=level):
            return level
        case ContextEditBody(target_id=target, replacement=replacement):
            return f"{target}: hidden" if replacement is None else f"{target}: replaced"
        case CustomMessageBody(custom_type=custom_type):
            return custom_type
        case _:
            return entry.role or ""


_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def one_line(text: str, limit: int = TEXT_LIMIT) -> str:
    """A text on one line of at most `limit` UTF-16 code units, an ellipsis where something was left out."""
    text = text.strip()
    start = text[: limit * 8]  # a text may be a megabyte
    line = _SURROGATES.sub("�", " ".join(start.split()))
    if len(start) == len(text) and utf16_length(line) <= limit:
        return line
    kept, length = 0, utf16_length("…")
    for character in line:
        length += utf16_length(character)
        if length > limit:
            break
        kept += 1
    return line[:kept].rstrip() + "…"
