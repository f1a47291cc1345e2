"""A JSON file that a person edits: read without ever failing, changed without losing a byte of theirs.

Settings, models and credentials live in such files, and other programs read and write them too. A file
that cannot be read counts as empty, says why in `problem`, and is never written to. Nothing here puts a
file's content into a message.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pi_ls.core.jsonvalues import Json, is_array, is_object
from pi_ls.regular import read_regular

_BOM = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
LOCK_SECONDS = 5.0
"""How long a writer waits for another one."""
_LOCK_PAUSE_SECONDS = 0.01
_LARGEST = 4 << 20
_DEEPEST = 200
"""Levels of nesting that are read; every walk over the values may recurse that deep."""

_STRING_OR_EXTRA = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|,(?=(?:\s|//[^\n]*)*[}\]])')
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Stamp = tuple[int, int, int, int]


class ConfigProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something in a file, or in what a client sent, that cannot be used.

    `file` is a path or the name of the layer, `key` the place in it (empty: all of it), `message` a
    sentence for a person, `line` where one is known.
    """

    file: str
    key: str
    message: str
    line: int | None = None


class ConfigError(Exception):
    """Why a file cannot be used: the rest of a sentence that begins with its path."""

    def __init__(self, says: str, line: int | None = None) -> None:
        super().__init__(says)
        self.says = says
        self.line = line


class ConfigFile:
    """One file, as it was when last read.

    `values` is its object, {} where the file is missing or cannot be used; do not change it. `relaxed`
    also takes `//` comments, trailing commas and the words NaN and Infinity, as pi does in models.json.
    """

    def __init__(self, path: Path, *, relaxed: bool = False) -> None:
        self.path = path
        self.values: Json = {}
        self.problem: ConfigProblem | None = None
        self._relaxed = relaxed
        self._stamp: Stamp | None = None
        self.read()

    def __repr__(self) -> str:
        """The path alone: the values may be keys."""
        return f"ConfigFile({str(self.path)!r})"

    def read(self) -> None:
        """Take the file as it is now. Never raises.

        Whoever looks meanwhile, from another thread, sees what was there before.
        """
        stamp = file_stamp(self.path)
        values: Json = {}
        problem = None
        try:
            data = _read(self.path)
            if data is not None:
                values = parse_object(data, relaxed=self._relaxed)
        except ConfigError as error:
            problem = ConfigProblem(
                file=str(self.path),
                key="",
                message=f"{self.path} {error.says}. It counts as empty and will not be written to.",
                line=error.line,
            )
        self.values, self.problem = values, problem
        self._stamp = stamp  # last: a file that looks unchanged has been taken

    def changed(self) -> bool:
        """Whether the file looks different from when it was read; one `stat`, no reading."""
        return file_stamp(self.path) != self._stamp

    def refresh(self) -> bool:
        """Read the file again if it changed, and say whether it did."""
        if not self.changed():
            return False
        self.read()
        return True

    def set(self, keys: Sequence[str], value: Any) -> str | None:
        """Write one value, found by the keys that lead to it, into the file as it is now.

        Everything else in the file stays, in its order, and what several programs or threads of ours set at
        the same time is all kept. Blocks for at most `LOCK_SECONDS` and a small file's writing. Returns None
        when it is saved, else a sentence that says why not; the file is untouched then.
        """
        try:
            document, _ = self._document_now()
            if _lookup(document, keys) is value:
                return None
            with _locked(self.path):
                document, data = self._document_now()
                _put(document, keys, value)
                # What was added since the last reading is in the file but not in `values`: only a file that
                # was not touched meanwhile is still known after the writing.
                known = not self.changed()
                _replace(self.path, _document(document, data))
        except ConfigError as error:
            return f"{self.path} {error.says}."
        except OSError as error:
            return f"{self.path} cannot be written: {_reason(error)}."
        if known:
            self.read()
        return None

    def _document_now(self) -> tuple[Json, bytes | None]:
        """The file as it is now: one that turned into something unreadable must not be overwritten."""
        data = _read(self.path)
        return (_parse_spelled(data) if data is not None else {}), data


def parse_object(data: bytes, *, relaxed: bool = False) -> Json:
    """The JSON object in the bytes of a file. A BOM is skipped, the last of two equal keys counts.

    Raises ConfigError with the line where one is known.
    """
    text = _decode(data)
    if relaxed:
        text = _STRING_OR_EXTRA.sub(_blank_extra, text)
        return _load_object(text)
    return _load_object(text, parse_constant=_refuse_constant)


class _SpelledFloat(float):
    """A number with the spelling it has in the file: `1e400` or 40 digits must survive a rewriting."""

    spelling: str

    @classmethod
    def of(cls, spelling: str) -> _SpelledFloat:
        number = cls(spelling)
        number.spelling = spelling
        return number


def _parse_spelled(data: bytes) -> Json:
    return _load_object(_decode(data), parse_constant=_refuse_constant, parse_float=_SpelledFloat.of)


