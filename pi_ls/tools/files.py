"""Files as tools see them: which file a model means, what may be read, and how one is replaced.

A file is replaced as a whole by renaming a complete new one over it, so that nobody ever sees half of it
and a crash leaves the old one. Everything here blocks and is meant to run in a worker thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

import msgspec

from pi_ls.tools.tool import ToolContext, ToolFailed

BOM = "\ufeff"


def locate(context: ToolContext, path: str) -> Path:
    """The absolute path a model means: relative to the folder, `~` for home, a leading `@` as in a mention.

    Links are not resolved in it. Raises ToolFailed for a path that can be none, and in an untrusted folder
    for one that leads out of it by whatever way.
    """
    if not path or "\0" in path or not _can_be_named(path):
        raise ToolFailed("The path is empty or has a character no path can have.")
    named = context.folder / path
    if path.startswith("@") and not os.path.lexists(named):
        path = path[1:]
    if path == "~" or path.startswith("~/"):
        path = str(Path.home()) + path[1:]
    named = Path(os.path.normpath(context.folder / path))
    if not context.trusted and not is_inside(named, context.folder):
        raise ToolFailed(f"{path} lies outside the workspace folder, which is not trusted.")
    return named


def _can_be_named(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path leads into a folder (or to it) once all links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def shown(path: Path, folder: Path) -> str:
    """A path as it is told: relative to the folder where it lies in it."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) and path != folder else str(path)


class Version(msgspec.Struct, frozen=True):
    """Which state of a file was read, to notice that it has changed since."""

    device: int
    inode: int
    size: int
    modified_ns: int


def version_of(status: os.stat_result) -> Version:
    """The version a file status tells."""
    return Version(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def open_regular(path: Path) -> int:
    """A descriptor to read an ordinary file from. Raises ToolFailed for anything else, OSError as usual.

    Opening a pipe or a device could wait for ever, so that does not wait either.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "a directory; use ls" if stat.S_ISDIR(mode) else "no ordinary file"
        raise ToolFailed(f"{path} is {what}.")
    return descriptor


def read_whole(path: Path, limit: int) -> tuple[bytes, Version]:
    """An ordinary file's bytes and the version they are of. Raises ToolFailed above `limit` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        version = version_of(os.fstat(file.fileno()))
        if version.size > limit:
            raise ToolFailed(f"{path} is larger than {limit >> 20} MB. Use bash to change it.")
        return file.read(), version


def replace_file(path: Path, data: bytes, expected: Version | None = None) -> None:
    """Put `data` in place of a file, or make it (and its folders) where there is none.

    A link stays, its target is replaced; mode and owner are kept. Raises ToolFailed where the file is no
    ordinary one, may not be written, or is no longer of the `expected` version; OSError as usual.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.tmp")
    old = _replaceable(target)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _keep_owner_and_mode(descriptor, old)
            os.fsync(descriptor)
        if expected is not None and version_of(target.stat()) != expected:
            raise ToolFailed(f"{path} was changed by another program meanwhile. Read it again.")
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _replaceable(target: Path) -> os.stat_result | None:
    try:
        old = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise ToolFailed(f"{target} is a directory.")
    if not stat.S_ISREG(old.st_mode):
        raise ToolFailed(f"{target} is no ordinary file.")
    if not os.access(target, os.W_OK):
        raise ToolFailed(f"{target} may not be written.")
    return old


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    if (os.geteuid(), os.getegid()) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
