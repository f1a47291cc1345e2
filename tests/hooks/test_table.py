"""Every hook, and everything an extension may do in it: return nothing, what is wanted, what is not, raise,
hang, cancel. The session survives all of it, and nothing of a wrong shape reaches the file."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pi_ls.core import events
from pi_ls.core.errors import AlreadyCompacted, Cancelled, ExtensionError
from pi_ls.hooks import HOOKS
from pi_ls.hooks.catalogue import BEFORE_HOOKS, EVENT_HOOKS
from pi_ls.session import AgentSession
from tests import sessions
from tests.hooks.conftest import Bench

COMPACTION = '{"compaction": {"summary": "MINE", "firstKeptEntryId": preparation.first_kept_entry_id}}'
VALID = {
    "session_before_compact": COMPACTION,
    "session_compacting": '{"prompt": "P", "context": ["one"], "preserveData": {"k": 1}}',
    "session_before_tree": '{"summary": {"summary": "MINE"}, "label": "l"}',
}
WRONG: dict[str, list[str]] = {
    "session_before_compact": [
        "5",
        '"cancel"',
        '{"cancel": 1}',
        '{"cancelled": True}',
        '{"compaction": 7}',
        '{"compaction": {"summary": 7, "firstKeptEntryId": preparation.first_kept_entry_id}}',
        '{"compaction": {"summary": "  ", "firstKeptEntryId": preparation.first_kept_entry_id}}',
        '{"compaction": {"summary": "S"}}',
        '{"compaction": {"summary": "S", "firstKeptEntryId": "nowhere"}}',
        '{"compaction": {"summary": "S", "firstKeptEntryId": "u2", "tokensBefore": -1}}',
        '{"compaction": {"summary": "S", "firstKeptEntryId": "u2", "tokensBefore": float("nan")}}',
        '{"compaction": {"summary": "S", "firstKeptEntryId": "u2", "usage": 3}}',
        '{"compaction": {"summary": "S", "firstKeptEntryId": "u2", "details": {"f": object()}}}',
        '{"compaction": {"summary": "S", "firstKeptEntryId": "u2", "kept": "u2"}}',
    ],
    "session_compacting": [
        "5",
        '{"prompt": 1}',
        '{"prompt": ""}',
        '{"context": "one"}',
        '{"preserveData": {1j}}',
    ],
    "session_before_tree": [
        "5",
        '{"summary": "S"}',
        '{"summary": {"summary": ""}}',
        '{"label": 3}',
        '{"replaceInstructions": "yes"}',
        '{"cancel": None}',
    ],
}
SAMPLES: dict[str, Any] = {"reason": "manual", "decision": "once", "source": "estimate", "type": "text_delta"}


def sample(name: str) -> events.Event:
    """An event of that name, with something in each field that needs it."""
    kind = next(
        one
        for one in vars(events).values()
        if isinstance(one, type) and issubclass(one, events.Event) and one.__struct_config__.tag == name
    )
    return kind(**_fields(kind))


def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    def value(field: msgspec.inspect.Field) -> Any:
        match field.type:
            case msgspec.inspect.StrType():
                return "text"
            case msgspec.inspect.BoolType():
                return True
            case msgspec.inspect.IntType():
                return 1
            case msgspec.inspect.ListType():
                return []
            case msgspec.inspect.LiteralType(values=values):
                return values[0]
            case msgspec.inspect.StructType(cls=inner):
                return inner(**_fields(inner))
            case msgspec.inspect.DictType():
                return {"id": "x"}
            case _:
                return None

    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.name: value(field) for field in info.fields if field.required}


def arguments(hook: str) -> str:
    return ", ".join(HOOKS[hook])


async def trigger(session: AgentSession, hook: str) -> Any:
    """Do what calls the hook."""
    match hook:
        case "session_before_compact" | "session_compacting" | "session_compact":
            return await session.compact()
        case "session_before_tree":
            return await session.navigate_tree("a1", summarize=True)
        case "session_tree":
            return await session.navigate_tree("a1")
        case "session_compact_failed":
            await session.compact()
            with pytest.raises(AlreadyCompacted):
                await session.compact()
        case _:
            session.emit(sample(hook))
            await session.extending.settle()
    return None


async def still_works(bench: Bench, session: AgentSession) -> None:
    """The session is idle, can be moved about and compacted, and every line of its file parses."""
    assert session.operation is None
    bench.written()
    await session.context_usage()
    await session.set_label("u1", "still here")


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_returns_nothing_changes_nothing(bench: Bench, hook: str, plain: bool):
    bench.extension(
        f"@hookimpl\n{'' if plain else 'async '}def {hook}({arguments(hook)}):\n    note('called')"
    )
    session = await bench.open()
    await trigger(session, hook)
    await bench.until(bench.notes)
    assert not bench.failures()
    await still_works(bench, session)


@pytest.mark.parametrize("hook", BEFORE_HOOKS)
async def test_a_valid_answer_is_used(bench: Bench, hook: str):
    bench.extension(f"@hookimpl\ndef {hook}({arguments(hook)}):\n    return {VALID[hook]}")
    session = await bench.open()
    answer = await trigger(session, hook)
    assert not bench.failures()
    match hook:
        case "session_before_compact":
            entry = bench.written()[-1]
            assert (entry["summary"], entry["fromHook"]) == ("MINE", True)
            assert answer["fromExtension"] is True
        case "session_compacting":
            assert bench.written()[-1]["preserveData"] == {"k": 1}
            assert "fromHook" not in bench.written()[-1]
        case _:
            summary, label = bench.written()[-2:]
            assert (summary["summary"], summary["fromHook"], label["label"]) == ("MINE", True, "l")
            assert bench.named("session_tree")[0]["fromExtension"] is True
    await still_works(bench, session)


@pytest.mark.parametrize(("hook", "answer"), [(hook, one) for hook, all_ in WRONG.items() for one in all_])
async def test_a_wrong_answer_fails_the_operation_and_nothing_is_written(
    bench: Bench, hook: str, answer: str
):
    file = bench.extension(f"@hookimpl\ndef {hook}({arguments(hook)}):\n    return {answer}")
    session = await bench.open()
    before = bench.file.read_bytes()
    with pytest.raises(ExtensionError, match="returned") as failure:
        await trigger(session, hook)
    assert failure.value.data["extension"] == str(file)
    assert str(file) in failure.value.message
    assert bench.file.read_bytes() == before
    [told] = bench.failures()
    assert (told["extension"], told["hook"]) == (str(file), hook)
    await still_works(bench, session)


RAISING = {
    "an error": "raise ValueError('no good')",
    "exit": "raise SystemExit(3)",
    "interrupt": "raise KeyboardInterrupt",
    "cancelled": "raise asyncio.CancelledError",
    "stop": "raise StopIteration",
    "unprintable": "class E(Exception):\n        def __str__(self): raise RuntimeError\n    raise E",
}


@pytest.mark.parametrize("how", RAISING)
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize("hook", BEFORE_HOOKS)
async def test_a_before_hook_that_raises_fails_the_operation(bench: Bench, hook: str, plain: bool, how: str):
    file = bench.extension(
        f"@hookimpl\n{'' if plain else 'async '}def {hook}({arguments(hook)}):\n    {RAISING[how]}"
    )
    session = await bench.open()
    before = bench.file.read_bytes()
    with pytest.raises(ExtensionError, match=r"ext\.py"):
        await trigger(session, hook)
    assert bench.file.read_bytes() == before
    assert [told["extension"] for told in bench.failures()] == [str(file)]
    if hook != "session_before_tree":
        [end] = bench.named("compaction_end")
        assert end["errorMessage"].startswith("Compaction failed: The extension ")
        assert end["aborted"] is False
    await still_works(bench, session)


@pytest.mark.parametrize("how", RAISING)
@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook not in BEFORE_HOOKS])
async def test_an_after_hook_that_raises_is_told_and_ignored(bench: Bench, hook: str, how: str):
    bench.extension(f"@hookimpl\nasync def {hook}({arguments(hook)}):\n    note(1)\n    {RAISING[how]}")
    session = await bench.open()
    await trigger(session, hook)
    await bench.until(bench.notes)
    if hook == "extension_error":  # being told of its own failure would have no end
        await session.extending.settle()
        assert len(bench.notes()) == 1
    else:
        told = await bench.until(lambda: bench.failures())
        assert told[0]["hook"] == hook
        assert "ext.py:" in told[0]["error"] or how == "cancelled"
    await still_works(bench, session)


HANGING = {
    "async": "await asyncio.Event().wait()",
    "stubborn": "await stubborn()",
    "blocking": "time.sleep(60)",
    "plain": "time.sleep(600)",
}
STUBBORN = """
async def stubborn():
    for _ in range(2):  # and goes in the end, for the sake of the test's own end
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            note("will not stop")
"""


@pytest.mark.parametrize("how", HANGING)
@pytest.mark.parametrize("hook", BEFORE_HOOKS)
async def test_a_before_hook_that_hangs_is_warned_about_and_ended_at_once_by_abort(
    bench: Bench, hook: str, how: str
):
    bench.extension(
        f"{STUBBORN if how == 'stubborn' else ''}\n@hookimpl\n{'' if how == 'plain' else 'async '}"
        f"def {hook}({arguments(hook)}):\n    note('in')\n    {HANGING[how]}"
    )
    session = await bench.open(patience=0.05)
    before = bench.file.read_bytes()
    work = asyncio.ensure_future(trigger(session, hook))
    [warning] = await bench.until(lambda: bench.failures())
    assert "abort" in warning["error"]
    assert not work.done()
    async with asyncio.timeout(2):
        assert await session.abort() is True
    if hook == "session_before_tree":
        assert (await work)["aborted"] is True
    else:
        with pytest.raises(Cancelled):
            await work
        [end] = bench.named("compaction_end")
        assert end["aborted"] is True
    assert bench.file.read_bytes() == before
    await still_works(bench, session)


@pytest.mark.parametrize("how", HANGING)
@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook not in BEFORE_HOOKS])
async def test_an_after_hook_that_hangs_is_given_up_on(bench: Bench, hook: str, how: str):
    bench.extension(
        f"{STUBBORN if how == 'stubborn' else ''}\n@hookimpl\n{'' if how == 'plain' else 'async '}"
        f"def {hook}({arguments(hook)}):\n    note('in')\n    {HANGING[how]}"
    )
    session = await bench.open(patience=0.05)
    async with asyncio.timeout(4):
        await trigger(session, hook)
    await bench.until(bench.notes)
    if hook != "extension_error":
        [told] = await bench.until(lambda: bench.failures())
        assert "not waited for any more" in told["error"]
    await still_works(bench, session)


@pytest.mark.parametrize("hook", ["session_before_compact", "session_before_tree"])
async def test_a_hook_that_cancels(bench: Bench, hook: str):
    bench.extension(
        f"@hookimpl\ndef {hook}({arguments(hook)}):\n    return {{'cancel': True}}\n"
        "@hookimpl\ndef session_compact_failed(reason, error_message, aborted):\n"
        "    note(reason, error_message, aborted)"
    )
    session = await bench.open()
    before = bench.file.read_bytes()
    if hook == "session_before_tree":
        answer = await trigger(session, hook)
        assert answer == {"cancelled": True, "leafId": "a2", "oldLeafId": "a2"}
    else:
        with pytest.raises(Cancelled, match=r"^Compaction cancelled$"):
            await trigger(session, hook)
        [end] = bench.named("compaction_end")
        assert (end["aborted"], "errorMessage" in end) == (True, False)
        assert bench.notes() == [["manual", None, True]]
    assert bench.file.read_bytes() == before
    assert not bench.failures()
    await still_works(bench, session)


def test_every_event_can_be_made_for_the_table() -> None:
    for name in EVENT_HOOKS:
        sample(name)


def test_two_long_turns_have_what_the_answers_name() -> None:
    assert {line.get("id") for line in sessions.two_long_turns(1)} >= {"u1", "a1", "u2", "a2"}
