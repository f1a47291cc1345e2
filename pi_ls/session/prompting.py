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
from pi_ls.core.breakdown import Overhead
from pi_ls.core.chat import ChatRequest, ToolSpec
from pi_ls.core.context import build_session_context, estimate_context_tokens
from pi_ls.core.entries import Entry
from pi_ls.core.errors import ContextOverflow, InvalidSettings, PiError, ProviderError
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import AssistantMessage, Message, UserMessage, decode_message
from pi_ls.core.options import CompactionSettings
from pi_ls.core.request import FAILED_STOPS
from pi_ls.core.triggers import Due, effective, measured_tokens, overflow_due, threshold_due
from pi_ls.session import compacting
from pi_ls.session.partner import Partner
from pi_ls.session.pruning import prune_if_wanted
from pi_ls.session.queue import user_message
from pi_ls.summarize import convert_to_llm

if TYPE_CHECKING:
    from pi_ls.session.agent import Agent
    from pi_ls.session.agent_session import AgentSession, Operation

CONTINUE = "Continue if you have next steps."
"""What is said on the user's behalf after a compaction between two prompts."""

WINDOW_FULL = "the window is full"

DELTA_INTERVAL_S = 0.03
"""Pieces of an answer are told together for this long."""

DELTA_LENGTH = 4_000
"""Characters of one told piece at most: none may be so long that it is cut on its way."""


