"""What a server does not do: write beside the protocol, call strangers, keep the editor waiting, stay on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import sessions
from tests.e2e.conftest import KEY, NOBODY, ROOT, SERVER, Home, RawServer, Serve, Start
from tests.e2e.raw import Json
from tests.e2e.test_lifecycle import cpu_seconds
from tests.provider import Provider, ProviderProcess, Reply, error

LONGEST_WAIT_S = 2.0
"""For an answer that reads no file, on a machine that is busy with other things too."""


async def longest_wait(server: RawServer, answer: Awaitable[Any], command: str, arguments: Json) -> float:
    """How long a command took at most, asked again and again until `answer` is there."""
    waits: list[float] = []
    until = asyncio.ensure_future(answer)
    while not until.done():
        asked = time.monotonic()
        await server.result(command, arguments)
        waits.append(time.monotonic() - asked)
        await asyncio.wait([until], timeout=0.05)
    await until
    assert waits
    return max(waits)


async def test_failing_providers_cost_an_answer_and_nothing_else(
    serve: Serve, home: Home, provider: ProviderProcess, tmp_path: Path
):
    """Every byte on stdout is the protocol's, nobody but the provider is called, no key is shown."""
    connections = tmp_path / "connections"
    home.env |= {"PYTHONPATH": f"{Path(__file__).parent / 'watched'}:{ROOT}", "CONNECTIONS": str(connections)}
    home.configure({"retry": {"enabled": False}})
    home.tell_models(
        {
            "strange": {
                "baseUrl": provider.openai,
                "apiKey": KEY,
                "api": "unheard-of",
                "models": [{"id": "x"}],
            },
            "gone": {
                "baseUrl": NOBODY,
                "apiKey": KEY,
                "api": "openai-completions",
                "models": [{"id": "x", "contextWindow": 200_000}],
            },
        }
    )
    provider.queue(
        error(400, "there is no such model"),
        error(401, f"the key {KEY} is wrong"),
        error(404),
        error(500),
        Reply(body="<html>no API</html>"),
        Reply(drop_after=1),
        Reply(raw="data: {broken\n\n"),
        Reply(choices=False),
        Reply(text=""),
    )
    file = home.add_long()
    before = file.read_bytes()
    server = await serve()
    await server.result("pi.contextUsage")
    first = server.begin_command("pi.compact")
    waited = await longest_wait(server, server.answer(first, 60), "pi.contextUsage", {})
    assert waited < LONGEST_WAIT_S, "while the provider library was loaded"
    for _ in range(8):
        refusal = await server.error("pi.compact", timeout=60)
        assert refusal["data"]["kind"] in ("ProviderError", "SummarizationFailed"), refusal
    assert len(provider.requests) == 9
    assert file.read_bytes() == before
    for model in (("strange", "x"), ("gone", "x"), ("openai", "gpt-that-is-not"), ("nobody", "knows")):
        await server.result("pi.setModel", {"provider": model[0], "modelId": model[1]})
        refusal = await server.error("pi.compact", timeout=60)
        assert refusal["data"]["kind"] in ("ProviderError", "NoCredentials"), refusal
    starts, ends = (len(server.named(f"pi/compaction_{event}")) for event in ("start", "end"))
    assert (starts, ends) == (13, 13)
    await server.shutdown()
    assert await server.code() == 0
    await server.end()  # every byte until the end belonged to a message
    assert KEY not in json.dumps(server.messages)
    assert KEY.encode() not in await server.stderr
    called = {tuple(json.loads(line)) for line in connections.read_text().splitlines()}
    assert called == {("127.0.0.1", urlsplit(provider.url).port), ("127.0.0.1", 1)}


async def test_looking_and_compacting_offline_calls_nobody(serve: Serve, home: Home, tmp_path: Path):
    connections = tmp_path / "connections"
    home.env |= {"PYTHONPATH": f"{Path(__file__).parent / 'watched'}:{ROOT}", "CONNECTIONS": str(connections)}
    home.add_long()
    server = await serve(
        tokenEstimator="tiktoken", settings={"compaction": {"models": ["offline/extractive"]}}
    )
    for command in ("pi.contextUsage", "pi.getTree", "pi.listSessions", "pi.listModels", "pi.compact"):
        await server.result(command)
    await server.shutdown()
    assert await server.code() == 0
    assert not connections.exists()


async def test_the_server_answers_while_it_compacts_a_session_of_megabytes(serve: Serve, home: Home):
    lines = [sessions.header(cwd=str(home.folder)), sessions.user("u1", None, "start")]
    for number in range(40):
        asked = sessions.call(f"c{number}", "bash", command="cat f")
        lines.append(sessions.assistant(f"a{number}", lines[-1]["id"], "", asked))
        lines.append(
            sessions.result(f"r{number}", f"a{number}", f"c{number}", sessions.filler(300_000)),
        )
    home.add([*lines, sessions.assistant("z", "r39", "done", total=199_000)])
    home.use()
    async with Provider() as provider:
        provider.hold()
        home.configure({"compaction": {"remoteEndpoint": provider.summary}})
        server = await serve()
        await server.result("pi.sessionState")
        running = server.begin_command("pi.compact")
        asked_for = provider.until(lambda p: len(p.requests) == 1, seconds=60)
        assert await longest_wait(server, asked_for, "pi.contextUsage", {}) < LONGEST_WAIT_S
        assert len((await server.result("pi.getTree", {"limit": 10}))["nodes"]) == 10
        began = time.monotonic()
        server.notify("$/cancelRequest", {"id": running})
        cancelled = (await server.answer(running))["error"]
        assert (cancelled["code"], cancelled["message"]) == (-32800, "Compaction cancelled")
        assert time.monotonic() - began < LONGEST_WAIT_S
        await provider.until(lambda p: len(p.closed) == 1)
        provider.release()
        assert (await server.result("pi.compact", timeout=60))["summary"].endswith("ok")


