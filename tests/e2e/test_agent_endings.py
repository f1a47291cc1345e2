"""Servers that begin and end while their agent is at work: nothing heavy too early, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests import sessions
from tests.e2e.colleague import Model, call, calls, says
from tests.e2e.conftest import Home, RawServer, Start
from tests.e2e.raw import Json
from tests.provider import Provider

TIMEOUT_S = 60
ANSWER_S = 0.5
"""How long an answer may take while something runs; a busy machine is given more."""
SLACK = 4

ALLOWED: Json = {"approval": {"bash": "allow", "write": "allow", "edit": "allow"}}


@pytest.fixture
async def model(home: Home) -> AsyncIterator[Model]:
    async with Provider() as provider:
        home.use(provider)
        yield Model(provider)


@pytest.fixture
async def server(home: Home, start: Start, model: Model) -> RawServer:
    """A server with a session in a trusted folder, which has talked to its model once."""
    server = await start()
    home.add_long()
    await server.initialize(home.params(trusted=True, settings=ALLOWED))
    await server.result("pi.prompt", {"text": "warm up"})
    await settled(server)
    return server


async def settled(server: RawServer, times: int = 1) -> None:
    await server.until(lambda: len(server.named("pi/agent_settled")) >= times, TIMEOUT_S)


async def stays_alive(server: RawServer, rounds: int = 10) -> None:
    """Ask for the usage and the tree again and again; each is answered soon."""
    slowest = 0.0
    for _ in range(rounds):
        for command in ("pi.contextUsage", "pi.getTree"):
            began = time.perf_counter()
            await server.result(command, {})
            slowest = max(slowest, time.perf_counter() - began)
        await asyncio.sleep(0.05)
    assert slowest < ANSWER_S * SLACK


# -- nothing heavy before it is needed


async def test_the_library_is_loaded_with_the_first_prompt_and_never_in_the_way(
    home: Home, start: Start, model: Model
):
    home.add_long()
    home.env |= {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    began = time.perf_counter()
    server = await start()
    await server.initialize(home.params(trusted=True, settings=ALLOWED))
    assert time.perf_counter() - began < 1.5 * SLACK
    for command in ("pi.contextUsage", "pi.getTree", "pi.listSessions"):
        await server.result(command, {})
    assert not loaded(server, "litellm")
    model.default = says(delay=0.2)
    await server.result("pi.prompt", {"text": "x"})
    while not server.named("pi/agent_settled"):
        await stays_alive(server, 1)
    assert model.order == ["chat"]


def loaded(server: RawServer, package: str) -> bool:
    """Whether the process has a native part of the package, or of what it brings, in memory."""
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    return f"/{package}/" in maps or "/openai/" in maps or "/pydantic_core/" in maps


# -- standard output


async def test_nothing_but_the_protocol_is_written_to_standard_output(server: RawServer, model: Model):
    """The client fails on any other byte."""
    model.answers = [calls(call("bash", command="echo hi >&1; cat"))]
    await server.result("pi.prompt", {"text": "x"})
    await settled(server, 2)
    await server.result("pi.setModel", {"provider": "nobody", "modelId": "nothing"})
    answer = await server.command("pi.prompt", {"text": "y"})
    assert "error" in answer or "result" in answer
    page = await server.result("pi.getMessages")
    [said] = [m["content"][0]["text"] for m in page["messages"] if m["role"] == "toolResult"]
    assert said.split() == ["hi"]


# -- the end

PARENT = """
import json, os, subprocess, sys, time
server = subprocess.Popen([sys.executable, "-m", "pi_ls"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(server.pid, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("params", {}).get("processId") == "me":
        message["params"]["processId"] = os.getpid()
    body = json.dumps(message).encode()
    server.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    server.stdin.flush()
time.sleep(600)
"""


class Parent:
    """An editor's process, which started the server over pipes and can die."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=home.env,
            cwd=home.folder,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout is not None
        self.server = int(self.process.stdout.readline())

    def send(self, *messages: Json) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def prompt(self) -> None:
        """Start up and prompt."""
        params = self.home.params(trusted=True, settings=ALLOWED, model="fake/m200")
        wanted = {"command": "pi.prompt", "arguments": [{"text": "sleep"}]}
        self.send(
            {"id": 1, "method": "initialize", "params": params | {"capabilities": {}, "processId": "me"}},
            {"method": "initialized", "params": {}},
            {"id": 2, "method": "workspace/executeCommand", "params": wanted},
        )

    def close(self) -> None:
        for pid in (self.process.pid, self.server):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.communicate()


@pytest.fixture
def parent(home: Home, model: Model) -> Iterator[Parent]:
    parent = Parent(home)
    yield parent
    parent.close()


async def until(condition: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sleeping() -> int:
    """How many processes sleep for the time that only this test asks for."""
    found = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += file.read_bytes() == b"sleep\x00613.7\x00"
        except OSError:
            continue
    return found


async def test_the_server_dies_with_its_editor_and_takes_the_command_along(parent: Parent, model: Model):
    model.answers = [calls(call("bash", command="sleep 613.7"))]
    parent.prompt()
    await until(lambda: sleeping() == 1, TIMEOUT_S)
    os.kill(parent.process.pid, signal.SIGKILL)
    await until(lambda: not is_there(parent.server) and sleeping() == 0, 5 * SLACK)
    for file in parent.home.sessions().glob("*.jsonl"):
        assert len(sessions.read(file)) >= 3


Ending = Callable[[RawServer], Awaitable[None]]


async def politely(server: RawServer) -> None:
    await server.shutdown()


async def at_once(server: RawServer) -> None:
    server.notify("exit")


async def by_closing(server: RawServer) -> None:
    server.close()


async def by_hanging_up(server: RawServer) -> None:
    server.process.send_signal(signal.SIGHUP)


ENDINGS = [(politely, 0), (at_once, 1), (by_closing, 1), (by_hanging_up, 128 + signal.SIGHUP)]


@pytest.mark.parametrize(("end", "code"), ENDINGS)
async def test_leaving_while_a_command_runs_ends_it_and_keeps_every_entry(
    home: Home, server: RawServer, model: Model, end: Ending, code: int
):
    model.answers = [calls(call("bash", command="sleep 613.7"))]
    await server.result("pi.prompt", {"text": "go"})
    await until(lambda: sleeping() == 1, TIMEOUT_S)
    await end(server)
    assert await server.code(5 * SLACK) == code
    assert sleeping() == 0
    written = sessions.read(home.sessions() / "s-1.jsonl")
    results = [line["message"] for line in written if line.get("message", {}).get("role") == "toolResult"]
    assert [(one["isError"], one["content"][0]["text"]) for one in results] == [(True, "aborted")]
