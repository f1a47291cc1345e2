"""Telling a context overflow from every other failure.

Providers agree on nothing here: each has its own sentence, some use a status of their own, and some say
nothing at all. What this module does not recognise leaves a session stuck; what it takes for an overflow
wrongly rewrites history for a rate limit. So texts about rates are ruled out before anything else.
"""

from __future__ import annotations

import re

from pi_ls.core.messages import AssistantMessage

_NEVER = re.compile(
    r"""
      rate.?limit | too\ many\ requests | throttl | quota | service\ unavailable | overloaded
    | (?:tokens|requests)\ per\ (?:second|minute|hour|day) | \b(?:tpm|rpm)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)

_SENTENCES = re.compile(
    r"""
      (?:prompt|input)\ (?:is\ )?too\ (?:long|large)
    | context[_ ](?:length|window)[_ ]exceeded | ContextWindowExceeded | exceed_context_size
    | request_too_large
    | max_prompt_tokens_exceeded | model_context_window_exceeded
    | exceeds?\ (?:the\ )?(?:available\ |configured\ |model'?s?\ )?(?:maximum\ )?context
    | exceeds?\ (?:the\ )?maximum\ allowed\ input\ length | exceeds?\ max(?:imum)?\ length
    | exceeded\ (?:the\ )?(?:max(?:imum)?\ context\ length|model\ token\ limit)
    | exceeds?\ the\ maximum\ size
    | context\ window\ exceeds
    | (?:longer|greater)\ than\ the\ (?:model'?s?\ )?context\ length
    | maximum\ (?:context|prompt|input)\ length\ (?:is|of)\ [\d,]+
    | (?:the\ )?configured\ context\ size\ is\ [\d,]+ | loaded\ with\ context\ length
    | token\ count\b.{0,60}?\bexceeds? | input\ tokens\ exceed
    | too\ large\ for\ model\ with | supports\ only\ [\d.,]+\s*[km]?\ (?:tokens?\ of\ )?context
    | range\ of\ input\ length\ should\ be
    | reduce\ the\ length\ of\ (?:the\ |your\ |either\ )?(?:messages|prompt|input)
    | too\ many\ (?:input\ )?tokens\b | token\ limit\ exceeded
    """,
    re.IGNORECASE | re.VERBOSE,
)

_STATUS_413 = re.compile(r"^\s*413\b|\(413\)|\bstatus(?: code)?:? 413\b", re.IGNORECASE)
_SILENT_400 = re.compile(r"^\s*400\b.{0,20}\(no body\)", re.IGNORECASE)
_SILENT_PROVIDERS = ("cerebras",)


def says_overflow(text: str, provider: str = "") -> bool:
    """Whether a provider's error text says that the request was longer than the context window."""
    if _STATUS_413.search(text):
        return True
    if _NEVER.search(text):
        return False
    if provider in _SILENT_PROVIDERS and _SILENT_400.search(text):
        return True
    return _SENTENCES.search(text) is not None


def is_context_overflow(message: AssistantMessage, context_window: float | None) -> bool:
    """Whether an answer failed for want of room, or went past the window without saying so.

    Besides errors that say it, that is a finished answer whose prompt was longer than the window (a server
    that cuts prompts silently), and one that was cut off before its first token with the window full.
    """
    if message.stop_reason == "error":
        return message.error_message is not None and says_overflow(message.error_message, message.provider)
    if not context_window or context_window <= 0 or message.usage is None:
        return False
    prompt = message.usage.input + message.usage.cache_read
    if message.stop_reason == "stop":
        return prompt > context_window
    return message.stop_reason == "length" and message.usage.output == 0 and prompt >= 0.99 * context_window