async def test_nothing_is_said_before_the_client_is_ready_and_nothing_is_lost(start: Start, home: Home):
    """The session is above the threshold, so there is much to say."""
    home.use()
    lines = sessions.two_long_turns(199_000, cwd=str(home.folder))
    file = home.add(
        [*lines, sessions.user("u3", "gone", "x"), sessions.assistant("a3", "u3", "y", total=199_000)]
    )
    server = await start()
    early = server.begin_command("pi.contextUsage")
    refused = (await server.answer(early))["error"]
    assert (refused["code"], refused["data"]) == (-32002, {"kind": "ServerNotInitialized"})
    server.notify("initialized", {})  # out of order, so it does not count
    await server.initialize(home.params(), initialized=False)
    assert server.methods() == []
    state = await server.result("pi.openSession", {"path": str(file)})
    assert state["leafId"] == "a3"
    assert (await server.result("pi.contextUsage"))["tokens"] == 199_000
    assert server.methods() == []
    server.notify("initialized", {})
    usage = await server.notification("pi/context_usage")
    assert usage["tokens"] == 199_000
    told = [method for method in server.methods() if method.startswith("pi/")]
    assert told[:2] == ["pi/session_opened", "pi/session_problem"]
    assert [params["seq"] for params in server.named("pi/session_problem")] == [2]
    assert file.read_bytes() == sessions.encode(
        [*lines, sessions.user("u3", "gone", "x"), sessions.assistant("a3", "u3", "y", total=199_000)]
    )


PARENT = """
import subprocess, sys, time
message = sys.stdin.buffer.read()
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
server.stdin.write(message)
server.stdin.flush()
print(server.pid, flush=True)
while True:
    time.sleep(600)
"""
"""An editor that says what it is told to say, and no more."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("said", ["nothing", "initialize", "compact"])
async def test_a_killed_editor_takes_its_server_along(home: Home, said: str):
    file = home.add_long()
    before = file.read_bytes()
    home.use()
    async with Provider() as provider:
        provider.hold()
        home.configure({"compaction": {"remoteEndpoint": provider.summary}})
        editor = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PARENT, *SERVER,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=home.env, cwd=home.folder,
        )  # fmt: skip
        assert editor.stdin is not None
        assert editor.stdout is not None
        initialize: Json = {"processId": editor.pid, "capabilities": {}, **home.params()}
        script: list[Json] = [
            {"id": 1, "method": "initialize", "params": initialize},
            {"method": "initialized", "params": {}},
            {"id": 2, "method": "workspace/executeCommand", "params": {"command": "pi.compact"}},
        ]
        for message in script[: {"nothing": 0, "initialize": 1, "compact": 3}[said]]:
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            editor.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        editor.stdin.close()
        server = int(await editor.stdout.readline())
        if said == "compact":
            await provider.until(lambda p: len(p.requests) == 1, seconds=60)
        used = before_it = cpu_seconds(server)
        os.kill(editor.pid, signal.SIGKILL)
        await editor.wait()
        async with asyncio.timeout(5):
            while is_running(server):
                with contextlib.suppress(OSError):
                    used = cpu_seconds(server)
                await asyncio.sleep(0.02)
        assert used - before_it < 1
        assert len(provider.closed) == len(provider.requests) == (said == "compact")
    assert file.read_bytes() == before


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_shutdown_stops_a_compaction_before_it_is_answered(
    serve: Serve, home: Home, provider: ProviderProcess
):
    provider.queue(Reply(hang=True))
    file = home.add_long()
    before = file.read_bytes()
    home.configure({"compaction": {"remoteEndpoint": provider.summary}})
    server = await serve()
    running = server.begin_command("pi.compact")
    await provider.until(requests=1)
    began = time.monotonic()
    assert (await server.request("shutdown"))["result"] is None
    late = await server.error("pi.sessionState")
    assert (late["code"], late["message"]) == (-32600, "The server is shutting down")
    server.notify("exit")
    assert await server.code() == 0
    assert time.monotonic() - began < 5
    assert (await server.answer(running))["error"]["code"] == -32800
    [end] = server.named("pi/compaction_end")
    assert end["aborted"] is True
    await provider.until(closed=1)
    assert file.read_bytes() == before
    assert [params["isCompacting"] for params in server.named("pi/session_closed")] == [False]


@pytest.mark.parametrize("hook", ["session_before_tree", "session_tree"])
async def test_a_hook_that_blocks_holds_up_nobody_and_not_the_end(start: Start, home: Home, hook: str):
    home.add_long()
    home.use()
    (home.agent_dir / "extensions").mkdir()
    (home.agent_dir / "extensions" / "e.py").write_text(
        f"import time\nfrom pi_ls import hookimpl\n@hookimpl\nasync def {hook}(): time.sleep(60)\n"
    )
    server = await start()
    await server.initialize(home.params())
    await server.result("pi.sessionState")
    navigation = server.begin_command("pi.navigateTree", {"targetId": "a1"})
    await server.result("pi.contextUsage", timeout=5)
    await server.result("pi.abort", timeout=5)
    await server.answer(navigation, 5)
    server.close()
    assert await server.code() == 1
