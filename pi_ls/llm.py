"""Models: what a caller needs of one, and its form over litellm. Only here are litellm and tiktoken imported.

litellm takes seconds to import and may stall whoever runs it, so it lives on one daemon thread with an event
loop of its own, is loaded there when a model is first asked, and never runs on the caller's loop. Nothing of
it crosses the border: requests and answers are values of ours, and its exceptions are translated here, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import gc
import importlib.util
import json
import logging
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from pi_ls.core.errors import ContextOverflow, NoCredentials, PiError, ProviderError
from pi_ls.core.jsonvalues import Json, is_object, number
from pi_ls.core.messages import Cost, Usage
from pi_ls.core.overflow import says_overflow

if TYPE_CHECKING:
    from pi_ls.models import ModelCost, ModelInfo

T = TypeVar("T")
CountText = Callable[[str], int]
"""Counts the tokens of a text."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A question that stands alone: one system and one user message of plain text, no tools."""

    system: str
    prompt: str
    max_tokens: int
    """The longest answer, in tokens, reasoning included."""
    thinking_level: str = "off"
    """pi's name of it; used where the model reasons."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A model's whole answer. It may be empty; whether that will do is the caller's business."""

    text: str = ""
    thinking: str = ""
    stop_reason: str = "stop"
    """stop, length, toolUse or error (the provider withheld the answer)."""
    usage: Usage | None = None
    """None where the provider reported none."""
    tool_calls: int = 0


class Model(Protocol):
    """What answers a request. Anything with these two members will do, for tests and library users alike."""

    @property
    def info(self) -> ModelInfo:
        """What the model is and how much it can hold."""
        ...

    async def complete(self, request: Request) -> Completion:
        """Asks once.

        Raises:
            ContextOverflow: the request was longer than the model's window.
            NoCredentials: there is no key for the provider.
            ProviderError: anything else; `retryable` where the same request may succeed later, and then
                `data["retryAfterMs"]` where the provider said when.

        Cancelling the task that waits closes the connection at once.
        """
        ...


class LitellmModel:
    """A model reached through litellm. One `complete` is one HTTP request; retrying is the caller's.

    The exception is a server that refuses to be asked for usage in a stream: it is asked again without.
    """

    def __init__(self, info: ModelInfo, api_key: str | None = None, *, timeout_ms: int = 120_000) -> None:
        """Args:
        info: What to ask, and where.
        api_key: The provider's key; None where it needs none.
        timeout_ms: The longest silence between two bytes, in milliseconds.
        """
        self.info = info
        self._key = api_key
        self._timeout = timeout_ms / 1000
        self._asks_for_usage = True

    def __repr__(self) -> str:
        return f"LitellmModel({self.info.ref})"

    async def complete(self, request: Request) -> Completion:
        """See `Model.complete`."""
        if self.info.unsupported:
            raise self._failure(self.info.unsupported, retryable=False)
        return await _library.run(lambda litellm: self._complete(litellm, request))

    async def _complete(self, litellm: Any, request: Request) -> Completion:
        try:
            return await self._ask(litellm, request)
        except Exception as error:  # noqa: BLE001 - litellm promises no base class
            if not (self._asks_for_usage and _refuses_usage_option(error)):
                raise self._translated(error) from None
        self._asks_for_usage = False
        try:
            return await self._ask(litellm, request)
        except Exception as error:  # noqa: BLE001 - litellm promises no base class
            raise self._translated(error) from None

    async def _ask(self, litellm: Any, request: Request) -> Completion:
        answer = _Answer()
        async with contextlib.aclosing(self._stream(litellm, self._arguments(litellm, request))) as chunks:
            async for chunk in chunks:
                answer.add(chunk)
        return answer.completion(self.info.cost)

    async def _stream(self, litellm: Any, arguments: Json) -> AsyncGenerator[Any, None]:
        """litellm's chunks. Pings reset the socket's time limit without bringing any, hence another."""
        silence = 2 * self._timeout
        async with asyncio.timeout(silence):
            stream = await litellm.acompletion(**arguments)
        try:
            chunks, count = aiter(stream), 0
            while True:
                async with asyncio.timeout(silence):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
                count += 1
                if count % 8 == 0:  # data that has already arrived never yields to other requests by itself
                    await asyncio.sleep(0)
        finally:
            await stream.aclose()  # leaving the loop is not enough: the connection would stay open

    def _arguments(self, litellm: Any, request: Request) -> Json:
        import httpx

        info = self.info
        arguments: Json = {
            "model": info.litellm_model,
            "messages": [
                {"role": "system", "content": _clean(request.system)},
                {"role": "user", "content": _clean(request.prompt)},
            ],
            "max_tokens": request.max_tokens,
            "stream": True,
            "num_retries": 0,
            "max_retries": 0,
            "timeout": httpx.Timeout(connect=min(10, self._timeout), read=self._timeout, write=60, pool=10),
            "drop_params": True,
            "api_key": self._key or ("none" if info.is_loopback else None),
            **_routing(info, litellm.model_cost, uuid.uuid4().hex),
            **_thinking(info, request, litellm.model_cost),
        }
        if info.base_url:
            arguments["api_base"] = info.base_url
        headers = info.headers | arguments.pop("extra_headers", {})
        if headers:
            arguments["extra_headers"] = headers
        if self._asks_for_usage:
            arguments["stream_options"] = {"include_usage": True}
        return arguments

    def _translated(self, error: Exception) -> PiError:
        """litellm's exception as one of ours, without any key that the provider repeated in its answer."""
        if isinstance(error, PiError):
            return error
        if isinstance(error, TimeoutError):
            return self._failure(f"no answer for {2 * self._timeout:g} s", retryable=True)
        verdict = _verdict(error, self.info.provider)
        status, said = _status(error), self._redacted(_sentence(error))
        if verdict == "overflow":
            return ContextOverflow(f"{self.info.ref}: {said}", **self._data(retryable=False, status=status))
        if verdict == "no_key":
            return NoCredentials(
                f"{self.info.ref} has no key: set the key of the provider {self.info.provider}",
                provider=self.info.provider,
            )
        wait = retry_after(_headers(error))
        return self._failure(said, retryable=verdict == "transient", status=status, wait=wait)

    def _failure(
        self, said: str, *, retryable: bool, status: int | None = None, wait: float | None = None
    ) -> ProviderError:
        data = self._data(retryable=retryable, status=status)
        if wait is not None:
            data["retryAfterMs"] = int(wait * 1000)
        return ProviderError(f"{self.info.ref}: {said}", **data)

    def _data(self, *, retryable: bool, status: int | None = None) -> Json:
        known = {} if status is None else {"status": status}
        return {"provider": self.info.provider, "retryable": retryable} | known

    def _redacted(self, text: str) -> str:
        return redacted(text, [self._key or "", *self.info.headers.values()])


