"""A provider on loopback that answers as it is told: OpenAI chat, Anthropic messages, summary endpoint.

It runs inside a test (`async with Provider() as provider`) or as a process of its own
(`with ProviderProcess() as provider`, `python -m tests.provider`), so that the real client library, its
transport and its error mapping are part of what is tested. Every request is recorded, and so is every
connection that the client closed before the answer was complete.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

Json = dict[str, Any]

USAGE: Json = {"prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100}
CACHED: Json = {
    "prompt_tokens": 91_000,
    "completion_tokens": 500,
    "total_tokens": 91_500,
    "prompt_tokens_details": {"cached_tokens": 90_000},
}
"""Usage with 90,000 tokens that were read from a cache; they are part of the prompt's."""
WRITTEN: Json = {
    "prompt_tokens": 92_000,
    "completion_tokens": 500,
    "total_tokens": 92_500,
    "cache_read_input_tokens": 90_000,
    "cache_creation_input_tokens": 1_000,
    "prompt_tokens_details": {"cached_tokens": 90_000},
}
"""The same, and 1,000 that were written to it."""
UNTOTALLED: Json = {key: value for key, value in CACHED.items() if key != "total_tokens"}


class Call(msgspec.Struct):
    """A tool call the model makes; `arguments` is the JSON text, sent as it is."""

    id: str = "call_1"
    name: str = "read"
    arguments: str = "{}"


class Reply(msgspec.Struct, kw_only=True):
    """One scripted answer. By default a complete stream (or a whole object where none was asked for)."""

    text: str | None = "ok"
    reasoning: str = ""
    calls: list[Call] = []
    finish: str | None = "stop"
    """OpenAI's finish reason, translated for Anthropic; None ends the stream without one."""
    usage: Json | None = msgspec.field(default_factory=lambda: dict(USAGE))
    """In OpenAI's form; None: the provider reports none."""
    choices: bool = True
    """False: the answer holds no choice at all."""
    status: int = 200
    body: Any = None
    """Instead of an answer: a JSON value, or a text sent as it is."""
    headers: dict[str, str] = {}
    raw: str | None = None
    """Instead of the events of a stream: what is sent in their place."""
    piece: int = 16
    """Characters to an event."""
    delay: float = 0
    """Seconds before the answer."""
    pause: float = 0
    """Seconds between two events."""
    hang: bool = False
    """Never answer."""
    hang_after: int | None = None
    """Fall silent after so many events."""
    drop_after: int | None = None
    """Cut the connection after so many events."""
    ping: float | None = None
    """With `hang_after`: a comment line every so many seconds instead of silence."""
    padding: int = 0
    """So many more bytes of body, for an answer that is too big."""


class Received(msgspec.Struct):
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: Json
    at: float

    @property
    def system(self) -> str:
        """The system prompt, wherever the protocol puts it."""
        if "system" in self.body:
            return _text(self.body["system"])
        return "".join(_text(m["content"]) for m in self.body["messages"] if m["role"] == "system")

    @property
    def prompt(self) -> str:
        """The text of the user messages."""
        return "".join(_text(m["content"]) for m in self.body["messages"] if m["role"] == "user")

    @property
    def max_tokens(self) -> int | None:
        """The output limit asked for, under either of its names."""
        return self.body.get("max_completion_tokens") or self.body.get("max_tokens")


