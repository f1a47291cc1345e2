"""Moving through the tree: navigation with or without a branch summary, undo, fork and clone.

One sequence for each, in the order in which it must happen: a summary is made before the leaf moves, the
entry is on disk before anybody is told, and whatever fails before that leaves everything as it was.
Source: seeds 000 and 002, "branch summary"; seed 002's picture decides where a summary hangs.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pi_ls import store
from pi_ls.core.branch import collect_entries_for_branch_summary, prepare_branch_entries
from pi_ls.core.context import latest_compaction
from pi_ls.core.entries import Entry, session_name
from pi_ls.core.errors import EntryNotFound, InvalidParams
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import UserMessage, text_of
from pi_ls.core.tree import Landing
from pi_ls.hooks import BeforeTree
from pi_ls.session.extending import chosen
from pi_ls.session.terms import Terms, on_retry, summarizers
from pi_ls.summarize import BranchSummaryResult, generate_branch_summary

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession, Operation, Progress

UNKNOWN_WINDOW = 128_000
"""Tokens taken for the context window of a model whose window is not known, for a summary's input only."""


class Wish(msgspec.Struct, frozen=True):
    """Where somebody wants to go, and how."""

    target_id: str | None
    summarize: bool = False
    custom_instructions: str | None = None
    replace_instructions: bool = False
    label: str | None = None


async def navigate(
    session: AgentSession, operation: Operation, wish: Wish, progress: Progress | None
) -> Json:
    """Go to another entry; the protocol's result.

    Raises EntryNotFound, and whatever a summary that was asked for may raise; the leaf has not moved then.
    """
    old_leaf_id = session.tree.leaf_id
    if wish.target_id is not None:
        session.entry(wish.target_id)
    if wish.target_id == old_leaf_id:
        return _answer(session, old_leaf_id, Landing(old_leaf_id))
    terms = Terms.of(session) if wish.summarize else None
    before = await session.extending.before_tree(wish.target_id, wants_summary=wish.summarize)
    if before.cancel:
        return {"cancelled": True, "leafId": old_leaf_id, "oldLeafId": old_leaf_id}
    wish = _as_hooks_want(wish, before)
    if wish.target_id is not None:
        session.entry(wish.target_id)  # once more: another program may have written the session anew
    landing = session.tree.landing(wish.target_id)
    summary, from_extension = None, False
    if wish.summarize and before.summary is not None:
        told, from_extension = before.summary, True
        summary = BranchSummaryResult(told.summary, told.usage, told.details)
    elif terms is not None:
        summary = await _summary_of_what_is_left(session, terms, wish, progress)
    operation.committed = True
    summary_entry = await _land(session, landing, wish, summary, old_leaf_id, from_extension)
    if session.tree.leaf_id != old_leaf_id:
        session.moved(old_leaf_id, summary_entry, from_extension=from_extension)
        await session.extending.settle()
    return _answer(session, old_leaf_id, landing, summary_entry)


def _as_hooks_want(wish: Wish, before: BeforeTree) -> Wish:
    """The wish with what hooks said in place of what was asked for."""
    return msgspec.structs.replace(
        wish,
        custom_instructions=chosen(before.custom_instructions, wish.custom_instructions),
        replace_instructions=chosen(before.replace_instructions, wish.replace_instructions),
        label=chosen(before.label, wish.label),
    )


