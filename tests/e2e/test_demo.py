"""The demo as a visitor runs it, and the picture of it in the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.picture import WIDTH, comparable, drawn, excerpts


class Shown:
    """What one run of the demo wrote, and how long it took."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pi_ls", "demo", *arguments],
            cwd=home,
            env={**environ(), "HOME": str(home), "TMPDIR": str(home), "COLUMNS": WIDTH},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=90,
        )
        self.seconds = time.monotonic() - started
        self.exit_code, self.output, self.errors = done.returncode, done.stdout, done.stderr


def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PI_")}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(tmp_path_factory.mktemp("home"))


def test_the_demo_ends_well_and_soon(shown: Shown) -> None:
    assert (shown.exit_code, shown.errors) == (0, "")
    assert shown.seconds < 15


def test_the_demo_leaves_nothing_behind(shown: Shown) -> None:
    assert list(shown.home.rglob("*")) == []


def test_a_pipe_gets_no_colours_and_no_line_that_is_too_long(shown: Shown) -> None:
    assert "\x1b" not in shown.output
    assert max(len(line) for line in shown.output.splitlines()) <= int(WIDTH)


def test_the_meter_falls_with_each_step(shown: Shown) -> None:
    percents = [float(found) for found in re.findall(r"[█░] +~?([\d.]+)%", shown.output)]
    assert len(percents) == 3
    assert percents == sorted(percents, reverse=True)
    assert percents[2] < percents[0] / 2


@pytest.mark.parametrize(
    "pair",
    [
        (r"\$/progress +begin · Summariz?s?ing branch", r"\$/progress +end"),
        (r"pi/compaction_start", r"pi/compaction_end"),
        (r"▸ pi\.navigateTree", r"branch_summary [0-9a-f]{8} under"),
        (r"▸ pi\.compact", r"compaction [0-9a-f]{8} under"),
    ],
    ids=lambda pair: pair[0],
)
def test_what_begins_is_seen_to_end(shown: Shown, pair: tuple[str, str]) -> None:
    first, then = (re.search(pattern, shown.output) for pattern in pair)
    assert first
    assert then
    assert first.start() < then.start()


def test_the_readme_shows_what_the_demo_prints(shown: Shown) -> None:
    printed = list(comparable(excerpts(shown.output)))
    assert list(comparable(drawn())) == printed, "`make picture` puts the demo's output into the README"


# -- the agent's


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(tmp_path_factory.mktemp("home"), "--agent")


def test_the_agents_demo_ends_well(agent: Shown) -> None:
    assert (agent.exit_code, agent.errors) == (0, "")
    assert "Nothing was kept, nothing left this machine." in agent.output
    assert list(agent.home.rglob("*")) == []
    assert "\x1b" not in agent.output
    assert max(len(line) for line in agent.output.splitlines()) <= int(WIDTH)


def test_the_agent_is_seen_to_read_test_make_room_mend_and_test_again(agent: Shown) -> None:
    told = [
        r"▸ pi\.prompt",
        r"▸ bash ls",
        r"▸ read clock\.py",
        r"▸ bash python -m unittest",
        r"FAIL: test_seconds_have_two_digits",
        r"▸ read recordings\.csv",
        r"◂ pi/compaction_start +reason: threshold",
        r"◂ pi/compaction_end +[\d,]+ tokens before, about [\d,]+ after",
        r"## Goal",
        r"▸ edit clock\.py",
        r"▸ bash python -m unittest",
        r"│ OK",
        r"What came of it",
        r'return f"\{seconds // 60\}:\{seconds % 60:02\}"',
    ]
    at = 0
    for pattern in told:
        found = re.search(pattern, agent.output[at:])
        assert found, pattern
        at += found.end()
    assert len(re.findall("compaction_start", agent.output)) == 1


def test_the_window_is_fuller_turn_by_turn_until_room_is_made(agent: Shown) -> None:
    before, after = agent.output.split("pi/compaction_start")
    percents = [int(found) for found in re.findall(r"tokens, (\d+)% of the window", before)]
    assert percents == sorted(percents)
    assert int(re.findall(r"tokens, (\d+)% of the window", after)[0]) < 60
