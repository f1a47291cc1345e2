"""Which models there are, what they can hold, and the keys to reach them.

Models come from pi's `models.json` first, then from the table litellm ships with its package, which is read
without importing litellm. Keys come from the environment, pi's `auth.json` and `models.json`; they leave
this module as the return value of `Credentials.key` and `Credentials.headers` and in no other way.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import ipaddress
import math
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from pi_ls import secrets
from pi_ls.configfile import ConfigFile, ConfigProblem
from pi_ls.core.errors import NoCredentials, NoModel
from pi_ls.core.jsonvalues import Json, is_array, is_count, is_object, optional_string

if TYPE_CHECKING:
    import subprocess

MODELS_FILE = "models.json"
AUTH_FILE = "auth.json"
COMMAND_SECONDS = 10.0
"""How long a `!command` that prints a key may take."""

_TABLE_FILE = "model_prices_and_context_window_backup.json"
_CHAT_MODES = ("chat", "responses")
_VARIABLE = re.compile(r"\$(?:(?P<escaped>[$!])|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))")


class ModelCost(msgspec.Struct, frozen=True, rename="camel"):
    """Prices in dollars for a million tokens."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One model of one provider.

    `context_window` and `max_tokens` are tokens, None where they are not known. `api` is pi's name of the
    wire protocol. `headers` are as `models.json` spells them; `Credentials.headers` fills them in.
    `litellm_model` is the name litellm takes (`anthropic/claude-sonnet-4-5`); it is empty where no request
    can be made, and then `unsupported` is the sentence that says why.
    """

    provider: str
    id: str
    name: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    reasoning: bool = False
    api: str | None = None
    base_url: str | None = None
    headers: dict[str, str] = {}
    cost: ModelCost | None = None
    litellm_model: str = ""
    unsupported: str | None = None

    def __repr__(self) -> str:
        """The name alone: headers and URLs may hold keys."""
        return f"ModelInfo({self.ref})"

    @property
    def ref(self) -> str:
        """`provider/id`, as settings and editors name a model."""
        return f"{self.provider}/{self.id}"

    @property
    def is_loopback(self) -> bool:
        """Whether the model is served by this machine."""
        return self.base_url is not None and is_loopback(self.base_url)

    def require(self) -> None:
        """Raise NoModel, with the reason, where no request can be made to this model."""
        if self.unsupported is not None:
            raise NoModel(self.unsupported)


OFFLINE = ModelInfo(provider="offline", id="extractive", name="Extractive summary, no model")
"""What summarizes without any model: no window, no key, no network."""


class Provider(NamedTuple):
    """A provider pi knows by id, and how litellm reaches it."""

    prefix: str
    """What litellm puts before the model's id."""
    variables: tuple[str, ...] = ()
    """Environment variables that hold its key: litellm's name, then pi's where that is another."""
    api: str = "openai-completions"
    base_url: str | None = None
    """Only where litellm has another default, or none."""
    local: bool = False
    """Served by this machine, without a key."""
    tabled: bool = True
    """Whether the table's rows under the prefix are this provider's models."""
    bare: tuple[str, ...] = ()
    """`litellm_provider` of the rows of the table whose names have no prefix."""
    ambient: tuple[tuple[str, ...], ...] = ()
    """Sets of variables with which litellm finds the credentials itself."""
    preferred: tuple[str, ...] = ()
    """Models to begin with where nobody named one, the first that is known."""


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(
        "anthropic",
        ("ANTHROPIC_API_KEY",),
        "anthropic-messages",
        bare=("anthropic",),
        preferred=("claude-sonnet-5-5", "claude-sonnet-4-5"),
    ),
    "openai": Provider("openai", ("OPENAI_API_KEY",), bare=("openai",), preferred=("gpt-5.6-sol", "gpt-5")),
    "google": Provider(
        "gemini",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "google-generative-ai",
        preferred=("gemini-pro-latest", "gemini-2.5-pro"),
    ),
    "google-vertex": Provider(
        "vertex_ai",
        api="google-vertex",
        bare=("vertex_ai-language-models",),
        ambient=(("GOOGLE_APPLICATION_CREDENTIALS",), ("VERTEXAI_CREDENTIALS",)),
        preferred=("gemini-2.5-pro",),
    ),
    "amazon-bedrock": Provider(
        "bedrock",
        api="bedrock-converse-stream",
        bare=("bedrock", "bedrock_converse"),
        ambient=(
            ("AWS_BEARER_TOKEN_BEDROCK",),
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            ("AWS_PROFILE",),
            ("AWS_WEB_IDENTITY_TOKEN_FILE",),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
        ),
        preferred=("us.anthropic.claude-sonnet-4-5-20250929-v1:0",),
    ),
    "azure-openai-responses": Provider(
        "azure", ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"), "azure-openai-responses", preferred=("gpt-5",)
    ),
    "xai": Provider("xai", ("XAI_API_KEY",), preferred=("grok-4.7", "grok-4.20")),
    "deepseek": Provider("deepseek", ("DEEPSEEK_API_KEY",), preferred=("deepseek-chat",)),
    "mistral": Provider("mistral", ("MISTRAL_API_KEY",), preferred=("devstral-latest",)),
    "groq": Provider("groq", ("GROQ_API_KEY",), preferred=("openai/gpt-oss-120b",)),
    "cerebras": Provider("cerebras", ("CEREBRAS_API_KEY",), preferred=("gpt-oss-120b",)),
    "zai": Provider("zai", ("ZAI_API_KEY",), preferred=("glm-5.3", "glm-4.6")),
    "moonshotai": Provider("moonshot", ("MOONSHOT_API_KEY",), preferred=("kimi-k3", "kimi-k2.5")),
    "moonshotai-cn": Provider(
        "moonshot", ("MOONSHOT_API_KEY",), base_url="https://api.moonshot.cn/v1", preferred=("kimi-k3",)
    ),
    "minimax": Provider("minimax", ("MINIMAX_API_KEY",), preferred=("MiniMax-M3", "MiniMax-M2.5")),
    "minimax-cn": Provider(
        "minimax",
        ("MINIMAX_CN_API_KEY",),
        base_url="https://api.minimaxi.com/v1",
        preferred=("MiniMax-M3", "MiniMax-M2.5"),
    ),
    "kimi-coding": Provider(
        "anthropic",
        ("KIMI_API_KEY",),
        "anthropic-messages",
        base_url="https://api.kimi.com/coding",
        tabled=False,
    ),
    "openrouter": Provider("openrouter", ("OPENROUTER_API_KEY",), preferred=("openrouter/auto",)),
    "vercel-ai-gateway": Provider("vercel_ai_gateway", ("VERCEL_AI_GATEWAY_API_KEY", "AI_GATEWAY_API_KEY")),
    "huggingface": Provider("huggingface", ("HUGGINGFACE_API_KEY", "HF_TOKEN")),
    "fireworks": Provider("fireworks_ai", ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY")),
    "together": Provider("together_ai", ("TOGETHER_API_KEY", "TOGETHERAI_API_KEY")),
    "nvidia": Provider("nvidia_nim", ("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY")),
    "baseten": Provider("baseten", ("BASETEN_API_KEY",)),
    "xiaomi": Provider("xiaomi_mimo", ("XIAOMI_MIMO_API_KEY", "XIAOMI_API_KEY")),
    "opencode": Provider(
        "openai", ("OPENCODE_API_KEY",), base_url="https://opencode.ai/zen/v1", tabled=False
    ),
    # What a local server holds is decided when it is started, so the table says nothing about these.
    "ollama": Provider("ollama_chat", base_url="http://localhost:11434", local=True, tabled=False),
    "lmstudio": Provider("openai", base_url="http://localhost:1234/v1", local=True, tabled=False),
    "llama.cpp": Provider("openai", base_url="http://localhost:8080/v1", local=True, tabled=False),
}
"""pi's provider ids. In the order in which they are tried where no model is named."""

