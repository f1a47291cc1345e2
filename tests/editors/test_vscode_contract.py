"""The VS Code extension and the server use the same names.

The extension keeps the names of the wire in tables of plain strings; they are read from its source and
compared with the server's, so that a name that is added, renamed or misspelled on one side only does not
stay unnoticed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from pi_ls.core.breakdown import CATEGORIES
from pi_ls.server import protocol

SOURCE = Path(__file__).parents[2] / "editors" / "vscode" / "src" / "protocol.ts"


def table(name: str) -> list[str]:
    """The strings of an exported constant of the extension: an object's values or an array's members."""
    text = SOURCE.read_text(encoding="utf-8")
    match = re.search(rf"export const {name} = [\[{{](.*?)[\]}}] as const;", text, re.DOTALL)
    assert match, f"{SOURCE.name} has no table {name}"
    return re.findall(r"'([^']*)'", match[1])


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("COMMANDS", {str(command) for command in protocol.CommandName}),
        ("NOTIFICATIONS", set(protocol.NOTIFICATIONS)),
        ("TREE_FILTERS", set(get_args(protocol.TreeFilter))),
        ("THINKING_LEVELS", set(get_args(protocol.ThinkingLevel))),
        ("CATEGORIES", set(CATEGORIES)),
    ],
)
def test_the_extension_uses_the_names_of_the_server(name: str, ours: set[str]) -> None:
    theirs = table(name)
    assert set(theirs) == ours
    assert len(set(theirs)) == len(theirs)


def test_the_extension_sends_its_settings_under_the_section_the_server_reads() -> None:
    text = SOURCE.read_text(encoding="utf-8")
    assert f"CONFIGURATION_SECTION = '{protocol.CONFIGURATION_SECTION}'" in text


def test_the_extension_tells_the_errors_apart_that_the_server_answers_with() -> None:
    numbers = re.search(r"ERROR_CODES = \{(.*?)\}", SOURCE.read_text(encoding="utf-8"), re.DOTALL)
    assert numbers
    theirs = {key: int(value) for key, value in re.findall(r"(\w+): (-\d+)", numbers[1])}
    assert theirs == {
        "methodNotFound": protocol.ErrorCode.METHOD_NOT_FOUND,
        "requestCancelled": protocol.ErrorCode.REQUEST_CANCELLED,
        "requestFailed": protocol.ErrorCode.REQUEST_FAILED,
    }
