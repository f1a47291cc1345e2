"""The agent of a session: what waits for it, what it may do, and when it begins.

Messages that cannot be worked on now are queued here and delivered once, in order, when what is in the way
has ended, well or badly. What a run does is told in `prompting.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from pi_ls.core import events
from pi_ls.core.chat import ChatModel
from pi_ls.core.errors import InvalidParams, InvalidSettings, NoModel, Untrusted
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Message,
    UserMessage,
    encode_message,
)
from pi_ls.core.triggers import MOST_FAILURES, Pause
from pi_ls.session.approvals import Approvals
from pi_ls.session.prompting import Run
from pi_ls.session.queue import Queue, user_message
from pi_ls.tools import DEFAULT_TOOLS, ProcessGroups, Toolbox, ToolContext, ToolFailed
from pi_ls.tools.bash import execute

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession, Operation

logger = logging.getLogger(__name__)

Disposition = Literal["started", "queued"]


class Agent:
    """One session's agent."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._steering = Queue()
        self._follow_ups = Queue()
        self._held = 0
        self._starting = False
        """Whether a run was begun that is not yet the session's operation."""
        self._task: asyncio.Task[None] | None = None
        self._bash: asyncio.Task[Json] | None = None
        self.pause = Pause()
        self.approvals = Approvals(session)
        self.processes = ProcessGroups()
        self.overhead_tokens = 0
        """Estimated tokens of system prompt and tools, 0 before the first run."""

    # -- prompts ---------------------------------------------------------------------------------------

    async def prompt(
        self, text: str, images: Sequence[Json] = (), behavior: Literal["steer", "followUp"] = "followUp"
    ) -> Disposition:
        """Say something to the agent: begins a run, or waits for the one that is in the way.

        Raises NoModel and NoCredentials, which no waiting would mend.
        """
        await self._check_model()
        message = user_message(text, images, _now_ms())
        queue = self._steering if behavior == "steer" and self._session.is_running else self._follow_ups
        if self._is_free():
            self._start([message])
            return "started"
        queue.put(message)
        self._tell_queue()
        return "queued"

    async def go_on(self) -> Disposition:
        """Ask the model again without saying anything. Raises InvalidParams where its answer is complete."""
        await self._check_model()
        self._session.refuse_while_busy()
        last = await asyncio.to_thread(self._session.last_message)
        if last is None or (isinstance(last, AssistantMessage) and last.stop_reason == "stop"):
            raise InvalidParams("There is nothing to continue: the agent has answered", path="command")
        self._start([])
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

    def take_steering(self) -> list[Message]:
        """What steers the run now."""
        return self._take(self._steering, self._session.environment.settings.steering_mode)

    def take_follow_ups(self) -> list[Message]:
        """What follows when the agent would stop."""
        return self._take(self._follow_ups, self._session.environment.settings.follow_up_mode)

    def _take(self, queue: Queue, mode: Literal["one-at-a-time", "all"]) -> list[Message]:
        taken = queue.take(mode)
        if taken:
            self._tell_queue()
        return taken

    def _tell_queue(self) -> None:
        update = events.QueueUpdate(steering=self._steering.texts(), follow_up=self._follow_ups.texts())
        self._session.emit(update)

    async def _check_model(self) -> None:
        model = self._session.model
        if model is None:
            raise NoModel("No model selected")
        await asyncio.to_thread(self._session.environment.require_credentials, model)

    # -- runs ------------------------------------------------------------------------------------------

    def _is_free(self) -> bool:
        return self._session.operation is None and not self._starting and not self._held

    def _start(self, messages: Sequence[UserMessage]) -> None:
        async def work() -> None:
            await self._session.operate("run", lambda operation: self._run(operation, messages))

        self._starting = True
        self._task = asyncio.create_task(work(), name=f"run {self._session.id}")
        self._task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._starting = False
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A run failed because of a fault in the program", exc_info=error)

    async def _run(self, operation: Operation, messages: Sequence[UserMessage]) -> None:
        self._starting = False
        await Run(self._session, self, operation, messages).play()

    def deliver(self, *, after_abort: bool = False) -> None:
        """Something has ended: begin with what waited for it. After an aborted run it goes on waiting."""
        if after_abort or not self.waiting or not self._is_free() or self._session.is_closed:
            return
        waiting = self.take_steering() or self.take_follow_ups()
        self._start([message for message in waiting if isinstance(message, UserMessage)])

    @contextmanager
    def held(self) -> Generator[None]:
        """Begin nothing inside: what waits is delivered afterwards."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def chat_model(self) -> ChatModel:
        """The model in use, ready to be asked. Raises NoModel and NoCredentials."""
        model = self._session.model
        if model is None:
            raise NoModel("No model selected")
        return await asyncio.to_thread(self._session.environment.chat_model, model, self._session.id)

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

        Raises Untrusted in a folder nobody vouches for.
        """
        if not self._session.environment.trusted:
            raise Untrusted(f"{self._session.environment.folder} is not trusted; no command is run in it")
        if self._bash is not None:
            raise InvalidParams("Another command is still running; wait for it or stop it", path="command")
        self._bash = asyncio.create_task(self._execute(command))
        try:
            result = await asyncio.shield(self._bash)
        except asyncio.CancelledError:
            if self._bash.cancelled():
                result = {"output": "", "exitCode": None, "cancelled": True, "truncated": False}
            else:
                self._bash.cancel()
                raise
        finally:
            self._bash = None
        await self._keep_bash(command, result, exclude_from_context)
        return result

    async def _execute(self, command: str) -> Json:
        try:
            done = await execute(command, self._context())
        except ToolFailed as error:
            raise InvalidParams(str(error), path="command") from None
        result: Json = {
            "output": done.output.text,
            "exitCode": done.exit_code,
            "cancelled": False,
            "truncated": done.output.cut,
        }
        return result | ({"fullOutputPath": done.full_output_path} if done.full_output_path else {})

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

    async def abort_bash(self) -> bool:
        """Stop the command that is running; False where none is."""
        if self._bash is None:
            return False
        self._bash.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([self._bash])
        return True

    def close(self) -> None:
        """End what was started and is still running."""
        self.approvals.close()
        self.processes.end_all()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