APIS: dict[str, str] = {
    "openai-completions": "openai",
    "openai-responses": "openai/responses",
    "azure-openai-responses": "azure",
    "anthropic-messages": "anthropic",
    "google-generative-ai": "gemini",
    "google-vertex": "vertex_ai",
    "bedrock-converse-stream": "bedrock/converse",
    "mistral-conversations": "mistral",
}
"""pi's `api` values and litellm's prefixes: how a provider with a URL of its own is spoken to."""

_LOGIN_ONLY = ("github-copilot", "openai-codex", "google-gemini-cli", "google-antigravity", "radius")


class _Row(msgspec.Struct, gc=False):
    """What is used of a row of litellm's table; a few rows have odd types."""

    litellm_provider: str | None = None
    mode: str | None = None
    max_input_tokens: Any = None
    max_output_tokens: Any = None
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    supports_reasoning: bool | None = None


@functools.cache
def _litellm_table() -> dict[str, _Row]:
    """litellm's rows of chat models by its own names; empty where it is not installed. Read once: 3.5 MB."""
    found = importlib.util.find_spec("litellm")
    rows: dict[str, _Row] = {}
    for folder in (found.submodule_search_locations or ()) if found else ():
        # A damaged table, or one odd row of it, costs what it would have told and nothing else.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            table = (Path(folder) / _TABLE_FILE).read_bytes()
            for key, raw in msgspec.json.decode(table, type=dict[str, msgspec.Raw]).items():
                with contextlib.suppress(msgspec.MsgspecError):
                    row = msgspec.json.decode(raw, type=_Row)
                    if row.mode in _CHAT_MODES and key != "sample_spec":
                        rows[key] = row
    return rows


