"""What the server asks of the layers below it, and how it gets them.

The layers below take time to import (files, settings, models, prompts), and the answer to `initialize` waits for
nothing; so they are loaded on a thread once the client is answered, and the server knows them by these shapes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import msgspec

from pi_ls.core.events import Event
from pi_ls.core.jsonvalues import Json

Emit = Callable[[Event], None]


class Progress(Protocol):
    """Somebody who shows how far an operation is."""

    def report(self, message: str, percentage: int | None = None) -> None:
        """Say what is being done now; `percentage` is 0 to 100 where one is known."""
        ...


class SettingProblem(Protocol):
    """A setting, or a whole file of them, that cannot be used."""

    @property
    def file(self) -> str:
        """The file it stands in."""
        ...

    @property
    def key(self) -> str:
        """The setting, empty for a whole file."""
        ...

    @property
    def message(self) -> str:
        """A sentence for a person."""
        ...

    @property
    def line(self) -> int | None:
        """The line, from 1, where one is known."""
        ...


class Settings(Protocol):
    """The merged settings of a folder."""

    @property
    def problems(self) -> Sequence[SettingProblem]:
        """What could not be used of them."""
        ...

    def changed(self) -> bool:
        """Whether a file was changed since it was read; a few stat calls."""
        ...

    def effective(self) -> Json:
        """The merged settings as one JSON object."""
        ...


class EnvironmentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the client said about all its folders."""

    agent_dir: Path | None = None
    session_dir: str | None = None
    trusted: bool = False
    initialization: Json = {}
    editor: Json = {}
    default_model: str | None = None
    token_estimator: str | None = None


class Environment(Protocol):
    """What the sessions of one workspace folder share."""

    @property
    def settings(self) -> Settings:
        """The folder's settings as last read."""
        ...

    def reload_settings(self, editor: Json | None = None) -> None:
        """Read the settings files again; `editor` replaces the editor's configuration."""
        ...

    def list_models(self, query: str | None) -> list[Json]:
        """The rows of `pi.listModels`; for a thread."""
        ...


class SessionFile(Protocol):
    """The file of a session."""

    @property
    def path(self) -> Path:
        """Where it is, or will be."""
        ...


class Session(Protocol):
    """One open session and its verbs; each answers with the protocol's JSON or raises a PiError."""

    @property
    def id(self) -> str:
        """The id in the file's header."""
        ...

    @property
    def file(self) -> SessionFile:
        """Its file."""
        ...

    @property
    def operation(self) -> Literal["run", "compaction", "navigation"] | None:
        """What is running, if anything."""
        ...

    def state(self) -> Json: ...  # noqa: D102
    async def compact(
        self, custom_instructions: str | None = None, progress: Progress | None = None
    ) -> Json: ...
    async def abort_compaction(self) -> bool: ...  # noqa: D102
    async def abort_branch_summary(self) -> bool: ...  # noqa: D102
    async def abort(self) -> bool: ...  # noqa: D102
    async def undo_compaction(self) -> Json: ...  # noqa: D102
    async def preview_compaction(  # noqa: D102
        self, custom_instructions: str | None = None, keep_recent_tokens: int | None = None
    ) -> Json: ...
    async def navigate_tree(  # noqa: D102
        self,
        target_id: str | None,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
        progress: Progress | None = None,
    ) -> Json: ...
    async def context_usage(self, detail: bool = False) -> Json: ...  # noqa: D102
    async def stats(self) -> Json: ...  # noqa: D102
    async def tree_page(self, **arguments: Any) -> Json: ...  # noqa: D102
    async def entries_page(self, since: str | None = None, limit: int | None = None) -> Json: ...  # noqa: D102
    async def messages_page(  # noqa: D102
        self,
        leaf_id: str | msgspec.UnsetType | None = msgspec.UNSET,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json: ...
    async def set_label(self, entry_id: str, label: str | None) -> Json: ...  # noqa: D102
    async def set_name(self, name: str) -> Json: ...  # noqa: D102
    async def set_model(self, provider: str, model_id: str) -> Json: ...  # noqa: D102
    async def set_thinking_level(self, level: str) -> Json: ...  # noqa: D102
    async def set_auto_compaction(self, enabled: bool) -> Json: ...  # noqa: D102
    async def fork(self, entry_id: str) -> tuple[Path | None, str]: ...  # noqa: D102
    async def clone(self) -> Path | None: ...  # noqa: D102
    async def export(self, format: Literal["markdown", "jsonl"], path: str | None = None) -> Path: ...  # noqa: D102
    async def settings_changed(self) -> None: ...  # noqa: D102
    async def close(self) -> None: ...  # noqa: D102


class Backend(Protocol):
    """Makes environments and sessions."""

    def environment(self, folder: Path, options: EnvironmentOptions) -> Environment:
        """The surroundings of a workspace folder."""
        ...

    async def open(self, path: Path, environment: Environment, emit: Emit) -> Session:
        """Open a session file. Raises SessionNotFound or SessionUnreadable."""
        ...

    async def create(
        self, environment: Environment, emit: Emit, *, parent_session: str | None, name: str | None
    ) -> Session:
        """A new session."""
        ...

    def list_sessions(self, environment: Environment, *, everywhere: bool = False) -> list[Json]:
        """The rows of `pi.listSessions`, newest first: the folder's, or everybody's; for a thread."""
        ...


class _Backend:
    """The real layers."""

    def __init__(self) -> None:
        self._run: Json = {}  # what was switched for this run holds in every folder

    def environment(self, folder: Path, options: EnvironmentOptions) -> Environment:
        from pi_ls import session

        return session.Environment(folder, run=self._run, **msgspec.structs.asdict(options))

    async def open(self, path: Path, environment: Environment, emit: Emit) -> Session:
        from pi_ls import session

        return await session.AgentSession.open(path, cast("session.Environment", environment), emit)

    async def create(
        self, environment: Environment, emit: Emit, *, parent_session: str | None, name: str | None
    ) -> Session:
        from pi_ls import session

        surroundings = cast("session.Environment", environment)
        return await session.AgentSession.create(surroundings, emit, parent_session=parent_session, name=name)

    def list_sessions(self, environment: Environment, *, everywhere: bool = False) -> list[Json]:
        from pi_ls import session, store

        surroundings = cast("session.Environment", environment)
        if everywhere:
            rows = store.list_sessions(surroundings.session_directories())
        else:
            rows = store.list_sessions(surroundings.sessions_directory(), str(surroundings.folder))
        return [msgspec.to_builtins(row) for row in rows]


def load_backend() -> Backend:
    """Import the layers below; takes its time."""
    importlib.import_module("pi_ls.session")
    return _Backend()
