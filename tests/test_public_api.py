"""What `from pi_ls import …` promises: the names are there, typed, and cost nothing before they are used."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pi_ls
from tests import sessions


def test_every_public_name_can_be_imported() -> None:
    for name in pi_ls.__all__:
        assert getattr(pi_ls, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    source = ast.parse(Path(pi_ls.__file__).read_text("utf-8"))
    imports = (node for node in ast.walk(source) if isinstance(node, ast.ImportFrom))
    typed = {
        alias.name for node in imports if (node.module or "").startswith("pi_ls.") for alias in node.names
    }
    assert typed == set(pi_ls.__all__) - {"__version__"}


def test_type_checkers_know_a_name_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "library_user.py"
    file.write_text("from pi_ls import compact, compakt\n\nprint(compact, compakt)\n", encoding="utf-8")
    checker = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    checked = subprocess.run([*checker, file], capture_output=True, encoding="utf-8", cwd=tmp_path)
    found = [one["message"] for one in json.loads(checked.stdout)["generalDiagnostics"]]
    assert [message for message in found if "unknown import symbol" in message] == [
        '"compakt" is unknown import symbol'
    ]


def test_the_example_of_the_package_s_own_help_runs(tmp_path: Path) -> None:
    sessions.write(tmp_path / "session.jsonl", sessions.two_long_turns(120_000))
    lines = (pi_ls.__doc__ or "").splitlines()
    example = "\n".join(line[4:] for line in lines if line.startswith("    "))
    assert "prepare_compaction(" in example
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True)


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, pi_ls; print([name for name in sys.modules if name.startswith(('pi_ls', 'msgspec'))])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(loaded) == ["pi_ls"]


def test_a_library_user_prepares_a_compaction_from_a_file(tmp_path: Path) -> None:
    path = sessions.write(tmp_path / "session.jsonl", sessions.two_long_turns(120_000))
    session = pi_ls.load_session(path)
    preparation = pi_ls.prepare_compaction(session.tree.path(), pi_ls.CompactionSettings())
    assert isinstance(preparation, pi_ls.CompactionPreparation)
    assert preparation.first_kept_entry_id == "u2"
    assert preparation.summarized_entry_ids == ("u1", "a1")
