"""What the sessions of one workspace folder share: where files are, settings, models, keys, prompts.

Made once for a folder; nothing here reads the network, and nothing heavy is loaded before it is needed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from pi_ls.configfile import ConfigProblem, Stamp, file_stamp
from pi_ls.core.chat import ChatModel, ToolSpec
from pi_ls.core.events import ApprovalRequest, Event
from pi_ls.core.jsonvalues import Json
from pi_ls.hooks import FolderHost, HookContext, Hooks, Sources
from pi_ls.llm import LitellmChat, LitellmModel
from pi_ls.models import AUTH_FILE, MODELS_FILE, OFFLINE, Credentials, ModelCatalogue, ModelInfo, choose_model
from pi_ls.prompts import Prompts
from pi_ls.session.instructions import system_prompt
from pi_ls.settings import Settings, TokenEstimator
from pi_ls.store import session_directories, sessions_directory
from pi_ls.summarize import Candidate, Extractive
from pi_ls.tools import NoEditor, Workspace
from pi_ls.trust import (
    PROJECT_FOLDER,
    TRUST_FILE,
    TrustRecord,
    TrustStore,
    endpoint_of,
    ignored_things,
    trusted_with_all,
)

Decision = Literal["once", "session", "always", "no"]
Answer = Callable[[str, Decision], bool]
Ask = Callable[[ApprovalRequest, Answer], Awaitable[bool]]
"""Puts a question to a person, whose word goes to the given function; False where nobody can be asked."""


def default_agent_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`$PI_CODING_AGENT_DIR`, else `~/.pi/agent`."""
    named = environ.get("PI_CODING_AGENT_DIR")
    return Path(named).expanduser() if named else Path.home() / ".pi" / "agent"


