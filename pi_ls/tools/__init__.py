"""What the agent can do, one file each, and the table of it.

`Toolbox` is what the agent loop sees: the tools of one session, with arguments checked and approval asked
before anything runs; who approves, and what needs it, is decided outside. A call that goes wrong in whatever
way is answered by a sentence for the model.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pi_ls.core.arguments import BadArguments, convert_arguments
from pi_ls.core.chat import ToolOutput, ToolSpec
from pi_ls.core.messages import TextContent, ToolCall
from pi_ls.core.request import clean_text
from pi_ls.tools.bash import Bash
from pi_ls.tools.edit import Edit
from pi_ls.tools.find import Find
from pi_ls.tools.grep import Grep
from pi_ls.tools.ls import Ls
from pi_ls.tools.process import ProcessGroups
from pi_ls.tools.read import Read
from pi_ls.tools.tool import (
    NoEditor,
    TextEdit,
    Tool,
    ToolContext,
    ToolFailed,
    Update,
    Workspace,
)
from pi_ls.tools.write import Write

__all__ = [
    "DEFAULT_TOOLS",
    "TOOLS",
    "Approve",
    "NoEditor",
    "ProcessGroups",
    "TextEdit",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "Toolbox",
    "Update",
    "Workspace",
]

TOOLS: Mapping[str, Tool[Any]] = {
    tool.name: tool for tool in (Read(), Bash(), Edit(), Write(), Grep(), Find(), Ls())
}
"""Every tool by its name."""

DEFAULT_TOOLS = ("read", "bash", "edit", "write")
"""The tools a session has unless its settings say otherwise."""

Approve = Callable[[ToolCall, Tool[Any], str], Awaitable[str | None]]
"""Decides whether a call may run, told of its tool and its one-line summary: None to go on, or why not."""

_log = logging.getLogger(__name__)


class Toolbox:
    """The tools of one session."""

    def __init__(self, names: Iterable[str], context: ToolContext, approve: Approve) -> None:
        """Names that are no tools are left out, and in an untrusted folder tools that change things."""
        named = [TOOLS[name] for name in names if name in TOOLS]
        self._tools = {tool.name: tool for tool in named if context.trusted or not tool.changes_things}
        self._context = context
        self._approve = approve

    def specs(self) -> Sequence[ToolSpec]:
        """The tools as a model is told of them."""
        return [tool.spec() for tool in self._tools.values()]

    async def run(self, call: ToolCall, update: Update) -> ToolOutput:
        """Carry out a call. Never raises: what goes wrong is an output that says so."""
        tool = self._tools.get(call.name)
        if tool is None:
            there = ", ".join(self._tools) or "none"
            return _failed(f"There is no tool {call.name!r}. The tools are: {there}.")
        try:
            arguments = convert_arguments(call.arguments, tool.arguments)
            refusal = await self._approve(call, tool, clean_text(tool.summary(arguments)))
            if refusal is not None:
                return _failed(refusal)
            return _clean(await tool.run(arguments, self._context, update))
        except (BadArguments, ToolFailed) as error:
            return _failed(str(error))
        except OSError as error:
            return _failed(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        except Exception as error:  # noqa: BLE001 - a call without a result would spoil the conversation
            _log.error("Tool %s failed", call.name, exc_info=error)
            return _failed(f"The tool failed: {type(error).__name__}: {error}")


def _clean(output: ToolOutput) -> ToolOutput:
    """Names of files may be bytes that are no text; they must not get into a session file as such."""
    content = tuple(
        TextContent(clean_text(block.text)) if isinstance(block, TextContent) else block
        for block in output.content
    )
    return msgspec.structs.replace(output, content=content)


def _failed(text: str) -> ToolOutput:
    return ToolOutput.of(clean_text(text), is_error=True)