class ModelCatalogue:
    """All models: those of `models.json`, and litellm's table for the providers pi knows.

    `models.json` is looked at again on every call. The table is read when it is first needed, which takes
    some 30 ms: call from a thread where that matters.
    """

    def __init__(self, agent_dir: Path) -> None:
        self._file = ConfigFile(agent_dir / MODELS_FILE, relaxed=True)

    @property
    def problems(self) -> list[ConfigProblem]:
        """What is wrong with `models.json`."""
        self._file.refresh()
        problems = [self._file.problem] if self._file.problem else []
        for place, expected in _misshapen(self._file.values):
            message = f"{place} in {self._file.path} must be {expected}; it is ignored."
            problems.append(ConfigProblem(file=str(self._file.path), key=place, message=message))
        return problems

    def find(self, provider: str, model_id: str) -> ModelInfo | None:
        """The model of exactly that provider and id, None where neither source has it."""
        if (provider, model_id) == (OFFLINE.provider, OFFLINE.id):
            return OFFLINE
        self._file.refresh()
        entry = _provider_entry(self._file.values, provider)
        for model in _models(entry):
            if model["id"] == model_id:
                return self._own(provider, entry, model)
        row = _row(provider, model_id)
        return self._known(provider, entry, model_id, row) if row is not None else None

    def resolve(self, provider: str, model_id: str) -> ModelInfo:
        """Like `find`; a model no source has is given with nothing known of it but how to reach it."""
        found = self.find(provider, model_id)
        if found is not None:
            return found
        return self._own(provider, _provider_entry(self._file.values, provider), {"id": model_id})

    def all(self) -> Iterator[ModelInfo]:
        """Every model: `models.json` in its order, then the table by provider. None comes twice."""
        yield from self.own()
        for provider in PROVIDERS:
            entry = _provider_entry(self._file.values, provider)
            own = {model["id"] for model in _models(entry)}
            for model_id, row in _rows(provider):
                if model_id not in own:
                    yield self._known(provider, entry, model_id, row)

    def own(self) -> Iterator[ModelInfo]:
        """The models of `models.json`, in its order; the table is not read."""
        self._file.refresh()
        providers = self._file.values.get("providers")
        for provider in providers if is_object(providers) else ():
            entry = _provider_entry(self._file.values, provider)
            for model in _models(entry):
                yield self._own(provider, entry, model)

    def _own(self, provider: str, entry: Json, model: Json) -> ModelInfo:
        """A model as `models.json` describes it."""
        return _reached(
            provider,
            entry,
            model,
            ModelInfo(
                provider=provider,
                id=model["id"],
                name=optional_string(model.get("name")),
                context_window=usable_count(model.get("contextWindow")),
                max_tokens=usable_count(model.get("maxTokens")),
                reasoning=model.get("reasoning") is True,
                cost=_cost(model.get("cost")),
            ),
        )

    def _known(self, provider: str, entry: Json, model_id: str, row: _Row) -> ModelInfo:
        """A model of the table, with what `models.json` changes of it."""
        overrides = entry.get("modelOverrides")
        change = overrides.get(model_id) if is_object(overrides) else None
        change = change if is_object(change) else {}
        window, output = usable_count(row.max_input_tokens), usable_count(row.max_output_tokens)
        if window is not None and output is not None and output >= window:
            output = None  # the window once more, no limit of the answer
        return _reached(
            provider,
            entry,
            change,
            ModelInfo(
                provider=provider,
                id=model_id,
                name=optional_string(change.get("name")),
                context_window=usable_count(change["contextWindow"]) if "contextWindow" in change else window,
                max_tokens=usable_count(change["maxTokens"]) if "maxTokens" in change else output,
                reasoning=change.get("reasoning", row.supports_reasoning) is True,
                cost=ModelCost(
                    input=_per_million(row.input_cost_per_token),
                    output=_per_million(row.output_cost_per_token),
                    cache_read=_per_million(row.cache_read_input_token_cost),
                    cache_write=_per_million(row.cache_creation_input_token_cost),
                ),
            ),
        )


