"""A server in this process, over fake sessions, at the other end of a socket pair."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from pi_ls.server.app import create_server
from tests.e2e.raw import RawClient
from tests.server.fake_session import FakeBackend


class Place:
    """A workspace folder `app` and an agent directory with its sessions; the last one made is the newest."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.agent_dir = root / "agent"
        self.folder = self.add_folder("app")
        self._age = 0

    def add_folder(self, name: str) -> str:
        (self.root / name).mkdir()
        (self.agent_dir / "sessions" / name).mkdir(parents=True)
        return (self.root / name).as_uri()

    def add_session(self, name: str, folder: str = "app") -> Path:
        file = self.agent_dir / "sessions" / folder / f"{name}.jsonl"
        file.touch()
        self._age += 1
        os.utime(file, (self._age, self._age))
        return file

    def write_settings(self, text: str) -> None:
        (self.agent_dir / "settings.json").write_text(text)

    def journal(self) -> list[str]:
        file = self.agent_dir / "journal"
        return file.read_text().splitlines() if file.exists() else []

    def params(self, *folders: str, **options: Any) -> dict[str, Any]:
        """Params of `initialize`, with these initialization options."""
        return {
            "workspaceFolders": [{"uri": uri, "name": "f"} for uri in folders or (self.folder,)],
            "initializationOptions": {"agentDir": str(self.agent_dir), **options},
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
async def idle_client() -> AsyncIterator[RawClient]:
    """A client that does not read yet."""
    ours, theirs = socket.socketpair()
    stream = cast("Any", theirs.makefile("rwb", buffering=0))
    server = create_server(FakeBackend)

    async def serve() -> None:
        await server.run(stream, stream)
        theirs.shutdown(socket.SHUT_RDWR)  # what the end of a process does

    serving = asyncio.create_task(serve())
    client = RawClient(*await asyncio.open_connection(sock=ours))
    yield client
    await client.stop_reading()
    client.close()
    async with asyncio.timeout(10):
        await serving
    stream.close()
    theirs.close()


@pytest.fixture
async def client(idle_client: RawClient) -> RawClient:
    """A client that reads everything."""
    idle_client.start_reading()
    return idle_client


@pytest.fixture
async def ready(client: RawClient, place: Place) -> RawClient:
    """A client that has opened the session `one`."""
    place.add_session("one")
    await client.initialize(place.params())
    assert (await client.result("pi.sessionState"))["sessionId"] == "one"
    return client
