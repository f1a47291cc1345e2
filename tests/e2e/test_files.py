"""Session files as they are found in the world, in a real server: broken, old, huge, out of place."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import sessions
from tests.e2e.conftest import OFFLINE, Home, RawServer, Serve
from tests.e2e.office import Desk
from tests.e2e.raw import Json
from tests.sessions import assistant, call, compaction, encode, entry, header, label, result, user

TORN = b'{"type":"message","id":"u2","par'


def conversation(*texts: str, **more: Any) -> list[Json]:
    """A header and messages `u1`, `a1`, `u2`, … that say these texts in turn."""
    lines, ids = [header(**more)], [f"{'ua'[index % 2]}{index // 2 + 1}" for index in range(len(texts))]
    for index, (entry_id, text) in enumerate(zip(ids, texts, strict=True)):
        parent = ids[index - 1] if index else None
        is_answer = index % 2 == 1
        lines.append(
            assistant(entry_id, parent, text, total=10) if is_answer else user(entry_id, parent, text)
        )
    return lines


def write_raw(home: Home, name: str, *parts: bytes) -> Path:
    file = home.sessions() / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(parts))
    return file


async def opened(server: RawServer, file: Path) -> Json:
    return await server.result("pi.openSession", {"path": str(file)})


async def context(server: RawServer) -> list[str]:
    """What the messages of the context say, of the current session."""
    messages = (await server.result("pi.getMessages"))["messages"]
    return [text_of(message) for message in messages]


def text_of(message: Json) -> str:
    content: Any = message.get("content", message.get("summary"))
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def lines_of(file: Path) -> list[bytes]:
    return file.read_bytes().split(b"\n")


def fingerprint(file: Path) -> tuple[str, int]:
    return hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns


def told_problems(server: RawServer, file: Path) -> list[tuple[str, int | None]]:
    problems = [params for params in server.named("pi/session_problem") if params["file"] == str(file)]
    return [(problem["kind"], problem.get("line")) for problem in problems]


# ---- broken lines


async def test_a_torn_last_line_is_kept_and_the_next_entry_has_a_line_of_its_own(serve: Serve, home: Home):
    home.use()
    whole = encode(conversation("one", "two", cwd=str(home.folder)))
    variants: dict[str, tuple[Path, list[tuple[str, int]], bytes]] = {
        "torn": (write_raw(home, "torn", whole, TORN), [("tornLine", 4)], TORN),
        "unended": (write_raw(home, "unended", whole[:-1]), [], b""),
        "zeros": (write_raw(home, "zeros", whole, TORN, bytes(20)), [("tornLine", 4)], TORN + bytes(20)),
    }
    server = await serve(autoOpen="none")
    for file, problems, fragment in variants.values():
        before = fingerprint(file)
        assert (await opened(server, file))["leafId"] == "a1"
        assert await context(server) == ["one", "two"]
        assert fingerprint(file) == before, "opening changes nothing"
        await server.result("pi.setSessionName", {"name": "three"})
        assert told_problems(server, file) == problems
        *first, last, end = lines_of(file)
        assert (end, json.loads(last)["parentId"]) == (b"", "a1")
        assert first == [*whole.split(b"\n")[:-1], *([fragment] if fragment else [])]
    await server.shutdown()

    again = await serve(autoOpen="none")
    for file, _, fragment in variants.values():
        state = await opened(again, file)
        assert state["name"] == "three"
        assert [one["kind"] for one in state["problems"]] == (["malformedLine"] if fragment else [])
        entries = (await again.result("pi.getEntries"))["entries"]
        assert [one["id"] for one in entries] == ["u1", "a1", state["leafId"]]


BAD_LINES: dict[str, tuple[bytes, bool]] = {
    "a torn object": (b'{"type":"message","id":"zz"', True),
    "zeros": (bytes(64), True),
    "no UTF-8": (b"\xff\xfe\x00A", True),
    "an array": (b"[]", True),
    "null": (b"null", True),
    "a text": (b'"text"', True),
    "no id": (b'{"type":"message"}', True),
    "a type that is a number": (b'{"id":"q","type":7}', True),
    "no message": (b'{"type":"message","id":"q","parentId":null,"message":null}', False),
    "nothing": (b"", False),
    "blanks": (b"   ", False),
}
"""What may stand between two lines, and whether it is told."""


async def test_a_bad_line_costs_nothing_but_itself_and_stays_in_the_file(serve: Serve, home: Home):
    home.use()
    raw = encode(conversation("a", "b", "c", "d", cwd=str(home.folder))).split(b"\n")
    server = await serve(autoOpen="none")
    for name, (bad, is_told) in BAD_LINES.items():
        found = [*raw[:3], bad, *raw[3:]]
        file = write_raw(home, name, b"\n".join(found))
        state = await opened(server, file)
        assert (state["leafId"], await context(server)) == ("a2", ["a", "b", "c", "d"]), name
        told = [(one["kind"], one["line"]) for one in state["problems"]]
        assert told == ([("malformedLine", 4)] if is_told else []), name
        await server.result("pi.setLabel", {"entryId": "u1", "label": "start"})
        assert told_problems(server, file) == told, name
        assert lines_of(file)[:-2] == found[:-1], name
        assert json.loads(lines_of(file)[-2])["parentId"] == "a2", name


async def test_of_a_great_many_bad_lines_a_hundred_are_told(serve: Serve, home: Home):
    home.use()
    whole = encode(conversation("a", "b", cwd=str(home.folder)))
    file = write_raw(home, "rubbish", whole, b"}\n" * 20_000)
    server = await serve(autoOpen="none")
    state = await opened(server, file)
    assert (state["leafId"], await context(server)) == ("a1", ["a", "b"])
    assert len(state["problems"]) == 100
    assert "`pi-ls check`" in state["problems"][-1]["message"]
    await server.result("pi.setSessionName", {"name": "x"})
    assert len(told_problems(server, file)) == 100
    with file.open("ab") as stream:
        stream.write(encode([user("u9", "a1", "foreign")]))
    await server.wait_for(
        lambda m: m.get("method") == "pi/session_problem" and m["params"]["kind"] == "foreignWriter"
    )


async def test_entries_that_share_a_line_are_all_found(serve: Serve, home: Home):
    lines = encode(conversation("a", "b", "c", "d", cwd=str(home.folder))).split(b"\n")
    file = write_raw(
        home, "glued", b"\n".join([lines[0], lines[1] + lines[2], TORN + lines[3], lines[4], b""])
    )
    before = file.read_bytes()
    server = await serve()
    state = await server.result("pi.sessionState")
    assert await context(server) == ["a", "b", "c", "d"]
    assert [(one["kind"], one["line"]) for one in state["problems"]] == [
        ("malformedLine", 2),
        ("malformedLine", 3),
    ]
    assert file.read_bytes() == before


async def test_lines_end_at_a_line_feed_only(serve: Serve, home: Home):
    text = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg\rh"
    files: list[Path] = []
    for ascii_only, newline in ((False, "\n"), (True, "\n"), (False, "\r\n")):
        lines = conversation(text, "ok", cwd=str(home.folder), session_id=f"s-{len(files)}")
        file = home.sessions() / f"{len(files)}.jsonl"
        files.append(sessions.write(file, lines, ascii_only=ascii_only, newline=newline))
    server = await serve(autoOpen="none")
    for file in files:
        assert (await opened(server, file))["problems"] == []
        assert await context(server) == [text, "ok"]
        await server.result("pi.setLabel", {"entryId": "u1", "label": "x\u2028y"})
    await server.shutdown()
    again = await serve(autoOpen="none")
    for file in files:
        await opened(again, file)
        assert await context(again) == [text, "ok"]
        tree = await again.result("pi.getTree", {"filter": "labeled-only"})
        assert [(node["id"], node["label"]) for node in tree["nodes"]] == [("u1", "x\u2028y")]


@pytest.mark.asyncio(loop_scope="session")
async def test_half_a_character_stays_usable(desk: Desk):
    half = "x \ud83d y"
    filled = sessions.filler(100_000)
    lines = [
        header(cwd=str(desk.folder)),
        user("u1", None, half),
        assistant("a1", "u1", "", call("c1", "bash", command=half), total=20),
        result("r1", "a1", "c1", half),
        assistant("a2", "r1", filled, total=60_000),
        label("l1", "a2", "u1", half),
        user("u2", "l1", filled),
        assistant("a3", "u2", "done", total=120_000),
    ]
    sessions.write(desk.file, lines, ascii_only=True)
    before = desk.file.read_bytes()
    await desk.run("pi.openSession", path=str(desk.file))
    replaced = "x \N{REPLACEMENT CHARACTER} y"
    assert (await desk.context())[0][1] in (half, replaced)
    assert (await desk.run("pi.getTree"))["nodes"][0]["text"] in (half, replaced)
    assert len((await desk.run("pi.getEntries"))["entries"]) == 7
    [row] = (await desk.run("pi.listSessions"))["sessions"]
    assert row["firstMessage"] in (half, replaced)
    await desk.run("pi.compact")
    [request] = desk.provider.requests
    request.prompt.encode()
    assert request.prompt.count(replaced) == 2
    assert r'bash(command="x \ud83d y")' in request.prompt, "arguments are JSON, which has a spelling for it"
    assert desk.file.read_bytes().startswith(before)
    assert sessions.types(desk.written())[-1] == "compaction"


# ---- places


async def test_a_session_folder_that_is_gone_is_made_again_with_the_whole_session(serve: Serve, home: Home):
    file = home.add(conversation("a", "b", cwd=str(home.folder)))
    before = file.read_bytes()
    server = await serve()
    await server.result("pi.sessionState")
    for one in home.sessions().iterdir():
        one.unlink()
    home.sessions().rmdir()
    state = await server.result("pi.setSessionName", {"name": "again"})
    assert state["unsaved"] == 0
    assert file.read_bytes().startswith(before)
    assert sessions.types(sessions.read(file)) == ["session", "message", "message", "session_info"]


async def test_what_cannot_be_written_waits_and_is_told_once(serve: Serve, home: Home):
    file = home.add_long()
    home.use()
    before = file.read_bytes()
    file.chmod(0o444)
    home.sessions().chmod(0o555)
    server = await serve(obeying=True, settings=OFFLINE)
    try:
        for number in range(1, 4):
            state = await server.result("pi.setSessionName", {"name": f"name {number}"})
            assert (state["name"], state["unsaved"]) == (f"name {number}", number)
        assert told_problems(server, file) == [("notSaved", None)]
        shown = server.named("window/showMessage")
        assert len(shown) == 1
        assert str(file) in shown[0]["message"]
        assert (await server.result("pi.contextUsage"))["tokens"] == 120_000
        assert len((await server.result("pi.getTree"))["nodes"]) == 4
        refusal = await server.error("pi.compact")
        assert refusal["data"] == {"kind": "WriteFailed", "path": str(file)}
        end = server.named("pi/compaction_end")[-1]
        assert (end["aborted"], end["errorMessage"]) == (False, f"Compaction failed: {refusal['message']}")
        assert (await server.result("pi.sessionState"))["unsaved"] == 3, "a compaction is not kept"
        assert file.read_bytes() == before
        file.chmod(0o644)
        assert (await server.result("pi.setThinkingLevel", {"level": "low"}))["unsaved"] == 0
    finally:
        home.sessions().chmod(0o755)
    written = sessions.read(file)[5:]
    assert [one.get("name") or one["thinkingLevel"] for one in written] == [
        "name 1",
        "name 2",
        "name 3",
        "low",
    ]
    assert [one["parentId"] for one in written] == ["a2", *(one["id"] for one in written[:-1])]


async def test_sessions_of_folders_whose_names_are_encoded_alike_are_told_apart(serve: Serve, home: Home):
    nested, dashed = home.folder / "a" / "b", home.folder / "a-b"
    for folder in (nested, dashed):
        folder.mkdir(parents=True)
    assert home.sessions(nested) == home.sessions(dashed)
    directory = home.sessions(nested)
    newer = sessions.write(directory / "1.jsonl", conversation("x", "y", cwd=str(nested), session_id="s1"))
    older = sessions.write(directory / "2.jsonl", conversation("x", "y", cwd=str(dashed), session_id="s2"))
    an_hour_ago = newer.stat().st_mtime - 3600
    os.utime(older, (an_hour_ago, an_hour_ago))
    server = await serve(nested, dashed)
    for folder, wanted in ((nested, "s1"), (dashed, "s2")):
        place = {"workspace": folder.as_uri()}
        rows = (await server.result("pi.listSessions", place))["sessions"]
        assert [row["id"] for row in rows] == [wanted]
        assert (await server.result("pi.sessionState", place))["sessionId"] == wanted, "the newest of its own"


async def test_a_session_whose_folder_is_gone_is_read_and_the_folder_not_made(serve: Serve, home: Home):
    home.use()
    gone = home.folder / "gone"
    file = home.add(conversation("a", "b", cwd=str(gone)))
    before = fingerprint(file)
    server = await serve(autoOpen="none")
    state = await opened(server, file)
    [problem] = state["problems"]
    assert problem["kind"] == "cwdMissing"
    assert str(gone) in problem["message"]
    assert told_problems(server, file) == [("cwdMissing", None)]
    assert await context(server) == ["a", "b"]
    assert len((await server.result("pi.getTree"))["nodes"]) == 2
    assert (await server.result("pi.contextUsage"))["tokens"] == 10
    await server.shutdown()
    await server.code()
    assert fingerprint(file) == before
    assert not gone.exists()


# ---- shapes of trees that cannot be


async def test_cycles_and_repeated_ids_open_and_work(serve: Serve, home: Home):
    home.use()
    long = sessions.filler(200_000)
    folder = str(home.folder)
    cycle = [
        header(cwd=folder),
        user("u1", "a2", long),
        assistant("a1", "u1", "b", total=1),
        user("u2", "a1", long),
        assistant("a2", "u2", "d", total=2),
    ]
    own_parent = [header(cwd=folder), user("u1", "u1", long), *cycle[2:]]
    twice = [header(cwd=folder), user("u1", None, long), *cycle[2:4], user("u2", "a2", long), cycle[4]]
    server = await serve(autoOpen="none", settings=OFFLINE)
    for kind, lines in {"cycle": cycle, "own": own_parent, "duplicateId": twice}.items():
        file = home.add(lines, f"{kind}.jsonl")
        before = file.read_bytes()
        state = await opened(server, file)
        assert kind == "own" or kind in [one["kind"] for one in state["problems"]]
        assert state["problems"], kind
        assert {"u1", "u2", "a1", "a2"} <= {
            node["id"] for node in (await server.result("pi.getTree"))["nodes"]
        }
        assert (await server.result("pi.contextUsage"))["contextWindow"] == 200_000
        answer = await server.command("pi.compact")
        assert "result" in answer or answer["error"]["data"]["kind"] == "NothingToCompact", kind
        assert file.read_bytes().startswith(before), kind


async def test_a_missing_parent_makes_a_second_root_that_is_marked(serve: Serve, home: Home):
    lines = [*conversation("a", "b", cwd=str(home.folder)), user("u3", "LOST", "c")]
    file = home.add([*lines, assistant("a3", "u3", "d", total=2)])
    before = file.read_bytes()
    server = await serve()
    state = await server.result("pi.sessionState")
    assert (state["leafId"], await context(server)) == ("a3", ["c", "d"])
    [problem] = state["problems"]
    assert (problem["kind"], problem["entryId"]) == ("missingParent", "u3")
    roots = [node for node in (await server.result("pi.getTree"))["nodes"] if node["parentId"] is None]
    assert [(node["id"], node.get("orphan")) for node in roots] == [("u1", None), ("u3", True)]
    await server.result("pi.navigateTree", {"targetId": "a1"})
    assert await context(server) == ["a", "b"]
    await server.result("pi.navigateTree", {"targetId": "a3"})
    await server.shutdown()
    await server.code()
    assert file.read_bytes().startswith(before)


# ---- looking changes nothing


async def test_looking_at_sessions_in_every_way_changes_no_byte(serve: Serve, home: Home):
    lines = [
        header(cwd=str(home.folder)),
        sessions.model_change("k1", None, "fake", "m200"),
        sessions.thinking_level("t1", "k1", "low"),
        user("u1", "t1", "a"),
        assistant("a1", "u1", "b", total=1),
    ]
    one = home.add(lines, "one.jsonl")
    two = home.add(conversation("x", "y", cwd=str(home.folder), session_id="s-2"), "two.jsonl")
    empty = write_raw(home, "empty")
    before = {file: fingerprint(file) for file in (one, two, empty)}
    server = await serve()
    for file in (one, two, empty, one):
        await opened(server, file)
        for command in (
            "pi.sessionState", "pi.listSessions", "pi.getTree", "pi.contextUsage", "pi.sessionStats",
            "pi.getEntries", "pi.getMessages", "pi.previewCompaction", "pi.listModels", "pi.reloadSettings",
        ):  # fmt: skip
            await server.result(command)
        assert (await server.command("pi.compact")).keys() >= {"error"}
    await server.result("pi.setThinkingLevel", {"level": "low"})  # as it is already
    await server.result("pi.navigateTree", {"targetId": "a1"})  # where it is already
    await server.result("pi.closeSession")
    await server.shutdown()
    assert await server.code() == 0
    assert {file: fingerprint(file) for file in before} == before
    assert sorted(home.sessions().iterdir()) == sorted(before), "nothing was put beside them"


# ---- old versions, and what is not known


OLD: list[Json] = [
    {"type": "message", "timestamp": sessions.TIME, "message": {"role": "user", "content": "hello"}},
    {
        "type": "message",
        "timestamp": sessions.TIME,
        "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "stopReason": "stop"},
    },
    {
        "type": "compaction",
        "timestamp": sessions.TIME,
        "summary": "S",
        "firstKeptEntryIndex": 2,
        "tokensBefore": 9,
    },
    {"type": "message", "timestamp": sessions.TIME, "message": {"role": "user", "content": "more"}},
]


async def test_a_session_of_the_first_format_is_migrated_when_it_is_written_or_cloned(
    serve: Serve, home: Home
):
    first = {"type": "session", "id": "s", "timestamp": sessions.TIME, "cwd": str(home.folder)}
    file = home.add([first, *OLD])
    before = file.read_bytes()
    server = await serve()
    entries = (await server.result("pi.getEntries"))["entries"]
    ids = [one["id"] for one in entries]
    assert all(len(one) == 8 and int(one, 16) >= 0 for one in ids)
    assert [one["parentId"] for one in entries] == [None, *ids[:-1]]
    assert entries[2]["firstKeptEntryId"] == ids[1]
    assert "firstKeptEntryIndex" not in entries[2]
    assert await context(server) == ["S", "hi", "more"]
    await server.result("pi.closeSession")
    await server.result("pi.openSession", {"id": "s"})
    assert [one["id"] for one in (await server.result("pi.getEntries"))["entries"]] == ids
    assert file.read_bytes() == before

    clone = (await server.result("pi.cloneSession"))["session"]
    assert await context(server) == ["S", "hi", "more"]
    copied = sessions.read(Path(clone["sessionFile"]))
    assert (copied[0]["version"], copied[0]["parentSession"]) == (3, str(file))
    assert [one["id"] for one in copied[1:]] == ids
    assert file.read_bytes() == before, "a clone does not touch what it was made of"

    await server.result("pi.setSessionName", {"sessionId": "s", "name": "new"})
    migrated = sessions.read(file)
    assert migrated[0] == {**first, "version": 3}
    assert [one["id"] for one in migrated[1:5]] == ids
    assert migrated[5]["parentId"] == ids[3]


async def test_a_migration_keeps_what_the_program_does_not_know(serve: Serve, home: Home):
    message = user("u1", None, "hello")
    message["message"]["zz"] = 1
    hook = entry(
        "message", "h1", "u1", message={"role": "hookMessage", "content": "hooked", "customType": "x"}
    )
    future = (
        b'{"type":"future_thing", "id":"z1","parentId":"h1","timestamp":"","x":{"deep":[1,2.50,"\xc3\xa9"]}}'
    )
    lines = [header(version=2, cwd=str(home.folder), zz=1), {**message, "zz": 1}, hook]
    file = write_raw(home, "old", encode(lines), future, b"\n[broken\n")
    before = lines_of(file)
    server = await serve()
    assert await context(server) == ["hello", "hooked"]
    assert (await server.result("pi.sessionState"))["leafId"] == "z1"
    exported = Path((await server.result("pi.exportSession", {"format": "jsonl"}))["path"])
    await server.result("pi.setLabel", {"entryId": "u1", "label": "x"})
    after = lines_of(file)
    assert json.loads(after[0]) == {**lines[0], "version": 3}
    assert lines_of(exported)[0] == after[0]
    assert after[1] == before[1]
    assert json.loads(after[2])["message"] == {**hook["message"], "role": "custom"}
    assert after[3:5] == before[3:5]
    assert json.loads(after[5])["parentId"] == "z1"


async def test_a_fork_below_a_compaction_keeps_its_boundary(serve: Serve, home: Home):
    lines = [
        *conversation("first", "one", "second", "two", cwd=str(home.folder)),
        compaction("c1", "a2", "S", "u2"),
        user("u3", "c1", "third"),
        assistant("a3", "u3", "three", total=30),
        user("u4", "a3", "fourth"),
    ]
    home.add(lines)
    server = await serve()
    fork = await server.result("pi.forkSession", {"entryId": "u4"})
    assert (fork["text"], fork["session"]["leafId"]) == ("fourth", "a3")
    assert await context(server) == ["S", "second", "two", "third", "three"]


# ---- encodings


async def test_files_are_utf8_whatever_the_locale_of_the_server(serve: Serve, home: Home):
    text = "ü 你好 😀"
    home.env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
    settings = {"compaction": {"models": ["offline/extractive"], "keepRecentTokens": 5_000}, "note": text}
    (home.agent_dir / "settings.json").write_bytes(
        b"\xef\xbb\xbf" + json.dumps(settings, ensure_ascii=False).encode()
    )
    lines = sessions.two_long_turns(120_000, cwd=str(home.folder))
    lines[1] = user("u1", None, f"{text} {sessions.filler(200_000)}")
    file = write_raw(home, "s", b"\xef\xbb\xbf", encode(lines))
    server = await serve()
    state = await server.result("pi.setSessionName", {"name": text})
    assert (state["name"], state["problems"]) == (text, [])
    assert (await context(server))[0].startswith(text)
    assert (await server.result("pi.reloadSettings"))["settings"]["note"] == text
    assert "你好 😀" in (await server.result("pi.compact"))["summary"]
    await server.result("pi.setAutoCompaction", {"enabled": False})
    exported = Path((await server.result("pi.exportSession", {"format": "markdown"}))["path"])
    assert text in exported.read_text("utf-8")
    written = file.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    assert [json.loads(line).get("name") for line in written.split("\n") if line][5] == text
    saved = json.loads((home.agent_dir / "settings.json").read_bytes().decode("utf-8-sig"))
    assert (saved["note"], saved["compaction"]["enabled"]) == (text, False)
    await server.shutdown()
    assert await server.code() == 0
    assert b"Error" not in await server.stderr


# ---- staying inside


def everything_in(folder: Path) -> dict[Path, Any]:
    """All that is in a folder: what files hold, where links lead."""
    return {
        one: one.readlink() if one.is_symlink() else one.read_bytes() if one.is_file() else None
        for one in folder.rglob("*")
    }


ODD_IDS = (
    "../../../../outside/canary", "..\\..\\x", "a/b", "", ".", "..", "x\0y", "x" * 300, "-rf", "~", "*",
)  # fmt: skip


async def test_no_id_leads_outside_the_session_folder(serve: Serve, home: Home):
    outside = home.add_folder("outside")
    canary = sessions.write(outside / "canary.jsonl", conversation("secret", "x", session_id="canary"))
    lines = conversation("a", "b", cwd=str(home.folder), session_id="../../evil")
    file = home.add([{**lines[0], "parentSession": str(canary)}, *lines[1:]])
    before = everything_in(outside)
    others = {path for path in home.folder.parent.rglob("*") if path != home.folder}
    server = await serve()
    state = await server.result("pi.sessionState")
    assert state["sessionId"] == "../../evil"
    for odd in ODD_IDS:
        assert (await server.error("pi.openSession", {"id": odd}))["data"]["kind"] == "SessionNotFound"
        assert (await server.error("pi.closeSession", {"sessionId": odd}))["data"][
            "kind"
        ] == "SessionNotFound"
        refusal = await server.error("pi.forkSession", {"entryId": odd})
        assert refusal["data"]["kind"] == "EntryNotFound"
    fork = (await server.result("pi.cloneSession"))["session"]
    made = Path(fork["sessionFile"])
    assert made.parent == file.parent
    assert set(made.stem) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    await server.result("pi.openSession", {"id": "../../evil"})
    exported = Path((await server.result("pi.exportSession", {"format": "jsonl"}))["path"])
    assert exported == home.folder / "s.jsonl"
    await server.shutdown()
    await server.code()
    assert everything_in(outside) == before
    new = set(home.folder.parent.rglob("*")) - others - {home.folder}
    assert {path for path in new if not path.name.endswith(".lock")} == {made, exported}


async def test_links_are_read_and_never_written_through(serve: Serve, home: Home):
    outside = home.add_folder("outside")
    canary = sessions.write(outside / "canary.jsonl", conversation("a", "b", cwd=str(home.folder)))
    before = everything_in(outside)
    home.sessions().mkdir(parents=True)
    link = home.sessions() / "link.jsonl"
    link.symlink_to(canary)
    server = await serve()
    state = await opened(server, link)
    assert state["readOnly"] is True
    assert await context(server) == ["a", "b"]
    for command, arguments in {
        "pi.setLabel": {"entryId": "u1", "label": "x"},
        "pi.setSessionName": {"name": "x"},
    }.items():
        assert (await server.error(command, arguments))["data"]["kind"] == "SessionReadOnly"
    await server.result("pi.closeSession")
    assert everything_in(outside) == before

    assert (await opened(server, canary))["readOnly"] is False, "a person may name any file"
    await server.result("pi.setSessionName", {"name": "mine"})
    assert sessions.types(sessions.read(canary))[-1] == "session_info"


async def test_a_session_folder_that_is_a_link_is_not_followed(serve: Serve, home: Home):
    outside = home.add_folder("outside")
    sessions.write(outside / "canary.jsonl", conversation("a", "b", cwd=str(home.folder)))
    before = everything_in(outside)
    home.sessions().parent.mkdir(parents=True)
    home.sessions().symlink_to(outside, target_is_directory=True)
    server = await serve()
    refusals = [await server.error(command) for command in ("pi.listSessions", "pi.newSession")]
    assert {refusal["data"]["kind"] for refusal in refusals} == {"SessionUnreadable"}
    assert all("symbolic link" in refusal["message"] for refusal in refusals)
    assert (await server.error("pi.sessionState"))["data"]["kind"] == "NoSession"
    assert (await server.result("pi.listSessions", {"all": True}))["sessions"] == []
    assert everything_in(outside) == before


# ---- large


def write_large(file: Path, turns: int, cwd: str, session_id: str) -> Path:
    """A session of that many turns with a tool result of 100,000 characters each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    output = sessions.filler(100_000)
    with file.open("wb") as stream:
        stream.write(encode([header(cwd=cwd, session_id=session_id)]))
        parent = None
        for turn in range(turns):
            lines = [
                user(f"u{turn}", parent, f"question {turn}"),
                assistant(f"a{turn}", f"u{turn}", "", call(f"c{turn}", "bash", command="x"), total=turn + 1),
                result(f"r{turn}", f"a{turn}", f"c{turn}", output),
            ]
            stream.write(encode(lines))
            parent = f"r{turn}"
    return file


