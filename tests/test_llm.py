"""Models through the real litellm, against a provider on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pi_ls.core.errors import ContextOverflow, NoCredentials, PiError, ProviderError
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import AssistantMessage, decode_usage
from pi_ls.core.overflow import is_context_overflow, says_overflow
from pi_ls.llm import (
    Completion,
    LitellmModel,
    Request,
    is_overflow_error,
    text_counter,
    usage_from_litellm,
)
from pi_ls.llm.asking import limit_name, routing
from pi_ls.llm.failures import retry_after
from pi_ls.models import ModelCost, ModelInfo
from pi_ls.secrets import redacted
from tests.conformance_data import table
from tests.models import KEY, anthropic_model, openai_model
from tests.provider import CACHED, UNTOTALLED, WRITTEN, Call, Provider, ProviderProcess, Reply, error

REQUEST = Request(system="be brief", prompt="say it", max_tokens=9_000)
MODELS = [pytest.param(openai_model, id="openai"), pytest.param(anthropic_model, id="anthropic")]
MakeModel = Callable[..., LitellmModel]


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as running:
        yield running


async def failure(model: LitellmModel, request: Request = REQUEST) -> PiError:
    with pytest.raises(PiError) as caught:
        await model.complete(request)
    return caught.value


# --- answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS)
async def test_an_answer_arrives_whole_with_one_request(provider: Provider, make: MakeModel) -> None:
    provider.script = [Reply(text="It is said. " * 20, reasoning="how to say it")]

    answer = await make(provider).complete(REQUEST)

    assert (answer.text, answer.thinking) == ("It is said. " * 20, "how to say it")
    assert (answer.stop_reason, answer.tool_calls) == ("stop", 0)
    assert answer.usage
    assert (answer.usage.input, answer.usage.output, answer.usage.total_tokens) == (70, 30, 100)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(text=""), Completion()),
        (Reply(text=None, reasoning="only this"), Completion(thinking="only this")),
        (Reply(text=" \n\t"), Completion(text=" \n\t")),
        (Reply(text="half a", finish="length"), Completion(text="half a", stop_reason="length")),
        (
            Reply(text="", calls=[Call(), Call(id="call_2")], finish="tool_calls"),
            Completion(stop_reason="toolUse", tool_calls=2),
        ),
        (Reply(text="no", finish="content_filter"), Completion(text="no", stop_reason="error")),
    ],
    ids=["empty", "all reasoning", "blank", "cut off", "tool calls", "withheld"],
)
async def test_what_is_no_plain_answer_can_be_told(
    provider: Provider, make: MakeModel, reply: Reply, expected: Completion
) -> None:
    if reply.finish == "content_filter" and make is anthropic_model:
        reply.finish = "refusal"
    reply.usage = None
    provider.script = [reply]

    assert await make(provider).complete(REQUEST) == expected


async def test_an_answer_without_choices_is_empty_or_a_failure_in_passing(provider: Provider) -> None:
    provider.script = [Reply(choices=False, usage=None), Reply(choices=False)]
    model = openai_model(provider)

    assert await model.complete(REQUEST) == Completion()
    assert isinstance(failed := await failure(model), ProviderError)
    assert failed.retryable


@pytest.mark.parametrize("raw", ["", ": ping\n\n", "<html>sign in</html>"])
async def test_a_stream_of_nothing_is_an_empty_answer(provider: Provider, raw: str) -> None:
    provider.script = [Reply(raw=raw)]

    assert await openai_model(provider).complete(REQUEST) == Completion()


# --- the request -----------------------------------------------------------------------------------------


async def test_the_request_is_two_plain_messages_without_tools(provider: Provider) -> None:
    await openai_model(provider).complete(REQUEST)

    body = provider.requests[0].body
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "say it"},
    ]
    assert body["max_tokens"] == 9_000
    assert body["stream_options"] == {"include_usage": True}
    assert "tools" not in body


async def test_half_an_emoji_does_not_make_the_request_fail(provider: Provider) -> None:
    await openai_model(provider).complete(
        Request(system="s", prompt="a \ud83d b \ud83d\ude00", max_tokens=10)
    )

    assert provider.requests[0].prompt == "a \ufffd b \U0001f600"


@pytest.mark.parametrize("make", MODELS)
async def test_each_request_has_a_routing_id_of_its_own_and_no_cache_marks(
    provider: Provider, make: MakeModel
) -> None:
    model = make(provider)
    await model.complete(REQUEST)
    await model.complete(REQUEST)

    ids = [
        one.headers.get("x-session-affinity") or one.body["metadata"]["user_id"] for one in provider.requests
    ]
    assert len(set(ids)) == 2
    assert "cache" not in json.dumps([one.body for one in provider.requests])


async def test_the_thinking_level_is_passed_where_the_model_reasons(provider: Provider) -> None:
    deep = Request(system="s", prompt="p", max_tokens=9_000, thinking_level="xhigh")

    await openai_model(provider, reasoning=True).complete(deep)
    await openai_model(provider).complete(deep)
    await openai_model(provider, reasoning=True).complete(REQUEST)
    await anthropic_model(provider, reasoning=True).complete(deep)

    plain, never, off, anthropic = [one.body for one in provider.requests]
    assert plain["reasoning_effort"] == "high"
    assert "reasoning_effort" not in never
    assert "reasoning_effort" not in off
    assert anthropic["thinking"] == {"type": "enabled", "budget_tokens": 4_096}


async def test_no_reasoning_is_asked_for_where_it_would_eat_the_answer(provider: Provider) -> None:
    tight = Request(system="s", prompt="p", max_tokens=4_000, thinking_level="high")

    await anthropic_model(provider, reasoning=True).complete(tight)

    assert "thinking" not in provider.requests[0].body


def test_openai_itself_is_asked_in_its_own_words() -> None:
    """Its own fields would make a strict server like it refuse the request."""
    own = ModelInfo(provider="openai", id="gpt-x", litellm_model="openai/gpt-x")
    like = msgspec.structs.replace(own, base_url="https://openai.com.example/v1")
    caching = {"gpt-x": {"supports_prompt_cache_breakpoint": True}}

    assert routing(own, {}, "id-1") == {"prompt_cache_key": "id-1"}
    assert routing(own, caching, "id-1")["prompt_cache_options"] == {"mode": "explicit"}
    assert routing(like, caching, "id-1") == {"extra_headers": {"x-session-affinity": "id-1"}}
    assert (limit_name(own), limit_name(like)) == ("max_completion_tokens", "max_tokens")


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        ("openrouter", {"extra_body": {"session_id": "id-1"}}),
        ("anthropic", {"metadata": {"user_id": "id-1"}}),
        ("gemini", {}),
    ],
)
def test_the_routing_id_goes_where_the_provider_looks_for_one(adapter: str, expected: Json) -> None:
    info = ModelInfo(provider=adapter, id="m", litellm_model=f"{adapter}/m")

    assert routing(info, {}, "id-1") == expected


async def test_headers_of_the_model_go_along(provider: Provider) -> None:
    await openai_model(provider, headers={"x-team": "blue"}).complete(REQUEST)

    assert provider.requests[0].headers["x-team"] == "blue"


# --- usage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (CACHED, (1_000, 90_000, 0, 500, 91_500)),
        (WRITTEN, (1_000, 90_000, 1_000, 500, 92_500)),
        (UNTOTALLED, (1_000, 90_000, 0, 500, 91_500)),
    ],
    ids=["read", "read and written", "no total"],
)
def test_cached_tokens_count_once(raw: Json, expected: tuple[int, ...]) -> None:
    usage = usage_from_litellm(raw)

    assert usage
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.total_tokens) == expected


async def test_cached_tokens_count_once_through_the_wire(provider: Provider) -> None:
    provider.script = [
        Reply(usage=dict(CACHED)),
        Reply(usage={"prompt_tokens": 1_000, "completion_tokens": 500, "cache_read_input_tokens": 90_000}),
    ]

    answers = [
        await openai_model(provider).complete(REQUEST),
        await anthropic_model(provider).complete(REQUEST),  # reports what was not cached
    ]

    for answer in answers:
        assert answer.usage
        assert (answer.usage.input, answer.usage.cache_read, answer.usage.total_tokens) == (
            1_000,
            90_000,
            91_500,
        )


def test_a_usage_that_says_nothing_is_none() -> None:
    assert usage_from_litellm({}) is None
    assert usage_from_litellm({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}) is None


def test_the_cost_is_priced_for_each_kind_of_token_or_else_taken_as_told() -> None:
    prices = ModelCost(input=3, output=15, cache_read=0.3, cache_write=3.75)

    priced = usage_from_litellm(CACHED, prices)
    told = usage_from_litellm(CACHED | {"cost": 0.25})

    assert priced
    assert priced.cost.total == pytest.approx(0.003 + 0.0075 + 0.027)
    assert told
    assert told.cost.total == 0.25


async def test_a_server_that_refuses_to_report_usage_is_asked_again_without(provider: Provider) -> None:
    refusal = error(400, "Unrecognized request argument supplied: stream_options")
    provider.script = [refusal, Reply(text="fine"), Reply(text="still fine")]
    model = openai_model(provider)

    first = await model.complete(REQUEST)
    second = await model.complete(REQUEST)

    assert (first.text, first.usage, second.text) == ("fine", None, "still fine")
    assert ["stream_options" in one.body for one in provider.requests] == [True, False, False]


# --- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    ("reply", "status", "retryable"),
    [
        (error(429, "slow down"), 429, True),
        (error(429, "too many tokens per minute"), 429, True),
        (Reply(status=429, body=""), 429, True),
        (error(500), 500, True),
        (error(502), 502, True),
        (error(503, "too many tokens"), 503, True),
        (error(529, "too many tokens"), 529, True),
        (Reply(drop_after=0), None, True),
        (Reply(drop_after=3), None, True),
        (Reply(finish=None), None, True),
        (error(400, "max_tokens: 400000 > 65536, which is the maximum allowed"), 400, False),
        (error(401, "invalid api key"), 401, False),
        (error(402, "pay first"), 402, False),
        (error(403, "not yours"), 403, False),
        (error(404, "no such model"), 404, False),
        (error(429, "You exceeded your current quota"), 429, False),
    ],
    ids=str,
)
async def test_a_failure_is_one_request_and_says_whether_it_may_pass(
    provider: Provider, make: MakeModel, reply: Reply, status: int | None, retryable: bool
) -> None:
    provider.script = [reply]

    failed = await failure(make(provider))

    assert type(failed) is ProviderError
    assert (failed.data.get("status"), failed.retryable) == (status, retryable)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    "reply",
    [
        error(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        error(400, "input length and max_tokens exceed context limit: 190000 + 32000 > 200000"),
        error(400, "This model's maximum context length is 128000 tokens"),
        error(401, "supports only 256K context"),
        error(413, "payload"),
    ],
    ids=str,
)
async def test_an_overflow_is_told_from_other_failures(
    provider: Provider, make: MakeModel, reply: Reply
) -> None:
    provider.script = [reply]

    assert isinstance(await failure(make(provider)), ContextOverflow)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("make", MODELS)
async def test_the_sentence_is_the_providers_own(provider: Provider, make: MakeModel) -> None:
    provider.script = [error(500, "the hamster is tired")]
    model = make(provider)

    assert (await failure(model)).message == f"{model.info.ref}: the hamster is tired"


@pytest.mark.parametrize("make", MODELS)
async def test_a_key_that_the_provider_repeats_is_not_passed_on(provider: Provider, make: MakeModel) -> None:
    provider.script = [error(401, f"Incorrect API key provided: {KEY}")]

    failed = await failure(make(provider))

    assert KEY not in failed.message
    assert KEY not in str(failed.data)
    assert failed.__cause__ is None


def test_secrets_are_taken_out_of_a_text() -> None:
    text = "key hunter2hunter2 and Bearer abcdefgh1234 and sk-ant-0123456789"

    assert redacted(text, ["hunter2hunter2", ""]) == "key [key] and [key] and [key]"


@pytest.mark.parametrize("adapter", ["openai", "anthropic"])
async def test_a_server_that_is_not_there_is_a_failure_in_passing(adapter: str) -> None:
    gone = ModelInfo(
        provider="fake", id="m200", litellm_model=f"{adapter}/m200", base_url="http://127.0.0.1:9/v1"
    )

    failed = await failure(LitellmModel(gone, KEY, timeout_ms=2_000))

    assert isinstance(failed, ProviderError)
    assert failed.retryable
    assert failed.message == "fake/m200: no connection to 127.0.0.1:9 (Connection refused)"


@pytest.mark.parametrize(
    ("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")]
)
async def test_a_missing_key_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, provider: str, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    info = ModelInfo(provider=provider, id="m", litellm_model=f"{provider}/m")

    failed = await failure(LitellmModel(info))

    assert isinstance(failed, NoCredentials)
    assert failed.data == {"provider": provider}


async def test_a_model_nobody_can_reach_says_why() -> None:
    info = ModelInfo(provider="odd", id="m", unsupported="There is no way to reach odd/m")

    failed = await failure(LitellmModel(info))

    assert failed.message.endswith("There is no way to reach odd/m")


async def test_a_model_without_a_name_for_the_library_says_so() -> None:
    failed = await failure(LitellmModel(ModelInfo(provider="odd", id="m")))

    assert "odd/m" in failed.message
    assert "litellm_model" in failed.message


@pytest.mark.parametrize("make", MODELS)
async def test_the_time_to_wait_is_read_from_the_answer(provider: Provider, make: MakeModel) -> None:
    provider.script = [error(429, "slow down", retry_after="7")]

    assert (await failure(make(provider))).data["retryAfterMs"] == 7_000


def test_a_time_to_wait_may_be_milliseconds_or_a_date() -> None:
    assert retry_after({"Retry-After-Ms": "250", "Retry-After": "9"}) == 0.25
    assert retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) == pytest.approx(60, abs=2)
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


# --- silence and cancelling ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("reply", [Reply(hang=True), Reply(hang_after=2)], ids=["no answer", "mid-stream"])
async def test_silence_is_a_failure_in_passing(provider: Provider, make: MakeModel, reply: Reply) -> None:
    provider.script = [reply]

    failed = await failure(make(provider, timeout_ms=300))

    assert isinstance(failed, ProviderError)
    assert failed.retryable
    await provider.until(lambda one: len(one.closed) == 1)


async def test_pings_do_not_keep_a_dead_answer_alive(provider: Provider) -> None:
    provider.script = [Reply(hang_after=2, ping=0.05)]

    failed = await failure(openai_model(provider, timeout_ms=300))

    assert isinstance(failed, ProviderError)
    assert failed.retryable


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    "reply",
    [Reply(hang=True), Reply(hang_after=3), Reply(text="word " * 10_000, pause=0.002)],
    ids=["before the answer", "in silence", "in full flow"],
)
async def test_cancelling_closes_the_connection_at_once(
    provider: Provider, make: MakeModel, reply: Reply
) -> None:
    provider.script = [Reply(), reply]
    model = make(provider)
    await model.complete(REQUEST)  # everything is loaded
    task = asyncio.create_task(model.complete(REQUEST))
    sent = 0 if reply.hang else provider.events + 3
    await provider.until(lambda one: len(one.requests) == 2 and one.events >= sent)

    cancelled = time.perf_counter()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await provider.until(lambda one: len(one.closed) == 1)

    assert provider.closed[0] - cancelled < 5  # milliseconds on an idle machine; what hangs, hangs for ever
    assert (await model.complete(REQUEST)).text == "ok"


async def test_answers_do_not_hold_up_the_loop_that_waits_for_them(provider: Provider) -> None:
    """The provider runs on this loop too, so the client's own work is what must not be seen here."""
    model = openai_model(provider)
    await model.complete(REQUEST)
    provider.script = [Reply(text="x" * 16_000, piece=16)]
    waiting = asyncio.create_task(model.complete(REQUEST))
    worst, last = 0.0, time.perf_counter()
    while not waiting.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        worst, last = max(worst, now - last), now

    assert len((await waiting).text) == 16_000
    assert worst < 0.5


