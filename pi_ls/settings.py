"""Settings: the layers they come from, the values that count, and the one that is written.

The layers are merged as they are, lower ones first: the user's file, the project's file, the client's
initialization options, the editor's configuration, and what was switched for this run. Only then is
anything checked. Token values are checked where they are used and are an error that names file, key and
value; anything else of a wrong type is reported and its default used. Keys that are not known here are
somebody else's: kept, never mentioned. Source: seed 002, "Settings" and "Per-model overrides"; seed 000 for
pruning and the remote endpoint.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec

from pi_ls.configfile import ConfigFile, ConfigProblem
from pi_ls.core.errors import InvalidSettings
from pi_ls.core.jsonvalues import Json, is_array, is_object
from pi_ls.core.options import BranchSummarySettings, CompactionSettings, PruningSettings, RetrySettings
from pi_ls.secrets import redacted

SETTINGS_FILE = "settings.json"
PROJECT_FOLDER = ".pi"
INITIALIZATION = "initializationOptions"
"""What errors call the layer a client sent with `initialize`."""
EDITOR = "editor configuration"
"""What errors call the layer of `workspace/didChangeConfiguration`."""

LARGEST = 2**53 - 1
"""The largest whole number a setting may be: what every JSON reader holds exactly."""

UNTRUSTED_EDITOR_KEYS: tuple[tuple[str, ...], ...] = (
    ("compaction", "remoteEndpoint"),
    ("compaction", "models"),
    ("defaultProvider",),
    ("defaultModel",),
    ("sessionDir",),
    ("shellPath",),
    ("defaultTools",),
    ("approval",),
)
"""What an editor's configuration cannot set in an untrusted workspace: a repository can ship one."""

QueueMode = Literal["one-at-a-time", "all"]
TokenEstimator = Literal["tiktoken", "chars"]
ModelRef = tuple[str, str]
"""Provider and model id."""

ApprovalRule = Literal["ask", "allow", "deny"]
APPROVAL: dict[str, ApprovalRule] = {"bash": "ask", "write": "ask", "edit": "ask"}
"""What has to be asked before it runs, unless the settings say otherwise."""

_CONTAINERS = (
    ("approval",),
    ("compaction",),
    ("compaction", "modelOverrides"),
    ("compaction", "pruning"),
    ("branchSummary",),
    ("retry",),
)
_ENABLED = ("compaction", "enabled")
_ENDPOINT = ("compaction", "remoteEndpoint")
_RESERVE = ("compaction", "reserveTokens")
_KEEP_RECENT = ("compaction", "keepRecentTokens")
_OVERRIDES = ("compaction", "modelOverrides")
_BRANCH_RESERVE = ("branchSummary", "reserveTokens")


class Layer(msgspec.Struct, frozen=True):
    """Settings of one origin; `source` is a path, or the name of what the client sent."""

    source: str
    values: Json


def merge(*layers: Json) -> Json:
    """Settings on top of each other, the last one winning key by key at every depth.

    Objects are merged; everything else, lists and null included, is replaced. No argument is changed.
    """
    merged: Json = {}
    for layer in layers:
        merged = _merge_two(merged, layer)
    return merged


def _merge_two(below: Json, above: Json) -> Json:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merge_two(under, value) if is_object(under) and is_object(value) else value
    return merged


