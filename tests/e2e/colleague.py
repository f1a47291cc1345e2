"""A desk at which the agent works: prompts and their runs, what the model says, what it was asked.

The model's answers and the summaries are two scripts; a request that has tools is a chat request. Every chat
request is checked for calls and results that belong together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.e2e.office import ANSWER_TIMEOUT_S, Desk, Office
from tests.e2e.raw import Json
from tests.provider import Call, Provider, Received, Reply, error

OVERFLOW = "prompt is too long: 210000 tokens > 200000 maximum"
CONTINUE = "Continue if you have next steps."


def measured(total: int, *, output: int = 0, cached: int = 0) -> Json:
    """A usage in OpenAI's form."""
    usage: Json = {
        "prompt_tokens": total - output,
        "completion_tokens": output,
        "total_tokens": total,
    }
    return usage | ({"prompt_tokens_details": {"cached_tokens": cached}} if cached else {})


def says(text: str = "ok", total: int | None = 1_000, **more: Any) -> Reply:
    """A final answer; `total` is its measured usage, None where the provider tells none."""
    usage = None if total is None else measured(total, output=min(total, 1))
    return Reply(text=text, usage=usage, **more)


def calls(*wanted: Call, total: int = 1_000, text: str | None = None, **more: Any) -> Reply:
    """An answer that calls tools."""
    usage = measured(total, output=1)
    return Reply(text=text, calls=list(wanted), finish="tool_calls", usage=usage, **more)


def call(name: str, call_id: str = "call_1", /, **arguments: Any) -> Call:
    """A tool call."""
    return Call(call_id, name, json.dumps(arguments))


def overflows(text: str = OVERFLOW, status: int = 400) -> Reply:
    """A refusal because the request is too long."""
    return error(status, text)


def is_chat(request: Received) -> bool:
    """Whether the agent asked, and not a summarizer."""
    return bool(request.body.get("tools"))


def texts(request: Received, role: str | None = None) -> list[str]:
    """The texts of a request's messages, of one role or of all but the system's."""
    wanted = [
        m for m in request.body["messages"] if m["role"] == role or (not role and m["role"] != "system")
    ]
    return [_text(message.get("content")) for message in wanted]


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def unpaired(request: Received) -> list[str]:
    """What is wrong with the calls and results of a chat request: each call has one result, right after."""
    faults: list[str] = []
    waiting: list[str] = []
    for message in request.body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                faults.append(f"a result without its call: {message['tool_call_id']}")
            continue
        faults += [f"a call without its result: {one}" for one in waiting]
        waiting = [one["id"] for one in message.get("tool_calls") or ()]
        for one in message.get("tool_calls") or ():
            if not isinstance(json.loads(one["function"]["arguments"]), dict):
                faults.append(f"arguments that are no object: {one}")
    return faults + [f"a call without its result at the end: {one}" for one in waiting]


class Model:
    """The model behind a provider: what it will say, and what it was asked."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.answers: list[Reply] = []
        """What it says next, in order; then `default`."""
        self.default = says()
        self.summaries: list[Reply] = []
        self.default_summary = Reply(text="S")
        self.decide: Callable[[Received], Reply | None] | None = None
        """Asked before the script of answers, for chat requests."""
        self.faults: list[str] = []
        provider.decide = self._answer

    def _answer(self, request: Received) -> Reply:
        if not is_chat(request):
            return self.summaries.pop(0) if self.summaries else self.default_summary
        self.faults += unpaired(request)
        decided = self.decide(request) if self.decide is not None else None
        return decided or (self.answers.pop(0) if self.answers else self.default)

    @property
    def order(self) -> list[str]:
        """The requests so far, as `chat` and `summary`."""
        return ["chat" if is_chat(request) else "summary" for request in self.provider.requests]

    @property
    def chats(self) -> list[Received]:
        """The agent's requests so far."""
        return [request for request in self.provider.requests if is_chat(request)]

    @property
    def asked_for_summaries(self) -> list[Received]:
        """The summarizers' requests so far."""
        return [request for request in self.provider.requests if not is_chat(request)]


class Colleague(Desk):
    """A desk with an agent."""

    def __init__(self, office: Office) -> None:
        super().__init__(office)
        self.model = Model(office.provider)

    async def say(self, text: str, **more: Any) -> Json:
        """Prompt the agent and wait until nothing of it is left to do; returns what the settling told."""
        before = len(self.named("agent_settled"))
        await self.run("pi.prompt", text=text, **more)
        return await self.settled(before + 1)

    async def settled(self, times: int = 1) -> Json:
        """Wait for the so manieth end of a run."""
        return await self.until_told_times("agent_settled", times)

    async def until_told_times(self, name: str, times: int) -> Json:
        """Wait for the so manieth event of that name."""
        await self.server.until(lambda: len(self.named(name)) >= times, ANSWER_TIMEOUT_S)
        return self.named(name)[times - 1]

    async def stop_all(self) -> None:
        """Stop what still runs in the sessions of this desk: its requests shall not reach the next."""
        for session_id in {one["sessionId"] for one in self.named("session_opened")}:
            await self.answer(self.begin("pi.clearQueue", sessionId=session_id))
            await self.answer(self.begin("pi.abort", sessionId=session_id))

    def entries(self, kind: str | None = None, role: str | None = None) -> list[Json]:
        """The entries of the file, of one type or all, messages of one role or all."""
        return [
            line
            for line in self.written()[1:]
            if (kind is None or line["type"] == kind)
            and (role is None or line.get("message", {}).get("role") == role)
        ]

    def messages(self, role: str | None = None) -> list[Json]:
        """The messages of the file."""
        return [line["message"] for line in self.entries("message", role)]

    def results(self) -> list[tuple[str, bool]]:
        """Text and `isError` of each tool result of the file."""
        return [(_text(message["content"]), message["isError"]) for message in self.messages("toolResult")]

    def compactions(self) -> list[str]:
        """The starts and ends of compactions, each with its reason."""
        return [
            f"{message['method'].rpartition('_')[2]} {message['params']['reason']}"
            for message in self.told("compaction_start", "compaction_end")
        ]

    def told(self, *names: str) -> list[Json]:
        """The notifications of these names about this desk, in order."""
        wanted = {f"pi/{name}" for name in names}
        return [
            message
            for message in self.server.messages
            if message.get("method") in wanted and message["params"].get("workspace") == self.folder.as_uri()
        ]
