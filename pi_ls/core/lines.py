"""Lines of a session file → entries, whatever state the file is in.

A `Scan` takes lines in file order and keeps what it has learnt: header, problems, totals. Of each line only
the envelope is decoded (who it is, where it hangs, what it cost); the body stays on disk and the entry
remembers its place. A line that the fast decoder refuses is looked at again slowly, and yields every
complete record that is on it. Nothing here touches a file; the store feeds the lines.

Upgrades of the two older formats are here too: version 1 (no ids, a linear list) and 2 (`hookMessage`).
Source: pi's session format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from sys import intern
from typing import Any, NoReturn

import msgspec

from pi_ls.core.entries import SESSION_VERSION, Entry, Header, Timestamp
from pi_ls.core.jsonvalues import Json, is_array, is_count, is_object, loads, optional_string, string
from pi_ls.core.messages import Usage, context_tokens, decode_usage

BOM = b"\xef\xbb\xbf"
FORMAT_WITHOUT_IDS = 1
"""The version whose entries are a plain list; it is given ids when it is read."""

_NO_TOKENS = -1
_END = b"\n"


class FileProblem(msgspec.Struct, frozen=True):
    """Something wrong with a session file, at a line (from 1).

    `kind` is the wire's: `malformedLine`, `tornLine`, `newerVersion`, …
    """

    kind: str
    line: int | None
    message: str
    entry_id: str | None = None


class NotASession(Exception):
    """The lines are no session: the first object among them is no header."""


class Totals:
    """What a whole file adds up to, abandoned branches included; kept up as entries come.

    `roles` counts entries of type `message` by role, `tool_calls` the calls in assistant messages. Usage is
    that of assistant messages, summaries and `usage` entries, in tokens and dollars.
    """

    __slots__ = (
        "cache_read",
        "cache_write",
        "cost",
        "input",
        "messages",
        "output",
        "roles",
        "tokens",
        "tool_calls",
    )

    def __init__(self) -> None:
        self.messages = 0
        self.roles: dict[str, int] = {}
        self.tool_calls = 0
        self.input: float = 0
        self.output: float = 0
        self.cache_read: float = 0
        self.cache_write: float = 0
        self.tokens: float = 0
        self.cost: float = 0

    def add_usage(self, usage: Usage) -> None:
        """Count one request's usage."""
        self.input += usage.input
        self.output += usage.output
        self.cache_read += usage.cache_read
        self.cache_write += usage.cache_write
        self.tokens += context_tokens(usage)
        self.cost += usage.cost.total

    def add_envelope_usage(self, raw: _EnvelopeUsage) -> None:
        """Count a usage as an envelope has it; what `decode_usage` would not trust is not counted."""
        if raw.input < 0 or raw.output < 0:
            return
        tokens = raw.total_tokens
        if tokens <= 0:
            tokens = raw.input + raw.output + raw.cache_read + raw.cache_write
            if tokens <= 0:
                return
        self.input += raw.input
        self.output += raw.output
        self.cache_read += raw.cache_read
        self.cache_write += raw.cache_write
        self.tokens += tokens
        if raw.cost is not None:
            self.cost += raw.cost.total

    def add(self, data: Json) -> None:
        """Count a whole decoded entry."""
        if data.get("type") in _TYPES_WITH_USAGE:
            self._add_raw_usage(data.get("usage"))
        if data.get("type") != "message":
            return
        self.messages += 1
        message = data.get("message")
        if not is_object(message) or not isinstance(role := message.get("role"), str):
            return
        self.roles[role] = self.roles.get(role, 0) + 1
        if role == "assistant":
            self.tool_calls += _count_tool_calls(message.get("content"))
            self._add_raw_usage(message.get("usage"))

    def _add_raw_usage(self, raw: Any) -> None:
        usage = decode_usage(raw)
        if usage is not None:
            self.add_usage(usage)