def _reached(provider: str, entry: Json, model: Json, info: ModelInfo) -> ModelInfo:
    """The model with how it is reached, or why it is not."""
    known = PROVIDERS.get(provider)
    own_url = optional_string(model.get("baseUrl")) or optional_string(entry.get("baseUrl"))
    named = optional_string(model.get("api")) or optional_string(entry.get("api"))
    # Without a URL the provider's own prefix must stay: any other would take its key to another host.
    prefix = known.prefix if known and not (own_url and named) else APIS.get(named or "")
    reachable = prefix is not None and (known is not None or own_url is not None)
    return msgspec.structs.replace(
        info,
        api=named or (known.api if known else None),
        base_url=own_url or (known.base_url if known else None),
        headers={**_headers(entry), **_headers(model)},
        litellm_model=f"{prefix}/{info.id}" if reachable else "",
        unsupported=None if reachable else _why_unsupported(provider, bool(entry), own_url, named),
    )


def _why_unsupported(provider: str, has_entry: bool, base_url: str | None, api: str | None) -> str:
    if provider in _LOGIN_ONLY and not has_entry:
        return (
            f"{provider} is reached by a login that only pi itself can use; choose a provider that takes an "
            f"API key."
        )
    if not has_entry:
        return f"The provider {provider} is not known; describe it in {MODELS_FILE} of the agent directory."
    place = f"The provider {provider} in {MODELS_FILE}"
    if base_url is None:
        return f"{place} has no baseUrl."
    if api is None:
        return f"{place} has no api; it is one of {', '.join(APIS)}."
    return f"{place} has the api {api}, which is not supported; these are: {', '.join(APIS)}."


def _misshapen(values: Json) -> Iterator[tuple[str, str]]:
    """Places in `models.json` that cannot be used, with what should stand there."""
    providers = values.get("providers", {})
    if not is_object(providers):
        yield "providers", "an object"
        return
    for name, entry in providers.items():
        if not is_object(entry):
            yield f"providers.{name}", "an object"
            continue
        models = entry.get("models", [])
        if not is_array(models):
            yield f"providers.{name}.models", "a list"
            continue
        for at, model in enumerate(models):
            if not (is_object(model) and isinstance(model.get("id"), str)):
                yield f"providers.{name}.models[{at}]", "an object with an id"


def _provider_entry(values: Json, provider: str) -> Json:
    providers = values.get("providers")
    entry = providers.get(provider) if is_object(providers) else None
    return entry if is_object(entry) else {}


def _models(entry: Json) -> Iterator[Json]:
    """The usable models of a provider's entry; of two with one id the later counts, as in pi."""
    models = entry.get("models")
    usable = (model for model in (models if is_array(models) else ()) if is_object(model))
    yield from {model["id"]: model for model in usable if isinstance(model.get("id"), str)}.values()


