"""Extensions are found, checked and read again; what one of them gets wrong is its own problem."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pi_ls.hooks import Hooks, Sources
from pi_ls.hooks.loading import load
from tests import sessions
from tests.hooks.conftest import Bench

HOOK = "@hookimpl\ndef session_opened(event): pass\n"

WRONG = {
    "def f(:": (1, "SyntaxError"),
    "x = 1 / 0": (1, "ZeroDivisionError: division by zero"),
    "import nothing_of_that_name": (1, "ModuleNotFoundError"),
    "raise SystemExit(3)": (1, "SystemExit: 3"),
    "\n\n@hookimpl\ndef session_copmact(event): pass": (3, "there is no hook “session_copmact”"),
    "@hookimpl\ndef session_tree(new_leaf, old_leaf_id): pass": (
        1,
        "has no argument “new_leaf”; it has new_leaf_id",
    ),
    "@hookimpl\ndef message_end(*, event): pass": (1, "take the * out"),
    "@hookimpl\ndef message_end(**all): pass": (1, "must name the arguments it wants: event, context"),
    "@hookimpl(wrapper=True)\ndef message_end(event): yield": (1, "hooks cannot be wrapped"),
    "def message_end(event): pass": (-2, "it marks no function with hookimpl"),
}


@pytest.mark.parametrize("source", WRONG)
async def test_an_extension_that_is_wrong_is_told_once_with_file_and_line(bench: Bench, source: str):
    file = bench.extension(source, "a.py")
    bench.extension(HOOK + "note('still loaded')", "b.py")
    session = await bench.open()
    line, says = WRONG[source]
    first = file.read_text().split("\n").index(source.split("\n")[0]) if source.split("\n")[0] else 4
    [told] = bench.failures()
    assert (told["extension"], told["hook"]) == (str(file), "load")
    assert says in told["error"]
    expected = 1 if line < 0 else first + line
    assert told["error"].startswith(f"{file}:{expected}: "), told["error"]
    assert bench.notes() == [["still loaded"]]
    await session.compact()


async def test_the_order_is_that_of_the_names_and_the_last_replacement_wins(bench: Bench):
    for name in ("b", "a", "c"):
        bench.extension(
            f"""
            @hookimpl
            def session_before_compact(preparation):
                note({name!r})
                return {{"compaction": {{"summary": {name!r}, "firstKeptEntryId": "u2"}}}}
            """,
            f"{name}.py",
        )
    session = await bench.open()
    assert (await session.compact())["summary"] == "c"
    assert bench.notes() == [["a"], ["b"], ["c"]]


async def test_the_first_cancel_wins_and_nobody_else_is_asked(bench: Bench):
    bench.extension("@hookimpl\ndef session_before_tree():\n    note('a'); return {'label': 'x'}", "a.py")
    bench.extension("@hookimpl\ndef session_before_tree():\n    note('b'); return {'cancel': True}", "b.py")
    bench.extension("@hookimpl\ndef session_before_tree():\n    note('c')", "c.py")
    session = await bench.open()
    assert (await session.navigate_tree("a1"))["cancelled"] is True
    assert bench.notes() == [["a"], ["b"]]


async def test_tryfirst_and_trylast_are_taken_at_their_word(bench: Bench):
    bench.extension("@hookimpl(trylast=True)\ndef session_before_tree(): note('last')", "a.py")
    bench.extension("@hookimpl\ndef session_before_tree(): note('usual')", "b.py")
    bench.extension("@hookimpl(tryfirst=True)\ndef session_before_tree(): note('first')", "c.py")
    session = await bench.open()
    await session.navigate_tree("a1")
    assert bench.notes() == [["first"], ["usual"], ["last"]]


async def test_context_of_several_extensions_is_put_together(bench: Bench):
    for name in ("a", "b"):
        bench.extension(
            "@hookimpl\ndef session_compacting():\n"
            f"    return {{'context': [{name!r}], 'preserveData': {name!r}}}",
            f"{name}.py",
        )
    session = await bench.open()
    assert (await session.compact())["preserveData"] == "b"


def test_an_installed_package_brings_extensions_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site = tmp_path / "site"
    (site / "guards-1.0.dist-info").mkdir(parents=True)
    (site / "guards-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: guards\nVersion: 1.0\n"
    )
    entry_points = "[pi_ls]\nguard = guards\nbroken = guards:missing\n"
    (site / "guards-1.0.dist-info" / "entry_points.txt").write_text(entry_points)
    (site / "guards.py").write_text("from pi_ls import hookimpl\n" + HOOK)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    loaded = load(Sources(tmp_path / "agent"))
    assert [one.extension for one in loaded.implementations["session_opened"]] == ["guard (guards)"]
    [problem] = loaded.problems
    assert problem.extension == "broken (guards:missing)"
    assert "AttributeError" in problem.error
    sys.modules.pop("guards")


async def test_extensions_are_read_again(bench: Bench):
    file = bench.extension("@hookimpl\ndef session_before_tree(): note(1)")
    session = await bench.open()
    environment = session.environment
    await session.navigate_tree("a1")
    file.write_text(file.read_text().replace("note(1)", "note(2)"))
    await environment.hooks.reload(environment.extension_sources(), bench.told.append)
    await session.navigate_tree("a2")
    file.unlink()
    await environment.hooks.reload(environment.extension_sources(), bench.told.append)
    await session.navigate_tree("a1")
    assert bench.notes() == [[1], [2]]


async def test_loading_that_hangs_holds_up_only_what_asks_extensions(bench: Bench):
    bench.extension("import threading\nnote('in')\nthreading.Event().wait(1)\n" + HOOK)
    hooks = Hooks(Sources(bench.agent_dir), patience=0.05)
    hooks.begin(bench.told.append)
    [told] = await bench.until(lambda: bench.named("extension_error"))
    assert "loading takes more than" in told["error"]
    assert await asyncio.wait_for(hooks.has("session_opened"), 5) is True
    await hooks.close()


async def test_what_happens_while_extensions_are_loaded_is_told_afterwards(bench: Bench):
    bench.extension(
        "time.sleep(0.2)\n@hookimpl\ndef session_opened(event, context): note(context.session_id)"
    )
    await bench.open()
    assert await bench.until(bench.notes) == [["s-1"]]


async def test_a_hook_gets_copies(bench: Bench):
    bench.extension(
        """
        @hookimpl
        def session_before_compact(branch_entries):
            for entry in branch_entries:
                entry.data["message"]["content"] = "GONE"
                entry.type = "custom"

        @hookimpl
        def entry_appended(event):
            event.entry["id"] = "GONE"
        """
    )
    session = await bench.open()
    before = bench.file.read_bytes()
    await session.compact()
    await session.extending.settle()
    assert not bench.failures()
    assert bench.file.read_bytes().startswith(before)
    page = await session.messages_page()
    assert "GONE" not in str(page)
    assert "GONE" not in str(bench.named("entry_appended"))


@pytest.mark.parametrize("hook", ["session_before_compact", "session_compacting"])
async def test_what_a_hook_does_with_messages_it_is_given_is_nobody_elses_concern(bench: Bench, hook: str):
    bench.extension(
        f"""
        from pi_ls.core.messages import ToolCall

        @hookimpl
        def {hook}(preparation):
            for message in (*preparation.messages_to_summarize, *preparation.turn_prefix_messages):
                for block in message.content if not isinstance(message.content, str) else ():
                    if isinstance(block, ToolCall):
                        block.arguments["command"] = "GONE"
                        note("changed")
        """
    )
    lines = sessions.two_long_turns(120_000)
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "STAYS"}}
    lines[2]["message"]["content"].append(call)
    session = await bench.open(lines)
    await session.messages_page()
    result = await session.compact()
    assert bench.notes() == [["changed"]]
    assert "GONE" not in result["summary"]
    await session.undo_compaction()
    page = str(await session.messages_page())
    assert ("STAYS" in page, "GONE" in page) == (True, False)


async def test_the_context_object_compacts_and_tells_how_full_it_is(bench: Bench):
    bench.extension(
        """
        @hookimpl
        async def session_tree(new_leaf_id, context):
            usage = context.get_context_usage()
            note("usage", usage["contextWindow"], usage["tokens"])
            context.compact("BANANA", on_complete=lambda result: note("done", result["firstKeptEntryId"]),
                            on_error=lambda error: note("error", str(error)))

        @hookimpl
        def session_before_compact(custom_instructions, reason, context):
            note("before", custom_instructions, reason, context.session_id, str(context.folder))
        """
    )
    (bench.agent_dir / "models.json").write_text(
        '{"providers": {"fake": {"baseUrl": "http://127.0.0.1:9", "api": "openai-completions",'
        ' "models": [{"id": "m200", "contextWindow": 200000}]}}}'
    )
    session = await bench.open()
    await session.navigate_tree("u2")
    await bench.until(lambda: any(note[0] == "error" for note in bench.notes()))
    await session.navigate_tree("a2")
    await bench.until(lambda: any(note[0] == "done" for note in bench.notes()))
    assert [note for note in bench.notes() if note[0] != "before"] == [
        ["usage", 200_000, 60_000],
        ["error", "Nothing to compact (session too small)"],
        ["usage", 200_000, 120_000],
        ["done", "u2"],
    ]
    assert ["before", "BANANA", "manual", "s-1", str(bench.folder)] in bench.notes()
    assert not bench.failures()


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_callback_is_called_where_the_hook_ran_and_holds_nobody_up(bench: Bench, plain: bool):
    bench.extension(
        f"""
        import threading

        async def on_complete(result):
            asyncio.get_running_loop()
            note("async", threading.current_thread() is HERE)
            time.sleep(60)

        def on_complete_plain(result):
            note("plain", threading.current_thread() is HERE)
            time.sleep(60)

        @hookimpl
        async def session_tree(context):
            global HERE
            HERE = threading.current_thread()
            context.compact(on_complete={"on_complete_plain" if plain else "on_complete"})
        """
    )
    session = await bench.open()
    await session.navigate_tree("a1")
    await session.navigate_tree("a2")
    [noted] = await bench.until(bench.notes)
    assert noted == (["plain", False] if plain else ["async", True])
    async with asyncio.timeout(2):
        await session.context_usage()


async def test_a_closed_session_is_not_compacted_any_more(bench: Bench):
    bench.extension(
        """
        @hookimpl
        def session_closed(context):
            context.compact(on_complete=lambda r: note("done"), on_error=lambda e: note(type(e).__name__))
        """
    )
    session = await bench.open()
    before = bench.file.read_bytes()
    await session.close()
    assert await bench.until(bench.notes) == [["NoSession"]]
    assert bench.named("compaction_start") == []
    assert bench.file.read_bytes() == before


async def test_a_callback_that_fails_is_told(bench: Bench):
    file = bench.extension(
        "@hookimpl\ndef session_tree(context): context.compact(on_complete=lambda r: 1 / 0)"
    )
    session = await bench.open()
    await session.navigate_tree("a1")
    await session.navigate_tree("a2")
    [told] = await bench.until(bench.failures)
    assert (told["extension"], told["hook"]) == (str(file), "compact")
    assert "ZeroDivisionError" in told["error"]


async def test_a_signal_is_raised_when_the_operation_is_aborted(bench: Bench):
    bench.extension(
        """
        @hookimpl
        async def session_before_compact(signal):
            note("in", signal.aborted)
            try:
                await signal.wait()
            finally:
                note("out", signal.aborted)
        """
    )
    session = await bench.open()
    work = asyncio.ensure_future(session.compact())
    await bench.until(bench.notes)
    await session.abort_compaction()
    with pytest.raises(Exception, match="Compaction cancelled"):
        await work
    assert await bench.until(lambda: bench.notes()[1:]) == [["out", True]]


async def test_a_flood_of_events_for_a_slow_hook_is_bounded(bench: Bench):
    bench.extension("@hookimpl\nasync def session_info_changed(event):\n    await asyncio.sleep(600)")
    session = await bench.open()
    from tests.hooks.test_table import sample

    for _ in range(1_200):
        session.emit(sample("session_info_changed"))
    [told] = bench.failures()
    assert "had to be dropped" in told["error"]