class Environment:
    """One workspace folder's surroundings.

    `folder` is the folder with links resolved; `default_model` (`provider/modelId`) is for sessions that
    name none; `session_dir` replaces the usual place of sessions; `trusted` says whether the client
    vouches for the folder. Else a person may have, earlier (`set_trust`); without that, nothing the folder
    brings along is used. Folders that share `run` share
    what is switched for this run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        agent_dir: Path | None = None,
        session_dir: str | None = None,
        trusted: bool = False,
        initialization: Json | None = None,
        editor: Json | None = None,
        default_model: str | None = None,
        token_estimator: TokenEstimator | None = None,
        environ: Mapping[str, str] = os.environ,
        run: Json | None = None,
    ) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.agent_dir = agent_dir or default_agent_dir(environ)
        self._trust = TrustStore(self.agent_dir)
        self._record = self._trust.of(self.folder)
        self._vouched_by_client = trusted
        self.trusted = trusted or self._record.trusted is True
        self.default_model = default_model
        self._named_session_dir = session_dir or environ.get("PI_CODING_AGENT_SESSION_DIR")
        self._token_estimator: TokenEstimator | None = token_estimator
        self.settings = Settings.load(
            self.agent_dir,
            self.folder if self.trusted else None,
            initialization=initialization,
            editor=editor,
            editor_trusted=self.trusted,
            run=run,
            vouches=self._vouches_for_endpoint,
        )
        self.hooks = Hooks(self.extension_sources())
        self.catalogue = ModelCatalogue(self.agent_dir)
        self.credentials = Credentials(self.agent_dir, environ)
        self.prompts = Prompts(self.agent_dir)
        self.documents: Workspace = NoEditor()
        """The documents that are open in the editor."""
        self.ask: Ask | None = None
        """Asks a person whether a tool may run; None where nobody can be asked."""
        self.approved_tools: set[str] = set(self._record.approved)
        """Tools that a person has let run in this folder from now on."""
        self._seen = self._stamps()
        self._trust_seen = self._trust_stamp()

    def reload_settings(self, editor: Json | None = None) -> None:
        """Read the settings files again; `editor` is added to what the editor had configured."""
        self._seen = self._stamps()
        self.settings = self.settings.reload(editor)

    # -- trust -----------------------------------------------------------------------------------------

    def _vouches_for_endpoint(self, value: Any) -> bool:
        return self._vouched_by_client or self._record.vouches_for_endpoint(value)

    def _vouches_for_extension(self, file: Path, content: bytes) -> bool:
        return self._vouched_by_client or self._record.vouches_for(file, content)

    def extension_sources(self) -> Sources:
        """Where hooks come from, as far as somebody vouches for it."""
        project = self.folder / PROJECT_FOLDER if self.trusted else None
        return Sources(self.agent_dir, project, self._vouches_for_extension)

    def set_trust(self, trusted: bool, asked_about: TrustRecord | None = None) -> str | None:
        """Trust the folder with what it holds now, or do not any more; remembered for the next time too.

        `asked_about`: what it held when a person was asked about it (`trust_question`); that is trusted then,
        and what has changed since is asked about again.

        Returns None, or a sentence that says why it holds for this run only. Sessions have to be told
        (`AgentSession.settings_changed`), and hooks read again. Reads and writes files.
        """
        record = TrustRecord(trusted=False)
        if trusted:
            held = asked_about or trusted_with_all(self.folder)
            record = msgspec.structs.replace(held, approved=self._trust.of(self.folder).approved)
        self._vouched_by_client = False
        self._take(record)
        not_saved = self._trust.keep(self.folder, record)
        self._trust_seen = self._trust_stamp()
        return not_saved

    def follow_trust(self) -> bool:
        """Take over what was said of the folder in another program; whether it is trusted otherwise now.

        A record that is gone or cannot be read says nothing. Sessions have to be told, as of `set_trust`.
        Reads a file.
        """
        if (stamp := self._trust_stamp()) == self._trust_seen:
            return False
        self._trust_seen = stamp
        record = self._trust.of(self.folder)
        if record.trusted is None or record == self._record:
            self.approved_tools.update(record.approved)
            return False
        self._vouched_by_client = self._vouched_by_client and record.trusted
        self._take(record)
        return True

    def _take(self, record: TrustRecord) -> None:
        self._record = record
        self.trusted = record.trusted is True
        self.approved_tools = {*record.approved, *(self.approved_tools if self.trusted else ())}
        project = self.folder if self.trusted else None
        self.settings = self.settings.trusting(project, self._vouches_for_endpoint)

    def approve_tool(self, name: str) -> str | None:
        """Let a tool run in this folder from now on; None, or why that holds for this run only."""
        self.approved_tools.add(name)
        approved = tuple(dict.fromkeys([*self._trust.of(self.folder).approved, name]))
        self._record = msgspec.structs.replace(self._record, approved=approved)
        not_saved = self._trust.approve(self.folder, approved)
        self._trust_seen = self._trust_stamp()
        return not_saved

    def trust_question(self) -> tuple[str, TrustRecord] | None:
        """What a person should be asked about the folder, and what it holds; None where nothing is to decide.

        Asked of a folder nobody has said anything about that brings something along, and of a trusted one
        of which something has changed. Reads files.
        """
        question = self._trust_question()
        return None if question is None else (question, trusted_with_all(self.folder))

    def _trust_question(self) -> str | None:
        if self.trusted:
            changed = [] if self._vouched_by_client else self._record.changed_things(self.folder)
            if not changed:
                return None
            return (
                f"{self.folder} has changed since you trusted it: {', '.join(changed)}. "
                "What has changed is ignored. Trust the folder with it?"
            )
        if self._record.trusted is False:
            return None
        ignored = ignored_things(self.folder)
        return f"{self._ignoring(ignored)} Trust this folder?" if ignored else None

    def _ignoring(self, things: Sequence[str]) -> str:
        return f"{self.folder} is not trusted, so this is ignored: {', '.join(things)}."

    def _untrusted_things(self) -> list[ConfigProblem]:
        """One sentence that names what is ignored as long as the folder is not trusted."""
        ignored = [] if self.trusted else ignored_things(self.folder)
        if not ignored:
            return []
        message = f"{self._ignoring(ignored)} Trust the folder (pi.setTrust) to use it."
        place = self.folder / PROJECT_FOLDER
        if endpoint_of(self.folder) is None:
            return [ConfigProblem(file=str(place), key="", message=message)]
        file = str(place / "settings.json")
        return [ConfigProblem(file=file, key="compaction.remoteEndpoint", message=message)]

    def tell_hooks(self, event: Event, tell: Callable[[Event], None]) -> None:
        """Hand an event that is about the folder as such to hooks; call it on the event loop."""
        self.hooks.tell_event(event, HookContext(FolderHost(self.folder)), tell)

    # -- models ----------------------------------------------------------------------------------------
    def changed(self) -> bool:
        """Whether a file of settings, models, keys or trust looks different from when all were read.

        A stat each.
        """
        if self._trust_stamp() != self._trust_seen:
            return True
        return self.settings.changed() or self._stamps() != self._seen

    def _trust_stamp(self) -> Stamp | None:
        return file_stamp(self.agent_dir / TRUST_FILE)

    def _stamps(self) -> list[Stamp | None]:
        """How the files look now that catalogue and credentials read again by themselves."""
        return [file_stamp(self.agent_dir / name) for name in (MODELS_FILE, AUTH_FILE)]

    @property
    def problems(self) -> list[ConfigProblem]:
        """What cannot be used in the files of settings, models and keys, or is ignored for want of trust."""
        return [
            *self._untrusted_things(),
            *self.settings.problems,
            *self.catalogue.problems,
            *self.credentials.problems,
        ]

    def choose_model(self, named: tuple[str, str] | None) -> ModelInfo | None:
        """The model of a session whose path names `named`; None where none can be found.

        Reads files: call it in a thread.
        """
        return choose_model(
            self.catalogue,
            self.credentials,
            of_path=named,
            option=self.default_model,
            default=self.settings.default_model,
        )

    def require_credentials(self, model: ModelInfo) -> None:
        """Raises NoCredentials where there is no key for the model's provider; runs no command."""
        if not self.credentials.available(model.provider):
            self.credentials.key(model.provider)

    def chat_model(self, model: ModelInfo, routing_id: str) -> ChatModel:
        """The model as a partner in conversation; `routing_id` is the same for one session's requests.

        Reads files and may run a command for the key: call it in a thread. Raises NoCredentials.
        """
        reached, key = self.credentials.ready(model)
        timeout_ms = self.settings.retry().request_timeout_ms
        return LitellmChat(reached, key, routing_id=routing_id, timeout_ms=timeout_ms)

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """What the agent is told before a conversation. Reads files: call it in a thread."""
        return system_prompt(self.prompts, self.folder, self.agent_dir, tools, trusted=self.trusted)

    def candidate(self, model: ModelInfo, *, timeout_ms: int) -> Candidate:
        """What makes summaries with a model; its key and headers are looked up when its turn comes.

        `timeout_ms`: how long it may send nothing, in milliseconds.
        """

        def make() -> LitellmModel | Extractive:
            if model == OFFLINE:
                return Extractive()
            reached, key = self.credentials.ready(model)
            return LitellmModel(reached, key, timeout_ms=timeout_ms)

        return Candidate(model.ref, make)

    def model_row(self, model: ModelInfo) -> Json:
        """A model as the protocol tells it."""
        row: Json = {"provider": model.provider, "id": model.id}
        for key, value in (
            ("name", model.name),
            ("contextWindow", model.context_window),
            ("maxTokens", model.max_tokens),
        ):
            if value is not None:
                row[key] = value
        return row | {"reasoning": model.reasoning}

    def list_models(self, query: str | None = None) -> list[Json]:
        """The known models whose name holds `query`, with whether a key is there. Reads files."""
        wanted = (query or "").casefold()
        available = functools.cache(self.credentials.available)
        return [
            self.model_row(model) | {"available": available(model.provider)}
            for model in self.catalogue.all()
            if wanted in f"{model.ref} {model.name or ''}".casefold()
        ]

    @property
    def token_estimator(self) -> TokenEstimator:
        """What counts tokens: the client's wish, else the settings'."""
        return self._token_estimator or self.settings.token_estimator

    def sessions_directory(self) -> Path:
        """Where this folder's sessions are kept. Raises SessionUnreadable for a link in its place."""
        return sessions_directory(self.agent_dir, self._session_dir(), str(self.folder))

    def session_directories(self) -> list[Path]:
        """Where the sessions of all folders are kept."""
        return session_directories(self.agent_dir, self._session_dir())

    def _session_dir(self) -> Path | None:
        """What replaces the usual place: the client's option, else the environment, else the settings."""
        named = self._named_session_dir or self.settings.session_dir
        return self.folder / Path(named).expanduser() if named else None
