"""One server for many tests: a process that has loaded its provider library once, and places at it.

Each test has a workspace folder of its own in that server, with a session, settings and what was told of
them; models and provider are everybody's.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import sessions
from tests.e2e.raw import Json
from tests.provider import Provider

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, RawServer

ANSWER_TIMEOUT_S = 60
"""Long enough for a provider library that is loaded on a busy machine."""

MODELS: Json = {
    "m1000": {"contextWindow": 1_000_000, "maxTokens": 8_192},
    "m8": {"contextWindow": 8_192, "maxTokens": 2_048},
    "m16": {"contextWindow": 16_384, "maxTokens": 2_048},
    "big": {"contextWindow": 1_000_000, "maxTokens": 64_000},
    "nomax": {"contextWindow": 200_000, "maxTokens": 0},
    "wide": {"contextWindow": 200_000, "maxTokens": 100_000},
    "thinker": {"contextWindow": 200_000, "maxTokens": 8_192, "reasoning": True},
    "priced": {
        "contextWindow": 200_000,
        "maxTokens": 8_192,
        "cost": {"input": 1_000, "output": 1_000, "cacheRead": 0, "cacheWrite": 0},
    },
    "window-absent": {},
    "window-null": {"contextWindow": None},
    "window-0": {"contextWindow": 0},
    "window-negative": {"contextWindow": -1},
    "window-text": {"contextWindow": "200000"},
}
"""The models of `fake` beside `m200`: what an office's sessions can be held with."""

NAMESAKES: Json = {
    "fakeA": {"models": [{"id": "foo-6", "contextWindow": 200_000}]},
    "fakeB": {
        "models": [
            {"id": "foo-6", "contextWindow": 1_000_000},
            {"id": "foo-6[1m]", "contextWindow": 1_000_000},
        ]
    },
}
"""Two providers with a model of the same name; nobody asks them anything."""


def text_of(message: Json) -> str:
    """The text of a message, or its summary."""
    content = message.get("content", message.get("summary", ""))
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


class Office:
    """A running server whose models are all had from one provider, and no workspace folder yet."""

    def __init__(self, root: Path, home: Home, server: RawServer, provider: Provider) -> None:
        self.home = home
        self.server = server
        self.provider = provider
        self._root = root
        self._numbers = itertools.count(1)

    def new_folder(self) -> Path:
        """An empty folder nobody has used."""
        folder = self._root / f"desk-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def change_folders(self, *, added: Path | None = None, removed: Path | None = None) -> None:
        """Tell the server that the workspace has another folder, or one less."""
        event = {
            name: [{"uri": folder.as_uri(), "name": folder.name}] if folder is not None else []
            for name, folder in (("added", added), ("removed", removed))
        }
        self.server.notify("workspace/didChangeWorkspaceFolders", {"event": event})


class Desk:
    """A test's own place in the office: a folder with a session and settings, and what was told about it."""

    def __init__(self, office: Office) -> None:
        self.server = office.server
        self.provider = office.provider
        self.office = office
        office.server.messages.clear()  # what was told at other desks
        self.folder = office.new_folder()
        self.file = office.home.sessions(self.folder) / "s.jsonl"
        office.change_folders(added=self.folder)

    # -- doing

    async def open(self, lines: list[Json], settings: Json | None = None) -> Json:
        """Open a session of these lines, its folder and id made this desk's; returns its state.

        `settings` are the folder's own.
        """
        self.configure(settings or {})
        header, *entries = lines
        own = {"cwd": str(self.folder), "id": self.folder.name}
        sessions.write(self.file, [header | own, *entries])
        return await self.run("pi.openSession", path=str(self.file))

    def configure(self, settings: Json) -> None:
        """Write the folder's settings.json."""
        file = self.folder / ".pi" / "settings.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(settings))

    def begin(self, command: str, /, *, token: str | None = None, **arguments: Any) -> int:
        """Send a command about this desk's session, with progress on `token`; returns the request's id."""
        more = {} if token is None else {"workDoneToken": token}
        return self.server.begin_command(command, {"workspace": self.folder.as_uri(), **arguments}, **more)

    async def run(self, command: str, /, **arguments: Any) -> Any:
        """The result of a command that must succeed."""
        answer = await self.answer(self.begin(command, **arguments))
        assert "result" in answer, answer
        return answer["result"]

    async def refusal(self, command: str, /, **arguments: Any) -> Json:
        """The error of a command that must fail."""
        answer = await self.answer(self.begin(command, **arguments))
        assert "error" in answer, answer
        return answer["error"]

    async def answer(self, request_id: int) -> Json:
        """The whole answer to a request."""
        return await self.server.answer(request_id, ANSWER_TIMEOUT_S)

    async def until_asked(self, times: int = 1) -> None:
        """Wait for the provider's so manieth request."""
        await self.provider.until(lambda provider: len(provider.requests) >= times, ANSWER_TIMEOUT_S)

    async def until_left(self) -> None:
        """Wait until a connection to the provider was closed before its answer was complete."""
        await self.provider.until(lambda provider: bool(provider.closed), ANSWER_TIMEOUT_S)

    async def until_told(self, name: str, **fields: Any) -> Json:
        """Wait for an event of that name with these fields, past or to come; returns it."""

        def wanted(message: Json) -> bool:
            return self._is_ours(message, name) and fields.items() <= message["params"].items()

        return (await self.server.wait_for(wanted, ANSWER_TIMEOUT_S))["params"]

    def leave(self) -> None:
        """The folder is no part of the workspace any more."""
        self.office.change_folders(removed=self.folder)

    # -- looking

    def _is_ours(self, message: Json, name: str | None = None) -> bool:
        method = message.get("method", "")
        ours = method.startswith("pi/") and message["params"].get("workspace") == self.folder.as_uri()
        return ours and (name is None or method == f"pi/{name}")

    def events(self, *names: str) -> list[str]:
        """The names of the events so far, in order; only those of these names, where any are given."""
        told = [m["method"].removeprefix("pi/") for m in self.server.messages if self._is_ours(m)]
        return [name for name in told if not names or name in names]

    def named(self, name: str) -> list[Json]:
        """What was told in the events of that name so far."""
        return [m["params"] for m in self.server.messages if self._is_ours(m, name)]

    def written(self) -> list[Json]:
        """The lines of the session file, each of which must parse."""
        return sessions.read(self.file)

    async def context(self) -> list[tuple[str, str]]:
        """Role and text of each message that the next request would hold."""
        page = await self.run("pi.getMessages", limit=1_000)
        return [(message["role"], text_of(message)) for message in page["messages"]]

    async def usage(self) -> Json:
        """The context usage."""
        return await self.run("pi.contextUsage")
