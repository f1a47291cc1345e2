"""Noticing soon that somebody else wrote to a session file, without looking all the time.

The folders of the files are watched by the system (`watchfiles`, which is loaded when there is something to
follow). What it misses (a network drive, a folder that was made anew) is for a slower look by who follows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

logger = logging.getLogger(__name__)

STEP_MS = 200
"""How often the watching thread looks whether the system has told it something."""
DEBOUNCE_MS = 400
"""A file that is written to all the time is told of this often."""

OnChange = Callable[[Collection[str]], None]


class Follower:
    """Tells which of some files were touched, by name. `on_change` is called on a thread."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change
        self._watched: frozenset[tuple[Path, int]] = frozenset()
        self._names: frozenset[str] = frozenset()
        self._stop: threading.Event | None = None

    def follow(self, files: Iterable[Path]) -> None:
        """Follow exactly these files from now on; cheap where nothing has changed, so ask often.

        A file need not be there yet; one whose folder is not there is followed once it is.
        """
        files = tuple(files)
        self._names = frozenset(file.name for file in files)
        folders = frozenset(
            (folder, number)
            for folder in {file.parent for file in files}
            if (number := _number(folder)) is not None
        )
        if folders != self._watched:
            self.close()
            self._watched = folders
            if folders:
                self._start([folder for folder, _ in folders])

    def _start(self, folders: Collection[Path]) -> None:
        stop = self._stop = threading.Event()
        thread = threading.Thread(
            target=self._watch, args=(folders, stop), name="following sessions", daemon=True
        )
        thread.start()

    def _watch(self, folders: Collection[Path], stop: threading.Event) -> None:
        try:
            import watchfiles

            logging.getLogger("watchfiles").setLevel(logging.WARNING)
            for changes in watchfiles.watch(
                *folders,
                watch_filter=lambda _kind, path: Path(path).name in self._names,
                stop_event=stop,
                step=STEP_MS,
                debounce=DEBOUNCE_MS,
                recursive=False,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                self._on_change({Path(path).name for _, path in changes})
        except Exception:
            # No more watches to be had, a folder that has just gone: the slower look remains.
            if not stop.is_set():
                logger.warning(
                    "Session files cannot be watched; they are looked at now and then", exc_info=True
                )

    def close(self) -> None:
        """Follow nothing any more."""
        if self._stop is not None:
            self._stop.set()
        self._stop, self._watched = None, frozenset()


def _number(folder: Path) -> int | None:
    """What tells a folder from another one that was made in its place; None where there is none."""
    try:
        return folder.stat().st_ino
    except OSError:
        return None