async def _summary_of_what_is_left(
    session: AgentSession, terms: Terms, wish: Wish, progress: Progress | None
) -> BranchSummaryResult | None:
    """A summary of the branch from the old leaf back to the common ancestor; None if nothing is in it."""
    environment = session.environment
    settings = environment.settings.branch_summary()
    left = collect_entries_for_branch_summary(session.tree, session.tree.leaf_id, wish.target_id)
    window = terms.model.context_window if terms.model is not None else None
    budget = (window or UNKNOWN_WINDOW) - settings.reserve_tokens
    preparation = await asyncio.to_thread(prepare_branch_entries, left.entries, budget, terms.counter)
    if not preparation.messages:
        return None
    terms.require_a_model()
    session.require_writable()
    if progress is not None:
        progress.report("Summarizing the branch that is left")
    return await generate_branch_summary(
        preparation,
        await asyncio.to_thread(summarizers, session, terms),
        environment.prompts,
        reserve_tokens=settings.reserve_tokens,
        instructions=wish.custom_instructions,
        replace_instructions=wish.replace_instructions,
        thinking_level=terms.thinking_level,
        retry=terms.retry,
        on_retry=on_retry(session, progress),
        count_text=terms.count_text,
    )


async def _land(
    session: AgentSession,
    landing: Landing,
    wish: Wish,
    summary: BranchSummaryResult | None,
    old_leaf_id: str | None,
    from_extension: bool,
) -> Entry | None:
    """Move the leaf: by the entries that are written there, or plainly where there are none."""
    place = landing.leaf_id
    summary_entry = None
    if summary is not None:
        body: Json = {"type": "branch_summary", "fromId": old_leaf_id or "root", "summary": summary.summary}
        if summary.usage is not None:
            body["usage"] = msgspec.to_builtins(summary.usage)
        body["details"] = summary.details
        if from_extension:
            body["fromHook"] = True
        summary_entry = await session.append(body, under=place, required=True)
        place = summary_entry.id
    named = summary_entry.id if summary_entry is not None else wish.target_id
    label = session_name(wish.label or "")
    if label is not None and named is not None:
        await session.append({"type": "label", "targetId": named, "label": label}, under=place)
    elif summary_entry is None and place != old_leaf_id:
        await session.move(place)
    return summary_entry


def _answer(
    session: AgentSession, old_leaf_id: str | None, landing: Landing, summary_entry: Entry | None = None
) -> Json:
    answer: Json = {"cancelled": False, "leafId": session.tree.leaf_id, "oldLeafId": old_leaf_id}
    if landing.editor_text is not None:
        answer["editorText"] = landing.editor_text
    if summary_entry is not None:
        answer["summaryEntry"] = summary_entry.data
    return answer


async def undo_compaction(session: AgentSession) -> Json:
    """Move the leaf to before the newest compaction of the path; what came after it leaves the path.

    Raises EntryNotFound where the path has no compaction.
    """
    path = session.tree.path()
    found = latest_compaction(path)
    if found is None:
        raise EntryNotFound("There is no compaction on the current path to undo")
    index, compaction = found
    old_leaf_id, left = session.tree.leaf_id, len(path) - index - 1
    parent = session.tree.parent(compaction)
    await session.move(parent.id if parent is not None else None)
    session.moved(old_leaf_id)
    await session.extending.settle()
    return {"leafId": session.tree.leaf_id, "oldLeafId": old_leaf_id, "entriesLeft": left}


async def fork(session: AgentSession, entry_id: str) -> tuple[Path | None, str]:
    """A new file holding the path before a user message, and the message's text.

    Raises EntryNotFound, and InvalidParams for an entry that is no user message.
    """
    entry = session.entry(entry_id)
    message = entry.message
    if not isinstance(message, UserMessage):
        raise InvalidParams(f"Entry {entry_id} is no user message; a fork begins before one", path="entryId")
    parent = session.tree.parent(entry)
    return await _copy(session, parent.id if parent is not None else None), text_of(message.content)


async def clone(session: AgentSession) -> Path | None:
    """A new file holding the current path; None where the path is empty."""
    return await _copy(session, session.tree.leaf_id)


async def _copy(session: AgentSession, leaf_id: str | None) -> Path | None:
    path = session.tree.path_to(leaf_id)
    if not path:
        return None
    return await asyncio.to_thread(
        store.fork,
        session.file,
        path,
        session.tree.labels,
        session.environment.sessions_directory(),
        cwd=str(session.environment.folder),
        now_ms=time.time() * 1000,
    )
