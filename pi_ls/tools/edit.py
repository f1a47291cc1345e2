"""The tool `edit`: pieces of a text replaced by others, each named by the exact text it has now.

What is not replaced stays as it is to the byte: line ends, a byte order mark, bytes that are no UTF-8.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pi_ls.core.chat import ToolOutput
from pi_ls.core.request import clean_text
from pi_ls.tools.files import locate, read_whole, replace_file, shown
from pi_ls.tools.tool import TextEdit, Tool, ToolContext, ToolFailed, Update
from pi_ls.tools.write import IN_BUFFER

CONTEXT_LINES = 3
MAX_FILE_BYTES = 20 << 20
MAX_HINT_CHARS = 1 << 20
"""Longer texts are not looked through for a piece that nearly fits."""


class Replacement(msgspec.Struct, frozen=True, rename="camel"):
    """One piece of text and what shall stand there instead."""

    old_text: Annotated[str, Meta(description="Exact text to replace; must occur once in the file")]
    new_text: Annotated[str, Meta(description="Text to put in its place")]


class EditArguments(msgspec.Struct, frozen=True, rename="camel"):
    """Arguments of `edit`: `edits`, or a single one as sessions of older programs show it to the model."""

    path: Annotated[str, Meta(description="File to change, relative to the workspace folder or absolute")]
    edits: (
        Annotated[list[Replacement], Meta(description="Replacements; all refer to the file as it is now")]
        | UnsetType
    ) = UNSET
    old_text: Annotated[str, Meta(description="Instead of edits: the text of a single one")] | UnsetType = (
        UNSET
    )
    new_text: Annotated[str, Meta(description="Instead of edits: its new text")] | UnsetType = UNSET

    def replacements(self) -> Sequence[Replacement]:
        """What shall be replaced. Raises ToolFailed where that is nothing."""
        edits = list(self.edits or ())
        if isinstance(self.old_text, str) and isinstance(self.new_text, str):
            edits.append(Replacement(self.old_text, self.new_text))
        if not edits:
            raise ToolFailed("There is nothing to replace: give edits with oldText and newText.")
        return edits


class Edit(Tool[EditArguments]):
    """Replaces pieces of a file by others."""

    name: ClassVar[str] = "edit"
    description: ClassVar[str] = (
        "Change a file by replacing exact pieces of its text. Each oldText must match the file exactly, "
        "white space included, and occur only once; take in lines around it where it would not."
    )
    changes_things: ClassVar[bool] = True
    arguments = EditArguments

    def summary(self, arguments: EditArguments) -> str:
        """Which file is changed."""
        return f"Edit {arguments.path}"

    async def run(self, arguments: EditArguments, context: ToolContext, update: Update) -> ToolOutput:
        """Through the editor where the file is open there, else on the disk; all replacements or none."""
        path = locate(context, arguments.path)
        name = shown(path, context.folder)
        wanted = arguments.replacements()
        buffer = context.workspace.open_text(path)
        if buffer is None:
            text, edits = await asyncio.to_thread(_edit_file, path, name, wanted)
        else:
            text, edits = buffer, find_edits(buffer, wanted, name)
            await context.workspace.apply_edit(path, edits)
        told = f"Replaced {len(edits)} {'piece' if len(edits) == 1 else 'pieces'} of text in {name}."
        details = {"diff": diff_of(text, edits), "firstChangedLine": text.count("\n", 0, edits[0].start) + 1}
        return ToolOutput.of(told if buffer is None else f"{told} {IN_BUFFER}", details=details)


def _edit_file(path: Path, name: str, wanted: Sequence[Replacement]) -> tuple[str, list[TextEdit]]:
    data, version = read_whole(path, MAX_FILE_BYTES)
    text = data.decode(errors="surrogateescape")  # bytes that are no UTF-8 come out again as they were
    edits = find_edits(text, wanted, name)
    replace_file(path, apply(text, edits).encode(errors="surrogateescape"), version)
    return clean_text(text), edits


def find_edits(text: str, wanted: Sequence[Replacement], name: str) -> list[TextEdit]:
    """The edits that make the replacements, in the order of the text.

    Raises ToolFailed where a piece does not occur, occurs more than once, overlaps another, or would not
    change. Line ends do not matter for finding; new text gets those of the place where it is put.
    """
    plain = _PlainText(text)
    edits = sorted((_find(plain, one, name) for one in wanted), key=lambda edit: edit.start)
    for before, after in itertools.pairwise(edits):
        if after.start < before.end:
            raise ToolFailed(f"Two of the pieces to replace in {name} overlap. Make one replacement of them.")
    return edits


class _PlainText:
    """A text with LF line ends, and where its characters are in the original."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.text = original.replace("\r\n", "\n")
        self._breaks: list[int] = []  # places in `text` of line breaks that take two characters
        if len(self.text) != len(original):
            at = -1
            while (at := original.find("\r\n", at + 1)) >= 0:
                self._breaks.append(at - len(self._breaks))

    def original_place(self, place: int) -> int:
        return place + bisect_left(self._breaks, place)

    def in_style_of(self, start: int, end: int, text: str) -> str:
        """A text with the line ends of a range of `self.text`, or of the whole where it has none."""
        breaks = bisect_left(self._breaks, end) - bisect_left(self._breaks, start)
        lines = self.text.count("\n", start, end)
        if not lines:
            breaks, lines = len(self._breaks), self.text.count("\n")
        return text.replace("\n", "\r\n") if breaks * 2 > lines else text


