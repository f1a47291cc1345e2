"""Sessions in the process: real files, and a provider on loopback behind the real library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pi_ls.core.events import Event
from pi_ls.core.jsonvalues import Json
from pi_ls.session import AgentSession, Environment
from tests.models import KEY
from tests.provider import Provider


class Place:
    """A folder with an agent directory whose summaries are made by one provider, and what sessions told."""

    def __init__(self, root: Path, provider: Provider) -> None:
        self.provider = provider
        self.folder = root / "app"
        self.agent_dir = root / "agent"
        self.folder.mkdir()
        self.agent_dir.mkdir()
        self.events: list[Event] = []
        sizes = {"contextWindow": 200_000, "maxTokens": 8_192}
        models = [{"id": "m200"} | sizes, {"id": "thinker", "reasoning": True} | sizes]
        entry = {"baseUrl": provider.openai, "apiKey": KEY, "api": "openai-completions", "models": models}
        (self.agent_dir / "models.json").write_text(json.dumps({"providers": {"fake": entry}}))

    def environment(self, **compaction: Any) -> Environment:
        settings: Json = {"compaction": compaction, "retry": {"enabled": False}}
        (self.agent_dir / "settings.json").write_text(json.dumps(settings))
        return Environment(self.folder, agent_dir=self.agent_dir, token_estimator="chars", environ={})

    async def open(self, path: Path, **compaction: Any) -> AgentSession:
        return await AgentSession.open(path, self.environment(**compaction), self.events.append)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with Provider() as provider:
        yield Place(tmp_path, provider)
