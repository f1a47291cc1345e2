"""The fragments for other editors, each in the editor itself where that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EDITORS = Path(__file__).parent.parent.parent / "editors"
TIMEOUT_S = 150


def has_emacs_with_eglot() -> bool:
    """Whether Emacs is here and finds eglot, its own or a package."""
    if shutil.which("emacs") is None:
        return False
    code = '(progn (package-initialize) (kill-emacs (if (locate-library "eglot") 0 1)))'
    return (
        subprocess.run(["emacs", "--batch", "--eval", code], capture_output=True, check=False).returncode == 0
    )


def run(script: Path) -> None:
    done = subprocess.run(
        [str(script)],
        env={**os.environ, "PI_LS_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_emacs_connects_shows_the_meter_compacts_and_moves() -> None:
    if not has_emacs_with_eglot():
        pytest.skip("Emacs with eglot is not installed")
    run(EDITORS / "emacs" / "tests" / "run.sh")


@pytest.mark.skipif(
    shutil.which(os.environ.get("HELIX", "hx")) is None or shutil.which("tmux") is None,
    reason="Helix or tmux is not installed (HELIX names its program)",
)
def test_helix_connects_and_runs_commands() -> None:
    run(EDITORS / "helix" / "tests" / "run.sh")
