"""What the server still has to say, and the thread that says it.

A client that stops reading fills the pipe, and a write to a full pipe blocks. So all writing happens on one
thread of its own, from a queue that cannot grow without bound: of pushes that replace each other only the
newest waits, and of those that tell of something small the oldest go when too many wait. Answers and the
pushes marked as kept always arrive. Anything may be called from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from io import RawIOBase
from typing import Final

import msgspec

MAX_WAITING_PUSHES: Final = 256
"""Pushes that may wait and are not kept at any price; with 256 KB each at most 64 MB, usually far less."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""More than this unread, and no further request is taken in until the client reads."""


class Message(msgspec.Struct, eq=False):
    """One message on its way out: the body is `head`, then (for a numbered one) the number, then `tail`.

    `key`: a later message with an equal key takes this one's place, at the end of the queue. `sequence`: the
    name of the series it is numbered in; a number is given only when the message leaves, so that replaced
    messages leave no gap, and a gap says that something was dropped. `keep`: never dropped.
    """

    head: bytes
    tail: bytes = b""
    key: Hashable = None
    sequence: str | None = None
    keep: bool = True

    @property
    def size(self) -> int:
        """Bytes the message holds while it waits."""
        return len(self.head) + len(self.tail)


class Writer:
    """The queue and its thread. `on_lost` is called on that thread once the client cannot be reached."""

    def __init__(self, stream: RawIOBase, on_lost: Callable[[], None]) -> None:
        self._stream = stream
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._waiting: dict[int, Message] = {}  # by ticket, in order of arrival
        self._ticket_of: dict[Hashable, int] = {}
        self._droppable: deque[int] = deque()  # tickets, some of them long gone
        self._droppable_count = 0
        self._bytes = 0
        self._next_ticket = 0
        self._numbers: dict[str, int] = {}
        self._closing = False
        self._lost = False
        self._thread = threading.Thread(target=self._run, name="protocol writer", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """Put a message in the queue; never blocks, and does nothing once the client is gone."""
        with self._changed:
            if self._closing or self._lost:
                return
            if message.key is not None and (old := self._ticket_of.pop(message.key, None)) is not None:
                self._remove(old)
            ticket = self._next_ticket
            self._next_ticket += 1
            self._waiting[ticket] = message
            self._bytes += message.size
            if message.key is not None:
                self._ticket_of[message.key] = ticket
            if not message.keep:
                self._droppable.append(ticket)
                self._droppable_count += 1
                if self._droppable_count > MAX_WAITING_PUSHES:
                    self._drop_oldest()
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Block while the client has too much unread; for the thread that takes requests in."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < MAX_WAITING_BYTES or self._closing or self._lost)

    def close(self, timeout: float) -> None:
        """Take nothing more, and give what waits `timeout` seconds to leave."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _drop_oldest(self) -> None:
        while self._droppable:
            ticket = self._droppable.popleft()
            if ticket in self._waiting:
                message = self._remove(ticket)
                if message.sequence is not None:
                    self._number(message.sequence)
                return

    def _remove(self, ticket: int) -> Message:
        message = self._waiting.pop(ticket)
        self._bytes -= message.size
        if not message.keep:
            self._droppable_count -= 1
            if not self._droppable_count:
                self._droppable.clear()
        if message.key is not None and self._ticket_of.get(message.key) == ticket:
            del self._ticket_of[message.key]
        return message

    def _number(self, sequence: str) -> int:
        number = self._numbers[sequence] = self._numbers.get(sequence, 0) + 1
        return number

    def _take(self) -> bytes | None:
        """The next body to write, None when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return None
            message = self._remove(next(iter(self._waiting)))
            self._changed.notify_all()
            if message.sequence is None:
                return message.head + message.tail
            return b"%b%d%b" % (message.head, self._number(message.sequence), message.tail)

    def _run(self) -> None:
        try:
            while (body := self._take()) is not None:
                self._write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        except (OSError, ValueError):  # a broken pipe, a reset connection, a stream closed under us
            with self._changed:
                self._lost = True
                self._waiting.clear()
                self._bytes = 0
                self._changed.notify_all()
            self._on_lost()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._stream.write(view) or 0 :]
