"""Keys are nowhere but in requests to their provider: what takes them out, and every channel there is."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pi_ls import secrets
from pi_ls.secrets import RedactingFormatter, learn, redacted, without_secrets
from pi_ls.session.agent_session import free_of_secrets
from tests import sessions
from tests.e2e.conftest import Home, Start, home, start  # noqa: F401
from tests.provider import ProviderProcess, Reply, error

KEY = 'canary-Zx9/q+0123456789"é'
CANARY = "canary-Zx9"
PROVIDER_KEY = "canary-Zx9-0123456789-in-ascii"
FALSE_KEY = "sk-guessed-but-wrong-0001"


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


EXTENSION = f"""
import logging
from pi_ls import hookimpl
KEY = {KEY!r}
print("printed by an extension, which is its own affair")

@hookimpl
def session_tree():
    logging.getLogger("ext").warning("logged %s", KEY)
    raise ValueError("raised " + KEY)
"""


async def test_no_channel_of_a_server_has_a_key(home: Home, start: Start, tmp_path: Path):  # noqa: F811
    with ProviderProcess() as provider:
        home.use(provider)
        models = home.agent_dir / "models.json"
        told = json.loads(models.read_text())
        told["providers"]["fake"]["apiKey"] = PROVIDER_KEY
        models.write_text(json.dumps(told))
        (home.agent_dir / "auth.json").write_text(json.dumps({"openai": {"type": "api_key", "key": KEY}}))
        (home.agent_dir / "extensions").mkdir()
        (home.agent_dir / "extensions" / "leaky.py").write_text(EXTENSION)
        file = home.add_long()
        server = await start()
        settings = {"retry": {"enabled": False}}
        await server.initialize(home.params(trusted=True, settings=settings))
        await server.result("pi.sessionState")
        wrong = f"invalid key {KEY} and {PROVIDER_KEY}, or {FALSE_KEY}"
        provider.queue(error(401, wrong), error(400, wrong), Reply(text=f"the key is {PROVIDER_KEY} here"))
        for _ in range(2):
            answer = await server.answer(server.begin_command("pi.compact"), 60)
            assert "error" in answer
            assert "[key]" in answer["error"]["message"]
        await server.answer(server.begin_command("pi.prompt", {"text": f"my key is {KEY}"}), 60)
        await server.notification("pi/agent_settled", 60)
        output = await server.result("pi.bash", {"command": f"cat {home.agent_dir / 'auth.json'}"})
        assert "[key]" in output["output"]
        await server.result("pi.navigateTree", {"targetId": "a1"})
        failure = await server.notification("pi/extension_error")
        assert "raised ValueError: raised [key]" in failure["error"]
        await server.result("pi.navigateTree", {"targetId": sessions.read(file)[-1]["id"]})
        exports = [
            Path((await server.result("pi.exportSession", {"format": kind}))["path"])
            for kind in ("markdown", "jsonl")
        ]
        for export in exports:
            assert "[key]" in export.read_text()
        await server.result("pi.getMessages")
        await server.shutdown()
        await server.code()
        everything = {
            "the wire": json.dumps(server.messages, ensure_ascii=False),
            "the log": (await server.stderr).decode(),
            "the session file": file.read_text(),
            **{export.name: export.read_text() for export in exports},
        }
        assert "logged [key]" in everything["the log"]
        for channel, content in everything.items():
            assert CANARY not in content, channel
            assert FALSE_KEY not in content, channel
        assert any(CANARY in str(request) for request in provider.requests), "the provider got it"
