"""The one place that keeps keys out of what is told, written and logged.

Whoever reads a key tells it here (`learn`). Two things are done with what is known:

    redacted            for sentences (errors, logs): known keys, and whatever looks like a key
    without_secrets     for content (messages to the client, session files, exports): known keys alone, and
                        only those that cannot be an ordinary word, since nothing else may be touched there

Keys go to providers and nowhere else; nothing here ever writes one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable

STAND_IN = "[key]"
"""What stands where a key was."""

_SHORTEST = 6
"""What is shorter is a stopgap such as "none", and taking it out would only spoil sentences."""
_SHORTEST_IN_CONTENT = 16
"""What is shorter may be a word of a conversation ("ollama"), unless it has the form of a key."""
_LOOKS_LIKE_A_KEY = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}|\bsk-[\w-]{8,}", re.IGNORECASE)
_SCHEME = re.compile(r"^(?:bearer|basic|token)\s+", re.IGNORECASE)
_FORM_OF_A_KEY = re.compile(r"(?:sk|pk|gsk|xai|ghp|hf)[-_][\w-]{5,}")

_known: dict[str, tuple[bytes, ...]] = {}
"""Every key, and the bytes it is in JSON; none for one that is not looked for in content."""


def learn(*secrets: str | None) -> None:
    """Know these keys from now on. What is too short to be one is passed over."""
    for secret in secrets:
        form = _SCHEME.sub("", (secret or "").strip())
        if len(form) >= _SHORTEST and form not in _known:
            certain = len(form) >= _SHORTEST_IN_CONTENT or _FORM_OF_A_KEY.fullmatch(form)
            _known[form] = _spellings(form) if certain else ()


def _spellings(secret: str) -> tuple[bytes, ...]:
    """A key as plain text, as JSON, and as JSON inside of JSON (a tool's output that quotes a file)."""
    texts = {secret}
    for _ in range(2):
        texts |= {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in texts for ascii in (True, False)}
    return tuple(text.encode("utf-8", "replace") for text in sorted(texts, key=len, reverse=True))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """A sentence without the keys that are known, without these, and without what looks like a key."""
    for secret in (*secrets, *tuple(_known)):
        for form in (secret, secret.removeprefix("Bearer ")):
            if len(form) >= _SHORTEST:
                text = text.replace(form, STAND_IN)
    return _LOOKS_LIKE_A_KEY.sub(STAND_IN, text)


def without_secrets(data: bytes) -> bytes:
    """Content, JSON or plain, without the keys that are known; the same object where there is none in it."""
    for spellings in tuple(_known.values()):
        for spelling in spellings:
            if spelling in data:
                data = data.replace(spelling, STAND_IN.encode())
    return data


class RedactingFormatter(logging.Formatter):
    """Log lines, tracebacks included, without keys."""

    def format(self, record: logging.LogRecord) -> str:
        """The line as it may be read by anybody."""
        return redacted(super().format(record))


def guard_logging() -> None:
    """Let everything that is logged go to stderr without keys."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
