"""From a preparation to a summary: what is asked, how often, of whom, and what is taken for an answer."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pi_ls.core.branch import BranchPreparation, prepare_branch_entries
from pi_ls.core.compaction import CompactionPreparation, CompactionResult, prepare_compaction
from pi_ls.core.context import message_of
from pi_ls.core.entries import Entry
from pi_ls.core.errors import (
    ContextOverflow,
    InvalidSettings,
    NoCredentials,
    NoModel,
    PiError,
    ProviderError,
    SummarizationFailed,
)
from pi_ls.core.events import SummarizationRetryScheduled
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import Usage, UserMessage
from pi_ls.core.options import CompactionSettings, RetrySettings
from pi_ls.core.tokens import TokenCounter
from pi_ls.llm import Completion, Model, Request
from pi_ls.prompts import BRANCH_CONTEXT, SUMMARY_CONTEXT, SYSTEM, Prompts, strip_file_tags
from pi_ls.remote import RemoteEndpoint
from pi_ls.summarize import (
    Candidate,
    Extractive,
    Summarizers,
    compact,
    convert_to_llm,
    generate_branch_summary,
    generate_summary,
    generate_summary_with_usage,
    output_limit,
    summary_prompts,
)
from tests import sessions as lines
from tests.conformance_data import OLD_VERSIONS, Session, same_text
from tests.conformance_data import sessions as recorded_sessions
from tests.models import (
    KEY,
    ScriptedModel,
    anthropic_model,
    conversation,
    openai_model,
    previous_summary,
)
from tests.provider import Call, Provider, Reply, error

FAST = RetrySettings(base_delay_ms=1, max_agent_delay_ms=1_000)
NEVER = RetrySettings(enabled=False)
"""So that a scripted answer is not asked for twice."""


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as running:
        yield running


def path(*objects: Json) -> list[Entry]:
    return [Entry.of(one) for one in objects if one["type"] != "session"]


def prepared(*objects: Json, **settings: Any) -> CompactionPreparation:
    chosen = CompactionSettings(**({"calibrate": False} | settings))
    preparation = prepare_compaction(path(*objects), chosen, TokenCounter())
    assert isinstance(preparation, CompactionPreparation)
    return preparation


def short_history(**settings: Any) -> CompactionPreparation:
    """One turn to summarise, one to keep."""
    return prepared(
        lines.user("u1", None, "Make the door blue"),
        lines.assistant("a1", "u1", "It is blue", total=40),
        lines.user("u2", "a1", "thanks"),
        lines.assistant("a2", "u2", "welcome", total=60),
        **({"keep_recent_tokens": 2} | settings),
    )


def split_turn(**settings: Any) -> CompactionPreparation:
    """A turn to summarise, and one so long that it is cut in the middle."""
    return prepared(
        lines.user("u0", None, "First things first"),
        lines.assistant("a0", "u0", "done", total=10),
        *long_turn("a0"),
        **({"keep_recent_tokens": 4_000} | settings),
    )


def long_turn(parent: str | None) -> list[Json]:
    turn, last = [lines.user("u1", parent, "do it")], "u1"
    for number in range(20):
        step = lines.assistant(
            f"s{number}", last, "step", stop="toolUse", calls=[lines.call(f"c{number}", "bash", command="x")]
        )
        turn += [step, lines.result(f"r{number}", f"s{number}", f"c{number}", lines.filler(8_000))]
        last = f"r{number}"
    return [*turn, lines.assistant("z", last, "done", total=60_000)]


async def failing(
    preparation: CompactionPreparation, summarizers: Summarizers | Model, **options: Any
) -> PiError:
    with pytest.raises(PiError) as caught:
        await compact(preparation, summarizers, **({"retry": NEVER} | options))
    return caught.value


# --- recorded runs --------------------------------------------------------------------------------------------

REPLY_USAGES = (
    Usage(input=100, output=10, cache_read=1, total_tokens=111),
    Usage(input=200, output=20, cache_read=2, total_tokens=222),
)


MORE_FILES = ("branch-summaries-nested", "fuzz-03", "fuzz-18")
"""Sessions with another summary in the range, whose files the recorded program drops."""


def as_recorded(text: str) -> str:
    """A conversation with the words around its summaries replaced by what the recordings have there."""
    for name, mark in ((SUMMARY_CONTEXT, "{{COMPACTION_PREFIX}}"), (BRANCH_CONTEXT, "{{BRANCH_PREFIX}}")):
        before, after = Prompts().render(name, summary="\0").split("\0")
        text = text.replace(before, mark).replace(after, "{{SUMMARY_SUFFIX}}")
    return text


def recorded_runs() -> list[Any]:
    return [
        pytest.param(one, leaf, run, id=f"{one.name}-{leaf['leaf']}-{number}")
        for one in recorded_sessions()
        for leaf in one.leaves
        for number, run in enumerate(leaf.get("compactRuns", []))
        if one.expected.get("idScheme") != "index" and one.name not in OLD_VERSIONS
    ]


@pytest.mark.parametrize(("one", "leaf", "run"), recorded_runs())
async def test_runs_are_as_recorded(one: Session, leaf: Json, run: Json) -> None:
    entries = {entry.id: entry for entry in one.entries()}
    chain, at = [], leaf["leaf"]
    while at in entries:
        chain.append(entries[at])
        at = entries[at].parent_id
    settings = CompactionSettings(
        keep_recent_tokens=run["keep"], reserve_tokens=run["reserveTokens"], calibrate=False
    )
    preparation = prepare_compaction(chain[::-1], settings, TokenCounter())
    assert isinstance(preparation, CompactionPreparation)
    assert preparation.first_kept_entry_id == run["firstKept"]
    if message_of(entries[run["firstKept"]]) is None:
        return  # the recorded program takes a turn for split there
    replies = [
        Completion(text=text, usage=usage) for text, usage in zip(run["replies"], REPLY_USAGES, strict=True)
    ]
    model = ScriptedModel(*replies, max_tokens=run["modelMaxTokens"])

    result = await compact(preparation, model, instructions=run["customInstructions"])

    assert len(model.requests) == len(run["calls"])
    for request, expected in zip(model.requests, run["calls"], strict=True):
        assert request.max_tokens == expected["maxTokens"]
        assert ("check the focus" in request.prompt) is (run["customInstructions"] is not None)
        assert (previous_summary(request.prompt) or None) == expected["previousSummary"]
        if one.name != "serialize-truncation":  # there the recording has a pair of surrogates cut in two
            assert same_text(as_recorded(conversation(request.prompt)), expected["conversation"])
    if one.name in MORE_FILES:
        assert strip_file_tags(result.summary) == strip_file_tags(run["summary"])
        assert all(set(files) <= set(result.details[kind]) for kind, files in run["details"].items())
    else:
        assert same_text(result.summary, run["summary"])
        assert result.details == run["details"]
    used = result.usage
    assert used
    assert run["usage"] == {
        "input": used.input,
        "output": used.output,
        "cacheRead": used.cache_read,
        "cacheWrite": used.cache_write,
        "totalTokens": used.total_tokens,
    }
