"""Where session files lie, what they are called, and how their folders and descriptors are made.

A file's name is made of the time and an id of our own, never of text from a file or a caller, so no id can
lead out of the folder.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Container
from pathlib import Path

import filelock

from pi_ls.core.entries import SESSION_VERSION, Header, iso_time
from pi_ls.core.errors import SessionUnreadable

APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
CREATE_FLAGS = APPEND_FLAGS | os.O_CREAT | os.O_EXCL
FILE_MODE = 0o600
FOLDER_MODE = 0o700


def now_ms() -> float:
    """Milliseconds since 1970."""
    return time.time() * 1000


def uuid7(milliseconds: float) -> str:
    """A new UUID of version 7: the time, then chance; later ones sort after earlier ones."""
    bits = int(milliseconds) << 80 | 0x7 << 76 | secrets.randbits(76)
    bits = bits & ~(0b11 << 62) | 0b10 << 62
    digits = f"{bits:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def short_id(taken: Container[str]) -> str:
    """An entry id that is not taken: 8 hex digits, or a UUID should a hundred of them be taken."""
    for _ in range(100):
        entry_id = secrets.token_hex(4)
        if entry_id not in taken:
            return entry_id
    return uuid7(now_ms())


def encode_cwd(cwd: str) -> str:
    """The name of the folder that holds the sessions of `cwd`: `/home/me/app` → `--home-me-app--`.

    Different folders can have the same name; the header of a session says to which it belongs.
    """
    return "--" + re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", cwd)) + "--"


def sessions_directory(agent_dir: Path, session_dir: Path | None, cwd: str) -> Path:
    """The folder for the sessions of `cwd`: `session_dir` if it is given, else under `agent_dir`.

    Raises SessionUnreadable if the folder under `agent_dir` is a symbolic link: it may lead anywhere, and
    what is read and written there would not be sessions of ours.
    """
    if session_dir is not None:
        return session_dir
    directory = agent_dir / "sessions" / encode_cwd(cwd)
    if directory.is_symlink():
        raise SessionUnreadable(
            f"The session folder {directory} is a symbolic link, which is not followed. "
            "Replace it by a folder, or name the target as `sessionDir`.",
            path=str(directory),
        )
    return directory


def session_directories(agent_dir: Path, session_dir: Path | None) -> list[Path]:
    """The folders that hold the sessions of all working folders; links are left out."""
    if session_dir is not None:
        return [session_dir]
    try:
        with os.scandir(agent_dir / "sessions") as items:
            return sorted(Path(one.path) for one in items if one.is_dir(follow_symlinks=False))
    except OSError:
        return []


def new_session_path(directory: Path, session_id: str, milliseconds: float) -> Path:
    """The file of a new session that begins at that time."""
    moment = re.sub("[:.]", "-", iso_time(milliseconds))
    return directory / f"{moment}_{session_id}.jsonl"


def new_header(cwd: str, parent_session: str | None, milliseconds: float) -> Header:
    """The header of a new session."""
    return Header(
        id=uuid7(milliseconds),
        version=SESSION_VERSION,
        timestamp=iso_time(milliseconds),
        cwd=cwd,
        parent_session=parent_session,
    )


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, for this user alone. Raises OSError."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=FOLDER_MODE, exist_ok=True)


def make_lock(path: Path) -> filelock.BaseFileLock:
    """A lock on a session for writers of this program, on a file beside it; not yet acquired."""
    return filelock.FileLock(path.with_name(f".{path.name}.lock"), mode=FILE_MODE, thread_local=False)


def open_to_read(path: Path) -> int:
    """A descriptor to read a regular file by. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hold us up
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("it is no regular file")
    return fd


def write_lines(fd: int, lines: bytes) -> tuple[int, int]:
    """Append whole lines with one write, on a line of their own; where they begin and end in the file.

    What was half written is cut off again, unless another program has written behind it. Raises OSError.
    """
    size = os.fstat(fd).st_size
    is_ended = size == 0 or os.pread(fd, 1, size - 1) == b"\n"
    data = lines if is_ended else b"\n" + lines
    written = 0
    try:
        while written < len(data):
            written += os.write(fd, data[written:] if written else data)
    except OSError:
        end = os.lseek(fd, 0, os.SEEK_CUR)
        if written and os.fstat(fd).st_size == end:
            os.ftruncate(fd, end - written)
        raise
    end = os.lseek(fd, 0, os.SEEK_CUR)
    return end - len(lines), end


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def reason(error: OSError) -> str:
    """What the system says is wrong, without the path."""
    return (error.strerror or str(error)).strip().lower()
