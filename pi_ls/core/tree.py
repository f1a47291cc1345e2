"""The tree of a session's entries: path, children, labels, ancestors, and where a navigation lands.

Entries are append-only; the tree is their index. Only the leaf moves. What a broken file breaks in the
tree (a repeated id, a missing parent, a cycle) is mended in memory and told in `problems`; no entry that
has its id is ever left out. Source: spec of pi's SessionManager, seed 002 for the common ancestor.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from pi_ls.core.entries import CustomMessageBody, Entry, LabelBody, time_of
from pi_ls.core.messages import UserMessage, text_of

Kept = TypeVar("Kept")


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

    One caller at a time may change it, while any number of threads look at it. So what is derived (path,
    children, labels) is made aside and kept with the number of changes it was made after: made of a state
    that is no more, it is not used again.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.leaf_id: str | None = None
        """The current entry, what a new entry gets as parent; never a leaf marker."""
        self._changes = 0  # counted up once a change is complete
        self._path: tuple[int, list[Entry]] | None = None
        self._children: tuple[int, dict[str | None, list[Entry]]] | None = None
        self._labels: tuple[int, dict[str, str]] | None = None
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
        path, children, labels = self._kept(self._path), self._kept(self._children), self._kept(self._labels)
        if children is not None:
            self._hang_on(children, entry, sort=parent is not None)  # roots stay in the order of the file
        if move_leaf and not entry.is_leaf_marker:
            if path is not None and self._parent_id(entry) == self.leaf_id:
                path.append(entry)
            else:
                path = None
            self.leaf_id = entry.id
        self._changes += 1
        self._path = None if path is None else (self._changes, path)
        self._children = None if children is None else (self._changes, children)
        self._labels = None if labels is None or entry.type == "label" else (self._changes, labels)
        return self.problems[known:]

    def _hang_on(self, children: dict[str | None, list[Entry]], entry: Entry, *, sort: bool) -> None:
        parent_id = self._parent_id(entry)
        siblings = [*children.get(parent_id, ())]  # another list: somebody may be walking along the old one
        if sort:
            bisect.insort_right(siblings, entry, key=_time)
        else:
            siblings.append(entry)
        children[parent_id] = siblings

    def _kept(self, made: tuple[int, Kept] | None) -> Kept | None:
        """What was derived, if nothing has changed since."""
        return made[1] if made is not None and made[0] == self._changes else None

    def _rebuild_with(self, entry: Entry, *, move_leaf: bool) -> list[TreeProblem]:
        fresh = SessionTree([*self.entries, entry])
        known = {(one.kind, one.entry_id) for one in self.problems}
        new = [one for one in fresh.problems if (one.kind, one.entry_id) not in known]
        self.problems = [*self.problems, *new]
        self._cut, self._orphans, self._missing = fresh._cut, fresh._orphans, fresh._missing
        self._by_id, self.entries = fresh._by_id, fresh.entries
        if move_leaf and not entry.is_leaf_marker:
            self.leaf_id = entry.id
        self._changes += 1
        return new

    def move(self, leaf_id: str | None) -> None:
        """Make another entry the leaf; None is the place before the first entry.

        Raises KeyError for an id that is not there.
        """
        if leaf_id is not None and leaf_id not in self._by_id:
            raise KeyError(leaf_id)
        self.leaf_id = self.settle(leaf_id)
        self._changes += 1

    def settle(self, entry_id: str | None) -> str | None:
        """The nearest entry from here towards the root that is no leaf marker."""
        entry = self._by_id[entry_id] if entry_id is not None else None
        while entry is not None and entry.is_leaf_marker:
            entry = self.parent(entry)
        return entry.id if entry is not None else None

    def path(self) -> Sequence[Entry]:
        """Root → leaf. The list is kept and grows with the leaf: read it, do not keep it."""
        path = self._kept(self._path)
        if path is None:
            changes = self._changes
            path = self.path_to(self.leaf_id)
            self._path = changes, path
        return path

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
        children = self._kept(self._children)
        if children is None:
            changes = self._changes
            children = dict[str | None, list[Entry]]()
            for entry in [*self.entries]:
                children.setdefault(self._parent_id(entry), []).append(entry)
            for parent_id, siblings in children.items():
                if parent_id is not None:
                    siblings.sort(key=_time)  # stable: place decides between equals
            self._children = changes, children
        return children.get(entry_id, ())

    def _parent_id(self, entry: Entry) -> str | None:
        parent = self.parent(entry)
        return parent.id if parent is not None else None

    @property
    def labels(self) -> dict[str, str]:
        """Entry id → its label; the last label entry in the file counts."""
        labels = self._kept(self._labels)
        if labels is None:
            changes = self._changes
            labels = dict[str, str]()
            for entry in [*self.entries]:
                if entry.type == "label" and isinstance(body := entry.body, LabelBody):
                    if body.label:
                        labels[body.target_id] = body.label
                    else:
                        labels.pop(body.target_id, None)
            self._labels = changes, labels
        return labels

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


def _time(entry: Entry) -> float:
    return time_of(entry.timestamp)
