"""Compaction: one sequence whoever asked for it, and the preview of what it would do.

Start, preparation, summary, entry on disk, new context, end: every start has exactly one end, because both
come from one context manager. Source: seed 001 (`compact`, `_runAutoCompaction`), seeds 000 and 002.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from pi_ls.core.compaction import CompactionPreparation, CompactionResult, Refusal, prepare_compaction
from pi_ls.core.context import build_session_context
from pi_ls.core.entries import Entry
from pi_ls.core.errors import AlreadyCompacted, Cancelled, NoCredentials, NoModel, NothingToCompact, PiError
from pi_ls.core.events import CompactionEnd, CompactionReason, CompactionStart, SessionCompactFailed
from pi_ls.core.extractive import extractive_summary
from pi_ls.core.jsonvalues import Json
from pi_ls.core.options import CompactionSettings
from pi_ls.core.transcript import file_lists
from pi_ls.core.triggers import Due
from pi_ls.remote import RemoteEndpoint
from pi_ls.session.tasks import to_its_end
from pi_ls.session.terms import Terms, on_retry, summarizers
from pi_ls.summarize import compact as make_summary
from pi_ls.summarize import summary_prompts

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession, Operation, Progress

FAILURE_PREFIX: dict[CompactionReason, str] = {
    "manual": "Compaction failed: ",
    "threshold": "Auto-compaction failed: ",
    "overflow": "Context overflow recovery failed: ",
}


class Outcome:
    """A compaction that has been announced, and what it came to; `result` is set by success."""

    def __init__(self, reason: CompactionReason, will_retry: bool) -> None:
        self.reason: CompactionReason = reason
        self.will_retry = will_retry
        self.result: Json | None = None
        self.from_extension = False


@contextmanager
def announced(
    session: AgentSession, reason: CompactionReason, will_retry: bool = False
) -> Generator[Outcome]:
    """Tell that a compaction begins, and whatever happens inside, tell once how it ended."""
    outcome = Outcome(reason, will_retry)
    session.emit(CompactionStart(reason=reason))
    try:
        yield outcome
    except Cancelled:
        _failed(session, reason, outcome, will_retry, None)
        raise
    except PiError as error:
        _failed(session, reason, outcome, will_retry, FAILURE_PREFIX[reason] + error.message)
        raise
    except asyncio.CancelledError:
        _failed(session, reason, outcome, will_retry, None)
        raise
    except BaseException as error:
        # A fault of ours: the editor must still see the end, and the cause goes up to the log.
        _failed(session, reason, outcome, will_retry, f"{FAILURE_PREFIX[reason]}{type(error).__name__}")
        raise
    session.emit(
        CompactionEnd(
            reason=reason, aborted=False, will_retry=will_retry, result=outcome.result or msgspec.UNSET
        )
    )


def _failed(
    session: AgentSession, reason: CompactionReason, outcome: Outcome, will_retry: bool, sentence: str | None
) -> None:
    """Tell the end of a compaction that failed, or (no sentence) was aborted."""
    message = sentence if sentence is not None else msgspec.UNSET
    aborted = sentence is None
    session.emit(CompactionEnd(reason=reason, aborted=aborted, will_retry=False, error_message=message))
    session.emit(
        SessionCompactFailed(
            reason=reason,
            aborted=aborted,
            will_retry=will_retry,
            from_extension=outcome.from_extension,
            error_message=message,
        )
    )


async def compact(
    session: AgentSession, operation: Operation, instructions: str | None, progress: Progress | None
) -> Json:
    """Compact because a person wants it; the protocol's CompactionResult.

    Model, settings and path are those of this moment, whatever is changed while it runs. Raises NoModel,
    InvalidSettings, SessionReadOnly, AlreadyCompacted, NothingToCompact, whatever the summary may raise, and
    WriteFailed; nothing was written then.
    """
    try:
        with announced(session, "manual") as outcome:
            terms, preparation = await _prepare(session)
            outcome.result = await _carry_out(
                session, operation, outcome, terms, preparation, instructions, progress
            )
    finally:
        await session.extending.settle()
    session.agent.resume()
    return outcome.result


async def compact_automatically(session: AgentSession, operation: Operation, due: Due) -> bool:
    """Compact because the context is too large; whether it was done.

    Where it could not even begin (nothing to compact, no model or no key for it) nothing is told. Raises what
    `compact` raises for a summary that failed. Stopped by itself, not with its run, it just was not done.
    """
    try:
        terms, preparation = await _prepare(session)
        await asyncio.to_thread(_require_credentials, session, terms)
    except (NoModel, NoCredentials, AlreadyCompacted, NothingToCompact):
        return False
    with operation.step("compaction") as step:
        try:
            with announced(session, due.reason, due.will_retry) as outcome:
                outcome.result = await _carry_out(session, step, outcome, terms, preparation, None, None)
        except asyncio.CancelledError:
            if not step.stopped_alone():
                raise
            return False
        except Cancelled:
            return False
        finally:
            await session.extending.settle()
    return True


def _require_credentials(session: AgentSession, terms: Terms) -> None:
    if terms.model is not None and not terms.settings.models and not terms.settings.remote_endpoint:
        session.environment.require_credentials(terms.model)


async def _prepare(session: AgentSession) -> tuple[Terms, CompactionPreparation]:
    """What is to be summarized, and with what. Raises what keeps a compaction from beginning at all."""
    terms = Terms.of(session)
    terms.require_a_model()
    session.require_writable()
    path, overhead = tuple(session.tree.path()), session.agent.overhead.tokens
    preparation = await asyncio.to_thread(prepare_compaction, path, terms.settings, terms.counter, overhead)
    if isinstance(preparation, Refusal):
        raise AlreadyCompacted if preparation.kind == "AlreadyCompacted" else NothingToCompact
    return terms, preparation


async def _carry_out(
    session: AgentSession,
    operation: Operation,
    outcome: Outcome,
    terms: Terms,
    preparation: CompactionPreparation,
    instructions: str | None,
    progress: Progress | None,
) -> Json:
    """Ask hooks, summarize, append, and tell what came of it: the same whoever asked.

    Raises Cancelled where a hook does not want it.
    """
    before = await session.extending.before_compact(
        preparation, instructions, outcome.reason, outcome.will_retry
    )
    if before.cancel:
        raise Cancelled("Compaction cancelled")
    if before.compaction is not None:
        outcome.from_extension, result = True, before.compaction
    else:
        result = await _summarize(session, terms, preparation, instructions, progress)
    operation.committed = True
    return await to_its_end(_store(session, outcome, result))


async def _store(session: AgentSession, outcome: Outcome, result: CompactionResult) -> Json:
    entry = await session.append(_body(result), required=True)
    session.extending.compacted(entry, result.from_extension, outcome.reason, outcome.will_retry)
    return await _told(session, entry, result)


async def _summarize(
    session: AgentSession,
    terms: Terms,
    preparation: CompactionPreparation,
    instructions: str | None,
    progress: Progress | None,
) -> CompactionResult:
    endpoint = terms.settings.remote_endpoint
    if progress is not None:
        progress.report("Summarizing the conversation")
    said = await session.extending.compacting(preparation)
    result = await make_summary(
        preparation,
        await asyncio.to_thread(summarizers, session, terms),
        session.environment.prompts,
        instructions=instructions,
        thinking_level=terms.thinking_level,
        retry=terms.retry,
        on_retry=on_retry(session, progress),
        remote=RemoteEndpoint(endpoint) if endpoint else None,
        prompt=said.prompt,
        additional_context=said.context,
        count_text=terms.count_text,
    )
    if said.preserve_data is msgspec.UNSET:
        return result
    return msgspec.structs.replace(result, preserve_data=said.preserve_data)


def _body(result: CompactionResult) -> Json:
    """The entry of a result, with pi's name for the flag."""
    body: Json = {"type": "compaction", "summary": result.summary}
    if result.short_summary is not None:
        body["shortSummary"] = result.short_summary
    body |= {"firstKeptEntryId": result.first_kept_entry_id, "tokensBefore": result.tokens_before}
    if result.usage is not None:
        body["usage"] = msgspec.to_builtins(result.usage)
    if result.details is not None:
        body["details"] = result.details
    if result.preserve_data is not None:
        body["preserveData"] = result.preserve_data
    if result.from_extension:
        body["fromHook"] = True
    return body


