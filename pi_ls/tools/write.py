"""The tool `write`: a file as a whole."""

from __future__ import annotations

import asyncio
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from pi_ls.core.chat import ToolOutput
from pi_ls.core.request import clean_text
from pi_ls.tools.files import locate, replace_file, shown
from pi_ls.tools.tool import TextEdit, Tool, ToolContext, Update

IN_BUFFER = "The file is open in the editor: the change is in its buffer and not yet saved to the disk."
"""What a model is told of a change that went through the editor."""


class WriteArguments(msgspec.Struct, frozen=True):
    """Arguments of `write`."""

    path: Annotated[str, Meta(description="File to write, relative to the workspace folder or absolute")]
    content: Annotated[str, Meta(description="Everything the file shall hold")]


class Write(Tool[WriteArguments]):
    """Makes a file, or replaces all of its content."""

    name: ClassVar[str] = "write"
    description: ClassVar[str] = (
        "Write a file: make it, with its folders, or replace everything in it. Use edit to change parts of "
        "a file."
    )
    changes_things: ClassVar[bool] = True
    arguments = WriteArguments

    def summary(self, arguments: WriteArguments) -> str:
        """Which file is written, and how much."""
        return f"Write {arguments.path} ({len(arguments.content)} characters)"

    async def run(self, arguments: WriteArguments, context: ToolContext, update: Update) -> ToolOutput:
        """Through the editor where the file is open there, else on the disk."""
        path = locate(context, arguments.path)
        content = clean_text(arguments.content)
        told = f"Wrote {len(content.encode())} bytes to {shown(path, context.folder)}."
        buffer = context.workspace.open_text(path)
        if buffer is not None:
            if buffer != content:
                await context.workspace.apply_edit(path, [smallest_edit(buffer, content)])
            return ToolOutput.of(f"{told} {IN_BUFFER}")
        await asyncio.to_thread(replace_file, path, content.encode())
        return ToolOutput.of(told)


def smallest_edit(old: str, new: str) -> TextEdit:
    """The one edit that makes `new` of `old` and leaves alone what both begin and end with.

    An editor then keeps marks and cursors in the rest. A line break of two characters is never cut apart.
    """
    shorter = min(len(old), len(new))
    start = _common_length(old, new, shorter)
    end = _common_length(old[::-1], new[::-1], shorter - start)
    if old[:start].endswith("\r"):
        start -= 1
    if end and old[-end] == "\n" and (old[:-end].endswith("\r") or new[:-end].endswith("\r")):
        end -= 1
    return TextEdit(start, len(old) - end, new[start : len(new) - end])


def _common_length(one: str, other: str, limit: int) -> int:
    """How many characters two texts have in common at their start, by halving (comparing slices is fast)."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
