"""How fast and how large a session is: figures as a table, and as ratios to the plainest reading there is.

    python -m tests.bench.run [--megabytes 100] [--entries 40000] [--rounds 5] [--json] [--check]

Makes the session once in a temporary folder, measures each step in processes of its own (the best of the
rounds counts: what is measured is the work, not what else the machine does), and prints the table. With
`--check` it ends with 1 if a limit is missed: opening and first usage within `MOST_TIMES_SPLIT` times reading
and splitting the file, memory within `MOST_MEMORY_SHARE` of the file, an append with its meter within
`MOST_APPEND_MS`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pi_ls.core.compaction import prepare_compaction
from pi_ls.core.context import UsageMeter
from pi_ls.core.options import CompactionSettings
from pi_ls.core.outline import outline
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.tree import SessionTree
from pi_ls.store import SessionFile, list_sessions
from tests.bench.generate import session

MOST_TIMES_SPLIT = 1.5
MOST_MEMORY_SHARE = 0.25
MOST_APPEND_MS = 1.0
WINDOW = 200_000

ROOT = Path(__file__).parents[2]


class Session:
    """A session as the server holds it."""

    def __init__(self, path: Path) -> None:
        self.file, entries, _ = SessionFile.open(path)
        self.tree = SessionTree(entries)
        self.counter = TokenCounter()
        self.meter = UsageMeter(self.counter)

    def usage(self) -> None:
        """Ask the meter."""
        assert self.meter.usage(self.tree.path(), WINDOW) is not None

    def append(self) -> None:
        """Append a message and ask the meter again."""
        message = {"role": "user", "content": "word " * 200, "timestamp": 1}
        entry = self.file.append({"type": "message", "parentId": self.tree.leaf_id, "message": message})
        self.tree.append(entry)
        self.usage()


# ---- what is measured; each returns milliseconds (memory: bytes)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def read_and_split(path: Path) -> float:
    """Read the file and split it into lines."""
    return _timed(lambda: path.read_bytes().split(b"\n"))


def json_loads(path: Path) -> float:
    """Decode every line with the standard library."""
    return _timed(lambda: [json.loads(line) for line in path.read_bytes().split(b"\n") if line])


def opening(path: Path) -> float:
    """Open the session: entries and tree."""
    return _timed(lambda: Session(path))


def opening_and_usage(path: Path) -> float:
    """Open the session and tell how full the context is."""
    return _timed(lambda: Session(path).usage())


def append_and_meter(path: Path) -> float:
    """One of 100 appends, each with the meter after it (the mean)."""
    copy = path.with_name("appended.jsonl")
    copy.write_bytes(path.read_bytes())
    opened = Session(copy)
    opened.usage()
    took = _timed(lambda: [opened.append() for _ in range(100)]) / 100
    copy.unlink()
    return took


def preview(path: Path) -> float:
    """What a compaction would do, on a session that is open."""
    opened = Session(path)
    opened.usage()
    settings = CompactionSettings()
    return _timed(lambda: prepare_compaction(opened.tree.path(), settings, opened.counter))


def tree_page(path: Path) -> float:
    """The first page of the tree, on a session that is open."""
    opened = Session(path)
    return _timed(lambda: outline(opened.tree, opened.counter))


def listing(path: Path) -> float:
    """List the folder with this one session, for the first time."""
    return _timed(lambda: list_sessions(path.parent))


def memory(path: Path) -> float:
    """Bytes of memory that an open session adds, its meter included."""
    gc.collect()
    before = _resident()
    opened = Session(path)
    opened.usage()
    gc.collect()
    return _resident() - before


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


STEPS = (
    read_and_split,
    json_loads,
    opening,
    opening_and_usage,
    append_and_meter,
    preview,
    tree_page,
    listing,
    memory,
)


# ---- running


def _measure(step: Callable[[Path], float], path: Path, rounds: int) -> float:
    """The best of some rounds, each in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.run", "--step", step.__name__, "--path", str(path)]
    return min(float(subprocess.check_output(command, cwd=ROOT)) for _ in range(rounds))


def _rows(figures: dict[str, float], size: int) -> list[tuple[str, str, str, str]]:
    rows = [("step", "ms", "× read+split", "× json.loads")]
    for step in STEPS:
        figure, what = figures[step.__name__], (step.__doc__ or "").partition("\n")[0]
        if step is memory:
            rows.append((what, f"{figure / 1e6:.1f} MB", f"{figure / size:.0%} of the file", ""))
        else:
            against = [figure / figures[one.__name__] for one in (read_and_split, json_loads)]
            rows.append((what, f"{figure:.2f}", f"{against[0]:.3f}", f"{against[1]:.3f}"))
    return rows


def missed(figures: dict[str, float], size: int) -> list[str]:
    """The limits that these figures miss, as sentences."""
    times = figures["opening_and_usage"] / figures["read_and_split"]
    share = figures["memory"] / size
    append = figures["append_and_meter"]
    return [
        sentence
        for is_missed, sentence in (
            (times > MOST_TIMES_SPLIT, f"opening and usage take {times:.2f} times reading and splitting"),
            (share > MOST_MEMORY_SHARE, f"an open session takes {share:.0%} of its file"),
            (append > MOST_APPEND_MS, f"an append with its meter takes {append:.2f} ms"),
        )
        if is_missed
    ]


def main() -> int:
    """Measure and print; 1 if a limit was to be checked and is missed."""
    parser = argparse.ArgumentParser(description="Measure large sessions.")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--entries", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--check", action="store_true", help="end with 1 if a limit is missed")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print({step.__name__: step for step in STEPS}[options.step](options.path))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        path.write_bytes(session(options.megabytes, options.entries))
        size = path.stat().st_size
        figures = {step.__name__: _measure(step, path, options.rounds) for step in STEPS}
    if options.json:
        print(json.dumps({"bytes": size, "entries": options.entries, **figures}, indent=2))
    else:
        print(f"{size / 1e6:.0f} MB, {options.entries:,} entries, best of {options.rounds}\n")
        for row in _rows(figures, size):
            print(f"{row[0]:<72}{row[1]:>10}{row[2]:>18}{row[3]:>14}")
    wrong = missed(figures, size) if options.check else []
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
