"""The picture of the demo in the README: which of its lines are shown there.

    python -m tests.picture

runs the demo and puts them into the README anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
WIDTH = "100"
LEFT_OUT = "  ⋮"

EXCERPTS: tuple[tuple[str, str | int], ...] = (
    ("An editor starts the server", "What stays of the branch"),
    ("## Key Decisions", 2),
    ("measured+estimate", "The summary that now stands"),
    ("## Constraints & Preferences", 3),
    ("## Key Decisions", 2),
    ("not measured yet", "Nothing is lost"),
    ("[root cause]", 3),
    ("└─● user", 1),
    ("[ready to merge]", 2),
    ("└─● summary", "Done in"),
)
"""Where each excerpt begins, and where it ends: at a line with that text, or after so many lines."""

_BLOCK = re.compile(r"(?<=<!-- demo -->\n```text\n).*?(?=```\n<!-- /demo -->)", re.DOTALL)


def excerpts(output: str) -> list[str]:
    """The lines of the demo's output that the README shows. Raises ValueError where one is not there."""
    lines = [line.rstrip() for line in output.splitlines()]
    shown: list[str] = []
    at = 0
    for first, last in EXCERPTS:
        start = _find(lines, first, at)
        end = start + last if isinstance(last, int) else _find(lines, last, start) + 1
        between = [line for line in lines[at:start] if line]
        shown += [*([LEFT_OUT] if shown and between else []), *([""] if lines[start - 1] == "" else [])]
        shown += lines[start:end]
        at = end
    return shown[1:] if shown[0] == "" else shown


def _find(lines: list[str], text: str, start: int) -> int:
    for at in range(start, len(lines)):
        if text in lines[at]:
            return at
    raise ValueError(f"the demo prints no line with {text!r} after line {start}")


def comparable(lines: list[str]) -> Iterator[str]:
    """Lines without what differs from run to run: ids, times, and when progress is told."""
    for line in lines:
        if "$/progress" not in line:
            yield re.sub(r"process \d+|Done in [\d.]+ s|\b[0-9a-f]{8}\b", "·", line)


def drawn() -> list[str]:
    """The lines the README has now."""
    found = _BLOCK.search(README.read_text(encoding="utf-8"))
    assert found, "README.md has no place for the demo's picture"
    return found[0].splitlines()


def main() -> None:
    """Put the picture into the README."""
    done = subprocess.run(
        [sys.executable, "-m", "pi_ls", "demo"],
        env={**os.environ, "COLUMNS": WIDTH},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    picture = "\n".join(excerpts(done.stdout)) + "\n"
    text = README.read_text(encoding="utf-8")
    README.write_text(_BLOCK.sub(lambda _: picture, text), encoding="utf-8")


if __name__ == "__main__":
    main()
