"""What went wrong, in our words: litellm's exceptions classified and quoted.

Each provider fails in its own way, and litellm maps these ways to classes and statuses of its own, now and
then to wrong ones. So what counts is what the provider itself answered: the deepest in a chain of exceptions.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import os
import re
import time
from typing import Any, Literal

from pi_ls.core.jsonvalues import Json, is_object
from pi_ls.core.overflow import says_overflow

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
_TRANSIENT_STATUS = (408, 409, 425, 429)
_NEVER_OVERFLOW_STATUS = (429, 503, 529)

Verdict = Literal["overflow", "no_key", "refused", "transient"]


def verdict(error: Exception, provider: str) -> Verdict:
    """Class and status first, because a text may quote the prompt; then the provider's words."""
    names = {kind.__name__ for each in _chain(error) for kind in type(each).__mro__}
    status, text = status_of(error), _everything_said(error)
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
    return verdict(error, provider) == "overflow"


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


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it wraps or was raised from, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < 6:
        chain.append(current)
        current = getattr(current, "original_exception", None) or current.__cause__ or current.__context__
    return chain


_WITHOUT_ANSWER = ("APIConnectionError", "APITimeoutError", "Timeout", "MidStreamFallbackError")


def status_of(error: Exception) -> int | None:
    """The answer's HTTP status; None where there was no answer, whatever number litellm makes up for that."""
    chain = _chain(error)
    if any(type(each).__name__ in _WITHOUT_ANSWER for each in chain):
        return None
    statuses = [getattr(each, "status_code", None) for each in chain]
    # the innermost is the provider's: litellm maps some to others (529 to 500, 413 to 400)
    return next((status for status in reversed(statuses) if isinstance(status, int)), None)


def headers_of(error: Exception) -> Json:
    """The headers of the answer that the error is about; empty where there was none."""
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


def sentence(error: Exception) -> str:
    """What a person should read: the provider's own words where there are any, in one line."""
    said = _message_in_body(error) or _not_reached(error) or _without_wrapping(str(error))
    if not said:
        status = status_of(error)
        said = f"HTTP status {status}, without a word" if status else type(error).__name__
    return said if len(said) <= 400 else said[:399] + "…"


def _not_reached(error: Exception) -> str | None:
    """Who could not be reached, and why; None where somebody answered, or nobody knows."""
    for each in _chain(error):
        host, cause = getattr(each, "host", None), getattr(each, "os_error", None)
        if isinstance(host, str) and isinstance(cause, OSError):
            number = cause.errno or 0
            why = os.strerror(number) if number > 0 else cause.strerror  # below 0: of looking up a name
            return f"no connection to {host}:{getattr(each, 'port', '')} ({why})"
    return None


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


def refuses_usage_option(error: Exception) -> bool:
    """Whether a server refused the request for asking it to report usage in a stream."""
    return status_of(error) in (400, 422) and _USAGE_OPTION.search(_everything_said(error)) is not None
