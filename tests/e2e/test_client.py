"""The small client against the real server: answers, errors, notifications, and a server that dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pi_ls import __version__
from pi_ls.client import Client, ResponseError, ServerGone
from pi_ls.core.jsonvalues import Json

Heard = list[tuple[str, Json]]


@pytest.fixture
def heard() -> Heard:
    """Every notification of the server, in order."""
    return []


@pytest.fixture
async def client(tmp_path: Path, heard: Heard) -> AsyncGenerator[Client]:
    """A client with a server in an empty folder, with an agent directory of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    environ = {**os.environ, "PI_CODING_AGENT_DIR": str(tmp_path / "agent")}
    async with Client(
        [sys.executable, "-m", "pi_ls"],
        folder=folder,
        environ=environ,
        on_notification=lambda method, params: heard.append((method, params)),
    ) as client:
        yield client


async def test_a_conversation_from_hello_to_goodbye(client: Client, tmp_path: Path) -> None:
    answer = await client.initialize(tmp_path / "project", {})
    assert answer["serverInfo"] == {"name": "pi-ls", "version": __version__}
    assert await client.command("pi.listSessions") == {"sessions": []}
    assert await client.shutdown() == 0


async def test_a_refusal_is_an_exception_with_its_kind(client: Client, tmp_path: Path) -> None:
    await client.initialize(tmp_path / "project", {})
    with pytest.raises(ResponseError) as refused:
        await client.command("pi.compact")
    assert refused.value.data["kind"] == "NoSession"
    assert refused.value.message


async def test_notifications_are_heard_before_the_answer_they_belong_to(
    client: Client, heard: Heard, tmp_path: Path
) -> None:
    await client.initialize(tmp_path / "project", {"autoOpen": "none"})
    state: Json = await client.command("pi.newSession", name="talk")
    opened = [params for method, params in heard if method == "pi/session_opened"]
    assert [one["sessionId"] for one in opened] == [state["sessionId"]]


async def test_a_server_that_dies_ends_every_wait(client: Client, tmp_path: Path) -> None:
    await client.initialize(tmp_path / "project", {})
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(ServerGone):
        await client.command("pi.compact")
    with pytest.raises(ServerGone):
        await client.command("pi.sessionState")