def _find(plain: _PlainText, wanted: Replacement, name: str) -> TextEdit:
    old = wanted.old_text.replace("\r\n", "\n")
    new = clean_text(wanted.new_text).replace("\r\n", "\n")
    if not old:
        raise ToolFailed("oldText is empty. Use write to make a file.")
    if old == new:
        raise ToolFailed("oldText and newText are the same; nothing would change.")
    start = plain.text.find(old)
    if start < 0:
        raise ToolFailed(f"The text to replace was not found in {name}.{_nearly(plain.text, old)}")
    again = plain.text.find(old, start + 1)
    if again >= 0:
        lines = _lines_of(plain.text, old)
        listed = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
        raise ToolFailed(
            f"The text to replace occurs {len(lines)} times in {name} (lines {listed}). "
            "Take in lines around it until it occurs once."
        )
    end = start + len(old)
    return TextEdit(
        plain.original_place(start), plain.original_place(end), plain.in_style_of(start, end, new)
    )


def _lines_of(text: str, piece: str) -> list[int]:
    lines: list[int] = []
    line, counted = 1, 0
    at = text.find(piece)
    while at >= 0:
        line += text.count("\n", counted, at)
        counted = at
        lines.append(line)
        at = text.find(piece, at + 1)
    return lines


def _nearly(text: str, old: str) -> str:
    """A hint where the same lines occur with other white space."""
    wanted = [line.split() for line in old.strip("\n").split("\n")]
    if any(wanted) and len(text) <= MAX_HINT_CHARS:
        lines = [line.split() for line in text.split("\n")]
        for at in range(len(lines) - len(wanted) + 1):
            if lines[at : at + len(wanted)] == wanted:
                return (
                    f" Line {at + 1} differs from it only in white space. Read the file and copy it exactly."
                )
    return " It must match exactly, white space included. Read the file again."


def apply(text: str, edits: Sequence[TextEdit]) -> str:
    """A text with edits made in it; they stand in its order and do not overlap."""
    pieces: list[str] = []
    done = 0
    for edit in edits:
        pieces += (text[done : edit.start], edit.text)
        done = edit.end
    return "".join([*pieces, text[done:]])


def diff_of(text: str, edits: Sequence[TextEdit]) -> str:
    """What the edits change, as hunks of a unified diff with a few lines around each."""
    hunks: list[str] = []
    shift = 0
    for edit in edits:
        start = text.rfind("\n", 0, edit.start) + 1
        end = text.find("\n", edit.end)
        end = len(text) if end < 0 else end
        old = text[start:end].split("\n")
        new = (text[start : edit.start] + edit.text + text[edit.end : end]).split("\n")
        before = text[:start].rsplit("\n", CONTEXT_LINES + 1)[-CONTEXT_LINES - 1 : -1]
        rest = text[end + 1 :]
        after = rest.removesuffix("\n").split("\n", CONTEXT_LINES)[:CONTEXT_LINES] if rest else []
        first = text.count("\n", 0, start) + 1 - len(before)
        while old and new and old[-1] == new[-1]:  # a piece that ends with its line leaves the next one alone
            after = [old.pop(), *after][:CONTEXT_LINES]
            new.pop()
        old_count, new_count = (len(before) + len(lines) + len(after) for lines in (old, new))
        hunks.append(f"@@ -{first},{old_count} +{first + shift},{new_count} @@")
        hunks += [f" {line}" for line in before]
        hunks += [f"-{line}" for line in old] + [f"+{line}" for line in new] + [f" {line}" for line in after]
        shift += len(new) - len(old)
    return "\n".join(line.rstrip("\r") for line in hunks)
