"""A run of three hundred turns in a small window: what it compacts, what it asks for, what it costs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pi_ls.core.compaction import prepare_compaction
from pi_ls.core.options import CompactionSettings
from pi_ls.store import load_session
from tests.e2e.colleague import Model, call, calls, measured, says
from tests.e2e.conftest import Home, Start
from tests.e2e.raw import Json
from tests.provider import Provider, Received, Reply

TURNS = 300
WINDOW = 32_768
RESERVE, KEEP = 6_000, 4_000
OUTPUT = 4_000
"""Characters of each tool result: a thousand tokens."""
TIMEOUT_S = 240


def size(request: Received) -> int:
    """Tokens of a request as this provider measures them: four characters each, of everything."""
    return len(msgspec.json.encode([request.body["messages"], request.body.get("tools")])) // 4


@pytest.fixture
async def model(home: Home) -> AsyncIterator[Model]:
    async with Provider() as provider:
        home.use(provider, small={"contextWindow": WINDOW, "maxTokens": 4_096})
        yield Model(provider)


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(TIMEOUT_S + 60)
async def test_three_hundred_turns_in_a_small_window(home: Home, start: Start, model: Model):
    measured_sizes: list[int] = []
    memory: list[int] = []
    server = await start()

    def answer(request: Received) -> Reply:
        """Call a tool in every turn but the last; tell what the request measured."""
        measured_sizes.append(size(request))
        turn = len(measured_sizes)
        if turn % 50 == 0:
            memory.append(memory_of(server.process.pid))
        total = measured_sizes[-1] + 10
        if turn == TURNS:
            return says("done", total=total)
        command = f"head -c {OUTPUT} /dev/zero | tr '\\0' {'abcdefghij'[turn % 10]}"
        return calls(call("bash", f"call_{turn}", command=command), total=total, text=f"step {turn}")

    model.decide = answer
    model.default_summary = Reply(text="## Goal\nReach the last turn.", usage=measured(2_000))
    compaction = {"reserveTokens": RESERVE, "keepRecentTokens": KEEP, "autoContinue": False}
    settings = {"approval": {"bash": "allow"}, "compaction": compaction}
    await server.initialize(home.params(trusted=True, model="fake/small", settings=settings))
    await server.result("pi.prompt", {"text": "go"})
    await server.until(lambda: bool(server.named("pi/agent_settled")), TIMEOUT_S)

    assert len(measured_sizes) == TURNS
    assert model.faults == []
    assert [end.get("errorMessage") for end in server.named("pi/agent_end")] == [None]
    file = next(home.sessions().glob("*.jsonl"))
    compacted_where_it_should(file, model)
    sent_no_more_than_fits(measured_sizes)
    assert max(memory[2:]) - memory[1] < 30_000_000, memory
    state: Json = await server.result("pi.sessionState")
    assert "operation" not in state
    assert state["pendingMessageCount"] == 0


def sent_no_more_than_fits(sizes: list[int]) -> None:
    """No request was longer than the threshold and the results of one turn."""
    assert max(sizes) < WINDOW - RESERVE + OUTPUT // 4 + 200


def compacted_where_it_should(file: Path, model: Model) -> None:
    """Read the file again and work out where a compaction was due, and of how many requests."""
    session = load_session(file)
    settings = CompactionSettings(reserve_tokens=RESERVE, keep_recent_tokens=KEEP)
    path = list(session.tree.path())
    used, summaries, compactions, since = 0.0, 0, 0, 0
    for at, entry in enumerate(path):
        following: Any = path[at + 1] if at + 1 < len(path) else None
        if entry.type == "compaction":
            compactions += 1
            assert since > 0, "two compactions without an answer between them"
            used, since = 0.0, 0
        elif entry.role == "assistant":
            message: Any = entry.message
            used, since = message.usage.total_tokens, since + 1
        elif entry.role == "toolResult" and used:
            over = used + -(-OUTPUT // 4) > WINDOW - RESERVE
            assert over == (following.type == "compaction"), entry.id
            if over:
                prepared: Any = prepare_compaction(path[: at + 1], settings)
                assert prepared.first_kept_entry_id == following.data["firstKeptEntryId"]
                parts = (prepared.messages_to_summarize, prepared.turn_prefix_messages)
                summaries += sum(map(bool, parts))
    assert compactions > 5
    assert model.order.count("summary") == summaries
