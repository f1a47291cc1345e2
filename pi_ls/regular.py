"""Reading files that somebody else may have put there: ordinary ones alone, and no more than is reasonable.

A repository can hold a link to a device without an end, or to a pipe nobody writes to; reading those would
never return.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_regular(path: Path, limit: int) -> bytes:
    """The content of an ordinary file of at most `limit` bytes. Raises OSError for anything else, at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no regular file")
        content = file.read(limit + 1) if status.st_size <= limit else None
    if content is None or len(content) > limit:
        raise OSError(f"it has more than {limit >> 20} MB")
    return content
