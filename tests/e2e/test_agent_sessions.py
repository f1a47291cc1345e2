"""What runs do to session files and trees, and what they make of files that others have written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import sessions
from tests.e2e.colleague import Colleague, call, calls, measured, says, texts
from tests.e2e.raw import Json
from tests.provider import CACHED, UNTOTALLED, WRITTEN, Received, Reply, error

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_CONTINUATION: Json = {"compaction": {"autoContinue": False}}


def old_outputs() -> list[Json]:
    """Tool outputs, oldest first: `r0`, `s0`, `b1`, then `q01` to `q12`; the leaf is `pz`."""
    lines, last = [sessions.header(), sessions.user("p0", None, "start")], "p0"
    outputs = [("r0", "read", 400_000), ("s0", "skill", 400_000), ("b1", "bash", 400_000)]
    outputs += [(f"q{number:02}", "bash", 20_000) for number in range(1, 13)]
    for entry_id, name, length in outputs:
        wanted = sessions.call(
            f"k{entry_id}", name, **({"path": "x"} if name == "read" else {"command": "x"})
        )
        lines.append(sessions.assistant(f"c{entry_id}", last, "", wanted))
        text = sessions.filler(length)
        lines.append(sessions.result(entry_id, f"c{entry_id}", f"k{entry_id}", text, name=name))
        last = entry_id
    return [*lines, sessions.assistant("pz", last, "done", total=150_000)]


def text_of(line: Json) -> str:
    return line["message"]["content"][0]["text"]


def by_id(colleague: Colleague) -> dict[str, Json]:
    return {line["id"]: line for line in colleague.entries()}


# -- interrupted, torn, foreign


async def test_a_session_that_was_killed_between_call_and_result_heals(colleague: Colleague):
    wanted = [sessions.call("c1", "bash", command="x"), sessions.call("c2", "bash", command="y")]
    lines = [
        *sessions.two_long_turns(60_000),
        sessions.user("u3", "a2", "do"),
        sessions.assistant("a3", "u3", "", *wanted),
        sessions.result("r3", "a3", "c1", "ok"),
    ]
    await colleague.open(lines)
    before = colleague.entries()
    await colleague.say("go on")
    sent = colleague.model.chats[0].body["messages"]
    assert [m["role"] for m in sent[-4:]] == ["assistant", "tool", "tool", "user"]
    assert [m.get("tool_call_id") for m in sent[-3:]] == ["c1", "c2", None]
    assert (sent[-3]["content"], "interrupted" in sent[-2]["content"], sent[-1]["content"]) == (
        "ok",
        True,
        "go on",
    )
    await colleague.run("pi.compact")
    assert colleague.entries()[: len(before)] == before


@pytest.mark.parametrize("tail", [b'{"type":"message","id":"u2","par', b"", b'{"type":"mess' + b"\0" * 20])
async def test_a_torn_end_is_ended_before_the_next_entry(colleague: Colleague, tail: bytes):
    lines = [
        sessions.header(),
        sessions.user("u1", None, "one"),
        sessions.assistant("a1", "u1", "two", total=10),
    ]
    own = [lines[0] | {"cwd": str(colleague.folder)}, *lines[1:]]
    sessions.write(colleague.file, own)
    whole = colleague.file.read_bytes().removesuffix(b"\n")
    content = whole + (b"\n" + tail if tail else b"")
    colleague.file.write_bytes(content)
    await colleague.run("pi.openSession", path=str(colleague.file))
    await colleague.run("pi.closeSession")
    assert colleague.file.read_bytes() == content
    await colleague.run("pi.openSession", path=str(colleague.file))
    await colleague.say("three")
    told = await colleague.context()
    assert [text for _, text in told] == ["one", "two", "three", "ok"]
    after = colleague.file.read_bytes()
    assert after.startswith(content)
    if tail:
        assert tail in after.split(b"\n")
        assert "tornLine" in [one["kind"] for one in colleague.named("session_problem")]
        colleague.file.write_bytes(b"\n".join(line for line in after.split(b"\n") if line != tail))


async def test_bad_lines_survive_a_prompt_and_pruning(colleague: Colleague):
    bad = [
        b'{"type":"message","id":"zz"',
        b"\0" * 64,
        b"\xff\xfe\x00\x41",
        b"[]",
        b'"text"',
        b'{"id":"q","type":7}',
    ]
    lines = old_outputs()
    own = lines[0] | {"cwd": str(colleague.folder)}
    rows = [json.dumps(line).encode() for line in [own, *lines[1:]]]
    rows[3:3] = bad
    colleague.file.parent.mkdir(parents=True, exist_ok=True)
    colleague.file.write_bytes(b"\n".join(rows) + b"\n")
    await colleague.run("pi.openSession", path=str(colleague.file))
    await colleague.say("x")
    assert colleague.named("session_reloaded")[0]["reason"] == "pruned"
    after = colleague.file.read_bytes().split(b"\n")
    assert all(line in after for line in bad)
    colleague.file.write_bytes(b"\n".join(line for line in after if line not in bad))


async def test_what_another_program_appends_survives_pruning_and_compaction(colleague: Colleague):
    await colleague.open(old_outputs(), NO_CONTINUATION)
    foreign = [sessions.user("x1", "pz", "foreign"), sessions.assistant("y1", "x1", "foreign2", total=3)]
    with colleague.file.open("ab") as file:
        file.write(sessions.encode(foreign))
    colleague.model.default = says(total=190_000)
    await colleague.say("mine")
    after = by_id(colleague)
    assert [after["x1"], after["y1"]] == foreign
    assert "foreignWriter" in [one["kind"] for one in colleague.named("session_problem")]
    assert colleague.named("session_reloaded")[0]["reason"] == "pruned"
    assert len(colleague.entries("compaction")) == 1
    mine = next(line for line in colleague.entries("message", "user") if "mine" in str(line["message"]))
    assert mine["parentId"] in ("y1", colleague.entries("compaction")[0]["id"])


async def test_half_a_character_is_mended_on_its_way_and_stays_in_the_file(colleague: Colleague):
    own = json.dumps(sessions.header(cwd=str(colleague.folder)))
    row = (
        '{"type":"message","id":"u1","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z",'
        '"message":{"role":"user","content":"x \\ud83d y","timestamp":1}}'
    )
    rest = [
        sessions.assistant("a1", "u1", "", sessions.call("c1", "bash", command="\ud83d")),
        sessions.result("r1", "a1", "c1", "out \ud83d put"),
        sessions.assistant("a2", "r1", "done", total=10),
        sessions.label("l1", "a2", "a2", "half \ud83d"),
    ]
    colleague.file.parent.mkdir(parents=True, exist_ok=True)
    content = "\n".join([own, row, *(json.dumps(line) for line in rest)]) + "\n"
    colleague.file.write_bytes(content.encode())
    await colleague.run("pi.openSession", path=str(colleague.file))
    colleague.model.answers = [calls(call("bash", command="printf '\\360\\237\\230'")), says()]
    await colleague.say("go")
    for request in colleague.model.chats:
        json.dumps(request.body, ensure_ascii=False).encode()
    assert texts(colleague.model.chats[0], "user")[0] == "x \ufffd y"
    assert texts(colleague.model.chats[0], "tool") == ["out \ufffd put"]
    assert "\ufffd" in texts(colleague.model.chats[1], "tool")[-1]
    assert colleague.file.read_bytes().startswith(content.encode())


async def test_a_v1_session_can_be_prompted(colleague: Colleague):
    lines: list[Json] = [
        {"type": "session", "id": "s", "timestamp": sessions.TIME, "cwd": str(colleague.folder)},
        {"type": "message", "timestamp": sessions.TIME, "message": {"role": "user", "content": "hello"}},
        {
            "type": "message",
            "timestamp": sessions.TIME,
            "message": sessions.assistant("-", None, "hi", total=10)["message"],
        },
    ]
    sessions.write(colleague.file, lines)
    await colleague.run("pi.openSession", path=str(colleague.file))
    await colleague.say("more")
    assert texts(colleague.model.chats[0]) == ["hello", "hi", "more"]
    assert colleague.named("session_reloaded")[0]["reason"] == "migrated"
    assert colleague.written()[0]["version"] == 3


# -- pruning


async def test_old_output_is_pruned_and_nothing_that_must_stay(colleague: Colleague):
    lines = old_outputs()
    lines[0]["zz"] = lines[1]["zz"] = lines[1]["message"]["zz"] = 1
    lines.append(sessions.entry("future_thing", "z1", "pz", x={"deep": [1, 2.50, "é"]}))
    await colleague.open(lines, NO_CONTINUATION)
    before = by_id(colleague)
    await colleague.say("x")
    after = by_id(colleague)
    pruned = [entry_id for entry_id, line in before.items() if after[entry_id] != line]
    assert "b1" in pruned
    assert not {"r0", "s0", "q09", "q10", "q11", "q12"} & set(pruned)
    assert set(pruned) <= {"b1", *(f"q{number:02}" for number in range(1, 9))}
    [block] = after["b1"]["message"]["content"]
    count = int(block["text"].removeprefix("[Output truncated - ").removesuffix(" tokens]"))
    assert 80_000 <= count <= 160_000
    for name in ("toolCallId", "toolName", "isError"):
        assert after["b1"]["message"][name] == before["b1"]["message"][name]
    assert after["z1"] == before["z1"]
    header = colleague.written()[0]
    assert (header["zz"], after["p0"]["zz"], after["p0"]["message"]["zz"]) == (1, 1, 1)
    assert "z1" not in str(await colleague.context())
    state = colleague.file.read_bytes()
    assert await colleague.run("pi.pruneToolOutputs", dryRun=True) == {"prunedCount": 0, "tokensSaved": 0}
    await colleague.say("y")
    assert colleague.file.read_bytes().startswith(state)


async def test_what_was_pruned_can_be_put_back_byte_for_byte(colleague: Colleague):
    await colleague.open(old_outputs(), NO_CONTINUATION)
    before = by_id(colleague)
    wanted = await colleague.run("pi.pruneToolOutputs", dryRun=True)
    assert by_id(colleague) == before
    assert await colleague.run("pi.pruneToolOutputs") == wanted
    assert (await colleague.usage())["source"] == "estimate"  # what was measured was another context
    shown = [text for role, text in await colleague.context() if role == "toolResult"]
    assert sum(text.startswith("[Output truncated - ") for text in shown) == wanted["prunedCount"]
    restored = await colleague.run("pi.restorePruned")
    assert restored == {"restoredCount": wanted["prunedCount"]}
    assert by_id(colleague) == before
    assert (await colleague.usage())["tokens"] == 150_000


async def test_what_would_save_too_little_is_not_pruned(colleague: Colleague):
    lines, last = [sessions.header(), sessions.user("p0", None, "start")], "p0"
    for number in range(11):
        lines.append(
            sessions.assistant(f"a{number}", last, "", sessions.call(f"c{number}", "bash", command="x"))
        )
        last = f"r{number}"
        lines.append(sessions.result(last, f"a{number}", f"c{number}", sessions.filler(12_000)))
    await colleague.open([*lines, sessions.assistant("z", last, "done", total=30_000)])
    before = colleague.entries()
    await colleague.say("x")
    assert colleague.entries()[: len(before)] == before


async def test_pruning_alone_can_make_enough_room(colleague: Colleague):
    await colleague.open([*old_outputs()[:-1], sessions.assistant("pz", "q12", "done", total=190_000)])
    await colleague.say("x")
    assert colleague.named("session_reloaded")[0]["reason"] == "pruned"
    usage = await colleague.usage()
    assert usage["tokens"] is not None


# -- the tree


def a_token() -> list[Json]:
    return [
        sessions.header(),
        sessions.user("u1", None, "root"),
        sessions.assistant("a1", "u1", "ok", total=10),
        sessions.user("u2", "a1", "TOKEN-773"),
        sessions.assistant("a2", "u2", "TOKEN-773 noted", total=20),
    ]


async def test_the_next_request_is_of_the_new_place(colleague: Colleague):
    await colleague.open(a_token())
    await colleague.run("pi.navigateTree", targetId="a1")
    assert (await colleague.usage())["tokens"] == 10
    await colleague.say("what was the token?")
    assert texts(colleague.model.chats[0]) == ["root", "ok", "what was the token?"]
    assert colleague.entries()[4]["parentId"] == "a1"


async def test_the_tree_stands_still_while_an_answer_comes(colleague: Colleague):
    await colleague.open(a_token())
    colleague.model.answers = [says("long " * 40, pause=0.02)]
    await colleague.run("pi.prompt", text="long")
    await colleague.until_told("message_update")
    user = next(line["id"] for line in colleague.entries() if "long" in str(line.get("message")))
    for command, arguments in (
        ("pi.navigateTree", {"targetId": "a1"}),
        ("pi.undoCompaction", {}),
        ("pi.pruneToolOutputs", {}),
        ("pi.restorePruned", {}),
        ("pi.forkSession", {"entryId": "u2"}),
        ("pi.cloneSession", {}),
        ("pi.closeSession", {}),
        ("pi.continue", {}),
    ):
        refused = await colleague.refusal(command, **arguments)
        assert (refused["data"]["kind"], refused["data"]["operation"]) == ("Busy", "run"), command
    for command, arguments in (
        ("pi.setLabel", {"entryId": "u1", "label": "mark"}),
        ("pi.setSessionName", {"name": "named"}),
        ("pi.setThinkingLevel", {"level": "high"}),
    ):
        await colleague.run(command, **arguments)
    await colleague.settled()
    answer = next(
        line for line in colleague.entries("message", "assistant") if "long" in str(line["message"])
    )
    path: list[str] = []
    lines, at = by_id(colleague), answer["id"]
    while at is not None:
        path.append(at)
        at = lines[at]["parentId"]
    assert path[-5:] == [user, "a2", "u2", "a1", "u1"]


async def test_model_and_level_are_those_of_the_path(colleague: Colleague):
    state = await colleague.open(sessions.small_model_then_large())
    assert (state["model"]["id"], state["thinkingLevel"]) == ("m1000", "high")
    await colleague.run("pi.navigateTree", targetId="a1")
    state = await colleague.run("pi.sessionState")
    assert (state["model"]["id"], state["thinkingLevel"]) == ("m200", "low")
    assert (await colleague.usage())["contextWindow"] == 200_000
    await colleague.say("x")
    assert colleague.model.chats[0].body["model"] == "m200"


async def test_another_model_is_used_from_the_next_request_on(colleague: Colleague):
    await colleague.open(a_token())
    colleague.model.answers = [calls(call("bash", command="echo 1"), delay=0.2)]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await colleague.run("pi.setModel", provider="fake", modelId="m1000")
    await colleague.settled()
    assert [request.body["model"] for request in colleague.model.chats] == ["m200", "m1000"]
    assert (await colleague.run("pi.sessionState"))["model"]["id"] == "m1000"


# -- usage


async def test_after_a_compaction_the_meter_waits_for_an_answer(colleague: Colleague):
    lines = [
        sessions.header(),
        sessions.user("u1", None, sessions.filler(400_000)),
        sessions.assistant("a1", "u1", "x", total=190_000),
        sessions.compaction("c1", "a1", "S", "a1", before=190_000),
    ]
    await colleague.open(lines)
    usage = await colleague.usage()
    assert (usage["tokens"], usage["percent"], usage["contextWindow"]) == (None, None, 200_000)
    colleague.model.answers = [says(total=30_000), says("x" * 400, hang_after=10)]
    await colleague.say("x")
    usage = await colleague.usage()
    assert (usage["tokens"], usage["percent"]) == (30_000, 15.0)
    await colleague.run("pi.prompt", text="y" * 40)
    await colleague.until_told_times("message_update", 2)
    await colleague.run("pi.abort")
    assert 30_000 < (await colleague.usage())["tokens"] < 30_300


async def test_without_a_window_prompts_work_and_nothing_compacts(colleague: Colleague):
    lines = [sessions.header(), sessions.model_change("k1", None, "fake", "window-null")]
    await colleague.open(lines)
    colleague.model.default = says(total=5_000_000)
    await colleague.say("x")
    assert await colleague.usage() == {}
    assert colleague.compactions() == []
    hints = [one for one in colleague.named("session_problem") if one["kind"] == "windowUnknown"]
    assert len(hints) == 1


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (CACHED, (1_000, 90_000, 0, 500, 91_500)),
        (WRITTEN, (1_000, 90_000, 1_000, 500, 92_500)),
        (UNTOTALLED, (1_000, 90_000, 0, 500, 91_500)),
    ],
    ids=["read", "written", "without a total"],
)
async def test_cached_tokens_count_once(colleague: Colleague, told: Json, kept: tuple[int, ...]):
    await colleague.open([sessions.header()])
    colleague.model.answers = [Reply(usage=told)]
    await colleague.say("x")
    usage = colleague.messages("assistant")[0]["usage"]
    assert tuple(usage[key] for key in ("input", "cacheRead", "cacheWrite", "output", "totalTokens")) == kept
    assert (await colleague.usage())["tokens"] == kept[-1]


async def test_usage_is_asked_for_and_a_server_that_refuses_that_is_asked_without(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [error(400, "stream_options is not supported"), says("hello")]
    await colleague.say("x")
    await colleague.say("y")
    wanted = [request.body.get("stream_options") for request in colleague.model.chats]
    assert wanted[:2] == [{"include_usage": True}, None]
    assert [m["content"][0]["text"] for m in colleague.messages("assistant")] == ["hello", "ok"]


async def test_what_summaries_cost_is_part_of_the_total_and_stays(colleague: Colleague):
    lines = sessions.two_long_turns(120_000)
    lines[2]["message"]["usage"]["cost"]["total"] = 0.5
    lines[4]["message"]["usage"]["cost"]["total"] = 0.6
    lines.append(sessions.model_change("k", "a2", "fake", "priced"))
    await colleague.open(lines)
    assert (await colleague.run("pi.sessionStats"))["cost"] == pytest.approx(1.1)
    colleague.model.default_summary = Reply(text="S", usage=measured(100))
    await colleague.run("pi.compact")
    assert colleague.entries("compaction")[0]["usage"]["cost"]["total"] == pytest.approx(0.1)
    assert (await colleague.run("pi.sessionStats"))["cost"] == pytest.approx(1.2)
    colleague.model.default = says(total=200)
    await colleague.say("x")
    total = (await colleague.run("pi.sessionStats"))["cost"]
    assert total == pytest.approx(1.4)
    await colleague.run("pi.closeSession")
    await colleague.run("pi.openSession", path=str(colleague.file))
    assert (await colleague.run("pi.sessionStats"))["cost"] == pytest.approx(total)


async def test_the_usage_in_detail_adds_up_and_names_files(colleague: Colleague):
    await colleague.open([sessions.header()])
    (colleague.folder / "a.txt").write_text("content " * 200)
    colleague.model.answers = [
        calls(call("read", path="a.txt"), total=5_000),
        says("done", total=9_000, reasoning="hm " * 50),
    ]
    await colleague.say("read it")
    usage = await colleague.run("pi.contextUsage", detail=True)
    rows: dict[str, Any] = usage["categories"]
    assert sum(rows.values()) == pytest.approx(usage["tokens"])
    for name in ("system", "tools", "user", "assistant", "thinking", "toolResults", "unattributed"):
        assert rows[name] > 0, name
    [file] = usage["files"]
    assert file["path"] == "a.txt"
    assert file["tokens"] >= 400


# -- writing


async def test_a_folder_that_is_gone_comes_back_with_the_whole_session(colleague: Colleague):
    await colleague.open(a_token())
    shutil.rmtree(colleague.file.parent)
    await colleague.say("x")
    assert colleague.messages("assistant")[-1]["content"][0]["text"] == "ok"
    assert [line["id"] for line in colleague.entries()[:4]] == ["u1", "a1", "u2", "a2"]


async def test_a_session_whose_folder_is_gone_runs_nothing_there(colleague: Colleague, tmp_path: Path):
    gone = tmp_path / "gone"
    lines = [sessions.header(cwd=str(gone)), *a_token()[1:]]
    sessions.write(colleague.file, lines)
    colleague.model.answers = [calls(call("bash", command="ls")), says("well")]
    await colleague.run("pi.openSession", path=str(colleague.file))
    await colleague.say("ls")
    problems = [one for one in colleague.named("session_problem") if one["kind"] == "cwdMissing"]
    assert str(gone) in problems[0]["message"]
    [(text, failed)] = colleague.results()
    assert (failed, str(gone) in text) == (True, True)
    assert not gone.exists()
    assert colleague.written()[0] == lines[0]


async def test_two_sessions_work_at_the_same_time(colleague: Colleague):
    await colleague.open(a_token())
    first = (await colleague.run("pi.sessionState"))["sessionId"]
    colleague.model.decide = lambda request: says("one", delay=0.2) if is_first(request) else says("two")
    await colleague.run("pi.prompt", text="first")
    second = (await colleague.run("pi.newSession"))["sessionId"]
    await colleague.run("pi.prompt", text="second")
    await colleague.settled(2)
    for session_id, wanted in ((first, "one"), (second, "two")):
        page = await colleague.run("pi.getMessages", sessionId=session_id)
        assert page["messages"][-1]["content"][0]["text"] == wanted
    for session_id in (first, second):
        told: list[Json] = [one.get("params") or {} for one in colleague.server.messages]
        numbers: list[int] = [
            one["seq"] for one in told if one.get("sessionId") == session_id and "seq" in one
        ]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def is_first(request: Received) -> bool:
    return "first" in texts(request)
