"""Keeps standard input and output for the protocol alone.

A language server's stdout carries framed messages; one stray byte loses a client its connection. Libraries
print, C code writes to descriptor 1, children inherit it. So, before anything heavy is imported, the protocol
takes private duplicates, descriptor 1 becomes stderr for everybody else, and descriptor 0 is empty.
"""

from __future__ import annotations

import os
import sys
from io import RawIOBase
from typing import cast


def take_stdio() -> tuple[RawIOBase, RawIOBase]:
    """Take descriptors 0 and 1 away from the process; returns the protocol's (stdin, stdout), unbuffered.

    Call it once, before any other import that is not of the standard library. Unbuffered, because a buffered
    stream that another thread is blocked on cannot be left behind when the process ends.
    """
    protocol_in = cast("RawIOBase", os.fdopen(os.dup(0), "rb", buffering=0))
    protocol_out = cast("RawIOBase", os.fdopen(os.dup(1), "wb", buffering=0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = sys.stderr
    return protocol_in, protocol_out
