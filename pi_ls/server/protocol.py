"""What goes over the wire besides plain LSP: names, arguments, options and error codes.

The one source of every command's and notification's name; the editors' own lists are compared with it.
Argument structs are strict (an unknown field is an error that names it), initialization options are lenient
(a bad one is reported and its default used), because a typing error in an editor's configuration must not
keep a server from starting.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from pi_ls.core import events
from pi_ls.core.errors import Cancelled, InvalidParams, PiError
from pi_ls.core.jsonvalues import Json, is_array, is_object
from pi_ls.secrets import redacted

SERVER_NAME: Final = "pi-ls"
CONFIGURATION_SECTION: Final = "pi"


class CommandName(StrEnum):
    """Every command of `workspace/executeCommand`."""

    LIST_SESSIONS = "pi.listSessions"
    OPEN_SESSION = "pi.openSession"
    NEW_SESSION = "pi.newSession"
    CLOSE_SESSION = "pi.closeSession"
    SESSION_STATE = "pi.sessionState"
    SET_SESSION_NAME = "pi.setSessionName"
    FORK_SESSION = "pi.forkSession"
    CLONE_SESSION = "pi.cloneSession"
    SESSION_STATS = "pi.sessionStats"
    EXPORT_SESSION = "pi.exportSession"
    GET_ENTRIES = "pi.getEntries"
    GET_MESSAGES = "pi.getMessages"
    CONTEXT_USAGE = "pi.contextUsage"
    PREVIEW_COMPACTION = "pi.previewCompaction"
    COMPACT = "pi.compact"
    ABORT_COMPACTION = "pi.abortCompaction"
    UNDO_COMPACTION = "pi.undoCompaction"
    SET_AUTO_COMPACTION = "pi.setAutoCompaction"
    GET_TREE = "pi.getTree"
    NAVIGATE_TREE = "pi.navigateTree"
    ABORT_BRANCH_SUMMARY = "pi.abortBranchSummary"
    SET_LABEL = "pi.setLabel"
    PROMPT = "pi.prompt"
    STEER = "pi.steer"
    FOLLOW_UP = "pi.followUp"
    CLEAR_QUEUE = "pi.clearQueue"
    ABORT = "pi.abort"
    CONTINUE = "pi.continue"
    BASH = "pi.bash"
    ABORT_BASH = "pi.abortBash"
    ANSWER_APPROVAL = "pi.answerApproval"
    PRUNE_TOOL_OUTPUTS = "pi.pruneToolOutputs"
    RESTORE_PRUNED = "pi.restorePruned"
    LIST_MODELS = "pi.listModels"
    SET_MODEL = "pi.setModel"
    SET_THINKING_LEVEL = "pi.setThinkingLevel"
    SET_TRUST = "pi.setTrust"
    RELOAD_SETTINGS = "pi.reloadSettings"


NOTIFICATION_PREFIX: Final = "pi/"
EVENT_NAMES: Final = tuple(
    str(kind.__struct_config__.tag) for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
)  # fmt: skip
NOTIFICATIONS: Final = tuple(NOTIFICATION_PREFIX + name for name in EVENT_NAMES)


# --- arguments of the commands --------------------------------------------------------------------


class Arguments(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What every command understands: which folder (a URI) and which session is meant."""

    workspace: str | None = None
    session_id: str | None = None


Count = Annotated[int, msgspec.Meta(ge=1)]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
TreeFilter = Literal["default", "no-tools", "user-only", "labeled-only", "all"]


class ListSessions(Arguments, frozen=True, kw_only=True):
    """`pi.listSessions`; `all`: those of every folder."""

    query: str | None = None
    limit: Count | None = None
    all: bool = False


class OpenSession(Arguments, frozen=True, kw_only=True):
    """`pi.openSession`; exactly one of the two."""

    path: str | None = None
    id: str | None = None


class NewSession(Arguments, frozen=True, kw_only=True):
    """`pi.newSession`."""

    parent_session: str | None = None
    name: str | None = None


class SetSessionName(Arguments, frozen=True, kw_only=True):
    """`pi.setSessionName`."""

    name: str


class ForkSession(Arguments, frozen=True, kw_only=True):
    """`pi.forkSession`; a user message."""

    entry_id: str


class ExportSession(Arguments, frozen=True, kw_only=True):
    """`pi.exportSession`."""

    format: Literal["markdown", "jsonl"]
    path: str | None = None


