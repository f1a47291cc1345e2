from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from pi_ls.core.entries import CompactionBody, Entry
from pi_ls.core.errors import (
    SessionLocked,
    SessionNotFound,
    SessionReadOnly,
    SessionUnreadable,
    WriteFailed,
)
from pi_ls.core.jsonvalues import Json
from pi_ls.core.tree import SessionTree
from pi_ls.store import (
    SessionFile,
    encode_cwd,
    find_session,
    fork,
    list_sessions,
    new_session_path,
    session_directories,
    sessions_directory,
    uuid7,
)
from tests import sessions
from tests.conformance_data import Session
from tests.conformance_data import sessions as recorded_sessions
from tests.sessions import assistant, compaction, encode, entry, header, label, user, write
from tests.test_store_crash import child, run_child, said_by

HEX8 = "[0-9a-f]{8}"


def two_messages() -> list[Json]:
    return [header(), user("u1", None, "a"), assistant("a1", "u1", "b", total=1)]


def question(parent: str | None, text: str = "three") -> Json:
    return {
        "type": "message",
        "parentId": parent,
        "message": {"role": "user", "content": text, "timestamp": 5},
    }


def fingerprint(path: Path) -> tuple[str, int]:
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns


def texts(entries: list[Entry]) -> list[Any]:
    return [one.data["message"]["content"] for one in entries if one.role == "user"]


