"""The tool `ls`: what is in a folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from pi_ls.core.chat import ToolOutput
from pi_ls.tools.files import locate
from pi_ls.tools.output import with_limits
from pi_ls.tools.tool import Tool, ToolContext, ToolFailed, Update


class LsArguments(msgspec.Struct, frozen=True):
    """Arguments of `ls`."""

    path: Annotated[str, Meta(description="Folder to list; the workspace folder if absent")] = "."


class Ls(Tool[LsArguments]):
    """Lists one folder, hidden and ignored names included."""

    name: ClassVar[str] = "ls"
    description: ClassVar[str] = "List a folder: one name a line in order, folders with a slash at the end."
    changes_things: ClassVar[bool] = False
    arguments = LsArguments

    def summary(self, arguments: LsArguments) -> str:
        """Which folder is listed."""
        return f"List {arguments.path}"

    async def run(self, arguments: LsArguments, context: ToolContext, update: Update) -> ToolOutput:
        """The names in the folder."""
        return ToolOutput.of(await asyncio.to_thread(_list, locate(context, arguments.path), arguments.path))


def _list(folder: Path, name: str) -> str:
    if not folder.is_dir():
        raise ToolFailed(f"{name} {'is not a folder; use read' if folder.exists() else 'does not exist'}.")
    with os.scandir(folder) as listing:
        names = sorted((entry.name + "/" * entry.is_dir() for entry in listing), key=str.lower)
    return with_limits("\n".join(names), "names") if names else "[The folder is empty.]"
