"""What an operation of a session goes by, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pi_ls.core.jsonvalues import Json
from pi_ls.session import AgentSession
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
