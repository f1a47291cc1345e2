"""Which open documents hold unsaved text.

LSP tells of saving, not of being unsaved: a document is clean while its text is what was last saved, or what
was on disk when it was opened (an editor may restore unsaved text from its last run).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from pygls import uris

from pi_ls.regular import read_regular

LARGEST_DOCUMENT = 64 << 20
"""Bytes of a file that are compared with an open document; no editor speaks LSP about larger ones."""


class SavedTexts:
    """For each open document, the text that is known to have been on disk (its hash)."""

    def __init__(self) -> None:
        self._saved: dict[str, int] = {}

    async def opened(self, uri: str, text: str) -> None:
        """A document was opened; it is clean if its file holds the same text."""
        path = uris.to_fs_path(uri) if uri.startswith("file:") else None
        if path is not None and await asyncio.to_thread(_text_on_disk, Path(path)) == _normal(text):
            self._saved[uri] = hash(_normal(text))

    def saved(self, uri: str, text: str) -> None:
        """A document was saved as it is."""
        self._saved[uri] = hash(_normal(text))

    def closed(self, uri: str) -> None:
        """A document was closed."""
        self._saved.pop(uri, None)

    def is_stale(self, uri: str, text: str) -> bool:
        """Whether a document holds nothing unsaved, and its file on disk holds something else by now."""
        path = uris.to_fs_path(uri) if uri.startswith("file:") else None
        if path is None or self._saved.get(uri) != hash(_normal(text)):
            return False
        on_disk = _text_on_disk(Path(path))
        return on_disk is not None and on_disk != _normal(text)


def _text_on_disk(path: Path) -> str | None:
    try:
        return _normal(read_regular(path, LARGEST_DOCUMENT).decode("utf-8-sig", "replace"))
    except OSError:
        return None


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n")
