"""Prose taken to pieces: sentences, first sentences, shortened lines.

For texts of any origin and size (a chat message, a pasted log, Markdown), in time proportional to what is
looked at, which is bounded. Code blocks are no prose and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_HEAD, _TAIL = 8_000, 2_000
"""How much of a long text is looked at, in characters: its beginning and its end."""

_FENCE = re.compile(r"^(```|~~~).*?^\1.*?$", re.MULTILINE | re.DOTALL)
_OPEN_FENCE = re.compile(r"^(```|~~~).*", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"^\s{0,6}(?:[-*+•]|\d{1,3}[.)]|#{1,6}|>+)\s+(?:\[[ xX]\]\s+)?")
_INDENTED = re.compile(r"^(?: {8}|\t)")
_BOUNDARY = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])|(?<=[。！？])")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|no|fig|resp)\.$", re.IGNORECASE)
_OUR_TAG = re.compile(
    r"<(/?(?:conversation|previous-summary|additional-context|read-files|modified-files))>", re.IGNORECASE
)

_BOLD = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, each on one line, list items as sentences of their own."""
    return [sentence for paragraph in _paragraphs(_looked_at(text)) for sentence in _split(paragraph)]


def _looked_at(text: str) -> str:
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n\n{text[-_TAIL:]}"
    return _BOLD.sub(r"\1", _OPEN_FENCE.sub("", _FENCE.sub("", text)))


def _paragraphs(text: str) -> Iterator[str]:
    """Lines that belong together as one; a marker at its beginning starts a new one and is taken off."""
    lines: list[str] = []
    for line in text.splitlines():
        starts = _MARKER.match(line)
        if lines and (starts or not line.strip()):
            yield " ".join(lines)
            lines = []
        if line.strip() and not _INDENTED.match(line):
            lines.append(line[starts.end() :] if starts else line)
    if lines:
        yield " ".join(lines)


def _split(paragraph: str) -> Iterator[str]:
    held = ""
    for piece in _BOUNDARY.split(paragraph):
        held = f"{held} {piece}" if held else piece
        if not _ABBREVIATION.search(held):
            yield from _if_any(one_line(held))
            held = ""
    yield from _if_any(one_line(held))


def _if_any(sentence: str) -> Iterator[str]:
    if any(character.isalnum() for character in sentence):
        yield sentence


def one_line(text: str) -> str:
    """A text on one line, safe to quote: no control characters, lone surrogates or tags of ours."""
    text = _OUR_TAG.sub(r"\1", text) if "<" in text else text
    if not text.isprintable():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.split())


def clip(text: str, width: int) -> str:
    """A line of at most `width` characters, shortened between words where there are any."""
    if len(text) <= width:
        return text
    head = text[: width - 1]
    at_word = head.rsplit(" ", 1)[0]
    return (at_word if len(at_word) > width // 2 else head).rstrip(" ,;:") + "…"


def code(text: str) -> str:
    """A line as code in Markdown; a backtick in it becomes an apostrophe, so that the line has two."""
    return "`" + text.replace("`", "'") + "`"


def gist(text: str, width: int) -> str:
    """The first sentences of a text that fit the width; the first one shortened where none does."""
    chosen = ""
    for sentence in sentences(text):
        longer = f"{chosen} {sentence}" if chosen else sentence
        if len(longer) > width:
            return chosen or clip(sentence, width)
        chosen = longer
    return chosen or clip(one_line(text[: 4 * width]), width)


def joined(names: Iterable[str], most: int) -> str:
    """Names as an enumeration: `a, b and c`, with the number of those beyond `most`."""
    listed = list(names)
    shown, more = listed[:most], len(listed) - most
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
