from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pi_ls.configfile import ConfigFile
from pi_ls.core.compaction import should_compact
from pi_ls.core.errors import InvalidSettings
from pi_ls.core.jsonvalues import Json
from pi_ls.core.options import CompactionSettings
from pi_ls.regular import read_regular
from pi_ls.settings import EDITOR, INITIALIZATION, UNTRUSTED_EDITOR_KEYS, Settings, merge

TABLE = Path(__file__).parent / "conformance/expected/tables/settings.json"
MODEL = ("some-provider", "big-model")

BROKEN = {
    "trailing comma": b'{"compaction":{"keepRecentTokens":5000},}',
    "empty": b"",
    "a list": b"[]",
    "a text": b'"x"',
    "UTF-16": '{"compaction": {"enabled": true}}'.encode("utf-16"),
    "UTF-16 without a mark": '{"compaction": {"enabled": true}}'.encode("utf-16-le"),
    "Latin-1": '{"theme": "grün"}'.encode("latin-1"),
    "NaN": b'{"compaction": {"reserveTokens": NaN}}',
    "very deep": b'{"a":' * 100_000,
    "deep": b'{"a":' * 300 + b"1" + b"}" * 300,
    "a number of 5,000 digits": b'{"a": ' + b"9" * 5000 + b"}",
}


class Folders:
    """An agent folder and a project, and settings loaded from them."""

    def __init__(self, root: Path) -> None:
        self.agent = root / "agent"
        self.project = root / "project"
        self.user_file = self.agent / "settings.json"
        self.project_file = self.project / ".pi" / "settings.json"
        for file in (self.user_file, self.project_file):
            file.parent.mkdir(parents=True, exist_ok=True)

    def write(self, user: Any = None, project: Any = None) -> Folders:
        for file, content in ((self.user_file, user), (self.project_file, project)):
            if isinstance(content, bytes):
                file.write_bytes(content)
            elif content is not None:
                file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return self

    def load(self, initialization: Any = None, editor: Any = None, **options: Any) -> Settings:
        project = self.project if options.pop("trusted", True) else None
        return Settings.load(self.agent, project, initialization, editor, **options)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def as_json(value: msgspec.Struct) -> Json:
    return json.loads(msgspec.json.encode(value))


def rows() -> list[Any]:
    return [pytest.param(row, id=row["name"]) for row in json.loads(TABLE.read_text("utf-8"))["cases"]]


@pytest.mark.parametrize("row", rows())
def test_values_resolve_as_recorded(folders: Folders, row: Json) -> None:
    folders.write(row["global"], row["project"])
    settings = folders.load(trusted=row.get("projectTrusted", True))
    model = (row["model"]["provider"], row["model"]["id"]) if row["model"] else None
    expected = row["expected"]
    if "error" in expected:
        with pytest.raises(InvalidSettings) as caught:
            settings.compaction(model)
        key = expected["error"].removeprefix("Invalid ").split(" setting: ")[0]
        assert caught.value.data["key"] == key
        file = folders.user_file if row["project"] is None else folders.project_file
        assert caught.value.data["file"] == str(file)
        return
    compaction = as_json(settings.compaction(model))
    assert {key: compaction[key] for key in expected["compaction"]} == expected["compaction"]
    branch = as_json(settings.branch_summary())
    assert {key: branch[key] for key in expected["branchSummary"]} == expected["branchSummary"]


def test_merging_goes_to_every_depth_and_replaces_lists() -> None:
    below = {"a": {"b": {"c": 1, "d": 2}, "l": [1, 2, 3]}, "keep": "x"}
    above = {"a": {"b": {"d": None}, "l": [9]}}
    before = json.dumps([below, above])
    assert merge(below, above) == {"a": {"b": {"c": 1, "d": None}, "l": [9]}, "keep": "x"}
    assert json.dumps([below, above]) == before


