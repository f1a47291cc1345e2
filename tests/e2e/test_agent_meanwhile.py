"""What changes, or breaks, while a run is at work or compacts itself: files, settings, extensions, keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sessions
from tests.e2e.colleague import OVERFLOW, Colleague, call, calls, overflows, says, texts
from tests.e2e.office import Office
from tests.e2e.raw import Json
from tests.provider import Reply, error

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_CONTINUATION: Json = {"compaction": {"autoContinue": False}}
NO_RETRY: Json = {"retry": {"enabled": False}}

EXTENSION = """
from pi_ls import hookimpl
def note(text):
    with open({record!r}, "a") as file:
        file.write(text + "\\n")

@hookimpl
def session_before_compact(reason):
    note("{name} before " + reason)

@hookimpl
def session_compact(reason):
    note("{name} after " + reason)
"""


def extend(colleague: Colleague, source: str) -> None:
    file = colleague.folder / ".pi" / "extensions" / "ext.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)


async def until_there(file: Path) -> None:
    async with asyncio.timeout(20):
        while not file.exists():
            await asyncio.sleep(0.01)


def two_turns_of_which_one_is_split() -> list[Json]:
    """A compaction that keeps 10,000 tokens makes two summaries of it, one after the other."""
    return [
        sessions.header(),
        sessions.user("u1", None, sessions.filler(100_000)),
        sessions.assistant("a1", "u1", "x", total=30_000),
        sessions.user("u2", "a1", sessions.filler(100_000)),
        sessions.assistant("a2", "u2", sessions.filler(60_000), total=190_000),
    ]


# -- during a compaction that a run makes by itself


WAITS = """
import asyncio
from pathlib import Path
from pi_ls import hookimpl
@hookimpl
async def session_before_compact(context):
    (context.folder / "asked").touch()
    while not (context.folder / "go").exists():
        await asyncio.sleep(0.01)