# --- overflow sentences ----------------------------------------------------------------------------------

NOT_AS_RECORDED = {28: True, 29: True, 30: True, 31: True, 36: False}
"""Rows of the table in which the recorded program differs from its own later version, or from us."""


def overflow_rows() -> list[Any]:
    return [pytest.param(number, row, id=str(number)) for number, row in enumerate(table("context-overflow"))]


@pytest.mark.parametrize(("number", "row"), overflow_rows())
def test_overflows_are_recognised_as_recorded(number: int, row: Json) -> None:
    message = AssistantMessage(
        provider=row["provider"],
        stop_reason=row["stopReason"],
        error_message=row["errorMessage"],
        usage=decode_usage(row["usage"]),
    )

    overflow = is_context_overflow(message, row["contextWindow"])

    assert overflow is NOT_AS_RECORDED.get(number, row["expected"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", True),
        ("input length and max_tokens exceed context limit: 190000 + 32000 > 200000", True),
        ("This model's maximum context length is 128000 tokens", True),
        ("Input tokens exceed the configured limit of 300000 tokens", True),
        ("The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)", True),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", True),
        ("supports only 256K context", True),
        ("model_context_window_exceeded", True),
        ("request (2228 tokens) exceeds the available context size (512 tokens), try increasing it", True),
        ("max_tokens: 400000 > 65536, which is the maximum allowed", False),
        ("messages.3: tool_use ids were found without tool_result", False),
        ("messages.413: tool_use ids were found without tool_result", False),
        ("too many tokens per minute", False),
        ("Request too large: too many tokens per minute, limit 30000, requested 31000", False),
        ("invalid api key", False),
    ],
)
def test_the_usual_sentences_of_an_overflow(text: str, expected: bool) -> None:
    assert says_overflow(text) is expected


