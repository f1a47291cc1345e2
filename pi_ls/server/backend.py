"""How the server gets at the layers below it.

They take time to import (files, settings, models, prompts), and the answer to `initialize` waits for nothing;
so they are loaded on a thread once the client is answered. Until then the server knows only their types.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from pi_ls.core.jsonvalues import Json

if TYPE_CHECKING:
    from pi_ls.session import AgentSession, Emit, Environment


class EnvironmentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the client said about all its folders."""

    agent_dir: Path | None = None
    session_dir: str | None = None
    trusted: bool = False
    initialization: Json = {}
    editor: Json = {}
    default_model: str | None = None
    token_estimator: Literal["tiktoken", "chars"] | None = None


class Backend:
    """Makes environments and sessions, once `load_backend` has loaded what they take."""

    def __init__(self) -> None:
        self._run: Json = {}  # what was switched for this run holds in every folder

    def environment(self, folder: Path, options: EnvironmentOptions) -> Environment:
        """The surroundings of a workspace folder."""
        from pi_ls import session

        return session.Environment(folder, run=self._run, **msgspec.structs.asdict(options))

    async def open(self, path: Path, environment: Environment, emit: Emit) -> AgentSession:
        """Open a session file. Raises SessionNotFound or SessionUnreadable."""
        from pi_ls import session

        return await session.AgentSession.open(path, environment, emit)

    async def create(
        self, environment: Environment, emit: Emit, *, parent_session: str | None, name: str | None
    ) -> AgentSession:
        """A new session."""
        from pi_ls import session

        return await session.AgentSession.create(environment, emit, parent_session=parent_session, name=name)

    def list_sessions(self, environment: Environment, *, everywhere: bool = False) -> list[Json]:
        """The rows of `pi.listSessions`, newest first: the folder's, or everybody's; for a thread."""
        from pi_ls import store

        if everywhere:
            rows = store.list_sessions(environment.session_directories())
        else:
            rows = store.list_sessions(environment.sessions_directory(), str(environment.folder))
        return [msgspec.to_builtins(row) for row in rows]


def load_backend() -> Backend:
    """Import the layers below; takes its time."""
    importlib.import_module("pi_ls.session")
    return Backend()