"""


async def test_settings_that_change_hold_from_the_next_compaction_on(colleague: Colleague):
    """Also where nobody has been asked for a summary yet, because an extension takes its time."""
    own: Json = {"compaction": {"keepRecentTokens": 10_000, "autoContinue": False}}
    extend(colleague, WAITS)
    await colleague.open(two_turns_of_which_one_is_split(), own)
    colleague.model.summaries = [Reply(text="FIRST"), Reply(text="SECOND")]
    await colleague.run("pi.prompt", text="go")
    await until_there(colleague.folder / "asked")
    colleague.configure({"compaction": {"keepRecentTokens": 1, "enabled": False, "models": ["fake/m1000"]}})
    told = (await colleague.run("pi.reloadSettings"))["settings"]["compaction"]
    assert (told["keepRecentTokens"], told["enabled"]) == (1, False)
    assert (await colleague.run("pi.sessionState"))["isCompacting"] is True
    (colleague.folder / "go").touch()
    await colleague.settled()
    assert [one.body["model"] for one in colleague.model.asked_for_summaries] == ["m200", "m200"]
    [entry] = colleague.entries("compaction")
    assert entry["firstKeptEntryId"] == "a2"
    assert ("FIRST" in entry["summary"], "SECOND" in entry["summary"]) == (True, True)
    colleague.model.default = says(total=190_000)
    await colleague.say("once more")
    assert len(colleague.entries("compaction")) == 1, "switched off meanwhile, and that holds now"


async def test_extensions_that_are_read_again_are_asked_from_the_next_compaction_on(colleague: Colleague):
    record = colleague.folder / "record"
    extend(colleague, EXTENSION.format(record=str(record), name="old"))
    await colleague.open(sessions.two_long_turns(190_000), NO_CONTINUATION)
    colleague.provider.hold()
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    extend(colleague, EXTENSION.format(record=str(record), name="new"))
    await colleague.run("pi.reloadSettings")
    colleague.provider.release()
    await colleague.settled()
    assert record.read_text().splitlines() == ["old before threshold", "new after threshold"]
    assert colleague.compactions() == ["start threshold", "end threshold"]
    assert colleague.named("extension_error") == []
    assert colleague.model.order == ["summary", "chat"]


async def test_an_extension_that_asks_for_a_compaction_during_one_gets_none_besides(colleague: Colleague):
    record = colleague.folder / "record"
    extend(
        colleague,
        "from pi_ls import hookimpl\n"
        "def note(what):\n"
        f"    with open({str(record)!r}, 'a') as file: file.write(str(what) + '\\n')\n"
        "asked = []\n"
        "@hookimpl\n"
        "def compaction_start(event, context):\n"
        "    if not asked:\n"
        "        asked.append(1)\n"
        "        context.compact('again', lambda result: note('done'), lambda error: note(error))\n",
    )
    await colleague.open(sessions.two_long_turns(120_000))
    await colleague.run("pi.compact")
    await colleague.server.until(lambda: len(colleague.named("compaction_end")) == 2, 20)
    async with asyncio.timeout(20):
        while not record.exists() or not record.read_text().endswith("\n"):  # it is being written
            await asyncio.sleep(0.01)
    assert record.read_text() == "Already compacted\n"
    assert len(colleague.entries("compaction")) == 1
    first, second = colleague.named("compaction_end")
    assert ("result" in first, second["errorMessage"]) == (True, "Compaction failed: Already compacted")
    assert (await colleague.run("pi.sessionState")).get("operation") is None


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "replaced"])
async def test_what_another_program_edits_meanwhile_holds_in_the_next_request(
    colleague: Colleague, hidden: bool
):
    await colleague.open(sessions.two_long_turns(120_000))
    colleague.model.answers = [
        calls(call("bash", command="echo 1"), total=190_000),
        says("done", total=30_000),
    ]
    colleague.model.default_summary = Reply(text="S", delay=1)
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked(2)
    leaf = colleague.entries()[-1]["id"]
    edit = {"targetId": "a2", "replacement": None if hidden else "EDITED"}
    foreign = [
        sessions.entry("context_edit", "e1", leaf, **edit),
        sessions.user("x1", "e1", "said in the terminal"),
    ]
    with colleague.file.open("ab") as file:
        file.write(sessions.encode(foreign))
    await colleague.settled()
    [entry] = colleague.entries("compaction")
    assert (entry["parentId"], entry["firstKeptEntryId"]) == ("x1", "u2")
    sent = colleague.model.chats[-1]
    assert texts(sent, "assistant")[:-1] == ([] if hidden else ["EDITED"])
    assert texts(sent, "user")[-1] == "said in the terminal"
    assert colleague.model.order == ["chat", "summary", "chat"]


async def test_a_label_a_name_and_another_level_may_come_in_between(colleague: Colleague):
    await colleague.open(sessions.two_long_turns(190_000), NO_CONTINUATION)
    colleague.provider.hold()
    await colleague.run("pi.prompt", text="go")
    await colleague.until_asked()
    await colleague.run("pi.setLabel", entryId="u1", label="mark")
    await colleague.run("pi.setSessionName", name="named")
    await colleague.run("pi.setThinkingLevel", level="high")
    colleague.provider.release()
    await colleague.settled()
    kinds = [line["type"] for line in colleague.entries()][4:]
    assert kinds == ["label", "session_info", "thinking_level_change", "compaction", "message", "message"]
    assert (await colleague.run("pi.sessionState"))["thinkingLevel"] == "high"


# -- a second overflow


async def test_after_a_second_overflow_nothing_is_compacted_though_the_threshold_is_passed(
    colleague: Colleague,
):
    """The run ends with the overflow, whatever is still to be done about the size of the context."""
    await colleague.open(sessions.two_long_turns(150_000), NO_RETRY | {"compaction": {"keepRecentTokens": 1}})
    colleague.model.answers = [
        overflows(),
        calls(call("bash", command="echo 1"), total=100_000),
        calls(call("bash", command="echo 2"), total=190_000),
        overflows(),
    ]
    colleague.model.summaries = [Reply(text="S"), error(400, "boom")]
    await colleague.say("go")
    assert colleague.model.order == ["chat", "summary", "chat", "chat", "summary", "chat"]
    starts = [one["reason"] for one in colleague.named("compaction_start")]
    assert starts == ["overflow", "threshold"]
    sentence = colleague.named("agent_end")[-1]["errorMessage"]
    assert sentence.startswith("Context overflow recovery failed: ")
    assert OVERFLOW in sentence
    await colleague.say("again")
    assert colleague.named("compaction_start")[-1]["reason"] == "threshold", (
        "before the next prompt it is due"
    )
    assert colleague.messages("assistant")[-1]["content"][0]["text"] == "ok"


# -- keys and prompts


async def test_a_key_that_is_gone_when_a_summary_needs_it_fails_the_compaction_and_not_the_run(
    colleague: Colleague,
):
    """Keys are looked up when they are needed, and files of keys are read again when they change."""

    def tell_key(key: str) -> None:
        own: Json = {"baseUrl": colleague.provider.openai, "api": "openai-completions", "apiKey": key}
        own["models"] = [{"id": "own", "contextWindow": 200_000}]
        colleague.office.home.tell_models({"keyed": own})

    tell_key("sk-test-2")
    lines = [*sessions.two_long_turns(120_000), sessions.model_change("k", "a2", "keyed", "own")]
    await colleague.open(lines, NO_RETRY)
    colleague.model.answers = [
        calls(call("bash", command="until [ -e go ]; do sleep 0.01; done"), total=190_000),
        says("done", total=30_000),
    ]
    await colleague.run("pi.prompt", text="go")
    await colleague.until_told("tool_execution_start")
    tell_key("!echo no such key >&2; exit 3")
    (colleague.folder / "go").touch()
    await colleague.settled()
    [end] = colleague.named("compaction_end")
    assert end["errorMessage"].startswith("Auto-compaction failed: ")
    assert "models.json" in end["errorMessage"]
    assert colleague.messages("assistant")[-1]["content"][0]["text"] == "done"
    assert colleague.named("agent_settled")[0]["aborted"] is False

    await colleague.say("next")
    assert "models.json" in colleague.named("agent_end")[-1]["errorMessage"]
    assert colleague.model.order == ["chat", "chat"]
    tell_key("sk-test-2")
    await colleague.say("and now")
    assert "errorMessage" not in colleague.named("agent_end")[-1]


@pytest.fixture
def own_prompts(office: Office) -> Iterator[Path]:
    """Where the user's own prompts lie; they are taken away afterwards."""
    folder = office.home.agent_dir / "prompts" / "compaction"
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    for file in folder.iterdir():
        file.unlink()