def _decode(data: bytes) -> str:
    if data.startswith(_UTF16_MARKS) or b"\0" in data:
        raise ConfigError("is not UTF-8 text (UTF-16?); save it as UTF-8")
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"is not UTF-8 text (line {line}); save it as UTF-8", line) from None
    if not text.strip():
        raise ConfigError("is empty; it must hold a JSON object, at least {}")
    return text


def _load_object(text: str, **hooks: Any) -> Json:
    try:
        value = json.loads(text, **hooks)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"is not valid JSON ({place}): {error.msg}", error.lineno) from None
    except RecursionError:
        raise ConfigError("is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits, or a word that is no JSON
        raise ConfigError(f"is not valid JSON: {error}") from None
    if not is_object(value):
        raise ConfigError("must hold a JSON object ({…}) and holds something else")
    if _depth_exceeds(value, _DEEPEST):
        raise ConfigError(f"is nested more than {_DEEPEST} levels deep")
    return value


def _depth_exceeds(value: Any, levels: int) -> bool:
    level = [value]
    while level and levels:
        level = [child for one in level for child in _children(one)]
        levels -= 1
    return bool(level)


def _children(value: Any) -> Iterator[Any]:
    if is_object(value):
        yield from value.values()
    elif is_array(value):
        yield from value


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _blank_extra(match: re.Match[str]) -> str:
    """A string as it is, anything else as blanks, so that lines and columns stay."""
    found = match.group()
    return found if found.startswith('"') else " " * len(found)


def _read(path: Path) -> bytes | None:
    """The file's bytes; None where there is no file. Raises ConfigError."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError("is not a file")
        return read_regular(path, _LARGEST)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def file_stamp(path: Path) -> Stamp | None:
    """What tells one state of a file from another; None where there is none to be seen."""
    try:
        found = path.stat()
    except (OSError, RuntimeError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _lookup(document: Json, keys: Sequence[str]) -> Any:
    value: Any = document
    for key in keys:
        if not is_object(value):
            return None
        value = value.get(key)
    return value


def _put(document: Json, keys: Sequence[str], value: Any) -> None:
    parent = document
    for depth, key in enumerate(keys[:-1], 1):
        child = parent.get(key)
        if child is None:
            child = parent[key] = {}
        if not is_object(child):
            raise ConfigError(f"holds something else than an object as {'.'.join(keys[:depth])}")
        parent = child
    parent[keys[-1]] = value


def _document(document: Json, before: bytes | None) -> bytes:
    """The text of a file: two spaces a level, BOM and last line end as they were."""
    text = _LONE_SURROGATE.sub(lambda one: f"\\u{ord(one.group()):04x}", _render(document, "\n"))
    if before is None or before.endswith(b"\n"):
        text += "\n"
    return (_BOM if before is not None and before.startswith(_BOM) else b"") + text.encode()


def _render(value: Any, line: str) -> str:
    """JSON with every number spelled as it was; `line` is a line feed and the indentation so far."""
    inner = line + "  "
    if is_object(value) and value:
        members = (
            f"{json.dumps(key, ensure_ascii=False)}: {_render(one, inner)}" for key, one in value.items()
        )
        return "{" + inner + ("," + inner).join(members) + line + "}"
    if is_array(value) and value:
        return "[" + inner + ("," + inner).join(_render(one, inner) for one in value) + line + "]"
    return value.spelling if isinstance(value, _SpelledFloat) else json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Keep other writers of this program out, by a lock on the file's folder, which leaves nothing behind.

    Where nothing can be locked (some network drives, no such folder) nothing is. Raises ConfigError.
    """
    descriptor = None
    try:
        with contextlib.suppress(OSError):  # the writing will say what is wrong
            folder = path.resolve().parent
            make_private_folder(folder)
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            _acquire(descriptor)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # which unlocks it


def _acquire(descriptor: int) -> None:
    """Lock what a descriptor leads to. Raises OSError where that is not possible, ConfigError when late."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConfigError(f"has been in use by another program for {LOCK_SECONDS:g} s") from None
            time.sleep(_LOCK_PAUSE_SECONDS)


def _replace(path: Path, data: bytes) -> None:
    """Write a file by a temporary one and a rename, at a link's target, with the mode it had.

    Raises OSError, and leaves the old file then. Renaming would also succeed over a file that may not be
    written, so that is asked first.
    """
    target = path.resolve()
    old = target.stat() if target.exists() else None
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError("the file may not be written")
    make_private_folder(target.parent)
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if old is not None:
            if hasattr(os, "chown"):
                with contextlib.suppress(OSError):  # only root may give a file away
                    os.chown(temporary, old.st_uid, old.st_gid)
            temporary.chmod(stat.S_IMODE(old.st_mode))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def make_private_folder(path: Path) -> None:
    """Make a folder and those above it, for their owner alone (0700). Raises OSError."""
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
