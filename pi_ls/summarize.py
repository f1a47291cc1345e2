"""From a preparation and something that can summarise to a summary: requests, retries, answers.

What is cut and what is kept was decided before (`core/compaction.py`, `core/branch.py`); how a model is
reached is `llm.py`'s. Here the conversation is put to a model in as many requests as it takes, an answer that
is no summary is refused, and what several requests gave is joined. Nothing is stored. Sources: seed 000
(prompts, remote endpoint, short summary), seed 002 (format, split turns, one-off requests).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from pi_ls.core import context
from pi_ls.core.branch import BranchPreparation
from pi_ls.core.compaction import CompactionPreparation, CompactionResult
from pi_ls.core.errors import (
    ContextOverflow,
    NoCredentials,
    NoModel,
    PiError,
    ProviderError,
    SummarizationFailed,
)
from pi_ls.core.events import SummarizationRetryScheduled
from pi_ls.core.extractive import extractive_summary, short_summary
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import Message, Usage
from pi_ls.core.options import RetrySettings
from pi_ls.core.transcript import FileOps, file_lists, serialize_conversation
from pi_ls.llm import Completion, CountText, Model, Request
from pi_ls.models import OFFLINE, ModelInfo
from pi_ls.prompts import (
    BRANCH_CONTEXT,
    BRANCH_PREAMBLE,
    BRANCH_SUMMARY,
    SHORT_SUMMARY,
    SUMMARY,
    SUMMARY_CONTEXT,
    SYSTEM,
    TURN_PREFIX,
    UPDATE_SUMMARY,
    Prompts,
    file_tags,
    strip_file_tags,
    summary_request,
)
from pi_ls.remote import RemoteEndpoint

NO_HISTORY = "No prior history."
TURN_CONTEXT = "**Turn Context (split turn):**"
EXTRACTIVE_GENERATOR = OFFLINE.ref
"""Stands in an entry's `details.generator` where no model made its summary."""

_HISTORY_SHARE = 0.8
_PREFIX_SHARE = 0.5
_DEFAULT_RESERVE = 16_384
_SHORT_SUMMARY_LENGTH = 120
_SAFETY = 0.9
"""How much of a window an estimated input may fill; the rest is for the estimate being wrong."""
_SMALLEST_PIECE = 2_000
"""Characters below which a piece of conversation is not divided any further."""

OnRetry = Callable[[SummarizationRetryScheduled], None]


class Extractive:
    """The summariser without a model: made of the messages themselves, see `core/extractive.py`."""

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


class GeneratedSummary(msgspec.Struct, frozen=True):
    """A summary and what making it used (None where no provider reported anything)."""

    text: str
    usage: Usage | None = None


class BranchSummaryResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a `branch_summary` entry is made of."""

    summary: str
    usage: Usage | None = None
    details: Any = None


# --- the public verbs ------------------------------------------------------------------------------------


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
    """Summarises what a preparation says is to be summarised. Appends nothing.

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
        additional_context: What else the summariser should know, one item each.
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
    run = _Run(
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
    history, prefix = _parts(preparation, instructions, prompt)
    kept = strip_file_tags(preparation.previous_summary or "") or NO_HISTORY
    if history and prefix:
        past, turn = await run.both(history, prefix)
    else:
        past = await run.summarize(history) if history else kept
        turn = await run.summarize(prefix) if prefix else None
    short = await _short(run, past, preparation)
    text = past if turn is None else f"{past}\n\n---\n\n{TURN_CONTEXT}\n\n{turn}"
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
    reserve_tokens: int = _DEFAULT_RESERVE,
    instructions: str | None = None,
    replace_instructions: bool = False,
    thinking_level: str = "off",
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    count_text: CountText | None = None,
) -> BranchSummaryResult | None:
    """Summarises a branch that is being left, or gives None where there is nothing in it to summarise.

    Args:
        preparation: From `prepare_branch_entries`.
        reserve_tokens: What the answer's limit is taken from (`branchSummary.reserveTokens`).
        instructions: What the summary should look at in particular.
        replace_instructions: The instructions are the whole prompt, in place of `branch-summary.md`.

    The other arguments and the errors are those of `compact`.
    """
    if not preparation.messages:
        return None
    run = _Run(
        summarizers,
        prompts or Prompts(),
        instructions=None if replace_instructions else instructions,
        thinking_level=thinking_level,
        retry=retry,
        on_retry=on_retry,
        count_text=count_text,
    )
    replacement = instructions if replace_instructions and instructions and instructions.strip() else None
    part = _Part(
        first=BRANCH_SUMMARY,
        update=BRANCH_SUMMARY,
        messages=preparation.messages,
        prompt=replacement,
        share=_HISTORY_SHARE,
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
    reserve_tokens: int = _DEFAULT_RESERVE,
    instructions: str | None = None,
    thinking_level: str = "off",
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    count_text: CountText | None = None,
) -> GeneratedSummary:
    """Summarises messages of any role, on top of an earlier summary if there is one.

    The arguments and errors are those of `compact`; the answer's limit is taken from `reserve_tokens`.
    """
    run = _Run(
        summarizers,
        prompts or Prompts(),
        instructions=instructions,
        thinking_level=thinking_level,
        retry=retry,
        on_retry=on_retry,
        count_text=count_text,
    )
    text = await run.summarize(_history(tuple(messages), previous_summary, reserve_tokens, instructions))
    return GeneratedSummary(text, run.usage)


async def generate_summary(
    messages: Sequence[Message],
    summarizers: Summarizers | Model,
    prompts: Prompts | None = None,
    **options: Any,
) -> str:
    """The text alone of `generate_summary_with_usage`, which has the options."""
    return (await generate_summary_with_usage(messages, summarizers, prompts, **options)).text


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


def summary_prompts(
    preparation: CompactionPreparation, prompts: Prompts, *, instructions: str | None = None
) -> list[tuple[str, str]]:
    """The requests a compaction would make, each as the name of its prompt and its whole text.

    No model is needed: where a window calls for several passes over one part, they are shown as one.
    """
    run = _Run(Summarizers(()), prompts, instructions=instructions)
    parts = [part for part in _parts(preparation, instructions) if part]
    return [(part.name, run.whole_prompt(part)) for part in parts]


# --- the parts of a summary ------------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that get one summary, and how it is asked for."""

    first: str
    """The prompt of the first request, where nothing was summarised before."""
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
        return (self.update if self.previous else self.first).partition("/")[2].removesuffix(".md")


def _parts(
    preparation: CompactionPreparation, instructions: str | None, prompt: str | None = None
) -> tuple[_Part | None, _Part | None]:
    """The history and the first part of a split turn, each None where it has no messages."""
    reserve = preparation.settings.reserve_tokens
    history = prefix = None
    if preparation.messages_to_summarize:
        history = _history(
            preparation.messages_to_summarize, preparation.previous_summary, reserve, instructions
        )
        history = msgspec.structs.replace(history, prompt=prompt)
    if preparation.is_split_turn and preparation.turn_prefix_messages:
        messages = preparation.turn_prefix_messages
        prefix = _Part(
            first=TURN_PREFIX,
            update=TURN_PREFIX,
            messages=messages,
            share=_PREFIX_SHARE,
            reserve=reserve,
            extract=lambda: extractive_summary(messages, None, None if history else instructions),
        )
    return history, prefix


def _history(
    messages: tuple[Message, ...], previous_summary: str | None, reserve: int, instructions: str | None
) -> _Part:
    previous = strip_file_tags(previous_summary or "") or None
    return _Part(
        first=SUMMARY,
        update=UPDATE_SUMMARY,
        messages=messages,
        previous=previous,
        share=_HISTORY_SHARE,
        reserve=reserve,
        extract=lambda: extractive_summary(messages, previous, instructions),
    )


