"""What sessions there are, and a part of one as a new file.

Files are read through once, line by line, and what was found is kept for as long as a file's size and time
stay the same. No more than one line is in memory, and of a very long line only its beginning.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from pi_ls.core.entries import Entry, LabelBody, iso_time, session_name
from pi_ls.core.errors import SessionNotFound, WriteFailed
from pi_ls.core.jsonvalues import Json, dumps, is_object, string
from pi_ls.core.lines import FORMAT_WITHOUT_IDS, Record, decode_header, split_records
from pi_ls.core.messages import decode_content, text_of
from pi_ls.store.file import SessionFile, header_data
from pi_ls.store.places import (
    CREATE_FLAGS,
    FILE_MODE,
    make_folder,
    new_header,
    new_session_path,
    open_to_read,
    reason,
    short_id,
    sync_folder,
)

FIRST_MESSAGE_CHARACTERS = 200

_READ_BUFFER = 1 << 18
_LONGEST_LINE = 8 << 20


class SessionSummary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One row of a list of sessions.

    `created` and `modified` are ISO 8601 (the header's time, the file's); `first_message` is the beginning
    of what the user said first.
    """

    id: str
    path: str
    cwd: str
    created: str
    modified: str
    message_count: int
    first_message: str
    name: str | None = None
    parent_session: str | None = None


class _Known(NamedTuple):
    state: tuple[int, int, int]
    summary: SessionSummary | None


_known: dict[Path, dict[str, _Known]] = {}
"""What was found, by folder and path; a folder's part is exchanged as a whole."""


def list_sessions(directories: Path | Iterable[Path], cwd: str | None = None) -> list[SessionSummary]:
    """The sessions in these folders, the one last written first; with `cwd`, only those of that folder.

    Which folder a session belongs to is what its header says. Files that are no sessions are left out.
    """
    if isinstance(directories, Path):
        directories = [directories]
    wanted = None if cwd is None else _folder(cwd)
    found: list[tuple[int, SessionSummary]] = []
    for directory in directories:
        for known in _look_through(directory):
            summary = known.summary
            if summary is not None and (wanted is None or _folder(summary.cwd) == wanted):
                found.append((known.state[-1], summary))
    found.sort(key=lambda one: (one[0], one[1].path), reverse=True)
    return [summary for _, summary in found]


def find_session(directories: Path | Iterable[Path], session_id: str) -> Path:
    """The file of the session whose header has that id, the newest if there are several.

    The id is compared, never made part of a path. Raises SessionNotFound.
    """
    for summary in list_sessions(directories):
        if summary.id == session_id:
            return Path(summary.path)
    raise SessionNotFound("There is no session of that id here.", id=session_id)


def _look_through(directory: Path) -> Iterable[_Known]:
    before = _known.get(directory, {})
    now: dict[str, _Known] = {}
    for path in _session_files(directory):
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands of them
        except OSError:
            continue
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = before.get(path)
        if known is None or known.state != state:
            known = _Known(state, _read_summary(path, status))
        now[path] = known
    _known[directory] = now
    return now.values()


