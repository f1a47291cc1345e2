"""Text for people: colours where they are wanted, columns that line up, nothing that a terminal would obey.

Session files hold what models and programs wrote, escape sequences included; every text from one passes
through `plain` before it is shown.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TextIO

Style = str
"""SGR parameters: `BOLD`, `"32"`, or several joined by `;`."""

BOLD, DIM, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "1", "2", "31", "32", "33", "34", "35", "36"

WIDTH_WITHOUT_TERMINAL = 100


class Terminal:
    """Where a command writes: knows whether colours are wanted and how wide a line may be.

    No colours for a pipe, a file, `TERM=dumb` or a non-empty `NO_COLOR`.
    """

    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self.interactive = stream.isatty()
        self.colour = self.interactive and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self.width = shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns

    def line(self, text: str = "") -> None:
        """Write one line and flush it, so that a story appears as it happens."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def style(self, text: str, *styles: Style) -> str:
        """The text in these styles; the text itself where there are no colours."""
        if not (self.colour and styles and text):
            return text
        return f"\x1b[{';'.join(styles)}m{text}\x1b[0m"

    def table(self, rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: int = 2) -> None:
        """Write rows in columns; those whose index is in `right` are aligned to the right.

        On a terminal the last column goes on below itself where it is too long for the line.
        """
        widths = [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
        for row in rows:
            padded = [
                pad(text, width, right=at in right)
                for at, (text, width) in enumerate(zip(row, widths, strict=True))
            ]
            start = " " * indent + "".join(f"{text}  " for text in padded[:-1])
            room = self.width - cells(start) if self.interactive else 0
            lines = wrap(row[-1], room) if room > 0 else [padded[-1]]
            for text in lines:
                self.line((start + text).rstrip())
                start = " " * cells(start)


def plain(text: str) -> str:
    """Text on one line without what a terminal obeys: control and bidirectional characters, surrogates."""
    spaced = " ".join(text.split())
    return "".join("\ufffd" if _is_control(char) else char for char in spaced)


def _is_control(char: str) -> bool:
    return (
        unicodedata.category(char) in ("Cc", "Cs")
        or char in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def cells(text: str) -> int:
    """How many columns a text takes, its own colours not counted."""
    count, escape = 0, False
    for char in text:
        if escape:
            escape = char != "m"
        elif char == "\x1b":
            escape = True
        else:
            count += _columns(char)
    return count


def _columns(char: str) -> int:
    if unicodedata.combining(char) or char in "\u200b\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int) -> str:
    """Uncoloured text cut to a width, with an ellipsis where something was left out."""
    if cells(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        used += _columns(char)
        if used > width - 1:
            break
        kept += char
    return kept.rstrip() + "…" if width > 0 else ""


def wrap(text: str, width: int) -> list[str]:
    """Text in lines of at most that width, broken between words; a word that is longer has its own line."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and cells(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Text filled up with spaces to a width."""
    space = " " * max(0, width - cells(text))
    return space + text if right else text + space


def count(number: float) -> str:
    """A number of tokens or entries as a person writes it: `12,345`."""
    return f"{number:,.0f}"


def counted(number: float, name: str, names: str | None = None) -> str:
    """So many things: `1 entry`, `2 entries`."""
    return f"{count(number)} {name if number == 1 else names or f'{name}s'}"
