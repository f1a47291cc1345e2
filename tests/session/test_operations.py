"""What an operation of a session goes by, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from pi_ls.core.entries import Entry
from pi_ls.core.events import name_of
from pi_ls.core.jsonvalues import Json
from pi_ls.session import AgentSession
from pi_ls.session.agent_session import Operation
from pi_ls.store.places import make_lock
from tests import sessions
from tests.session.conftest import Place


def compact(session: AgentSession) -> Awaitable[Json]:
    return session.compact()


def leave_with_a_summary(session: AgentSession) -> Awaitable[Json]:
    return session.navigate_tree("a1", summarize=True)


@pytest.mark.parametrize("operation", [compact, leave_with_a_summary])
async def test_model_and_thinking_level_are_those_of_its_beginning(
    place: Place, operation: Callable[[AgentSession], Awaitable[Json]]
):
    last = [
        sessions.model_change("k1", "a2", "fake", "thinker"),
        sessions.thinking_level("t1", "k1", "low"),
    ]
    file = sessions.write(place.folder / "s.jsonl", [*sessions.two_long_turns(120_000), *last])
    session = await place.open(file)
    work = asyncio.ensure_future(operation(session))
    while session.operation is None:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # its first step
    session.model, session.thinking_level = session.environment.catalogue.find("fake", "m200"), "high"
    await work
    [request] = place.provider.requests
    assert (request.body["model"], request.body["reasoning_effort"]) == ("thinker", "low")
    await session.close()


async def abort(session: AgentSession) -> None:
    assert await session.abort() is False


async def close(session: AgentSession) -> None:
    await session.close()


@pytest.mark.parametrize("end", [abort, close])
async def test_what_is_being_written_already_is_waited_for(
    place: Place, end: Callable[[AgentSession], Coroutine[Any, Any, None]]
):
    file = sessions.write(place.folder / "s.jsonl", sessions.two_long_turns(120_000))
    session = await place.open(file)
    at_it, go_on = asyncio.Event(), asyncio.Event()

    async def write(operation: Operation) -> Entry:
        operation.committed = True
        at_it.set()
        await go_on.wait()
        return await session.append({"type": "custom", "customType": "t"}, required=True)

    writing = asyncio.create_task(session.operate("compaction", write))
    await at_it.wait()
    ending = asyncio.create_task(end(session))
    await asyncio.wait([ending], timeout=0.1)
    assert not ending.done()
    go_on.set()
    entry = await writing
    await ending
    assert sessions.read(file)[-1]["id"] == entry.id
    assert session.operation is None
    await session.close()
    told = [name_of(event) for event in place.events]
    assert [name for name in told if name in ("entry_appended", "session_closed")] == [
        "entry_appended",
        "session_closed",
    ]


async def test_a_session_another_program_holds_is_closed_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pi_ls.store.file.LOCK_SECONDS", 0.05)
    file = sessions.write(place.folder / "s.jsonl", sessions.fork_with_two_branches())
    session = await place.open(file)
    before = file.read_bytes()
    await session.navigate_tree("Ff")
    with make_lock(file):
        await session.close()
    assert name_of(place.events[-1]) == "session_closed"
    assert file.read_bytes() == before
