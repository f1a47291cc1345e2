"""With what a session's summaries are made, and how their retries are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from pi_ls.core.errors import InvalidSettings, NoModel
from pi_ls.core.events import SummarizationRetryScheduled
from pi_ls.core.options import CompactionSettings, RetrySettings
from pi_ls.core.tokens import CountText, TokenCounter
from pi_ls.models import ModelInfo, split_ref
from pi_ls.summarize import Summarizers

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession, Progress


class Terms(msgspec.Struct, frozen=True):
    """What a summary is made with: as it is when an operation begins, whatever is changed while it runs."""

    model: ModelInfo | None
    thinking_level: str
    settings: CompactionSettings
    retry: RetrySettings
    counter: TokenCounter
    count_text: CountText | None

    @classmethod
    def of(cls, session: AgentSession) -> Terms:
        """The session's terms of this moment. Raises InvalidSettings."""
        return cls(
            model=session.model,
            thinking_level=session.thinking_level,
            settings=session.compaction_settings(),
            retry=session.environment.settings.retry(),
            counter=session.counter,
            count_text=session.count_text,
        )

    def require_a_model(self) -> None:
        """Raises NoModel where nobody could make a summary."""
        if self.model is None and not self.settings.models:
            raise NoModel("No model selected")


def summarizers(session: AgentSession, terms: Terms) -> Summarizers:
    """The candidates for a summary, in order: those that `compaction.models` names, else the session's model.

    Raises InvalidSettings for a name that is not `provider/modelId`. Reads files: call it in a thread.
    """
    named = terms.settings.models
    models = _named(session, named) if named else [terms.model] if terms.model else []
    timeout_ms = terms.retry.request_timeout_ms
    return Summarizers(tuple(session.environment.candidate(model, timeout_ms=timeout_ms) for model in models))


def _named(session: AgentSession, names: Sequence[str]) -> list[ModelInfo]:
    models: list[ModelInfo] = []
    for name in names:
        ref = split_ref(name)
        if ref is None:
            raise InvalidSettings(
                f"compaction.models holds “{name}”, which is no provider/modelId", key="compaction.models"
            )
        models.append(session.environment.catalogue.resolve(*ref))
    return models


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
