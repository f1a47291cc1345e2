"""Recorded sessions as trees, whatever version their files have, and the values this program means to have.

Where a recorded value and this program differ on purpose, the difference is computed here, under a name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from pi_ls.core.context import convert_to_llm
from pi_ls.core.entries import Entry, message_of
from pi_ls.core.jsonvalues import Json, is_object, loads
from pi_ls.core.messages import Message
from pi_ls.core.tokens import utf16_length
from pi_ls.core.transcript import serialize_conversation
from pi_ls.core.tree import SessionTree
from tests.conformance_data import FOLDER, Session, same_text, sessions

HALVED_EMOJI = "serialize-truncation"
"""The session in which the recorded program cuts a tool result in the middle of an emoji, and we do not."""


class Recorded:
    """A recorded session as a tree, with the names that the expectations give its entries."""

    def __init__(self, case: Session) -> None:
        self.case = case
        self.by_place = case.expected.get("idScheme") == "index"
        entries = [Entry.of(line) for line in _upgraded(_lines(case))]
        self.names = {id(entry): f"@{at}" if self.by_place else entry.id for at, entry in enumerate(entries)}
        self.tree = SessionTree(entries)
        self._ids = {self.names[id(entry)]: entry.id for entry in entries}

    def __repr__(self) -> str:
        return self.case.name

    def entry_id(self, name: str | None) -> str | None:
        """The id here of an entry the expectations name."""
        return None if name is None else self._ids[name]

    def path(self, name: str | None) -> list[Entry]:
        return self.tree.path_to(self.entry_id(name))

    def name(self, entry: Entry | str) -> str:
        found = self.tree.get(entry) if isinstance(entry, str) else entry
        assert found is not None
        return self.names[id(found)]

    def names_of(self, entries: Sequence[Entry | str]) -> list[str]:
        return [self.name(entry) for entry in entries]


@cache
def recorded() -> tuple[Recorded, ...]:
    """All sessions the recorded program opened, in the order of the index."""
    return tuple(Recorded(case) for case in sessions() if case.was_opened)


@cache
def table_sessions(name: str) -> dict[str, SessionTree]:
    """The sessions a table of `expected/tables` is about."""
    raw = json.loads((FOLDER / "expected" / "tables" / f"{name}.json").read_text("utf-8"))
    return {key: SessionTree(map(Entry.of, _upgraded(lines))) for key, lines in raw["sessions"].items()}


def leaves_with(key: str) -> list[Any]:
    """(session, leaf) for every leaf at which something was recorded under that key."""
    return [(one, leaf) for one in recorded() for leaf in one.case.leaves if leaf.get(key)]


def leaf_id(value: Any) -> str:
    return f"{value['leaf']}" if isinstance(value, dict) else repr(value)


def _lines(case: Session) -> list[Json]:
    found: list[Json] = []
    for line in case.raw.split(b"\n"):
        try:
            value = loads(line.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            continue  # malformed lines are the store's subject
        if is_object(value) and isinstance(value.get("type"), str):
            found.append(value)
    return found


def _upgraded(lines: list[Json]) -> list[Json]:
    """The entries' lines, those of versions 1 and 2 as version 3 has them (else the store's work)."""
    header = next((line for line in lines if line["type"] == "session"), {"version": 3})
    version = header.get("version", 1)
    entries = [line for line in lines if line["type"] != "session"]
    if version == 1:  # one chain without ids; a boundary is an index that counts the header
        entries = [
            {"id": f"v1-{at}", "parentId": f"v1-{at - 1}" if at else None}
            | line
            | (
                {"firstKeptEntryId": f"v1-{line['firstKeptEntryIndex'] - 1}"}
                if "firstKeptEntryIndex" in line
                else {}
            )
            for at, line in enumerate(entries)
        ]
    if version < 3:
        for line in entries:
            if is_object(message := line.get("message")) and message.get("role") == "hookMessage":
                message["role"] = "custom"
    return [line for line in entries if isinstance(line.get("id"), str)]


def text_for_model(messages: Sequence[Message]) -> str:
    """Messages as a summarizer gets them, with placeholders for the words around summaries."""
    return serialize_conversation(
        convert_to_llm(
            messages,
            compaction_context=lambda summary: f"{{{{COMPACTION_PREFIX}}}}{summary}{{{{SUMMARY_SUFFIX}}}}",
            branch_context=lambda summary: f"{{{{BRANCH_PREFIX}}}}{summary}{{{{SUMMARY_SUFFIX}}}}",
        )
    )


def is_recorded_text(text: str, expected: Any, case: Session) -> bool:
    """Whether a transcript is the recorded one, one unit less where an emoji would have been cut in half."""
    if same_text(text, expected):
        return True
    if case.name != HALVED_EMOJI or not is_object(expected):
        return False
    return utf16_length(text) == expected["len"] - 1 and text.startswith(expected["head"])


def is_recorded_list(items: Sequence[Any], expected: Any) -> bool:
    """Whether a list is the recorded one: whole, or its count and ends."""
    if not is_object(expected):
        return list(items) == expected
    return (len(items), items[0], items[-1]) == (expected["count"], expected["first"], expected["last"])


def tokens_before(one: Recorded, leaf: Json, recorded_tokens: float) -> float:
    """The size of a context: the recorded one, unless it rests on a usage from before the compaction.

    Such a usage is not trusted here; every message of the context is estimated then.
    """
    newest: str | None = leaf["latestCompaction"]
    measured: int | None = leaf["estimate"]["lastUsageIndex"]
    branch: list[str] = one.names_of(one.path(leaf["leaf"]))
    messages: list[list[str]] = leaf["messages"]
    if newest is None or measured is None:
        return recorded_tokens
    source_of_usage: str = messages[measured][1]
    if branch.index(source_of_usage) > branch.index(newest):
        return recorded_tokens
    weights: dict[str, list[list[Any]]] = one.case.expected["entryMessages"]
    return sum(row[1] for role, source in messages for row in weights[source] if row[0] == role)


def yields_message(path: Sequence[Entry], at: int) -> bool:
    """Whether what is kept begins with a message; the recorded program takes a state entry for a split."""
    return at < len(path) and message_of(path[at]) is not None