# --- one stream folded into an answer --------------------------------------------------------------------

_STOP_REASONS = {"stop": "stop", "length": "length", "tool_calls": "toolUse", "function_call": "toolUse"}


class _Answer:
    """Takes in litellm's chunks, one after the other."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: set[tuple[int, str]] = set()
        self._usage: Json = {}
        self.finish = "stop"

    def add(self, chunk: Any) -> None:
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self._usage = usage.model_dump(exclude_none=True)
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        self._text.append(choice.delta.content or "")
        self._thinking.append(getattr(choice.delta, "reasoning_content", None) or "")
        for call in choice.delta.tool_calls or ():
            if call.id:  # only the first piece of a call has one
                self._calls.add((call.index, call.id))
        if choice.finish_reason:
            self.finish = choice.finish_reason

    def completion(self, prices: ModelCost | None) -> Completion:
        return Completion(
            text="".join(self._text),
            thinking="".join(self._thinking),
            stop_reason=_STOP_REASONS.get(self.finish, "error"),
            usage=usage_from_litellm(self._usage, prices),
            tool_calls=len(self._calls),
        )


def usage_from_litellm(raw: Json, prices: ModelCost | None = None) -> Usage | None:
    """A usage as litellm reports it (OpenAI's form), or None where it says nothing.

    Its prompt tokens include those read from and written to a cache; here they are told apart, so that each
    token counts once. The cost comes from `prices`, or else is what litellm or the provider worked out.
    """
    prompt, output = number(raw.get("prompt_tokens")), number(raw.get("completion_tokens"))
    if prompt <= 0 and output <= 0:
        return None
    details = raw.get("prompt_tokens_details")
    details = details if is_object(details) else {}
    read = number(raw.get("cache_read_input_tokens")) or number(details.get("cached_tokens"))
    write = (
        number(raw.get("cache_creation_input_tokens"))
        or number(details.get("cache_creation_tokens"))
        or number(details.get("cache_write_tokens"))
    )
    usage = Usage(
        input=max(0, prompt - read - write),
        output=output,
        cache_read=read,
        cache_write=write,
        total_tokens=number(raw.get("total_tokens")) or prompt + output,
    )
    cost = _priced(usage, prices) if prices else Cost(total=number(raw.get("cost")))
    return msgspec.structs.replace(usage, cost=cost)


def _priced(usage: Usage, prices: ModelCost) -> Cost:
    million = 1_000_000
    input_, output = usage.input * prices.input / million, usage.output * prices.output / million
    read = usage.cache_read * prices.cache_read / million
    write = usage.cache_write * prices.cache_write / million
    return Cost(
        input=input_, output=output, cache_read=read, cache_write=write, total=input_ + output + read + write
    )


# --- what a request of its own asks for ------------------------------------------------------------------

_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""pi's thinking levels as the ones every reasoning model takes."""

_BUDGETS = {"low": 1_024, "medium": 2_048, "high": 4_096}
_THINKING_ROOM = 2 * _BUDGETS["high"]
"""The smallest output limit at which a reasoning budget leaves room for an answer."""


def _thinking(info: ModelInfo, request: Request, table: Json) -> Json:
    effort = _EFFORTS.get(request.thinking_level)
    if not info.reasoning or effort is None:
        return {}
    adapter, _, name = info.litellm_model.partition("/")
    if adapter == "anthropic":
        if request.max_tokens < _THINKING_ROOM:
            return {}  # the budget counts against the limit there, and one above it is refused
        if name not in table:  # litellm would drop the level
            return {
                "thinking": {"type": "enabled", "budget_tokens": _BUDGETS[effort]},
                "allowed_openai_params": ["thinking"],
            }
    elif adapter == "openai":  # the same, but there it can be told not to
        return {"reasoning_effort": effort, "allowed_openai_params": ["reasoning_effort"]}
    return {"reasoning_effort": effort}


def _routing(info: ModelInfo, table: Json, fresh: str) -> Json:
    """Keeps a one-off request away from the session's caches: a routing id of its own, no cache write.

    litellm marks nothing for caching by itself; where a provider caches unasked, it is asked not to.
    """
    adapter = info.litellm_model.partition("/")[0]
    if adapter == "anthropic":
        return {"metadata": {"user_id": fresh}}
    if adapter == "openrouter":
        return {"extra_body": {"session_id": fresh}}
    if adapter == "openai" and _is_openai(info.base_url):
        entry = table.get(info.id)
        explicit = is_object(entry) and entry.get("supports_prompt_cache_breakpoint")
        quiet: Json = {"prompt_cache_options": {"mode": "explicit"}} if explicit else {}
        return {"prompt_cache_key": fresh} | quiet
    return {
        "extra_headers": {"x-session-affinity": fresh}
    }  # strict servers refuse unknown fields, not headers


def _is_openai(base_url: str | None) -> bool:
    host = urlsplit(base_url or "https://api.openai.com").hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def _clean(text: str) -> str:
    """`text` as valid Unicode: halves of a surrogate pair joined, single ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- what went wrong -------------------------------------------------------------------------------------

_NO_KEY = re.compile(
    r"missing credentials|missing .{0,20}api key|api[_ ]key .{0,20}(?:not set|missing)", re.IGNORECASE
)
_SPENT = re.compile(r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE)
_OURS = re.compile(r"codec can't encode|not json serializable|LLM Provider NOT provided", re.IGNORECASE)
_USAGE_OPTION = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_LITELLM_PREFIX = re.compile(
    r"^(?:litellm\.)?\w*(?:Error|Timeout)\w*: |^\w+(?:Exception|Error) - |^(?:litellm\.)?\w+Error$"
    r"|^Error code: \d+(?: - )?"
)
_LITELLM_SUFFIX = re.compile(r"\s*(?:Original exception: |\.? Handle with `litellm).*", re.DOTALL)
_QUOTED_BYTES = re.compile(r"""b(?:'(.*)'|"(.*)")""", re.DOTALL)
_CREDENTIAL = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}|\bsk-[\w-]{8,}", re.IGNORECASE)
_TRANSIENT_STATUS = (408, 409, 425, 429)
_NEVER_OVERFLOW_STATUS = (429, 503, 529)

Verdict = Literal["overflow", "no_key", "refused", "transient"]


def _verdict(error: Exception, provider: str) -> Verdict:
    """Class and status first, because a text may quote the prompt; then the provider's words."""
    names = {kind.__name__ for each in _chain(error) for kind in type(each).__mro__}
    status, text = _status(error), _everything_said(error)
    if "ContextWindowExceededError" in names or status == 413:
        return "overflow"
    if status not in _NEVER_OVERFLOW_STATUS and says_overflow(text, provider):
        return "overflow"
    if _NO_KEY.search(text):
        return "no_key"
    if _SPENT.search(text) or _OURS.search(text):
        return "refused"
    if status is not None and 400 <= status < 500 and status not in _TRANSIENT_STATUS:
        return "refused"
    return "transient"


def is_overflow_error(error: Exception, provider: str = "") -> bool:
    """Whether an exception of litellm means that the request was longer than the context window."""
    return _verdict(error, provider) == "overflow"


def retry_after(headers: Json) -> float | None:
    """Seconds after which a provider wants to be asked again, from the headers of its answer."""
    named = {str(name).lower(): str(value) for name, value in headers.items()}
    with contextlib.suppress(KeyError, ValueError):
        return max(0.0, float(named["retry-after-ms"]) / 1000)
    with contextlib.suppress(KeyError, ValueError):
        return max(0.0, float(named["retry-after"]))
    with contextlib.suppress(KeyError, ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(named["retry-after"]).timestamp() - time.time())
    return None


def redacted(text: str, secrets: Iterable[str]) -> str:
    """`text` without the given secrets, and without what looks like a key."""
    for secret in secrets:
        for form in {secret, secret.removeprefix("Bearer ")}:
            if len(form) >= 4:
                text = text.replace(form, "[key]")
    return _CREDENTIAL.sub("[key]", text)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it wraps or was raised from, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < 6:
        chain.append(current)
        current = getattr(current, "original_exception", None) or current.__cause__ or current.__context__
    return chain


_WITHOUT_ANSWER = ("APIConnectionError", "APITimeoutError", "Timeout", "MidStreamFallbackError")


def _status(error: Exception) -> int | None:
    """The answer's HTTP status; None where there was no answer, whatever number litellm makes up for that."""
    chain = _chain(error)
    if any(type(each).__name__ in _WITHOUT_ANSWER for each in chain):
        return None
    statuses = [getattr(each, "status_code", None) for each in chain]
    # the innermost is the provider's: litellm maps some to others (529 to 500, 413 to 400)
    return next((status for status in reversed(statuses) if isinstance(status, int)), None)


def _headers(error: Exception) -> Json:
    found: Json = {}
    for each in _chain(error):
        for source in (
            getattr(getattr(each, "response", None), "headers", None),
            getattr(each, "litellm_response_headers", None),
        ):
            found = dict(source or {}) | found
    return found


def _everything_said(error: Exception) -> str:
    """All the words of the chain; the message alone loses them where the body has an unusual shape."""
    parts: list[str] = []
    for each in _chain(error):
        parts.append(str(each)[:4_000])
        body = getattr(each, "body", None)
        if body:
            parts.append(str(body)[:4_000])
    return "\n".join(parts)


def _sentence(error: Exception) -> str:
    """What a person should read: the provider's own words where there are any, in one line."""
    said = _message_in_body(error) or _without_wrapping(str(error))
    if not said:
        status = _status(error)
        said = f"HTTP status {status}, without a word" if status else type(error).__name__
    return said if len(said) <= 400 else said[:399] + "…"


def _without_wrapping(text: str) -> str:
    """An exception's text without what litellm puts around a provider's answer."""
    said = " ".join(_LITELLM_SUFFIX.sub("", text).split())
    while (shorter := _LITELLM_PREFIX.sub("", said, count=1)) != said:
        said = shorter
    quoted = _QUOTED_BYTES.fullmatch(said)
    if quoted:
        said = quoted[1] or quoted[2] or ""
        with contextlib.suppress(ValueError):
            said = _message_of(json.loads(said)) or said
    return said


def _message_in_body(error: Exception) -> str | None:
    for each in _chain(error):
        body = getattr(each, "body", None)
        if isinstance(body, str):
            with contextlib.suppress(ValueError):
                body = json.loads(body)
        if isinstance(body, str) and body and not body.lstrip().startswith("<"):
            return " ".join(body.split())
        message = _message_of(body)
        if message:
            return message
    return None


def _message_of(body: Any) -> str | None:
    """The sentence in an error body of a usual shape: `{error: {message}}`, `{error}` or `{message}`."""
    if not is_object(body):
        return None
    inner = body.get("error")
    message = inner.get("message") if is_object(inner) else inner or body.get("message")
    return message if isinstance(message, str) and message else None


def _refuses_usage_option(error: Exception) -> bool:
    return _status(error) in (400, 422) and _USAGE_OPTION.search(_everything_said(error)) is not None


# --- litellm on its thread -------------------------------------------------------------------------------

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import fetches a price list
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",  # else it loads the next .env file up from site-packages
    "LITELLM_LOG": "CRITICAL",  # an unknown level would make the import raise
    "LITELLM_RUST": "false",
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",  # else an answer with 100 equal pieces is an error
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _Library:
    """litellm and the loop it runs on. A daemon thread: a process may end in the middle of the import."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._module: Any = None
        self._broken: BaseException | None = None

    async def run(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Runs `work(litellm)` on the library's loop; cancelling the wait cancels it there."""
        future = asyncio.run_coroutine_threadsafe(self._run(work), self._started())
        return await asyncio.wrap_future(future)

    async def _run(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        await asyncio.sleep(0)  # a cancellation that came during the import takes effect before any request
        if self._broken is not None:
            raise ProviderError(
                f"litellm cannot be loaded: {self._broken}. Install pi-ls again.",
                provider="litellm",
                retryable=False,
            )
        return await work(self._module)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._serve, args=(self._loop,), name="pi-ls-llm", daemon=True
                ).start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        interval, collecting = sys.getswitchinterval(), gc.isenabled()
        gc.disable()  # collections during an import of thousands of modules would stall every thread
        sys.setswitchinterval(0.001)
        try:
            self._module = _import_litellm()
        except BaseException as error:  # noqa: BLE001 - a broken install must not take the server down
            self._broken = error
        finally:
            gc.freeze()
            sys.setswitchinterval(interval)
            if collecting:
                gc.enable()
        asyncio.set_event_loop(loop)
        loop.run_forever()


def _import_litellm() -> Any:
    os.environ.update(_ENVIRONMENT)
    _reach_loopback_directly()
    import litellm

    litellm.suppress_debug_info = True  # it prints advice on standard output
    litellm.disable_token_counter = True  # a missing usage reads as zeros instead of invented numbers
    litellm.disable_streaming_logging = True
    litellm.enable_anthropic_prompt_caching = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
        logger.setLevel(logging.CRITICAL)
    return litellm


def _reach_loopback_directly() -> None:
    """A proxy for the world cannot reach a server on this machine; clients read this when they are made."""
    for name in ("NO_PROXY", "no_proxy"):
        listed = [host.strip() for host in os.environ.get(name, "").split(",") if host.strip()]
        missing = [host for host in _LOOPBACK if host not in listed]
        os.environ[name] = ",".join(listed + missing)


_library = _Library()


# --- counting tokens of text -----------------------------------------------------------------------------

_ENCODING = "cl100k_base"
_ENCODING_FILE = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
"""tiktoken names its files by the hash of their address; litellm's package brings this one along."""
_SLICE = 32_768
"""Longer texts are counted in slices: the encoder panics on a very long run of blanks."""

_encoding_lock = threading.Lock()
_encoding: Any = None  # None: not tried yet, False: cannot be loaded


def text_counter(kind: Literal["tiktoken", "chars"]) -> CountText | None:
    """Counts tokens of text with tiktoken, or None where `kind` is "chars" or no encoding can be loaded.

    Loading takes a third of a second once per process and never uses the network. Thread-safe, as is what
    it returns.
    """
    if kind != "tiktoken":
        return None
    encoding = _load_encoding()
    if not encoding:
        return None

    def count(text: str) -> int:
        slices = range(0, len(text), _SLICE)
        return sum(_count_slice(encoding, text[start : start + _SLICE]) for start in slices)

    return count


def _count_slice(encoding: Any, text: str) -> int:
    try:
        return len(encoding.encode_ordinary(text))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the native code's own, derived from BaseException
            raise
        return (len(text) + 3) // 4


def _load_encoding() -> Any:
    global _encoding
    with _encoding_lock:
        if _encoding is None:
            try:
                _encoding = _read_encoding()
            except Exception:  # noqa: BLE001 - whatever is wrong with it, estimates go on without it
                logging.getLogger(__name__).warning(
                    "No tiktoken encoding: token counts are estimated by length"
                )
                _encoding = False
    return _encoding


def _read_encoding() -> Any:
    folder = _encoding_folder()
    if folder is None:
        return False
    import tiktoken
    import tiktoken.load

    def refuse(address: str) -> bytes:
        raise OSError(f"not downloaded: {address}")

    setattr(tiktoken.load, "read_file", refuse)  # noqa: B010 - a file it holds for damaged is never fetched anew
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        return tiktoken.get_encoding(_ENCODING)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


def _encoding_folder() -> Path | None:
    """Where litellm's package keeps the encoding; found without importing it."""
    spec = importlib.util.find_spec("litellm")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        usual = Path(root) / "litellm_core_utils" / "tokenizers"
        if (usual / _ENCODING_FILE).is_file():
            return usual
        for found in Path(root).rglob(_ENCODING_FILE):
            return found.parent
    return None
