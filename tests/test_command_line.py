"""The command line as its users run it: a process, its exit code, what it writes and where."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pi_ls
from pi_ls.core.jsonvalues import Json, is_array
from tests.conformance_data import Session, sessions

SESSION = Path(pi_ls.__file__).with_name("demo_session.jsonl")


def run(*arguments: str | Path, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pi_ls", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environ or {})},
        timeout=60,
    )


def answer(*arguments: str | Path, environ: dict[str, str] | None = None) -> Json:
    done = run(*arguments, "--json", environ=environ)
    assert done.stderr == ""
    return json.loads(done.stdout)


def session_file(folder: Path, *lines: str) -> Path:
    path = folder / "session.jsonl"
    header = '{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/p"}'
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def message(id: str, parent: str | None, text: str) -> str:
    content = {"role": "user", "content": text, "timestamp": 1}
    return json.dumps({"type": "message", "id": id, "parentId": parent, "timestamp": "t", "message": content})


def test_the_version_is_the_package_s() -> None:
    assert run("--version").stdout == f"pi-ls {pi_ls.__version__}\n"


def test_check_is_content_with_a_sound_file() -> None:
    done = run("check", SESSION)
    assert done.returncode == 0
    assert done.stdout.startswith("ok")


def test_check_names_the_line_of_everything_that_is_broken(tmp_path: Path) -> None:
    path = session_file(tmp_path, message("a", None, "one"), "{broken", message("b", "nowhere", "two"))
    (row,) = answer("check", path)["files"]
    assert [(one["kind"], one["line"]) for one in row["problems"]] == [
        ("malformedLine", 3),
        ("missingParent", 4),
    ]
    assert run("check", path).returncode == 1


def test_check_goes_on_after_a_file_that_is_no_session(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("hello\n", encoding="utf-8")
    done = run("check", other, SESSION)
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["refused", "ok"]


@pytest.mark.parametrize("command", ["tree", "usage", "inspect"])
def test_a_file_that_is_no_session_is_refused_in_one_sentence(command: str, tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("hello\n", encoding="utf-8")
    done = run(command, path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("pi-ls: ")
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["check", "tree", "usage", "inspect"])
def test_looking_at_a_file_changes_nothing_about_it(command: str, tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    raw = next(one.raw for one in sessions() if one.name == "v1-linear")
    path.write_bytes(raw)
    before = path.stat()
    run(command, path)
    assert path.read_bytes() == raw
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert list(tmp_path.iterdir()) == [path]


def test_the_tree_has_every_node_and_one_leaf() -> None:
    page = answer("tree", SESSION)
    assert len(page["nodes"]) == 117
    assert not page["hasMore"]
    assert [node["id"] for node in page["nodes"] if node["isLeaf"]] == [page["leafId"]]


def test_the_tree_for_people_has_a_line_for_each_node() -> None:
    lines = run("tree", SESSION).stdout.splitlines()
    assert len(lines) == 1 + 117
    assert [line for line in lines if line.endswith("← leaf")] == [lines[-1]]
    assert sum("[root cause]" in line for line in lines) == 1


def test_usage_knows_the_window_of_a_custom_model(tmp_path: Path) -> None:
    model = {"id": "qwen3-coder-480b", "contextWindow": 40_000}
    provider = {
        "baseUrl": "http://127.0.0.1:9",
        "api": "openai-completions",
        "apiKey": "k",
        "models": [model],
    }
    (tmp_path / "models.json").write_text(
        json.dumps({"providers": {"workstation": provider}}), encoding="utf-8"
    )
    environ = {"PI_CODING_AGENT_DIR": str(tmp_path)}
    usage = answer("usage", SESSION, environ=environ)
    assert usage["contextUsage"]["contextWindow"] == 40_000
    assert usage["contextUsage"]["source"] == "measured"
    assert usage["contextTokens"] == usage["contextUsage"]["tokens"]
    assert "%" in run("usage", SESSION, environ=environ).stdout


def test_one_entry_is_not_told_as_several(tmp_path: Path) -> None:
    path = session_file(tmp_path, message("a", None, "hi"))
    assert "(1 entry)" in run("check", path).stdout
    assert "1 message, 0 tool calls" in run("usage", path).stdout


def test_usage_without_a_known_window_still_says_how_long_the_context_is(tmp_path: Path) -> None:
    usage = answer("usage", SESSION, environ={"PI_CODING_AGENT_DIR": str(tmp_path)})
    assert usage["contextUsage"] == {}
    assert usage["contextTokens"] > 20_000
    assert usage["stats"]["userMessages"] == 6


def test_usage_says_how_to_make_an_unknown_window_known(tmp_path: Path) -> None:
    environ = {"PI_CODING_AGENT_DIR": str(tmp_path)}
    shown = run("usage", SESSION, environ=environ).stdout
    assert f"not known; contextWindow of this model in {tmp_path / 'models.json'} tells it" in shown
    bare = session_file(tmp_path, message("a", None, "one"))
    assert "not known" not in run("usage", bare, environ=environ).stdout, "no model has no window to tell"


def test_inspect_from_another_leaf_sees_the_other_branch() -> None:
    abandoned = answer("inspect", SESSION, "--leaf", "32a52fbc")
    assert abandoned["leaf"] == abandoned["branch"][-1] == "32a52fbc"
    assert abandoned["model"] == ["workstation", "qwen3-coder-30b"]
    assert abandoned["messages"][-1][1].startswith("It works for the total now")


def test_an_unknown_leaf_is_an_error_that_says_where_to_look() -> None:
    done = run("inspect", SESSION, "--leaf", "nobody")
    assert done.returncode == 1
    assert "nobody" in done.stderr
    assert "pi-ls tree" in done.stderr


WELL_FORMED = [one for one in sessions() if one.was_opened and one.expected["idScheme"] == "id"]


@pytest.mark.parametrize("session", WELL_FORMED[::6], ids=repr)
def test_inspect_tells_what_pi_makes_of_a_session(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(session.raw)
    found = answer("inspect", path)
    opened = session.expected["open"]
    assert found["leaf"] == opened["leaf"]
    assert found["entryCount"] == opened["entryCount"]
    if isinstance(session.expected["tree"], list):
        assert found["tree"] == session.expected["tree"]
    for leaf in session.leaves:
        if leaf["leaf"] == opened["leaf"] and is_array(leaf["messages"]):
            assert found["branch"] == leaf["branch"]
            assert found["model"] == leaf["model"]
            assert found["thinkingLevel"] == leaf["thinkingLevel"]
            assert [one[0] for one in found["messages"]] == [one[0] for one in leaf["messages"]]


def test_output_is_utf8_whatever_the_locale_and_nothing_in_a_session_breaks_it(tmp_path: Path) -> None:
    path = session_file(tmp_path, message("a", None, "é 日本 \x1b[2J ").replace("\\u65e5", "\\ud83d"))
    done = run("inspect", path, environ={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert "é" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "pi_ls", "tree", SESSION],
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("command", ["check", "tree", "demo"])
def test_output_that_cannot_be_written_is_an_error_in_one_sentence(command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pi_ls", command, *([] if command == "demo" else [SESSION])],
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=60,
        )
    assert re.fullmatch("pi-ls: .*No space left on device\n", done.stderr)
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["check", "tree", "demo"])
def test_without_an_output_nothing_is_done_and_that_is_said(command: str) -> None:
    words = [sys.executable, "-m", "pi_ls", command, *([] if command == "demo" else [SESSION])]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    done = subprocess.run(closed, stderr=subprocess.PIPE, encoding="utf-8", timeout=60)
    assert done.stderr == "pi-ls: standard output is closed; there is nowhere to write to\n"
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["check", "tree", "usage", "inspect"])
def test_the_name_of_a_file_cannot_command_the_terminal(command: str) -> None:
    done = run(command, "a\x1b[31mred\nb.jsonl")
    assert len((done.stdout + done.stderr).splitlines()) == 1
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
def test_a_server_that_was_started_by_hand_says_whom_it_waits_for() -> None:
    ours, its = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard, os.fdopen(its, "rb") as terminal:
        keyboard.write(b"\x04")  # the end of the input
        done = subprocess.run(
            [sys.executable, "-m", "pi_ls"], stdin=terminal, capture_output=True, text=True, timeout=60
        )
    assert re.fullmatch("pi-ls: .* editor .*\n", done.stderr)
    assert done.stdout == ""


def test_wrong_arguments_exit_with_2_and_nothing_on_standard_output() -> None:
    done = run("tree")
    assert done.returncode == 2
    assert done.stdout == ""


def test_asking_for_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from pi_ls.__main__ import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'litellm', 'pygls', 'lsprotocol', 'tiktoken', 'msgspec', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
