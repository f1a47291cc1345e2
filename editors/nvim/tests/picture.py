"""A terminal's screen, text with colour sequences, as an SVG: `picture.py TITLE COLUMNS <screen >picture`."""

from __future__ import annotations

import re
import sys
import unicodedata
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN, SIZE = 8.4, 18, 10, 14
FOREGROUND, BACKGROUND = "#e0e2ea", "#14161b"
BASIC = ["#14161b", "#ffc0b9", "#b3f6c0", "#fce094", "#a6dbff", "#ffcaff", "#8cf8f7", "#e0e2ea"]
SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)m|\x1b[()][A-Z0-9]|\x0e|\x0f")


class Style(NamedTuple):
    """How a piece of text looks."""

    foreground: str = FOREGROUND
    background: str = BACKGROUND
    bold: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False


def colour(codes: list[int]) -> str:
    """The colour after 38 or 48; takes its codes off the list."""
    if codes.pop(0) == 2:
        red, green, blue = codes.pop(0), codes.pop(0), codes.pop(0)
        return f"#{red:02x}{green:02x}{blue:02x}"
    number = codes.pop(0)
    if number < 16:
        return BASIC[number % 8]
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return f"#{grey:02x}{grey:02x}{grey:02x}"
    steps = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#" + "".join(f"{steps[number // divisor % 6]:02x}" for divisor in (36, 6, 1))


def changed(style: Style, parameters: str) -> Style:
    """The style after a colour sequence."""
    codes = [int(code or 0) for code in re.split("[;:]", parameters)]
    while codes:
        code = codes.pop(0)
        match code:
            case 0:
                style = Style()
            case 1:
                style = style._replace(bold=True)
            case 3:
                style = style._replace(italic=True)
            case 4:
                style = style._replace(underline=True)
            case 7:
                style = style._replace(reverse=True)
            case 22 | 23 | 24 | 27:
                off = {22: "bold", 23: "italic", 24: "underline", 27: "reverse"}[code]
                style = style._replace(**{off: False})
            case 38:
                style = style._replace(foreground=colour(codes))
            case 48:
                style = style._replace(background=colour(codes))
            case 39:
                style = style._replace(foreground=FOREGROUND)
            case 49:
                style = style._replace(background=BACKGROUND)
            case _ if 30 <= code % 60 <= 37:
                style = style._replace(foreground=BASIC[code % 10])
            case _ if 40 <= code % 60 <= 47:
                style = style._replace(background=BASIC[code % 10])
            case _:
                pass
    return style


NO_BREAK = "\u00a0"
"""A space that no viewer takes away or joins with its neighbours."""


def columns(text: str) -> int:
    """How many cells a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def line(text: str, row: int, style: Style) -> tuple[str, Style]:
    """A line of the screen as SVG, and the style it ends with."""
    parts: list[str] = []
    column, start = 0, 0
    top = MARGIN + row * HEIGHT
    for match in [*SEQUENCE.finditer(text), None]:
        piece = text[start : match.start() if match else len(text)]
        if piece:
            front, back = style.foreground, style.background
            if style.reverse:
                front, back = back, front
            left, width = MARGIN + column * WIDTH, columns(piece) * WIDTH
            if back != BACKGROUND:
                parts.append(
                    f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}" fill="{back}"/>'
                )
            if piece.strip():
                extra = ' font-weight="bold"' * style.bold + ' font-style="italic"' * style.italic
                extra += ' text-decoration="underline"' * style.underline
                parts.append(
                    f'<text x="{left:.1f}" y="{top + 14}" fill="{front}" textLength="{width:.1f}"{extra}>'
                    f"{escape(piece).replace(' ', NO_BREAK)}</text>"
                )
            column += columns(piece)
        if match:
            start = match.end()
            if match[1] is not None:
                style = changed(style, match[1])
    return "".join(parts), style


def picture(screen: str, title: str, wide: int) -> str:
    """The whole screen."""
    lines = screen.rstrip("\n").split("\n")
    width = wide * WIDTH + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    style = Style()
    rows: list[str] = []
    for row, text in enumerate(lines):
        drawn, style = line(text, row, style)
        rows.append(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-size="{SIZE}" '
        f'font-family="DejaVu Sans Mono,Menlo,Consolas,monospace">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


if __name__ == "__main__":
    sys.stdout.write(picture(sys.stdin.read(), sys.argv[1], int(sys.argv[2])))
