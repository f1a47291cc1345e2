"""Workspace folders, the sessions that are open in them, and which one of a folder is current.

One file is one session, whoever opened it. A session belongs to the folder it was opened for and goes with
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pygls import uris

from pi_ls.core.errors import InvalidParams, NoSession, PiError, SessionNotFound
from pi_ls.core.events import Event, SessionOpened, SettingsProblem, TrustChanged
from pi_ls.core.jsonvalues import Json
from pi_ls.server.backend import Backend, EnvironmentOptions, load_backend
from pi_ls.server.notifications import Channel, Notifier

if TYPE_CHECKING:
    from pi_ls.session import AgentSession, Environment
    from pi_ls.trust import TrustRecord

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 3.0
LOOKING_INTERVAL_S: Final = 2.0
"""How often session files are looked at without being told that one was touched."""
SETTLING_S: Final = 5.0
SETTLING_INTERVAL_S: Final = 0.4
"""For a while after a session was opened, while the system's watching is only being set up."""
SETTINGS_INTERVAL_S: Final = 2.0
"""How often the settings files are looked at (a stat each)."""
SETTINGS_SETTLE_S: Final = 0.1
"""How long a file that has changed is left to whoever is still writing it."""


class Folder:
    """A workspace folder: `uri` as the client wrote it, which session is current."""

    def __init__(self, uri: str, path: Path, *, trusted: bool) -> None:
        self.uri = uri
        self.path = path
        self.trusted = trusted
        """Whether the client vouches for it."""
        self.asked = False
        """Whether a person was asked if it is to be trusted."""
        self.environment: Environment | None = None
        self.current: Opened | None = None
        self.opening: asyncio.Task[None] | None = None


class Opened(msgspec.Struct, eq=False):
    """An open session, the folder it belongs to and the way its events go."""

    session: AgentSession
    folder: Folder
    environment: Environment
    channel: Channel
    trouble: str = ""
    """Why its file could not be looked at the last time."""

    @property
    def path(self) -> str:
        """The file with links resolved: what makes it this session and no other."""
        return os.path.realpath(self.session.file.path)


