"""Real server processes over real session files: a home with an agent directory, and clients of two kinds."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient
from pytest_lsp.client import register_lsp_features

from pi_ls.server.protocol import NOTIFICATIONS
from tests import sessions
from tests.e2e.colleague import Colleague
from tests.e2e.office import MODELS, NAMESAKES, Desk, Office
from tests.e2e.raw import Json, RawClient
from tests.provider import Provider, ProviderProcess

ROOT = Path(__file__).parent.parent.parent
SERVER = (sys.executable, "-m", "pi_ls")
KEY = "sk-test-1"
"""The key of the scripted provider."""

NOBODY = "http://127.0.0.1:1/v1"
"""Where no provider listens."""
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2

OFFLINE: Json = {"compaction": {"models": ["offline/extractive"]}}
"""Settings with which a compaction needs no model."""


class Home:
    """A workspace folder and an agent directory."""

    def __init__(self, root: Path) -> None:
        self.agent_dir = root / "agent"
        self.folder = root / "app"
        self.folder.mkdir()
        self.agent_dir.mkdir()
        self.env = {**os.environ, "PI_CODING_AGENT_DIR": str(self.agent_dir), "PYTHONPATH": str(ROOT)}

    def add_folder(self, name: str) -> Path:
        """Another workspace folder beside the first."""
        folder = self.folder.with_name(name)
        folder.mkdir()
        return folder

    def sessions(self, folder: Path | None = None) -> Path:
        encoded = str(folder or self.folder).strip("/").replace("/", "-")
        return self.agent_dir / "sessions" / f"--{encoded}--"

    def add(self, lines: list[Json], name: str = "s.jsonl") -> Path:
        """Write a session of the folder."""
        return sessions.write(self.sessions() / name, lines)

    def add_long(self, session_id: str = "s-1") -> Path:
        """A session of two long turns, which can be compacted."""
        lines = sessions.two_long_turns(120_000, cwd=str(self.folder), session_id=session_id)
        return self.add(lines, f"{session_id}.jsonl")

    def use(self, provider: Provider | ProviderProcess | None = None, **models: Json) -> None:
        """Let `fake/m200`, the model of the sessions, be had from there, and others (`id={…}`) beside it.

        Without a provider they are only known.
        """
        url = provider.openai if provider is not None else NOBODY
        known = {"m200": {"contextWindow": 200_000, "maxTokens": 8_192}} | models
        listed = [{"id": name, **fields} for name, fields in known.items()]
        entry = {"baseUrl": url, "apiKey": KEY, "api": "openai-completions"}
        self.tell_models({"fake": entry | {"models": listed}})

    def tell_models(self, providers: Json) -> None:
        """Write these providers into models.json, beside those that are there."""
        file = self.agent_dir / "models.json"
        known: Json = json.loads(file.read_text())["providers"] if file.exists() else {}
        file.write_text(json.dumps({"providers": known | providers}))

    def configure(self, settings: Json) -> Path:
        """Write the user's settings file."""
        file = self.agent_dir / "settings.json"
        file.write_text(json.dumps(settings))
        return file

    def params(self, *folders: Path, **options: Any) -> Json:
        """Params of `initialize`, for the folder of the home or for others."""
        return {
            "workspaceFolders": [{"uri": f.as_uri(), "name": f.name} for f in folders or (self.folder,)],
            "initializationOptions": {"tokenEstimator": "chars", **options},
        }


class Disk:
    """What reads and writes the session files of a home's servers, and may be slow or break."""

    def __init__(self, home: Home) -> None:
        self._folder = home.agent_dir.with_name("disk")
        self._folder.mkdir()
        here = Path(__file__).parent / "disk"
        home.env |= {"PYTHONPATH": f"{here}{os.pathsep}{ROOT}", "DISK": str(self._folder)}

    def hold(self, file: Path, *, after: int = 0) -> None:
        """From now on whoever opens the file to read it waits, once it has been read so many times."""
        (self._folder / f"hold {file.name}").write_text(str(after))

    async def until_asked(self, file: Path) -> None:
        """Wait until somebody waits for the file."""
        async with asyncio.timeout(10):
            while not (self._folder / f"asked {file.name}").exists():
                await asyncio.sleep(0.01)

    def release(self, file: Path) -> None:
        """Let go of the file."""
        (self._folder / f"hold {file.name}").unlink()

    def break_(self, file: Path) -> None:
        """From now on it is a fault nobody is prepared for to append to the file: "secret detail"."""
        (self._folder / f"break {file.name}").touch()


class RawServer(RawClient):
    """A server process and a raw client of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        super().__init__(process.stdout, process.stdin)
        self.process = process
        self.stderr = asyncio.create_task(self._drain())

    async def _drain(self) -> bytes:
        assert self.process.stderr is not None
        return await self.process.stderr.read()

    async def code(self, timeout: float = 5) -> int:
        """The exit code; the process must end within that time.

        Looked at again and again, because asyncio's own `wait` waits for the pipes to be read to their end.
        """
        async with asyncio.timeout(timeout):
            while self.process.returncode is None:
                await asyncio.sleep(0.01)
        return self.process.returncode


Start = Callable[..., Awaitable[RawServer]]
Serve = Callable[..., Awaitable[RawServer]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def disk(home: Home) -> Disk:
    """The disk of the servers that are started from now on."""
    return Disk(home)


@pytest.fixture
def provider(home: Home) -> Iterator[ProviderProcess]:
    """A scripted provider the home's sessions use."""
    with ProviderProcess() as provider:
        home.use(provider)
        yield provider


