"""May a tool run? Asked of a person, unless the settings or an earlier answer say so already."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pi_ls.core import events
from pi_ls.core.messages import ToolCall
from pi_ls.tools import Tool

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession
    from pi_ls.session.environment import Decision


class Approvals:
    """The questions of one session that wait for an answer, and the answers that hold on."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._asked: dict[str, asyncio.Future[Decision]] = {}
        self._allowed: set[str] = set()

    async def approve(self, call: ToolCall, tool: Tool[Any], summary: str) -> str | None:
        """None where the call may run, else a sentence for the model that says why not."""
        environment = self._session.environment
        cwd = self._session.file.header.cwd if tool.changes_things else ""
        if cwd and not await asyncio.to_thread(Path(cwd).is_dir):
            return f"The folder of this session, {cwd}, is not there any more; nothing was run."
        rule = environment.settings.approval(call.name)
        if rule == "allow" or call.name in self._allowed or call.name in environment.approved_tools:
            return None
        if rule == "deny":
            return f"The settings do not allow {call.name} (approval.{call.name})."
        decision = await self._ask(call, summary)
        if decision is None:
            return (
                f'Nobody could be asked whether {call.name} may run. Set approval.{call.name} to "allow" in '
                f"{environment.agent_dir / 'settings.json'} to let it run without asking."
            )
        if decision == "no":
            return f"The user does not want {call.name} to run."
        if decision == "session":
            self._allowed.add(call.name)
        elif decision == "always":
            await asyncio.to_thread(environment.approve_tool, call.name)
        return None

    async def _ask(self, call: ToolCall, summary: str) -> Decision | None:
        ask = self._session.environment.ask
        if ask is None:
            return None
        question = events.ApprovalRequest(
            approval_id=str(uuid.uuid4()), tool_name=call.name, args=call.arguments, summary=summary
        )
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._asked[question.approval_id] = answer
        self._session.emit(question)
        asking = asyncio.ensure_future(ask(question, self.answer))
        decision: Decision = "no"
        try:
            done, _ = await asyncio.wait({answer, asking}, return_when=asyncio.FIRST_COMPLETED)
            if answer not in done and not asking.result():
                return None
            decision = await answer
            return decision
        finally:
            asking.cancel()
            del self._asked[question.approval_id]
            self._session.emit(events.ApprovalResolved(approval_id=question.approval_id, decision=decision))

    def answer(self, approval_id: str, decision: Decision) -> bool:
        """A person's word; False where nobody waits for it any more."""
        waiting = self._asked.get(approval_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(decision)
        return True

    def close(self) -> None:
        """Nobody will answer any more."""
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_result("no")