def test_nested_objects_of_the_project_are_merged_into_the_users(folders: Folders) -> None:
    overrides = {"fake/a": {"reserveTokens": 1}, "fake/b": {"reserveTokens": 2}}
    user = {"reserveTokens": 30000, "keepRecentTokens": 9000, "modelOverrides": overrides}
    project = {"keepRecentTokens": 7000, "modelOverrides": {"fake/b": {"keepRecentTokens": 5}}}
    folders.write({"compaction": user, "list": [1, 2, 3]}, {"compaction": project, "list": [9]})
    settings = folders.load()

    def budget(model: tuple[str, str]) -> tuple[int, int]:
        resolved = settings.compaction(model)
        return resolved.reserve_tokens, resolved.keep_recent_tokens

    assert budget(("fake", "a")) == (1, 7000)
    assert budget(("fake", "b")) == (2, 5)
    assert budget(("fake", "other")) == (30000, 7000)
    assert settings.compaction().enabled
    assert settings.effective()["list"] == [9]


def test_false_and_zero_are_given_values(folders: Folders) -> None:
    user = {"enabled": True, "reserveTokens": 30000, "keepRecentTokens": 9000, "autoContinue": True}
    project = {"enabled": False, "reserveTokens": 0, "keepRecentTokens": 0, "autoContinue": False}
    folders.write(
        {"compaction": user, "branchSummary": {"enabled": True}},
        {"compaction": project, "branchSummary": {"enabled": False}},
    )
    settings = folders.load()
    found = settings.compaction()
    assert (found.enabled, found.reserve_tokens, found.keep_recent_tokens) == (False, 0, 0)
    assert found.auto_continue is False
    assert settings.branch_summary().enabled is False
    on = msgspec.structs.replace(found, enabled=True)
    assert [should_compact(tokens, 200_000, on) for tokens in (200_000, 200_001)] == [False, True]


WRONG = ["-1", "1.5", '"400000"', "null", "true", "[]", "{}", "1e400", "9007199254740992"]


@pytest.mark.parametrize("field", ["reserveTokens", "keepRecentTokens"])
@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_token_value_is_an_error_that_names_file_key_and_value(
    folders: Folders, field: str, value: str
) -> None:
    good = f'"modelOverrides": {{"fake/m200": {{"{field}": 5}}}}'
    folders.write(f'{{"compaction": {{"{field}": {value}, {good}}}}}')
    settings = folders.load()
    for model in (None, ("fake", "m200")):
        with pytest.raises(InvalidSettings) as caught:
            settings.compaction(model)
        assert caught.value.data == {"file": str(folders.user_file), "key": f"compaction.{field}"}
        for part in (
            str(folders.user_file),
            f"compaction.{field}",
            "Infinity" if value == "1e400" else value,
        ):
            assert part in caught.value.message
    assert [problem.key for problem in settings.problems] == [f"compaction.{field}"]
    assert settings.auto_compaction(), "what does not need the value still works"
    settings.branch_summary()


@pytest.mark.parametrize("field", ["reserveTokens", "keepRecentTokens"])
@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_override_matters_to_its_model_only(folders: Folders, field: str, value: str) -> None:
    folders.write(f'{{"compaction": {{"modelOverrides": {{"fake/m200": {{"{field}": {value}}}}}}}}}')
    settings = folders.load()
    with pytest.raises(InvalidSettings) as caught:
        settings.compaction(("fake", "m200"))
    assert caught.value.data["key"] == f'compaction.modelOverrides["fake/m200"].{field}'
    assert settings.compaction(("fake", "other")) == CompactionSettings()


@pytest.mark.parametrize("entry", ["5", "null", "[]"])
def test_an_override_that_is_no_object_is_reported_and_fails_its_model(folders: Folders, entry: str) -> None:
    folders.write(f'{{"compaction": {{"modelOverrides": {{"fake/m200": {entry}}}}}}}')
    settings = folders.load()
    key = 'compaction.modelOverrides["fake/m200"]'
    with pytest.raises(InvalidSettings) as caught:
        settings.compaction(("fake", "m200"))
    assert caught.value.data["key"] == key
    assert [problem.key for problem in settings.problems] == [key]
    assert settings.compaction(("fake", "other")) == CompactionSettings()


@pytest.mark.parametrize("key", ["Fake/m200", "m200", "fake/m200 ", "fake/*", "fake"])
def test_override_keys_match_exactly_or_not_at_all(folders: Folders, key: str) -> None:
    overrides = {key: {"reserveTokens": 7}, "fake/x/y": {"reserveTokens": 8}}
    folders.write({"compaction": {"modelOverrides": overrides}})
    settings = folders.load()
    assert settings.compaction(("fake", "m200")) == CompactionSettings()
    assert settings.compaction(("fake", "x/y")).reserve_tokens == 8


