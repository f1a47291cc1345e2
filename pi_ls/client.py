"""A small LSP client: starts a server as a child process and talks to it over its pipes.

It is what the demo drives the server with, and enough for a script: requests are awaited, notifications are
handed to a callback in the order in which they come. It knows JSON-RPC framing and nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from pi_ls.core.jsonvalues import Json

OnNotification = Callable[[str, Json], None]

EXIT_TIMEOUT = 10.0
"""Seconds a server is given to leave after it was asked to."""


class ResponseError(Exception):
    """The server answered a request with an error; `data["kind"]` tells one from another."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ServerGone(Exception):
    """The server closed its output before it answered."""


class Client:
    """One conversation with one server: `async with Client(command, …) as client`.

    Args:
        command: The program and its arguments.
        folder: Where the server runs.
        environ: The server's whole environment.
        on_notification: Gets the method and params of every notification.
        stderr: Where the server's log goes; thrown away by default.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environ: Mapping[str, str],
        on_notification: OnNotification,
        stderr: int | BinaryIO = asyncio.subprocess.DEVNULL,
    ) -> None:
        self._command = command
        self._folder = folder
        self._environ = dict(environ)
        self._on_notification = on_notification
        self._stderr = stderr
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    async def __aenter__(self) -> Client:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=self._folder,
            env=self._environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._stderr,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), EXIT_TIMEOUT)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    async def initialize(self, folder: Path, options: Json, capabilities: Json | None = None) -> Json:
        """The opening handshake for one workspace folder; returns the server's answer."""
        uri = folder.as_uri()
        answer = await self.request(
            "initialize",
            {
                "processId": None,
                "rootUri": uri,
                "workspaceFolders": [{"uri": uri, "name": folder.name}],
                "capabilities": capabilities or {},
                "initializationOptions": options,
            },
        )
        await self.notify("initialized", {})
        return answer

    async def command(self, name: str, /, **arguments: Any) -> Any:
        """The result of `workspace/executeCommand`. Raises ResponseError."""
        return await self.request("workspace/executeCommand", {"command": name, "arguments": [arguments]})

    async def shutdown(self) -> int:
        """Ask the server to leave; returns its exit code."""
        await self.request("shutdown", None)
        await self.notify("exit", None)
        return await asyncio.wait_for(self._process.wait(), EXIT_TIMEOUT)

    async def request(self, method: str, params: Any) -> Any:
        """The result of a request. Raises ResponseError, or ServerGone where no answer can come any more."""
        if self._reading.done():
            raise ServerGone("the server closed its output")
        self._last_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_id] = answer
        await self._send({"id": self._last_id, "method": method, "params": params})
        return await answer

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        await self._send({"method": method, "params": params})

    async def _send(self, message: Json) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        try:
            await stdin.drain()
        except ConnectionError as error:
            raise ServerGone("the server closed its input") from error

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while True:
                header = await stdout.readuntil(b"\r\n\r\n")
                body = await stdout.readexactly(_content_length(header))
                await self._receive(json.loads(body))
        except (asyncio.IncompleteReadError, ValueError) as error:
            gone = ServerGone("the server closed its output")
            gone.__cause__ = error
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(gone)

    async def _receive(self, message: Json) -> None:
        if "method" not in message:
            self._settle(message)
        elif "id" in message:  # a request of the server: progress tokens and the like are simply granted
            await self._send({"id": message["id"], "result": None})
        else:
            self._on_notification(message["method"], message.get("params") or {})

    def _settle(self, message: Json) -> None:
        answer = self._waiting.pop(message["id"], None)
        if answer is None or answer.done():
            return
        error = message.get("error")
        if error is None:
            answer.set_result(message.get("result"))
        else:
            answer.set_exception(ResponseError(error["code"], error["message"], error.get("data")))


def _content_length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    raise ValueError(f"a message without Content-Length: {header!r}")
