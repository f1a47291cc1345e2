"""One session's file: reading what is there, appending, noticing what others do to it, rewriting."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import filelock
import msgspec

from pi_ls.core.entries import SESSION_VERSION, Entry, Header, iso_time
from pi_ls.core.errors import SessionLocked, SessionNotFound, SessionReadOnly, SessionUnreadable, WriteFailed
from pi_ls.core.jsonvalues import Json, dumps, is_object, loads
from pi_ls.core.lines import FileProblem, NotASession, PlacedEntry, Scan, Totals
from pi_ls.store.late import LateLines
from pi_ls.store.places import (
    APPEND_FLAGS,
    CREATE_FLAGS,
    FILE_MODE,
    make_folder,
    make_lock,
    new_header,
    new_session_path,
    now_ms,
    open_to_read,
    reason,
    short_id,
    sync_folder,
    write_lines,
)
from pi_ls.store.rewriting import Piece, in_order, replace_file

LOCK_SECONDS = 5.0
"""How long a writer waits for another one."""

_LOCK_PAUSE_SECONDS = 0.02
_READ_BUFFER = 1 << 18
_CHUNK = 1 << 20
_BODY_CACHE_BYTES = 2 << 20
_MARK_BYTES = 64


_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Changes(msgspec.Struct, frozen=True):
    """What other programs did: entries they appended, what is wrong now, or that all must be read anew."""

    appended: Sequence[Entry] = ()
    problems: Sequence[FileProblem] = ()
    rewritten: bool = False


class Opened(NamedTuple):
    """A session file, its entries in file order, and what is wrong with it."""

    file: SessionFile
    entries: list[Entry]
    problems: list[FileProblem]


class _Waiting(NamedTuple):
    """An entry that is not on disk yet."""

    entry: PlacedEntry
    data: Json
    line: bytes


class SessionFile:
    """One session's file.

    Entries it gave out stay valid through appends and rewrites, and after another program has replaced the
    file; where their bytes are gone they read as without content, which `poll` reports. Bodies may be read
    from any thread; everything else is for one caller at a time.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.read_only: str | None = None
        """Why the session may not be written: a sentence, or None."""
        self.write_problem: str | None = None
        """Why entries could not be written: a sentence while some are unsaved, or None."""
        self._scan = Scan(self._read_body)
        self._entries: list[PlacedEntry] = []  # what is on disk
        self._waiting: list[_Waiting] = []  # what is not
        self._foreign: list[PlacedEntry] = []  # read, but not yet told by poll
        self._problems: list[FileProblem] = []  # the same
        self._problems_seen = 0
        self._unreadable: set[str] = set()
        # The file as it was last seen.
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._looked_at: tuple[int, int] | None = None
        self._marks = (b"", b"")
        self._replaced = False
        self._folder_is_new = False
        self._late: list[LateLines] = []
        self._bodies: OrderedDict[int, tuple[int, Json]] = OrderedDict()
        self._body_bytes = 0
        self._body_lock = threading.Lock()
        self._busy = threading.Lock()

    # -- opening and making

    @classmethod
    def open(cls, path: Path | str, cwd: str = "") -> Opened:
        """Read a session file; changes no byte of it.

        An empty file is a new session of the folder `cwd`. Raises SessionNotFound, or SessionUnreadable for
        a file that is no session or cannot be read.
        """
        path = Path(path)
        file = cls(path, new_header(cwd, None, now_ms()))
        try:
            file._fd = open_to_read(path)
            file._load()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SessionNotFound(f"There is no session file {path}.", path=str(path)) from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            file.close()
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise SessionUnreadable(f"{path} cannot be read: {why}.", path=str(path)) from error
        except NotASession:
            file.close()
            raise SessionUnreadable(
                f"{path} is no session file: the first JSON object in it is no session header with an id. "
                "It was left as it is.",
                path=str(path),
            ) from None
        return Opened(file, list(file._entries), file._new_problems())

    def _load(self) -> None:
        self._take_from_file(report_torn=True)
        if self._scan.header is None and self._scan.problems:
            raise NotASession
        if self.path.is_symlink():
            self.read_only = f"{self.path} is a symbolic link; sessions are not written through links."
        if self.header.version > SESSION_VERSION:
            self.read_only = (
                f"{self.path} has session version {self.header.version}, which is newer than version "
                f"{SESSION_VERSION} of this program: it is open to read only."
            )
            self._problems.append(FileProblem("newerVersion", None, self.read_only))
        self._remember()

    @classmethod
    def create(
        cls, directory: Path, cwd: str, *, parent_session: str | None = None, now_ms: float
    ) -> SessionFile:
        """A new session of the folder `cwd`; its file appears with its first user or assistant message."""
        header = new_header(cwd, parent_session, now_ms)
        return cls(new_session_path(directory, header.id, now_ms), header)

    def reopen(self) -> Opened:
        """Read the file anew after another program has rewritten it; unsaved entries come along.

        This object is closed, unless reading raises (as `open`).
        """
        opened = SessionFile.open(self.path, self.header.cwd)
        for waiting in self._waiting:
            opened.file._waiting.append(waiting)
            opened.file._count(waiting)
            opened.entries.append(waiting.entry)
        opened.file.write_problem = self.write_problem
        self.close()
        return opened

    def close(self) -> None:
        """Give the descriptors back. Bodies that are not in memory read as empty from here on."""
        for late in self._late:
            late.finish()
        self._late.clear()
        with self._body_lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    # -- what is known of it

    @property
    def totals(self) -> Totals:
        """What the whole file adds up to, unsaved entries included."""
        return self._scan.totals

    @property
    def unsaved(self) -> int:
        """How many entries could not be written so far."""
        return len(self._waiting) if self.write_problem is not None else 0

    @property
    def on_disk(self) -> bool:
        """Whether there is a file yet."""
        return self._identity is not None

    @property
    def needs_migration(self) -> bool:
        """Whether the next append rewrites the file in the present version first."""
        return self._scan.version < SESSION_VERSION

    def new_id(self) -> str:
        """An entry id that is not in the file: 8 hex digits, or a UUID should a hundred of them be taken."""
        return short_id(self._scan.ids)

    def line_of(self, entry: Entry) -> int | None:
        """The number of the line (from 1) an entry stands on; None if it is on none. Reads up to it."""
        if not isinstance(entry, PlacedEntry) or entry.offset < 0 or self._fd is None:
            return None
        line, at = 1, 0
        while at < entry.offset:
            chunk = os.pread(self._fd, min(_CHUNK, entry.offset - at), at)
            if not chunk:
                return None
            line += chunk.count(b"\n")
            at += len(chunk)
        return line

    # -- bodies

    def _read_body(self, entry: Entry) -> Json:
        assert isinstance(entry, PlacedEntry)
        with self._body_lock:
            known = self._bodies.get(entry.offset)
            if known is not None:
                self._bodies.move_to_end(entry.offset)
                return known[1]
            data = self._fetch(entry)
            if data is not None:
                self._keep_body(entry, data)
                return data
            if entry.id not in self._unreadable:
                self._unreadable.add(entry.id)
                self._problems.append(
                    FileProblem(
                        kind="malformedLine",
                        line=None,
                        message=f"entry {entry.id} can no longer be read, since another program has changed "
                        f"{self.path} in place; it counts as empty",
                        entry_id=entry.id,
                    )
                )
        parent, timestamp = entry.parent_id, entry.timestamp
        return {"type": entry.type, "id": entry.id, "parentId": parent, "timestamp": timestamp}

    def _fetch(self, entry: PlacedEntry) -> Json | None:
        """The entry's object as it stands in the file; None if that holds another one, or nothing, now."""
        try:
            data = loads(self._bytes_at(entry.offset, entry.length))
        except (OSError, ValueError):
            return None
        if not is_object(data):
            return None
        data = self._scan.upgraded(data, entry)
        return data if data.get("id") == entry.id and data.get("type") == entry.type else None

    def _bytes_at(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset) if self._fd is not None else b""

    def _keep_body(self, entry: PlacedEntry, data: Json) -> None:
        self._bodies[entry.offset] = (entry.length, data)
        self._body_bytes += entry.length
        while self._body_bytes > _BODY_CACHE_BYTES and len(self._bodies) > 1:
            _, (length, _) = self._bodies.popitem(last=False)
            self._body_bytes -= length

    def record_of(self, entry: Entry) -> bytes:
        """An entry's object as one line without its end, byte for byte as it stands in the file."""
        if isinstance(entry, PlacedEntry) and entry.offset >= 0 and not self.needs_migration:
            with self._body_lock:
                if self._fetch(entry) is not None:
                    return self._bytes_at(entry.offset, entry.length).strip()
        return dumps(entry.data)

    def header_record(self) -> bytes:
        """The header as one line without its end, of the present version; fields nobody here knows stay."""
        try:
            found = loads(self._bytes_at(*(self._scan.header_place or (0, 0))))
        except (OSError, ValueError):
            found = None  # not written yet, or cut off under us
        return dumps({**found, "version": SESSION_VERSION} if is_object(found) else header_data(self.header))

    # -- what others do to it

    def poll(self) -> Changes:
        """What has changed since the last look; cheap where nothing has.

        After `rewritten` the caller is to `reopen`: nothing more is read through this object.
        """
        if not self._busy.acquire(blocking=False):
            return Changes()  # it is being rewritten by us, in another thread
        try:
            with contextlib.suppress(OSError):  # gone, perhaps for a moment; an append will see to it
                self._look()
            appended, self._foreign = self._foreign, []
            return Changes(appended, self._new_problems(), self._replaced)
        finally:
            self._busy.release()

    def _look(self) -> None:
        """Compare the file with what was read, and take in what was appended. Raises OSError."""
        if self._identity is None or self._replaced:
            return
        status = self.path.stat()
        if (status.st_dev, status.st_ino) != self._identity:
            self._replaced = True
        elif (status.st_size, status.st_mtime_ns) != self._looked_at:
            if status.st_size < self._scan.offset or self._read_marks() != self._marks:
                self._replaced = True
                return
            try:
                self._foreign += self._take_from_file(report_torn=False)
            except NotASession:  # it was empty, and somebody has filled it with something else
                self._replaced = True
                return
            self._remember()

    def _take_from_file(self, *, report_torn: bool) -> list[PlacedEntry]:
        assert self._fd is not None
        with open(self._fd, "rb", buffering=_READ_BUFFER, closefd=False) as stream:
            stream.seek(self._scan.offset)
            found = self._scan.take(stream, report_torn=report_torn)
        self.header = self._scan.header or self.header
        self._entries += found
        return found

    def _remember(self) -> None:
        """Note what to recognise the file by at the next look."""
        assert self._fd is not None
        status = os.fstat(self._fd)
        self._identity = (status.st_dev, status.st_ino)
        all_read = status.st_size == self._scan.offset
        self._looked_at = (status.st_size, status.st_mtime_ns) if all_read else None
        self._marks = self._read_marks()

    def _read_marks(self) -> tuple[bytes, bytes]:
        """The header and the last bytes that were taken in: a rewrite in place changes one of them."""
        start, length = self._scan.header_place or (0, 0)
        end = self._scan.offset
        tail = min(_MARK_BYTES, end)
        return self._bytes_at(start, length), self._bytes_at(end - tail, tail)

    def _new_problems(self) -> list[FileProblem]:
        seen, self._problems_seen = self._problems_seen, len(self._scan.problems)
        told, self._problems = self._problems, []
        return [*told, *self._scan.problems[seen:]]

    # -- appending

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        """Hold the session against other writers of this program; needed around append and rewrite.

        Every use is a lock of its own, so the tasks of one process keep each other out too; do not nest it.
        Waits without blocking the loop; raises SessionLocked after `LOCK_SECONDS`. Where no lock can be made
        (a folder that is read-only or gone) nothing is locked: the write will say what is wrong.
        """
        lock = await self._acquire() if self.on_disk else None
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    async def _acquire(self) -> filelock.BaseFileLock | None:
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            make_folder(self.path.parent)
            lock = make_lock(self.path)
            while True:
                try:
                    lock.acquire(blocking=False)
                    return lock
                except filelock.Timeout:
                    if time.monotonic() > deadline:
                        break
                    await asyncio.sleep(_LOCK_PAUSE_SECONDS)
        except (OSError, NotImplementedError):
            return None
        raise SessionLocked(
            f"Another program has been writing {self.path} for {LOCK_SECONDS:.0f} s. "
            "Close the session there, or try again.",
            path=str(self.path),
        )

    def append(self, data: Json, *, required: bool = False) -> Entry:
        """Write an entry (with the lock held), and before it whatever could not be written so far.

        `data` has `type`, `parentId` and the fields of its type; id and timestamp are added where missing.
        The bytes are with the system when this returns. If they cannot be written the entry is kept as
        unsaved and `write_problem` says why; if it is `required` it is not kept, and WriteFailed is raised.
        Raises SessionReadOnly.
        """
        if self.read_only is not None:
            raise SessionReadOnly(self.read_only, path=str(self.path))
        data = {
            "type": data["type"],
            "id": data.get("id") or self.new_id(),
            "parentId": data.get("parentId"),
            "timestamp": data.get("timestamp") or iso_time(now_ms()),
            **{key: value for key, value in data.items() if key not in ("id", "timestamp")},
        }
        waiting = _Waiting(PlacedEntry.unplaced(data), data, dumps(data))
        self._waiting.append(waiting)
        if required or self._is_due():
            try:
                with self._busy:
                    self._write_waiting()
                self.write_problem = None
            except OSError as error:
                problem = f"{self.path} cannot be written: {reason(error)}."
                if required:
                    self._waiting.remove(waiting)
                    raise WriteFailed(f"{problem} Nothing was added.", path=str(self.path)) from error
                self.write_problem = (
                    f"{problem} New entries are kept in memory and written when it works again."
                )
        self._count(waiting)
        return waiting.entry

    def _count(self, waiting: _Waiting) -> None:
        self._scan.ids.add(waiting.entry.id)
        self._scan.totals.add(waiting.data)

    def _is_due(self) -> bool:
        return self.on_disk or any(
            one.entry.type == "message" and one.entry.role in ("user", "assistant") for one in self._waiting
        )

    def _write_waiting(self) -> None:
        """Put all waiting entries on disk, in order. Raises OSError, and then none of them is there."""
        if not self.on_disk:
            self._make_file()
            return
        with contextlib.suppress(FileNotFoundError):
            self._look()
        if self.needs_migration and not self._replaced:
            self._write_anew(self._migrated())
        try:
            fd = os.open(self.path, APPEND_FLAGS)
        except FileNotFoundError:
            make_folder(self.path.parent)
            self._write_anew([])  # our descriptor still leads to all of it
            fd = os.open(self.path, APPEND_FLAGS)
        try:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) != self._identity:
                self._replaced = True
            self._write_to(fd)
        finally:
            os.close(fd)

    def _make_file(self) -> None:
        make_folder(self.path.parent)
        fd = os.open(self.path, CREATE_FLAGS, FILE_MODE)
        try:
            self._fd = fd
            self._write_to(fd)
        except OSError:
            self._fd = None
            self.path.unlink(missing_ok=True)
            os.close(fd)
            raise
        self._folder_is_new = True

    def _write_to(self, fd: int) -> None:
        """Append all waiting lines, after the header where the file has none, and note their places."""
        has_header = self._scan.header is not None and os.fstat(fd).st_size > 0
        header = b"" if has_header else dumps(header_data(self.header)) + b"\n"
        lines = header + b"".join(one.line + b"\n" for one in self._waiting)
        start, end = write_lines(fd, lines)
        waiting, self._waiting = self._waiting, []
        if not self._replaced:
            self._take_between(fd, start)
        if self._replaced:
            return  # in the new file, for whoever reopens it; their bodies stay in memory meanwhile
        at = start
        if header:
            self._scan.begin(self.header, start, len(header) - 1)
            at += len(header)
        with self._body_lock:
            for entry, data, line in waiting:
                entry.place(at, len(line), self._read_body)
                self._keep_body(entry, data)
                at += len(line) + 1
        self._entries += [one.entry for one in waiting]
        self._scan.lines += len(waiting)
        self._scan.offset = end
        self._remember()

    def _take_between(self, fd: int, start: int) -> None:
        """Take in what stands between the last look and our own lines: foreign ones, or a torn one's end."""
        if self._scan.offset < start:
            between = os.pread(fd, start - self._scan.offset, self._scan.offset)
            try:
                found = self._scan.take(io.BytesIO(between))
            except NotASession:
                self._replaced = True
                return
            self._entries += found
            self._foreign += found

    def sync(self) -> None:
        """Bring what was appended from the system to the disk. Raises WriteFailed."""
        if self._fd is None:
            return
        try:
            _sync_data(self._fd)
            if self._folder_is_new:
                sync_folder(self.path.parent)
                self._folder_is_new = False
        except OSError as error:
            raise WriteFailed(
                f"{self.path} could not be brought to the disk: {reason(error)}.", path=str(self.path)
            ) from error

    # -- rewriting

    def rewrite(self, replacements: Mapping[str, Json] | None = None) -> None:
        """Write the file anew (with the lock held) with other objects for some entries, by id.

        Everything else survives byte for byte, broken lines included; a file of an older version is in the
        present one afterwards. A crash leaves the old file or the new one. Raises WriteFailed, and then
        nothing has changed; SessionReadOnly.
        """
        if self.read_only is not None:
            raise SessionReadOnly(self.read_only, path=str(self.path))
        try:
            with self._busy:
                if self._waiting and self._is_due():
                    self._write_waiting()
                    self.write_problem = None
                self._look()
                if self._replaced:
                    raise OSError("another program has rewritten it; it must be read anew first")
                if self.on_disk:
                    self._write_anew([*self._migrated(), *self._replaced_by(replacements or {})])
        except OSError as error:
            raise WriteFailed(
                f"{self.path} cannot be rewritten: {reason(error)}. It is as it was.", path=str(self.path)
            ) from error

    def _replaced_by(self, replacements: Mapping[str, Json]) -> list[Piece]:
        by_id = {one.id: one for one in self._entries if one.id in replacements}  # the last one has the id
        return [self._piece(entry, replacements[entry_id]) for entry_id, entry in by_id.items()]

    def _piece(self, entry: PlacedEntry, data: Json) -> Piece:
        """An entry with another object; blanks around the old one stay (a carriage return, say)."""
        old = self._bytes_at(entry.offset, entry.length)
        leading = len(old) - len(old.lstrip())
        return Piece(entry.offset + leading, len(old.strip()), dumps(data), entry)

    def _migrated(self) -> list[Piece]:
        """What has to change for the file to be of the present version."""
        if not self.needs_migration or self._scan.header_place is None:
            return []
        pieces = [Piece(*self._scan.header_place, self.header_record(), None)]
        for entry in self._entries:
            try:
                old = loads(self._bytes_at(entry.offset, entry.length))
            except ValueError:
                continue
            new = self._scan.upgraded(old, entry)
            if new is not old:
                pieces.append(self._piece(entry, new))
        return pieces

    def _write_anew(self, pieces: list[Piece]) -> None:
        """A new file of the old bytes with some pieces exchanged, in the old one's place. Raises OSError."""
        assert self._fd is not None
        pieces = in_order(pieces)
        fd, copied = replace_file(self.path, self._fd, pieces, self._make_sure_nobody_replaced_it)
        self._move_to(fd, copied, pieces)

    def _make_sure_nobody_replaced_it(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = self.path.stat()
            if (status.st_dev, status.st_ino) != self._identity or self._read_marks() != self._marks:
                raise OSError("another program has rewritten it meanwhile")

    def _move_to(self, fd: int, copied: int, pieces: Sequence[Piece]) -> None:
        """The new file is in place: from here on everything is read from it."""
        assert self._fd is not None
        unended = self._bytes_at(self._scan.offset, copied - self._scan.offset)
        with self._body_lock:
            self._late.append(LateLines(self.path, self._fd, copied, unended[unended.rfind(b"\n") + 1 :]))
            self._fd = fd
            self._bodies.clear()
            self._body_bytes = 0
            self._move_entries(pieces)
            self._scan.upgrade_is_done()
        self._remember()

    def _move_entries(self, pieces: Sequence[Piece]) -> None:
        replaced = {id(piece.entry): piece for piece in pieces}
        shift, at = 0, 0
        for entry in sorted(self._entries, key=lambda one: one.offset):
            while at < len(pieces) and pieces[at].offset < entry.offset:
                shift += len(pieces[at].new) - pieces[at].length
                at += 1
            if (piece := replaced.get(id(entry))) is not None:
                entry.offset, entry.length = piece.offset + shift, len(piece.new)
            else:
                entry.offset += shift
        self._scan.offset += sum(len(one.new) - one.length for one in pieces)
        if pieces and pieces[0].entry is None and self._scan.header_place is not None:
            self._scan.header_place = (self._scan.header_place[0], len(pieces[0].new))
            self.header = msgspec.structs.replace(self.header, version=SESSION_VERSION)


def header_data(header: Header) -> Json:
    """The header as the JSON object of a new file."""
    data: Json = {
        "type": "session",
        "version": SESSION_VERSION,
        "id": header.id,
        "timestamp": header.timestamp,
        "cwd": header.cwd,
    }
    return data if header.parent_session is None else {**data, "parentSession": header.parent_session}