@contextlib.asynccontextmanager
async def starting(home: Home) -> AsyncGenerator[Start]:
    """Starts servers: `await start()`; those that are left at the end are killed.

    `obeying`: permissions of files hold for the server even if the tests run as root.
    """
    servers: list[RawServer] = []

    async def start_one(*command: str, reading: bool = True, obeying: bool = False) -> RawServer:
        process = await asyncio.create_subprocess_exec(
            *(command or SERVER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=home.env,
            cwd=home.folder,
            preexec_fn=obey_permissions if obeying else None,
        )
        server = RawServer(process)
        servers.append(server)
        if reading:
            server.start_reading()
        return server

    yield start_one
    for server in servers:
        with contextlib.suppress(ProcessLookupError):
            server.process.kill()
        await server.stop_reading()
        server.process._transport.close()  # pyright: ignore  # what nobody read would keep its pipe open
        await server.code()
        await server.stderr


@pytest.fixture
async def start(home: Home) -> AsyncIterator[Start]:
    """Starts servers of the home: `await start()`."""
    async with starting(home) as start_one:
        yield start_one


@pytest.fixture
def serve(start: Start, home: Home) -> Serve:
    """Starts initialized servers of the home: `await serve(**initialization_options)`.

    `capabilities` are the client's; `folders` others than the home's; `obeying`: permissions hold for it.
    """

    async def serve_one(
        *folders: Path, capabilities: Json | None = None, obeying: bool = False, **options: Any
    ) -> RawServer:
        server = await start(obeying=obeying)
        await server.initialize(home.params(*folders, **options), capabilities=capabilities or {})
        return server

    return serve_one


def obey_permissions() -> None:
    """Give up, for a process about to be started, what lets root pass over permissions."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "the privilege to pass over permissions cannot be given up")


class RecordingClient(LanguageClient):
    """pytest-lsp's client, with every `pi/…` notification in the order in which it came."""

    def __init__(self) -> None:
        super().__init__(converter_factory=default_converter)  # pyright: ignore[reportUnknownMemberType]
        self.pushes: list[tuple[str, Any]] = []
        register_lsp_features(self)
        for method in NOTIFICATIONS:
            self.feature(method)(self._recorder(method))

    def _recorder(self, method: str) -> Callable[[Any], None]:
        def record(params: Any) -> None:
            self.pushes.append((method, params))

        return record

    def kinds(self) -> list[str]:
        """What was shown as progress: begin, report and end, by token."""
        reports: dict[Any, list[Any]] = self.progress_reports
        return [report.kind for token in reports for report in reports[token]]

    def named(self, name: str) -> list[Any]:
        """The params of every push of that event."""
        return [params for method, params in self.pushes if method == f"pi/{name}"]

    def names(self) -> list[str]:
        """The events pushed so far."""
        return [method.removeprefix("pi/") for method, _ in self.pushes]

    async def run(self, command: str, **arguments: Any) -> Any:
        """The result of a command, its fields as attributes like those of the pushes."""
        params = types.ExecuteCommandParams(command=command, arguments=[arguments])
        return _as_object(await self.workspace_execute_command_async(params))


def _as_object(result: Any) -> Any:
    return json.loads(json.dumps(result), object_hook=lambda fields: SimpleNamespace(**fields))


@pytest.fixture
async def lsp(home: Home) -> AsyncIterator[RecordingClient]:
    """A pytest-lsp client of a running server, not yet initialized."""
    client = RecordingClient()
    await client.start_io(*SERVER, env=home.env)  # pyright: ignore[reportUnknownMemberType]
    yield client
    await client.shutdown_session()
    await client.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """A server for all tests that can share one; they are marked `loop_scope="session"`."""
    root = tmp_path_factory.mktemp("office")
    home = Home(root)
    async with Provider() as provider, starting(home) as start_one:
        home.use(provider, **MODELS)
        home.tell_models(NAMESAKES)
        server = await start_one()
        settings = {"approval": dict.fromkeys(("bash", "write", "edit"), "allow")}
        options = {"tokenEstimator": "chars", "trusted": True, "autoOpen": "none", "settings": settings}
        capabilities = {"window": {"workDoneProgress": True}, "workspace": {"workspaceFolders": True}}
        await server.initialize(
            {}, workspaceFolders=[], capabilities=capabilities, initializationOptions=options
        )
        yield Office(root, home, server, provider)


@pytest_asyncio.fixture(loop_scope="session")
async def desk(office: Office) -> AsyncIterator[Desk]:
    """A place at the shared server, whose provider knows nothing of other tests.

    Afterwards every line of its session file must parse, and the server must still be there.
    """
    office.provider.reset()
    desk = Desk(office)
    yield desk
    office.provider.release()
    if desk.file.exists():
        desk.written()
    desk.leave()
    assert office.server.process.returncode is None


@pytest_asyncio.fixture(loop_scope="session")
async def colleague(office: Office) -> AsyncIterator[Colleague]:
    """A desk with an agent, all of whose requests hold calls and results that belong together."""
    office.provider.reset()
    colleague = Colleague(office)
    yield colleague
    office.provider.release()
    await colleague.stop_all()
    if colleague.file.exists():
        colleague.written()
    colleague.leave()
    assert office.server.process.returncode is None
    assert colleague.model.faults == []