class GetEntries(Arguments, frozen=True, kw_only=True):
    """`pi.getEntries`; `since`: the id of an entry, whose followers are wanted."""

    since: str | None = None
    limit: Count | None = None


class GetMessages(Arguments, frozen=True, kw_only=True):
    """`pi.getMessages`; `leafId` null: the empty context before the first entry, absent: the present one."""

    leaf_id: str | msgspec.UnsetType | None = msgspec.UNSET
    limit: Count | None = None
    cursor: str | None = None


class ContextUsage(Arguments, frozen=True, kw_only=True):
    """`pi.contextUsage`."""

    detail: bool = False


class PreviewCompaction(Arguments, frozen=True, kw_only=True):
    """`pi.previewCompaction`."""

    custom_instructions: str | None = None
    keep_recent_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Compact(Arguments, frozen=True, kw_only=True):
    """`pi.compact`."""

    custom_instructions: str | None = None


class SetAutoCompaction(Arguments, frozen=True, kw_only=True):
    """`pi.setAutoCompaction`."""

    enabled: bool


class GetTree(Arguments, frozen=True, kw_only=True):
    """`pi.getTree`."""

    filter: TreeFilter = "default"
    query: str | None = None
    root_id: str | None = None
    depth: Annotated[int, msgspec.Meta(ge=0)] | None = None
    limit: Count = 2_000
    cursor: str | None = None


class NavigateTree(Arguments, frozen=True, kw_only=True):
    """`pi.navigateTree`; `targetId` null: before the first entry."""

    target_id: str | None
    summarize: bool = False
    custom_instructions: str | None = None
    replace_instructions: bool = False
    label: str | None = None


class SetLabel(Arguments, frozen=True, kw_only=True):
    """`pi.setLabel`; `label` null takes it away."""

    entry_id: str
    label: str | None


