"""The tree of a session's entries: path, children, labels, ancestors, and where a navigation lands.

Entries are append-only; the tree is their index. Only the leaf moves. What a broken file breaks in the
tree (a repeated id, a missing parent, a cycle) is mended in memory and told in `problems`; no entry that
has its id is ever left out. Source: spec of pi's SessionManager, seed 002 for the common ancestor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pi_ls.core.entries import CustomMessageBody, Entry, LabelBody, time_of
from pi_ls.core.messages import UserMessage, text_of


class TreeProblem(msgspec.Struct, frozen=True):
    """Something wrong with the tree a file describes.

    `kind` is the wire's: `duplicateId`, `missingParent` or `cycle`.
    """

    kind: str
    entry_id: str
    message: str


class Landing(msgspec.Struct, frozen=True):
    """Where a navigation ends: the new leaf (None: before the first entry) and text for the editor."""

    leaf_id: str | None
    editor_text: str | None = None


class SessionTree:
    """An index over entries in file order.

    `append` and `path()` of an unmoved leaf take constant time; so does everything an append needs.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.leaf_id: str | None = None
        """The current entry, what a new entry gets as parent; never a leaf marker."""
        self._index(entries)
        self.leaf_id = self.settle(self.entries[-1].id) if self.entries else None

    def _index(self, entries: Iterable[Entry]) -> None:
        self.entries: list[Entry] = []
        """All entries that have their id, in file order."""
        self.problems: list[TreeProblem] = []
        self._by_id: dict[str, Entry] = {}
        self._cut: set[str] = set()
        self._orphans: set[str] = set()
        self._missing: set[str] = set()  # the parents the orphans name
        self._path: list[Entry] | None = None
        self._children: dict[str | None, list[Entry]] | None = None
        self._labels: dict[str, str] | None = None
        by_id = self._by_id
        forward: list[Entry] = []
        listed = list(entries)
        for entry in listed:
            if entry.id in by_id:
                self._report("duplicateId", entry, f"id {entry.id} is used twice; the later entry has it")
            by_id[entry.id] = entry
        # One pass in file order: a parent that stands earlier can be no part of a cycle.
        seen: set[str] = set()
        for entry in listed:
            if by_id[entry.id] is not entry:
                continue
            self.entries.append(entry)
            parent_id = entry.parent_id
            if parent_id is not None and parent_id not in seen:
                if parent_id in by_id:
                    forward.append(entry)
                else:
                    self._orphan(entry, parent_id)
            elif parent_id is not None:
                entry.parent_id = by_id[parent_id].id  # one string object for each id
            seen.add(entry.id)
        self._cut_cycles(forward)

    def _orphan(self, entry: Entry, parent_id: str) -> None:
        self._orphans.add(entry.id)
        self._missing.add(parent_id)
        self._report(
            "missingParent",
            entry,
            f"entry {entry.id} follows {parent_id}, which is not in the file; earlier history may be missing",
        )

    def _cut_cycles(self, forward: Sequence[Entry]) -> None:
        """Every cycle has a link to a later entry; cut it at its entry that comes first in the file."""
        if not forward:
            return
        place = {entry.id: at for at, entry in enumerate(self.entries)}
        settled: set[str] = set()
        for start in forward:
            trail: list[Entry] = []
            on_trail: set[str] = set()
            entry: Entry | None = start
            while entry is not None and entry.id not in settled:
                if entry.id in on_trail:
                    cycle = trail[trail.index(entry) :]
                    first = min(cycle, key=lambda one: place[one.id])
                    self._cut.add(first.id)
                    self._report(
                        "cycle", first, f"entry {first.id} is its own ancestor; it is taken as a root"
                    )
                    break
                trail.append(entry)
                on_trail.add(entry.id)
                entry = self.parent(entry)
            settled |= on_trail

    def _report(self, kind: str, entry: Entry, message: str) -> None:
        self.problems.append(TreeProblem(kind, entry.id, message))

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._by_id

    def get(self, entry_id: str) -> Entry | None:
        """The entry of that id, or None."""
        return self._by_id.get(entry_id)

    def parent(self, entry: Entry) -> Entry | None:
        """The entry this one hangs on; None for a root, an orphan, or where a cycle was cut."""
        if entry.parent_id is None or entry.id in self._cut:
            return None
        return self._by_id.get(entry.parent_id)

    def is_orphan(self, entry: Entry) -> bool:
        """Whether the entry names a parent that is not in the file."""
        return entry.id in self._orphans

    @property
    def leaf(self) -> Entry | None:
        """The current entry; None before the first one."""
        return self._by_id[self.leaf_id] if self.leaf_id is not None else None

    def append(self, entry: Entry, *, move_leaf: bool = True) -> list[TreeProblem]:
        """Take in an entry that stands last in the file, and make it the leaf unless told otherwise.

        Returns the problems it brought. An entry that repeats an id, is the parent others miss, or names
        itself as parent costs a rebuilding of the index; any other one constant time.
        """
        if entry.id in self._by_id or entry.id in self._missing or entry.parent_id == entry.id:
            return self._rebuild_with(entry, move_leaf=move_leaf)
        known = len(self.problems)
        self.entries.append(entry)
        self._by_id[entry.id] = entry
        parent = self._by_id.get(entry.parent_id) if entry.parent_id is not None else None
        if parent is not None:
            entry.parent_id = parent.id  # one string object for each id
        elif entry.parent_id is not None:
            self._orphan(entry, entry.parent_id)
        if self._children is not None:
            siblings = self._children.setdefault(self._parent_id(entry), [])
            siblings.append(entry)
            if parent is not None:  # roots stay in the order of the file
                self._sort(siblings)
        if entry.type == "label":
            self._labels = None
        if move_leaf and not entry.is_leaf_marker:
            extends = self._path is not None and self._parent_id(entry) == self.leaf_id
            self.leaf_id = entry.id
            if extends and self._path is not None:
                self._path.append(entry)
            else:
                self._path = None
        return self.problems[known:]

    def _rebuild_with(self, entry: Entry, *, move_leaf: bool) -> list[TreeProblem]:
        said = list(self.problems)
        self._index([*self.entries, entry])
        if move_leaf and not entry.is_leaf_marker:
            self.leaf_id = entry.id
        known = {(one.kind, one.entry_id) for one in said}
        new = [one for one in self.problems if (one.kind, one.entry_id) not in known]
        self.problems = [*said, *new]
        return new

    def move(self, leaf_id: str | None) -> None:
        """Make another entry the leaf; None is the place before the first entry.

        Raises KeyError for an id that is not there.
        """
        if leaf_id is not None and leaf_id not in self._by_id:
            raise KeyError(leaf_id)
        self.leaf_id = self.settle(leaf_id)
        self._path = None

    def settle(self, entry_id: str | None) -> str | None:
        """The nearest entry from here towards the root that is no leaf marker."""
        entry = self._by_id[entry_id] if entry_id is not None else None
        while entry is not None and entry.is_leaf_marker:
            entry = self.parent(entry)
        return entry.id if entry is not None else None

    def path(self) -> Sequence[Entry]:
        """Root → leaf. The list is kept and grows with the leaf: read it, do not keep it."""
        if self._path is None:
            self._path = self.path_to(self.leaf_id)
        return self._path

    def path_to(self, entry_id: str | None) -> list[Entry]:
        """Root → the entry of that id; empty for None. Raises KeyError for an id that is not there."""
        return [] if entry_id is None else [*self.ancestry(self._by_id[entry_id])][::-1]

    def ancestry(self, entry: Entry | None) -> Iterator[Entry]:
        """The entry, its parent, and so on to its root."""
        while entry is not None:
            yield entry
            entry = self.parent(entry)

    def children(self, entry_id: str | None) -> Sequence[Entry]:
        """The entries that hang on one, by time, then by place in the file; of None: the roots, by place."""
        if self._children is None:
            self._children = {}
            for entry in self.entries:
                self._children.setdefault(self._parent_id(entry), []).append(entry)
            for parent_id, siblings in self._children.items():
                if parent_id is not None:
                    self._sort(siblings)
        return self._children.get(entry_id, ())

    def _parent_id(self, entry: Entry) -> str | None:
        parent = self.parent(entry)
        return parent.id if parent is not None else None

    @staticmethod
    def _sort(siblings: list[Entry]) -> None:
        if len(siblings) > 1:
            siblings.sort(key=lambda entry: time_of(entry.timestamp))  # stable: place decides between equals

    @property
    def labels(self) -> dict[str, str]:
        """Entry id → its label; the last label entry in the file counts."""
        if self._labels is None:
            self._labels = {}
            for entry in self.entries:
                if entry.type == "label" and isinstance(body := entry.body, LabelBody):
                    if body.label:
                        self._labels[body.target_id] = body.label
                    else:
                        self._labels.pop(body.target_id, None)
        return self._labels

    def common_ancestor(self, one: str | None, other: str | None) -> str | None:
        """The deepest entry on both paths; None where they share none. Raises KeyError for unknown ids."""
        if one is None or other is None:
            return None
        above = {entry.id for entry in self.ancestry(self._by_id[one])}
        for entry in self.ancestry(self._by_id[other]):
            if entry.id in above:
                return entry.id
        return None

    def landing(self, target_id: str | None) -> Landing:
        """Where choosing an entry leads: a user message or custom message is taken back into the editor.

        Its parent becomes the leaf and its text is given back to be written anew; any other entry becomes
        the leaf itself. Raises KeyError for an id that is not there.
        """
        if target_id is None:
            return Landing(None)
        entry = self._by_id[target_id]
        if entry.type == "message" and entry.role == "user":
            message = entry.message
            text = text_of(message.content) if isinstance(message, UserMessage) else ""
        elif isinstance(body := entry.body if entry.type == "custom_message" else None, CustomMessageBody):
            text = text_of(body.content)
        else:
            return Landing(self.settle(target_id))
        parent = self.parent(entry)
        return Landing(self.settle(parent.id) if parent is not None else None, text)
