"""What the README says is what the program does: its tables, its commands and its Python."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pi_ls.core.jsonvalues import is_object
from pi_ls.hooks import HOOKS
from pi_ls.hooks.catalogue import EVENT_HOOKS
from pi_ls.models import Credentials, ModelCatalogue
from pi_ls.server import protocol
from pi_ls.server.commands import COMMANDS
from pi_ls.settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SESSION = ROOT / "pi_ls" / "demo_session.jsonl"


def section(name: str) -> str:
    """What stands between the two markers of that name."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README, re.DOTALL)
    assert found, f"the README has no section {name}"
    return found[1]


def table(name: str) -> list[list[str]]:
    """The rows of a table, without its head; a cell's code marks are kept."""
    rows = [line.strip().strip("|").split("|") for line in section(name).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def code(cell: str) -> str:
    """The text of a cell that is one piece of code."""
    assert cell.startswith("`"), cell
    assert cell.endswith("`"), cell
    return cell[1:-1]


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def defaults(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= defaults(value, f"{prefix}{key}.") if is_object(value) else {prefix + key: value}
    return flat


def test_the_command_table_has_every_command_in_order() -> None:
    assert [code(row[0]) for row in table("commands")] == [str(name) for name in COMMANDS]


@pytest.mark.parametrize("row", table("commands"), ids=lambda row: row[0])
def test_a_command_takes_the_arguments_the_table_names(row: list[str]) -> None:
    struct = COMMANDS[protocol.CommandName(code(row[0]))].arguments
    common = {field.encode_name for field in msgspec.structs.fields(protocol.Arguments)}
    known = [field.encode_name for field in msgspec.structs.fields(struct) if field.encode_name not in common]
    assert re.findall(r"`([^`]+)`", row[1]) == known


def test_the_notification_table_has_every_notification() -> None:
    assert sorted(code(row[0]) for row in table("notifications")) == sorted(protocol.NOTIFICATIONS)


def test_the_hook_table_has_every_hook_with_its_arguments() -> None:
    documented = {code(row[0]): tuple(re.findall(r"`([^`]+)`", row[1])) for row in table("hooks")}
    assert documented == {hook: HOOKS[hook] for hook in HOOKS if hook not in EVENT_HOOKS}
    assert {f"pi/{hook}" for hook in EVENT_HOOKS} == set(protocol.NOTIFICATIONS) - {
        f"pi/{hook}" for hook in documented
    }
    assert {HOOKS[hook] for hook in EVENT_HOOKS} == {("event", "context")}


def test_the_settings_table_has_every_setting_with_its_default(tmp_path: Path) -> None:
    documented = {code(row[0]): json.loads(code(row[1])) for row in table("settings")}
    assert documented == defaults(json.loads(json.dumps(Settings.load(tmp_path).effective())))


def test_the_options_table_has_every_option_with_its_default() -> None:
    documented = {code(row[0]): json.loads(code(row[1])) for row in table("options")}
    assert documented == msgspec.to_builtins(protocol.InitializationOptions())


def test_links_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in README.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            assert target[1:] in headings, target
        else:
            assert (ROOT / target).exists(), target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the `session.jsonl` that the examples speak of."""
    shutil.copy(SESSION, tmp_path / "session.jsonl")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


EXAMPLES = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("line", EXAMPLES)
def test_a_command_line_of_the_readme_runs(line: str, folder: Path) -> None:
    program, *arguments = shlex.split(line)
    assert program == "pi-ls"
    output = run(folder, "-m", "pi_ls", *arguments)
    assert output
    if "--json" in arguments:
        assert json.loads(output)


@pytest.mark.parametrize("source", blocks("python"), ids=lambda source: source.splitlines()[2])
def test_the_python_of_the_readme_runs(source: str, folder: Path) -> None:
    assert run(folder, "-W", "error", "-c", source)


def test_make_by_itself_lists_what_can_be_made() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony is not None
    quiet = ["make", "--no-print-directory", "help"]  # make may be what runs the tests
    told = subprocess.run(quiet, cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
    assert [line.split()[:2] for line in told.splitlines()] == [["make", name] for name in phony[1].split()]


def test_the_make_targets_of_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^ {4}(?:ARGS=\S+.* )?make ([a-z]+)", README + contributing, re.MULTILINE))
    assert named
    assert named <= targets


def test_the_models_of_the_readme_are_found_and_chosen(tmp_path: Path) -> None:
    settings, models = blocks("json")
    (tmp_path / "settings.json").write_text(settings)
    (tmp_path / "models.json").write_text(models)
    assert Settings.load(tmp_path, None).default_model == ("anthropic", "claude-sonnet-4-5")
    catalogue = ModelCatalogue(tmp_path)
    assert catalogue.problems == []
    known = catalogue.find("anthropic", "claude-sonnet-4-5")
    assert known is not None
    assert known.context_window
    own = catalogue.find("ollama", "qwen3-coder:30b")
    assert own is not None
    assert (own.context_window, own.base_url) == (40_960, "http://localhost:11434/v1")
    assert Credentials(tmp_path, {}).available("ollama")
