"""What a request asks of a provider beyond its messages: how to route and cache it, how much to reason.

One that stands alone is sent once and never continued, so it should stay out of the session's caches; the
session's own should stay together. Both reason as the session does, as far as that leaves room to answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pi_ls.core.jsonvalues import Json, is_object

if TYPE_CHECKING:
    from pi_ls.models import ModelInfo

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


def thinking(info: ModelInfo, level: str, max_tokens: int, table: Json) -> Json:
    """The arguments that ask for reasoning at pi's `level`; none where the model does not reason.

    `max_tokens` is the answer's limit, `table` litellm's own of the models it knows.
    """
    effort = _EFFORTS.get(level)
    if not info.reasoning or effort is None:
        return {}
    adapter, _, name = info.litellm_model.partition("/")
    if adapter == "anthropic":
        if max_tokens < _THINKING_ROOM:
            return {}  # the budget counts against the limit there, and one above it is refused
        if name not in table:  # litellm would drop the level
            return {
                "thinking": {"type": "enabled", "budget_tokens": _BUDGETS[effort]},
                "allowed_openai_params": ["thinking"],
            }
    elif adapter == "openai":  # the same, but there it can be told not to
        return {"reasoning_effort": effort, "allowed_openai_params": ["reasoning_effort"]}
    return {"reasoning_effort": effort}


def routing(info: ModelInfo, table: Json, fresh: str) -> Json:
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
    if adapter == "openai":  # a server like it: strict ones refuse unknown fields, but no headers
        return {"extra_headers": {"x-session-affinity": fresh}}
    return {}


def session_routing(info: ModelInfo, session_id: str) -> Json:
    """Keeps the requests of one session together, so that a provider finds its own cache again."""
    adapter = info.litellm_model.partition("/")[0]
    if adapter == "anthropic":
        system, newest = {"location": "message", "role": "system"}, {"location": "message", "index": -1}
        return {"cache_control_injection_points": [system, newest]}
    if adapter == "openrouter":
        return {"extra_body": {"session_id": session_id}}
    if adapter == "openai" and _is_openai(info.base_url):
        return {"prompt_cache_key": session_id}
    if adapter == "openai":
        return {"extra_headers": {"x-session-affinity": session_id}}
    return {}


def limit_name(info: ModelInfo) -> str:
    """What the answer's limit is called: OpenAI has renamed it, servers like it may not know the new name."""
    own = info.litellm_model.startswith("openai/") and _is_openai(info.base_url)
    return "max_completion_tokens" if own else "max_tokens"


def _is_openai(base_url: str | None) -> bool:
    host = urlsplit(base_url or "https://api.openai.com").hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def valid(text: str) -> str:
    """`text` as valid Unicode: halves of a surrogate pair joined, single ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