@pytest.mark.parametrize(
    ("spelling", "tokens"),
    [("4e5", 400_000), ("400000.0", 400_000), ("9007199254740991", 2**53 - 1), ("0", 0), ("-0.0", 0)],
)
def test_a_whole_number_counts_in_any_spelling(folders: Folders, spelling: str, tokens: int) -> None:
    entry = f'{{"fake/big": {{"reserveTokens": {spelling}}}}}'
    folders.write(
        f'{{"compaction": {{"keepRecentTokens": {spelling}, "modelOverrides": {entry}}}, '
        f'"branchSummary": {{"reserveTokens": {spelling}}}}}'
    )
    settings = folders.load()
    found = settings.compaction(("fake", "big"))
    counts = [found.reserve_tokens, found.keep_recent_tokens, settings.branch_summary().reserve_tokens]
    assert counts == [tokens] * 3
    assert all(type(count) is int for count in counts)


@pytest.mark.parametrize("value", [5, "x", [], True, None])
@pytest.mark.parametrize("key", ["compaction", "compaction.modelOverrides", "branchSummary", "retry"])
def test_a_container_of_a_wrong_type_counts_as_absent_and_is_reported(
    folders: Folders, key: str, value: Any
) -> None:
    content: Any = value
    for name in reversed(key.split(".")):
        content = {name: content}
    settings = folders.write(content).load()
    assert settings.compaction(MODEL) == CompactionSettings()
    assert settings.branch_summary().reserve_tokens == 16384
    assert settings.retry().max_retries == 3
    assert [(one.file, one.key) for one in settings.problems] == [(str(folders.user_file), key)]


def test_a_wrong_boolean_is_reported_and_its_default_used(folders: Folders) -> None:
    compaction = {"enabled": "no", "autoContinue": "maybe", "calibrate": 0, "shortSummary": None}
    settings = folders.write({"compaction": compaction, "branchSummary": {"skipPrompt": "yes"}}).load()
    assert settings.compaction() == CompactionSettings()
    assert not settings.branch_summary().skip_prompt
    keys = [
        "compaction.enabled",
        "compaction.autoContinue",
        "compaction.calibrate",
        "branchSummary.skipPrompt",
    ]
    assert sorted(one.key for one in settings.problems) == sorted(keys)


def test_settings_that_are_right_come_through_without_a_word(folders: Folders) -> None:
    compaction: Json = {
        "autoContinue": "unfinished",
        "calibrate": False,
        "shortSummary": True,
        "remoteEndpoint": "http://127.0.0.1:1/x",
        "models": ["a/b", "offline/extractive"],
        "pruning": {"protectTokens": 1, "minimumSavings": 2, "minTokens": 0, "protectedTools": ["read"]},
    }
    content: Json = {
        "compaction": compaction,
        "branchSummary": {"enabled": True, "reserveTokens": 9, "skipPrompt": True},
        "retry": {
            "enabled": False,
            "maxRetries": 1,
            "baseDelayMs": 2,
            "maxAgentDelayMs": 3,
            "requestTimeoutMs": 4,
        },
        "defaultProvider": "a",
        "defaultModel": "b/c",
        "sessionDir": "~/s",
        "steeringMode": "all",
        "tokenEstimator": "chars",
        "theme": {"somebody": "else's"},
    }
    settings = folders.write(content).load()
    assert settings.problems == []
    compaction["pruning"]["enabled"] = True
    found = as_json(settings.compaction())
    assert {key: found[key] for key in compaction} == compaction
    assert as_json(settings.branch_summary()) == content["branchSummary"]
    assert as_json(settings.retry()) == content["retry"]
    assert (settings.default_model, settings.session_dir) == (("a", "b/c"), "~/s")
    assert (settings.steering_mode, settings.follow_up_mode) == ("all", "one-at-a-time")
    assert settings.token_estimator == "chars"
    assert settings.effective()["theme"] == {"somebody": "else's"}


