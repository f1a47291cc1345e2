"""How much of an output a model gets, and where the rest can be found.

Tools that answer from the beginning of something keep its head, a command's output keeps its tail. What is
cut off lies in a temporary file whose path is named, never in memory.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import IO

import msgspec

from pi_ls.core.request import clean_text

MAX_LINES = 2_000
MAX_BYTES = 50 * 1024
_CHUNK = 1 << 20

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Excerpt(msgspec.Struct, frozen=True):
    """Part of a text: whole lines where possible."""

    text: str
    lines: int
    total_lines: int
    cut: bool
    """Whether anything is missing."""


def head_of(text: str) -> Excerpt:
    """The first lines of a text, as many as the limits allow. A first line that is too long is cut."""
    total = text.count("\n") + (not text.endswith("\n") and bool(text))
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    kept: list[str] = []
    size = 0
    for line in lines[:MAX_LINES]:
        size += len(line.encode(errors="replace"))
        if size > MAX_BYTES:
            break
        kept.append(line)
    if not kept and lines:
        return Excerpt(cut_bytes(lines[0], MAX_BYTES), 1, total, True)
    return Excerpt("".join(kept), len(kept), total, len(kept) < len(lines))


def with_limits(text: str, what: str) -> str:
    """A text within the limits; where it is longer, its head and a note that names a file with all of it."""
    excerpt = head_of(text)
    if not excerpt.cut:
        return text
    with output_file() as file:
        file.write(clean_text(text).encode())
    return (
        f"{excerpt.text.rstrip()}\n\n"
        f"[The first {excerpt.lines} of {excerpt.total_lines} {what}. All of them: {file.name}]"
    )


def cut_bytes(text: str, limit: int) -> str:
    """The start of a text that takes at most `limit` bytes of UTF-8, never half a character."""
    return text.encode(errors="replace")[:limit].decode(errors="ignore")


def output_file() -> IO[bytes]:
    """A new temporary file for output that is too long, for its owner only. It outlives the program."""
    return tempfile.NamedTemporaryFile(prefix="pi-ls-", suffix=".log", delete=False)


def tail_of_file(path: Path) -> Excerpt:
    """The last lines of a file, as many as the limits allow, as a terminal would show them.

    Blocks while the file is read; memory stays bounded however long it is.
    """
    with path.open("rb") as file:
        raw, cut = _read_tail(file)
        total = _count_lines(file.fileno(), file.seek(0, os.SEEK_END))
    return Excerpt(as_shown(raw.decode(errors="replace")), _line_count(raw), total, cut)


def last_text_of(path: Path) -> str:
    """The same text alone, in a time that does not grow with the file: for a look in between."""
    with path.open("rb") as file:
        return as_shown(_read_tail(file)[0].decode(errors="replace"))


def _read_tail(file: IO[bytes]) -> tuple[bytes, bool]:
    """The bytes of the last lines, and whether there are more before them."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MAX_BYTES))
    raw = file.read(MAX_BYTES)
    cut = size > MAX_BYTES
    if cut:
        _, newline, rest = raw.partition(b"\n")
        raw = rest if newline and rest else raw.lstrip(bytes(range(0x80, 0xC0)))
    lines = raw.split(b"\n")
    most = MAX_LINES + (lines[-1] == b"")
    return (b"\n".join(lines[-most:]), True) if len(lines) > most else (raw, cut)


def _line_count(raw: bytes) -> int:
    return raw.count(b"\n") + (not raw.endswith(b"\n") and bool(raw))


def _count_lines(descriptor: int, size: int) -> int:
    count, last = 0, b"\n"
    for start in range(0, size, _CHUNK):
        chunk = os.pread(descriptor, min(_CHUNK, size - start), start)
        count += chunk.count(b"\n")
        last = chunk[-1:] or last
    return count + (last != b"\n")


def as_shown(text: str) -> str:
    """A program's output without what only steers a terminal: colours, overwritten parts of a line."""
    lines = _ESCAPES.sub("", text).split("\n")
    return _CONTROL.sub("", "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))