class Run:
    """One prompt's work. `play` does all of it; `abort` ends it soon, whatever it is at."""

    def __init__(self, session: AgentSession, agent: Agent, first: Sequence[UserMessage]) -> None:
        self._session = session
        self._agent = agent
        self._first = list(first)
        """What the next run of the loop begins with."""
        self._signal = loop.AbortSignal()
        self._partner = Partner(session)
        self._deltas = _Deltas(session)
        self._tools = agent.toolbox()
        self._system: str | None = None
        self._recovered = False
        self._continued = False
        self._attempt = 0
        self._answer: AssistantMessage | None = None
        self._failure: Exception | None = None

    def abort(self) -> bool:
        """Stop: what is being waited for is cancelled at once, and the run ends in order."""
        self._signal.abort()
        return True

    def settled(self) -> None:
        """It is over, and the session is free."""
        self._agent.take_back([message for message in self._first if not message.synthetic])
        self._session.emit(events.AgentSettled(aborted=self._signal.aborted))

    async def play(self, operation: Operation) -> None:
        """Work until nothing of the prompt is left. What the model raised is told in events, not raised."""
        self._operation = operation
        try:
            await self._make_room_for_first()
            await self._work()
        except loop.Aborted:
            pass  # told as such when it has settled
        finally:
            if self._attempt:
                self._tell_retry_end(self._failure)

    async def _work(self) -> None:
        while not self._signal.aborted and await self._run_once():
            due, again = self._overflow(), self._shall_try_again()
            if self._attempt and not again:
                self._tell_retry_end(self._failure)
            if due is not None:
                if self._may_recover(due) and await self._compact(due) and due.will_retry:
                    continue
            elif again:
                await self._wait_before_retry()
                continue
            compacted = due is None and await self._compact_if_due()
            if not await self._next_prompt() and not (compacted and self._may_continue()):
                return

    # -- one run of the loop ---------------------------------------------------------------------------

    async def _run_once(self) -> bool:
        """One run of the loop, from the first request to an answer that calls no tool.

        False where it did not come to its own end, because what it made could not be kept.
        """
        self._answer, self._failure = None, None
        end: events.AgentEnd | None = None
        try:
            async with aclosing(loop.run(self, self._partner, self._tools, self._signal)) as said:
                async for event in said:
                    if isinstance(event, events.AgentEnd):
                        end = event
                    else:
                        await self._take(event)
        except Exception as failure:  # noqa: BLE001 - judged below, once the end of the run is told
            self._failure = failure
        self._deltas.flush()
        self._tell_end(end)
        if self._failure is not None and not isinstance(self._failure, PiError):
            raise self._failure
        return end is not None

    def _tell_end(self, end: events.AgentEnd | None) -> None:
        """Tell the end of a run of the loop; a second overflow of one prompt is told for what it is."""
        if end is None and self._failure is not None:
            end = events.AgentEnd(error_message=_sentence(self._failure))
        due = self._overflow()
        if due is not None and due.will_retry and self._recovered and self._answer is not None:
            sentence = compacting.FAILURE_PREFIX["overflow"] + (self._answer.error_message or WINDOW_FULL)
            self._session.emit(
                events.SessionCompactFailed(
                    reason="overflow",
                    aborted=False,
                    will_retry=True,
                    from_extension=False,
                    error_message=sentence,
                )
            )
            end = events.AgentEnd(error_message=sentence)
        self._session.emit(end or events.AgentEnd())

    async def _take(self, event: events.Event) -> None:
        """Keep what is to be kept, then tell, then do what belongs between two turns."""
        match event:
            case events.MessageUpdate():
                self._deltas.add(event)
                return
            case events.MessageEnd():
                self._deltas.flush()
                entry = await self._keep(event.message)
                self._session.emit(msgspec.structs.replace(event, entry_id=entry.id))
                self._note_answer(event)
                return
            case _:
                pass
        self._deltas.flush()
        self._session.emit(event)
        if isinstance(event, events.TurnEnd):
            await self._between_turns(event)

    async def _keep(self, message: Json) -> Entry:
        """Append a message. An answer sets its path's model, but not over a switch made meanwhile."""
        session = self._session
        wanted = session.model
        entry = await session.append({"type": "message", "message": message})
        if wanted is not None and session.model != wanted:
            await session.set_model(wanted.provider, wanted.id)
        return entry

    async def _between_turns(self, event: events.TurnEnd) -> None:
        """Make room before the next request, if there will be one."""
        failed = self._answer is None or self._answer.stop_reason in FAILED_STOPS
        steering = [] if failed else self._agent.next_steering()
        if (event.tool_results or steering) and not self._signal.aborted:
            await self._compact_if_due(steering)

    def _note_answer(self, event: events.MessageEnd) -> None:
        message = decode_message(event.message)
        if isinstance(message, AssistantMessage):
            self._answer = message
            self._judge_answer(message)

    # What the loop asks of a conversation.

    async def request(self) -> ChatRequest:
        """The next request: the context of the path as it is now."""
        path, specs = tuple(self._session.tree.path()), tuple(self._tools.specs())
        counter = self._session.counter

        def make() -> ChatRequest:
            size = estimate_context_tokens(path, counter)
            context = build_session_context(path)
            messages = (one.message for one in context.messages)
            system = self._system_prompt(specs)
            besides = self._agent.overhead.tokens if size.last_usage_index is None else 0
            return ChatRequest(
                system=system,
                messages=tuple(convert_to_llm(messages, self._session.environment.prompts)),
                tools=specs,
                thinking_level=context.thinking_level,
                tokens=size.tokens + besides,
            )

        return await asyncio.to_thread(make)

    def _system_prompt(self, specs: Sequence[ToolSpec]) -> str:
        """The same for the whole run. Reads files."""
        if self._system is None:
            count = self._session.count
            self._system = self._session.environment.system_prompt(specs)
            self._agent.overhead = Overhead(
                system=count(self._system),
                tools=sum(count(msgspec.json.encode(spec).decode()) for spec in specs),
            )
        return self._system

    def steering(self) -> Sequence[Message]:
        """The prompt at first, then what was said to steer the run."""
        first, self._first = self._first, []
        return [*first, *self._agent.take_steering()]

    def follow_ups(self) -> Sequence[Message]:
        """None: what was said to follow is a prompt of its own, and room is made for it first."""
        return ()

    # -- compaction ------------------------------------------------------------------------------------

    def _limits(self) -> tuple[int, CompactionSettings] | None:
        """The window and the settings automatic compaction goes by; None where one of them is no use."""
        model = self._session.model
        if model is None or model.context_window is None:
            return None
        try:
            return model.context_window, self._session.compaction_settings()
        except InvalidSettings as error:
            self._agent.pause_for_settings(error)
            return None

    async def _threshold(self, coming: Sequence[Message], *, before_prompt: bool = False) -> Due | None:
        session, limits = self._session, self._limits()
        if limits is None or self._agent.pause.reason is not None:
            return None
        with contextlib.suppress(PiError):  # a file that cannot be rewritten is told of elsewhere
            await prune_if_wanted(session)
        window, settings = limits
        path, counter = tuple(session.tree.path()), session.counter

        def judge() -> Due | None:
            extra = sum(map(counter.message, coming))
            return threshold_due(path, window, settings, counter, extra, before_prompt=before_prompt)

        return await asyncio.to_thread(judge)

    async def _compact_if_due(self, coming: Sequence[Message] = ()) -> bool:
        """Compact where the threshold is passed; whether that was done."""
        due = await self._threshold(coming)
        return due is not None and await self._compact(due)

    async def _make_room_for_first(self) -> None:
        """Before a new prompt: with it the window must not be passed."""
        due = await self._threshold(self._first, before_prompt=True)
        if due is not None:
            await self._compact(due)

    def _overflow(self) -> Due | None:
        """Whether the last answer shows an overflow."""
        answer, limits = self._answer, self._limits()
        if answer is None or limits is None or not limits[1].enabled:
            return None
        known = None if self._failure is None else isinstance(self._failure, ContextOverflow)
        return overflow_due(answer, limits[0], same_model=self._is_of_this_model(answer), known=known)

    def _is_of_this_model(self, answer: AssistantMessage) -> bool:
        model = self._session.model
        return model is not None and (answer.provider, answer.model) == (model.provider, model.id)

    def _may_recover(self, due: Due) -> bool:
        """An answer that failed is asked for again once for each prompt."""
        if not due.will_retry:
            return True
        first, self._recovered = not self._recovered, True
        return first

    async def _compact(self, due: Due) -> bool:
        """One automatic compaction; False where nothing was to be done, it failed or was stopped."""
        work = compacting.compact_automatically(self._session, self._operation, due)
        try:
            done = await self._signal.guard(work)
        except loop.Aborted:
            return False
        except PiError:  # told by its own end
            if self._agent.pause.failed():
                self._agent.tell_paused()
            return False
        if done:
            self._agent.pause.compacted()
        return done

    def _judge_answer(self, answer: AssistantMessage) -> None:
        """Whether automatic compaction helps: the first answer after one must be under the threshold."""
        session, limits = self._session, self._limits()
        if answer.usage is None or answer.stop_reason in FAILED_STOPS or limits is None:
            return
        window, settings = limits
        tokens = measured_tokens(session.tree.path(), session.counter) or 0
        over = tokens > window - effective(settings, window).reserve_tokens
        if self._agent.pause.answered(over_threshold=over):
            self._agent.tell_paused()
        elif not over and self._agent.pause.reason is not None:
            self._agent.resume()

    # -- going on --------------------------------------------------------------------------------------

    async def _next_prompt(self) -> bool:
        """Whether something waits: it becomes the next run's first messages, and room is made for it."""
        if self._signal.aborted:
            return False
        self._first = self._agent.take_steering() or self._agent.take_follow_ups()
        if not self._first:
            return False
        self._recovered = self._continued = False
        self._attempt = 0
        await self._make_room_for_first()
        return True

    def _may_continue(self) -> bool:
        """Whether the agent goes on by itself after a compaction: once between two prompts of the user."""
        limits = self._limits()
        if limits is None or self._continued or self._signal.aborted or limits[1].auto_continue is False:
            return False
        finished = self._answer is not None and self._answer.stop_reason == "stop"
        if limits[1].auto_continue == "unfinished" and finished:
            return False
        self._continued = True
        self._first = [user_message(CONTINUE, (), time.time_ns() // 1_000_000, synthetic=True)]
        return True

    # -- trying again ----------------------------------------------------------------------------------

    def _shall_try_again(self) -> bool:
        """Whether the answer failed in passing, and has not failed too often."""
        retry = self._session.environment.settings.retry()
        most = retry.max_retries if retry.enabled else 0
        return self._failure is not None and _transient(self._failure) and self._attempt < most

    async def _wait_before_retry(self) -> None:
        retry, failure = self._session.environment.settings.retry(), self._failure
        assert failure is not None
        self._attempt += 1
        asked = failure.data.get("retryAfterMs") if isinstance(failure, ProviderError) else None
        delay = retry.base_delay_ms * 2 ** (self._attempt - 1) if asked is None else asked
        delay = min(delay, retry.max_agent_delay_ms)
        self._session.emit(
            events.AutoRetryStart(
                attempt=self._attempt,
                max_attempts=retry.max_retries,
                delay_ms=int(delay),
                error_message=_sentence(failure),
            )
        )
        await self._signal.guard(asyncio.sleep(delay / 1000))

    def _tell_retry_end(self, failure: Exception | None) -> None:
        """Tell that asking again is over; an answer that was aborted is none."""
        attempt, self._attempt = self._attempt, 0
        self._session.emit(
            events.AutoRetryEnd(
                success=failure is None and not self._signal.aborted,
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
        self._length = 0
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
        self._length += len(new.delta)
        if self._length >= DELTA_LENGTH:
            self.flush()

    def flush(self) -> None:
        """Tell what is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, None
        text, self._pieces, self._length = "".join(self._pieces), [], 0
        if held is None:
            return
        for start in range(0, max(len(text), 1), DELTA_LENGTH):
            part = text[start : start + DELTA_LENGTH]
            delta = msgspec.structs.replace(held.assistant_message_event, delta=part)
            self._session.emit(events.MessageUpdate(assistant_message_event=delta))