@pytest.mark.parametrize("kind", ["markdown", "jsonl"])
async def test_an_export_is_there_whole_or_not_at_all(serve: Serve, home: Home, kind: str):
    write_large(home.sessions() / "s.jsonl", 5, str(home.folder), "s")
    server = await serve()
    pid = server.process.pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (200_000, unlimited[1]))  # a disk that fills up
    refusal = await server.error("pi.exportSession", {"format": kind})
    assert refusal["data"]["kind"] == "WriteFailed"
    assert list(home.folder.iterdir()) == []
    resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    exported = Path((await server.result("pi.exportSession", {"format": kind}))["path"])
    assert exported.stat().st_size > 500_000


def peak_memory(pid: int) -> int:
    """The most memory a process has had, in bytes; asking begins a new measurement."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return int(peak.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads /proc")
async def test_large_sessions_are_listed_in_little_memory_and_opened_while_the_server_answers(
    serve: Serve, home: Home
):
    large = write_large(home.sessions() / "large.jsonl", 2_000, str(home.folder), "large")
    first = write_large(home.sessions() / "0.jsonl", 200, str(home.folder), "beside")
    for number in range(1, 30):  # a list reads each of them, whatever they share
        first.with_name(f"{number}.jsonl").hardlink_to(first)
    home.use()
    small = home.add(conversation("a", "b", cwd=str(home.folder), session_id="small"), "small.jsonl")
    server = await serve(autoOpen="none")
    await opened(server, small)
    assert (await server.result("pi.contextUsage"))["tokens"] == 10

    before = peak_memory(server.process.pid)
    began = time.monotonic()
    rows = (await server.result("pi.listSessions", timeout=60))["sessions"]
    assert time.monotonic() - began < 20
    assert peak_memory(server.process.pid) - before < 200_000_000
    counts = {row["id"]: row["messageCount"] for row in rows}
    assert (len(rows), counts) == (32, {"large": 6_000, "beside": 600, "small": 2})

    seen = len(server.messages)
    began = time.monotonic()
    opening = server.begin_command("pi.openSession", {"path": str(large)})
    waits: list[float] = []
    while not any(message.get("id") == opening for message in server.messages):
        asked = time.monotonic()
        await server.result("pi.contextUsage", {"sessionId": "small"})
        waits.append(time.monotonic() - asked)
        await asyncio.sleep(0)
    state = (await server.answer(opening))["result"]
    assert time.monotonic() - began < 30
    assert (state["sessionId"], state["leafId"]) == ("large", "r1999")
    assert waits
    assert max(waits) < 2
    usage = await server.result("pi.contextUsage", {"sessionId": "large"}, timeout=30)
    assert usage["tokens"] == 2_000 + 25_000
    assert size_of(server.messages[seen:]) < 5_000_000
    assert peak_memory(server.process.pid) - before < 200_000_000


def size_of(messages: Iterable[Json]) -> int:
    return sum(len(json.dumps(message)) for message in messages)


async def test_a_wide_look_at_a_session_is_told_in_pages(serve: Serve, home: Home):
    write_large(home.sessions() / "s.jsonl", 30, str(home.folder), "s")
    server = await serve()
    seen: list[str] = []
    page: Json = {"hasMore": True}
    while page["hasMore"]:
        page = await server.result("pi.getTree", {"limit": 40, "cursor": page.get("cursor")})
        assert len(page["nodes"]) <= 40
        assert size_of(page["nodes"]) < 100_000, "a tree tells beginnings of texts"
        seen += [node["id"] for node in page["nodes"]]
    assert seen == [f"{kind}{turn}" for turn in range(30) for kind in "uar"]
    told: list[str] = []
    page = {"hasMore": True}
    while page["hasMore"]:
        since = {"since": told[-1]} if told else {}
        page = await server.result("pi.getEntries", {"limit": 25, **since})
        told += [one["id"] for one in page["entries"]]
    assert told == seen
    await server.shutdown()
