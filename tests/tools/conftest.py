from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pi_ls.core.chat import ToolOutput
from pi_ls.core.messages import ToolCall, text_of
from pi_ls.tools import TOOLS, ProcessGroups, TextEdit, Tool, Toolbox, ToolContext


class Buffers:
    """An editor's open documents: path → text. Keeps the edits it was asked for."""

    def __init__(self) -> None:
        self.texts: dict[Path, str] = {}
        self.edits: list[TextEdit] = []

    def open_text(self, path: Path) -> str | None:
        return self.texts.get(path)

    async def apply_edit(self, path: Path, edits: Sequence[TextEdit]) -> None:
        await asyncio.sleep(0)
        self.edits += edits
        for edit in reversed(edits):
            text = self.texts[path]
            self.texts[path] = text[: edit.start] + edit.text + text[edit.end :]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, of which none shall stay after the tests."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(made))
    return made


@pytest.fixture
def buffers() -> Buffers:
    return Buffers()


@pytest.fixture
def context(folder: Path, buffers: Buffers) -> Iterator[ToolContext]:
    made = ToolContext(folder=folder, workspace=buffers, trusted=True, processes=ProcessGroups())
    yield made
    made.processes.end_all()


@pytest.fixture
def untrusted(folder: Path, context: ToolContext) -> ToolContext:
    return ToolContext(folder=folder, workspace=context.workspace, trusted=False, processes=context.processes)


Use = Callable[..., Awaitable[ToolOutput]]


async def use_in(context: ToolContext, name: str, /, **arguments: Any) -> ToolOutput:
    """The output of a call of a tool, as the agent gets it, with everything allowed."""

    async def allow(call: ToolCall, tool: Tool[Any], summary: str) -> str | None:
        return None

    toolbox = Toolbox(TOOLS, context, allow)
    return await toolbox.run(ToolCall("c1", name, arguments), lambda _: None)


@pytest.fixture
def use(context: ToolContext) -> Use:
    async def run(name: str, /, **arguments: Any) -> ToolOutput:
        return await use_in(context, name, **arguments)

    return run


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(one.name for one in folder.iterdir())


def said(output: ToolOutput) -> str:
    """The text of an output that is no error."""
    assert not output.is_error, text_of(output.content)
    return text_of(output.content)


def refused(output: ToolOutput) -> str:
    """The text of an output that is an error."""
    assert output.is_error, text_of(output.content)
    return text_of(output.content)
