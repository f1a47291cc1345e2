from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pi_ls.store import SessionFile
from tests import sessions

ROOT = Path(__file__).parent.parent


def run_child(*arguments: str | Path, **more: str) -> str:
    """What a child process of `store_child` says; fails as it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.store_child", *map(str, arguments)],
        cwd=ROOT,
        env=more or None,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@contextmanager
def child(*arguments: str | Path) -> Generator[subprocess.Popen[str]]:
    """A child process of `store_child` that is spoken with."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.store_child", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("seed", ["1", "2"])
def test_killing_at_any_moment_of_200_appends_loses_no_acknowledged_entry(tmp_path: Path, seed: str) -> None:
    said = run_child("kill_appends", tmp_path, "100", seed)
    assert int(said.split()[0]) > 50, said


def test_killing_at_any_moment_of_50_rewrites_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    said = run_child("kill_rewrites", tmp_path, "50", "3")
    assert int(said.split()[0]) > 10, said


def test_two_processes_that_append_at_the_same_time_lose_no_line(tmp_path: Path) -> None:
    path = sessions.write(tmp_path / "s.jsonl", [sessions.header(), sessions.user("u1", None, "start")])
    with (
        child("append_together", path, "50", "one") as one,
        child("append_together", path, "50", "two") as two,
    ):
        both = (one, two)
        assert [said_by(process) for process in both] == ["ready", "ready"]
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [said_by(process) for process in both] == ["done", "done"]
    lines = sessions.read(path)[1:]
    assert len(lines) == 101
    assert len({line["id"] for line in lines}) == 101
    texts = [line["message"]["content"] for line in lines[1:]]
    for name in ("one", "two"):
        assert [text for text in texts if text.startswith(name)] == [f"{name} {at}" for at in range(50)]
    # Each looked first, so everything is one chain.
    assert [line["parentId"] for line in lines[1:]] == [line["id"] for line in lines[:-1]]
    assert not SessionFile.open(path).problems
