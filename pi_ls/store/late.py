"""Lines that reach a file which has just been replaced.

Another program may have opened the old file just before the rename; what it writes there would be lost with
the file. So the old file stays open for a while, and what arrives in it is appended to the new one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import filelock

from pi_ls.store.places import APPEND_FLAGS, make_lock, write_lines

LATE_SECONDS = 2.0
"""How long the old file is watched."""

_PAUSE_SECONDS = 0.05


class LateLines:
    """Carries lines from the replaced file over to the new one, in a thread of its own.

    Takes over `fd`, the old file's descriptor, of which `copied` bytes are in the new file already.
    `unended` is what the copy ends with after its last line end: the start of a record, perhaps.
    """

    def __init__(self, path: Path, fd: int, copied: int, unended: bytes) -> None:
        self._path = path
        self._fd = fd
        self._copied = copied
        self._unended = unended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"late lines of {path.name}", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Look a last time, then stop."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        deadline = time.monotonic() + LATE_SECONDS
        try:
            while time.monotonic() < deadline and not self._stop.wait(_PAUSE_SECONDS):
                self._carry(only_whole=True)
            self._carry(only_whole=False)
        finally:
            os.close(self._fd)

    def _carry(self, *, only_whole: bool) -> None:
        with contextlib.suppress(OSError):  # tried again at the next turn
            late = os.pread(self._fd, max(os.fstat(self._fd).st_size - self._copied, 0), self._copied)
            whole = late[: late.rfind(b"\n") + 1] if only_whole else late
            if whole:
                self._append(whole)
                self._copied += len(whole)
                self._unended = b""

    def _append(self, late: bytes) -> None:
        lock = make_lock(self._path)
        with contextlib.suppress(filelock.Timeout, OSError, NotImplementedError):  # better unlocked than lost
            lock.acquire(timeout=LATE_SECONDS)
        try:
            fd = os.open(self._path, APPEND_FLAGS)
            try:
                # The record that was being written: once more from its start, and its end.
                lines = self._unended + late
                write_lines(fd, lines if lines.endswith(b"\n") else lines + b"\n")
            finally:
                os.close(fd)
        finally:
            lock.release()
