"""The parts of a summary: messages that get one text, what is asked about them, and what fits a request.

Nothing is asked here and nothing waits; these are the calculations of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pi_ls.core import context
from pi_ls.core.compaction import CompactionPreparation
from pi_ls.core.extractive import extractive_summary
from pi_ls.core.messages import Message
from pi_ls.core.options import CompactionSettings
from pi_ls.core.transcript import serialize_conversation
from pi_ls.llm import CountText
from pi_ls.models import ModelInfo
from pi_ls.prompts import (
    BRANCH_CONTEXT,
    SUMMARY,
    SUMMARY_CONTEXT,
    TURN_PREFIX,
    UPDATE_SUMMARY,
    Prompts,
    strip_file_tags,
)

HISTORY_SHARE = 0.8
PREFIX_SHARE = 0.5
"""Shares of the reserve that an answer may take up."""
_SAFETY = 0.9
"""How much of a window an estimated input may fill; the rest is for the estimate being wrong."""
SMALLEST_PIECE = 2_000
"""Characters below which a piece of conversation is not divided any further."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that get one summary, and how it is asked for."""

    first: str
    """The prompt of the first request, where nothing was summarized before."""
    update: str
    """The prompt of a request that follows a summary."""
    messages: tuple[Message, ...]
    previous: str | None = None
    prompt: str | None = None
    """In place of both prompts."""
    share: float
    reserve: int
    extract: Callable[[], str]
    """The same part without a model."""

    @property
    def name(self) -> str:
        """The name of the prompt its first request uses, for a preview."""
        return (self.update if self.previous else self.first).partition("/")[2].removesuffix(".md")


def parts_of(
    preparation: CompactionPreparation, instructions: str | None, prompt: str | None = None
) -> tuple[Part | None, Part | None]:
    """The history and the first part of a split turn, each None where it has no messages."""
    reserve = preparation.settings.reserve_tokens
    history = prefix = None
    if preparation.messages_to_summarize:
        history = history_part(
            preparation.messages_to_summarize, preparation.previous_summary, reserve, instructions
        )
        history = msgspec.structs.replace(history, prompt=prompt)
    if preparation.is_split_turn and preparation.turn_prefix_messages:
        messages = preparation.turn_prefix_messages
        prefix = Part(
            first=TURN_PREFIX,
            update=TURN_PREFIX,
            messages=messages,
            share=PREFIX_SHARE,
            reserve=reserve,
            extract=lambda: extractive_summary(messages, None, None if history else instructions),
        )
    return history, prefix


def history_part(
    messages: tuple[Message, ...], previous_summary: str | None, reserve: int, instructions: str | None
) -> Part:
    """Messages on top of an earlier summary, if there is one."""
    previous = strip_file_tags(previous_summary or "") or None
    return Part(
        first=SUMMARY,
        update=UPDATE_SUMMARY,
        messages=messages,
        previous=previous,
        share=HISTORY_SHARE,
        reserve=reserve,
        extract=lambda: extractive_summary(messages, previous, instructions),
    )


def output_limit(reserve_tokens: int, share: float, info: ModelInfo) -> int:
    """The longest summary to ask for, in tokens: a share of the reserve, within what the model can do.

    A reserve of 0 says that compaction may wait until the window is full, not that a summary has no words.
    """
    limits = [math.floor(share * (reserve_tokens or CompactionSettings().reserve_tokens))]
    if info.max_tokens:
        limits.append(info.max_tokens)
    if info.context_window:
        limits.append(info.context_window // 2)
    return max(1, min(limits))


def input_room(info: ModelInfo, limit: int, frame: int) -> float:
    """Tokens of conversation that fit into one request beside its frame and the answer."""
    if not info.context_window:
        return math.inf
    return max(0.0, _SAFETY * (info.context_window - limit) - frame)


def divide(pieces: Sequence[str], room: float, count: CountText) -> tuple[list[str], list[str]]:
    """As many pieces from the front as there is room for, and the others.

    At least something is taken: of a first piece that is too long itself, as much of its front as fits.
    """
    used = 0.0
    for number, piece in enumerate(pieces):
        used += count(piece) + 1
        if used > room:
            if number:
                return list(pieces[:number]), list(pieces[number:])
            fitting = max(SMALLEST_PIECE, int(len(piece) * room / used))
            head, tail = piece[:fitting], piece[fitting:]
            return [head], [tail, *pieces[1:]] if tail else list(pieces[1:])
    return list(pieces), []


def quarter_of_bytes(text: str) -> int:
    """A rough count of tokens where no better one is at hand; nearer than one by letters for most scripts."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def pieces_of(part: Part, prompts: Prompts) -> list[str]:
    """The conversation of a part as text, a piece for each message that has any."""
    texts = (serialize_conversation([one]) for one in convert_to_llm(part.messages, prompts))
    return [text for text in texts if text]


def convert_to_llm(messages: Iterable[Message], prompts: Prompts | None = None) -> list[Message]:
    """Messages as a model gets them: the session's own roles become user messages.

    Summaries are put in through the two context templates, the shipped ones by default.
    """
    source = prompts or Prompts()
    return context.convert_to_llm(
        messages,
        compaction_context=lambda summary: source.render(SUMMARY_CONTEXT, summary=summary),
        branch_context=lambda summary: source.render(BRANCH_CONTEXT, summary=summary),
    )