def error(status: int, message: str = "scripted failure", **headers: str) -> Reply:
    """An answer with an error status; `retry_after="1"` becomes a Retry-After header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(
        status=status,
        headers=named,
        body={"type": "error", "error": {"type": "scripted", "message": message}},
    )


class Addresses:
    """Where the kinds of client find a provider that listens at `url`."""

    url: str

    @property
    def openai(self) -> str:
        """Base address for OpenAI-like clients."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """Base address for Anthropic clients."""
        return self.url

    @property
    def summary(self) -> str:
        """Address of the summary endpoint."""
        return f"{self.url}/summary"


class Provider(Addresses):
    """The provider inside a test. Answers from `script` in order, then with `default`.

    `decide`, where set, is asked first: it gets the request and may return a reply.
    """

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.default = Reply()
        self.decide: Callable[[Received], Reply | None] | None = None
        self.requests: list[Received] = []
        self.closed: list[float] = []
        self.events = 0
        """Pieces of streams sent so far."""
        self.open = 0
        self.most_open = 0
        self._gate = asyncio.Event()
        self._gate.set()
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=1 << 28)
        application.router.add_post("/v1/chat/completions", self._chat)
        application.router.add_post("/v1/messages", self._messages)
        application.router.add_route("*", "/summary", self._summary)
        application.router.add_post("/control/script", self._control_script)
        application.router.add_get("/control/state", self._control_state)
        self._runner = web.AppRunner(
            application, handler_cancellation=True, shutdown_timeout=0.1, access_log=None
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner:
            await self._runner.cleanup()

    def reset(self) -> None:
        """Forgets script and records; every answer is the default one again and comes at once."""
        self.script, self.default, self.decide = [], Reply(), None
        self.requests, self.closed, self.most_open = [], [], self.open
        self.release()

    def hold(self) -> None:
        """From now on every answer waits for `release`."""
        self._gate.clear()

    def release(self) -> None:
        """Lets go of the answers that are held, and holds no more."""
        self._gate.set()

    async def until(self, condition: Callable[[Provider], bool], seconds: float = 10) -> None:
        """Waits until the condition holds of this provider."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _openai_events, _openai_whole)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _anthropic_events, _anthropic_whole)

    async def _summary(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, None, lambda reply, _body: {"summary": reply.text})

    async def _answer(
        self,
        request: web.Request,
        events: Callable[[Reply, Json], Iterator[bytes]] | None,
        whole: Callable[[Reply, Json], Json],
    ) -> web.StreamResponse:
        raw = await request.read()
        body: Json = json.loads(raw) if raw else {}
        received = Received(request.path, dict(request.headers), body, time.perf_counter())
        self.requests.append(received)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        self._changed.set()
        try:
            reply = (self.decide and self.decide(received)) or self._next()
            await self._gate.wait()
            return await self._send(request, reply, body, events if body.get("stream") else None, whole)
        except (asyncio.CancelledError, ConnectionError):
            self.closed.append(time.perf_counter())
            raise
        finally:
            self.open -= 1
            self._changed.set()

    def _next(self) -> Reply:
        return self.script.pop(0) if self.script else self.default

    async def _send(
        self,
        request: web.Request,
        reply: Reply,
        body: Json,
        events: Callable[[Reply, Json], Iterator[bytes]] | None,
        whole: Callable[[Reply, Json], Json],
    ) -> web.StreamResponse:
        if reply.hang:
            await asyncio.Event().wait()
        await asyncio.sleep(reply.delay)
        if reply.status != 200 or reply.body is not None or events is None:
            value = reply.body if reply.body is not None else whole(reply, body)
            text = value if isinstance(value, str) else json.dumps(value)
            kind = "text/html" if text.startswith("<") else "application/json"
            return web.Response(
                status=reply.status,
                body=text.encode() + b" " * reply.padding,
                headers=reply.headers,
                content_type=kind,
            )
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **reply.headers})
        await response.prepare(request)
        pieces = iter([reply.raw.encode()]) if reply.raw is not None else events(reply, body)
        for number, piece in enumerate(pieces):
            if number == reply.drop_after:
                _cut(request)
                return response
            if number == reply.hang_after:
                await self._hang(response, reply)
            await response.write(piece)
            self.events += 1
            self._changed.set()
            await asyncio.sleep(reply.pause)
        return response

    async def _hang(self, response: web.StreamResponse, reply: Reply) -> None:
        while reply.ping is not None:
            await response.write(b": ping\n\n")
            await asyncio.sleep(reply.ping)
        await asyncio.Event().wait()

    async def _control_script(self, request: web.Request) -> web.Response:
        replies = msgspec.json.decode(await request.read(), type=list[Reply])
        self.script.extend(replies)
        return web.json_response({"queued": len(self.script)})

    async def _control_state(self, _request: web.Request) -> web.Response:
        state = {"requests": self.requests, "closed": len(self.closed)}
        return web.Response(body=msgspec.json.encode(state), content_type="application/json")


