"""Who may make a summary, and in what order they are asked."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pi_ls.llm import Model
from pi_ls.models import OFFLINE


class Extractive:
    """The summarizer without a model: made of the messages themselves, see `core/extractive.py`."""

    info = OFFLINE


class Candidate(msgspec.Struct, frozen=True):
    """What may make a summary. Made when its turn comes, so that a missing key leads to the next one."""

    name: str
    """`provider/modelId`, for error sentences."""
    make: Callable[[], Model | Extractive]
    """Called once a run, in a thread, since reading a key may run a command. May raise NoCredentials."""


class Summarizers(msgspec.Struct, frozen=True):
    """Who is asked for a summary, in order: the next one only when the one before has failed for good."""

    candidates: tuple[Candidate, ...]

    @classmethod
    def of(cls, *models: Model | Extractive) -> Summarizers:
        """Models that are there already."""
        return cls(tuple(Candidate(model.info.ref, lambda model=model: model) for model in models))