class PlacedEntry(Entry):
    """An entry with its place in the file: `length` bytes from `offset`, without the line end.

    An offset below 0 means that it is not on disk.
    """

    __slots__ = ("length", "offset")

    def __init__(
        self,
        id: str,
        parent_id: str | None,
        type: str,
        timestamp: Timestamp,
        role: str | None,
        read: Callable[[Entry], Json],
        offset: int,
        length: int,
        pruned_at: float | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> None:
        # Not through super(): this runs once for each line of a file.
        self.id = id
        self.parent_id = parent_id
        self.type = type
        self.timestamp = timestamp
        self.role = role
        self._read = read
        self._pruned_at = pruned_at
        self.offset = offset
        self.length = length

    @classmethod
    def unplaced(cls, data: Json) -> PlacedEntry:
        """A new entry that is in memory only."""
        entry = cls(
            data["id"], data["parentId"], data["type"], data["timestamp"], None, lambda _entry: data, -1, 0
        )
        entry.role = _role_of(data)
        return entry

    def place(self, offset: int, length: int, read: Callable[[Entry], Json]) -> None:
        """The entry is on disk now, and `read` fetches it from there."""
        self.offset, self.length, self._read = offset, length, read


class Scan:
    """Reads lines in file order; keeps what earlier ones said about later ones.

    `read` is what the entries get to fetch their bodies with.
    """

    def __init__(self, read: Callable[[Entry], Json]) -> None:
        self._read = read
        self.header: Header | None = None
        self.version = SESSION_VERSION
        self.lines = 0
        """How many line ends have been passed."""
        self.offset = 0
        """Up to where the file has been taken in; the rest is nothing, or the start of a record."""
        self.header_place: tuple[int, int] | None = None
        """Where the header stands, and how long it is."""
        self.totals = Totals()
        self.ids: set[str] = set()
        self.problems: list[FileProblem] = []
        self._upgrade: Upgrade | None = None
        self._torn_at = -1

    def upgraded(self, data: Json, entry: Entry) -> Json:
        """An entry's object in the present format."""
        return self._upgrade(data, entry) if self._upgrade is not None else data

    def take(self, lines: Iterable[bytes], *, report_torn: bool = True) -> list[PlacedEntry]:
        """Entries of whole lines (each with its line end, the last one perhaps without).

        A last line without a line end is taken in if it is complete. Otherwise it is left for the next
        time, when more of it may be there, and reported if `report_torn`. Raises NotASession where the
        first object is no header.
        """
        found: list[PlacedEntry] = []
        rest = iter(lines)
        while self.header is None or self._upgrade is not None:
            line = next(rest, None)
            if line is None:
                return found
            found += self._slowly(line, report_torn)
        # The loop runs once for each line of files of 100 MB and more: everything it needs is a local.
        decode, read, totals, roles = _decode_envelope, self._read, self.totals, self.totals.roles
        add_id, add_usage, append = self.ids.add, totals.add_envelope_usage, found.append
        offset, count = self.offset, self.lines
        last_id: str | None = None
        line = _END
        for line in rest:
            try:
                envelope = decode(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                envelope = None
            if envelope is None or envelope.id is None or envelope.type == "session":
                self.offset, self.lines = offset, count
                found += self._slowly(line, report_torn)
                offset, count, line = self.offset, self.lines, _END
                continue
            type_, entry_id, parent_id = intern(envelope.type), envelope.id, envelope.parentId
            role: str | None = None
            pruned_at: float | None = None
            if type_ == "message":
                totals.messages += 1
                message = envelope.message
                if message is not None and message.role is not None:
                    role = intern(message.role)
                    pruned_at = message.prunedAt
                    roles[role] = roles.get(role, 0) + 1
                    if role == "assistant":
                        if isinstance(message.content, list):
                            for block in message.content:
                                if block.type == "toolCall":
                                    totals.tool_calls += 1
                        if message.usage is not None:
                            add_usage(message.usage)
            elif type_ == "custom":
                role = intern(envelope.customType) if envelope.customType is not None else None
            elif envelope.usage is not None and type_ in _TYPES_WITH_USAGE:
                add_usage(envelope.usage)
            if parent_id == last_id:
                parent_id = last_id  # one string object for both, in nearly every line
            last_id = entry_id
            size = len(line)
            add_id(entry_id)
            time = envelope.timestamp
            append(PlacedEntry(entry_id, parent_id, type_, time, role, read, offset, size - 1, pruned_at))
            offset += size
            count += 1
        if not line.endswith(b"\n"):
            found[-1].length += 1
            count -= 1
        self.offset, self.lines = offset, count
        return found

    def _slowly(self, line: bytes, report_torn: bool) -> list[PlacedEntry]:
        """Entries of one line that needs care: broken, glued, a header, or of an old format."""
        start = self.offset
        ended = line.endswith(b"\n")
        records, problem = split_records(line, self.version == FORMAT_WITHOUT_IDS)
        found: list[PlacedEntry] = []
        for record in records:
            if self.header is None:
                self._take_header(record, start, is_whole_line=problem is None)
            elif (entry := self._entry(record, start)) is not None:
                found.append(entry)
        if problem is not None and start != self._torn_at and (ended or report_torn):
            self._report(problem, "malformedLine" if ended else "tornLine")
        if problem is None or ended:
            self.offset += len(line)
        else:
            self.offset += records[-1].start + records[-1].length if records else 0
            self._torn_at = self.offset if report_torn or start == self._torn_at else -1
        self.lines += ended
        return found

    def _take_header(self, record: Record, start: int, *, is_whole_line: bool) -> None:
        header = decode_header(record.data)
        if header is None and is_whole_line:
            raise NotASession
        if header is None:
            return
        self.header, self.version = header, header.version
        self.header_place = (start + record.start, record.length)
        if header.version < SESSION_VERSION:
            self._upgrade = Upgrade(header)

    def begin(self, header: Header, offset: int, length: int) -> None:
        """The file has just been given its header, at that place."""
        self.header, self.header_place = header, (offset, length)
        self.lines += 1

    def upgrade_is_done(self) -> None:
        """From here on the file is in the present format."""
        self.version, self._upgrade = SESSION_VERSION, None

    def _entry(self, record: Record, start: int) -> PlacedEntry | None:
        data = record.data
        type_, entry_id, parent_id = data.get("type"), data.get("id"), data.get("parentId")
        if self._upgrade is not None and self.version == FORMAT_WITHOUT_IDS and isinstance(type_, str):
            entry_id, parent_id = self._upgrade.place(type_, self.lines + 1, self.ids)
        if type_ == "session":
            return self._passed_over("is a second session header")
        if not isinstance(type_, str):
            return self._passed_over("has no type")
        if not isinstance(entry_id, str):
            return self._passed_over("has no id that is text")
        if not isinstance(parent_id, str | None):
            self._report("has a parentId that is not text; its entry is taken as a root", entry_id=entry_id)
            parent_id = None
        offset = start + record.start
        entry = PlacedEntry(
            entry_id, parent_id, type_, data.get("timestamp"), None, self._read, offset, record.length
        )
        data = self.upgraded(data, entry)
        entry.role = _role_of(data)
        self.ids.add(entry_id)
        self.totals.add(data)
        return entry

    def _passed_over(self, why: str) -> None:
        self._report(f"{why}; it is passed over and stays in the file")

    def _report(self, what: str, kind: str = "malformedLine", entry_id: str | None = None) -> None:
        line = self.lines + 1
        self.problems.append(FileProblem(kind, line, f"line {line} {what}", entry_id))


class Record(msgspec.Struct, frozen=True):
    """A complete JSON object on a line: `length` bytes from `start`."""

    start: int
    length: int
    data: Json


def split_records(line: bytes, without_ids: bool = False) -> tuple[list[Record], str | None]:
    """The complete objects on a line, and what is wrong with it (None: it is one object, or blank).

    What follows a torn record counts if it is an entry by itself and not a part of something larger: a
    block inside the torn record could be taken for one otherwise.
    """
    at = len(BOM) if line.startswith(BOM) else 0
    body = line[at:].strip(_BLANKS)
    if not body.strip():
        return [], None
    whole = _object(body)
    if whole is not None:
        return [Record(line.index(b"{", at), len(body), whole)], None
    search = _Search(line)
    records, at = search.objects(at)
    if at == len(line):
        return records, f"holds {len(records)} records"
    for candidate in _RECORD_START.finditer(search.text, at):
        if candidate.start() < at:
            continue
        found, end = search.objects(candidate.start())
        is_part = search.text[end : end + 1] in _CONTINUATIONS
        if found and not is_part and all(_stands_alone(one.data, without_ids) for one in found):
            records, at = records + found, end
    if records:
        return records, f"holds {len(records)} complete records and something that is none; it stays"
    if line.endswith(b"\n"):
        return [], "is no complete JSON object; it is passed over and stays in the file"
    return [], "ends in the middle of a record; it stays, and the next entry begins a line of its own"


def decode_header(data: Json) -> Header | None:
    """The header of a session from the first object of its file; None where it is none."""
    if data.get("type") != "session" or not isinstance(data.get("id"), str):
        return None
    version = data.get("version")
    if version is None:
        version = FORMAT_WITHOUT_IDS
    elif not is_count(version):
        version = SESSION_VERSION  # whatever it is, it is not the time before versions
    return Header(
        id=data["id"],
        version=max(int(version), FORMAT_WITHOUT_IDS),
        timestamp=string(data.get("timestamp")),
        cwd=string(data.get("cwd")),
        parent_session=optional_string(data.get("parentSession")),
    )


class Upgrade:
    """Turns entries of an older version into present ones, the same way at every reading."""

    def __init__(self, header: Header) -> None:
        self._session = header.id
        self._version = header.version
        self._last: str | None = None
        self._ids: list[str | None] = [None]  # by record; the header is record 0

    def place(self, type_: str, line: int, taken: set[str]) -> tuple[str | None, str | None]:
        """Id and parent id for the next record, which stands on `line`; derived, so that readings agree."""
        if type_ == "session":
            self._ids.append(None)  # no entry, but it has its number
            return None, None
        salt = 0
        while True:
            name = f"{self._session}:{line}" + (f":{salt}" if salt else "")
            entry_id = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            if entry_id not in taken:
                break
            salt += 1
        parent, self._last = self._last, entry_id
        self._ids.append(entry_id)
        return entry_id, parent

    def __call__(self, data: Json, entry: Entry) -> Json:
        """The entry's object as the present version has it."""
        if self._version == FORMAT_WITHOUT_IDS:
            data = {"type": entry.type, **data, "id": entry.id, "parentId": entry.parent_id}
            index = data.pop("firstKeptEntryIndex", None)
            if isinstance(index, int) and 0 <= index < len(self._ids) and self._ids[index] is not None:
                data["firstKeptEntryId"] = self._ids[index]
        message = data.get("message")
        if entry.type == "message" and is_object(message) and message.get("role") == "hookMessage":
            data = {**data, "message": {**message, "role": "custom"}}
        return data


# ---- decoding an envelope


class _EnvelopeCost(msgspec.Struct, gc=False):
    total: float = 0


class _EnvelopeUsage(msgspec.Struct, gc=False, rename="camel"):
    input: float = _NO_TOKENS
    output: float = _NO_TOKENS
    cache_read: float = 0
    cache_write: float = 0
    total_tokens: float = 0
    cost: _EnvelopeCost | None = None


class _BlockKind(msgspec.Struct, gc=False):
    type: str | None = None


class _EnvelopeMessage(msgspec.Struct, gc=False):
    role: str | None = None
    prunedAt: float | None = None
    content: list[_BlockKind] | str | None = None
    usage: _EnvelopeUsage | None = None


class _Envelope(msgspec.Struct, gc=False):
    type: str
    id: str | None = None
    parentId: str | None = None
    timestamp: str | int | float | None = None
    customType: str | None = None
    message: _EnvelopeMessage | None = None
    usage: _EnvelopeUsage | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


# ---- looking closely at one line


_BLANKS = b" \t\r\n"
_TYPES_WITH_USAGE = frozenset(("compaction", "branch_summary", "usage"))
_CONTINUATIONS = (",", "]", "}")
_LEAST_EFFORT = 4 << 20
_RECORD_START = re.compile(r'\{\s*"(?:type|id|parentId|timestamp)"\s*:')


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_structure = json.JSONDecoder(parse_constant=_refuse_constant)


def _object(data: bytes) -> Json | None:
    """The object that these bytes are, or None."""
    if not data.startswith(b"{"):
        return None
    try:
        value = loads(data)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


class _Search:
    """Looks for objects on a line, with an end to the effort.

    Latin-1 makes one character of one byte, so places in `text` are places in the line; the structure of
    JSON is ASCII, and the objects themselves are decoded from the bytes.
    """

    def __init__(self, line: bytes) -> None:
        self.text = line.decode("latin-1")
        self._line = line
        self._left = 8 * len(line) + _LEAST_EFFORT

    def objects(self, at: int) -> tuple[list[Record], int]:
        """Complete objects from a place on, one after the other, and where something else begins."""
        records: list[Record] = []
        while True:
            while at < len(self.text) and self.text[at] in " \t\r\n":
                at += 1
            end = self._end_of_object(at)
            data = _object(self._line[at:end]) if end is not None else None
            if end is None or data is None:
                return records, at
            records.append(Record(at, end - at, data))
            at = end

    def _end_of_object(self, at: int) -> int | None:
        # A line that is nested deeply and never closed could be tried at each of its braces, to its end.
        if self._left < 0 or not self.text.startswith("{", at):
            return None
        try:
            _, end = _structure.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            self._left -= error.pos - at
        except (ValueError, RecursionError):
            self._left -= _LEAST_EFFORT // 256
        else:
            self._left -= end - at
            return end
        return None


def _stands_alone(data: Json, without_ids: bool) -> bool:
    """Whether an object is an entry rather than a part of one (a tool call has type and id too)."""
    has_place = without_ids or (isinstance(data.get("id"), str) and "parentId" in data)
    return isinstance(data.get("type"), str) and "timestamp" in data and has_place


def _role_of(data: Json) -> str | None:
    message = data.get("message")
    if data.get("type") == "message" and is_object(message):
        role = message.get("role")
    else:
        role = data.get("customType") if data.get("type") == "custom" else None
    return intern(role) if isinstance(role, str) else None


def _count_tool_calls(content: Any) -> int:
    if not is_array(content):
        return 0
    return sum(1 for block in content if is_object(block) and block.get("type") == "toolCall")