class ProviderProcess(Addresses):
    """The provider as a process of its own, for tests that start the program under test as one too."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.provider"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process:
            self._process.communicate()

    def queue(self, *replies: Reply) -> None:
        """Adds answers to the script."""
        self._call("/control/script", msgspec.json.encode(replies))

    @property
    def requests(self) -> list[Received]:
        """The requests so far."""
        return msgspec.convert(self._state()["requests"], list[Received])

    async def until(self, *, requests: int = 0, closed: int = 0, seconds: float = 60) -> None:
        """Waits until so many requests have come, and so many connections been closed by the client."""
        async with asyncio.timeout(seconds):
            while len((state := self._state())["requests"]) < requests or state["closed"] < closed:
                await asyncio.sleep(0.02)

    @property
    def closed(self) -> int:
        """How many connections the client closed before the answer was complete."""
        return self._state()["closed"]

    def _state(self) -> Json:
        return self._call("/control/state", None)

    def _call(self, path: str, data: bytes | None) -> Json:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, data, timeout=10) as response:
            return json.loads(response.read())


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def _cut(request: web.Request) -> None:
    if request.transport:
        request.transport.abort()


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _openai_events(reply: Reply, body: Json) -> Iterator[bytes]:
    frame = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}

    def event(**fields: Any) -> bytes:
        return b"data: " + json.dumps({**frame, **fields}).encode() + b"\n\n"

    def delta(finish: str | None = None, **fields: Any) -> bytes:
        return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish}])

    if reply.choices:
        yield delta(role="assistant", content="" if reply.text is not None else None)
        for piece in _pieces(reply.reasoning, reply.piece):
            yield delta(reasoning_content=piece)
        for piece in _pieces(reply.text or "", reply.piece):
            yield delta(content=piece)
        for index, call in enumerate(reply.calls):
            opened = {"name": call.name, "arguments": ""}
            yield delta(tool_calls=[{"index": index, "id": call.id, "type": "function", "function": opened}])
            for piece in _pieces(call.arguments, reply.piece):
                yield delta(tool_calls=[{"index": index, "function": {"arguments": piece}}])
        if reply.finish:
            yield delta(reply.finish)
    if reply.usage and _asks_for_usage(body):
        yield event(choices=[], usage=reply.usage)
    yield b"data: [DONE]\n\n"


def _asks_for_usage(body: Json) -> bool:
    options: Json = body.get("stream_options") or {}
    return bool(options.get("include_usage"))


def _openai_whole(reply: Reply, body: Json) -> Json:
    message: Json = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.calls
        ]
    choices = [{"index": 0, "message": message, "finish_reason": reply.finish}] if reply.choices else []
    answer = {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": choices,
    }
    return answer | ({"usage": reply.usage} if reply.usage else {})


_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _anthropic_usage(reply: Reply) -> Json:
    usage = reply.usage or {}
    cached = {key: value for key, value in usage.items() if key.startswith("cache_")}
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "output_tokens": usage.get("completion_tokens", 0),
        **cached,
    }


def _anthropic_blocks(reply: Reply) -> Iterator[tuple[Json, list[Json]]]:
    """Each content block as it starts, with the deltas that fill it."""
    if reply.reasoning:
        thoughts = [{"type": "thinking_delta", "thinking": p} for p in _pieces(reply.reasoning, reply.piece)]
        signed = [{"type": "signature_delta", "signature": "c2lnbmF0dXJl"}]
        yield {"type": "thinking", "thinking": "", "signature": ""}, thoughts + signed
    if reply.text:
        texts = [{"type": "text_delta", "text": piece} for piece in _pieces(reply.text, reply.piece)]
        yield {"type": "text", "text": ""}, texts
    for call in reply.calls:
        parts = [
            {"type": "input_json_delta", "partial_json": p} for p in _pieces(call.arguments, reply.piece)
        ]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, parts


def _anthropic_message(reply: Reply, body: Json, content: list[Json], stop: str | None) -> Json:
    return {
        "id": "msg-1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _anthropic_usage(reply),
    }


def _anthropic_events(reply: Reply, body: Json) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()

    yield event("message_start", message=_anthropic_message(reply, body, [], None))
    for index, (block, deltas) in enumerate(_anthropic_blocks(reply)):
        yield event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    if reply.finish:
        stop = _STOP_REASONS.get(reply.finish, reply.finish)
        output = {"output_tokens": _anthropic_usage(reply)["output_tokens"]}
        yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=output)
    yield event("message_stop")


def _anthropic_whole(reply: Reply, body: Json) -> Json:
    content: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": json.loads(c.arguments)}
        for c in reply.calls
    ]
    stop = _STOP_REASONS.get(reply.finish or "", reply.finish)
    return _anthropic_message(reply, body, content, stop)


async def main() -> None:
    """Serves until standard input ends; the address is the first line of standard output."""
    async with Provider() as provider:
        print(provider.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