class Settings:
    """The settings of one workspace folder, as they were when loaded.

    Make one with `load`; `reload` gives the next one.
    """

    run: Json
    """What was switched for this run, over every layer; folders whose settings share it are switched
    together."""
    problems: list[ConfigProblem]
    """Everything that could not be used, each once."""
    default_model: ModelRef | None
    """Provider and model id, where both are set."""
    session_dir: str | None
    """Where session files are kept, as written: `~` and relative paths are the reader's to resolve."""
    steering_mode: QueueMode
    follow_up_mode: QueueMode
    token_estimator: TokenEstimator
    shell_path: str | None
    """The shell for commands; None for the system's."""
    default_tools: tuple[str, ...] | None
    """The tools of a session; None for the usual ones."""

    def __init__(
        self,
        user: ConfigFile,
        project: ConfigFile | None,
        initialization: Any,
        editor: Any,
        editor_trusted: bool,
        run: Json,
        vouches: Callable[[Any], bool],
    ) -> None:
        self._user, self._project, self._vouches = user, project, vouches
        self._initialization, self._editor, self._editor_trusted = initialization, editor, editor_trusted
        self.run = run
        self._resolve()

    @classmethod
    def load(
        cls,
        agent_dir: Path,
        project_dir: Path | None = None,
        initialization: Any = None,
        editor: Any = None,
        editor_trusted: bool = False,
        *,
        run: Json | None = None,
        vouches: Callable[[Any], bool] = lambda _endpoint: True,
    ) -> Settings:
        """Read and merge all layers. Never raises: what cannot be used is in `problems`.

        `project_dir` is the workspace folder, None where it is not trusted. `initialization` is the
        client's `initializationOptions.settings`, `editor` what it said by `didChangeConfiguration`; both
        are taken as they came. `run` is that of other settings whose switches are to hold here too.
        `vouches` says whether a project's `compaction.remoteEndpoint` is the one that was trusted.
        """
        project = None if project_dir is None else ConfigFile(project_dir / PROJECT_FOLDER / SETTINGS_FILE)
        user = ConfigFile(agent_dir / SETTINGS_FILE)
        return cls(user, project, initialization, editor, editor_trusted, {} if run is None else run, vouches)

    def trusting(self, project_dir: Path | None, vouches: Callable[[Any], bool]) -> Settings:
        """The same layers, with the workspace folder's own (None: without) and the editor's as trusted."""
        project = None if project_dir is None else ConfigFile(project_dir / PROJECT_FOLDER / SETTINGS_FILE)
        user, trusted = ConfigFile(self._user.path), project_dir is not None
        return Settings(user, project, self._initialization, self._editor, trusted, self.run, vouches)

    def reload(self, editor: Any = None) -> Settings:
        """The settings as they are now; a further message of the editor wins over earlier ones key by key.

        What was switched for this run still holds.
        """
        if is_object(editor) and is_object(self._editor):
            editor = merge(self._editor, editor)
        return Settings(
            ConfigFile(self._user.path),
            None if self._project is None else ConfigFile(self._project.path),
            self._initialization,
            self._editor if editor is None else editor,
            self._editor_trusted,
            self.run,
            self._vouches,
        )

    def problems_since(self, earlier: Settings) -> list[ConfigProblem]:
        """The problems that were not there in earlier settings: those a person has not been told."""
        return [one for one in self.problems if one not in earlier.problems]

    def changed(self) -> bool:
        """Whether a settings file looks different from when it was read: a `stat` for each."""
        return self._user.changed() or (self._project is not None and self._project.changed())

    def compaction(self, model: ModelRef | None = None) -> CompactionSettings:
        """What a compaction with this model goes by. Raises InvalidSettings with file and key.

        Each token value falls back by itself, from the model's override to the ordinary value to the
        default; an ordinary value that is no count is an error even where the override has a good one.
        """
        default = CompactionSettings()
        reserve = self._tokens(_RESERVE, default.reserve_tokens)
        keep_recent = self._tokens(_KEEP_RECENT, default.keep_recent_tokens)
        if model is not None:
            entry = (*_OVERRIDES, "/".join(model))
            if self._has(entry) and not is_object(self._at(entry)):
                raise self._invalid(entry, "an object")
            reserve = self._tokens((*entry, "reserveTokens"), reserve)
            keep_recent = self._tokens((*entry, "keepRecentTokens"), keep_recent)
        return msgspec.structs.replace(
            self._compaction,
            # Read again: another folder that shares the run's values may have switched it.
            enabled=self._switched(_ENABLED, self._compaction.enabled),
            reserve_tokens=reserve,
            keep_recent_tokens=keep_recent,
        )

    def auto_compaction(self) -> bool:
        """Whether automatic compaction is wanted; never raises, whatever the token values are."""
        return self._switched(_ENABLED, self._compaction.enabled)

    def approval(self, tool: str) -> ApprovalRule:
        """Whether a tool may run; tools that are not named may, since they only look."""
        return self._approval.get(tool, "allow")

    def branch_summary(self) -> BranchSummarySettings:
        """What a branch summary goes by; no model changes it. Raises InvalidSettings with file and key."""
        reserve = self._tokens(_BRANCH_RESERVE, self._branch_summary.reserve_tokens)
        return msgspec.structs.replace(self._branch_summary, reserve_tokens=reserve)

    def retry(self) -> RetrySettings:
        """How transient failures are retried."""
        return self._retry

    def effective(self) -> Json:
        """All that is set, unknown keys included, over the defaults: what a person is shown."""
        defaults = {
            "compaction": msgspec.to_builtins(CompactionSettings()),
            "branchSummary": msgspec.to_builtins(BranchSummarySettings()),
            "retry": msgspec.to_builtins(RetrySettings()),
        }
        return _presentable(merge(defaults, self._values, self.run))

    def set_auto_compaction(self, enabled: bool) -> str | None:
        """Switch automatic compaction for this run, over every layer, and write it to the user's file.

        Returns None, or a sentence for a person: why it could not be saved, or which layer will win after
        a restart. Blocks for the time of a small file's writing.
        """
        self.run["compaction"] = {**self.run.get("compaction", {}), "enabled": enabled}
        not_saved = self._user.set(_ENABLED, enabled)
        if not_saved is not None:
            return f"The switch holds for this run only. {not_saved}"
        layers = [Layer(str(self._user.path), {"compaction": {"enabled": enabled}}), *self._layers[1:]]
        source = _source(layers, _ENABLED)
        if source == str(self._user.path):
            return None
        value = _get(merge(*(layer.values for layer in layers)), _ENABLED)
        after = value if isinstance(value, bool) else CompactionSettings().enabled
        if after is enabled:
            return None
        return (
            f"Saved to {self._user.path}, but {source} has another compaction.enabled: after a restart "
            f"automatic compaction will be {'on' if after else 'off'} again."
        )

    # Resolving: everything that is checked when loaded.

    def _resolve(self) -> None:
        self.problems = [one.problem for one in (self._user, self._project) if one and one.problem]
        self._layers = self._read_layers()
        self._values = merge(*(layer.values for layer in self._layers))
        self._drop_wrong_containers()
        self._compaction = self._resolve_compaction()
        default = BranchSummarySettings()
        self._branch_summary = BranchSummarySettings(
            enabled=self._flag(("branchSummary", "enabled"), default.enabled),
            skip_prompt=self._flag(("branchSummary", "skipPrompt"), default.skip_prompt),
        )
        self._retry = self._resolve_retry()
        provider, model_id = self._text(("defaultProvider",)), self._text(("defaultModel",))
        self.default_model = (provider, model_id) if provider and model_id else None
        self.session_dir = self._text(("sessionDir",))
        self.steering_mode = cast(QueueMode, self._choice(("steeringMode",), get_args(QueueMode)))
        self.follow_up_mode = cast(QueueMode, self._choice(("followUpMode",), get_args(QueueMode)))
        self.shell_path = self._text(("shellPath",))
        tools = self._texts(("defaultTools",), (), "a list of names")
        self.default_tools = tools if self._at(("defaultTools",)) is not None else None
        named = self._at(("approval",))
        names = dict.fromkeys([*APPROVAL, *(named if is_object(named) else ())])
        self._approval: dict[str, ApprovalRule] = {name: self._rule(name) for name in names}
        estimator = self._choice(("tokenEstimator",), get_args(TokenEstimator))
        self.token_estimator = cast(TokenEstimator, estimator)
        for keys in (_RESERVE, _KEEP_RECENT, _BRANCH_RESERVE):
            if self._has(keys) and _count(self._at(keys)) is None:
                self._report(keys, f"a whole number from 0 to {LARGEST}", "what needs it will fail")

    def _read_layers(self) -> list[Layer]:
        layers = [Layer(str(self._user.path), self._user.values)]
        if self._project is not None:
            source, values = str(self._project.path), self._project.values
            if "approval" in values:
                values = _without(values, ("approval",))
                self._ignored(source, ("approval",), "a project cannot say what is approved")
            if _has(values, _ENDPOINT) and not self._vouches(_get(values, _ENDPOINT)):
                values = _without(values, _ENDPOINT)
                why = "it is not what was trusted with this folder; trust the folder again (pi.setTrust)"
                self._ignored(source, _ENDPOINT, why)
            layers.append(Layer(source, values))
        layers.append(Layer(INITIALIZATION, self._object(INITIALIZATION, self._initialization)))
        editor = self._object(EDITOR, self._editor)
        if not self._editor_trusted:
            for keys in UNTRUSTED_EDITOR_KEYS:
                if _has(editor, keys):
                    editor = _without(editor, keys)
                    why = f"the workspace is not trusted; trust it, or set the key in {self._user.path}"
                    self._ignored(EDITOR, keys, why)
        layers.append(Layer(EDITOR, editor))
        return layers

    def _object(self, source: str, value: Any) -> Json:
        if value is not None and not is_object(value):
            message = f"The settings of {source} must be an object; they are {_spell(value)} and ignored."
            self.problems.append(ConfigProblem(file=source, key="", message=message))
        return value if is_object(value) else {}

    def _ignored(self, source: str, keys: Sequence[str], why: str) -> None:
        message = f"{_name(keys)} of {source} is ignored: {why}."
        self.problems.append(ConfigProblem(file=source, key=_name(keys), message=message))

    def _drop_wrong_containers(self) -> None:
        for keys in _CONTAINERS:
            if self._has(keys) and not is_object(self._at(keys)):
                self._report(keys, "an object", "it counts as absent")
                self._values = _without(self._values, keys)
        overrides = self._at(_OVERRIDES)
        for name, entry in overrides.items() if is_object(overrides) else ():
            if not is_object(entry):
                self._report((*_OVERRIDES, name), "an object", "that model cannot be compacted")

    def _resolve_compaction(self) -> CompactionSettings:
        default = CompactionSettings()
        endpoint = self._text(("compaction", "remoteEndpoint"))
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            self._report(("compaction", "remoteEndpoint"), "an http or https URL", "no endpoint is used")
            endpoint = None
        continues = self._at(("compaction", "autoContinue"))
        return CompactionSettings(
            enabled=self._flag(_ENABLED, default.enabled),
            auto_continue="unfinished"
            if continues == "unfinished"
            else self._flag(("compaction", "autoContinue"), True, 'true, false or "unfinished"'),
            calibrate=self._flag(("compaction", "calibrate"), default.calibrate),
            short_summary=self._flag(("compaction", "shortSummary"), default.short_summary),
            remote_endpoint=endpoint,
            models=self._texts(("compaction", "models"), default.models, "a list of provider/modelId"),
            pruning=self._resolve_pruning(),
        )

    def _resolve_pruning(self) -> PruningSettings:
        default, at = PruningSettings(), ("compaction", "pruning")
        known = len(self.problems)
        resolved = PruningSettings(
            enabled=self._flag((*at, "enabled"), default.enabled),
            protect_tokens=self._whole((*at, "protectTokens"), default.protect_tokens, "nothing is pruned"),
            minimum_savings=self._whole(
                (*at, "minimumSavings"), default.minimum_savings, "nothing is pruned"
            ),
            min_tokens=self._whole((*at, "minTokens"), default.min_tokens, "nothing is pruned"),
            protected_tools=self._texts(
                (*at, "protectedTools"), default.protected_tools, "a list of tool names", "nothing is pruned"
            ),
        )
        # What a person wanted to keep is not known then; not pruning loses nothing.
        unclear = len(self.problems) > known
        return msgspec.structs.replace(resolved, enabled=False) if unclear else resolved

    def _resolve_retry(self) -> RetrySettings:
        default = RetrySettings()
        return RetrySettings(
            enabled=self._flag(("retry", "enabled"), default.enabled),
            max_retries=self._whole(("retry", "maxRetries"), default.max_retries),
            base_delay_ms=self._whole(("retry", "baseDelayMs"), default.base_delay_ms),
            max_agent_delay_ms=self._whole(("retry", "maxAgentDelayMs"), default.max_agent_delay_ms),
            request_timeout_ms=self._whole(("retry", "requestTimeoutMs"), default.request_timeout_ms),
        )

    # Single values: wrong ones are reported and their default used; null counts as absent.

    def _flag(self, keys: Sequence[str], default: bool, expected: str = "true or false") -> bool:
        value = self._at(keys)
        if isinstance(value, bool):
            return value
        if value is not None:
            self._report(keys, expected, f"{json.dumps(default)} is used")
        return default

    def _whole(self, keys: Sequence[str], default: int, instead: str | None = None) -> int:
        value = self._at(keys)
        if value is None:
            return default
        count = _count(value)
        if count is None:
            self._report(keys, f"a whole number from 0 to {LARGEST}", instead or f"{default} is used")
            return default
        return count

    def _text(self, keys: Sequence[str]) -> str | None:
        value = self._at(keys)
        if value is not None and not isinstance(value, str):
            self._report(keys, "a text", "it counts as absent")
        return value if isinstance(value, str) and value else None

    def _texts(
        self,
        keys: Sequence[str],
        default: tuple[str, ...],
        expected: str,
        instead: str = "the default is used",
    ) -> tuple[str, ...]:
        value = self._at(keys)
        if value is None:
            return default
        if is_array(value) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self._report(keys, expected, instead)
        return default

    def _choice(self, keys: Sequence[str], choices: tuple[str, ...]) -> str:
        value = self._at(keys)
        if value in choices:
            return value
        if value is not None:
            self._report(keys, " or ".join(json.dumps(one) for one in choices), f'"{choices[0]}" is used')
        return choices[0]

    def _rule(self, tool: str) -> ApprovalRule:
        rules = (APPROVAL.get(tool, "allow"), *get_args(ApprovalRule))
        return cast(ApprovalRule, self._choice(("approval", tool), rules))

    def _tokens(self, keys: Sequence[str], default: int) -> int:
        """A token value where it is used: absent falls back, null does not."""
        if not self._has(keys):
            return default
        count = _count(self._at(keys))
        if count is None:
            raise self._invalid(keys, f"a whole number from 0 to {LARGEST}")
        return count

    def _switched(self, keys: Sequence[str], otherwise: bool) -> bool:
        value = _get(self.run, keys)
        return value if isinstance(value, bool) else otherwise

    def _at(self, keys: Sequence[str]) -> Any:
        return _get(self._values, keys)

    def _has(self, keys: Sequence[str]) -> bool:
        return _has(self._values, keys)

    def _invalid(self, keys: Sequence[str], expected: str) -> InvalidSettings:
        source = _source(self._layers, keys)
        return InvalidSettings(
            f"{_name(keys)} in {source} must be {expected}; it is {_spell(self._at(keys))}.",
            file=source,
            key=_name(keys),
        )

    def _report(self, keys: Sequence[str], expected: str, instead: str) -> None:
        error = self._invalid(keys, expected)
        message = f"{error.message.removesuffix('.')}, so {instead}."
        self.problems.append(ConfigProblem(file=error.data["file"], key=error.data["key"], message=message))


