"""Keys are nowhere but in requests to their provider: what takes them out."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from pi_ls import secrets
from pi_ls.core.errors import WriteFailed
from pi_ls.secrets import RedactingFormatter, learn, redacted, without_secrets
from pi_ls.server.protocol import wire_error
from pi_ls.session.agent_session import free_of_secrets

KEY = 'canary-Zx9/q+0123456789"é'
CANARY = "canary-Zx9"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", {})


def test_a_known_key_and_what_looks_like_one_leave_a_sentence():
    learn(KEY)
    text = f"key {KEY}, Bearer abc.def-123, sk-12345678, none"
    assert redacted(text) == "key [key], [key], [key], none"


def test_content_loses_known_keys_in_every_spelling_and_nothing_else():
    learn(KEY, "ollama", "sk-test-1", None, "", "abc")
    for data in (json.dumps({"k": KEY}), json.dumps({"k": KEY}, ensure_ascii=False)):
        assert json.loads(without_secrets(data.encode())) == {"k": "[key]"}
    kept = b'{"a": "ollama, Bearer of good news, sk-12345678, abc"}'
    assert without_secrets(kept) is kept
    assert without_secrets(b"sk-test-1") == b"[key]"


def test_an_entry_without_a_key_is_the_same_object():
    learn(KEY)
    body: dict[str, Any] = {"type": "message", "message": {"content": "plain"}}
    assert free_of_secrets(body) is body
    assert CANARY not in str(free_of_secrets({"type": "message", "message": {"content": f"x {KEY} y"}}))


def test_log_lines_and_tracebacks_lose_keys():
    learn(KEY)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RedactingFormatter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError(f"with {KEY}")
    except ValueError:
        logger.exception("failed with %s", KEY)
    assert CANARY not in stream.getvalue()
    assert stream.getvalue().count("[key]") == 2


def test_an_error_on_the_wire_loses_what_looks_like_a_key():
    told = wire_error(WriteFailed("refused for sk-guessed-but-wrong-0001"))
    assert told.message == "refused for [key]"