def test_other_wrong_values_are_reported_and_their_defaults_used(folders: Folders) -> None:
    content: Json = {
        "compaction": {"remoteEndpoint": "ftp://x", "models": "a/b", "pruning": {"protectTokens": -1}},
        "retry": {"maxRetries": "many"},
        "defaultProvider": 1,
        "defaultModel": "m",
        "steeringMode": "some",
        "tokenEstimator": 3,
    }
    settings = folders.write(content).load()
    assert {one.key for one in settings.problems} == {
        "compaction.remoteEndpoint",
        "compaction.models",
        "compaction.pruning.protectTokens",
        "retry.maxRetries",
        "defaultProvider",
        "steeringMode",
        "tokenEstimator",
    }
    found = settings.compaction()
    assert (found.remote_endpoint, found.models) == (None, ())
    assert not found.pruning.enabled, "nothing is pruned by numbers that are not known"
    assert settings.retry().max_retries == 3
    assert settings.default_model is None
    assert (settings.steering_mode, settings.token_estimator) == ("one-at-a-time", "tiktoken")


def test_what_an_operation_captured_does_not_change_under_it(folders: Folders) -> None:
    overrides = {"fake/m1000": {"reserveTokens": 400_000}}
    settings = folders.write({"compaction": {"modelOverrides": overrides}}).load()
    captured = settings.compaction(("fake", "m1000"))
    settings.set_auto_compaction(False)
    folders.write({"compaction": {"reserveTokens": 1}})
    assert settings.reload().compaction(("fake", "m200")).reserve_tokens == 1
    assert (captured.reserve_tokens, captured.enabled) == (400_000, True)


# Layers


def test_later_layers_win_key_by_key(folders: Folders) -> None:
    folders.write(
        {"compaction": {"reserveTokens": 1, "keepRecentTokens": 1}, "branchSummary": {"reserveTokens": 1}},
        {"compaction": {"reserveTokens": 2, "keepRecentTokens": 2}},
    )
    settings = folders.load({"compaction": {"keepRecentTokens": 3}}, {"branchSummary": {"reserveTokens": 4}})
    found = settings.compaction()
    assert (found.reserve_tokens, found.keep_recent_tokens) == (2, 3)
    assert settings.branch_summary().reserve_tokens == 4


@pytest.mark.parametrize(
    ("initialization", "editor", "source"),
    [({"reserveTokens": -1}, {}, INITIALIZATION), ({"reserveTokens": 1}, {"reserveTokens": -1}, EDITOR)],
)
def test_an_error_names_the_layer_a_value_came_from(
    folders: Folders, initialization: Json, editor: Json, source: str
) -> None:
    settings = folders.load({"compaction": initialization}, {"compaction": editor})
    with pytest.raises(InvalidSettings) as caught:
        settings.compaction()
    assert caught.value.data["file"] == source


@pytest.mark.parametrize("value", [5, "x", []])
def test_what_a_client_sends_instead_of_settings_is_reported(folders: Folders, value: Any) -> None:
    settings = folders.load(value, value)
    assert [one.file for one in settings.problems] == [INITIALIZATION, EDITOR]
    assert settings.compaction() == CompactionSettings()


def test_in_an_untrusted_workspace_the_editor_cannot_redirect_anything(folders: Folders) -> None:
    wanted: Json = {
        "compaction": {"remoteEndpoint": "http://evil/x", "models": ["evil/m"], "keepRecentTokens": 7},
        "defaultProvider": "evil",
        "defaultModel": "m",
        "sessionDir": "/evil",
        "shellPath": "/evil",
        "defaultTools": ["bash"],
        "approval": {"bash": "allow"},
    }
    untrusted = folders.load(None, wanted, trusted=False)
    assert {one.key for one in untrusted.problems} == {".".join(keys) for keys in UNTRUSTED_EDITOR_KEYS}
    assert len(untrusted.problems) == len(UNTRUSTED_EDITOR_KEYS)
    found = untrusted.compaction()
    assert (found.remote_endpoint, found.models, found.keep_recent_tokens) == (None, (), 7)
    assert (untrusted.default_model, untrusted.session_dir) == (None, None)
    assert not {"shellPath", "defaultTools", "approval"} & untrusted.effective().keys()

    again = untrusted.reload({"compaction": {"keepRecentTokens": 8}})
    assert again.compaction().keep_recent_tokens == 8
    assert again.problems_since(untrusted) == [], "each is told once"

    for allowed in (
        folders.load(None, wanted, editor_trusted=True),
        folders.load(wanted, None, trusted=False),
    ):
        assert allowed.problems == []
        assert allowed.compaction().remote_endpoint == "http://evil/x"
        assert allowed.default_model == ("evil", "m")