def test_the_librarys_own_exceptions_are_told_apart() -> None:
    import litellm  # the import itself is what the other tests have done already

    def made(kind: str, text: str) -> Exception:
        return getattr(litellm, kind)(message=text, model="m", llm_provider="openai")

    assert is_overflow_error(made("ContextWindowExceededError", "anything"))
    assert is_overflow_error(
        made("BadRequestError", "Input tokens exceed the configured limit of 300000 tokens")
    )
    assert is_overflow_error(made("AuthenticationError", "supports only 256K context"))
    assert not is_overflow_error(made("RateLimitError", "too many tokens per minute"))
    assert not is_overflow_error(made("RateLimitError", "prompt is too long"))
    assert not is_overflow_error(made("AuthenticationError", "invalid api key"))
    assert not is_overflow_error(made("Timeout", "prompt"))


# --- the process -----------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent

ASK = """
import asyncio, sys
from pi_ls.llm import LitellmModel, Request
from pi_ls.models import ModelInfo
async def ask(address):
    info = ModelInfo(provider="fake", id="m200", litellm_model="openai/m200", base_url=address)
    model = LitellmModel(info, "sk-test-5d41402abc4b2a76", timeout_ms=20_000)
    return await model.complete(Request(system="s", prompt="p", max_tokens=9))
"""


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", ASK + code, *arguments],
        capture_output=True,
        cwd=ROOT,
        env=os.environ | environment,
        timeout=60,
    )


