"""A file that takes another one's place: its bytes with some pieces exchanged, whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pi_ls.core.lines import PlacedEntry
from pi_ls.store.places import CREATE_FLAGS, FILE_MODE, sync_folder

_CHUNK = 1 << 20


class Piece(NamedTuple):
    """New bytes for a place of the file, and the entry that stands there (None: the header)."""

    offset: int
    length: int
    new: bytes
    entry: PlacedEntry | None


def in_order(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces by their place; of several for one place the last counts."""
    return sorted({one.offset: one for one in pieces}.values(), key=lambda one: one.offset)


def replace_file(
    path: Path, source: int, pieces: Sequence[Piece], before_rename: Callable[[], None]
) -> tuple[int, int]:
    """Put a new file at `path`: what the descriptor `source` holds, with `pieces` (in order) exchanged.

    Mode and owner stay. A crash leaves the old file or the new one, and perhaps a temporary file, which the
    next replacement removes. `before_rename` may raise to stop it. Returns a descriptor to read the new file
    by, and how far the old one was read. Raises OSError, and then nothing has changed.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # left by a crash; nobody else writes it while we have the lock
    fd = os.open(temporary, CREATE_FLAGS, FILE_MODE)
    try:
        copied = _copy(source, fd, pieces)
        _keep_owner(source, fd)
        os.fsync(fd)
        before_rename()
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        os.close(fd)
        raise
    with contextlib.suppress(OSError):
        sync_folder(path.parent)
    return fd, copied


def _copy(source: int, target: int, pieces: Sequence[Piece]) -> int:
    """Copy one file to another with some pieces exchanged; how far the first one was read."""
    with open(target, "wb", buffering=_CHUNK, closefd=False) as out:
        at = 0
        for piece in pieces:
            while at < piece.offset:
                chunk = os.pread(source, min(_CHUNK, piece.offset - at), at)
                if not chunk:
                    raise OSError("another program has cut it off meanwhile")
                out.write(chunk)
                at += len(chunk)
            out.write(piece.new)
            at += piece.length
        while chunk := os.pread(source, _CHUNK, at):
            out.write(chunk)
            at += len(chunk)
    return at


def _keep_owner(source: int, target: int) -> None:
    status = os.fstat(source)
    with contextlib.suppress(PermissionError):  # not ours to give away: then it is ours
        os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, status.st_mode & 0o7777)