def test_a_project_cannot_approve_its_own_tools(folders: Folders) -> None:
    settings = folders.write({"approval": {"bash": "deny"}}, {"approval": {"bash": "allow"}}).load()
    assert settings.effective()["approval"] == {"bash": "deny"}
    assert [(one.file, one.key) for one in settings.problems] == [(str(folders.project_file), "approval")]


def test_a_further_message_of_the_editor_wins_key_by_key(folders: Folders) -> None:
    first = folders.load(None, {"compaction": {"reserveTokens": 1, "keepRecentTokens": 2}})
    second = first.reload({"compaction": {"reserveTokens": 3}})
    found = second.compaction()
    assert (found.reserve_tokens, found.keep_recent_tokens) == (3, 2)


def test_a_change_of_a_file_is_noticed_and_read(folders: Folders) -> None:
    settings = folders.load()
    assert not settings.changed()
    folders.write({"compaction": {"keepRecentTokens": 1}})
    assert settings.changed()
    settings = settings.reload()
    assert not settings.changed()
    assert settings.compaction().keep_recent_tokens == 1
    folders.write(project={"compaction": {"keepRecentTokens": 2}})
    assert settings.changed()
    settings = settings.reload()
    folders.project_file.unlink()
    assert settings.changed()
    assert settings.reload().compaction().keep_recent_tokens == 1


# Files that cannot be read


@pytest.mark.parametrize("which", ["user", "project"])
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_cannot_be_used_is_told_once_and_never_written_to(
    folders: Folders, which: str, content: bytes
) -> None:
    other = {"compaction": {"reserveTokens": 77}}
    folders.write(*((content, other) if which == "user" else (other, content)))
    file = folders.user_file if which == "user" else folders.project_file
    settings = folders.load()
    assert [one.file for one in settings.problems] == [str(file)]
    assert str(file) in settings.problems[0].message
    assert settings.reload().problems_since(settings) == []
    found = settings.compaction()
    assert (found.reserve_tokens, found.keep_recent_tokens) == (77, 20000)

    not_saved = settings.set_auto_compaction(False)
    assert settings.compaction().enabled is False
    assert settings.reload().compaction().enabled is False, "the switch holds for this run"
    assert file.read_bytes() == content
    if which == "user":
        assert not_saved is not None
        assert str(file) in not_saved
    else:
        assert not_saved is None
        assert json.loads(folders.user_file.read_bytes())["compaction"] == {
            "reserveTokens": 77,
            "enabled": False,
        }


def test_broken_json_is_told_with_line_and_column(folders: Folders) -> None:
    settings = folders.write('{\n  "compaction": {\n    "enabled": flase\n  }\n}').load()
    assert settings.problems[0].line == 3
    assert "line 3, column 16" in settings.problems[0].message


@pytest.mark.parametrize("kind", ["folder", "fifo", "loop"])
def test_what_is_no_file_is_told_and_left_alone(folders: Folders, kind: str) -> None:
    if kind == "folder":
        folders.user_file.mkdir()
    elif kind == "fifo":
        os.mkfifo(folders.user_file)
    else:
        folders.user_file.symlink_to(folders.user_file)
    before = folders.user_file.lstat()
    settings = folders.load()
    assert [one.file for one in settings.problems] == [str(folders.user_file)]
    not_saved = settings.set_auto_compaction(False)
    assert not_saved is not None
    assert str(folders.user_file) in not_saved
    assert not settings.auto_compaction()
    after = folders.user_file.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


AS_NOBODY = """
import json, os, sys
from pathlib import Path
from pi_ls.settings import Settings
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
settings = Settings.load(Path(sys.argv[1]), Path(sys.argv[2]))
said = settings.set_auto_compaction(False)
print(json.dumps({"problems": [one.file for one in settings.problems], "said": said,
                  "enabled": settings.compaction().enabled, "reserve": settings.compaction().reserve_tokens}))
"""


