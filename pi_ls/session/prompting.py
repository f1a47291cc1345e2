"""A prompt and everything that follows from it, until nothing of it is left to do.

The loop asks the model and runs tools; what it yields is kept here, entry by entry, before it is told. In
between, where the loop waits for its next event to be asked for, room is made: a run compacts itself after
a batch of tools, recovers once from an overflow, tries again after a failure in passing, delivers what was
queued, and may go on by itself once. Source: seed 001 (`_handlePostAgentRun`, `_checkCompaction`,
`_runAutoCompaction`); seed 002 for the check between turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from pi_ls import loop
from pi_ls.core import events
from pi_ls.core.chat import ChatRequest
from pi_ls.core.context import build_session_context
from pi_ls.core.errors import ContextOverflow, InvalidSettings, PiError, ProviderError
from pi_ls.core.messages import AssistantMessage, Message, UserMessage, decode_message
from pi_ls.core.options import CompactionSettings
from pi_ls.core.triggers import Due, effective, measured_tokens, overflow_due, threshold_due
from pi_ls.session import compacting
from pi_ls.session.pruning import prune_if_wanted
from pi_ls.session.queue import user_message
from pi_ls.summarize import convert_to_llm
from pi_ls.tools import Toolbox

if TYPE_CHECKING:
    from pi_ls.session.agent import Agent
    from pi_ls.session.agent_session import AgentSession, Operation

CONTINUE = "Continue if you have next steps."
"""What is said on the user's behalf after a compaction between two prompts."""

DELTA_INTERVAL_S = 0.03
"""Pieces of an answer are told together for this long."""


