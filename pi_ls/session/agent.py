"""The agent of a session: what waits for it, what it may do, and when it begins.

Messages that cannot be worked on now are queued here and delivered once, in order, when what is in the way
has ended, well or badly. What a run does is told in `prompting.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from pi_ls.core import events
from pi_ls.core.breakdown import NO_OVERHEAD
from pi_ls.core.errors import Busy, InvalidParams, InvalidSettings, NoModel, Untrusted
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    UserMessage,
    encode_message,
)
from pi_ls.core.triggers import MOST_FAILURES, Pause
from pi_ls.session.approvals import Approvals
from pi_ls.session.prompting import Run
from pi_ls.session.queue import Queue, QueueMode, user_message
from pi_ls.tools import DEFAULT_TOOLS, ProcessGroups, Toolbox, ToolContext, ToolFailed
from pi_ls.tools.bash import execute

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession

logger = logging.getLogger(__name__)

Disposition = Literal["started", "queued"]


class Agent:
    """One session's agent."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._steering = Queue()
        self._follow_ups = Queue()
        self._held = 0
        self._admission = asyncio.Lock()
        self._bash: _UserCommand | None = None
        self._keeping: set[asyncio.Task[None]] = set()
        self.pause = Pause()
        self.approvals = Approvals(session)
        self.processes = ProcessGroups()
        self.overhead = NO_OVERHEAD
        """What every request holds besides the conversation; nothing is known before the first run."""

    # -- prompts ---------------------------------------------------------------------------------------

    async def prompt(
        self, text: str, images: Sequence[Json] = (), behavior: Literal["steer", "followUp"] = "followUp"
    ) -> Disposition:
        """Say something to the agent: begins a run, or waits for the one that is in the way.

        Raises InvalidParams where there is nothing to say, and NoModel, NoCredentials and SessionReadOnly,
        which no waiting would mend.
        """
        if not text.strip() and not images:
            raise InvalidParams("There is nothing to say: a prompt has a text or a picture", path="text")
        async with self._admission:  # one after the other, in the order they came
            await self._check()
            message = user_message(text, images, _now_ms())
            if self._is_free() and not self.waiting:
                self._start([message])
                return "started"
            steers = behavior == "steer" and self._session.is_running
            (self._steering if steers else self._follow_ups).put(message)
            self._tell_queue()
            self.deliver()  # what has been waiting since an aborted run goes first
            return "queued"

    async def go_on(self) -> Disposition:
        """Ask the model again without saying anything, or with what has been waiting.

        Raises InvalidParams where its answer is complete and nothing waits, and what `prompt` raises.
        """
        async with self._admission:
            await self._check()
            last = await asyncio.to_thread(self._session.last_message)
            self._session.refuse_while_busy()
            complete = last is None or (isinstance(last, AssistantMessage) and last.stop_reason == "stop")
            if not complete:
                self._start([])
            elif self.waiting:
                self.deliver()
            else:
                raise InvalidParams("There is nothing to continue: the agent has answered", path="command")
            return "started"

    def clear_queue(self) -> Json:
        """Forget what waits; returns the texts."""
        cleared: Json = {"steering": self._steering.clear(), "followUp": self._follow_ups.clear()}
        self._tell_queue()
        return cleared

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._steering) + len(self._follow_ups)

    def next_steering(self) -> list[UserMessage]:
        """What would steer the run now; it goes on waiting."""
        return self._steering.next(self._session.environment.settings.steering_mode)

    def take_steering(self) -> list[UserMessage]:
        """What steers the run now."""
        return self._take(self._steering, self._session.environment.settings.steering_mode)

    def take_follow_ups(self) -> list[UserMessage]:
        """What follows when the agent would stop."""
        return self._take(self._follow_ups, self._session.environment.settings.follow_up_mode)

    def take_back(self, messages: Sequence[UserMessage]) -> None:
        """A run was stopped before it came to these: they wait again, and go first."""
        if messages:
            self._follow_ups.put_back(messages)
            self._tell_queue()

    def _take(self, queue: Queue, mode: QueueMode) -> list[UserMessage]:
        taken = queue.take(mode)
        if taken:
            self._tell_queue()
        return taken

    def _tell_queue(self) -> None:
        update = events.QueueUpdate(steering=self._steering.texts(), follow_up=self._follow_ups.texts())
        self._session.emit(update)

    async def _check(self) -> None:
        self._session.require_writable()
        model = self._session.model
        if model is None:
            raise NoModel("No model selected")
        await asyncio.to_thread(self._session.environment.require_credentials, model)

    # -- runs ------------------------------------------------------------------------------------------

    def _is_free(self) -> bool:
        return self._session.operation is None and not self._held

    def _start(self, messages: Sequence[UserMessage]) -> None:
        run = Run(self._session, self, messages)
        operation = self._session.begin("run", run.play)
        operation.stop, operation.over = run.abort, run.settled
        assert operation.task is not None
        operation.task.add_done_callback(_log_fault)

    def deliver(self, *, after_abort: bool = False) -> None:
        """Something has ended: begin with what waited for it. After an aborted run it goes on waiting."""
        if after_abort or not self.waiting or not self._is_free() or self._session.is_closed:
            return
        self._start(self.take_steering() or self.take_follow_ups())

    @contextmanager
    def held(self) -> Generator[None]:
        """Begin nothing inside: what waits is delivered afterwards."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def toolbox(self) -> Toolbox:
        """The tools of the session as it is now."""
        names = self._session.environment.settings.default_tools
        return Toolbox(DEFAULT_TOOLS if names is None else names, self._context(), self.approvals.approve)

    def _context(self) -> ToolContext:
        environment = self._session.environment
        return ToolContext(
            folder=environment.folder,
            workspace=environment.documents,
            trusted=environment.trusted,
            processes=self.processes,
            shell=environment.settings.shell_path,
        )

    # -- automatic compaction --------------------------------------------------------------------------

    def tell_paused(self) -> None:
        """Tell that automatic compaction has given up."""
        failures = (
            f"Automatic compaction has failed {MOST_FAILURES} times in a row and pauses. It goes on after a "
            "compaction by hand, or with another model or other settings"
        )
        no_progress = (
            "The context is over the limit again right after a compaction, so automatic compaction pauses. "
            "What is kept, or the system prompt, may be too large for the window"
        )
        reason = self.pause.reason
        if reason is not None:
            message = failures if reason == "failures" else no_progress
            self._session.emit(events.AutoCompactionPaused(reason=reason, message=message))
            self._session.usage_changed()

    def resume(self) -> None:
        """Let automatic compaction try again."""
        if self.pause.lift():
            self._session.emit(events.AutoCompactionResumed())
            self._session.usage_changed()

    def pause_for_settings(self, error: InvalidSettings) -> None:
        """Tell, once for each sentence, that settings keep automatic compaction from running."""
        self._session.tell_once(events.AutoCompactionPaused(reason="settings", message=error.message))

    # -- commands of the user --------------------------------------------------------------------------

    async def bash(self, command: str, *, exclude_from_context: bool = False) -> Json:
        """Run a command for the user and keep it in the session.

        Stopped by `abort_bash` or by cancelling the caller, it is kept and answered all the same, with what
        it wrote until then. Raises Untrusted in a folder nobody vouches for, Busy while another one runs.
        """
        self._session.require_writable()
        if not self._session.environment.trusted:
            raise Untrusted(f"{self._session.environment.folder} is not trusted; no command is run in it")
        if self._bash is not None:
            raise Busy("Wait for the command that is running, or stop it first", operation="bash")
        running = self._bash = _UserCommand(command, self._context())
        try:
            result = await running.result()
        finally:
            self._bash = None
        keeping = asyncio.create_task(self._keep_bash(command, result, exclude_from_context))
        self._keeping.add(keeping)
        keeping.add_done_callback(self._kept_bash)
        if not self._session.is_running:
            await asyncio.shield(keeping)
        return result

    async def _keep_bash(self, command: str, result: Json, exclude: bool) -> None:
        message = BashExecutionMessage(
            command=command,
            output=result["output"],
            exit_code=result["exitCode"],
            cancelled=result["cancelled"],
            truncated=result["truncated"],
            full_output_path=result.get("fullOutputPath"),
            exclude_from_context=exclude,
            timestamp=_now_ms(),
        )
        # Nothing may stand between a call and its result: it is kept when the run is over.
        await self._session.after_run()
        await self._session.append({"type": "message", "message": encode_message(message)})

    def _kept_bash(self, task: asyncio.Task[None]) -> None:
        self._keeping.discard(task)
        _log_fault(task)

    async def abort_bash(self) -> bool:
        """Stop the command that is running; False where none is."""
        if self._bash is None:
            return False
        self._bash.stop()
        await asyncio.wait([self._bash.task])
        return True

    async def close(self) -> None:
        """End what was started and is still running; nothing runs in the session any more."""
        self.approvals.close()
        if self._keeping:
            await asyncio.wait(self._keeping)
        await asyncio.to_thread(self.processes.end_all)


class _UserCommand:
    """A command of the user that is running."""

    def __init__(self, command: str, context: ToolContext) -> None:
        self._command, self._context = command, context
        self._stop = asyncio.Event()
        self.stop = self._stop.set
        self.task = asyncio.create_task(self._run())

    async def result(self) -> Json:
        """What `pi.bash` answers. Cancelling the wait stops the command, and its end is waited for."""
        while not self.task.done():
            try:
                await asyncio.wait([self.task])
            except asyncio.CancelledError:
                self.stop()
        return self.task.result()

    async def _run(self) -> Json:
        try:
            done = await execute(self._command, self._context, stop=self._stop)
        except ToolFailed as error:
            raise InvalidParams(str(error), path="command") from None
        result: Json = {
            "output": done.output.text,
            "exitCode": done.exit_code,
            "cancelled": done.ended_because is not None,
            "truncated": done.output.cut,
        }
        return result | ({"fullOutputPath": done.full_output_path} if done.full_output_path else {})


def _log_fault(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s failed", task.get_name(), exc_info=error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