def _headers(entry: Json) -> dict[str, str]:
    headers = entry.get("headers")
    return {name: one for name, one in headers.items() if isinstance(one, str)} if is_object(headers) else {}


def _row(provider: str, model_id: str) -> _Row | None:
    known = PROVIDERS.get(provider)
    if known is None or not known.tabled:
        return None
    table = _litellm_table()
    row = table.get(f"{known.prefix}/{model_id}")
    if row is None:
        row = table.get(model_id)
        if row is not None and row.litellm_provider not in known.bare:
            return None
    return row


def _rows(provider: str) -> Iterator[tuple[str, _Row]]:
    known = PROVIDERS[provider]
    if not known.tabled:
        return
    seen: set[str] = set()
    for key, row in _litellm_table().items():
        bare = row.litellm_provider in known.bare and not key.startswith(f"{known.prefix}/")
        if not bare and (known.bare or not key.startswith(f"{known.prefix}/")):
            continue
        model_id = key if bare else key.removeprefix(f"{known.prefix}/")
        if model_id not in seen:
            seen.add(model_id)
            yield model_id, row


def usable_count(value: Any) -> int | None:
    """A window or an output limit in tokens: a finite whole number above 0, else None (unknown)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < math.inf or value != math.floor(value):
        return None
    return int(value)


def _per_million(price: float | None) -> float:
    return round(price * 1e6, 6) if price else 0


def _cost(value: Any) -> ModelCost | None:
    if not is_object(value):
        return None

    rates: list[float] = [
        rate if is_count(rate) else 0
        for rate in (value.get(name, 0) for name in ("input", "output", "cacheRead", "cacheWrite"))
    ]
    return ModelCost(*rates)


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine (`localhost`, 127.0.0.0/8, ::1)."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_SECRET_FIELD = re.compile(r"auth|key|token|secret|cookie|access|refresh|password", re.IGNORECASE)


def _secrets_in(value: Any, *, named: bool = False) -> Iterator[str]:
    """The texts in an entry of `auth.json` under names of something secret, a login of pi's included."""
    if is_object(value):
        for name, one in value.items():
            yield from _secrets_in(one, named=named or _SECRET_FIELD.search(name) is not None)
    elif is_array(value):
        for one in value:
            yield from _secrets_in(one, named=named)
    elif named and isinstance(value, str):
        yield value


def _secrets_of(provider: Any) -> Iterator[str]:
    """The key and the secret headers of a provider's entry in `models.json`, those of its models included."""
    if not is_object(provider):
        return
    if key := optional_string(provider.get("apiKey")):
        yield key
    models = provider.get("models")
    for entry in (provider, *(models if is_array(models) else ())):
        if is_object(entry):
            yield from (text for name, text in _headers(entry).items() if _SECRET_HEADER.search(name))


class _Unresolved(Exception):
    """Why a place that should give a key does not; never holds what stands there."""


class _Place(NamedTuple):
    """One place a key may come from; `text` may be `$NAME` or `!command` unless it is `literal`."""

    where: str
    text: str
    literal: bool = False

    def __repr__(self) -> str:
        return f"_Place({self.where})"


