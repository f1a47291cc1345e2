"""The README's script, run as a new user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import sessions
from tests.e2e.conftest import ROOT, Home
from tests.provider import Call, ProviderProcess, Reply, error


def script() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- script -->\n```python3\n(.*?)```\n<!-- /script -->", text, re.DOTALL)
    assert found
    return found[1]


def without_keys(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.endswith("_API_KEY")}


def run(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), home.env["PATH"]])
    return subprocess.run(
        [sys.executable, "-c", script(), *arguments],
        cwd=home.folder,
        env={**without_keys(home.env), "PATH": path},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


def test_the_script_prompts_the_agent_and_prints_what_it_says(home: Home, provider: ProviderProcess) -> None:
    wanted = Call("c1", "write", '{"path": "hello.txt", "content": "hello"}')
    provider.queue(Reply(text="Writing it.", calls=[wanted], finish="tool_calls"), Reply(text="Done: 你好."))
    done = run(home, "write hello.txt")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Writing it.\nDone: 你好.\n"
    assert (home.folder / "hello.txt").read_text() == "hello"
    [file] = home.sessions().glob("*.jsonl")
    assert len(sessions.read(file)) >= 5


def test_the_script_says_what_is_missing(home: Home) -> None:
    done = run(home, "hello")
    assert (done.returncode, done.stderr.strip()) == (1, "No model selected")


def test_the_script_says_why_there_is_no_answer(home: Home, provider: ProviderProcess) -> None:
    provider.queue(error(401, "Incorrect API key provided"))
    done = run(home, "hello")
    assert (done.returncode, done.stderr.strip()) == (1, "fake/m200: Incorrect API key provided")
