"""Blanking old tool output in a session's file, and putting it back.

The originals are on disk beside the session before a byte of it changes. Source: seed 000, pruning before a
compaction is considered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from pi_ls.core.context import build_session_context
from pi_ls.core.jsonvalues import Json
from pi_ls.core.pruning import PruningPlan, plan_pruning, plan_restoring
from pi_ls.store import put_away, put_away_lines

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession


async def prune(session: AgentSession, *, dry_run: bool = False) -> Json:
    """Blank old tool output of the present context; the protocol's answer. Raises WriteFailed.

    Nothing is done where it would save too little (`compaction.pruning.minimumSavings`).
    """
    settings = session.compaction_settings().pruning
    path, counter = tuple(session.tree.path()), session.counter

    def plan() -> PruningPlan:
        return plan_pruning(build_session_context(path).messages, settings, counter)

    planned = await asyncio.to_thread(plan)
    if planned.outputs and not dry_run:
        await asyncio.to_thread(put_away, session.file.path, planned.originals())
        await session.rewrite(planned.replacements(time.time_ns() // 1_000_000))
    return {"prunedCount": planned.pruned_count, "tokensSaved": planned.tokens_saved}


async def prune_if_wanted(session: AgentSession) -> None:
    """Prune before automatic compaction is considered, where the settings want it."""
    settings = session.compaction_settings()
    if settings.enabled and settings.pruning.enabled and session.file.read_only is None:
        await prune(session)


async def restore(session: AgentSession, entry_ids: Collection[str] | None) -> Json:
    """Put blanked output back, all of it or that of some entries. Raises EntryNotFound and WriteFailed."""
    for entry_id in entry_ids or ():
        session.entry(entry_id)
    entries, path = tuple(session.tree.entries), session.file.path

    def plan() -> dict[str, Json]:
        return plan_restoring(entries, put_away_lines(path), entry_ids)

    originals = await asyncio.to_thread(plan)
    if originals:
        await session.rewrite(originals)
    return {"restoredCount": len(originals)}