@pytest.fixture
def shared() -> Iterator[Folders]:
    """Folders that an unprivileged user may reach and owns, which pytest's own are not."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    folders = Folders(root)
    yield folders
    for path in (folders.agent, folders.project_file.parent):
        path.chmod(0o755)
    shutil.rmtree(root)


def as_nobody(folders: Folders) -> Json:
    """What happens where permissions count, also if the tests run as root."""
    if os.getuid() == 0:
        for path in (folders.agent, folders.user_file, folders.project_file):
            if path.exists():
                os.chown(path, 65534, 65534)
    command = [sys.executable, "-c", AS_NOBODY, str(folders.agent), str(folders.project)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


@pytest.mark.parametrize("which", ["user", "project"])
def test_a_file_that_may_not_be_read_is_told_and_left_alone(shared: Folders, which: str) -> None:
    content = b'{"compaction":{"reserveTokens":1}}'
    shared.write(**{which: content})
    file = shared.user_file if which == "user" else shared.project_file
    file.chmod(0)
    found = as_nobody(shared)
    assert (found["problems"], found["enabled"], found["reserve"]) == ([str(file)], False, 16384)
    assert (found["said"] is not None and str(file) in found["said"]) == (which == "user")
    file.chmod(0o600)
    assert file.read_bytes() == content


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_may_not_be_written_is_not_replaced(shared: Folders, what: str) -> None:
    content = b'{"compaction":{"reserveTokens":1}}'
    shared.write(content)
    (shared.user_file if what == "file" else shared.agent).chmod(0o444 if what == "file" else 0o555)
    found = as_nobody(shared)
    assert (found["problems"], found["enabled"], found["reserve"]) == ([], False, 1)
    assert str(shared.user_file) in found["said"]
    assert shared.user_file.read_bytes() == content
    assert [path.name for path in shared.agent.iterdir()] == ["settings.json"]


IN_ASCII = """
import sys
from pathlib import Path
from pi_ls.settings import Settings
settings = Settings.load(Path(sys.argv[1]))
assert settings.problems == [], settings.problems
assert settings.effective()["note"] == "\\u00fc \\u4f60\\u597d \\U0001f600"
assert settings.set_auto_compaction(False) is None
"""


def test_files_are_utf8_whatever_the_locale_and_a_bom_is_skipped(folders: Folders) -> None:
    folders.write(b'\xef\xbb\xbf{"note": "' + "ü 你好 😀".encode() + b'"}')
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    environment["PYTHONCOERCECLOCALE"] = "0"
    subprocess.run(
        [sys.executable, "-c", IN_ASCII, str(folders.agent)], check=True, env=environment, timeout=60
    )
    text = folders.user_file.read_bytes().decode("utf-8-sig")
    assert json.loads(text) == {"note": "ü 你好 😀", "compaction": {"enabled": False}}
    assert "你好" in text


# Writing


def test_the_switch_keeps_everything_else_in_the_file(folders: Folders) -> None:
    folders.write(
        '{"z":1e400,"a":[1,{"b":[]}],"compaction":{"x":null,"enabled":true,"y":12.50},"e":{},"t":"\\ud800"}\n'
    )
    settings = folders.load()
    assert settings.set_auto_compaction(False) is None
    assert folders.user_file.read_text() == (
        '{\n  "z": 1e400,\n  "a": [\n    1,\n    {\n      "b": []\n    }\n  ],\n'
        '  "compaction": {\n    "x": null,\n    "enabled": false,\n    "y": 12.50\n  },\n'
        '  "e": {},\n  "t": "\\ud800"\n}\n'
    )
    assert not settings.changed(), "what was written is known"


def test_the_switch_keeps_what_others_wrote_meanwhile(folders: Folders) -> None:
    settings = folders.write({"theme": "dark"}).load()
    folders.write({"theme": "light", "new": 1})
    assert settings.set_auto_compaction(False) is None
    assert json.loads(folders.user_file.read_text()) == {
        "theme": "light",
        "new": 1,
        "compaction": {"enabled": False},
    }
    assert settings.changed(), "what others wrote is still to be read"


def test_a_file_that_broke_meanwhile_is_not_overwritten(folders: Folders) -> None:
    settings = folders.write({"theme": "dark"}).load()
    folders.write("{oops")
    not_saved = settings.set_auto_compaction(False)
    assert not_saved is not None
    assert str(folders.user_file) in not_saved
    assert folders.user_file.read_text() == "{oops"
    assert not settings.auto_compaction()


def test_a_setting_that_is_no_container_is_not_overwritten(folders: Folders) -> None:
    settings = folders.write('{"compaction": "later"}').load()
    not_saved = settings.set_auto_compaction(False)
    assert not_saved is not None
    assert "compaction" in not_saved
    assert folders.user_file.read_text() == '{"compaction": "later"}'
    assert not settings.compaction().enabled


def test_a_new_file_and_its_folders_are_private(tmp_path: Path) -> None:
    old_mask = os.umask(0o022)
    try:
        settings = Settings.load(tmp_path / "home" / "agent")
        assert settings.set_auto_compaction(False) is None
    finally:
        os.umask(old_mask)
    file = tmp_path / "home" / "agent" / "settings.json"
    modes = [path.stat().st_mode & 0o777 for path in (file, file.parent, file.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    assert file.read_text() == '{\n  "compaction": {\n    "enabled": false\n  }\n}\n'


def test_a_link_stays_a_link_and_its_target_keeps_its_mode(folders: Folders, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "pi.json"
    target.parent.mkdir()
    target.write_text('{"theme":"dark"}')
    target.chmod(0o640)
    folders.user_file.symlink_to(target)
    assert folders.load().set_auto_compaction(False) is None
    assert folders.user_file.is_symlink()
    assert json.loads(target.read_text()) == {"theme": "dark", "compaction": {"enabled": False}}
    assert target.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["pi.json"], "no temporary file is left"


def test_a_switch_that_is_already_saved_writes_nothing(folders: Folders) -> None:
    folders.write('{"compaction":{"enabled":false}}')
    before = folders.user_file.stat()
    assert folders.load().set_auto_compaction(False) is None
    after = folders.user_file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("layer", ["project", "initialization", "editor"])
def test_the_switch_holds_over_every_layer_and_says_which_wins_after_a_restart(
    folders: Folders, layer: str
) -> None:
    on = {"compaction": {"enabled": True}}
    folders.write({}, on if layer == "project" else None)
    settings = folders.load(
        on if layer == "initialization" else None, on if layer == "editor" else None, editor_trusted=True
    )
    said = settings.set_auto_compaction(False)
    names = {"project": str(folders.project_file), "initialization": INITIALIZATION, "editor": EDITOR}
    assert said is not None
    assert names[layer] in said
    assert not settings.auto_compaction()
    assert not settings.compaction().enabled
    assert settings.effective()["compaction"]["enabled"] is False
    assert not settings.reload(on).compaction().enabled
    assert json.loads(folders.user_file.read_text()) == {"compaction": {"enabled": False}}
    assert settings.set_auto_compaction(True) is None, "they agree"
    assert settings.auto_compaction()


def test_folders_that_share_the_run_are_switched_together(folders: Folders, tmp_path: Path) -> None:
    one = folders.load()
    other = Settings.load(tmp_path / "elsewhere", run=one.run)
    one.set_auto_compaction(False)
    assert not other.compaction().enabled


def test_importing_settings_and_models_loads_nothing_heavy() -> None:
    code = (
        "import sys, pi_ls.settings, pi_ls.models\n"
        "heavy = ('litellm', 'tiktoken', 'pygls', 'asyncio', 'subprocess')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


def test_whoever_looks_while_a_file_is_read_again_sees_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and models are looked up on several threads."""
    path = tmp_path / "models.json"
    path.write_text('{"known": 1}')
    file, seen = ConfigFile(path), list[Json]()

    def look_and_read(looked_at: Path, most: int) -> bytes:
        seen.append(file.values)  # as another thread may, just then
        assert file.changed(), "what has not been taken yet does not count as taken"
        return read_regular(looked_at, most)

    path.write_text('{"known": 22}')
    monkeypatch.setattr("pi_ls.configfile.read_regular", look_and_read)
    assert file.refresh()
    assert (seen, file.values) == ([{"known": 1}], {"known": 22})
