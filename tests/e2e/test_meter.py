"""The context meter and the totals as an editor gets them, over sessions of every awkward kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import sessions
from tests.e2e.conftest import Home, starting
from tests.e2e.office import Desk
from tests.e2e.raw import Json
from tests.provider import CACHED, UNTOTALLED, WRITTEN, Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")


def one_turn(total: float = 50_000, **more: Any) -> list[Json]:
    return [
        sessions.header(),
        sessions.user("u1", None, "a"),
        sessions.assistant("a1", "u1", "x", total=total, **more),
    ]


def window_and_percent(usage: Json) -> tuple[Any, Any]:
    return usage["contextWindow"], usage["percent"]


# -- what a compaction does to it


async def test_an_answer_from_before_the_compaction_says_nothing_about_the_context_after_it(desk: Desk):
    await desk.open(
        [
            sessions.header(),
            sessions.user("u1", None, sessions.filler(400_000)),
            sessions.assistant("a1", "u1", "x", total=190_000),
            sessions.compaction("c1", "a1", "S", "a1", before=190_000),
        ]
    )
    usage = await desk.usage()
    assert (usage["tokens"], usage["percent"], usage["contextWindow"]) == (None, None, 200_000)
    assert usage["estimatedTokens"] < 100
    assert usage["source"] == "estimate"


async def test_the_meter_is_unknown_from_the_end_of_a_compaction_on(desk: Desk):
    await desk.open(sessions.two_long_turns(120_000))
    assert (await desk.usage())["percent"] == 60
    result = await desk.run("pi.compact")
    pushed = await desk.until_told("context_usage", tokens=None)
    assert (pushed["percent"], pushed["contextWindow"]) == (None, 200_000)
    assert pushed["estimatedTokens"] == result["estimatedTokensAfter"]
    assert (await desk.usage())["tokens"] is None
    assert [usage["percent"] for usage in desk.named("context_usage")] == [60, None]


async def test_undoing_a_compaction_brings_the_old_value_back(desk: Desk):
    await desk.open(sessions.two_long_turns(120_000))
    await desk.run("pi.compact")
    assert await desk.run("pi.undoCompaction") | {"oldLeafId": ""} == {
        "leafId": "a2",
        "oldLeafId": "",
        "entriesLeft": 0,
    }
    assert (await desk.usage())["percent"] == 60


async def test_a_usage_from_before_an_edit_of_the_context_is_not_trusted(desk: Desk):
    edit = sessions.entry("context_edit", "e1", "a2", targetId="u1", replacement=None)
    await desk.open([*sessions.two_long_turns(120_000), edit])
    usage = await desk.usage()
    assert usage["source"] == "estimate"
    assert 49_000 < usage["tokens"] < 51_000, "only the second long message is left"


# -- answers without a usable usage


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"usage": None}, id="null"),
        pytest.param({"usage": {}}, id="empty"),
        pytest.param({"usage": sessions.usage(0)}, id="zeros"),
        pytest.param({"usage": {"input": None, "output": 5}}, id="a null in it"),
        pytest.param({"usage": {"input": "12", "output": 1}}, id="a text in it"),
        pytest.param({"usage": sessions.usage(-5)}, id="negative"),
        pytest.param({"stopReason": "error"}, id="of a failed answer"),
        pytest.param({"stopReason": "aborted"}, id="of an aborted answer"),
        pytest.param("without", id="absent"),
    ],
)
async def test_without_a_usable_usage_the_last_good_one_counts(desk: Desk, change: Any):
    last = sessions.assistant("a2", "u2", "y", total=60_000)
    if change == "without":
        del last["message"]["usage"]
    else:
        last["message"] |= change
    await desk.open([*one_turn(), sessions.user("u2", "a1", "b"), last])
    usage = await desk.usage()
    assert 50_000 <= usage["tokens"] <= 50_100
    assert 25 <= usage["percent"] <= 25.05
    assert usage["source"] == "measured+estimate"


async def test_where_no_answer_tells_its_usage_the_size_is_estimated(desk: Desk):
    long = sessions.filler(400_000)
    lines = [sessions.header(), sessions.model_change("k1", None, "fake", "m200")]
    for at in range(3):
        parent = f"a{at - 1}" if at else "k1"
        lines += [sessions.user(f"u{at}", parent, long), sessions.assistant(f"a{at}", f"u{at}", "x")]
    await desk.open(lines)
    usage = await desk.usage()
    assert usage["source"] == "estimate"
    assert 200_000 < usage["tokens"] < 600_000
    assert usage["percent"] == pytest.approx(usage["tokens"] / 2_000)


@pytest.mark.parametrize("place", ["message", "result"])
async def test_a_picture_has_one_price_whatever_its_size_and_place(desk: Desk, place: str):
    def session(*sizes: int) -> list[Json]:
        lines, last = [sessions.header(), sessions.model_change("k1", None, "fake", "m200")], "k1"
        for at, size in enumerate(sizes):
            content = [
                {"type": "text", "text": "see!"},
                {"type": "image", "data": "A" * size, "mimeType": "image/png"},
            ]
            if place == "message":
                lines.append(sessions.user(f"u{at}", last, content))
            else:
                lines.append(
                    sessions.assistant(f"a{at}", last, "", sessions.call(f"c{at}", "read", path="x"))
                )
                lines.append(sessions.result(f"u{at}", f"a{at}", f"c{at}", "see!", name="read"))
                lines[-1]["message"]["content"] = content
            last = f"u{at}"
        return lines

    async def tokens(*sizes: int) -> float:
        await desk.open(session(*sizes))
        usage = await desk.usage()
        await desk.run("pi.closeSession")
        return usage["tokens"]

    large, small, two = await tokens(4_000_000), await tokens(4_000), await tokens(4_000, 4_000)
    assert large == small
    assert 500 < small < 6_000
    assert two == 2 * small
    assert desk.events("compaction_start") == []


# -- windows


@pytest.mark.parametrize(
    "model",
    ["window-absent", "window-null", "window-0", "window-negative", "window-text", "never-heard-of"],
)
async def test_without_a_usable_window_there_is_no_meter_and_one_hint(desk: Desk, model: str):
    await desk.open(one_turn(model=model))
    assert await desk.usage() == {}
    hint = await desk.until_told("session_problem", kind="windowUnknown")
    assert f"fake/{model}" in hint["message"]
    assert "contextWindow" in hint["message"]
    assert "models.json" in hint["message"]
    await desk.run("pi.setLabel", entryId="u1", label="something changes")
    assert await desk.usage() == {}
    assert len(desk.named("session_problem")) == 1
    assert desk.events("compaction_start") == []
    assert all("percent" not in usage for usage in desk.named("context_usage"))


async def test_a_window_that_is_no_number_is_unknown(tmp_path: Path):
    home = Home(tmp_path)
    model = '{"id": "m200", "contextWindow": NaN}'
    entry = f'{{"baseUrl": "http://127.0.0.1:1", "api": "openai-completions", "models": [{model}]}}'
    (home.agent_dir / "models.json").write_text(f'{{"providers": {{"fake": {entry}}}}}')
    header, *turn = one_turn()
    home.add([header | {"cwd": str(home.folder)}, *turn])
    async with starting(home) as start:
        server = await start()
        await server.initialize(home.params())
        assert await server.result("pi.contextUsage") == {}
        assert (await server.result("pi.sessionState"))["leafId"] == "a1"


async def test_a_reserve_that_is_not_below_the_window_is_told_once_and_half_is_used(desk: Desk):
    await desk.open(one_turn(150, model="m8"))
    problem = await desk.until_told("session_problem", kind="reserveTooLarge")
    assert "16384" in problem["message"]
    assert "8192" in problem["message"]
    assert (await desk.usage())["thresholdTokens"] == 4_096
    await desk.run("pi.setLabel", entryId="u1", label="something changes")
    await desk.usage()
    assert [one["kind"] for one in desk.named("session_problem")] == ["reserveTooLarge", "keepTooLarge"]


async def test_after_a_switch_to_a_smaller_model_the_new_window_counts(desk: Desk):
    await desk.open(sessions.grown_in_a_large_window())
    assert window_and_percent(await desk.usage()) == (1_000_000, 60)
    await desk.run("pi.setModel", provider="fake", modelId="m200")
    assert window_and_percent(await desk.usage()) == (200_000, 300)
    pushed = await desk.until_told("context_usage", contextWindow=200_000)
    assert pushed["percent"] == 300
    assert len(desk.named("context_usage")) == 2


async def test_the_window_is_that_of_exactly_this_provider_and_model(desk: Desk):
    foo = sessions.model_change("k1", None, "fakeB", "foo-6")
    turn = [
        sessions.user("u1", "k1", "a"),
        sessions.assistant("a1", "u1", "x", total=300_000, provider="fakeB", model="foo-6"),
    ]
    await desk.open([sessions.header(), foo, *turn])
    assert window_and_percent(await desk.usage()) == (1_000_000, 30)
    await desk.run("pi.setModel", provider="fakeA", modelId="foo-6")
    assert window_and_percent(await desk.usage()) == (200_000, 150)
    await desk.run("pi.setModel", provider="fakeB", modelId="foo-6[1m]")
    assert window_and_percent(await desk.usage()) == (1_000_000, 30)
    assert desk.events("compaction_start") == []


# -- usage and cost


@pytest.mark.parametrize(
    ("reported", "stored"),
    [
        pytest.param(CACHED, [1_000, 500, 90_000, 0, 91_500], id="read"),
        pytest.param(UNTOTALLED, [1_000, 500, 90_000, 0, 91_500], id="without a total"),
        pytest.param(WRITTEN, [1_000, 500, 90_000, 1_000, 92_500], id="read and written"),
    ],
)
async def test_cached_tokens_are_counted_once(desk: Desk, reported: Json, stored: list[int]):
    desk.provider.default = Reply(text="S", usage=reported)
    await desk.open(sessions.two_long_turns(120_000))
    before = (await desk.run("pi.sessionStats"))["tokens"]
    await desk.run("pi.compact")
    usage = desk.written()[-1]["usage"]
    assert [usage[key] for key in ("input", "output", "cacheRead", "cacheWrite", "totalTokens")] == stored
    after = (await desk.run("pi.sessionStats"))["tokens"]
    grown = [after[key] - before[key] for key in ("input", "output", "cacheRead", "cacheWrite", "total")]
    assert grown == stored


async def test_cost_and_tokens_of_the_whole_session_only_grow(desk: Desk):
    lines = sessions.two_long_turns(120_000)
    lines[2] = sessions.assistant("a1", "u1", "x", total=60_000, cost=0.5, model="priced")
    lines[4] = sessions.assistant("a2", "u2", "y", total=120_000, cost=0.6, model="priced")
    aside = sessions.assistant("x1", "a1", "left", total=70_000, cost=0.4, model="priced")
    await desk.open([*lines[:3], aside, *lines[3:]])
    before = await desk.run("pi.sessionStats")
    assert before["cost"] == pytest.approx(1.5), "what was left behind was paid for too"
    await desk.run("pi.compact")
    assert desk.written()[-1]["usage"]["cost"]["total"] == pytest.approx(0.1)
    after = await desk.run("pi.sessionStats")
    assert after["cost"] == pytest.approx(1.6)
    assert after["tokens"]["total"] == before["tokens"]["total"] + 100
    assert (await desk.usage())["cost"] == pytest.approx(1.6)

    async with starting(desk.office.home) as start:
        fresh = await start()
        await fresh.initialize({}, initializationOptions={"autoOpen": "none"})
        await fresh.result("pi.openSession", {"path": str(desk.file)})
        again = await fresh.result("pi.sessionStats")
    assert (again["cost"], again["tokens"]) == (after["cost"], after["tokens"])
    assert again["assistantMessages"] == 3