def _session_files(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as items:
            return [one.path for one in items if one.name.endswith(".jsonl") and not one.name.startswith(".")]
    except OSError:
        return []


def _folder(cwd: str) -> str:
    """What a folder is compared by: its real path; where it is missing, its text."""
    return os.path.realpath(cwd) if os.path.isdir(cwd) else cwd  # noqa: PTH112


def _read_summary(path: str, status: os.stat_result) -> SessionSummary | None:
    try:
        fd = open_to_read(Path(path))
    except OSError:
        return None
    with open(fd, "rb", buffering=_READ_BUFFER) as stream:  # noqa: PTH123 - a descriptor
        try:
            return _Reading(path, status).read(stream)
        except OSError:
            return None


class _ListedMessage(msgspec.Struct, gc=False):
    role: str | None = None


class _Listed(msgspec.Struct, gc=False):
    type: str
    message: _ListedMessage | None = None


_decode_listed = msgspec.json.Decoder(_Listed).decode


class _Reading:
    """Reads one file for the list."""

    def __init__(self, path: str, status: os.stat_result) -> None:
        self._path = path
        self._status = status
        self._header: SessionSummary | None = None
        self._without_ids = False
        self._messages = 0
        self._first = ""
        self._name: str | None = None

    def read(self, stream: BinaryIO) -> SessionSummary | None:
        for line in iter(lambda: stream.readline(_LONGEST_LINE), b""):
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                self._take_long(line, stream)
                continue
            if self._header is not None:
                try:
                    listed = _decode_listed(line)
                except (msgspec.MsgspecError, UnicodeError, RecursionError):
                    listed = None
                if listed is not None and not self._is_looked_into(listed):
                    self._messages += listed.type == "message"
                    continue
            records, problem = split_records(line, self._without_ids)
            for record in records:
                if not self._take(record) and problem is None:
                    return None
        if self._header is None:
            return None
        return msgspec.structs.replace(
            self._header, message_count=self._messages, first_message=self._first, name=self._name
        )

    def _is_looked_into(self, listed: _Listed) -> bool:
        if listed.type == "message":
            return not self._first and listed.message is not None and listed.message.role == "user"
        return listed.type == "session_info"

    def _take(self, record: Record) -> bool:
        """Take in a whole object; False if it shows that the file is no session."""
        data = record.data
        if self._header is None:
            header = decode_header(data)
            if header is None:
                return False
            self._without_ids = header.version == FORMAT_WITHOUT_IDS
            self._header = SessionSummary(
                id=_sound(header.id),
                path=self._path,
                cwd=_sound(header.cwd),
                created=_sound(header.timestamp),
                modified=iso_time(self._status.st_mtime * 1000),
                message_count=0,
                first_message="",
                parent_session=header.parent_session and _sound(header.parent_session),
            )
        elif data.get("type") == "session_info":
            name = session_name(string(data.get("name")))
            self._name = name and _sound(name)
        elif data.get("type") == "message":
            self._messages += 1
            self._take_first(data.get("message"))
        return True

    def _take_first(self, message: object) -> None:
        if not self._first and is_object(message) and message.get("role") == "user":
            text = text_of(decode_content(message.get("content")), " ").strip()
            self._first = _sound(text[:FIRST_MESSAGE_CHARACTERS])

    def _take_long(self, start: bytes, stream: BinaryIO) -> None:
        """A line too long to be held: what it is can be told from its beginning."""
        self._messages += b'"type":"message"' in start[:256].replace(b" ", b"")
        while (rest := stream.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass


def _sound(text: str) -> str:
    """Text that UTF-8 can hold: half characters are replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# ---- a part of a session as a new one


def fork(
    source: SessionFile,
    path: Sequence[Entry],
    labels: Mapping[str, str],
    directory: Path,
    *,
    cwd: str,
    now_ms: float,
) -> Path:
    """A new session file that holds `path` (root → some entry) of `source`, and names it as its parent.

    Entries keep their ids and their bytes. `labels` (entry id → label) are those in force in `source`; where
    the path itself does not say so, label entries are added behind it. Raises WriteFailed.
    """
    header = new_header(cwd, str(source.path), now_ms)
    target = new_session_path(directory, header.id, now_ms)
    lines = [dumps(header_data(header)), *(source.record_of(entry) for entry in path)]
    lines += [dumps(one) for one in _missing_labels(path, labels, now_ms)]
    try:
        _write_new(target, b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise WriteFailed(f"{target} cannot be written: {reason(error)}.", path=str(target)) from error
    return target


def _missing_labels(path: Sequence[Entry], labels: Mapping[str, str], now_ms: float) -> Iterator[Json]:
    said: dict[str, str | None] = {}
    for entry in path:
        if entry.type == "label" and isinstance(body := entry.body, LabelBody):
            said[body.target_id] = body.label
    taken = {entry.id for entry in path}
    parent_id = path[-1].id if path else None
    for entry in path:
        label = labels.get(entry.id)
        if label == said.get(entry.id):
            continue
        data: Json = {
            "type": "label",
            "id": short_id(taken),
            "parentId": parent_id,
            "timestamp": iso_time(now_ms),
            "targetId": entry.id,
        }
        parent_id = data["id"]
        taken.add(data["id"])
        yield data if label is None else {**data, "label": label}


def _write_new(target: Path, data: bytes) -> None:
    """A new file that is there as a whole or not at all."""
    make_folder(target.parent)
    temporary = target.with_name(f".{target.name}.tmp")
    fd = os.open(temporary, CREATE_FLAGS, FILE_MODE)
    try:
        with open(fd, "wb") as out:  # noqa: PTH123 - a descriptor
            out.write(data)
            out.flush()
            os.fsync(fd)
        temporary.rename(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
