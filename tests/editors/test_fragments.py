"""The configuration in `editors/README.md` and beside it: well-formed, and of names that there are."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pi_ls.server import protocol

EDITORS = Path(__file__).parents[2] / "editors"
README = (EDITORS / "README.md").read_text(encoding="utf-8")
COMMANDS = {str(command) for command in protocol.CommandName}

SUBLIME_CLIENT = {"enabled", "command", "selector", "initializationOptions"}
SUBLIME_EXECUTE = {"session_name", "command_name", "command_args"}
ZED_MANIFEST = {"id", "name", "version", "schema_version", "authors", "description", "language_servers"}


def blocks(language: str) -> list[str]:
    """The README's blocks of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def options() -> set[str]:
    """What the server takes as `initializationOptions`, by its README."""
    text = (EDITORS.parent / "README.md").read_text(encoding="utf-8")
    table = text.partition("<!-- options -->")[2].partition("<!-- /options -->")[0]
    return set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def test_sublime_text_is_given_keys_it_documents() -> None:
    settings, palette = [json.loads(block) for block in blocks("json")]
    assert settings.keys() == {"clients"}
    (client,) = settings["clients"].values()
    assert client.keys() <= SUBLIME_CLIENT
    assert client["enabled"] is True
    assert client["command"] == ["pi-ls"]
    assert client["initializationOptions"].keys() <= options()
    assert palette
    for entry in palette:
        assert entry.keys() == {"caption", "command", "args"}
        assert entry["command"] == "lsp_execute"
        assert entry["args"].keys() == SUBLIME_EXECUTE
        assert entry["args"]["session_name"] in settings["clients"]
        assert entry["args"]["command_name"] in COMMANDS
        assert entry["args"]["command_args"] == [{}]


def tables() -> list[dict[str, Any]]:
    """The README's TOML."""
    return [tomllib.loads(block) for block in blocks("toml")]


def test_zed_is_given_a_manifest_and_a_crate() -> None:
    manifest, crate = tables()[-2:]
    assert manifest.keys() == ZED_MANIFEST
    assert all(entry.keys() == {"name", "languages"} for entry in manifest["language_servers"].values())
    assert crate["package"].keys() == {"name", "version", "edition"}
    assert crate["lib"] == {"crate-type": ["cdylib"]}
    assert crate["dependencies"].keys() == {"zed_extension_api"}
    (source,) = blocks("rust")
    assert "fn language_server_command(" in source
    assert "register_extension!" in source


@pytest.mark.parametrize("where", ["README", "languages.toml"])
def test_helix_names_the_server_it_defines(where: str) -> None:
    text = (EDITORS / "helix" / "languages.toml").read_text(encoding="utf-8")
    config = tables()[0] if where == "README" else tomllib.loads(text)
    server = config["language-server"]["pi-ls"]
    assert server["command"] == "pi-ls"
    assert server.get("config", {}).keys() <= options()
    assert all("pi-ls" in language["language-servers"] for language in config["language"])


def test_every_command_named_is_one_of_the_servers() -> None:
    for file in ("README.md", "emacs/pi-ls.el", "helix/tests/run.sh"):
        text = (EDITORS / file).read_text(encoding="utf-8")
        named = set(re.findall(r"\bpi\.[a-z]\w+", text))
        assert named <= COMMANDS, file
