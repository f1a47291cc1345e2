"""Sessions go back and forth between this program and the published one: same leaf, same context."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import sessions
from tests.e2e.colleague import Model, call, calls, overflows, says, texts
from tests.e2e.conftest import Home, RawServer, Start, starting
from tests.e2e.raw import Json
from tests.interop.conftest import Published
from tests.provider import Provider

TIMEOUT_S = 120
SETTINGS: Json = {
    "approval": {"bash": "allow", "write": "allow", "edit": "allow"},
    "compaction": {"keepRecentTokens": 2_000, "autoContinue": False, "pruning": {"protectTokens": 8_000}},
}


@pytest.fixture
async def model(published: Published, home: Home) -> AsyncIterator[Model]:
    """The model; `published` first, so that nothing is started where it cannot be had."""
    async with Provider() as provider:
        home.use(provider)
        yield Model(provider)


@pytest.fixture
async def server(home: Home, start: Start, model: Model) -> RawServer:
    server = await start()
    await server.initialize(home.params(trusted=True, model="fake/m200", settings=SETTINGS))
    return server


async def say(server: RawServer, text: str) -> None:
    before = len(server.named("pi/agent_settled"))
    await server.result("pi.prompt", {"text": text})
    await server.until(lambda: len(server.named("pi/agent_settled")) > before, TIMEOUT_S)


def told(message: Json) -> tuple[str, str]:
    content: Any = message.get("summary", message.get("content"))
    if isinstance(content, str):
        return message["role"], content
    parts = (
        block.get("text") or block.get("thinking") or json.dumps(block["arguments"], separators=(",", ":"))
        for block in content
    )
    return message["role"], "".join(parts)


async def seen_here(server: RawServer) -> Json:
    state = await server.result("pi.sessionState")
    page = await server.result("pi.getMessages", {"limit": 1_000})
    return {
        "leaf": state["leafId"],
        "name": state["name"],
        "thinkingLevel": state["thinkingLevel"],
        "messages": [list(told(message)) for message in page["messages"]],
    }


async def test_a_long_run_of_the_agent_reads_the_same_there(
    home: Home, server: RawServer, model: Model, published: Published
):
    model.default_summary.text = "## Goal\nGet through."
    for number in range(1, 61):
        total = 190_000 if number % 15 == 0 else 10_000 + number
        command = f"head -c 12000 /dev/zero | tr '\\0' {'abcdefghij'[number % 10]}"
        wanted = call("bash", f"call_{number}", command=command)
        model.answers.append(calls(wanted, total=total, text=f"{number} ü😀"))
    model.answers.append(says("half way", reasoning="thought"))
    await say(server, "a long way")
    model.answers = [overflows(), says("recovered")]
    await say(server, "once more")
    await server.result("pi.setSessionName", {"name": "a long one"})
    tree: Json = await server.result("pi.getTree", {"filter": "user-only"})
    await server.result("pi.setLabel", {"entryId": tree["nodes"][0]["id"], "label": "start"})
    await server.result("pi.navigateTree", {"targetId": tree["nodes"][1]["id"], "summarize": True})
    await say(server, "on another branch")

    [file] = home.sessions().glob("*.jsonl")
    assert sum(line["type"] == "compaction" for line in sessions.read(file)) >= 3
    here, there = await seen_here(server), published.read(file)
    assert {key: there[key] for key in here} == here
    page: Json = await server.result("pi.getEntries", {"limit": 10_000})
    assert there["entries"] == len(page["entries"])


async def test_what_was_written_there_goes_on_here(
    home: Home, server: RawServer, model: Model, published: Published
):
    await say(server, "begun here")
    await server.shutdown()
    assert await server.code(20) == 0
    [file] = home.sessions().glob("*.jsonl")
    there = published.write(file)
    assert there["name"] == "named there"

    await goes_on(home, model, file, there)


async def goes_on(home: Home, model: Model, file: Path, there: Json) -> None:
    async with starting(home) as start:
        server = await start()
        await server.initialize(home.params(trusted=True, settings=SETTINGS))
        here = await seen_here(server)
        assert here == {key: there[key] for key in here}
        await say(server, "and now here")
    sent = texts(model.chats[-1])
    assert "SUMMARY OF THERE" in sent[0]
    assert sent[1:] == ["kept there", "kept answer", "and now here"]
    written = sessions.read(file)
    assert written[-2]["parentId"] == there["leaf"]


async def test_what_goes_on_here_goes_on_there_again(
    home: Home, server: RawServer, model: Model, published: Published
):
    await say(server, "begun here")
    [file] = home.sessions().glob("*.jsonl")
    published.write(file)  # while it is open here
    await say(server, "said here")
    here, there = await seen_here(server), published.read(file)
    assert here == {key: there[key] for key in here}
    assert "SUMMARY OF THERE" in str(there["messages"])
    assert there["messages"][-1] == ["assistant", "ok"]
