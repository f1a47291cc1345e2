"""A server process from its start to its end, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pi_ls.server.writer import MAX_WAITING_PUSHES
from tests import sessions
from tests.e2e.conftest import OFFLINE, SERVER, Disk, Home, RawServer, Serve, Start
from tests.e2e.raw import RawClient
from tests.provider import Provider, ProviderProcess, Reply


def modules_of(importtime: bytes) -> set[str]:
    """The modules named in what `-X importtime` wrote."""
    lines = importtime.decode(errors="replace").splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_shutdown_and_exit_end_with_zero(start: Start, home: Home):
    server = await start()
    assert (await server.initialize(home.params()))["serverInfo"]["name"] == "pi-ls"
    await server.shutdown()
    assert await server.code() == 0
    assert await server.stderr == b""


async def test_exit_as_the_first_message_ends_with_one(start: Start):
    server = await start()
    server.notify("exit")
    assert await server.code() == 1


async def test_exit_without_shutdown_ends_with_one(start: Start, home: Home):
    server = await start()
    await server.initialize(home.params())
    server.notify("exit")
    assert await server.code() == 1


@pytest.mark.parametrize("when", ["before initialize", "after it"])
async def test_a_closed_pipe_ends_it(start: Start, home: Home, when: str):
    server = await start()
    if when == "after it":
        await server.initialize(home.params())
    server.close()
    assert await server.code(timeout=20) == 1  # it may not even have started yet


async def test_initialize_loads_nothing_it_does_not_need(start: Start, home: Home):
    server = await start(sys.executable, "-X", "importtime", "-m", "pi_ls")
    await server.initialize(home.params(), initialized=False)
    server.notify("exit")
    await server.code()
    loaded = modules_of(await server.stderr)
    assert "pi_ls.server.app" in loaded
    heavy = {
        "litellm",
        "tiktoken",
        "jinja2",
        "openai",
        "pi_ls.session",
        "pi_ls.store",
        "pi_ls.llm",
        "aiohttp",
    }
    assert not heavy & loaded


async def test_looking_at_a_session_loads_no_provider_library(start: Start, home: Home):
    home.add_long()
    server = await start(sys.executable, "-X", "importtime", "-m", "pi_ls")
    await server.initialize(home.params())
    assert (await server.result("pi.sessionState"))["sessionId"] == "s-1"
    for command in ("pi.getTree", "pi.listSessions", "pi.contextUsage", "pi.listModels"):
        await server.result(command)
    await server.shutdown()
    assert await server.code() == 0
    assert not {"litellm", "openai", "aiohttp"} & modules_of(await server.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_an_idle_server_does_nothing(start: Start, home: Home):
    home.add_long()
    server = await start()
    await server.initialize(home.params(), processId=os.getpid())
    await server.result("pi.sessionState")
    await server.notification("pi/context_usage")
    before = cpu_seconds(server.process.pid)
    await asyncio.sleep(3)  # the one thing to be waited for here is time
    assert cpu_seconds(server.process.pid) - before < 0.05


@pytest.mark.skipif(sys.platform == "win32", reason="there the end of standard input has to do")
async def test_it_goes_when_the_editor_is_killed_though_its_pipes_stay_open(start: Start, home: Home):
    editor = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    file = home.add_long()
    server = await start()
    await server.initialize(home.params(), processId=editor.pid)
    await server.result("pi.navigateTree", {"targetId": "a1"})
    await server.result("pi.setLabel", {"entryId": "a1", "label": "here"})
    editor.send_signal(signal.SIGKILL)
    await editor.wait()
    assert await server.code() == 1
    assert sessions.types(sessions.read(file))[-1] == "label"


async def test_an_editor_that_is_dead_already_is_not_waited_for(start: Start, home: Home):
    editor = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await editor.wait()
    server = await start()
    server.begin("initialize", {"processId": editor.pid, "capabilities": {}, **home.params()})
    assert await server.code() == 1
    assert b"processId" in await server.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there the end of standard input has to do")
async def test_an_editor_with_a_number_that_no_process_has_is_not_waited_for(start: Start, home: Home):
    server = await start()
    server.begin("initialize", {"processId": 2**70, "capabilities": {}, **home.params()})
    assert await server.code() == 1
    assert b"processId" in await server.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_a_signal_closes_sessions_and_ends_it(start: Start, home: Home):
    file = home.add_long()
    server = await start()
    await server.initialize(home.params())
    await server.result("pi.navigateTree", {"targetId": "a1"})
    server.process.terminate()
    assert await server.code() == 128 + signal.SIGTERM
    assert sessions.read(file)[-1]["customType"] == "pi_ls.leaf", "where the leaf was is written down"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_one_that_was_started_to_survive_its_terminal_does(start: Start, home: Home):
    server = await start("nohup", *SERVER)
    await server.initialize(home.params())
    server.process.send_signal(signal.SIGHUP)
    assert (await server.result("pi.listSessions"))["sessions"] == []
    await server.shutdown()
    assert await server.code() == 0


async def test_it_goes_in_the_middle_of_a_compaction_and_closes_the_connection(
    start: Start, home: Home, provider: ProviderProcess
):
    provider.queue(Reply(hang=True), Reply(hang=True))
    file = home.add_long()
    before = file.read_bytes()
    server = await start()
    await server.initialize(home.params())
    server.begin_command("pi.compact")
    async with asyncio.timeout(60):  # the provider library is loaded first
        while not provider.requests:
            await asyncio.sleep(0.05)
    began = time.monotonic()
    server.close()
    assert await server.code() == 1
    assert time.monotonic() - began < 5
    assert provider.closed >= 1
    assert file.read_bytes() == before


async def test_exit_in_the_middle_of_a_compaction_tells_its_end_and_closes_the_session(
    serve: Serve, home: Home
):
    async with Provider() as provider:
        provider.hold()
        file = home.add_long()
        home.configure({"compaction": {"remoteEndpoint": provider.summary}})
        server = await serve()
        server.begin_command("pi.compact")
        await provider.until(lambda p: len(p.requests) == 1)
        before = file.read_bytes()
        server.notify("exit")
        await server.end()
        assert await server.code() == 1
        await provider.until(lambda p: len(p.closed) == 1)
    [end] = server.named("pi/compaction_end")
    assert end["aborted"] is True
    assert len(server.named("pi/session_closed")) == 1
    assert file.read_bytes() == before


async def test_a_thread_that_hangs_does_not_keep_it(serve: Serve, home: Home, disk: Disk):
    file = home.add_long()
    disk.hold(file)
    server = await serve(autoOpen="none")
    server.begin_command("pi.openSession", {"path": str(file)})
    await disk.until_asked(file)
    server.notify("exit")
    assert await server.code(6) == 1


async def reads_no_more(serve: Serve, home: Home) -> RawServer:
    """A server whose client has seen all there was to be seen, and stops reading."""
    home.use()
    server = await serve(settings=OFFLINE)
    await server.result("pi.sessionState")
    await server.notification("pi/context_usage")
    await server.stop_reading()
    return server


async def test_a_client_that_stopped_reading_does_not_keep_it(serve: Serve, home: Home):
    file = home.add_long()
    server = await reads_no_more(serve, home)
    server.begin_command("pi.navigateTree", {"targetId": "a1"})
    server.begin_command("pi.getEntries")
    await server.first_byte()  # of 400 KB: the pipe is full
    server.notify("exit")
    assert await server.code() == 1
    assert sessions.read(file)[-1]["customType"] == "pi_ls.leaf", "the session was closed"
    assert b"did not end in time" not in await server.stderr, "it left by itself"


async def test_a_client_that_stops_reading_holds_nobody_up_and_loses_nothing_that_counts(
    serve: Serve, home: Home
):
    file = home.add_long()
    server = await reads_no_more(serve, home)
    before = sessions.read(file)

    async def until_written(kind: str, text: str) -> None:
        async with asyncio.timeout(20):
            while not any(line["type"] == kind and text in str(line) for line in sessions.read(file)):
                await asyncio.sleep(0.02)

    big = [server.begin_command("pi.getEntries", {"limit": 4}) for _ in range(3)]
    await server.first_byte()  # of 400 KB: the pipe is full
    compaction = server.begin_command("pi.compact")
    await until_written("compaction", "u2")  # all of it is done though not a byte of it is read
    foreign = [sessions.custom_message(f"x{number}", "a2", "from elsewhere") for number in range(2_000)]
    with file.open("ab") as stream:
        stream.write(sessions.encode(foreign))
    names = [server.begin_command("pi.setSessionName", {"name": f"name {number}"}) for number in range(20)]
    last = server.begin_command("pi.setThinkingLevel", {"level": "high"})
    await until_written("session_info", "name 19")
    await until_written("thinking_level_change", "high")

    server.start_reading()
    for request in (*big, compaction, *names, last):
        answer = await server.answer(request)
        assert "result" in answer
        if request in big:
            assert answer["result"]["entries"] == before[1:]
    told = [method for method in server.methods() if method.startswith("pi/")]
    assert told.count("pi/compaction_start") == told.count("pi/compaction_end") == 1
    assert server.named("pi/session_info_changed")[-1]["name"] == "name 19"
    assert told.count("pi/session_info_changed") <= 3
    appended = server.named("pi/entry_appended")
    assert len(appended) <= MAX_WAITING_PUSHES + 100
    numbers = [push["seq"] for push in appended]
    assert numbers == sorted(numbers)
    assert numbers[-1] > len(told), "a gap tells that something was dropped"


async def test_stdout_is_the_protocols_alone(serve: Serve, home: Home):
    """Whatever an extension prints, and by whatever means, is on stderr."""
    home.add_long()
    file = home.agent_dir / "extensions" / "loud.py"
    file.parent.mkdir()
    file.write_text(
        "import os, subprocess, sys\n"
        "from pi_ls import hookimpl\n"
        "print('loading')\n"
        "@hookimpl\n"
        "def session_before_compact():\n"
        "    print('x')\n"
        "    sys.stdout.write('y\\n')\n"
        "    sys.stdout.flush()\n"
        "    os.write(1, b'z\\n')\n"
        "    subprocess.run([sys.executable, '-c', 'print(\"w\")'], check=True)\n"
    )
    server = await serve(settings=OFFLINE)
    await server.result("pi.compact")
    assert server.named("pi/extension_error") == []
    await server.shutdown()
    assert await server.code() == 0
    await server.end()  # every byte until the end belonged to a message
    assert {"loading", "x", "y", "z", "w"} <= set((await server.stderr).decode().split())


async def test_over_tcp_it_serves_one_client_on_the_loopback(start: Start, home: Home):
    process = await asyncio.create_subprocess_exec(
        *SERVER, "--tcp", "0", stderr=asyncio.subprocess.PIPE, env=home.env
    )
    try:
        assert process.stderr is not None
        words, _, port = (await process.stderr.readline()).decode().strip().rpartition(":")
        assert words == "Listening on 127.0.0.1"
        client = RawClient(*await asyncio.open_connection("127.0.0.1", int(port)))
        client.start_reading()
        await client.initialize(home.params())
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(port))
        await client.shutdown()
        assert await asyncio.wait_for(process.wait(), 5) == 0
        await client.end()
        client.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:0", "example.org:1", "port", "70000", "192.168.0.1:1"]
)
async def test_over_tcp_it_is_not_to_be_reached_from_elsewhere(home: Home, address: str):
    process = await asyncio.create_subprocess_exec(
        *SERVER, "--tcp", address, stderr=asyncio.subprocess.PIPE, env=home.env
    )
    _, stderr = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 2, stderr
    assert b"Traceback" not in stderr


async def test_a_compaction_over_the_raw_wire(start: Start, home: Home):
    home.add_long()
    server = await start()
    await server.initialize(home.params(settings=OFFLINE))
    result = await server.result("pi.compact")
    assert result["firstKeptEntryId"] == "u2"
    await server.shutdown()
    assert await server.code() == 0
    await server.end()
