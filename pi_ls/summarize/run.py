"""One run: the requests of a compaction or a branch summary, who is asked, how often, and what it used."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from pi_ls.core.errors import (
    ContextOverflow,
    NoCredentials,
    NoModel,
    PiError,
    ProviderError,
    SummarizationFailed,
)
from pi_ls.core.events import SummarizationRetryScheduled
from pi_ls.core.messages import Usage
from pi_ls.core.options import RetrySettings
from pi_ls.llm import Completion, CountText, Model, Request
from pi_ls.prompts import SHORT_SUMMARY, SYSTEM, Prompts, strip_file_tags, summary_request
from pi_ls.remote import RemoteEndpoint
from pi_ls.summarize.candidates import Extractive, Summarizers
from pi_ls.summarize.parts import (
    PREFIX_SHARE,
    SMALLEST_PIECE,
    Part,
    divide,
    input_room,
    output_limit,
    pieces_of,
    quarter_of_bytes,
)

_SHORT_SUMMARY_LENGTH = 120

OnRetry = Callable[[SummarizationRetryScheduled], None]


class Lanes:
    """How many requests may be under way at once: two until somebody says that is too many."""

    def __init__(self) -> None:
        self._limit = 2
        self._busy = 0
        self._freed = asyncio.Condition()

    def narrow(self) -> None:
        """From here on one at a time."""
        self._limit = 1

    @contextlib.asynccontextmanager
    async def lane(self) -> AsyncGenerator[None]:
        """Room for one request, as soon as there is some; first come, first served."""
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


class Run:
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
        self._count = count_text or quarter_of_bytes
        self._made: dict[int, Model | Extractive] = {}
        self._making = asyncio.Lock()
        self._failed: dict[int, PiError] = {}
        self._lanes = Lanes()
        self._asked = asyncio.Event()

    async def both(self, history: Part, prefix: Part) -> tuple[str, str]:
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

    async def summarize(self, part: Part) -> str:
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

    def whole_prompt(self, part: Part) -> str:
        """The text of a part's request as if everything fitted in one."""
        return self._prompt(part, "\n\n".join(pieces_of(part, self.prompts)), part.previous)

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

    def _prompt(self, part: Part, conversation: str, previous: str | None) -> str:
        name = part.update if previous else part.first
        instruction = part.prompt or self.prompts.render(name, continued=previous is not None)
        return summary_request(
            instruction,
            conversation=conversation,
            previous_summary=previous,
            context=self._context,
            focus=self._instructions,
        )

    async def _summarize_with(self, model: Model | Extractive, part: Part) -> str:
        """A part's summary by one summarizer: in one request if it fits, else in one on top of the other."""
        if isinstance(model, Extractive):
            self.without_model = True
            return await asyncio.to_thread(part.extract)
        limit = output_limit(part.reserve, part.share, model.info)
        system = self._system()
        rest = await asyncio.to_thread(pieces_of, part, self.prompts)
        previous, room = part.previous, math.inf
        while True:
            frame = self._count(system) + self._count(self._prompt(part, "", previous))
            room = min(room, input_room(model.info, limit, frame))
            taken, left = await asyncio.to_thread(divide, rest, room, self._count)
            conversation = "\n\n".join(taken)
            try:
                answer = await self._ask(model, system, self._prompt(part, conversation, previous), limit)
            except ContextOverflow:
                if len(conversation) <= SMALLEST_PIECE:
                    raise
                room = await asyncio.to_thread(self._count, conversation) / 2  # the estimate was wrong
                continue
            previous, rest = answer, left
            if not rest:
                return answer

    async def _ask_short(self, model: Model | Extractive, prompt: str, reserve: int) -> str:
        if isinstance(model, Extractive):
            return ""
        limit = output_limit(reserve, PREFIX_SHARE, model.info)
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