@pytest.mark.parametrize("text", ["{% if %}", "{{ nothing.of.this }}", b"\xff\xfe"])
async def test_a_prompt_of_the_user_that_breaks_fails_the_compaction_and_not_the_run(
    colleague: Colleague, own_prompts: Path, text: str | bytes
):
    await colleague.open(sessions.two_long_turns(120_000), NO_CONTINUATION)
    colleague.model.answers = [
        calls(call("bash", command="echo 1"), total=190_000),
        says("done", total=30_000),
    ]
    file = own_prompts / "compaction-summary.md"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    await colleague.say("go")
    [end] = colleague.named("compaction_end")
    assert end["errorMessage"].startswith("Auto-compaction failed: ")
    assert str(file) in end["errorMessage"]
    assert colleague.model.order == ["chat", "chat"]
    assert colleague.messages("assistant")[-1]["content"][0]["text"] == "done"


async def test_a_prompt_without_which_nothing_can_be_sent_fails_the_answer_and_is_named(
    colleague: Colleague, own_prompts: Path
):
    lines = [*sessions.two_long_turns(120_000), sessions.compaction("c1", "a2", "S", "u2")]
    await colleague.open(lines)
    file = own_prompts / "compaction-summary-context.md"
    file.write_text("{% if %}")
    await colleague.say("go")
    assert str(file) in colleague.named("agent_end")[-1]["errorMessage"]
    assert colleague.messages("assistant")[-1]["stopReason"] == "error"
    assert colleague.model.order == []
    file.write_text("MENDED {{ summary }}")
    await colleague.say("again")
    assert texts(colleague.model.chats[0], "user")[0] == "MENDED S"
    assert "errorMessage" not in colleague.named("agent_end")[-1]


async def test_instructions_that_cannot_be_read_are_left_out(colleague: Colleague):
    (colleague.folder / "AGENTS.md").mkdir()
    (colleague.folder / "CLAUDE.md").write_bytes(b"be kind \xff")
    await colleague.open([sessions.header()])
    await colleague.say("go")
    assert "be kind �" in colleague.model.chats[0].system


# -- the preview


async def test_a_preview_leaves_out_what_a_compaction_leaves_out_of_what_was_measured(colleague: Colleague):
    """The measured prompt holds system prompt and tools too; only what is over is the estimate's error."""
    (colleague.folder / "AGENTS.md").write_text("rule " * 8_000)
    await colleague.open([sessions.header()], {"compaction": {"keepRecentTokens": 4_000}})
    for number in range(6):
        colleague.model.default = says(f"answer {number}", total=10_000 + 1_000 * (number + 1))
        await colleague.say(sessions.filler(4_000))
    detail = await colleague.run("pi.contextUsage", detail=True)
    assert detail["categories"]["system"] > 5_000
    preview = await colleague.run("pi.previewCompaction")
    result = await colleague.run("pi.compact")
    assert preview["firstKeptEntryId"] == result["firstKeptEntryId"]
    kept = [line for line in colleague.entries("message", "user") if line["id"] in preview["keptEntryIds"]]
    assert len(kept) == 4