def _get(values: Any, keys: Sequence[str]) -> Any:
    """The value at a place, None where there is none."""
    for key in keys:
        if not is_object(values):
            return None
        values = values.get(key)
    return values


def _has(values: Json, keys: Sequence[str]) -> bool:
    parent = _get(values, keys[:-1])
    return is_object(parent) and keys[-1] in parent


def _without(values: Json, keys: Sequence[str]) -> Json:
    """A copy that lacks the value at a place that is there."""
    rest = {key: value for key, value in values.items() if key != keys[0]}
    return rest if len(keys) == 1 else {**values, keys[0]: _without(values[keys[0]], keys[1:])}


def _source(layers: Sequence[Layer], keys: Sequence[str]) -> str:
    """The layer that decides a value: the highest that has it, or has no object where it would be."""
    for layer in reversed(layers):
        value: Any = layer.values
        for key in keys:
            if not is_object(value) or key not in value:
                break
            value = value[key]
        else:
            return layer.source
        if not is_object(value):
            return layer.source
    return layers[0].source


def _count(value: Any) -> int | None:
    """A whole number from 0 to 2^53 − 1, in any spelling JSON has for it (`4e5`, `16384.0`, `-0`)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= LARGEST or value != math.floor(value):
        return None
    return int(value)


def _name(keys: Sequence[str]) -> str:
    """A place as it is written in errors: `compaction.modelOverrides["provider/model"].reserveTokens`."""
    name = keys[0]
    for parent, key in itertools.pairwise(keys):
        name += f"[{json.dumps(key, ensure_ascii=False)}]" if parent == "modelOverrides" else f".{key}"
    return name


def _spell(value: Any) -> str:
    """A value as JSON, cut where it is long, no key in it. What `1e400` became is called Infinity."""
    try:
        text = redacted(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}…"


def _presentable(value: Any) -> Any:
    """The value with what JSON cannot say (`1e400` in a file) as text."""
    if is_object(value):
        return {key: _presentable(one) for key, one in value.items()}
    if is_array(value):
        return [_presentable(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
