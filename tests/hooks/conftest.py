"""A session in this process with extensions, real files and no model."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pi_ls.core.events import Event, name_of, params_of
from pi_ls.session import AgentSession, Environment
from tests import sessions

Json = dict[str, Any]
OFFLINE: Json = {"compaction": {"models": ["offline/extractive"]}}


class Bench:
    """A workspace folder, an agent directory, and a session to try extensions on."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "app"
        self.agent_dir = root / "agent"
        self.folder.mkdir()
        self.agent_dir.mkdir()
        self.record = root / "record"
        self.told: list[Event] = []
        self.session: AgentSession | None = None
        self.file = self.agent_dir / "s.jsonl"

    def extension(self, source: str, name: str = "ext.py", *, project: bool = False) -> Path:
        """Write an extension file; `note(x)` in it adds a line to the record."""
        place = self.folder / ".pi" if project else self.agent_dir
        file = place / "extensions" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            "import asyncio, time, json\nfrom pi_ls import hookimpl\n"
            f"def note(*x):\n    with open({str(self.record)!r}, 'a') as f: f.write(json.dumps(x) + '\\n')\n"
            + textwrap.dedent(source)
        )
        return file

    async def open(
        self,
        lines: list[Json] | None = None,
        *,
        settings: Json | None = None,
        patience: float = 30,
        **options: Any,
    ) -> AgentSession:
        """Open a session of two long turns, or of these lines."""
        sessions.write(self.file, lines or sessions.two_long_turns(120_000, cwd=str(self.folder)))
        environment = Environment(
            self.folder,
            agent_dir=self.agent_dir,
            token_estimator="chars",
            initialization=settings or OFFLINE,
            environ={},
            **options,
        )
        environment.hooks.patience = patience
        self.session = await AgentSession.open(self.file, environment, self.told.append)
        await environment.hooks.ready()
        return self.session

    def named(self, name: str) -> list[Json]:
        """What was told under that name."""
        return [params_of(event) for event in self.told if name_of(event) == name]

    def failures(self) -> list[Json]:
        """What was told of extensions that failed.

        Left out are samples of the event (with "text" everywhere) and that loading takes its time.
        """
        told = self.named("extension_error")
        return [one for one in told if one["extension"] not in ("text", "extensions")]

    def notes(self) -> list[Any]:
        """What extensions have noted."""
        return (
            [json.loads(line) for line in self.record.read_text().splitlines()]
            if self.record.exists()
            else []
        )

    async def until(self, condition: Callable[[], Any], seconds: float = 5) -> Any:
        """Wait until something holds."""
        async with asyncio.timeout(seconds):
            while not (found := condition()):
                await asyncio.sleep(0.005)
            return found

    def written(self) -> list[Json]:
        """The lines of the file, each of which must parse."""
        return sessions.read(self.file)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    if bench.session is not None:
        await bench.session.close()
        await bench.session.environment.hooks.close()