@pytest.fixture(scope="module")
def outside() -> Any:
    with ProviderProcess() as running:
        yield running


def test_a_failing_call_writes_nothing_to_standard_output(outside: ProviderProcess) -> None:
    outside.queue(error(401, "no"), Reply(drop_after=2))
    code = """
for address in (sys.argv[1], sys.argv[1], "http://127.0.0.1:9/v1"):
    try:
        asyncio.run(ask(address))
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
info = ModelInfo(provider="odd", id="m", litellm_model="nosuchprovider/m")
try:
    asyncio.run(LitellmModel(info, "k").complete(Request(system="s", prompt="p", max_tokens=9)))
except Exception as error:
    print(type(error).__name__, file=sys.stderr)
"""
    done = python(code, outside.openai, LITELLM_LOG="DEBUG")

    assert done.stdout == b""
    assert done.stderr.split() == [b"ProviderError"] * 4


def test_a_call_that_is_cancelled_while_it_is_begun_writes_nothing_at_all(outside: ProviderProcess) -> None:
    """litellm prepares a request on another thread: whatever moment of that it is cancelled at."""
    code = """
import gc
async def give_up():
    await ask(sys.argv[1])
    for step in range(120):
        task = asyncio.create_task(ask(sys.argv[1]))
        await asyncio.sleep(step / 8000)
        task.cancel()
        await asyncio.wait([task])
    gc.collect()
    await ask(sys.argv[1])
asyncio.run(give_up())
"""
    done = python(code, outside.openai)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_no_connection_is_made_but_to_the_provider_itself(outside: ProviderProcess) -> None:
    """Not at the import, not for price lists or encodings, and not to a proxy meant for the world."""
    code = """
import socket
seen = set()
def note(address):
    if isinstance(address, tuple):
        seen.add(f"{address[0]}:{address[1]}")
def guarded(real):
    def call(self, address):
        note(address)
        return real(self, address)
    return call
socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
lookup = socket.getaddrinfo
def resolve(host, port, *rest, **options):
    note((host, port))
    return lookup(host, port, *rest, **options)
socket.getaddrinfo = resolve
answer = asyncio.run(ask(sys.argv[1]))
print(answer.text, *seen)
"""
    proxy = "http://127.0.0.1:9"
    done = python(code, outside.openai, HTTP_PROXY=proxy, http_proxy=proxy, HTTPS_PROXY=proxy)

    assert done.stdout.decode().split() == ["ok", outside.url.removeprefix("http://")], done.stderr.decode()