def names_in(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def wait_for(condition: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


@pytest.fixture
def open_folder() -> Generator[Path]:
    """A folder that an ordinary user can reach, and owns if the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for one in [folder, *folder.rglob("*")]:
        if one.is_dir():
            one.chmod(0o700)
    shutil.rmtree(folder)


def give_away(*paths: Path) -> None:
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, 65534, 65534)


# ---- opening


@pytest.mark.parametrize("recorded", [one for one in recorded_sessions() if one.was_opened], ids=repr)
def test_recorded_sessions_open_with_the_recorded_values_and_stay_as_they_are(
    recorded: Session, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(recorded.raw)
    before = fingerprint(path)
    file, entries, _ = SessionFile.open(path)
    tree = SessionTree(entries)
    expected = recorded.expected["open"]
    assert len(entries) == expected["entryCount"]
    if recorded.expected["idScheme"] == "index":
        assert tree.leaf is entries[int(expected["leaf"][1:])]
    else:
        assert tree.leaf_id == expected["leaf"]
    if expected["fileChange"] != "initialized":
        assert file.header.id == expected["header"]["id"]
        assert file.header.cwd == expected["header"]["cwd"]
    assert [one.data["type"] for one in entries] == [one.type for one in entries]
    file.close()
    assert fingerprint(path) == before
    assert names_in(tmp_path) == ["s.jsonl"]


@pytest.mark.parametrize("recorded", [one for one in recorded_sessions() if one.was_opened], ids=repr)
def test_recorded_sessions_have_the_recorded_name(recorded: Session, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(recorded.raw)
    if recorded.expected["open"]["fileChange"] == "initialized":
        assert list_sessions(tmp_path) == []
        return
    (summary,) = list_sessions(tmp_path)
    assert summary.name == recorded.expected["open"]["sessionName"]
    assert summary.id == recorded.expected["open"]["header"]["id"]


@pytest.mark.parametrize("name", ["header-missing", "not-a-session"])
def test_what_is_no_session_is_refused_and_never_modified(name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(next(one for one in recorded_sessions() if one.name == name).raw)
    before = fingerprint(path)
    with pytest.raises(SessionUnreadable, match="no session header") as caught:
        SessionFile.open(path)
    assert str(path) in caught.value.message
    assert fingerprint(path) == before
    assert list_sessions(tmp_path) == []


def test_a_byte_order_mark_before_the_header_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(next(one for one in recorded_sessions() if one.name == "bom-header").raw)
    file, entries, problems = SessionFile.open(path)
    assert file.header.id == "5e551000-0000-7000-8000-00000000050e"
    assert len(entries) >= 2
    assert not problems
    before = path.read_bytes()
    file.append(question(entries[-1].id))
    assert path.read_bytes().startswith(before)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path / "none" / "s.jsonl"):
        with pytest.raises(SessionNotFound, match="none"):
            SessionFile.open(path)
    assert names_in(tmp_path) == []


def test_a_folder_a_pipe_and_a_nul_in_a_path_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path, tmp_path / "pipe.jsonl", f"{tmp_path}/x\0y"):
        with pytest.raises(SessionUnreadable):
            SessionFile.open(path)
    assert list_sessions(tmp_path) == []


def test_a_newer_version_opens_to_read_only_with_one_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [header(version=9), user("u1", None, "a")])
    before = fingerprint(path)
    file, entries, problems = SessionFile.open(path)
    assert texts(entries) == ["a"]
    assert [(one.kind, "version 9" in one.message) for one in problems] == [("newerVersion", True)]
    with pytest.raises(SessionReadOnly, match="version 9"):
        file.append(question("u1"))
    with pytest.raises(SessionReadOnly):
        file.rewrite()
    assert fingerprint(path) == before


@pytest.mark.parametrize("content", [b"", b"\n\n", b"  \r\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_a_new_session_whose_header_comes_with_its_first_entry(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    file, entries, problems = SessionFile.open(path, "/w/p")
    assert (entries, problems) == ([], [])
    assert file.header.cwd == "/w/p"
    assert path.read_bytes() == content
    first = file.append({"type": "session_info", "parentId": None, "name": "n"})
    second = file.append(question(first.id))
    again, entries, problems = SessionFile.open(path)
    assert again.header == file.header
    assert [one.id for one in entries] == [first.id, second.id]
    assert not problems
    assert file.poll().appended == []


def test_looking_in_every_way_changes_no_byte(tmp_path: Path) -> None:
    lines = [
        header(),
        entry("model_change", "k1", None, provider="fake", modelId="m200"),
        entry("thinking_level_change", "t1", "k1", thinkingLevel="low"),
        user("u1", "t1", "a"),
        assistant("a1", "u1", "b", total=1),
    ]
    path = write(tmp_path / "s.jsonl", lines)
    before = fingerprint(path)
    file, entries, _ = SessionFile.open(path)
    for one in entries:
        assert one.body is not None
        assert file.line_of(one) is not None
    file.poll()
    list_sessions(tmp_path)
    find_session(tmp_path, "s-1")
    file.sync()
    file.close()
    assert fingerprint(path) == before
    assert names_in(tmp_path) == ["s.jsonl"]


def test_an_entry_tells_its_line(tmp_path: Path) -> None:
    data = encode(two_messages()).replace(b"\n", b"\n\nbroken\n")
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    file, entries, problems = SessionFile.open(path)
    assert [file.line_of(one) for one in entries] == [4, 7]
    assert [one.line for one in problems] == [3, 6, 9]
    added = file.append(question("a1"))
    assert file.line_of(added) == 10
    created = SessionFile.create(tmp_path, "/w/p", now_ms=1)
    assert created.line_of(created.append({"type": "session_info", "parentId": None, "name": "n"})) is None


async def test_the_loop_lives_while_a_large_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    turn = encode([user("u1", None, sessions.filler(1_000)), assistant("a1", "u1", sessions.filler(50_000))])
    path.write_bytes(encode([header()]) + turn * 2_000)
    opening = asyncio.create_task(asyncio.to_thread(SessionFile.open, path))
    longest, last = 0.0, time.monotonic()
    while not opening.done():
        await asyncio.sleep(0.001)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    opened = await opening
    assert len(opened.entries) == 4_000
    assert longest < 0.5


# ---- broken files, through opening, appending and rewriting


BAD_LINES = [
    b'{"type":"message","id":"zz"',
    b"\0" * 64,
    b"\xff\xfe\0A",
    b"[]",
    b"null",
    b'"text"',
    b'{"type":"message"}',
    b'{"id":"q","type":7}',
]


@pytest.mark.parametrize("bad", [*BAD_LINES, b"", b"   "], ids=repr)
def test_a_bad_line_costs_nothing_but_itself_and_stays(bad: bytes, tmp_path: Path) -> None:
    lines = [*two_messages(), user("u2", "a1", "c"), assistant("a2", "u2", "d", total=2)]
    data = encode(lines[:3]) + bad + b"\n" + encode(lines[3:])
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    file, entries, problems = SessionFile.open(path)
    assert [one.id for one in entries] == ["u1", "a1", "u2", "a2"]
    assert [one.line for one in problems] == ([4] if bad.strip() else [])
    added = file.append(question("a2"))
    file.rewrite({"u1": {**entries[0].data, "zz": 1}})
    assert b"\n" + bad + b"\n" in path.read_bytes()
    assert [one.data["id"] for one in [*entries, added]] == ["u1", "a1", "u2", "a2", added.id]
    assert [one.line for one in SessionFile.open(path).problems] == ([4] if bad.strip() else [])
    file.close()


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        (b'{"type":"message","id":"u2","par', ["u1", "a1"]),
        (b'{"type":"message","id":"u2","par' + b"\0" * 20, ["u1", "a1"]),
        (None, ["u1", "a1"]),
    ],
    ids=["torn", "torn with zeros", "no line end"],
)
def test_the_next_entry_after_a_torn_line_begins_a_line_of_its_own(
    tail: bytes | None, kept: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    whole = encode(two_messages())
    path.write_bytes(whole[:-1] if tail is None else whole + tail)
    before = fingerprint(path)
    file, entries, problems = SessionFile.open(path)
    assert fingerprint(path) == before
    assert [one.id for one in entries] == kept
    assert [(one.kind, one.line) for one in problems] == ([] if tail is None else [("tornLine", 4)])
    added = file.append(question("a1"))
    lines = path.read_bytes().split(b"\n")
    assert lines[:3] == whole.split(b"\n")[:3]
    assert lines[3:-2] == ([] if tail is None else [tail])
    assert json.loads(lines[-2])["id"] == added.id
    assert file.poll().problems == []  # it has been told
    last_line = len(lines)
    with path.open("ab") as other:
        other.write(b"broken\n")
    assert [one.line for one in file.poll().problems] == [last_line]
    os.truncate(path, path.stat().st_size - len("broken\n"))
    again, entries, problems = SessionFile.open(path)
    assert [one.id for one in entries] == [*kept, added.id]
    assert [(one.kind, one.line) for one in problems] == ([] if tail is None else [("malformedLine", 4)])
    assert again.line_of(entries[-1]) == file.line_of(added)


def test_a_torn_line_that_its_writer_completes_is_read_then(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    line = encode([user("u2", "a1", "late ☃")])
    with path.open("ab", buffering=0) as other:
        other.write(line[:-9])
        file, _, problems = SessionFile.open(path)
        assert [one.kind for one in problems] == ["tornLine"]
        assert file.poll().appended == []
        other.write(line[-9:])
    changes = file.poll()
    assert texts([*changes.appended]) == ["late ☃"]
    assert not changes.problems
    assert file.poll().appended == []


def test_cycles_repeated_ids_and_missing_parents_open_at_once(tmp_path: Path) -> None:
    lines = [
        header(),
        user("u1", "a2", "a"),
        assistant("a1", "u1", "b", total=1),
        user("u2", "a1", "c"),
        assistant("a2", "u2", "d", total=2),
        user("self", "self", "e"),
        user("u2", "a2", "again"),
        user("u9", "LOST", "f"),
    ]
    path = write(tmp_path / "s.jsonl", lines)
    started = time.monotonic()
    file, entries, problems = SessionFile.open(path)
    tree = SessionTree(entries)
    assert time.monotonic() - started < 2
    assert not problems
    assert {one.kind for one in tree.problems} == {"duplicateId", "missingParent", "cycle"}
    assert [file.line_of(one) for one in entries] == [2, 3, 4, 5, 6, 7, 8]
    assert [one.data["message"]["content"] for one in entries if one.id == "u2"] == ["c", "again"]
    file.append(question(tree.leaf_id))
    assert path.read_bytes().startswith(encode(lines))


def test_a_rewrite_replaces_the_entry_that_has_the_id(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [header(), user("u1", None, "first"), user("u1", None, "second")])
    file, _, _ = SessionFile.open(path)
    file.rewrite({"u1": user("u1", None, "replaced")})
    file.close()
    assert texts(SessionFile.open(path).entries) == ["first", "replaced"]


def test_half_a_character_survives_appending_and_rewriting(tmp_path: Path) -> None:
    half = "x \ud83d y"
    lines = [
        header(),
        user("u1", None, half),
        assistant("a1", "u1", "", sessions.call("c", "bash", command=half)),
        sessions.result("r1", "a1", "c", half),
        label("l1", "r1", "u1", half),
    ]
    path = write(tmp_path / "s.jsonl", lines, ascii_only=True)
    file, entries, problems = SessionFile.open(path)
    assert not problems
    added = file.append(question("l1", half))
    file.rewrite({"u1": {**entries[0].data, "zz": half}})
    file.close()
    path.read_bytes().decode("utf-8")
    again, entries, problems = SessionFile.open(path)
    assert [*map(dict, (one.data for one in entries[1:4]))] == lines[2:]
    assert texts([entries[0], entries[-1]]) == [half, half]
    assert entries[-1].id == added.id
    assert not problems
    assert list_sessions(tmp_path)[0].first_message == "x \ufffd y"
    again.close()


def test_separators_that_are_no_line_ends_survive(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg\rh"
    for newline in ("\n", "\r\n"):
        lines = [header(), user("u1", None, text), assistant("a1", "u1", "ok", total=5)]
        path = write(tmp_path / "s.jsonl", lines, newline=newline)
        file, entries, problems = SessionFile.open(path)
        added = file.append(question("a1", text))
        assert texts([*entries, added]) == [text, text]
        assert texts(SessionFile.open(path).entries) == [text, text]
        assert not problems


def test_nothing_that_is_no_json_is_ever_written(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    file.append({"type": "custom", "parentId": "a1", "customType": "x", "data": [float("nan"), float("inf")]})

    def refuse(name: str) -> Any:
        raise AssertionError(name)

    for line in path.read_bytes().splitlines():
        json.loads(line, parse_constant=refuse)


def test_utf8_is_written_and_read_whatever_the_locale(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [header(), user("u1", None, "ü 你好 😀")])
    strange = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PATH": os.environ["PATH"]}
    run_child("in_a_strange_locale", path, **strange)
    assert path.read_bytes().decode("utf-8").count("ü 你好 😀") == 2


# ---- beginning a session


def test_a_new_session_appears_with_its_first_message(tmp_path: Path) -> None:
    directory = tmp_path / "agent" / "sessions" / "--w-p--"
    file = SessionFile.create(directory, "/w/p", parent_session="/p.jsonl", now_ms=1_767_607_200_000)
    name = file.append({"type": "session_info", "parentId": None, "name": "n"})
    assert names_in(tmp_path) == []
    assert (file.on_disk, file.unsaved) == (False, 0)
    assert name.data["name"] == "n"
    file.append(question(name.id))
    lines = sessions.read(file.path)
    assert sessions.types(lines) == ["session", "session_info", "message"]
    assert lines[0] == {
        "type": "session",
        "version": 3,
        "id": file.header.id,
        "timestamp": "2026-01-05T10:00:00.000Z",
        "cwd": "/w/p",
        "parentSession": "/p.jsonl",
    }
    assert file.path.name == f"2026-01-05T10-00-00-000Z_{file.header.id}.jsonl"
    assert mode_of(file.path) == 0o600
    for folder in (directory, directory.parent, directory.parent.parent):
        assert mode_of(folder) == 0o700
    assert file.totals.messages == 1


def test_an_answer_can_come_first_too_and_what_must_be_saved_is_not_waited_for(tmp_path: Path) -> None:
    file = SessionFile.create(tmp_path, "/w/p", now_ms=1)
    file.append({k: v for k, v in assistant("a1", None, "hi").items() if k != "id"})
    assert file.on_disk
    other = SessionFile.create(tmp_path, "/w/p", now_ms=1)
    other.append({"type": "compaction", "parentId": None, "summary": "S"}, required=True)
    assert sessions.types(sessions.read(other.path)) == ["session", "compaction"]


def test_an_entry_is_written_as_pi_writes_it(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    added = file.append({"type": "custom", "parentId": "a1", "customType": "pi_ls.leaf", "data": {"é": 1}})
    line = path.read_bytes().split(b"\n")[-2].decode()
    fields: Json = json.loads(line)
    assert [*fields] == ["type", "id", "parentId", "timestamp", "customType", "data"]
    assert fields["id"] == added.id
    assert len(added.id) == 8
    assert int(added.id, 16) >= 0
    assert line == json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    assert added.is_leaf_marker
    assert added.timestamp == fields["timestamp"]


def test_ids_are_distinct_and_fall_back_to_a_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "s.jsonl", [header(), user("deadbeef", None, "a")])
    file, _, _ = SessionFile.open(path)
    assert len({file.new_id() for _ in range(100)}) == 100

    def always_the_same(_size: int) -> str:
        return "deadbeef"

    monkeypatch.setattr("secrets.token_hex", always_the_same)
    assert len(file.new_id()) == 36


# ---- appending


def test_what_append_returned_is_in_the_file_and_found_again(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    parent, added = "a1", list[Entry]()
    for at in range(50):
        added.append(file.append(question(parent, f"é {at}")))
        parent = added[-1].id
        assert sessions.read(path)[-1]["id"] == parent
    again = SessionFile.open(path)
    assert [one.data for one in again.entries] == [one.data for one in [*entries, *added]]
    assert file.poll() == again.file.poll()
    assert file.totals.messages == again.file.totals.messages == 52


def test_totals_are_kept_up_at_appends_and_foreign_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    call = sessions.call("c", "bash", command="ls")
    file.append(assistant("a2", "a1", "x", call, total=10, cost=0.25))
    with path.open("ab") as other:
        other.write(encode([assistant("a3", "a2", "y", total=5, cost=0.5)]))
    file.poll()
    totals = file.totals
    assert (totals.tokens, totals.cost, totals.tool_calls) == (16, 0.75, 1)
    assert totals.roles == {"user": 1, "assistant": 3}


def test_lines_of_another_program_are_read_before_ours_is_written(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    with path.open("ab") as other:
        other.write(encode([user("x1", "a1", "foreign"), assistant("y1", "x1", "foreign2", total=3)]))
    mine = file.append(question("a1", "mine"))
    changes = file.poll()
    assert [one.id for one in changes.appended] == ["x1", "y1"]
    assert not changes.rewritten
    assert mine.data["message"]["content"] == "mine"
    assert [one.data["id"] for one in changes.appended] == ["x1", "y1"]
    assert [line["id"] for line in sessions.read(path)] == ["s-1", "u1", "a1", "x1", "y1", mine.id]
    assert file.poll().appended == []
    assert [one.id for one in SessionFile.open(path).entries] == ["u1", "a1", "x1", "y1", mine.id]
    assert len(entries) == 2


def test_polling_an_untouched_file_finds_nothing(tmp_path: Path) -> None:
    file, _, _ = SessionFile.open(write(tmp_path / "s.jsonl", two_messages()))
    for _ in range(3):
        changes = file.poll()
        assert (list(changes.appended), list(changes.problems), changes.rewritten) == ([], [], False)


def test_what_is_wrong_with_foreign_lines_is_told_once_with_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    with path.open("ab") as other:
        other.write(b"broken\n" + encode([user("x1", "a1", "foreign")]))
    changes = file.poll()
    assert [(one.kind, one.line) for one in changes.problems] == [("malformedLine", 4)]
    assert [one.id for one in changes.appended] == ["x1"]
    assert file.poll().problems == []


def by_rename(path: Path, data: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(data)
    other.rename(path)


def in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


REWRITTEN = {
    "shorter": [header(), user("u1", None, "a")],
    "other end": [header(), user("u1", None, "a"), assistant("a1", "u1", "b", total=1, timestamp=3)],
    "longer": [header(more=1), *two_messages()[1:], user("u2", "a1", "c")],
}


@pytest.mark.parametrize("how", [by_rename, in_place])
@pytest.mark.parametrize("what", ["shorter", "other end", "longer"])
def test_a_foreign_rewrite_is_noticed_and_the_file_read_anew(
    how: Callable[[Path, bytes], None], what: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    how(path, encode(REWRITTEN[what]))
    assert file.poll().rewritten
    reopened = file.reopen()
    assert [one.data for one in reopened.entries] == REWRITTEN[what][1:]
    assert not reopened.file.poll().rewritten


@pytest.mark.parametrize("how", [by_rename, in_place])
def test_an_entry_appended_after_a_foreign_rewrite_goes_into_the_new_file(
    how: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    how(path, encode(REWRITTEN["longer"]))
    mine = file.append(question("a1", "mine"))
    assert mine.data["message"]["content"] == "mine"
    assert file.poll().rewritten
    with pytest.raises(WriteFailed, match="another program"):
        file.rewrite({"u1": user("u1", None, "changed")})
    ids = [one.id for one in file.reopen().entries]
    assert ids == ["u1", "a1", "u2", mine.id]


def test_entries_of_a_file_cut_off_in_place_read_as_empty_and_are_reported_once(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    os.truncate(path, 300)
    assert entries[0].message is not None
    assert entries[1].message is None
    assert entries[1].data["id"] == "a1"
    assert entries[1].message is None
    changes = file.poll()
    assert [(one.kind, one.entry_id) for one in changes.problems] == [("malformedLine", "a1")]
    assert changes.rewritten
    assert file.poll().problems == []


def test_a_body_is_not_taken_from_another_entry(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    in_place(path, encode([header(), user("u9", None, "z"), *two_messages()[2:]]))
    assert entries[0].message is None
    assert entries[1].message is not None
    assert [one.entry_id for one in file.poll().problems] == ["u1"]


def test_a_file_that_was_emptied_gets_its_header_again(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    os.truncate(path, 0)
    mine = file.append(question("a1", "mine"))
    assert file.poll().rewritten
    reopened = file.reopen()
    assert [one.id for one in reopened.entries] == [mine.id]
    assert reopened.file.header.id == "s-1"


def test_an_empty_file_that_another_program_fills_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"")
    file, _, _ = SessionFile.open(path)
    path.write_bytes(encode(two_messages()))
    assert [one.id for one in file.poll().appended] == ["u1", "a1"]
    assert file.header.id == "s-1"
    mine = file.append(question("a1"))
    assert [line["id"] for line in sessions.read(path)] == ["s-1", "u1", "a1", mine.id]


def test_an_empty_file_that_is_filled_with_something_else_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"")
    file, _, _ = SessionFile.open(path)
    path.write_bytes(b'{"type":"recipe"}\n')
    assert file.poll().rewritten
    with pytest.raises(SessionUnreadable):
        file.reopen()


# ---- locking


async def test_the_lock_keeps_other_processes_out_and_the_loop_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pi_ls.store.file.LOCK_SECONDS", 0.3)
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    with child("hold_lock", path) as process:
        assert said_by(process) == "held"
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(SessionLocked, match=str(path)):
            async with file.lock():
                pass
        ticking.cancel()
        assert ticks > 10
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    async with file.lock():
        file.append(question("a1"))
    assert len(sessions.read(path)) == 4


async def test_a_waiting_writer_gets_the_lock_when_it_is_free(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    one, two = SessionFile.open(path).file, SessionFile.open(path).file
    order: list[str] = []

    async def second() -> None:
        async with two.lock():
            order.append("second")

    async with one.lock():
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.05)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_the_lock_of_a_session_that_is_not_on_disk_makes_nothing(tmp_path: Path) -> None:
    file = SessionFile.create(tmp_path / "folder", "/w/p", now_ms=1)
    async with file.lock():
        file.append({"type": "session_info", "parentId": None, "name": "n"})
    assert names_in(tmp_path) == []


# ---- when it cannot be written


async def test_a_folder_that_is_gone_is_made_again_with_the_whole_session(tmp_path: Path) -> None:
    path = write(tmp_path / "folder" / "s.jsonl", two_messages())
    path.chmod(0o640)
    file, entries, _ = SessionFile.open(path)
    shutil.rmtree(path.parent)
    async with file.lock():
        added = file.append(question("a1"))
    assert file.write_problem is None
    assert [line["id"] for line in sessions.read(path)] == ["s-1", "u1", "a1", added.id]
    assert (mode_of(path.parent), mode_of(path)) == (0o700, 0o640)
    assert [one.data["id"] for one in [*entries, added]] == ["u1", "a1", added.id]
    changes = file.poll()
    assert not changes.rewritten
    file.close()


def test_a_new_session_whose_folder_cannot_be_made_is_kept_in_memory(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    run_child("begin_where_nothing_may_be_made", open_folder)


def test_a_file_that_may_only_be_read_keeps_entries_in_memory(open_folder: Path) -> None:
    path = write(open_folder / "s.jsonl", two_messages())
    give_away(open_folder, path)
    path.chmod(0o444)
    open_folder.chmod(0o555)
    run_child("write_where_it_is_forbidden", path)


def test_a_folder_that_may_only_be_read_does_not_hinder_appending(open_folder: Path) -> None:
    path = write(open_folder / "s.jsonl", two_messages())
    give_away(open_folder, path)
    open_folder.chmod(0o555)
    run_child("write_in_a_folder_that_may_not_be_written", path)


def test_a_file_that_may_not_be_read_is_left_out_of_the_list(open_folder: Path) -> None:
    write(open_folder / "one.jsonl", [header(session_id="one")])
    path = write(open_folder / "two.jsonl", [header(session_id="two")])
    give_away(path)
    path.chmod(0)
    assert json.loads(run_child("list_what_may_not_be_read", open_folder)) == ["one"]


@pytest.fixture
def small_disk(open_folder: Path) -> Generator[tuple[Path, str]]:
    """A folder on a disk that is soon full: a small file system as root, else a limit on a file's size."""
    if os.geteuid() != 0:
        yield open_folder, "limit"
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(open_folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield open_folder, "limit"  # a root that may not mount
        return
    try:
        yield open_folder, "disk"
    finally:
        subprocess.run(["umount", str(open_folder)], check=True)


def test_entries_wait_for_a_full_disk_in_order_and_nothing_half_written_stays(
    small_disk: tuple[Path, str],
) -> None:
    folder, how = small_disk
    path = write(folder / "s.jsonl", two_messages())
    give_away(folder, path)
    run_child("fill_disk", path, how)


def test_the_same_with_a_limit_on_the_size_of_a_file(open_folder: Path) -> None:
    path = write(open_folder / "s.jsonl", two_messages())
    give_away(open_folder, path)
    run_child("fill_disk", path, "limit")


def test_unsaved_entries_come_along_when_the_file_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    path.unlink()
    path.mkdir()  # a write must fail, even for root
    unsaved = file.append(question("a1", "unsaved"))
    assert file.unsaved == 1
    path.rmdir()
    path.write_bytes(encode(REWRITTEN["longer"]))
    assert file.poll().rewritten
    reopened = file.reopen()
    assert (reopened.file.unsaved, reopened.entries[-1]) == (1, unsaved)
    assert reopened.file.totals.messages == 4
    added = reopened.file.append(question(unsaved.id, "next"))
    assert [line["id"] for line in sessions.read(path)][-2:] == [unsaved.id, added.id]


# ---- rewriting


def strange_session() -> list[Json]:
    return [
        header(zz=1),
        {**user("u1", None, "a"), "zz": 1},
        entry("future_thing", "z1", "u1", x={"deep": [1, 2.5, "é"]}),
        assistant("a1", "z1", "b", total=1, zz=1),
        user("u2", "a1", "c"),
    ]


def test_a_rewrite_changes_the_given_entries_and_no_other_byte(tmp_path: Path) -> None:
    data = encode(strange_session()).replace(b"2.5", b"2.50").replace(b"\n", b" \r\n\n  \nbroken\n")
    data += b'{"type":"torn'
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    owner = path.stat().st_uid
    file, entries, _ = SessionFile.open(path)
    bodies = [one.data for one in entries]
    new = {**bodies[2], "pruned": "x" * 1000}
    file.rewrite({"a1": new})
    old_line = next(line for line in data.split(b"\n") if b'"a1", "parentId"' in line).rstrip()
    new_line = next(line for line in path.read_bytes().split(b"\n") if b'"pruned"' in line).rstrip()
    assert json.loads(new_line) == new
    assert path.read_bytes() == data.replace(old_line, new_line)
    assert (mode_of(path), path.stat().st_uid) == (0o640, owner)
    assert [one.data for one in entries] == [bodies[0], bodies[1], new, bodies[3]]
    assert not file.poll().rewritten
    added = file.append(question("u2"))
    assert added.data["message"]["content"] == "three"
    assert [one.data for one in SessionFile.open(path).entries][:4] == [one.data for one in entries]
    file.close()
    assert names_in(tmp_path) == ["s.jsonl"]


def test_several_rewrites_of_several_entries_keep_every_body_in_its_place(tmp_path: Path) -> None:
    lines = [header()] + [user(f"u{at}", None, "x" * at) for at in range(30)]
    path = write(tmp_path / "s.jsonl", lines)
    file, entries, _ = SessionFile.open(path)
    for step in (3, 5, 7):
        changed = {f"u{at}": user(f"u{at}", None, f"{step} " * (31 - at)) for at in range(0, 30, step)}
        lines = [changed.get(line["id"], line) for line in lines]
        file.rewrite(changed)
        lines.append(file.append(question("u0", f"after {step}")).data)
    assert sessions.read(path) == lines
    assert [one.data for one in entries] == lines[1:31]
    assert [one.data for one in SessionFile.open(path).entries] == lines[1:]
    file.close()


def test_a_rewrite_takes_foreign_lines_and_unsaved_ones_along(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    with path.open("ab") as other:
        other.write(encode([user("x1", "a1", "foreign")]))
    file.rewrite({"u1": {**entries[0].data, "zz": 1}})
    assert [one.id for one in file.poll().appended] == ["x1"]
    assert [line["id"] for line in sessions.read(path)] == ["s-1", "u1", "a1", "x1"]
    file.close()


def test_a_rewrite_does_not_undo_a_foreign_rewrite(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    by_rename(path, encode(REWRITTEN["longer"]))
    with pytest.raises(WriteFailed, match="another program"):
        file.rewrite({"u1": {**entries[0].data, "zz": 1}})
    assert path.read_bytes() == encode(REWRITTEN["longer"])
    assert names_in(tmp_path) == ["s.jsonl"]


def test_a_foreign_rewrite_in_the_middle_of_ours_is_not_undone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(encode(two_messages()) + encode([user("u2", "a1", sessions.filler(100_000))]) * 300)
    file, entries, _ = SessionFile.open(path)
    foreign = encode(REWRITTEN["longer"])

    def rewrite_in_the_middle() -> None:
        wait_for(lambda: ".s.jsonl.tmp" in names_in(tmp_path))
        by_rename(path, foreign)

    other = threading.Thread(target=rewrite_in_the_middle)
    other.start()
    try:
        file.rewrite({"u1": {**entries[0].data, "zz": 1}})
    except WriteFailed as error:
        assert "another program" in error.message  # noqa: PT017 - it may also come after our rename
    other.join()
    assert path.read_bytes() == foreign
    file.close()
    assert names_in(tmp_path) == ["s.jsonl"]


def test_lines_that_reach_the_old_file_late_are_in_the_new_one(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    with path.open("ab", buffering=0) as slow_writer:
        file.rewrite({"u1": {**entries[0].data, "zz": 1}})
        slow_writer.write(encode([user("x1", "a1", "late")]))
        wait_for(lambda: b"late" in path.read_bytes())
        half = encode([user("x2", "x1", "later")])
        slow_writer.write(half[:20])
        added = file.append(question("a1", "mine"))
        slow_writer.write(half[20:])
        wait_for(lambda: b"later" in path.read_bytes())
    assert [line["id"] for line in sessions.read(path)] == ["s-1", "u1", "a1", "x1", added.id, "x2"]
    assert [one.id for one in file.poll().appended] == ["x1", "x2"]
    file.close()
    assert not SessionFile.open(path).problems


def test_a_record_that_is_half_written_during_the_rewrite_arrives_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    line = encode([user("x1", "a1", "half")])
    with path.open("ab", buffering=0) as slow_writer:
        slow_writer.write(line[:25])
        file.rewrite({"u1": {**entries[0].data, "zz": 1}})
        slow_writer.write(line[25:])
        file.close()  # looks a last time
    assert [one.id for one in SessionFile.open(path).entries] == ["u1", "a1", "x1"]


def test_the_old_file_is_watched_for_two_seconds_and_no_longer(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, entries, _ = SessionFile.open(path)
    started = time.monotonic()
    with path.open("ab", buffering=0) as slow_writer:
        file.rewrite({"u1": {**entries[0].data, "zz": 1}})
        while time.monotonic() - started < 1.8:
            time.sleep(0.05)
        slow_writer.write(encode([user("x1", "a1", "in time")]))
        wait_for(lambda: b"in time" in path.read_bytes(), 1)
        wait_for(lambda: not any("late lines" in one.name for one in threading.enumerate()), 2)
    assert 1.9 < time.monotonic() - started < 3.5
    file.close()


def test_bodies_are_read_while_the_file_is_rewritten(tmp_path: Path) -> None:
    lines = [header()] + [user(f"u{at}", None, f"{at} " * 2000) for at in range(100)]
    file, entries, _ = SessionFile.open(write(tmp_path / "s.jsonl", lines))
    wrong: list[Json] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            wrong.extend(
                one.data for one in entries if one.data["message"]["content"][:2].strip() != one.id[1:]
            )

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(20):
        file.rewrite({"u0": {**lines[1], "zz": "x" * at * 100}})
    done.set()
    reader.join()
    assert wrong == []
    assert file.poll().problems == []
    file.close()


# ---- older versions


V1: list[Json] = [
    {"type": "session", "id": "s", "timestamp": sessions.TIME, "cwd": "/w/p", "zz": 1},
    {"type": "message", "timestamp": sessions.TIME, "message": {"role": "user", "content": "hello", "zz": 1}},
    {"type": "message", "timestamp": sessions.TIME, "message": {"role": "assistant", "content": "hi"}},
    {
        "type": "compaction",
        "timestamp": sessions.TIME,
        "summary": "S",
        "firstKeptEntryIndex": 2,
        "tokensBefore": 9,
    },
    {
        "type": "message",
        "timestamp": sessions.TIME,
        "message": {"role": "user", "content": "more"},
        "zz": 2.5,
    },
]
V2: list[Json] = [
    header(version=2, zz=1),
    {**user("u1", None, "a"), "zz": 1},
    entry("message", "h1", "u1", message={"role": "hookMessage", "customType": "t", "content": "x", "zz": 1}),
    entry("future_thing", "z1", "h1", x={"deep": [1, 2.5, "é"]}),
]


@pytest.mark.parametrize("lines", [V1, V2], ids=["1", "2"])
def test_an_older_version_is_written_anew_with_the_first_entry_and_not_before(
    lines: list[Json], tmp_path: Path
) -> None:
    path = write(tmp_path / "s.jsonl", lines)
    before = fingerprint(path)
    file, entries, _ = SessionFile.open(path)
    assert file.needs_migration
    bodies = [one.data for one in entries]
    assert [one.id for one in SessionFile.open(path).entries] == [one.id for one in entries]
    assert fingerprint(path) == before
    added = file.append(question(entries[-1].id))
    assert not file.needs_migration
    written = sessions.read(path)
    assert written[0] == {**lines[0], "version": 3}
    assert written[1:] == [*bodies, added.data]
    again, entries_again, problems = SessionFile.open(path)
    assert again.header.version == file.header.version == 3
    assert [one.data for one in entries_again] == [one.data for one in [*entries, added]]
    assert [one.parent_id for one in entries_again] == [one.parent_id for one in [*entries, added]]
    assert not problems
    assert not file.poll().rewritten
    file.close()


def test_version_2_keeps_the_lines_that_need_no_change_byte_for_byte(tmp_path: Path) -> None:
    data = encode(V2).replace(b"2.5", b"2.50")
    path = tmp_path / "s.jsonl"
    path.write_bytes(data + b"broken\n")
    file, _, _ = SessionFile.open(path)
    file.rewrite()
    new = path.read_bytes().split(b"\n")
    old = (data + b"broken\n").split(b"\n")
    assert (new[1], new[3:]) == (old[1], old[3:])
    assert json.loads(new[2])["message"] == {"role": "custom", "customType": "t", "content": "x", "zz": 1}
    file.close()


def test_a_failed_migration_leaves_the_old_file_and_keeps_the_entry(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", V1)
    before = fingerprint(path)
    file, entries, _ = SessionFile.open(path)
    blocker = tmp_path / ".s.jsonl.tmp"
    (blocker / "in the way").mkdir(parents=True)
    added = file.append(question(entries[-1].id))
    assert file.unsaved == 1
    assert fingerprint(path) == before
    shutil.rmtree(blocker)
    file.append(question(added.id, "next"))
    assert file.unsaved == 0
    assert [line.get("id") for line in sessions.read(path)][-2] == added.id
    file.close()


# ---- a part of a session as a new one


def test_a_fork_holds_the_path_byte_for_byte_and_the_labels_in_force(tmp_path: Path) -> None:
    lines = [
        header("/w/p"),
        {**user("u1", None, "a"), "zz": 2.5},
        assistant("a1", "u1", "b", total=1),
        label("l1", "a1", "u1", "old"),
        user("u2", "l1", "c"),
        compaction("c1", "u2", "S", "u2"),
        user("other", "a1", "d"),
        label("l2", "other", "u1", "new"),
        label("l3", "l2", "a1", "answer"),
        label("l4", "l3", "other", "gone"),
    ]
    path = write(tmp_path / "s.jsonl", lines)
    file, entries, _ = SessionFile.open(path)
    tree = SessionTree(entries)
    target = fork(
        file,
        tree.path_to("c1"),
        tree.labels,
        tmp_path / "new" / "folder",
        cwd="/w/q",
        now_ms=1_767_607_200_000,
    )
    forked, copies, problems = SessionFile.open(target)
    assert not problems
    assert forked.header.parent_session == str(path)
    assert (forked.header.cwd, forked.header.version) == ("/w/q", 3)
    assert forked.header.id != file.header.id
    assert target.parent == tmp_path / "new" / "folder"
    assert (mode_of(target), mode_of(target.parent)) == (0o600, 0o700)
    assert target.read_bytes().split(b"\n")[1:6] == path.read_bytes().split(b"\n")[1:6]
    assert SessionTree(copies).labels == {"u1": "new", "a1": "answer"}
    assert names_in(target.parent) == [target.name]
    copied = SessionTree(copies)
    assert [one.id for one in copied.path()][:5] == ["u1", "a1", "l1", "u2", "c1"]


def test_a_fork_of_an_old_session_is_of_the_present_version(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", V1)
    before = fingerprint(path)
    file, entries, _ = SessionFile.open(path)
    target = fork(file, entries, {}, tmp_path / "forks", cwd="/w/p", now_ms=1)
    forked, copies, problems = SessionFile.open(target)
    assert [one.data for one in copies] == [one.data for one in entries]
    body = copies[2].body
    assert isinstance(body, CompactionBody)
    assert body.first_kept_entry_id == copies[1].id
    assert not forked.needs_migration
    assert not problems
    assert fingerprint(path) == before


def test_a_fork_takes_unsaved_entries_and_may_be_empty(tmp_path: Path) -> None:
    file = SessionFile.create(tmp_path, "/w/p", now_ms=1)
    name = file.append({"type": "session_info", "parentId": None, "name": "n"})
    target = fork(file, [name], {}, tmp_path, cwd="/w/p", now_ms=2)
    assert sessions.types(sessions.read(target)) == ["session", "session_info"]
    empty = fork(file, [], {}, tmp_path, cwd="/w/p", now_ms=3)
    assert sessions.types(sessions.read(empty)) == ["session"]


def test_a_fork_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    file, entries, _ = SessionFile.open(write(tmp_path / "s.jsonl", two_messages()))
    (tmp_path / "blocked").write_bytes(b"")
    with pytest.raises(WriteFailed, match="blocked"):
        fork(file, entries, {}, tmp_path / "blocked", cwd="/w/p", now_ms=1)
    assert names_in(tmp_path) == ["blocked", "s.jsonl"]


# ---- places


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/me/app", "--home-me-app--"),
        ("/", "----"),
        ("C:\\Users\\me", "--C--Users-me--"),
        ("/w/a-b", "--w-a-b--"),
        ("/w/a/b", "--w-a-b--"),
        ("/ü/../x", "--ü-..-x--"),
    ],
)
def test_a_folder_is_encoded_as_pi_does(cwd: str, name: str) -> None:
    assert encode_cwd(cwd) == name


def test_sessions_lie_under_the_agent_folder_unless_told_otherwise(tmp_path: Path) -> None:
    assert sessions_directory(tmp_path, None, "/w/p") == tmp_path / "sessions" / "--w-p--"
    assert sessions_directory(tmp_path, tmp_path / "own", "/w/p") == tmp_path / "own"
    (tmp_path / "sessions" / "--b--").mkdir(parents=True)
    (tmp_path / "sessions" / "--a--").mkdir()
    (tmp_path / "sessions" / "file").write_bytes(b"")
    assert [one.name for one in session_directories(tmp_path, None)] == ["--a--", "--b--"]
    assert session_directories(tmp_path, tmp_path / "own") == [tmp_path / "own"]
    assert session_directories(tmp_path / "none", None) == []


def test_a_session_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "s.jsonl", two_messages())
    before = fingerprint(outside / "s.jsonl")
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "--w-p--").symlink_to(outside)
    with pytest.raises(SessionUnreadable, match="symbolic link"):
        sessions_directory(tmp_path, None, "/w/p")
    assert session_directories(tmp_path, None) == []
    assert fingerprint(outside / "s.jsonl") == before


def test_a_file_that_is_a_link_is_read_but_never_written_through(tmp_path: Path) -> None:
    target = write(tmp_path / "outside" / "canary.jsonl", two_messages())
    before = fingerprint(target)
    link = tmp_path / "s.jsonl"
    link.symlink_to(target)
    file, entries, _ = SessionFile.open(link)
    assert [one.id for one in entries] == ["u1", "a1"]
    assert file.read_only is not None
    assert "symbolic link" in file.read_only
    with pytest.raises(SessionReadOnly, match="symbolic link"):
        file.append(question("a1"))
    with pytest.raises(SessionReadOnly, match="symbolic link"):
        file.rewrite({"u1": user("u1", None, "x")})
    assert [one.id for one in list_sessions(tmp_path)] == ["s-1"]
    assert fingerprint(target) == before
    assert names_in(target.parent) == ["canary.jsonl"]


def test_a_file_that_becomes_a_link_while_it_is_open_is_not_written_through(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    file, _, _ = SessionFile.open(path)
    canary = write(tmp_path / "outside" / "canary.jsonl", two_messages())
    before = fingerprint(canary)
    path.unlink()
    path.symlink_to(canary)
    file.append(question("a1"))
    assert file.unsaved == 1
    assert file.write_problem is not None
    assert "symbolic link" in file.write_problem
    assert fingerprint(canary) == before
    path.unlink()
    path.symlink_to(tmp_path / "outside" / "dangling")
    file.append(question("a1"))
    assert names_in(tmp_path / "outside") == ["canary.jsonl"]


IDS_THAT_LEAD_OUT = [
    "../../../../outside/canary",
    "..\\..\\x",
    "a/b",
    "",
    ".",
    "x\0y",
    "x" * 300,
    "-rf",
    "/etc/passwd",
]


@pytest.mark.parametrize("session_id", IDS_THAT_LEAD_OUT, ids=repr)
def test_an_id_is_compared_and_never_made_part_of_a_path(session_id: str, tmp_path: Path) -> None:
    write(tmp_path / "outside" / "canary.jsonl", [header(session_id="canary")])
    inside = write(tmp_path / "in" / "s.jsonl", two_messages())
    with pytest.raises(SessionNotFound):
        find_session(inside.parent, session_id)
    assert find_session(inside.parent, "s-1") == inside


def test_a_header_with_an_id_like_a_path_names_no_file(tmp_path: Path) -> None:
    lines = [header(session_id="../../evil", parentSession="/w/outside/canary.jsonl"), *two_messages()[1:]]
    file, entries, _ = SessionFile.open(write(tmp_path / "in" / "s.jsonl", lines))
    target = fork(file, entries, {}, tmp_path / "in", cwd="/w/p", now_ms=1)
    assert target.parent == tmp_path / "in"
    assert "evil" not in target.name
    assert names_in(tmp_path) == ["in"]


def test_session_ids_are_uuids_in_the_order_of_time() -> None:
    made = [uuid7(at) for at in (0, 1, 1_767_607_200_000, 1_767_607_200_001)]
    assert made == sorted(made)
    for one in made:
        assert [len(part) for part in one.split("-")] == [8, 4, 4, 4, 12]
        assert one[14] == "7"
        assert one[19] in "89ab"
    assert new_session_path(Path("d"), "x", 1_767_607_200_123).name == "2026-01-05T10-00-00-123Z_x.jsonl"


# ---- listing


def test_a_list_tells_what_a_person_needs_newest_first(tmp_path: Path) -> None:
    older = write(
        tmp_path / "older.jsonl",
        [
            header("/w/p", session_id="older", parentSession="/w/parent.jsonl"),
            user("u0", None, [{"type": "image", "data": "", "mimeType": "image/png"}]),
            user("u1", "u0", [{"type": "text", "text": "  first  " + "é" * 300}]),
            user("u2", "u1", "second"),
            entry("session_info", "n1", "u2", name=" one "),
            entry("session_info", "n2", "n1", name="two\nlines "),
        ],
    )
    newer = write(tmp_path / "newer.jsonl", [header("/w/p", session_id="newer")])
    os.utime(older, (1_767_607_200, 1_767_607_200))
    os.utime(newer, (1_767_607_300, 1_767_607_300))
    new, old = list_sessions(tmp_path)
    assert (new.id, new.message_count, new.first_message, new.name) == ("newer", 0, "", None)
    assert (old.id, old.path, old.cwd, old.message_count) == ("older", str(older), "/w/p", 3)
    assert old.first_message == ("first  " + "é" * 300)[:200]
    assert old.name == "two lines"
    assert (old.created, old.modified) == (sessions.TIME, "2026-01-05T10:00:00.000Z")
    assert old.parent_session == "/w/parent.jsonl"
    os.utime(older, (1_767_607_400, 1_767_607_400))
    assert [one.id for one in list_sessions(tmp_path)] == ["older", "newer"]


def test_a_session_belongs_to_the_folder_its_header_names(tmp_path: Path) -> None:
    folder = tmp_path / encode_cwd("/w/a-b")
    first = write(folder / "s1.jsonl", [header("/w/a/b", session_id="s1"), user("u1", None, "a")])
    write(folder / "s2.jsonl", [header("/w/a-b", session_id="s2"), user("u1", None, "a")])
    os.utime(first, (2_000_000_000, 2_000_000_000))
    assert encode_cwd("/w/a/b") == encode_cwd("/w/a-b")
    assert [one.id for one in list_sessions(folder, "/w/a-b")] == ["s2"]
    assert [one.id for one in list_sessions(folder, "/w/a/b")] == ["s1"]
    assert [one.id for one in list_sessions(folder)] == ["s1", "s2"]


def test_folders_are_compared_by_where_they_really_are(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "s" / "one.jsonl", [header(str(tmp_path / "link"), session_id="one")])
    write(tmp_path / "s" / "two.jsonl", [header(str(tmp_path / "missing"), session_id="two")])
    assert [one.id for one in list_sessions(tmp_path / "s", str(tmp_path / "real"))] == ["one"]
    assert [one.id for one in list_sessions(tmp_path / "s", str(tmp_path / "missing"))] == ["two"]
    assert list_sessions(tmp_path / "s", str(tmp_path / "else")) == []


def test_a_list_is_read_again_only_where_a_file_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", two_messages())
    (first,) = list_sessions(tmp_path)
    assert list_sessions([tmp_path])[0] is first
    with path.open("ab") as other:
        other.write(encode([user("u2", "a1", "c")]))
    (second,) = list_sessions(tmp_path)
    assert (first.message_count, second.message_count) == (2, 3)
    path.unlink()
    assert list_sessions(tmp_path) == []
    assert list_sessions(tmp_path / "none") == []


def test_broken_lines_do_not_hide_a_session_from_the_list(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = two_messages()
    glued = encode(lines[1:]).replace(b"\n", b"")
    path.write_bytes(b"garbage\n" + encode(lines[:1]) + b"broken\n" + glued + b"\n" + b'{"type":"mess')
    (summary,) = list_sessions(tmp_path)
    assert (summary.message_count, summary.first_message) == (2, "a")


def test_names_of_other_files_are_left_out(tmp_path: Path) -> None:
    for name in ("s.txt", ".s.jsonl.tmp", ".s.jsonl", "s.jsonl.lock", "s.jsonl.pruned"):
        write(tmp_path / name, two_messages())
    assert list_sessions(tmp_path) == []


def test_a_very_long_line_is_counted_without_being_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pi_ls.store.listing._LONGEST_LINE", 4096)
    lines = [header(), user("u1", None, "x" * 50_000), assistant("a1", "u1", "b"), user("u2", "a1", "short")]
    write(tmp_path / "s.jsonl", lines)
    (summary,) = list_sessions(tmp_path)
    assert (summary.message_count, summary.first_message) == (3, "short")


def test_large_sessions_are_listed_in_little_memory_and_not_read_twice(tmp_path: Path) -> None:
    """One of 200 MB beside 30 of 20 MB; the files share their blocks where links do."""
    result = sessions.result("r1", "a1", "c", sessions.filler(100_000))
    turn = encode([user("u1", None, "q"), assistant("a1", "u1", "", sessions.call("c", "bash")), result])
    large, small = tmp_path / "large.jsonl", tmp_path / "small-0.jsonl"
    for path, turns in ((large, 2000), (small, 200)):
        with path.open("wb") as out:
            out.write(encode([header()]))
            for _ in range(turns):
                out.write(turn)
    for at in range(1, 30):
        os.link(small, tmp_path / f"small-{at}.jsonl")
    measured: Json = json.loads(run_child("measure_listing", tmp_path))
    assert measured["sessions"] == 31
    assert measured["memory"] < 50_000_000
    assert measured["read_again"] < 100_000