async def _told(session: AgentSession, entry: Entry, result: CompactionResult) -> Json:
    """The result as the protocol tells it, with the size of the context it left."""
    after = await asyncio.to_thread(_context_tokens, session, tuple(session.tree.path_to(entry.id)))
    told = {key: value for key, value in _body(result).items() if key not in ("type", "fromHook")}
    return (
        {"entryId": entry.id}
        | told
        | {
            "estimatedTokensAfter": after,
            "fromExtension": result.from_extension,
        }
    )


def _context_tokens(session: AgentSession, path: Sequence[Entry]) -> int:
    """Estimated tokens of the context a path makes."""
    return sum(session.counter.message(one.message) for one in build_session_context(path).messages)


def preview(
    session: AgentSession, path: Sequence[Entry], instructions: str | None, keep_recent_tokens: int | None
) -> Json:
    """What `compact` would do now, without a model (`pi.previewCompaction`). Raises InvalidSettings.

    `estimatedTokensAfter` counts the kept messages and a summary as long as the built-in offline one.
    """
    settings = session.compaction_settings()
    if keep_recent_tokens is not None:
        settings = msgspec.structs.replace(settings, keep_recent_tokens=keep_recent_tokens)
    overhead = session.agent.overhead.tokens
    preparation = prepare_compaction(path, settings, session.counter, overhead)
    told: Json = {"settings": _told_settings(settings)}
    if isinstance(preparation, Refusal):
        return {"possible": False, "reason": preparation.message} | told
    lists = file_lists(preparation.file_ops)
    prompts = summary_prompts(preparation, session.environment.prompts, instructions=instructions)
    told |= {
        "possible": True,
        "firstKeptEntryId": preparation.first_kept_entry_id,
        "isSplitTurn": preparation.is_split_turn,
        "summarizedEntryIds": list(preparation.summarized_entry_ids),
        "turnPrefixEntryIds": list(preparation.turn_prefix_entry_ids),
        "keptEntryIds": list(preparation.kept_entry_ids),
        "tokensBefore": preparation.tokens_before,
        "estimatedTokensAfter": _tokens_after(session, path, preparation),
        "readFiles": list(lists.read_files),
        "modifiedFiles": list(lists.modified_files),
        "prompts": [{"name": name, "tokens": session.count(text)} for name, text in prompts],
    }
    if preparation.previous_summary is not None:
        told["previousSummary"] = preparation.previous_summary
    return told


def _tokens_after(session: AgentSession, path: Sequence[Entry], preparation: CompactionPreparation) -> int:
    messages = (*preparation.messages_to_summarize, *preparation.turn_prefix_messages)
    stand_in = Entry.of(
        {
            "type": "compaction",
            "id": "preview",
            "parentId": path[-1].id,
            "summary": extractive_summary(messages, preparation.previous_summary),
            "firstKeptEntryId": preparation.first_kept_entry_id,
        }
    )
    return _context_tokens(session, (*path, stand_in))


def _told_settings(settings: CompactionSettings) -> Json:
    told: Json = msgspec.to_builtins(settings)
    return {key: told[key] for key in ("enabled", "reserveTokens", "keepRecentTokens", "calibrate")}
