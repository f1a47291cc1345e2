"""Two servers and other programs on one session file: nobody's line is lost, and all are seen soon."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from pi_ls.store.places import make_lock
from tests import sessions
from tests.e2e import writers
from tests.e2e.conftest import OFFLINE, Home, RawServer, Start
from tests.provider import Provider

SECONDS = float(os.environ.get("PI_LS_WRITERS_SECONDS", "10"))


@pytest.mark.parametrize("seed", [1])
async def test_nothing_is_lost_while_two_servers_and_a_plain_writer_write(home: Home, seed: int):
    outcome = await writers.run(home, SECONDS, seed)
    outcome.check()
    done = outcome.servers[0].done + outcome.servers[1].done
    for command in ("pi.compact", "pi.pruneToolOutputs", "pi.navigateTree"):
        assert done[command] > 0


async def opened(start: Start, home: Home, **options: object) -> RawServer:
    server = await start()
    await server.initialize(home.params(autoOpen="none", **options))
    return server


def append(file: Path, *lines: sessions.Json) -> None:
    """What a plain program does."""
    with file.open("ab") as stream:
        stream.write(sessions.encode(lines))


async def test_what_a_terminal_appends_is_seen_within_a_second(start: Start, home: Home):
    models = {
        "fake": {
            "baseUrl": "http://127.0.0.1:9",
            "api": "openai-completions",
            "models": [{"id": "m200", "contextWindow": 200_000}],
        }
    }
    (home.agent_dir / "models.json").write_text(json.dumps({"providers": models}))
    file = home.add(
        [
            sessions.header(str(home.folder)),
            sessions.user("u1", None, "a"),
            sessions.assistant("a1", "u1", "b", total=50),
        ]
    )
    server = await opened(start, home)
    await server.result("pi.openSession", {"path": str(file)})
    assert (await server.result("pi.contextUsage"))["tokens"] == 50
    for number in range(2, 5):
        append(
            file,
            sessions.user(f"u{number}", f"a{number - 1}", "more"),
            sessions.assistant(f"a{number}", f"u{number}", "yes", total=100 * number),
        )
        async with asyncio.timeout(1):
            push = await server.wait_for(
                lambda m, number=number: (
                    m.get("method") == "pi/entry_appended" and m["params"]["entry"]["id"] == f"a{number}"
                )
            )
            assert (push["params"]["foreign"], push["params"]["leafId"]) == (True, f"a{number}")
            await server.wait_for(
                lambda m, number=number: (
                    m.get("method") == "pi/context_usage" and m["params"].get("tokens") == 100 * number
                )
            )
        assert (await server.result("pi.sessionState"))["leafId"] == f"a{number}"
    assert len(server.named("pi/session_problem")) == 1, "that somebody else writes is told once"
    assert server.named("pi/session_problem")[0]["kind"] == "foreignWriter"


async def test_an_entry_elsewhere_joins_the_tree_and_leaves_the_leaf(start: Start, home: Home):
    file = home.add(sessions.fork_with_two_branches(cwd=str(home.folder)))
    server = await opened(start, home)
    await server.result("pi.openSession", {"path": str(file)})
    append(file, sessions.user("x1", "Ff", "elsewhere"))
    async with asyncio.timeout(1):
        await server.notification("pi/entry_appended")
    assert (await server.result("pi.sessionState"))["leafId"] == "Dd"
    nodes = (await server.result("pi.getTree"))["nodes"]
    assert {"x1": "Ff"}.items() <= {node["id"]: node["parentId"] for node in nodes}.items()


async def test_what_hangs_on_a_remembered_move_is_followed(start: Start, home: Home):
    file = home.add(sessions.fork_with_two_branches(cwd=str(home.folder)))
    server = await opened(start, home)
    await server.result("pi.openSession", {"path": str(file)})
    await server.result("pi.navigateTree", {"targetId": "Ff"})
    async with asyncio.timeout(5):
        while (marker := sessions.read(file)[-1]).get("customType") != "pi_ls.leaf":
            await asyncio.sleep(0.05)
    append(file, sessions.user("x1", marker["id"], "pi goes on from what stands last"))
    async with asyncio.timeout(1):
        await server.notification("pi/entry_appended")
    assert (await server.result("pi.sessionState"))["leafId"] == "x1"


async def test_a_file_that_was_written_anew_is_read_anew(start: Start, home: Home):
    lines = sessions.two_long_turns(120_000, cwd=str(home.folder))
    file = home.add(lines)
    server = await opened(start, home)
    await server.result("pi.openSession", {"path": str(file)})
    sessions.write(file.with_suffix(".new"), [*lines[:3], sessions.user("n1", "a1", "new")])
    file.with_suffix(".new").rename(file)
    async with asyncio.timeout(1):
        reloaded = await server.notification("pi/session_reloaded")
    assert reloaded["reason"] == "rewritten"
    assert (await server.result("pi.sessionState"))["leafId"] == "n1"
    file.write_bytes(sessions.encode(lines[:3]))  # in place, as a careless program does
    async with asyncio.timeout(2):
        while (await server.result("pi.sessionState"))["leafId"] != "a1":
            await asyncio.sleep(0.05)


async def test_a_file_that_is_locked_is_an_error_and_no_hang(start: Start, home: Home):
    file = home.add_long()
    server = await opened(start, home, settings=OFFLINE)
    await server.result("pi.openSession", {"path": str(file)})
    before = file.read_bytes()
    lock = make_lock(file)
    lock.acquire()
    try:
        began = time.monotonic()
        error = await server.error("pi.setLabel", {"entryId": "u1", "label": "x"})
        assert error["data"]["kind"] == "SessionLocked"
        assert 4 < time.monotonic() - began < 9
    finally:
        lock.release()
    assert file.read_bytes() == before
    await server.result("pi.setLabel", {"entryId": "u1", "label": "x"})


async def test_a_session_of_a_newer_program_is_followed_and_never_written(start: Start, home: Home):
    file = home.add([sessions.header(str(home.folder), version=9), sessions.user("u1", None, "a")])
    server = await opened(start, home)
    assert (await server.result("pi.openSession", {"path": str(file)}))["readOnly"] is True
    append(file, sessions.user("u2", "u1", "b"))
    async with asyncio.timeout(1):
        await server.notification("pi/entry_appended")
    before = file.read_bytes()
    assert (await server.error("pi.setLabel", {"entryId": "u1", "label": "x"}))["data"][
        "kind"
    ] == "SessionReadOnly"
    assert file.read_bytes() == before


async def test_a_server_that_follows_is_idle(start: Start, home: Home):
    file = home.add_long()
    server = await opened(start, home)
    await server.result("pi.openSession", {"path": str(file)})
    await server.result("pi.contextUsage")
    await asyncio.sleep(3)  # what opening brings along has settled

    def cpu() -> float:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = cpu()
    await asyncio.sleep(5)
    assert cpu() - before <= 0.05


async def settled(server: RawServer, times: int) -> None:
    async with asyncio.timeout(60):
        while len(server.named("pi/agent_settled")) < times:
            await asyncio.sleep(0.01)


async def test_fifty_rounds_of_two_servers_prompting_at_once(start: Start, home: Home):
    async with Provider() as provider:
        home.use(provider)
        file = home.add([sessions.header(str(home.folder)), sessions.user("u1", None, "a")])
        servers = await opened(start, home), await opened(start, home)
        for server in servers:
            await server.result("pi.openSession", {"path": str(file)})
        for number in range(50):
            for server in servers:
                server.begin_command("pi.prompt", {"text": f"{server.process.pid} {number}"})
            await asyncio.gather(*(settled(server, number + 1) for server in servers))
    lines = [line for line in sessions.read(file) if line["type"] == "message"][1:]
    assert len(lines) == 200
    assert len({line["id"] for line in lines}) == 200
    asked = {line["message"]["content"][0]["text"] for line in lines if line["message"]["role"] == "user"}
    assert asked == {f"{server.process.pid} {number}" for server in servers for number in range(50)}


async def test_what_is_made_is_for_its_owner_alone(start: Start, home: Home):
    old = os.umask(0)
    try:
        server = await start()
    finally:
        os.umask(old)
    async with Provider() as provider:
        home.use(provider)
        (home.agent_dir / "models.json").chmod(0o600)
        await server.initialize(
            home.params(autoOpen="none", trusted=True, settings={"approval": {"bash": "allow"}})
        )
        await server.result("pi.newSession")
        await server.answer(server.begin_command("pi.prompt", {"text": "go"}), 60)
        await settled(server, 1)
        await server.result(
            "pi.setLabel", {"entryId": (await server.result("pi.sessionState"))["leafId"], "label": "x"}
        )
        await server.result("pi.cloneSession")
        await server.result("pi.setAutoCompaction", {"enabled": False})
        await server.result("pi.setTrust", {"trusted": True})
    made = [path for path in home.agent_dir.rglob("*") if not path.is_symlink()]
    assert {path.suffix for path in made} >= {".jsonl", ".json", ".lock"}
    for path in made:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


async def test_a_file_that_turns_into_something_else_costs_nothing_but_its_own_session(
    start: Start, home: Home
):
    file = home.add_long()
    other = home.add_long("s-2")
    server = await opened(start, home)
    await server.result("pi.openSession", {"path": str(file)})
    await server.result("pi.openSession", {"path": str(other)})
    file.write_text("no session at all\n" * 10)
    append(other, sessions.user("x1", "a2", "still followed"))
    async with asyncio.timeout(3):
        await server.notification("pi/entry_appended")
    assert file.read_text().startswith("no session"), "it is left as it is"
    await server.result("pi.sessionState", {"sessionId": "s-1"})
    other.unlink()
    await asyncio.sleep(0.7)
    assert (await server.result("pi.sessionState"))["leafId"] == "x1"
