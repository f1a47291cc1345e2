"""The Neovim plugin and the server use the same names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from pi_ls.server import protocol

PLUGIN = Path(__file__).parents[2] / "editors" / "nvim" / "lua" / "pi_ls"
SOURCE = {path.stem: path.read_text(encoding="utf-8") for path in sorted(PLUGIN.glob("*.lua"))}

ELSEWHERE = {
    "pi.abortBash": "pi.abort stops it too",
    "pi.abortBranchSummary": "pi.abort stops it too",
    "pi.abortCompaction": "pi.abort stops it too",
    "pi.getEntries": "the tree and the messages say the same",
}
"""Commands the plugin has no use for, and why."""


def test_the_plugin_sends_the_commands_of_the_server() -> None:
    sent = set(re.findall(r"'(pi\.[a-z]\w+)'", "".join(SOURCE.values())))
    assert sent == {str(command) for command in protocol.CommandName} - ELSEWHERE.keys()


def test_the_plugin_listens_to_every_notification_of_the_server() -> None:
    table = re.search(r"^local APPLY = \{\n(.*?)^\}", SOURCE["events"], re.DOTALL | re.MULTILINE)
    assert table
    heard = re.findall(r"^  (\w+) = ", table[1], re.MULTILINE)
    assert {f"pi/{name}" for name in heard} == set(protocol.NOTIFICATIONS)


def test_the_plugin_offers_the_filters_and_thinking_levels_of_the_server() -> None:
    for module, name, ours in (
        ("tree", "FILTERS", protocol.TreeFilter),
        ("models", "LEVELS", protocol.ThinkingLevel),
    ):
        table = re.search(rf"\b{name} = \{{(.*?)\}}", SOURCE[module], re.DOTALL)
        assert table
        assert set(re.findall(r"'([\w-]+)'", table[1])) == set(get_args(ours))
