"""Python imports this by itself at its start: from then on a disk may be slow or break, as tests say.

They say it in the folder `$DISK`: while `hold NAME` is there nobody gets a session file of that name to read
after the first so many times, a number that stands in it (`asked NAME` tells that somebody waits); while
`break NAME` is there nobody gets to append to it. What breaks is no `OSError`, so nobody is prepared for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["DISK"])
READ: Counter[str] = Counter()


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not isinstance(arguments[0], str | Path):
        return
    path, flags = Path(arguments[0]), arguments[2]
    name = path.name
    if path.parent == FOLDER or path.suffix != ".jsonl":
        return
    if flags & os.O_APPEND:
        if (FOLDER / f"break {name}").exists():
            raise RuntimeError("secret detail")
        return
    READ[name] += 1
    try:
        free = int((FOLDER / f"hold {name}").read_text())
    except FileNotFoundError:
        return
    if READ[name] > free:
        (FOLDER / f"asked {name}").touch()
        while (FOLDER / f"hold {name}").exists():
            time.sleep(0.01)


sys.addaudithook(_look)