class Image(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A picture that goes with a prompt; `data` is base64."""

    data: str
    mime_type: str


class Say(Arguments, frozen=True, kw_only=True):
    """`pi.steer`, `pi.followUp`."""

    text: str
    images: tuple[Image, ...] = ()


class Prompt(Say, frozen=True, kw_only=True):
    """`pi.prompt`; `streamingBehavior`: what it is while the agent works."""

    streaming_behavior: Literal["steer", "followUp"] = "followUp"


class Bash(Arguments, frozen=True, kw_only=True):
    """`pi.bash`."""

    command: str
    exclude_from_context: bool = False


class AnswerApproval(Arguments, frozen=True, kw_only=True):
    """`pi.answerApproval`."""

    approval_id: str
    decision: Literal["once", "session", "always", "no"]


class PruneToolOutputs(Arguments, frozen=True, kw_only=True):
    """`pi.pruneToolOutputs`."""

    dry_run: bool = False


class RestorePruned(Arguments, frozen=True, kw_only=True):
    """`pi.restorePruned`; without `entryIds`: all of them."""

    entry_ids: tuple[str, ...] | None = None


class ListModels(Arguments, frozen=True, kw_only=True):
    """`pi.listModels`."""

    query: str | None = None


class SetModel(Arguments, frozen=True, kw_only=True):
    """`pi.setModel`."""

    provider: str
    model_id: str


class SetThinkingLevel(Arguments, frozen=True, kw_only=True):
    """`pi.setThinkingLevel`."""

    level: ThinkingLevel


class SetTrust(Arguments, frozen=True, kw_only=True):
    """`pi.setTrust`; about the folder, with what it holds now."""

    trusted: bool


A = TypeVar("A", bound=Arguments)

_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<field>[^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `(?P<field>[^`]*)`")
_PATH = re.compile(r" - at `(?:key in )?\$\.?(?P<path>.*)`$")
_JSON_NAMES = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
               "object": "an object", "array": "an array", "null": "null"}  # fmt: skip


def parse_arguments(command: str, arguments: Any, kind: type[A]) -> A:
    """The `arguments` of an executeCommand as its struct.

    `arguments` is an array with one object; absent, null and [] count as [{}]. Raises `InvalidParams` with
    the argument's `path` and a sentence that says what is wanted.
    """
    if arguments is None or arguments == []:
        arguments = [{}]
    if not (is_array(arguments) and len(arguments) == 1 and is_object(arguments[0])):
        raise InvalidParams(f"{command} takes an array with one object as its arguments", path="arguments")
    try:
        return msgspec.convert(arguments[0], kind)
    except msgspec.ValidationError as error:
        raise _invalid_argument(command, str(error), kind) from None


def _invalid_argument(command: str, reason: str, kind: type[Arguments]) -> InvalidParams:
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    inside = match["path"] if (match := _PATH.search(reason)) else None
    if match := _UNKNOWN_FIELD.search(reason):
        name = match["field"]
        if inside:
            return InvalidParams(f"{command}: “{inside}” has no “{name}”", path=f"{inside}.{name}")
        return InvalidParams(f"{command} has no argument “{name}”; it takes {', '.join(known)}", path=name)
    if match := _MISSING_FIELD.search(reason):
        name = match["field"]
        if inside:
            return InvalidParams(f"{command}: “{inside}” needs “{name}”", path=f"{inside}.{name}")
        return InvalidParams(f"{command} needs the argument “{name}”", path=name)
    path = inside or "arguments"
    return InvalidParams(f"{command}: “{path}” is wrong: {_in_words(_PATH.sub('', reason))}", path=path)


def _in_words(reason: str) -> str:
    """msgspec's "Expected `str | null`, got `int`" in the words of JSON."""

    def words(match: re.Match[str]) -> str:
        return " or ".join(_JSON_NAMES.get(name, name) for name in match[1].split(" | "))

    reason = re.sub(r"`([^`]*)`", words, reason)
    return reason[:1].lower() + reason[1:]


# --- initialization options -----------------------------------------------------------------------


class InitializationOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The client's `initializationOptions`, each default once.

    `events`: "all", or the names of the events to be pushed. `model`: "provider/modelId" for sessions that
    name none. `trusted`: the client vouches for the workspace.
    """

    settings: Json = msgspec.field(default_factory=dict[str, Any])
    agent_dir: str | None = None
    session_dir: str | None = None
    model: Annotated[str, msgspec.Meta(pattern="^[^/]+/.+$")] | None = None
    trusted: bool = False
    auto_open: Literal["latest", "none"] = "latest"
    token_estimator: Literal["tiktoken", "chars"] | None = None
    events: Literal["all"] | tuple[str, ...] = "all"
    approvals: Literal["notification"] | None = None


class OptionProblem(NamedTuple):
    """An initialization option that cannot be used, and the sentence that says why."""

    key: str
    message: str


def parse_options(raw: Any) -> tuple[InitializationOptions, list[OptionProblem]]:
    """The options that can be used, and what is wrong with the others (their defaults hold)."""
    if raw is None:
        return InitializationOptions(), []
    if not is_object(raw):
        return InitializationOptions(), [OptionProblem("", "initializationOptions must be an object")]
    values: Json = {}
    problems: list[OptionProblem] = []
    fields = {field.encode_name: field for field in msgspec.structs.fields(InitializationOptions)}
    for key, value in raw.items():
        if (field := fields.get(key)) is None:
            problems.append(OptionProblem(key, f"“{key}” is not known and is ignored"))
        elif value is not None:
            try:
                values[field.name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                reason = _in_words(_PATH.sub("", str(error)))
                sentence = f"“{key}” is wrong and its default is used: {reason}"
                problems.append(OptionProblem(key, sentence))
    return InitializationOptions(**values), problems


# --- errors ---------------------------------------------------------------------------------------


class ErrorCode:
    """The JSON-RPC and LSP error codes the server answers with."""

    PARSE_ERROR: Final = -32700
    INVALID_REQUEST: Final = -32600
    METHOD_NOT_FOUND: Final = -32601
    INVALID_PARAMS: Final = -32602
    INTERNAL_ERROR: Final = -32603
    SERVER_NOT_INITIALIZED: Final = -32002
    REQUEST_CANCELLED: Final = -32800
    REQUEST_FAILED: Final = -32803


class WireError(NamedTuple):
    """The `error` of a response: `message` is a sentence for a person, `data["kind"]` is for programs."""

    code: int
    message: str
    data: Json


def wire_error(error: PiError) -> WireError:
    """One of our errors as the client gets it."""
    match error:
        case InvalidParams():
            code = ErrorCode.INVALID_PARAMS
        case Cancelled():
            code = ErrorCode.REQUEST_CANCELLED
        case _:
            code = ErrorCode.REQUEST_FAILED
    return WireError(code, redacted(error.message), {"kind": error.kind, **error.data})
