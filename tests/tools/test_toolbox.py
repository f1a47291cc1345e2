from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pi_ls.core.chat import ToolOutput
from pi_ls.core.messages import ToolCall
from pi_ls.tools import DEFAULT_TOOLS, TOOLS, Tool, Toolbox, ToolContext
from tests.tools.conftest import Use, refused, said


class Approval:
    """Refuses what changes things if it has a sentence for it, and keeps what it was asked."""

    def __init__(self, refusal: str | None = None) -> None:
        self.refusal = refusal
        self.asked: list[str] = []

    async def __call__(self, call: ToolCall, tool: Tool[Any], summary: str) -> str | None:
        self.asked.append(summary)
        return self.refusal if tool.changes_things else None


async def run(toolbox: Toolbox, name: str, **arguments: Any) -> ToolOutput:
    return await toolbox.run(ToolCall("c1", name, arguments), lambda _: None)


async def test_nothing_runs_that_was_not_approved_from_one_line(context: ToolContext, folder: Path) -> None:
    approval = Approval("No.")
    toolbox = Toolbox(TOOLS, context, approval)
    (folder / "a.txt").write_text("x")
    assert refused(await run(toolbox, "bash", command="touch b\n  rm a.txt")) == "No."
    assert refused(await run(toolbox, "write", path="a.txt", content="y")) == "No."
    assert refused(await run(toolbox, "edit", path="a.txt", oldText="x", newText="y")) == "No."
    assert approval.asked == ["Run touch b rm a.txt", "Write a.txt (1 characters)", "Edit a.txt"]
    assert (folder / "a.txt").read_text() == "x"


async def test_tools_that_only_read_say_so_to_who_approves(context: ToolContext, folder: Path) -> None:
    approval = Approval("No.")
    toolbox = Toolbox(TOOLS, context, approval)
    (folder / "a.txt").write_text("x")
    said(await run(toolbox, "read", path="a.txt"))
    for name, arguments in (("grep", {"pattern": "x"}), ("find", {"pattern": "x"}), ("ls", {})):
        said(await run(toolbox, name, **arguments))
    assert approval.asked == ["Read a.txt", "Search for x in .", "Find x in .", "List ."]


async def test_an_untrusted_folder_has_reading_tools_only(untrusted: ToolContext) -> None:
    toolbox = Toolbox(TOOLS, untrusted, Approval())
    assert [spec.name for spec in toolbox.specs()] == ["read", "grep", "find", "ls"]
    assert "no tool 'bash'" in refused(await run(toolbox, "bash", command="true"))


async def test_unknown_tools_and_arguments_that_do_not_fit_are_answered(use: Use) -> None:
    assert "There is no tool 'fly'. The tools are: read, bash," in refused(await use("fly"))
    assert "required field `command`" in refused(await use("bash"))
    assert "at `$.offset`" in refused(await use("read", path="a", offset=0))


async def test_what_is_no_text_gets_neither_in_nor_out(use: Use, folder: Path) -> None:
    (folder / os.fsdecode(b"odd\xff")).touch()
    assert said(await use("ls")) == said(await use("find", pattern="odd*")) == "odd�"
    assert said(await use("bash", command="printf 'x\ud83d'")) == "x�"
    assert "no path can have" in refused(await use("read", path="x\ud83d"))


async def test_a_tool_that_is_broken_is_answered_too(
    context: ToolContext, monkeypatch: Any, caplog: Any
) -> None:
    async def broken(*_: object) -> ToolOutput:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(type(TOOLS["ls"]), "run", broken)
    assert "ZeroDivisionError: by zero" in refused(await run(Toolbox(TOOLS, context, Approval()), "ls"))
    assert "Tool ls failed" in caplog.text


def test_a_model_is_told_of_every_argument(context: ToolContext) -> None:
    toolbox = Toolbox([*DEFAULT_TOOLS, "unknown"], context, Approval())
    specs = {spec.name: spec for spec in toolbox.specs()}
    assert list(specs) == ["read", "bash", "edit", "write"]
    for spec in specs.values():
        assert spec.description
        assert all(part["description"] for part in spec.parameters["properties"].values())
        assert "$ref" not in str(spec.parameters)
    assert specs["read"].parameters["required"] == ["path"]
    assert specs["read"].parameters["properties"]["offset"]["minimum"] == 1