class Run:
    """One prompt's work. `play` does all of it; `abort` ends it soon, whatever it is at."""

    def __init__(
        self, session: AgentSession, agent: Agent, operation: Operation, first: Sequence[UserMessage]
    ) -> None:
        self._session = session
        self._agent = agent
        self._operation = operation
        self._first = list(first)
        self._signal = loop.AbortSignal()
        self._deltas = _Deltas(session)
        self._recovered = False
        self._continued = False
        self._answer: AssistantMessage | None = None
        self._failure: Exception | None = None
        self._system = ""
        self._tools: Toolbox | None = None
        operation.stop = self.abort

    def abort(self) -> bool:
        """Stop: what is being waited for is cancelled at once, and the run ends in order."""
        self._signal.abort()
        return True

    async def play(self) -> None:
        """Work until nothing of the prompt is left. What the model raised is told in events, not raised."""
        try:
            await self._prepare()
            await self._make_room_for(self._first)
            await self._work()
        except loop.Aborted:
            pass
        finally:
            self._session.emit(events.AgentSettled(aborted=self._signal.aborted))

    async def _prepare(self) -> None:
        session = self._session
        self._tools = self._agent.toolbox()
        self._system = await asyncio.to_thread(session.environment.system_prompt, self._tools.specs())
        self._agent.overhead_tokens = session.count(self._system) + sum(
            session.count(msgspec.json.encode(spec).decode()) for spec in self._tools.specs()
        )

    async def _work(self) -> None:
        attempt = 0
        while True:
            await self._run_once()
            if self._signal.aborted:
                return
            answer, failure = self._answer, self._failure
            due = self._overflow(answer, failure)
            if attempt and (failure is None or due or not _transient(failure)):
                self._tell_retry_end(attempt, failure)
                attempt = 0
            if due is not None:
                recovered = await self._recover(due)
                if recovered and due.will_retry:
                    continue
            elif failure is not None and _transient(failure) and attempt < self._most_attempts():
                attempt += 1
                await self._wait_before_retry(attempt, failure)
                continue
            elif failure is not None and attempt:
                self._tell_retry_end(attempt, failure)
            compacted = False if due is not None else await self._compact_if_due()
            if not self._queued() and not (compacted and self._may_continue()):
                return
            attempt = 0

    # -- one run of the loop ---------------------------------------------------------------------------

    async def _run_once(self) -> None:
        """One run of the loop, from the first request to an answer that calls no tool."""
        self._answer, self._failure = None, None
        model = await self._agent.chat_model()
        assert self._tools is not None
        try:
            async with aclosing(loop.run(self, model, self._tools, self._signal)) as said:
                async for event in said:
                    await self._take(event)
        except loop.Aborted:
            raise
        except PiError as failure:
            self._failure = failure  # told already, as the end of the run
        finally:
            self._deltas.flush()

    async def _take(self, event: events.Event) -> None:
        """Keep what is to be kept, then tell, then do what belongs between two turns."""
        match event:
            case events.MessageUpdate():
                self._deltas.add(event)
                return
            case events.MessageEnd():
                self._deltas.flush()
                entry = await self._session.append({"type": "message", "message": event.message})
                self._session.emit(msgspec.structs.replace(event, entry_id=entry.id))
                self._note_answer(event)
                return
            case events.AgentEnd():
                event = self._with_recovery_failure(event)
            case _:
                pass
        self._deltas.flush()
        self._session.emit(event)
        if isinstance(event, events.TurnEnd) and event.tool_results and not self._signal.aborted:
            await self._compact_if_due()

    def _note_answer(self, event: events.MessageEnd) -> None:
        message = decode_message(event.message)
        if isinstance(message, AssistantMessage):
            self._answer = message
            self._judge_answer(message)

    # What the loop asks of a conversation.

    async def request(self) -> ChatRequest:
        """The next request: the context of the path as it is now."""
        session = self._session
        context = await asyncio.to_thread(build_session_context, tuple(session.tree.path()))
        prompts = session.environment.prompts
        assert self._tools is not None
        return ChatRequest(
            system=self._system,
            messages=tuple(convert_to_llm((one.message for one in context.messages), prompts)),
            tools=tuple(self._tools.specs()),
            thinking_level=context.thinking_level,
        )

    def steering(self) -> Sequence[Message]:
        """The prompt at first, then what was said to steer the run."""
        first, self._first = self._first, []
        return [*first, *self._agent.take_steering()]

    def follow_ups(self) -> Sequence[Message]:
        """What was said to follow."""
        return self._agent.take_follow_ups()

    # -- compaction ------------------------------------------------------------------------------------

    def _window(self) -> int | None:
        model = self._session.model
        return model.context_window if model is not None else None

    def _settings(self) -> CompactionSettings | None:
        """The settings automatic compaction goes by; None where they cannot be used, or it has paused."""
        try:
            settings = self._session.compaction_settings()
        except InvalidSettings as error:
            self._agent.pause_for_settings(error)
            return None
        return settings

    async def _threshold(self, extra_tokens: float = 0) -> Due | None:
        session, window, settings = self._session, self._window(), self._settings()
        if window is None or settings is None or self._agent.pause.reason is not None:
            return None
        with contextlib.suppress(PiError):  # a file that cannot be rewritten is told of elsewhere
            await prune_if_wanted(session)
        path = tuple(session.tree.path())
        return await asyncio.to_thread(threshold_due, path, window, settings, session.counter, extra_tokens)

    async def _compact_if_due(self) -> bool:
        """Compact where the threshold is passed; whether that was done."""
        due = await self._threshold()
        return due is not None and await self._compact(due)

    async def _make_room_for(self, prompt: Sequence[Message]) -> None:
        """Before a new prompt: with it the window must not be passed."""
        extra = sum(self._session.counter.message(message) for message in prompt)
        due = await self._threshold(extra)
        if due is not None:
            await self._compact(due)

    def _overflow(self, answer: AssistantMessage | None, failure: Exception | None) -> Due | None:
        """Whether the answer shows an overflow that may be recovered from: once for each prompt."""
        window, settings = self._window(), self._settings()
        if answer is None or window is None or settings is None or not settings.enabled:
            return None
        due = overflow_due(
            answer,
            window,
            same_model=self._is_of_this_model(answer),
            known_overflow=isinstance(failure, ContextOverflow),
        )
        return None if due is not None and due.will_retry and self._recovered else due

    def _is_of_this_model(self, answer: AssistantMessage) -> bool:
        model = self._session.model
        return model is not None and (answer.provider, answer.model) == (model.provider, model.id)

    async def _recover(self, due: Due) -> bool:
        self._recovered = self._recovered or due.will_retry
        return await self._compact(due)

    async def _compact(self, due: Due) -> bool:
        """One automatic compaction; False where there was nothing to do or it failed, which is told."""
        session = self._session
        work = compacting.compact_automatically(session, self._operation, due)
        try:
            done = await self._signal.guard(work)
        except PiError:
            if self._agent.pause.failed():
                self._agent.tell_paused()
            return False
        if done:
            self._agent.pause.compacted()
        return done

    def _with_recovery_failure(self, event: events.AgentEnd) -> events.AgentEnd:
        """A second overflow of one prompt ends the run with a sentence that says so."""
        window, settings, answer = self._window(), self._settings(), self._answer
        if (
            not self._recovered
            or answer is None
            or window is None
            or settings is None
            or not settings.enabled
        ):
            return event
        due = overflow_due(answer, window, same_model=self._is_of_this_model(answer))
        if due is None or not due.will_retry:
            return event
        sentence = compacting.FAILURE_PREFIX["overflow"] + (answer.error_message or "the window is full")
        self._session.emit(
            events.SessionCompactFailed(
                reason="overflow",
                aborted=False,
                will_retry=True,
                from_extension=False,
                error_message=sentence,
            )
        )
        return events.AgentEnd(error_message=sentence)

    def _judge_answer(self, answer: AssistantMessage) -> None:
        """Whether automatic compaction helps: the first answer after one must be under the threshold."""
        session, window, settings = self._session, self._window(), self._settings()
        if answer.usage is None or window is None or settings is None:
            return
        tokens = measured_tokens(session.tree.path(), session.counter) or 0
        over = tokens > window - effective(settings, window).reserve_tokens
        if self._agent.pause.answered(over_threshold=over):
            self._agent.tell_paused()
        elif not over and self._agent.pause.reason is not None:
            self._agent.resume()

    # -- going on --------------------------------------------------------------------------------------

    def _queued(self) -> bool:
        """Whether something waits: it becomes the next run's first messages."""
        self._first += [one for one in self._agent.take_steering() if isinstance(one, UserMessage)]
        if not self._first:
            self._first += [one for one in self._agent.take_follow_ups() if isinstance(one, UserMessage)]
        if self._first:
            self._recovered = self._continued = False
        return bool(self._first)

    def _may_continue(self) -> bool:
        """Whether the agent goes on by itself after a compaction: once between two prompts of the user."""
        settings = self._settings()
        if settings is None or self._continued or settings.auto_continue is False:
            return False
        finished = self._answer is not None and self._answer.stop_reason == "stop"
        if settings.auto_continue == "unfinished" and finished:
            return False
        self._continued = True
        self._first = [user_message(CONTINUE, (), time.time_ns() // 1_000_000, synthetic=True)]
        return True

    # -- trying again ----------------------------------------------------------------------------------

    def _most_attempts(self) -> int:
        retry = self._session.environment.settings.retry()
        return retry.max_retries if retry.enabled else 0

    async def _wait_before_retry(self, attempt: int, failure: Exception) -> None:
        retry = self._session.environment.settings.retry()
        asked = failure.data.get("retryAfterMs") if isinstance(failure, ProviderError) else None
        delay = min(asked or retry.base_delay_ms * 2 ** (attempt - 1), retry.max_agent_delay_ms)
        self._session.emit(
            events.AutoRetryStart(
                attempt=attempt,
                max_attempts=retry.max_retries,
                delay_ms=int(delay),
                error_message=_sentence(failure),
            )
        )
        try:
            await self._signal.guard(asyncio.sleep(delay / 1000))
        except loop.Aborted:
            self._tell_retry_end(attempt, failure)
            raise

    def _tell_retry_end(self, attempt: int, failure: Exception | None) -> None:
        self._session.emit(
            events.AutoRetryEnd(
                success=failure is None,
                attempt=attempt,
                error_message=msgspec.UNSET if failure is None else _sentence(failure),
            )
        )


def _transient(failure: Exception) -> bool:
    overflow = isinstance(failure, ContextOverflow)
    return isinstance(failure, ProviderError) and failure.retryable and not overflow


def _sentence(failure: Exception) -> str:
    return failure.message if isinstance(failure, PiError) else f"{type(failure).__name__}: {failure}"


class _Deltas:
    """Pieces of an answer, told together: an editor need not hear of every token."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._held: events.MessageUpdate | None = None
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, event: events.MessageUpdate) -> None:
        """Hold a piece back for a moment; one of another block sends what was held."""
        held, new = self._held, event.assistant_message_event
        if held is not None:
            old = held.assistant_message_event
            if (old.type, old.content_index) != (new.type, new.content_index):
                self.flush()
        if self._held is None:
            self._held = event
            self._timer = asyncio.get_running_loop().call_later(DELTA_INTERVAL_S, self.flush)
        self._pieces.append(new.delta)

    def flush(self) -> None:
        """Tell what is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, None
        pieces, self._pieces = self._pieces, []
        if held is not None:
            delta = msgspec.structs.replace(held.assistant_message_event, delta="".join(pieces))
            self._session.emit(events.MessageUpdate(assistant_message_event=delta))