class Credentials:
    """The keys of all providers. Files are looked at again on every call."""

    def __init__(self, agent_dir: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._auth = ConfigFile(agent_dir / AUTH_FILE)
        self._models = ConfigFile(agent_dir / MODELS_FILE, relaxed=True)
        self._environ = environ
        self._learn()

    def _learn(self) -> None:
        """Let all keys that stand somewhere be known as such, whether or not they are ever used."""
        for known in PROVIDERS.values():
            secrets.learn(*(self._environ.get(name) for name in known.variables))
        providers = self._models.values.get("providers")
        kept = [text for entry in self._auth.values.values() for text in _secrets_in(entry)]
        kept += [
            text for one in (providers.values() if is_object(providers) else ()) for text in _secrets_of(one)
        ]
        for text in kept:
            if not text.startswith(("!", "$")):  # what a command gives is known once it has run
                secrets.learn(text)
            if not text.startswith("!"):
                with contextlib.suppress(_Unresolved):
                    secrets.learn(self._filled(_Place("", text)))

    @property
    def problems(self) -> list[ConfigProblem]:
        """What is wrong with `auth.json`; `models.json` is the catalogue's."""
        self._auth.refresh()
        return [self._auth.problem] if self._auth.problem else []

    def key(self, provider: str) -> str | None:
        """The provider's key; None where none is needed, or litellm finds the credentials itself.

        Looked for in the environment, then in `auth.json`, then in `models.json`; a provider that
        `models.json` gives a URL and a key of its own takes that key first, so that a key for another
        host does not go there. May run a command, for up to COMMAND_SECONDS: call from a thread. Raises
        NoCredentials with what to set.
        """
        self._refresh()
        reasons: list[str] = []
        for place in self._places(provider):
            try:
                return self._fill(place)
            except _Unresolved as error:
                reasons.append(f"{place.where}: {error}")
        if self._is_ambient(provider) or (not reasons and not self._needs_key(provider)):
            return None
        raise self._missing(provider, reasons)

    def available(self, provider: str) -> bool:
        """Whether `key` has something to give, as far as can be told without running a command."""
        self._refresh()
        places = [*self._places(provider)]
        if any(self._is_filled(place) for place in places) or self._is_ambient(provider):
            return True
        return not places and not self._needs_key(provider)

    def ready(self, model: ModelInfo) -> tuple[ModelInfo, str | None]:
        """The model with its headers filled in, and its key: all a request needs.

        Blocks and raises like `headers` and `key`.
        """
        return msgspec.structs.replace(model, headers=self.headers(model)), self.key(model.provider)

    def headers(self, model: ModelInfo) -> dict[str, str]:
        """The model's headers with `$NAME` and `!command` filled in; blocks like `key`.

        Raises NoCredentials for one that cannot be.
        """
        filled: dict[str, str] = {}
        for name, text in model.headers.items():
            try:
                filled[name] = self._fill(_Place(f"header {name}", text))
            except _Unresolved as error:
                raise NoCredentials(
                    f"The header {name} of {model.provider} in {self._models.path}: {error}.",
                    provider=model.provider,
                ) from None
        return filled

    def _refresh(self) -> None:
        if self._auth.refresh() | self._models.refresh():
            self._learn()

    def _places(self, provider: str) -> Iterator[_Place]:
        entry = _provider_entry(self._models.values, provider)
        own = optional_string(entry.get("apiKey"))
        own_place = [_Place(f"apiKey in {self._models.path}", own)] if own else []
        own_host = "baseUrl" in entry
        if own_host:
            yield from own_place
        known = PROVIDERS.get(provider)
        for name in known.variables if known else ():
            if value := self._environ.get(name, "").strip():
                yield _Place(name, value, literal=True)
        stored = self._auth.values.get(provider)
        if is_object(stored) and stored.get("type") == "api_key" and isinstance(stored.get("key"), str):
            yield _Place(str(self._auth.path), stored["key"])
        if not own_host:
            yield from own_place

    def _needs_key(self, provider: str) -> bool:
        known = PROVIDERS.get(provider)
        base_url = optional_string(_provider_entry(self._models.values, provider).get("baseUrl"))
        if base_url is not None:
            return not is_loopback(base_url)
        return provider != OFFLINE.provider and not (known is not None and known.local)

    def _is_ambient(self, provider: str) -> bool:
        known = PROVIDERS.get(provider)
        sets = known.ambient if known else ()
        return any(all(self._environ.get(name) for name in names) for names in sets)

    def _is_filled(self, place: _Place) -> bool:
        if place.literal or place.text.startswith("!"):
            return True
        try:
            return bool(self._fill(place))
        except _Unresolved:
            return False

    def _fill(self, place: _Place) -> str:
        text = self._filled(place)
        if not place.where.startswith("header ") or _SECRET_HEADER.search(place.where):
            secrets.learn(text)
        return text

    def _filled(self, place: _Place) -> str:
        if place.literal:
            return place.text
        if place.text.startswith("!"):
            return _output_of(place.text[1:])

        def variable(match: re.Match[str]) -> str:
            if match["escaped"]:
                return match["escaped"]
            name = match["braced"] or match["bare"]
            if not self._environ.get(name):
                raise _Unresolved(f"the variable {name} is not set")
            return self._environ[name]

        key = _VARIABLE.sub(variable, place.text).strip()
        if not key:
            raise _Unresolved("it is empty")
        return key

    def _missing(self, provider: str, reasons: list[str]) -> NoCredentials:
        known = PROVIDERS.get(provider)
        stored = self._auth.values.get(provider)
        if is_object(stored) and stored.get("type") != "api_key":
            reasons.append(f"{self._auth.path} has a login of pi's, which only pi itself can use")
        elif stored is not None and not any(str(self._auth.path) in reason for reason in reasons):
            reasons.append(f'{self._auth.path} has no {{"type": "api_key", "key": …}} for it')
        reasons += [one.problem.message.rstrip(".") for one in (self._auth, self._models) if one.problem]
        names = [*known.variables, *(" and ".join(one) for one in known.ambient)] if known else []
        if names:
            todo = f"set {names[0]}, or add {provider} to {self._auth.path}"
        elif known is None and not _provider_entry(self._models.values, provider):
            todo = f"describe the provider in {self._models.path}"
        else:
            todo = f"add {provider} to {self._auth.path}, or an apiKey to it in {self._models.path}"
        found = f" ({'; '.join(reasons)})" if reasons else ""
        return NoCredentials(
            f"No API key for {provider}: {todo}{found}.",
            provider=provider,
            **({"variable": names[0]} if names else {}),
        )


_outputs: dict[str, str] = {}
_one_command = threading.Lock()


def _output_of(command: str) -> str:
    """What a shell command prints, trimmed; asked once for the life of the process, failures again.

    One at a time: a password manager should not ask its person twice for one key.
    """
    with _one_command:
        if command not in _outputs:
            _outputs[command] = _run(command)
        return _outputs[command]


def _run(command: str) -> str:
    import subprocess  # rarely needed, and a noticeable part of what importing this module would cost

    try:
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise _Unresolved(f"its command cannot be run: {error.strerror}") from None
    try:
        output, _ = process.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        _end_group(process)
        raise _Unresolved(f"its command took more than {COMMAND_SECONDS:g} s") from None
    if process.returncode != 0:
        raise _Unresolved(f"its command failed with exit status {process.returncode}")
    text = output.decode("utf-8", "replace").strip()
    if not text:
        raise _Unresolved("its command printed nothing")
    return text


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children, without waiting for whoever still holds its output."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def split_ref(ref: str | None) -> tuple[str, str] | None:
    """`provider/id` in its parts (the id may hold slashes); None where it is none."""
    provider, slash, model_id = (ref or "").partition("/")
    return (provider, model_id) if slash and provider and model_id else None


def choose_model(
    catalogue: ModelCatalogue,
    credentials: Credentials,
    *,
    of_path: tuple[str, str] | None = None,
    option: str | None = None,
    default: tuple[str, str] | None = None,
) -> ModelInfo | None:
    """The model a session uses, None where there is none.

    That is the last one of its path, else the client's option (`provider/id`), else the settings', else
    the first one with credentials: of `models.json` in its order, then of the known providers in theirs. A
    named model is taken even where nothing is known of it, so that nobody is moved to another one unasked.
    """
    for named in (of_path, split_ref(option), default):
        if named is not None:
            return catalogue.resolve(*named)
    return _first_available(catalogue, credentials)


def _first_available(catalogue: ModelCatalogue, credentials: Credentials) -> ModelInfo | None:
    available = functools.cache(credentials.available)
    for model in catalogue.own():
        if model.unsupported is None and available(model.provider):
            return model
    for provider, known in PROVIDERS.items():
        if known.preferred and not known.local and available(provider):
            found = (catalogue.find(provider, model_id) for model_id in known.preferred)
            return next((model for model in found if model), catalogue.resolve(provider, known.preferred[0]))
    return None
