"""What a tool is, and what it is given: the folder, the editor's buffers, the processes it leaves behind.

No tool decides whether it may run; that is settled before it is called. What a tool cannot do it says by
raising `ToolFailed` with a sentence for the model. Cancelling the task that runs a tool stops it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import msgspec

from pi_ls.core.arguments import schema_of
from pi_ls.core.chat import ToolOutput, ToolSpec
from pi_ls.tools.process import ProcessGroups


class ToolFailed(Exception):
    """A tool could not do what it was asked; the message is written for the model."""


class TextEdit(msgspec.Struct, frozen=True):
    """Replace the characters from `start` up to `end` by `text`.

    Places are counted in code points of the text that `Workspace.open_text` gave; the editor's own units are
    the business of whoever speaks to it.
    """

    start: int
    end: int
    text: str


class Workspace(Protocol):
    """The documents that are open in an editor.

    Paths are absolute but not resolved: two of them may name one file by different links.
    """

    def open_text(self, path: Path) -> str | None:
        """The text of an open document, unsaved changes included; None where the file on the disk counts.

        That is so where the file is not open, and where it is open without unsaved changes but another
        program has changed it on the disk since.
        """
        ...

    async def apply_edit(self, path: Path, edits: Sequence[TextEdit]) -> None:
        """Change an open document in the editor. Edits do not overlap and all refer to the text as it is.

        Raises ToolFailed where the editor refuses.
        """
        ...


class NoEditor:
    """The workspace of a session that no editor looks at: nothing is open."""

    def open_text(self, path: Path) -> str | None:
        """None: no file is open."""
        return None

    async def apply_edit(self, path: Path, edits: Sequence[TextEdit]) -> None:
        """Never called, since nothing is open."""
        raise ToolFailed(f"{path} is not open in an editor.")


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the tools of one session share."""

    folder: Path
    """The workspace folder; relative paths start here."""
    workspace: Workspace
    trusted: bool
    """In an untrusted folder only reading tools run, and only inside the folder."""
    processes: ProcessGroups
    shell: str | None = None
    """The shell of `bash`; None for the system's."""


Update = Callable[[ToolOutput], None]
"""Shows what a tool has so far; each output replaces the one before. Called on the event loop."""

A = TypeVar("A", bound=msgspec.Struct)


class Tool(abc.ABC, Generic[A]):
    """One thing the agent can do. A tool holds no state; one instance serves every session."""

    name: ClassVar[str]
    description: ClassVar[str]
    """What a model is told of it."""
    changes_things: ClassVar[bool]
    """Whether it may change files or run programs: it then wants approval, and needs trust in the folder."""
    arguments: type[A]

    @abc.abstractmethod
    def summary(self, arguments: A) -> str:
        """One line that tells a person what this call is about to do."""

    @abc.abstractmethod
    async def run(self, arguments: A, context: ToolContext, update: Update) -> ToolOutput:
        """Do it. Raises ToolFailed, or OSError, where it cannot be done."""

    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        return ToolSpec(self.name, self.description, schema_of(self.arguments))


def one_line(text: str, limit: int = 200) -> str:
    """A text on one line, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
