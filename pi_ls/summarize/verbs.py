"""The public verbs: compact, summarize a branch, summarize messages; and what they give back."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from pi_ls.core.branch import BranchPreparation
from pi_ls.core.compaction import CompactionPreparation, CompactionResult
from pi_ls.core.errors import PiError
from pi_ls.core.extractive import extractive_summary, short_summary
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import Message, Usage
from pi_ls.core.options import BranchSummarySettings, CompactionSettings, RetrySettings
from pi_ls.core.transcript import FileOps, file_lists
from pi_ls.llm import CountText, Model
from pi_ls.models import OFFLINE
from pi_ls.prompts import BRANCH_PREAMBLE, BRANCH_SUMMARY, Prompts, file_tags, strip_file_tags
from pi_ls.remote import RemoteEndpoint
from pi_ls.summarize.candidates import Summarizers
from pi_ls.summarize.parts import HISTORY_SHARE, Part, history_part, parts_of
from pi_ls.summarize.run import OnRetry, Run

_NO_HISTORY = "No prior history."
_TURN_CONTEXT = "**Turn Context (split turn):**"
_GENERATOR = OFFLINE.ref
"""Stands in an entry's `details.generator` where no model made its summary."""


class GeneratedSummary(msgspec.Struct, frozen=True):
    """A summary and what making it used (None where no provider reported anything)."""

    text: str
    usage: Usage | None = None


class BranchSummaryResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a `branch_summary` entry is made of."""

    summary: str
    usage: Usage | None = None
    details: Any = None


async def compact(
    preparation: CompactionPreparation,
    summarizers: Summarizers | Model,
    prompts: Prompts | None = None,
    *,
    instructions: str | None = None,
    thinking_level: str = "off",
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    remote: RemoteEndpoint | None = None,
    prompt: str | None = None,
    additional_context: Sequence[str] = (),
    count_text: CountText | None = None,
) -> CompactionResult:
    """Summarizes what a preparation says is to be summarized. Appends nothing.

    Args:
        preparation: From `prepare_compaction`.
        summarizers: Who is asked, in order; a single model of your own will do.
        prompts: Where the prompts are read; the shipped ones by default.
        instructions: What the summary should look at in particular; goes into every request.
        thinking_level: pi's name of the level; used where the model reasons.
        retry: How failures in passing are retried.
        on_retry: Told before each wait, on the event loop.
        remote: Where every request goes instead of to a model.
        prompt: Replaces the summary prompt (not that of a turn's first part).
        additional_context: What else the summarizer should know, one item each.
        count_text: Counts tokens, to tell what fits a model's window; by default a quarter of the bytes.

    Returns:
        Everything of the entry but `estimated_tokens_after`, which needs the session.

    Raises:
        NoModel: there is no candidate, not even behind a remote endpoint.
        SummarizationFailed: the answer was empty, cut off or a tool call.
        ProviderError: the request failed, after the retries and with every candidate.
        NoCredentials: the only candidate has no key.
        InvalidSettings: a prompt file cannot be used.

    Cancelling the task closes the connection at once.
    """
    run = Run(
        summarizers,
        prompts or Prompts(),
        instructions=instructions,
        thinking_level=thinking_level,
        retry=retry,
        on_retry=on_retry,
        remote=remote,
        additional_context=additional_context,
        count_text=count_text,
    )
    history, prefix = parts_of(preparation, instructions, prompt)
    kept = strip_file_tags(preparation.previous_summary or "") or _NO_HISTORY
    if history and prefix:
        past, turn = await run.both(history, prefix)
    else:
        past = await run.summarize(history) if history else kept
        turn = await run.summarize(prefix) if prefix else None
    short = await _short(run, past, preparation)
    text = past if turn is None else f"{past}\n\n---\n\n{_TURN_CONTEXT}\n\n{turn}"
    return CompactionResult(
        summary=_with_files(text, preparation.file_ops, run.prompts),
        first_kept_entry_id=preparation.first_kept_entry_id,
        tokens_before=preparation.tokens_before,
        short_summary=short,
        usage=run.usage,
        details=_details(preparation.file_ops, run),
        preserve_data=preparation.previous_preserve_data,
    )


async def generate_branch_summary(
    preparation: BranchPreparation,
    summarizers: Summarizers | Model,
    prompts: Prompts | None = None,
    *,
    reserve_tokens: int = BranchSummarySettings().reserve_tokens,
    instructions: str | None = None,
    replace_instructions: bool = False,
    thinking_level: str = "off",
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    count_text: CountText | None = None,
) -> BranchSummaryResult | None:
    """Summarizes a branch that is being left, or gives None where there is nothing in it to summarize.

    Args:
        preparation: From `prepare_branch_entries`.
        reserve_tokens: What the answer's limit is taken from (`branchSummary.reserveTokens`).
        instructions: What the summary should look at in particular.
        replace_instructions: The instructions are the whole prompt, in place of `branch-summary.md`.

    The other arguments and the errors are those of `compact`.
    """
    if not preparation.messages:
        return None
    run = Run(
        summarizers,
        prompts or Prompts(),
        instructions=None if replace_instructions else instructions,
        thinking_level=thinking_level,
        retry=retry,
        on_retry=on_retry,
        count_text=count_text,
    )
    replacement = instructions if replace_instructions and instructions and instructions.strip() else None
    part = Part(
        first=BRANCH_SUMMARY,
        update=BRANCH_SUMMARY,
        messages=preparation.messages,
        prompt=replacement,
        share=HISTORY_SHARE,
        reserve=reserve_tokens,
        extract=lambda: extractive_summary(preparation.messages, None, instructions),
    )
    body = await run.summarize(part)
    text = f"{run.prompts.render(BRANCH_PREAMBLE)}\n\n{body}"
    return BranchSummaryResult(
        summary=_with_files(text, preparation.file_ops, run.prompts),
        usage=run.usage,
        details=_details(preparation.file_ops, run),
    )


async def generate_summary_with_usage(
    messages: Sequence[Message],
    summarizers: Summarizers | Model,
    prompts: Prompts | None = None,
    *,
    previous_summary: str | None = None,
    reserve_tokens: int = CompactionSettings().reserve_tokens,
    instructions: str | None = None,
    thinking_level: str = "off",
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    count_text: CountText | None = None,
) -> GeneratedSummary:
    """Summarizes messages of any role, on top of an earlier summary if there is one.

    The arguments and errors are those of `compact`; the answer's limit is taken from `reserve_tokens`.
    """
    run = Run(
        summarizers,
        prompts or Prompts(),
        instructions=instructions,
        thinking_level=thinking_level,
        retry=retry,
        on_retry=on_retry,
        count_text=count_text,
    )
    text = await run.summarize(history_part(tuple(messages), previous_summary, reserve_tokens, instructions))
    return GeneratedSummary(text, run.usage)


async def generate_summary(
    messages: Sequence[Message],
    summarizers: Summarizers | Model,
    prompts: Prompts | None = None,
    **options: Any,
) -> str:
    """The text alone of `generate_summary_with_usage`, which has the options."""
    return (await generate_summary_with_usage(messages, summarizers, prompts, **options)).text


def summary_prompts(
    preparation: CompactionPreparation, prompts: Prompts, *, instructions: str | None = None
) -> list[tuple[str, str]]:
    """The requests a compaction would make, each as the name of its prompt and its whole text.

    No model is needed: where a window calls for several passes over one part, they are shown as one.
    """
    run = Run(Summarizers(()), prompts, instructions=instructions)
    parts = [part for part in parts_of(preparation, instructions) if part]
    return [(part.name, run.whole_prompt(part)) for part in parts]


def _with_files(text: str, ops: FileOps, prompts: Prompts) -> str:
    lists = file_lists(ops)
    tags = file_tags(prompts, lists.read_files, lists.modified_files)
    return f"{text}\n\n{tags}" if tags else text


def _details(ops: FileOps, run: Run) -> Json:
    lists = file_lists(ops)
    details: Json = {"readFiles": list(lists.read_files), "modifiedFiles": list(lists.modified_files)}
    return details | ({"generator": _GENERATOR} if run.without_model else {})


async def _short(run: Run, past: str, preparation: CompactionPreparation) -> str | None:
    """The line for a list of compactions: taken from the summary, or asked for where the settings say so."""
    if preparation.settings.short_summary and not run.without_model:
        with contextlib.suppress(PiError):
            asked = await run.short_summary(past, preparation.settings.reserve_tokens)
            if asked:
                return asked
    return short_summary(past)
