"""Framed messages coming in, read on a thread of their own.

A thread, and a daemon one, because a read from a pipe cannot be interrupted: the server must be able to leave
while the client keeps its end open and silent. Standard input may be a pipe, a socket, a terminal or a file.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from io import RawIOBase
from typing import Final

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 512 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_SHOWN: Final = 80
_LENGTH: Final = re.compile(rb"(?<![\w-])content-length[ \t]*:[ \t]*(\d+)$", re.IGNORECASE)
_OTHER: Final = re.compile(rb"(?!content-length)[\w-]+[ \t]*:", re.IGNORECASE)


class Reader:
    """Calls `on_message` with each message's body and `on_end` once, both on the reading thread.

    `wait_for_room` is called before each message and may block: what is not read, the client cannot send.
    """

    def __init__(
        self,
        stream: RawIOBase,
        *,
        on_message: Callable[[bytes], None],
        on_end: Callable[[], None],
        wait_for_room: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._on_message = on_message
        self._on_end = on_end
        self._wait_for_room = wait_for_room
        self._buffer = bytearray()
        threading.Thread(target=self._run, name="protocol reader", daemon=True).start()

    def _run(self) -> None:
        try:
            while (body := self._next()) is not None:
                self._on_message(body)
                self._wait_for_room()
        except _TooLong as error:
            logger.error("%s; the connection is given up", error)
        except (OSError, ValueError):
            pass  # the connection is gone, which is an end like any other
        self._on_end()

    def _next(self) -> bytes | None:
        """The next body, None at the end of the stream.

        Other headers than Content-Length are skipped; so is, up to the next one, what follows upon a length
        that cannot be read.
        """
        length: int | None = None
        while (line := self._line()) is not None:
            if line.strip():
                length = _content_length(line.strip()) if length is None else length
            elif length is not None:
                return self._exactly(length)
        return None

    def _line(self) -> bytes | None:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if not self._fill():
                return None
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    def _exactly(self, length: int) -> bytes | None:
        while len(self._buffer) < length:
            if not self._fill():
                return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _fill(self) -> bool:
        chunk = self._stream.read(_CHUNK)
        self._buffer += chunk or b""
        return bool(chunk)


class _TooLong(Exception):
    """A message was announced that is longer than any may be."""


def _content_length(line: bytes) -> int | None:
    """The length a header line names, also after something that is no header."""
    found = _LENGTH.search(line)
    junk = line[: found.start()] if found else b"" if _OTHER.match(line) else line
    if junk:
        logger.error("Between two messages stands what is no header: %r", junk[:_SHOWN])
    if found is None:
        return None
    length = int(found[1])
    if length > MAX_MESSAGE_BYTES:
        raise _TooLong(f"A message of {length} bytes is announced")
    return length
