"""The two threads at the streams: framing on the way in, the queue on the way out."""

from __future__ import annotations

import io
import os
import threading
from io import RawIOBase
from typing import cast

import pytest

from pi_ls.server.reader import Reader
from pi_ls.server.writer import MAX_WAITING_BYTES, MAX_WAITING_PUSHES, Message, Writer


def bodies_in(data: bytes) -> list[bytes]:
    """The messages a reader finds in these bytes, until their end."""
    found: list[bytes] = []
    ended = threading.Event()
    Reader(
        cast("RawIOBase", io.BytesIO(data)),
        on_message=found.append,
        on_end=ended.set,
        wait_for_room=lambda: None,
    )
    assert ended.wait(5)
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: 2\r\n\r\n{}",
        b"content-length:2\r\n\r\n{}",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: 2\n\n{}",
        b"\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: 2\r\n\r\n{}Content-Length: 9\r\n\r\n{",
        b"Content-Length: 2\r\n\r\n{}Content-Length: 99999999999999\r\n\r\n{}",
    ],
)
def test_headers_are_read_generously_and_only_whole_messages_count(data: bytes):
    assert bodies_in(data) == [b"{}"]


@pytest.mark.parametrize("value", [b"abc", b"-2", b"", b"2.0", b"0x2"])
def test_what_follows_a_length_that_cannot_be_read_is_passed_over_and_told(
    value: bytes, caplog: pytest.LogCaptureFixture
):
    bad = b"Content-Length: " + value + b'\r\n\r\n{"lost":1}'
    good = b"Content-Length: 2\r\n\r\n{}"
    assert bodies_in(good + bad + good + good) == [b"{}"] * 3
    told = " ".join(caplog.messages)
    assert (repr(b"Content-Length: " + value)[2:-1].strip() in told, "lost" in told) == (True, True)


def test_an_end_because_of_a_message_that_is_too_long_is_told(caplog: pytest.LogCaptureFixture):
    assert bodies_in(b"Content-Length: 99999999999999\r\n\r\n{}") == []
    assert "99999999999999 bytes" in caplog.text


def test_messages_are_read_one_after_the_other_whatever_is_in_them():
    frames = [b"", b"Content-Length: 3\r\n\r\n", b"x" * 200_000, "é\n".encode()]
    assert bodies_in(b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(f), f) for f in frames)) == frames


class Pipe:
    """A writer whose reader has not begun to read: the first message fills the pipe, the rest waits."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        self.lost = threading.Event()
        self._stream = os.fdopen(write, "wb", buffering=0)
        self.writer = Writer(self._stream, self.lost.set)
        self.writer.send(Message(b"x" * 1_000_000))
        os.read(self._read, 1)  # the thread has taken it

    def messages(self) -> list[bytes]:
        """Read everything to the end; what waited after the first message."""
        with os.fdopen(self._read, "rb") as reader:
            closing = threading.Thread(target=self._close)
            closing.start()
            data = reader.read()
            closing.join()
        return [frame.partition(b"\r\n\r\n")[2] for frame in data.split(b"Content-Length: ")][1:]

    def _close(self) -> None:
        self.writer.close(5)
        self._stream.close()

    def hang_up(self) -> None:
        os.close(self._read)
        assert self.lost.wait(5)
        self._stream.close()


def numbered(text: bytes, **more: object) -> Message:
    return Message(head=text, tail=b"", sequence="s", **more)  # pyright: ignore[reportArgumentType]


def test_of_messages_that_replace_each_other_the_newest_arrives_in_its_place_without_a_gap():
    pipe = Pipe()
    for number in range(10_000):
        pipe.writer.send(numbered(b"usage %d #" % number, key="usage"))
        if number == 5_000:
            pipe.writer.send(numbered(b"end #"))
    assert pipe.messages() == [b"end #1", b"usage 9999 #2"]


def test_too_many_waiting_pushes_lose_the_oldest_and_leave_a_gap_but_never_an_answer():
    pipe = Pipe()
    pipe.writer.send(Message(b"answer"))
    for number in range(1_000):
        pipe.writer.send(numbered(b"entry %d #" % number, keep=False))
    pipe.writer.send(numbered(b"end #"))
    answer, *entries, end = pipe.messages()
    assert (answer, end) == (b"answer", b"end #1001")
    assert entries == [b"entry %d #%d" % (n, n + 1) for n in range(1_000 - MAX_WAITING_PUSHES, 1_000)]


def test_nothing_more_is_taken_in_while_too_much_is_unread():
    pipe = Pipe()
    pipe.writer.send(Message(b"y" * MAX_WAITING_BYTES))
    waiting = threading.Thread(target=pipe.writer.wait_for_room)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert len(pipe.messages()) == 1
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_client_that_hangs_up_is_noticed_and_nothing_is_kept_for_it():
    pipe = Pipe()
    waiting = threading.Thread(target=pipe.writer.wait_for_room)
    pipe.hang_up()
    waiting.start()
    pipe.writer.send(Message(b"z" * MAX_WAITING_BYTES))
    waiting.join(5)
    assert not waiting.is_alive()
