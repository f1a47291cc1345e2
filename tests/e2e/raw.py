"""A client that believes nothing: reads what a server sends byte by byte, and keeps everything in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


class BadFrame(Exception):
    """Bytes that are no part of a framed message."""


class RawClient:
    """Speaks framed JSON over two streams; progress it is asked to create it creates, or refuses to.

    With `is_slow` it does neither by itself: `create_progress` does.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 0
        self._changed = asyncio.Condition()
        self.messages: list[Json] = []
        self.refuse_progress = False
        self.is_slow = False
        self.ended = False
        self._reading: asyncio.Task[None] | None = None
        self._seen = b""

    def start_reading(self) -> None:
        """Read until the end from now on; before it, this is a client that reads nothing."""
        self._reading = asyncio.create_task(self._read_all())

    async def stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    # -- out

    def send(self, message: Json) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_bytes(self, body: bytes) -> None:
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"method": method, "params": params})

    def begin(self, method: str, params: Any = None) -> int:
        """Send a request, return its id."""
        self._next_id += 1
        self.send({"id": self._next_id, "method": method, "params": params})
        return self._next_id

    def begin_command(self, command: str, arguments: Any = None, **more: Any) -> int:
        """Send a command, return its request's id. `arguments` is the one object."""
        given = {} if arguments is None else {"arguments": [arguments]}
        return self.begin("workspace/executeCommand", {"command": command, **given, **more})

    def close(self) -> None:
        self._writer.close()

    # -- in

    async def answer(self, request_id: int | str | None, timeout: float = 10) -> Json:
        """The whole answer to a request."""
        return await self.wait_for(lambda m: "method" not in m and m.get("id") == request_id, timeout)

    async def request(self, method: str, params: Any = None) -> Json:
        return await self.answer(self.begin(method, params))

    async def command(self, command: str, arguments: Any = None, timeout: float = 30, **more: Any) -> Json:
        return await self.answer(self.begin_command(command, arguments, **more), timeout)

    async def result(self, command: str, arguments: Any = None, **more: Any) -> Any:
        """The result of a command that must succeed; `timeout` in seconds."""
        answer = await self.command(command, arguments, **more)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, command: str, arguments: Any = None, **more: Any) -> Json:
        """The error of a command that must fail."""
        answer = await self.command(command, arguments, **more)
        assert "error" in answer, answer
        return answer["error"]

    async def wait_for(self, wanted: Callable[[Json], bool], timeout: float = 10) -> Json:
        """The first message, past or to come, for which `wanted` is true."""

        def find() -> Json | None:
            return next((message for message in self.messages if wanted(message)), None)

        async with self._changed, asyncio.timeout(timeout):
            while (found := find()) is None:
                assert not self.ended, f"the stream ended; it said {self.messages}"
                await self._changed.wait()
            return found

    async def until(self, condition: Callable[[], bool], timeout: float = 10) -> None:
        """Wait until a condition on what was received holds."""
        async with self._changed, asyncio.timeout(timeout):
            while not condition():
                assert not self.ended, f"the stream ended; it said {self.messages[-20:]}"
                await self._changed.wait()

    async def notification(self, method: str, timeout: float = 10) -> Json:
        """The params of the first notification of that name, past or to come."""
        return (await self.wait_for(lambda m: m.get("method") == method, timeout))["params"]

    def named(self, method: str) -> list[Json]:
        """The params of all notifications of that name so far."""
        return [message["params"] for message in self.messages if message.get("method") == method]

    def methods(self) -> list[str]:
        return [message["method"] for message in self.messages if "method" in message]

    async def first_byte(self) -> None:
        """Wait, without reading on, until something was said to a client that does not read."""
        assert self._reading is None or self._reading.done()
        async with asyncio.timeout(10):
            self._seen = await self._reader.readexactly(1)

    async def end(self) -> None:
        """Wait for the end of the stream."""
        assert self._reading is not None
        await self._reading

    # -- lifecycle

    async def initialize(self, params: Json | None = None, *, initialized: bool = True, **more: Any) -> Json:
        """initialize and initialized; returns the result of the first."""
        wanted: Json = {"processId": None, "capabilities": {}, **(params or {}), **more}
        answer = await self.request("initialize", wanted)
        if initialized:
            self.notify("initialized", {})
        return answer["result"]

    async def shutdown(self) -> None:
        assert (await self.request("shutdown"))["result"] is None
        self.notify("exit")

    # -- bytes

    async def _read_all(self) -> None:
        try:
            while (message := await self._read_message()) is not None:
                await self._take(message)
        except ConnectionError:
            pass
        async with self._changed:
            self.ended = True
            self._changed.notify_all()

    async def _take(self, message: Json) -> None:
        async with self._changed:
            self.messages.append(message)
            self._changed.notify_all()
        if message.get("method") == "window/workDoneProgress/create" and not self.is_slow:
            self.create_progress(message)

    def create_progress(self, request: Json) -> None:
        """Answer a request to create progress."""
        refusal = {"error": {"code": -32603, "message": "no"}}
        self.send({"id": request["id"], **(refusal if self.refuse_progress else {"result": None})})

    async def _read_message(self) -> Json | None:
        header, self._seen = self._seen, b""
        while not header.endswith(b"\r\n\r\n"):
            byte = await self._reader.read(1)
            if not byte:
                if header:
                    raise BadFrame(f"the stream ends in {header!r}")
                return None
            header += byte
            if len(header) > 200:
                raise BadFrame(f"no header: {header!r}")
        name, _, length = header.strip().partition(b": ")
        if name != b"Content-Length" or not length.isdigit():
            raise BadFrame(f"no header: {header!r}")
        body = await self._reader.readexactly(int(length))
        message = json.loads(body.decode("utf-8"))
        if message.get("jsonrpc") != "2.0":
            raise BadFrame(f"no message: {body!r}")
        return message
