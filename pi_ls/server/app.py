"""The server as a whole: what is wired to what, and its life from the first byte to the last.

Its life: the reader takes bytes in on a thread; `Protocol` handles one message at a time on the event loop;
commands run as tasks; `Writer` sends on a thread. It ends when the client says `exit`, closes its end, dies,
or a signal asks for it; then running commands are cancelled, sessions closed, and what is still to be said
gets a moment to leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path

from pi_ls import __version__
from pi_ls.core.errors import PiError
from pi_ls.core.events import Event, ExtensionFailed, SessionProblem, SettingsProblem
from pi_ls.core.jsonvalues import Json, is_object
from pi_ls.secrets import redacted, without_secrets
from pi_ls.server.backend import EnvironmentOptions
from pi_ls.server.buffers import SavedTexts
from pi_ls.server.commands import COMMANDS, run_command
from pi_ls.server.lifecycle import ending_signals, leave_by_force, watch_process
from pi_ls.server.notifications import Notifier
from pi_ls.server.progress import LOADING_DELAY_S, work_done
from pi_ls.server.protocol import (
    CONFIGURATION_SECTION,
    SERVER_NAME,
    InitializationOptions,
    OptionProblem,
    parse_options,
)
from pi_ls.server.reader import Reader
from pi_ls.server.rpc import CommandCall, Phase, Protocol
from pi_ls.server.workspaces import Folder, Workspaces
from pi_ls.server.writer import Message, Writer

if TYPE_CHECKING:
    from pi_ls.session import Environment

logger = logging.getLogger(__name__)

CANCEL_TIMEOUT_S: Final = 1.0
FLUSH_TIMEOUT_S: Final = 0.5

_MUST_ACT: Final = frozenset({"newerVersion", "notSaved"})
"""Session problems a person must know of at once; the others are there for an editor to show."""


class Server(LanguageServer):
    """One connection with one client."""

    protocol: Protocol  # pyright: ignore[reportIncompatibleVariableOverride]  # made by the base of this class

    def __init__(self) -> None:
        super().__init__(SERVER_NAME, __version__, protocol_cls=Protocol)  # pyright: ignore[reportUnknownMemberType]
        self.options = InitializationOptions()
        self.option_problems: Sequence[OptionProblem] = ()
        self.notifier = Notifier(self._send, self._tell_person)
        self.workspaces = Workspaces(self.notifier, self._connect_editor, self._ask_trust)
        self.initialized = False
        self.saved_texts = SavedTexts()
        self._writer: Writer | None = None
        self._ended: asyncio.Future[int] | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.protocol.send = self._send
        self.protocol.commands = tuple(COMMANDS)
        self.protocol.run_command = self._run_command
        self.protocol.on_shutdown = self.close
        self.protocol.on_exit = self.end

    # -- its life --------------------------------------------------------------------------------------

    async def run(self, stdin: RawIOBase, stdout: RawIOBase) -> int:
        """Serve one client to the end; returns the exit code.

        Once the end has begun the process does not outlive it by much, whatever hangs (`leave_by_force`).
        """
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        writer = self._writer = Writer(stdout, on_lost=lambda: _call(loop, self._connection_lost))
        Reader(
            stdin,
            on_message=lambda body: _call(loop, self.protocol.receive, body),
            on_end=lambda: _call(loop, self._connection_lost),
            wait_for_room=writer.wait_for_room,
        )
        for number in ending_signals():
            with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; not the main thread
                loop.add_signal_handler(number, self.end, 128 + number)
        code = await self._ended
        leave_by_force(code)
        await self.close()
        await asyncio.to_thread(writer.close, FLUSH_TIMEOUT_S)
        return code

    def end(self, code: int) -> None:
        """Begin to leave with that exit code; the first reason counts."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(code)

    def _connection_lost(self) -> None:
        self.end(0 if self.protocol.phase is Phase.SHUT_DOWN else 1)

    async def close(self) -> None:
        """Stop what runs and close every session, and begin nothing more; may be called more than once."""
        self.protocol.phase = Phase.SHUT_DOWN
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.protocol.cancel_commands(), CANCEL_TIMEOUT_S)
        await self.workspaces.close()

    def in_background(self, work: Any, name: str) -> None:
        """Run a coroutine as a task that is held until it ends, and cancelled when the server closes."""
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)

    # -- what the client said --------------------------------------------------------------------------

    def begin(self, params: types.InitializeParams) -> None:
        """Take in what `initialize` says; reads nothing from disk."""
        self.options, self.option_problems = parse_options(self.protocol.initialization_options)
        events = self.options.events
        self.notifier.want(None if events == "all" else events)
        self.workspaces.configure(
            EnvironmentOptions(
                agent_dir=Path(self.options.agent_dir).expanduser() if self.options.agent_dir else None,
                session_dir=self.options.session_dir,
                trusted=self.options.trusted,
                initialization=self.options.settings,
                default_model=self.options.model,
                token_estimator=self.options.token_estimator,
            ),
            _folders(params),
        )
        if params.process_id is not None:
            self._stop_watching = watch_process(params.process_id, self._connection_lost)

    def _connect_editor(self, environment: Environment) -> None:
        """Let the agent of a folder see the editor's documents and ask the person in front of it."""
        from pi_ls.server.editor import Documents, Person

        environment.documents = Documents(self, self.saved_texts)
        environment.ask = Person(self, by_notification=self.options.approvals == "notification").ask

    def _ask_trust(self, folder: Folder) -> None:
        """Ask once, where a client can show the question and there is something to decide."""
        if self.initialized and not folder.asked:
            self.in_background(self._offer_trust(folder), "asking about trust")

    async def _offer_trust(self, folder: Folder) -> None:
        from pi_ls.server.editor import Person

        environment = await self.workspaces.environment(folder)
        found = await asyncio.to_thread(environment.trust_question)
        if found is None or folder.asked:
            return
        folder.asked = True
        question, held = found
        trusted = await Person(self, by_notification=False).ask_trust(question)
        if trusted is not None:
            await self.workspaces.set_trust(folder, trusted, held)

    def ready(self) -> None:
        """The client has said `initialized`: from here on things may be pushed and opened."""
        if self.initialized:
            return
        self.initialized = True
        self.notifier.open()
        for problem in self.option_problems:
            event = SettingsProblem(file="initializationOptions", key=problem.key, message=problem.message)
            self.notifier.push(None, None, event)
        self.open_latest(self.workspaces.folders)
        self.in_background(self.workspaces.follow_settings(), "following the settings files")
        self.in_background(self.workspaces.follow_sessions(), "following the session files")

    def open_latest(self, folders: Sequence[Folder]) -> None:
        """Open the newest session of each folder in the background, if the client wants that."""
        if self.options.auto_open == "latest" and self.initialized:
            for folder in folders:
                self.workspaces.open_latest(folder, lambda path, folder=folder: self._open(folder, path))

    async def _open(self, folder: Folder, path: Path) -> None:
        async with work_done(self.protocol, "Opening session", delay=LOADING_DELAY_S):
            await self.workspaces.open(folder, path, make_current=False)

    async def change_folders(self, change: types.WorkspaceFoldersChangeEvent) -> None:
        """Folders came and went."""
        added = await self.workspaces.change_folders(
            [folder.uri for folder in change.added], [folder.uri for folder in change.removed]
        )
        self.open_latest(added)

    async def change_configuration(self, params: Any) -> None:
        """The editor's configuration changed: the `pi` section it sent, else what it says when asked."""
        settings = params.get("settings") if is_object(params) else None
        section = settings.get(CONFIGURATION_SECTION) if is_object(settings) else None
        if section is None and self._answers_configuration():
            item = types.ConfigurationItem(section=CONFIGURATION_SECTION)
            [section] = await self.workspace_configuration_async(types.ConfigurationParams(items=[item]))
        if is_object(section):
            await self.workspaces.configure_editor(section)

    def _answers_configuration(self) -> bool:
        workspace = self.client_capabilities.workspace
        return workspace is not None and workspace.configuration is True

    async def _run_command(self, call: CommandCall) -> Json:
        return await run_command(self.workspaces, self.protocol, call)

    # -- what is said to the client --------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        if self._writer is not None:
            message.head, message.tail = without_secrets(message.head), without_secrets(message.tail)
            self._writer.send(message)

    def log(self, text: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Write to the editor's log of this server; before `initialized` to stderr."""
        text = redacted(text)
        if self.initialized:
            self.window_log_message(types.LogMessageParams(type=kind, message=text))
        else:
            logger.warning(text)

    def _tell_person(self, event: Event) -> None:
        """Show what a person must know; the rest of the problems goes to the log."""
        if isinstance(event, ExtensionFailed):
            placed = event.error.startswith(event.extension)  # with the line in it
            said = event.error if placed else f"{event.extension}: {event.error}"
            self.log(said, types.MessageType.Warning)
        if not isinstance(event, SessionProblem | SettingsProblem):
            return
        if isinstance(event, SessionProblem) and event.kind in _MUST_ACT:
            message = types.ShowMessageParams(type=types.MessageType.Warning, message=event.message)
            self.window_show_message(message)
        else:
            self.log(f"{event.file}: {event.message}", types.MessageType.Warning)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A fault outside any request: to stderr with its cause, to the editor's log as a sentence."""
        logger.error("A message could not be handled", exc_info=error)
        if not isinstance(error, PiError) and self.initialized:
            self.log("A message could not be handled; the server's stderr tells why", types.MessageType.Error)


def create_server() -> Server:
    """A server with its handlers."""
    server = Server()

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.begin(params)

    @server.feature(types.INITIALIZED)
    def initialized(_: types.InitializedParams) -> None:
        server.ready()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: Any) -> None:
        await server.change_configuration(params)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def did_change_workspace_folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        await server.change_folders(params.event)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: types.DidOpenTextDocumentParams) -> None:
        await server.saved_texts.opened(params.text_document.uri, params.text_document.text)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        uri = params.text_document.uri
        if uri in server.workspace.text_documents:
            server.saved_texts.saved(uri, server.workspace.text_documents[uri].source)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.saved_texts.closed(params.text_document.uri)

    return server


def _folders(params: types.InitializeParams) -> list[str]:
    """The workspace's folders as URIs, in the newest way the client knows to tell them."""
    if params.workspace_folders:
        return [folder.uri for folder in params.workspace_folders]
    if params.root_uri:
        return [params.root_uri]
    uri = from_fs_path(params.root_path) if params.root_path else None
    return [uri] if uri else []


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call on the loop from another thread; once the loop is gone there is nobody left to call."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
