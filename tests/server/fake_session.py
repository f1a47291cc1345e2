"""Sessions that do nothing but behave: for tests of everything around a session.

What an operation does is said by its custom instructions: "wait" (until it is stopped), "fail", "crash" (a
fault of ours), "print" (noise on stdout), "big" (a long summary), "stubborn" (waits and cannot be stopped). A
journal beside the sessions tells afterwards which were opened and closed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from pi_ls.core.errors import Cancelled, EntryNotFound, SessionNotFound, SummarizationFailed
from pi_ls.core.events import (
    CompactionEnd,
    CompactionStart,
    ContextUsage,
    EntryAppended,
    SessionClosed,
    SessionInfoChanged,
    SessionOpened,
    SessionProblem,
)
from pi_ls.core.jsonvalues import Json
from pi_ls.hooks import Hooks, Sources
from pi_ls.server.backend import EnvironmentOptions
from pi_ls.session import AgentSession, Emit, Environment, Progress


class FakeProblem(msgspec.Struct):
    file: str
    key: str
    message: str
    line: int | None = None


class FakeSettings:
    """The text of `<agentDir>/settings.json`; "broken" in it is a problem."""

    def __init__(self, file: Path, options: EnvironmentOptions) -> None:
        self._file = file
        self._options = options
        self._text = self._read()
        self.problems: list[FakeProblem] = []
        if "broken" in self._text:
            self.problems.append(FakeProblem(str(file), "", "The settings are broken", 1))

    def _read(self) -> str:
        return self._file.read_text() if self._file.exists() else ""

    def changed(self) -> bool:
        return self._read() != self._text

    def effective(self) -> Json:
        options = self._options
        return {
            "text": self._text,
            "editor": options.editor,
            "initialization": options.initialization,
            "trusted": options.trusted,
        }


class FakeEnvironment:
    def __init__(self, folder: Path, options: EnvironmentOptions) -> None:
        self.folder = folder
        self.options = options
        self.agent_dir = options.agent_dir or folder / ".agent"
        self.settings = FakeSettings(self.agent_dir / "settings.json", options)
        self.hooks = Hooks(Sources(self.agent_dir))
        self.trusted = options.trusted

    def reload_settings(self, editor: Json | None = None) -> None:
        if editor is not None:
            self.options = msgspec.structs.replace(self.options, editor=editor)
        self.settings = FakeSettings(self.agent_dir / "settings.json", self.options)

    def changed(self) -> bool:
        return self.settings.changed()

    @property
    def problems(self) -> list[FakeProblem]:
        return self.settings.problems

    def extension_sources(self) -> Sources:
        return self.hooks.sources

    def tell_hooks(self, event: object, tell: object) -> None:
        pass

    def set_trust(self, trusted: bool) -> str | None:
        self.trusted = trusted
        return None

    def trust_question(self) -> str | None:
        return None

    def list_models(self, query: str | None) -> list[Json]:
        return [{"provider": "p", "id": query or "m", "available": True}]

    def journal(self, line: str) -> None:
        with (self.agent_dir / "journal").open("a") as journal:
            journal.write(line + "\n")


class FakeFile(msgspec.Struct):
    path: Path


class FakeSession:
    def __init__(self, path: Path, environment: FakeEnvironment, emit: Emit) -> None:
        self.id = path.stem
        self.file = FakeFile(path)
        self.operation: Literal["run", "compaction", "navigation"] | None = None
        self.name: str | None = None
        self.settings_seen = 0
        self.environment = environment
        self.emit = emit
        self._task: asyncio.Task[Any] | None = None
        environment.journal(f"open {self.id}")
        emit(SessionOpened(state=self.state()))

    async def look(self) -> None:
        pass

    def state(self) -> Json:
        return {
            "sessionId": self.id,
            "name": self.name,
            "operation": self.operation,
            "seen": self.settings_seen,
        }

    async def _operate(
        self, kind: Literal["compaction", "navigation"], how: str | None, progress: Progress | None
    ) -> None:
        self.operation = kind
        self._task = asyncio.current_task()
        try:
            if progress is not None:
                progress.report("working", 10)
            match how:
                case "wait":
                    await asyncio.Event().wait()
                case "stubborn":
                    await asyncio.to_thread(time.sleep, 60)
                case "fail":
                    raise SummarizationFailed("Summary is empty")
                case "crash":
                    raise RuntimeError("secret detail")
                case "print":
                    print("x")  # all of these would break the protocol
                    os.write(1, b"y\n")
                    subprocess.run([sys.executable, "-c", "print('z')"], check=True)
                case _:
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise Cancelled(f"{kind.capitalize()} cancelled") from None
        finally:
            self.operation = None
            self._task = None

    async def compact(self, custom_instructions: str | None = None, progress: Progress | None = None) -> Json:
        self.emit(CompactionStart(reason="manual"))
        try:
            await self._operate("compaction", custom_instructions, progress)
        except Cancelled:
            self.emit(CompactionEnd(reason="manual", aborted=True, will_retry=False))
            raise
        except Exception as error:
            self.emit(
                CompactionEnd(reason="manual", aborted=False, will_retry=False, error_message=str(error))
            )
            raise
        result: Json = {"summary": "s" * (1_000_000 if custom_instructions == "big" else 10)}
        self.emit(CompactionEnd(reason="manual", aborted=False, will_retry=False, result=result))
        return result

    async def navigate_tree(
        self,
        target_id: str | None,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
        progress: Progress | None = None,
    ) -> Json:
        if target_id == "nowhere":
            raise EntryNotFound("There is no entry nowhere in this session", entryId="nowhere")
        try:
            await self._operate("navigation", custom_instructions, progress)
        except Cancelled:
            return {"cancelled": True, "aborted": True, "leafId": "a", "oldLeafId": "a"}
        return {"cancelled": False, "leafId": target_id, "oldLeafId": "a"}

    async def abort(self) -> bool:
        if self._task is None:
            return False
        self._task.cancel()
        await asyncio.wait([self._task])
        return True

    async def abort_compaction(self) -> bool:
        return self.operation == "compaction" and await self.abort()

    async def abort_branch_summary(self) -> bool:
        return self.operation == "navigation" and await self.abort()

    async def undo_compaction(self) -> Json:
        return {"leafId": "a", "oldLeafId": "b", "entriesLeft": 1}

    async def preview_compaction(
        self, custom_instructions: str | None = None, keep_recent_tokens: int | None = None
    ) -> Json:
        return {"possible": True, "keep": keep_recent_tokens}

    async def context_usage(self, detail: bool = False) -> Json:
        return {"tokens": 1, "categories": {}} if detail else {"tokens": 1}

    async def stats(self) -> Json:
        return {"totalMessages": 0}

    async def tree_page(self, **arguments: Any) -> Json:
        return {"nodes": [], "leafId": None, "hasMore": False, "asked": arguments}

    async def entries_page(self, since: str | None = None, limit: int | None = None) -> Json:
        """`limit` entries of 1 KB."""
        return {"entries": [{"id": str(n), "text": "é" * 500} for n in range(limit or 0)], "since": since}

    async def messages_page(
        self,
        leaf_id: str | msgspec.UnsetType | None = msgspec.UNSET,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        return {"messages": [], "leafId": "unset" if leaf_id is msgspec.UNSET else leaf_id}

    async def set_label(self, entry_id: str, label: str | None) -> Json:
        return {"entryId": entry_id, "label": label, "leafId": "l"}

    async def set_name(self, name: str) -> Json:
        """Named "flood N" it emits N entries and as many usages, "usage N" N usages; "problem K" a problem of
        that kind; "lone" is half a surrogate pair, "noted …" stands in the journal.
        """
        word, _, count = name.partition(" ")
        if word in {"flood", "usage"}:
            for number in range(int(count)):
                if word == "flood":
                    entry: Json = {"id": f"{number}", "parentId": "p" * 1000, "type": "message"}
                    self.emit(EntryAppended(entry=entry, leaf_id=None, foreign=True))
                self.emit(ContextUsage(tokens=number))
        if word == "problem":
            self.emit(SessionProblem(file="f", kind=count, message=f"There is a {count}"))
        if word == "noted":
            self.environment.journal(name)
        self.name = "\ud83d" if word == "lone" else name
        self.emit(SessionInfoChanged(name=self.name))
        return self.state()

    async def set_model(self, provider: str, model_id: str) -> Json:
        return self.state()

    async def set_thinking_level(self, level: str) -> Json:
        return self.state()

    async def set_auto_compaction(self, enabled: bool) -> Json:
        return self.state()

    async def settings_changed(self) -> None:
        self.settings_seen += 1

    async def fork(self, entry_id: str) -> tuple[Path | None, str]:
        if entry_id == "first":
            return None, "text"
        path = self.file.path.with_name("forked.jsonl")
        path.touch()
        return path, "text"

    async def clone(self) -> Path | None:
        path = self.file.path.with_name("cloned.jsonl")
        path.touch()
        return path

    async def export(self, format: Literal["markdown", "jsonl"], path: str | None = None) -> Path:
        return Path(path or f"/tmp/export.{format}")

    async def close(self) -> None:
        await self.abort()
        self.environment.journal(f"close {self.id}")
        self.emit(SessionClosed(state=self.state()))


class FakeBackend:
    """Sessions are the files `<agentDir>/sessions/<folder name>/<id>.jsonl`; "slow…" ones open slowly."""

    def environment(self, folder: Path, options: EnvironmentOptions) -> Environment:
        environment = FakeEnvironment(folder, options)
        environment.agent_dir.mkdir(parents=True, exist_ok=True)
        return cast("Environment", environment)

    async def open(self, path: Path, environment: Environment, emit: Emit) -> AgentSession:
        surroundings = cast("FakeEnvironment", environment)
        if path.stem.startswith("slow"):
            surroundings.journal(f"opening {path.stem}")
            await asyncio.sleep(0.8)
        if not path.exists():
            raise SessionNotFound(f"There is no session file {path}", path=str(path))
        return cast("AgentSession", FakeSession(path, surroundings, emit))

    async def create(
        self, environment: Environment, emit: Emit, *, parent_session: str | None, name: str | None
    ) -> AgentSession:
        surroundings = cast("FakeEnvironment", environment)
        session = FakeSession(self._directory(surroundings) / "new.jsonl", surroundings, emit)
        session.name = name
        return cast("AgentSession", session)

    def list_sessions(self, environment: Environment, *, everywhere: bool = False) -> list[Json]:
        surroundings = cast("FakeEnvironment", environment)
        directory = surroundings.agent_dir / "sessions" if everywhere else self._directory(surroundings)
        files = sorted(directory.rglob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        return [{"id": file.stem, "path": str(file), "name": f"Name of {file.stem}"} for file in files]

    @staticmethod
    def _directory(environment: FakeEnvironment) -> Path:
        return environment.agent_dir / "sessions" / environment.folder.name
