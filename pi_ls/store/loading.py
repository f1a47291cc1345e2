"""A session for who only reads: its header, its tree and what is wrong with its file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pi_ls.core.entries import Header
from pi_ls.core.lines import FileProblem
from pi_ls.core.tree import SessionTree
from pi_ls.store.file import SessionFile


class LoadedSession(msgspec.Struct, frozen=True):
    """A session file as it was when loaded; entries read their bodies from it when they are asked for."""

    header: Header
    tree: SessionTree
    problems: Sequence[FileProblem]
    file: SessionFile


def load_session(path: str | os.PathLike[str]) -> LoadedSession:
    """Read a session file; changes no byte of it.

    Raises SessionNotFound, or SessionUnreadable for a file that is no session.
    """
    opened = SessionFile.open(Path(path))
    return LoadedSession(opened.file.header, SessionTree(opened.entries), opened.problems, opened.file)