def test_importing_the_module_loads_neither_library() -> None:
    done = python("print(sorted({'litellm', 'tiktoken', 'httpx', 'openai'} & set(sys.modules)))")

    assert done.stdout.decode().strip() == "[]", done.stderr.decode()


def test_a_process_may_end_while_the_library_is_being_imported() -> None:
    code = """
async def begin():
    task = asyncio.create_task(ask("http://127.0.0.1:9/v1"))
    while "litellm" not in sys.modules:
        await asyncio.sleep(0.01)
    task.cancel()
asyncio.run(begin())
"""
    started = time.perf_counter()
    done = python(code)

    assert (done.returncode, done.stderr) == (0, b"")
    assert time.perf_counter() - started < 4, "the exit waited for the import"


# --- counting text ---------------------------------------------------------------------------------------


def test_text_is_counted_with_the_encoding_that_is_there_offline() -> None:
    count = text_counter("tiktoken")

    assert count
    assert count("hello world") == 2
    assert count("<|endoftext|>") > 1
    assert count("") == 0
    assert 190_000 < count("hello " * 200_000) < 210_000


def test_a_very_long_run_of_blanks_is_counted_too() -> None:
    count = text_counter("tiktoken")

    assert count
    assert count(" " * 2_000_000) > 0


def test_without_an_encoding_there_is_no_counter_and_nobody_is_asked() -> None:
    code = """
import importlib.util, socket
from pi_ls.llm import text_counter
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "litellm" else real(name, *rest)
socket.socket.connect = lambda *a: sys.exit("connected")
print(text_counter("tiktoken"), text_counter("chars"))
"""
    assert python(code).stdout.decode().split() == ["None", "None"]
