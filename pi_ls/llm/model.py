"""A model and how it is asked: the protocol every caller knows, and its form over litellm."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from pi_ls.core.errors import ContextOverflow, NoCredentials, PiError, ProviderError
from pi_ls.core.jsonvalues import Json
from pi_ls.llm.answers import Answer, Completion
from pi_ls.llm.failures import (
    headers_of,
    redacted,
    refuses_usage_option,
    retry_after,
    sentence,
    status_of,
    verdict,
)
from pi_ls.llm.library import library
from pi_ls.llm.oneoff import limit_name, routing, thinking, valid

if TYPE_CHECKING:
    from pi_ls.models import ModelInfo


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A question that stands alone: one system and one user message of plain text, no tools."""

    system: str
    prompt: str
    max_tokens: int
    """The longest answer, in tokens, reasoning included."""
    thinking_level: str = "off"
    """pi's name of it; used where the model reasons."""


class Model(Protocol):
    """What answers a request. Anything with these two members will do, for tests and library users alike."""

    @property
    def info(self) -> ModelInfo:
        """What the model is and how much it can hold."""
        ...

    async def complete(self, request: Request) -> Completion:
        """Asks once.

        Raises:
            ContextOverflow: the request was longer than the model's window.
            NoCredentials: there is no key for the provider.
            ProviderError: anything else; `retryable` where the same request may succeed later, and then
                `data["retryAfterMs"]` where the provider said when.

        Cancelling the task that waits closes the connection at once.
        """
        ...


class LitellmModel:
    """A model reached through litellm. One `complete` is one HTTP request; retrying is the caller's.

    The exception is a server that refuses to be asked for usage in a stream: it is asked again without.
    """

    def __init__(self, info: ModelInfo, api_key: str | None = None, *, timeout_ms: int = 120_000) -> None:
        """Args:
        info: What to ask, and where.
        api_key: The provider's key; None where it needs none.
        timeout_ms: The longest silence between two bytes, in milliseconds.
        """
        self.info = info
        self._key = api_key
        self._timeout = timeout_ms / 1000
        self._asks_for_usage = True

    def __repr__(self) -> str:
        return f"LitellmModel({self.info.ref})"

    async def complete(self, request: Request) -> Completion:
        """See `Model.complete`."""
        if self.info.unsupported:
            raise self._failure(self.info.unsupported, retryable=False)
        return await library.run(lambda litellm: self._complete(litellm, request))

    async def _complete(self, litellm: Any, request: Request) -> Completion:
        try:
            return await self._ask(litellm, request)
        except Exception as error:  # noqa: BLE001 - litellm promises no base class
            if not (self._asks_for_usage and refuses_usage_option(error)):
                raise self._translated(error) from None
        self._asks_for_usage = False
        try:
            return await self._ask(litellm, request)
        except Exception as error:  # noqa: BLE001 - litellm promises no base class
            raise self._translated(error) from None

    async def _ask(self, litellm: Any, request: Request) -> Completion:
        answer = Answer()
        async with contextlib.aclosing(self._stream(litellm, self._arguments(litellm, request))) as chunks:
            async for chunk in chunks:
                answer.add(chunk)
        return answer.completion(self.info.cost)

    async def _stream(self, litellm: Any, arguments: Json) -> AsyncGenerator[Any, None]:
        """litellm's chunks. Pings reset the socket's time limit without bringing any, hence another."""
        silence = 2 * self._timeout
        async with asyncio.timeout(silence):
            stream = await litellm.acompletion(**arguments)
        try:
            chunks, count = aiter(stream), 0
            while True:
                async with asyncio.timeout(silence):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
                count += 1
                if count % 8 == 0:  # data that has already arrived never yields to other requests by itself
                    await asyncio.sleep(0)
        finally:
            await stream.aclose()  # leaving the loop is not enough: the connection would stay open

    def _arguments(self, litellm: Any, request: Request) -> Json:
        import httpx

        info = self.info
        arguments: Json = {
            "model": info.litellm_model,
            "messages": [
                {"role": "system", "content": valid(request.system)},
                {"role": "user", "content": valid(request.prompt)},
            ],
            limit_name(info): request.max_tokens,
            "stream": True,
            "num_retries": 0,
            "max_retries": 0,
            "timeout": httpx.Timeout(connect=min(10, self._timeout), read=self._timeout, write=60, pool=10),
            "drop_params": True,
            "api_key": self._key or ("none" if info.is_loopback else None),
            **routing(info, litellm.model_cost, uuid.uuid4().hex),
            **thinking(info, request.thinking_level, request.max_tokens, litellm.model_cost),
        }
        if info.base_url:
            arguments["api_base"] = info.base_url
        headers = info.headers | arguments.pop("extra_headers", {})
        if headers:
            arguments["extra_headers"] = headers
        if self._asks_for_usage:
            arguments["stream_options"] = {"include_usage": True}
        return arguments

    def _translated(self, error: Exception) -> PiError:
        """litellm's exception as one of ours, without any key that the provider repeated in its answer."""
        if isinstance(error, PiError):
            return error
        if isinstance(error, TimeoutError):
            return self._failure(f"no answer for {2 * self._timeout:g} s", retryable=True)
        kind = verdict(error, self.info.provider)
        status, said = status_of(error), self._redacted(sentence(error))
        if kind == "overflow":
            return ContextOverflow(f"{self.info.ref}: {said}", **self._data(retryable=False, status=status))
        if kind == "no_key":
            return NoCredentials(
                f"{self.info.ref} has no key: set the key of the provider {self.info.provider}",
                provider=self.info.provider,
            )
        wait = retry_after(headers_of(error))
        return self._failure(said, retryable=kind == "transient", status=status, wait=wait)

    def _failure(
        self, said: str, *, retryable: bool, status: int | None = None, wait: float | None = None
    ) -> ProviderError:
        data = self._data(retryable=retryable, status=status)
        if wait is not None:
            data["retryAfterMs"] = int(wait * 1000)
        return ProviderError(f"{self.info.ref}: {said}", **data)

    def _data(self, *, retryable: bool, status: int | None = None) -> Json:
        known = {} if status is None else {"status": status}
        return {"provider": self.info.provider, "retryable": retryable} | known

    def _redacted(self, text: str) -> str:
        return redacted(text, [self._key or "", *self.info.headers.values()])