def output_limit(reserve_tokens: int, share: float, info: ModelInfo) -> int:
    """The longest summary to ask for, in tokens: a share of the reserve, within what the model can do."""
    limits = [math.floor(share * reserve_tokens)]
    if info.max_tokens:
        limits.append(info.max_tokens)
    if info.context_window:
        limits.append(info.context_window // 2)
    return max(1, min(limits))


def _with_files(text: str, ops: FileOps, prompts: Prompts) -> str:
    lists = file_lists(ops)
    tags = file_tags(prompts, lists.read_files, lists.modified_files)
    return f"{text}\n\n{tags}" if tags else text


def _details(ops: FileOps, run: _Run) -> Json:
    lists = file_lists(ops)
    details: Json = {"readFiles": list(lists.read_files), "modifiedFiles": list(lists.modified_files)}
    return details | ({"generator": EXTRACTIVE_GENERATOR} if run.without_model else {})


async def _short(run: _Run, past: str, preparation: CompactionPreparation) -> str | None:
    """The line for a list of compactions: taken from the summary, or asked for where the settings say so."""
    if preparation.settings.short_summary and not run.without_model:
        with contextlib.suppress(PiError):
            asked = await run.short_summary(past, preparation.settings.reserve_tokens)
            if asked:
                return asked
    return short_summary(past)


# --- one run ---------------------------------------------------------------------------------------------


class _Lanes:
    """How many requests may be under way at once: two until somebody says that is too many."""

    def __init__(self) -> None:
        self._limit = 2
        self._busy = 0
        self._freed = asyncio.Condition()

    def narrow(self) -> None:
        self._limit = 1

    @contextlib.asynccontextmanager
    async def lane(self) -> AsyncGenerator[None]:
        async with self._freed:
            await self._freed.wait_for(lambda: self._busy < self._limit)
            self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            async with self._freed:
                self._freed.notify_all()


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels what still runs of the tasks and waits until none does."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Run:
    """The requests of one compaction or branch summary: who is asked, how often, and what it used."""

    def __init__(
        self,
        summarizers: Summarizers | Model,
        prompts: Prompts,
        *,
        instructions: str | None = None,
        thinking_level: str = "off",
        retry: RetrySettings | None = None,
        on_retry: OnRetry | None = None,
        remote: RemoteEndpoint | None = None,
        additional_context: Sequence[str] = (),
        count_text: CountText | None = None,
    ) -> None:
        chosen = summarizers if isinstance(summarizers, Summarizers) else Summarizers.of(summarizers)
        self.prompts = prompts
        self.usage: Usage | None = None
        self.without_model = False
        self._candidates = chosen.candidates
        self._instructions = instructions
        self._thinking_level = thinking_level
        self._retry = retry or RetrySettings()
        self._on_retry = on_retry
        self._remote = remote
        self._context = additional_context
        self._count = count_text or _quarter_of_bytes
        self._made: dict[int, Model | Extractive] = {}
        self._making = asyncio.Lock()
        self._failed: dict[int, PiError] = {}
        self._lanes = _Lanes()
        self._asked = asyncio.Event()

    async def both(self, history: _Part, prefix: _Part) -> tuple[str, str]:
        """Two summaries: at the same time, unless the one who makes them has one pair of hands."""
        if await self._asks_one_at_a_time():
            return await self.summarize(history), await self.summarize(prefix)
        past = asyncio.create_task(self.summarize(history))
        tasks: list[asyncio.Task[Any]] = [past, asyncio.create_task(self._asked.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)  # the history is asked for first
            turn = asyncio.create_task(self.summarize(prefix))
            tasks.append(turn)
            return await asyncio.gather(past, turn)
        finally:
            await _end(tasks)

    async def summarize(self, part: _Part) -> str:
        """One part's summary, by the endpoint or by the first candidate that succeeds."""
        if self._remote:
            self._require_candidates()
            return _text(await self._remote.summarize(self._system(), self.whole_prompt(part)))
        return await self._by_first_that_can(lambda model: self._summarize_with(model, part))

    async def short_summary(self, summary: str, reserve: int) -> str:
        """One line about a summary."""
        prompt = summary_request(self.prompts.render(SHORT_SUMMARY), previous_summary=summary)
        if self._remote:
            answer = await self._remote.summarize(self._system(), prompt)
        else:
            answer = await self._by_first_that_can(lambda model: self._ask_short(model, prompt, reserve))
        return " ".join(answer.split())[:_SHORT_SUMMARY_LENGTH]

    def whole_prompt(self, part: _Part) -> str:
        """The text of a part's request as if everything fitted in one."""
        return self._prompt(part, "\n\n".join(self._pieces(part)), part.previous)

    # - who is asked

    def _require_candidates(self) -> None:
        if not self._candidates:
            raise NoModel("No model selected")

    async def _by_first_that_can(self, work: Callable[[Model | Extractive], Awaitable[str]]) -> str:
        self._require_candidates()
        for number in range(len(self._candidates)):
            if number in self._failed:
                continue
            try:
                return await work(await self._model(number))
            except (ProviderError, SummarizationFailed, NoCredentials) as error:
                self._failed[number] = error
        raise self._all_failed()

    async def _model(self, number: int) -> Model | Extractive:
        async with self._making:
            if number not in self._made:
                self._made[number] = await asyncio.to_thread(self._candidates[number].make)
            return self._made[number]

    async def _asks_one_at_a_time(self) -> bool:
        if self._remote:
            return self._remote.is_loopback
        self._require_candidates()
        try:
            model = await self._model(0)
        except PiError:  # its turn comes, and goes, when it is asked
            return True
        return isinstance(model, Extractive) or model.info.is_loopback

    def _all_failed(self) -> PiError:
        """One error for all candidates: the last one's kind, everybody's words."""
        named = [(self._candidates[number].name, error) for number, error in sorted(self._failed.items())]
        last = named[-1][1]
        if len(named) > 1:
            words = "; ".join(
                error.message if name in error.message else f"{name}: {error.message}"
                for name, error in named
            )
            return type(last)(f"Summarization failed: {words}", **last.data)
        if isinstance(last, ProviderError):
            return type(last)(f"Summarization failed: {last.message}", **last.data)
        return last

    # - what is asked

    def _system(self) -> str:
        return self.prompts.render(SYSTEM)

    def _prompt(self, part: _Part, conversation: str, previous: str | None) -> str:
        name = part.update if previous else part.first
        instruction = part.prompt or self.prompts.render(name, continued=previous is not None)
        return summary_request(
            instruction,
            conversation=conversation,
            previous_summary=previous,
            context=self._context,
            focus=self._instructions,
        )

    def _pieces(self, part: _Part) -> list[str]:
        """The conversation as text, a piece for each message that has any."""
        texts = (serialize_conversation([one]) for one in convert_to_llm(part.messages, self.prompts))
        return [text for text in texts if text]

    async def _summarize_with(self, model: Model | Extractive, part: _Part) -> str:
        """A part's summary by one summariser: in one request if it fits, else in one on top of the other."""
        if isinstance(model, Extractive):
            self.without_model = True
            return await asyncio.to_thread(part.extract)
        limit = output_limit(part.reserve, part.share, model.info)
        system = self._system()
        rest = await asyncio.to_thread(self._pieces, part)
        previous, room = part.previous, math.inf
        while True:
            frame = self._count(system) + self._count(self._prompt(part, "", previous))
            room = min(room, _input_room(model.info, limit, frame))
            taken, left = await asyncio.to_thread(_divide, rest, room, self._count)
            conversation = "\n\n".join(taken)
            try:
                answer = await self._ask(model, system, self._prompt(part, conversation, previous), limit)
            except ContextOverflow:
                if len(conversation) <= _SMALLEST_PIECE:
                    raise
                room = self._count(conversation) / 2  # the estimate was wrong
                continue
            previous, rest = answer, left
            if not rest:
                return answer

    async def _ask_short(self, model: Model | Extractive, prompt: str, reserve: int) -> str:
        if isinstance(model, Extractive):
            return ""
        limit = output_limit(reserve, _PREFIX_SHARE, model.info)
        return await self._ask(model, self._system(), prompt, limit)

    # - how it is asked

    async def _ask(self, model: Model, system: str, prompt: str, limit: int) -> str:
        """One answer that is a summary, through all retries."""
        request = Request(system=system, prompt=prompt, max_tokens=limit, thinking_level=self._thinking_level)
        if model.info.is_loopback:
            self._lanes.narrow()
        attempt = 0
        while True:
            try:
                async with self._lanes.lane():
                    self._asked.set()
                    completion = await model.complete(request)
            except ProviderError as error:
                attempt += 1
                await self._wait_before_retry(error, attempt)
            else:
                self._add_usage(completion)
                return _checked(completion)

    async def _wait_before_retry(self, error: ProviderError, attempt: int) -> None:
        """Waits until the request may be sent again; raises the error where it may not."""
        if error.data.get("status") == 429:
            self._lanes.narrow()
        retry = self._retry
        longest = retry.max_agent_delay_ms
        asked = error.data.get("retryAfterMs")
        if not retry.enabled or not error.retryable or attempt > retry.max_retries:
            raise error
        if asked is not None and asked > longest:
            raise error  # asking earlier would be rude, waiting that long useless
        delay = asked if asked is not None else min(retry.base_delay_ms * 2 ** (attempt - 1), longest)
        if self._on_retry:
            self._on_retry(
                SummarizationRetryScheduled(
                    attempt=attempt,
                    max_attempts=retry.max_retries,
                    delay_ms=delay,
                    error_message=error.message,
                )
            )
        await asyncio.sleep(delay / 1000)

    def _add_usage(self, completion: Completion) -> None:
        """Counts an answer, a useless one too: it was paid for."""
        if completion.usage:
            self.usage = self.usage + completion.usage if self.usage else completion.usage


def _checked(completion: Completion) -> str:
    """The answer's text where it is a summary."""
    if completion.stop_reason == "length":
        raise SummarizationFailed("Summary is incomplete (token limit)")
    if completion.tool_calls or completion.stop_reason == "toolUse":
        raise SummarizationFailed("Summary tried to call a tool")
    if completion.stop_reason != "stop":
        raise SummarizationFailed("Summarization failed: the provider withheld the answer")
    return _text(completion.text)


def _text(answer: str) -> str:
    """An answer without file tags of its own making; the program adds the right ones."""
    text = strip_file_tags(answer).strip()
    if not text:
        raise SummarizationFailed("Summary is empty")
    return text


def _input_room(info: ModelInfo, limit: int, frame: int) -> float:
    """Tokens of conversation that fit into one request beside its frame and the answer."""
    if not info.context_window:
        return math.inf
    return max(0.0, _SAFETY * (info.context_window - limit) - frame)


def _divide(pieces: Sequence[str], room: float, count: CountText) -> tuple[list[str], list[str]]:
    """As many pieces from the front as there is room for, and the others.

    At least something is taken: of a first piece that is too long itself, as much of its front as fits.
    """
    used = 0.0
    for number, piece in enumerate(pieces):
        used += count(piece) + 1
        if used > room:
            if number:
                return list(pieces[:number]), list(pieces[number:])
            fitting = max(_SMALLEST_PIECE, int(len(piece) * room / used))
            head, tail = piece[:fitting], piece[fitting:]
            return [head], [tail, *pieces[1:]] if tail else list(pieces[1:])
    return list(pieces), []


def _quarter_of_bytes(text: str) -> int:
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4
