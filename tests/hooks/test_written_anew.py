"""A session is written anew while an operation takes its time: nothing is added to what is no more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pi_ls.core.errors import EntryNotFound, NothingToCompact, SessionUnreadable, WriteFailed
from tests import sessions
from tests.hooks.conftest import Bench

WAITING = """
from pathlib import Path
GO = Path({go!r})

@hookimpl
async def {hook}(preparation):
    note("in")
    while not GO.exists():
        await asyncio.sleep(0.01)
    return {answer}
"""
COMPACTION = '{"compaction": {"summary": "MINE", "firstKeptEntryId": "u2"}}'


def wait_in(bench: Bench, hook: str, answer: str) -> Path:
    go = bench.folder / "go"
    bench.extension(WAITING.format(go=str(go), hook=hook, answer=answer))
    return go


def write_anew(bench: Bench) -> bytes:
    """The session as somebody else wants it: the first turn, and another second one."""
    lines = [*bench.written()[:3], sessions.user("n1", "a1", "new")]
    sessions.write(bench.file.with_suffix(".new"), lines).rename(bench.file)
    return bench.file.read_bytes()


async def test_a_compaction_whose_kept_part_is_gone_is_not_stored(bench: Bench):
    go = wait_in(bench, "session_before_compact", COMPACTION)
    session = await bench.open()
    work = asyncio.ensure_future(session.compact())
    await bench.until(bench.notes)
    anew = write_anew(bench)
    go.touch()
    with pytest.raises(WriteFailed, match="entry u2 is not on its path"):
        await work
    assert bench.file.read_bytes() == anew
    [end] = bench.named("compaction_end")
    assert end["errorMessage"].startswith("Compaction failed: Another program")
    assert session.tree.leaf_id == "n1"


async def test_a_compaction_whose_kept_part_is_still_there_is_stored(bench: Bench):
    go = wait_in(bench, "session_before_compact", COMPACTION)
    session = await bench.open()
    work = asyncio.ensure_future(session.compact())
    await bench.until(bench.notes)
    lines = [*bench.written(), sessions.user("u3", "a2", "more")]
    sessions.write(bench.file.with_suffix(".new"), lines).rename(bench.file)
    go.touch()
    await work
    assert [line.get("summary") for line in bench.written()][-1] == "MINE"


@pytest.mark.parametrize("target", ["a2", "u2"])
async def test_nobody_goes_where_nothing_is_any_more(bench: Bench, target: str):
    go = wait_in(bench, "session_before_tree", '{"summary": {"summary": "MINE"}}')
    session = await bench.open([*sessions.two_long_turns(1), sessions.user("x", "a2", "on")])
    work = asyncio.ensure_future(session.navigate_tree(target, summarize=True))
    await bench.until(bench.notes)
    anew = write_anew(bench)
    await session.look()
    go.touch()
    with pytest.raises(EntryNotFound):
        await work
    assert bench.file.read_bytes() == anew
    assert (session.tree.leaf_id, session.operation) == ("n1", None)


async def test_a_summary_is_not_hung_on_what_is_gone(bench: Bench):
    session = await bench.open()
    anew = write_anew(bench)
    with pytest.raises(WriteFailed, match="entry a2 is not"):
        await session.append({"type": "branch_summary", "fromId": "a2", "summary": "S"}, under="a2")
    assert bench.file.read_bytes() == anew
    with pytest.raises(EntryNotFound):
        await session.move("a2")


async def test_what_can_be_read_no_more_is_a_refusal(bench: Bench):
    session = await bench.open()
    rubbish = bytes(len(bench.file.read_bytes()))
    bench.file.write_bytes(rubbish)
    with pytest.raises((NothingToCompact, SessionUnreadable)):
        await session.compact()
    assert bench.file.read_bytes() == rubbish


async def test_an_entry_hangs_on_what_another_program_has_just_added(bench: Bench):
    session = await bench.open()
    with bench.file.open("ab") as stream:
        stream.write(sessions.encode([sessions.user("x1", "a2", "foreign")]))
    entry = await session.append({"type": "session_info", "name": "mine"})
    assert entry.parent_id == "x1"
    assert [line["id"] for line in bench.written()[-2:]] == ["x1", entry.id]
