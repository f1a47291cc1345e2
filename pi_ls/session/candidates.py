"""Who makes a session's summaries, and how their retries are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pi_ls.core.errors import InvalidSettings
from pi_ls.core.events import SummarizationRetryScheduled
from pi_ls.models import ModelInfo, split_ref
from pi_ls.summarize import Summarizers

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession, Progress


def summarizers(session: AgentSession, named: Sequence[str]) -> Summarizers:
    """The candidates for a summary, in order: those that `compaction.models` names, else the session's model.

    Raises InvalidSettings for a name that is not `provider/modelId`. Reads files: call it in a thread.
    """
    environment = session.environment
    if not named:
        return Summarizers(tuple(map(environment.candidate, [session.model] if session.model else [])))
    models: list[ModelInfo] = []
    for name in named:
        ref = split_ref(name)
        if ref is None:
            raise InvalidSettings(
                f"compaction.models holds “{name}”, which is no provider/modelId", key="compaction.models"
            )
        models.append(environment.catalogue.resolve(*ref))
    return Summarizers(tuple(map(environment.candidate, models)))


def on_retry(
    session: AgentSession, progress: Progress | None
) -> Callable[[SummarizationRetryScheduled], None]:
    """What tells the editor that a summary request is tried again."""

    def tell(event: SummarizationRetryScheduled) -> None:
        session.emit(event)
        if progress is not None:
            seconds = event.delay_ms / 1000
            progress.report(f"Trying again in {seconds:.0f} s ({event.attempt} of {event.max_attempts})")

    return tell
