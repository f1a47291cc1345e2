"""The Neovim plugin, in a real Neovim with the real server: one test for each file of `editors/nvim/tests`.

Neovim comes with the development requirements; `NVIM_BIN` names another one. Without any, the tests fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TESTS = ROOT / "editors" / "nvim" / "tests"
TIMEOUT_S = 200


def neovim() -> str:
    """The Neovim to test with: the one named, the one beside this Python, the one on PATH."""
    beside = shutil.which("nvim", path=str(Path(sys.executable).parent))
    found = os.environ.get("NVIM_BIN") or beside or shutil.which("nvim")
    if found is None:
        pytest.fail("There is no Neovim: install the development requirements, or set NVIM_BIN")
    return found


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the plugin's tests with our Python and that Neovim."""
    environment = {**os.environ, "NVIM_BIN": neovim(), "PI_LS_PYTHON": sys.executable}
    return subprocess.run(
        [str(TESTS / script), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("name", sorted(path.name for path in TESTS.glob("*_test.lua")))
def test_in_neovim(name: str) -> None:
    done = run("run.sh", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_on_the_screen() -> None:
    done = run("screen.sh")
    assert done.returncode == 0, done.stdout + done.stderr
