"""Lines taken out of a session file are put away beside it, so that nothing is ever lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pi_ls.core.errors import SessionUnreadable, WriteFailed
from pi_ls.core.jsonvalues import Json, dumps, is_object, loads
from pi_ls.store.places import FILE_MODE, open_to_read, reason, write_lines

ARCHIVE_SUFFIX = ".pruned"
"""What is added to a session file's name for the file of its put away lines."""


def archive_of(session_file: Path) -> Path:
    """The file beside a session file that holds what was taken out of it."""
    return session_file.with_name(session_file.name + ARCHIVE_SUFFIX)


def put_away(session_file: Path, lines: Sequence[Json]) -> None:
    """Append lines to a session's archive; they are on disk when this returns. Raises WriteFailed."""
    target = archive_of(session_file)
    try:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(target, flags, FILE_MODE)
        try:
            write_lines(fd, b"".join(dumps(line) + b"\n" for line in lines))
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise WriteFailed(f"{target} cannot be written: {reason(error)}. Nothing was pruned.") from error


def put_away_lines(session_file: Path) -> list[Json]:
    """The lines of a session's archive, oldest first; what is no JSON object there is passed over.

    Raises SessionUnreadable.
    """
    target = archive_of(session_file)
    try:
        with open(open_to_read(target), "rb") as file:  # noqa: PTH123 - a descriptor
            content = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SessionUnreadable(f"{target} cannot be read: {reason(error)}.", path=str(target)) from error
    found: list[Json] = []
    for line in content.split(b"\n"):
        try:
            value = loads(line) if line.strip() else None
        except ValueError:
            continue
        if is_object(value):
            found.append(value)
    return found
