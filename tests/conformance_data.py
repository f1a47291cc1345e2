"""The recorded behaviour in `tests/conformance`, typed and unpacked, for the tests to compare with.

`sessions()` gives every recorded session with what is expected of it, `table(name)` the rows of one table,
and `same_text` compares a text with its recorded form. Nothing here writes: tests that open files copy
`Session.raw` to a place of their own.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json, loads
from pi_ls.core.lines import PlacedEntry, Scan

FOLDER = Path(__file__).parent / "conformance"


class Session:
    """One recorded session: the bytes of its file and what the published program made of them."""

    def __init__(self, name: str, file: Path, expected: Json) -> None:
        self.name = name
        self.file = file
        self.expected = expected

    def __repr__(self) -> str:
        return self.name

    @property
    def raw(self) -> bytes:
        """The session file's bytes, unpacked."""
        data = self.file.read_bytes()
        return gzip.decompress(data) if self.file.suffix == ".gz" else data

    @property
    def was_opened(self) -> bool:
        """Whether the recorded program took the file for a session."""
        return self.expected["open"].get("error") is None

    @property
    def leaves(self) -> list[Json]:
        """What was recorded at each tested leaf; `leaf` is None for the place before the first entry."""
        return self.expected.get("leaves", [])

    def entries(self) -> list[Entry]:
        """The entries of the file, in file order, read and upgraded by `pi_ls.core.lines`."""
        raw = self.raw

        def read(entry: Entry) -> Json:
            assert isinstance(entry, PlacedEntry)
            return scan.upgraded(loads(raw[entry.offset : entry.offset + entry.length]), entry)

        scan = Scan(read)
        return [*scan.take(BytesIO(raw).readlines())]

    def references(self, entries: list[Entry]) -> dict[int, str]:
        """`id(entry)` → how the expectations name the entry: by its id, or by its place (`@3`)."""
        by_place = self.expected.get("idScheme") == "index"
        return {id(entry): f"@{at}" if by_place else entry.id for at, entry in enumerate(entries)}


def opened_sessions() -> list[Session]:
    """The sessions the recorded program opened."""
    return [one for one in sessions() if one.was_opened]


@cache
def sessions() -> tuple[Session, ...]:
    """All recorded sessions, in the order of the index."""
    rows: list[dict[str, str]] = json.loads((FOLDER / "index.json").read_text("utf-8"))
    found: list[Session] = []
    for row in rows:
        expected = FOLDER / row["expected"]
        found.append(Session(expected.stem, FOLDER / row["session"], _load(expected)))
    return tuple(found)


def session(name: str) -> Session:
    """The recorded session of that name."""
    return next(one for one in sessions() if one.name == name)


def table(name: str) -> list[Json]:
    """The rows of a table in `expected/tables`."""
    return _load(FOLDER / "expected" / "tables" / f"{name}.json")["cases"]


def table_lines(name: str, session: str) -> list[Json]:
    """The lines of a session that a table in `expected/tables` is about."""
    return _load(FOLDER / "expected" / "tables" / f"{name}.json")["sessions"][session]


@cache
def _load(path: Path) -> Json:
    return json.loads(path.read_text("utf-8"))


def same_text(text: str, expected: Any) -> bool:
    """Whether a text is the recorded one: a plain string, or `{len, sha256_utf16le}` for a long one."""
    units = text.encode("utf-16-le", "surrogatepass")
    if isinstance(expected, str):
        return units == expected.encode("utf-16-le", "surrogatepass")
    digest: str = expected["sha256_utf16le"]
    length: int = expected["len"]
    return len(units) // 2 == length and hashlib.sha256(units).hexdigest() == digest
