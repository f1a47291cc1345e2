"""The tool `read`: lines of a text file, or an image."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import sys
from pathlib import Path
from typing import IO, Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pi_ls.core.chat import ToolOutput
from pi_ls.core.messages import ImageContent, TextContent
from pi_ls.tools.files import BOM, locate, open_regular, shown
from pi_ls.tools.output import MAX_BYTES, MAX_LINES, cut_bytes
from pi_ls.tools.tool import Tool, ToolContext, ToolFailed, Update

MAX_IMAGE_BYTES = 5 * 1024 * 1024
_PIECE = 1 << 20
_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class ReadArguments(msgspec.Struct, frozen=True):
    """Arguments of `read`."""

    path: Annotated[str, Meta(description="File to read, relative to the workspace folder or absolute")]
    offset: Annotated[int, Meta(ge=1, description="Number of the first line, from 1")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, description="Largest number of lines")] | UnsetType = UNSET


class Read(Tool[ReadArguments]):
    """Reads lines of a text file, from the editor where it is open, else from the disk."""

    name: ClassVar[str] = "read"
    description: ClassVar[str] = (
        f"Read a text file or an image. Returns at most {MAX_LINES} lines or {MAX_BYTES // 1024} KB of text; "
        "use offset and limit for other parts of a long file."
    )
    changes_things: ClassVar[bool] = False
    arguments = ReadArguments

    def summary(self, arguments: ReadArguments) -> str:
        """Which file is read."""
        return f"Read {arguments.path}"

    async def run(self, arguments: ReadArguments, context: ToolContext, update: Update) -> ToolOutput:
        """The wanted lines and a note about what is left, or the image."""
        path = locate(context, arguments.path)
        offset = arguments.offset or 1
        limit = min(arguments.limit or MAX_LINES, MAX_LINES)
        buffer = context.workspace.open_text(path)
        if buffer is not None:
            data = io.BytesIO(buffer.encode(errors="replace"))
            return ToolOutput.of(await asyncio.to_thread(_lines, data, offset, limit))
        return await asyncio.to_thread(_read, path, shown(path, context.folder), offset, limit)


def _read(path: Path, name: str, offset: int, limit: int) -> ToolOutput:
    with os.fdopen(open_regular(path), "rb") as file:
        start = file.read(8192)
        if (kind := _image_type(start)) is not None:
            return _image(file, start, name, kind)
        if b"\0" in start:
            raise ToolFailed(f"{name} is a binary file. Use bash to look at it.")
        file.seek(0)
        return ToolOutput.of(_lines(file, offset, limit))


def _image_type(start: bytes) -> str | None:
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if start.startswith(magic)), None)


def _image(file: IO[bytes], start: bytes, name: str, kind: str) -> ToolOutput:
    data = start + file.read(MAX_IMAGE_BYTES)
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolFailed(f"{name} is an image of more than {MAX_IMAGE_BYTES >> 20} MB, too large to be sent.")
    picture = ImageContent(base64.b64encode(data).decode(), kind)
    return ToolOutput(content=(TextContent(f"Image {name} ({kind})"), picture))


def _lines(file: IO[bytes], offset: int, limit: int) -> str:
    """Lines from `offset` on within the limits, and a note where there are more. Never holds much of it."""
    before = _skip_lines(file, offset - 1)
    kept: list[bytes] = []
    size = 0
    while len(kept) < limit and size <= MAX_BYTES:
        line = file.readline(MAX_BYTES + 1)
        if not line:
            break
        kept.append(line)
        size += len(line)
    if not kept:
        if offset > 1:
            raise ToolFailed(f"The file has {before} lines; there is no line {offset}.")
        return "[The file is empty.]"
    if size > MAX_BYTES:
        overflow = kept.pop()
        if not kept:
            note = f"[Line {offset} is longer than {MAX_BYTES // 1024} KB; cut. Use bash for the rest.]"
            return f"{cut_bytes(_text(overflow), MAX_BYTES)}\n\n{note}"
        file.seek(-len(overflow), os.SEEK_CUR)
    text = _text(b"".join(kept))
    if offset == 1:
        text = text.removeprefix(BOM)
    total = offset - 1 + len(kept) + _skip_lines(file, sys.maxsize)
    last = offset - 1 + len(kept)
    if last >= total:
        return text
    return f"{text.rstrip()}\n\n[Lines {offset}-{last} of {total}. Use offset={last + 1} to go on.]"


def _skip_lines(file: IO[bytes], count: int) -> int:
    """Pass over `count` lines, or as many as there are; how many that was."""
    passed, last = 0, b"\n"
    while passed < count and (piece := file.read(_PIECE)):
        found = piece.count(b"\n")
        if passed + found >= count:
            end = -1
            for _ in range(count - passed):
                end = piece.find(b"\n", end + 1)
            file.seek(end + 1 - len(piece), os.SEEK_CUR)
            return count
        passed += found
        last = piece[-1:]
    return passed + (passed < count and last != b"\n")


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n")