class Workspaces:
    """All folders and sessions of one connection.

    `connect_editor` gives each folder's surroundings the editor's documents and somebody to ask; `ask_trust`
    may ask a person about a folder.
    """

    def __init__(
        self,
        notifier: Notifier,
        connect_editor: Callable[[Environment], None],
        ask_trust: Callable[[Folder], None],
    ) -> None:
        self.ask_trust = ask_trust
        self._connect_editor = connect_editor
        self._notifier = notifier
        self._options = EnvironmentOptions()
        self._folders: list[Folder] = []
        self._default: Folder | None = None
        self._sessions: list[Opened] = []
        self._loading: asyncio.Task[Backend] | None = None
        self._opening = asyncio.Lock()
        self._beginning = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._opened_at = 0.0

    def configure(self, options: EnvironmentOptions, folders: Iterable[str]) -> None:
        """What the client said at `initialize`."""
        self._options = options
        for uri in folders:
            self._add(uri)

    # -- folders ---------------------------------------------------------------------------------------

    @property
    def folders(self) -> list[Folder]:
        """The client's folders; without any, the process's own directory, untrusted."""
        if self._folders:
            return list(self._folders)
        if self._default is None:
            here = Path.cwd()
            self._default = Folder(here.as_uri(), here, trusted=False)
        return [self._default]

    def _all_folders(self, *more: Folder) -> list[Folder]:
        """Every folder that may hold something, the process's own directory included."""
        return [*self._folders, *([self._default] if self._default is not None else []), *more]

    def folder(self, uri: str | None) -> Folder:
        """The folder a command means. Raises InvalidParams (`workspace`)."""
        folders = self.folders
        if uri is None:
            if len(folders) > 1:
                raise InvalidParams(
                    "Several folders are open; say which is meant in “workspace”", path="workspace"
                )
            return folders[0]
        path = _path(uri)
        for folder in folders:
            if folder.uri == uri or (path is not None and _same(folder.path, path)):
                return folder
        raise InvalidParams(f"{uri} is not a folder of this workspace", path="workspace")

    def _add(self, uri: str) -> Folder | None:
        path = _path(uri)
        if path is None:
            logger.warning("The workspace folder %s is no folder on this machine; it is left out", uri)
            return None
        if any(folder.uri == uri for folder in self._folders):
            return None
        folder = Folder(uri, path, trusted=self._options.trusted)
        self._folders.append(folder)
        return folder

    async def change_folders(self, added: Iterable[str], removed: Iterable[str]) -> list[Folder]:
        """Take folders in and let others go, with their sessions; returns the new ones."""
        for uri in removed:
            path = _path(uri)
            for folder in [f for f in self._folders if f.uri == uri or (path and _same(f.path, path))]:
                self._folders.remove(folder)
                await self._stop_opening([folder])
                await self._close_all([opened for opened in self._sessions if opened.folder is folder])
                await self._close_hooks([folder])
        return [folder for uri in added if (folder := self._add(uri)) is not None]

    # -- what folders share ----------------------------------------------------------------------------

    async def backend(self) -> Backend:
        """The layers below, loaded at the first call, on a thread."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(load_backend))
        return await asyncio.shield(self._loading)

    async def environment(self, folder: Folder) -> Environment:
        """The folder's settings and surroundings, with its settings files as they are now."""
        backend = await self.backend()
        if folder.environment is None:
            options = msgspec.structs.replace(self._options, trusted=folder.trusted)
            folder.environment = backend.environment(folder.path, options)
            self._connect_editor(folder.environment)
            self._tell_problems(folder, folder.environment)
            folder.environment.hooks.begin(functools.partial(self._push, folder))
            self.ask_trust(folder)
        elif folder.environment.changed():
            await self.reload(folder)
        return folder.environment

    async def reload(self, folder: Folder) -> Environment:
        """Read the folder's settings again and let its sessions know."""
        if folder.environment is None:
            return await self.environment(folder)
        folder.environment.reload_settings()
        if await asyncio.to_thread(folder.environment.follow_trust):
            await self._trust_changed(folder, folder.environment)
        else:
            await self._settings_changed(folder, folder.environment)
        self._ask_about_changes(folder)
        return folder.environment

    def _ask_about_changes(self, folder: Folder) -> None:
        """What has changed in a trusted folder is asked about again, whatever was asked before."""
        if folder.environment is not None and folder.environment.trusted:
            folder.asked = False
            self.ask_trust(folder)

    async def reload_extensions(self, folder: Folder) -> None:
        """Read the folder's extension files again."""
        environment = await self.environment(folder)
        await environment.hooks.reload(environment.extension_sources(), functools.partial(self._push, folder))

    async def set_trust(
        self, folder: Folder, trusted: bool, asked_about: TrustRecord | None = None
    ) -> str | None:
        """Trust a folder as it is now, or as it was when a person was asked about it, or not any more.

        Returns None, or why that holds for this run only.
        """
        environment = await self.environment(folder)
        not_saved = await asyncio.to_thread(environment.set_trust, trusted, asked_about)
        await self._trust_changed(folder, environment)
        return not_saved

    async def _trust_changed(self, folder: Folder, environment: Environment) -> None:
        folder.asked = True
        await self.reload_extensions(folder)
        await self._settings_changed(folder, environment)
        self._push(folder, TrustChanged(trusted=environment.trusted))

    async def configure_editor(self, settings: Json) -> None:
        """The editor's configuration is another one."""
        self._options = msgspec.structs.replace(self._options, editor=settings)
        for folder in self.folders:
            if folder.environment is not None:
                folder.environment.reload_settings(settings)
                await self._settings_changed(folder, folder.environment)

    async def follow_settings(self) -> None:
        """Read settings files again when they change; runs until it is cancelled."""
        while True:
            await asyncio.sleep(SETTINGS_INTERVAL_S)
            for folder in self.folders:
                if folder.environment is not None and folder.environment.changed():
                    try:
                        await asyncio.sleep(SETTINGS_SETTLE_S)
                        await self.reload(folder)
                    except PiError as error:
                        logger.warning("Reading the settings again failed: %s", error)

    async def follow_sessions(self) -> None:
        """Take in what other programs write to open sessions, soon; runs until it is cancelled."""
        touched: set[str] = set()
        loop, follower = asyncio.get_running_loop(), None

        def note(names: Collection[str]) -> None:
            touched.update(names)
            self._woken.set()

        try:
            while True:
                self._woken.clear()
                if self._sessions and follower is None:
                    from pi_ls.store import Follower

                    follower = Follower(functools.partial(_call_soon, loop, note))
                if follower is not None:
                    follower.follow(opened.session.file.path for opened in self._sessions)
                try:
                    settling = loop.time() < self._opened_at + SETTLING_S
                    interval = SETTLING_INTERVAL_S if settling else LOOKING_INTERVAL_S
                    await asyncio.wait_for(self._woken.wait(), interval)
                except TimeoutError:  # a slow look at all of them, for what the system does not tell
                    touched.update(opened.session.file.path.name for opened in self._sessions)
                names = frozenset(touched)
                touched.clear()
                for opened in [one for one in self._sessions if one.session.file.path.name in names]:
                    await _look(opened)
        finally:
            if follower is not None:
                follower.close()

    async def _settings_changed(self, folder: Folder, environment: Environment) -> None:
        self._tell_problems(folder, environment)
        for opened in self.sessions_of(environment):
            await opened.session.settings_changed()

    def _tell_problems(self, folder: Folder, environment: Environment) -> None:
        problems = [
            SettingsProblem(
                file=problem.file,
                key=problem.key,
                message=problem.message,
                line=msgspec.UNSET if problem.line is None else problem.line,
            )
            for problem in environment.problems
        ]
        self._notifier.forget_mended(folder.uri, problems)
        for problem in problems:
            self._push(folder, problem)

    def _push(self, folder: Folder, event: Event) -> None:
        """Tell something about a folder as such, to the client and to hooks."""
        self._notifier.push(folder.uri, None, event)
        if folder.environment is not None:
            folder.environment.tell_hooks(event, functools.partial(self._push, folder))

    # -- sessions --------------------------------------------------------------------------------------

    def sessions_of(self, environment: Environment) -> list[Opened]:
        """The open sessions that share an environment."""
        return [opened for opened in self._sessions if opened.environment is environment]

    async def session(self, workspace: str | None, session_id: str | None) -> Opened:
        """The session a command means. Raises SessionNotFound, NoSession or InvalidParams.

        Waits for the folder's newest session where that is just being opened, and sees to it that settings
        files changed a moment ago hold for the command.
        """
        opened = self.by_id(session_id) if session_id is not None else await self._current(workspace)
        await self.environment(opened.folder)
        return opened

    async def session_or_new(self, workspace: str | None, session_id: str | None) -> Opened:
        """The session a command means; a new one, and only one, where the folder has none."""
        async with self._beginning:
            try:
                return await self.session(workspace, session_id)
            except NoSession:
                return await self.create(self.folder(workspace))

    def by_id(self, session_id: str) -> Opened:
        """An open session by its id, in whichever folder. Raises SessionNotFound.

        A copied file has its original's id: of several, a current one is meant, else the last opened.
        """
        found = [opened for opened in self._sessions if opened.session.id == session_id]
        current = [opened for opened in found if opened.folder.current is opened]
        if found:
            return (current or found)[-1]
        raise SessionNotFound(f"No open session has the id {session_id}; open it first", sessionId=session_id)

    async def _current(self, workspace: str | None) -> Opened:
        folder = self.folder(workspace)
        if folder.current is None and folder.opening is not None:
            await asyncio.wait([folder.opening])
        if folder.current is None:
            raise NoSession(f"No session is open in {folder.path}; open one or begin a new one")
        return folder.current

    async def list_sessions(self, folder: Folder, *, everywhere: bool = False) -> list[Json]:
        """The rows of `pi.listSessions`, newest first."""
        backend, environment = await self.backend(), await self.environment(folder)
        return await asyncio.to_thread(backend.list_sessions, environment, everywhere=everywhere)

    async def path_of(self, folder: Folder, session_id: str) -> Path:
        """The file of a session by its id, which is only ever compared. Raises SessionNotFound."""
        for opened in self._sessions:
            if opened.session.id == session_id:
                return Path(opened.session.file.path)
        for everywhere in (False, True):
            for row in await self.list_sessions(folder, everywhere=everywhere):
                if row["id"] == session_id:
                    return Path(row["path"])
        raise SessionNotFound(f"There is no session with the id {session_id}", sessionId=session_id)

    async def open(self, folder: Folder, path: Path, *, make_current: bool = True) -> Opened:
        """Open a session file, or find it open. Raises SessionNotFound or SessionUnreadable.

        `make_current` False: it becomes the folder's current one only where there is none by then.
        """
        async with self._opening:
            real = os.path.realpath(path)  # noqa: ASYNC240  # a few stat calls
            for opened in self._sessions:
                if opened.path == real:
                    if make_current or folder.current is None:
                        folder.current = opened
                    opened.channel.emit(SessionOpened(state=opened.session.state()))
                    return opened
            backend, environment = await self.backend(), await self.environment(folder)
            channel = Channel(self._notifier, folder.uri)
            session = await backend.open(path, environment, channel.emit)
            opened = self._register(Opened(session, folder, environment, channel))
        if make_current or folder.current is None:
            folder.current = opened
        return opened

    async def create(
        self, folder: Folder, *, parent_session: str | None = None, name: str | None = None
    ) -> Opened:
        """Begin a new session, which becomes the folder's current one."""
        backend, environment = await self.backend(), await self.environment(folder)
        channel = Channel(self._notifier, folder.uri)
        session = await backend.create(environment, channel.emit, parent_session=parent_session, name=name)
        opened = self._register(Opened(session, folder, environment, channel))
        folder.current = opened
        return opened

    def open_latest(self, folder: Folder, open_: Callable[[Path], Awaitable[None]]) -> None:
        """Open the folder's newest session in the background by `open_`; commands that want one wait."""
        folder.opening = asyncio.create_task(self._open_latest(folder, open_), name="open latest session")

    async def _open_latest(self, folder: Folder, open_: Callable[[Path], Awaitable[None]]) -> None:
        try:
            rows = await self.list_sessions(folder)
            if rows and folder.current is None:
                await open_(Path(rows[0]["path"]))
        except (PiError, OSError) as error:
            logger.warning("The newest session of %s could not be opened: %s", folder.path, error)

    def _register(self, opened: Opened) -> Opened:
        self._sessions.append(opened)
        self._opened_at = asyncio.get_running_loop().time()
        self._woken.set()
        opened.channel.bind(opened.session.id)
        return opened

    # -- closing ---------------------------------------------------------------------------------------

    async def close_session(self, opened: Opened) -> None:
        """Close a session; where it was current, no session is."""
        if opened in self._sessions:
            self._sessions.remove(opened)
        for folder in self._all_folders(opened.folder):
            if folder.current is opened:
                folder.current = None
        await opened.session.close()

    async def close(self) -> None:
        """Close everything; called twice, the second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._stop_opening(self._all_folders())
        await self._close_all(list(self._sessions))
        await self._close_hooks(self._all_folders())

    async def _close_hooks(self, folders: Iterable[Folder]) -> None:
        environments = [folder.environment for folder in folders if folder.environment is not None]
        await asyncio.gather(*(environment.hooks.close() for environment in environments))

    async def _stop_opening(self, folders: Iterable[Folder]) -> None:
        tasks = [folder.opening for folder in folders if folder.opening is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _close_all(self, sessions: list[Opened]) -> None:
        if not sessions:
            return
        tasks = [asyncio.create_task(self.close_session(opened)) for opened in sessions]
        done, late = await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("Closing a session failed", exc_info=error)
        if late:
            logger.error("%d sessions did not close in %g s", len(late), CLOSE_TIMEOUT_S)


async def _look(opened: Opened) -> None:
    try:
        await opened.session.look()
        opened.trouble = ""
    except (PiError, OSError) as error:
        if opened.trouble != str(error):
            opened.trouble = str(error)
            logger.warning("%s could not be looked at: %s", opened.session.file.path, error)


def _call_soon(
    loop: asyncio.AbstractEventLoop, note: Callable[[Collection[str]], None], names: Collection[str]
) -> None:
    """Call on the loop from another thread; once the loop is gone there is nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(note, names)


def _path(uri: str) -> Path | None:
    """The folder a URI names, None where it names none on this machine."""
    if not uri.startswith("file:"):
        return None
    path = uris.to_fs_path(uri)
    return Path(path) if path else None


def _same(one: Path, other: Path) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)
