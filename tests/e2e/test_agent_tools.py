"""Tools as a model calls them through the whole program: in pieces, badly, without an end."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests import sessions
from tests.e2e.colleague import Colleague, call, calls, measured, says, texts
from tests.e2e.raw import Json
from tests.provider import Call, Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")


# -- calls in pieces


def pieces(*deltas: list[Json]) -> Reply:
    """A stream whose chunks hold these lists of pieces of tool calls."""
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m200"}
    choices: list[Json] = [{"delta": {"tool_calls": one}, "finish_reason": None} for one in deltas]
    choices.append({"delta": {}, "finish_reason": "tool_calls"})
    chunks: list[Json] = [{"choices": [{"index": 0, **choice}]} for choice in choices]
    chunks.append({"choices": [], "usage": measured(1_000)})
    lines = [f"data: {json.dumps(frame | chunk)}\n\n" for chunk in chunks]
    return Reply(raw="".join(lines) + "data: [DONE]\n\n")


def piece(
    index: int | None, call_id: str | None = None, name: str | None = None, arguments: str = ""
) -> Json:
    function = ({"name": name} if name is not None else {}) | {"arguments": arguments}
    named = {"id": call_id, "type": "function"} if call_id is not None else {}
    return ({"index": index} if index is not None else {}) | {"function": function} | named


BY_INDEX = pieces(
    [piece(0, "A", "read")],
    [piece(1, "B", "bash")],
    [piece(0, arguments='{"path":')],
    [piece(1, arguments='{"command":"l')],
    [piece(0, arguments='"x"}')],
    [piece(1, arguments='s"}')],
)
IN_ONE = pieces([piece(0, "A", "read", '{"path":"x"}'), piece(1, "B", "bash", '{"command":"ls"}')])
BY_ID = pieces(
    [piece(0, "A", "read", '{"path":')],
    [piece(0, "A", "read", '"x"}')],
    [piece(1, "B", "bash", '{"command":"l')],
    [piece(1, "B", "bash", 's"}')],
)


WITHOUT_INDEX = pieces(
    [piece(None, "A", "read", '{"path":')],
    [piece(None, "A", None, '"x"}')],
    [piece(None, "B", "bash", '{"command":"l')],
    [piece(None, "B", None, 's"}')],
)
NAMES_REPEATED = pieces(
    [piece(0, "A", "read")],
    [piece(1, "B", "bash")],
    [piece(0, None, "read", '{"path":"x"}')],
    [piece(1, None, "bash", '{"command":"ls"}')],
)
NULL_IDS = pieces(
    [piece(0, "A", "read"), piece(1, "B", "bash")],
    [piece(0, arguments='{"path":"x"}') | {"id": None}, piece(1, arguments='{"command":') | {"id": None}],
    [piece(1, arguments='"ls"}') | {"id": None}],
)
FORMS = {
    "by index": BY_INDEX,
    "in one chunk": IN_ONE,
    "ids repeated": BY_ID,
    "without index": WITHOUT_INDEX,
    "names repeated": NAMES_REPEATED,
    "ids are null": NULL_IDS,
}


@pytest.mark.parametrize("reply", FORMS.values(), ids=FORMS.keys())
async def test_pieces_of_several_calls_are_put_together(colleague: Colleague, reply: Reply):
    await colleague.open([sessions.header()])
    colleague.model.answers = [reply]
    await colleague.say("x")
    content = colleague.messages("assistant")[0]["content"]
    assert [(block["id"], block["name"], block["arguments"]) for block in content] == [
        ("A", "read", {"path": "x"}),
        ("B", "bash", {"command": "ls"}),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"path": "a', "path"),
        ("[1]", "object"),
        ('"x"', "object"),
        ('{"path":"a"}{"path":"b"}', ""),
        ('{"path":"a",}', ""),
        ('{"path":NaN}', ""),
        ("", "path"),
        ("{}", "path"),
        ("null", "path"),
    ],
)
async def test_arguments_that_cannot_be_used_are_told_to_the_model_and_spoil_nothing(
    colleague: Colleague, arguments: str, said: str
):
    await colleague.open([sessions.header()])
    colleague.model.answers = [calls(Call("c1", "read", arguments))]
    await colleague.say("x")
    await colleague.say("next")
    [(text, failed)] = colleague.results()
    assert failed, text
    assert said in text
    [block] = colleague.messages("assistant")[0]["content"]
    assert block["arguments"] == {}
    for request in colleague.model.chats[1:]:
        [asked] = [m["tool_calls"][0] for m in request.body["messages"] if m.get("tool_calls")]
        assert asked["function"]["arguments"] == "{}"


async def test_an_unknown_tool_is_told_with_those_there_are(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [calls(call("teleport", where="home"))]
    await colleague.say("x")
    [(text, failed)] = colleague.results()
    assert (failed, "read, bash, edit, write" in text) == (True, True)


# -- processes


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sleep 60 & echo done", "done"),
        ("(sleep 60; echo late) & echo done", "done"),
        ("nohup sleep 60 >out.log 2>&1 & echo done", "done"),
        ("cat", "(no output)"),
    ],
)
async def test_a_command_ends_with_its_shell(colleague: Colleague, command: str, said: str):
    await colleague.open([sessions.header()])
    colleague.model.answers = [calls(call("bash", command=command))]
    began = time.perf_counter()
    await colleague.say("x")
    assert time.perf_counter() - began < 15  # and not the sixty seconds of what it left behind
    [(text, failed)] = colleague.results()
    assert (text.splitlines()[0], failed) == (said, False)


async def test_a_huge_output_is_cut_with_a_note_and_costs_no_memory(colleague: Colleague):
    await colleague.open([sessions.header()])
    await colleague.say("warm up")
    before = memory_of(colleague.server.process.pid)
    colleague.model.answers = [calls(call("bash", command="yes 0123456789abcde | head -c 50000000"))]
    await colleague.say("x")
    [(text, failed)] = colleague.results()
    assert not failed
    assert len(text) < 60_000
    whole = Path(text.rpartition("All of them: ")[2].rstrip("]"))
    assert whole.stat().st_size == 50_000_000
    whole.unlink()
    assert memory_of(colleague.server.process.pid) - before < 100_000_000


def memory_of(pid: int) -> int:
    """Bytes a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_stopping_a_run_ends_its_command_with_all_it_started(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [
        calls(call("bash", command="sleep 4711 & sleep 4711; true"), call("bash", "c2"))
    ]
    await colleague.run("pi.prompt", text="x")
    await colleague.until_told("tool_execution_start")
    await colleague.server.until(lambda: running("sleep 4711") > 0, 5)
    began = time.perf_counter()
    assert await colleague.run("pi.abort") == {"aborted": True}
    assert time.perf_counter() - began < 5
    assert running("sleep 4711") == 0
    assert [(text, failed) for text, failed in colleague.results()] == [
        ("aborted", True),
        ("not run: the run was aborted", True),
    ]
    await colleague.say("next")


async def test_what_a_command_had_shown_when_it_was_stopped_is_told_to_the_model(colleague: Colleague):
    await colleague.open([sessions.header()])
    colleague.model.answers = [calls(call("bash", command="echo so far; sleep 60"))]
    await colleague.run("pi.prompt", text="x")
    await colleague.until_told("tool_execution_update")
    await colleague.run("pi.abort")
    assert colleague.results() == [("so far\n\naborted", True)]
    await colleague.say("next")
    assert texts(colleague.model.chats[-1], "tool") == ["so far\n\naborted"]


def running(command: str) -> int:
    """How many processes run this command."""
    wanted = command.encode().replace(b" ", b"\0")
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found += (folder / "cmdline").read_bytes().strip(b"\0") == wanted
            except OSError:
                continue
    return found


# -- other letters


async def test_other_letters_go_through_files_commands_and_requests(colleague: Colleague):
    text = "ü 你好 😀\u2028"
    await colleague.open([sessions.header()])
    colleague.model.answers = [
        calls(call("write", "c1", path="ü.txt", content=text), call("bash", "c2", command="cat ü.txt")),
        says("fine"),
    ]
    await colleague.say(text)
    assert (colleague.folder / "ü.txt").read_text(encoding="utf-8") == text
    assert texts(colleague.model.chats[1], "user") == [text]
    assert "你好 😀" in texts(colleague.model.chats[1], "tool")[1]
    assert all(line for line in colleague.file.read_bytes().decode("utf-8").split("\n")[:-1])


async def test_pictures_go_along_with_a_prompt(colleague: Colleague):
    await colleague.open([sessions.header()])
    await colleague.say("see", images=[{"data": "QUJD", "mimeType": "image/png"}])
    [content] = [m["content"] for m in colleague.model.chats[0].body["messages"] if m["role"] == "user"]
    assert [part["type"] for part in content] == ["text", "image_url"]
    assert content[1]["image_url"]["url"] == "data:image/png;base64,QUJD"
    assert (await colleague.run("pi.contextUsage", detail=True))["categories"]["images"] > 0


async def test_what_a_model_says_arrives_in_pieces_that_make_up_the_whole(colleague: Colleague):
    await colleague.open([sessions.header()])
    text = "".join(f"word{number} " for number in range(9_000))
    colleague.model.answers = [says(text, piece=30_000, reasoning="because " * 100)]
    await colleague.say("x")
    pieces_told = [one["assistantMessageEvent"] for one in colleague.named("message_update")]
    told = "".join(one["delta"] for one in pieces_told if one["type"] == "text_delta")
    assert told == text
    thought = "".join(one["delta"] for one in pieces_told if one["type"] == "thinking_delta")
    assert thought == "because " * 100
    assert not any("truncated" in one for one in colleague.named("message_update"))
