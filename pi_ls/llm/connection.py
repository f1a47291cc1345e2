"""How a model is reached: what every request has in common, the stream it opens, and what can go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from pi_ls.core.errors import ContextOverflow, NoCredentials, PiError, ProviderError
from pi_ls.core.jsonvalues import Json
from pi_ls.llm.failures import (
    headers_of,
    refuses_usage_option,
    retry_after,
    sentence,
    status_of,
    verdict,
)
from pi_ls.secrets import redacted

if TYPE_CHECKING:
    from pi_ls.models import ModelInfo


class Connection:
    """One model of one provider, and the key to it. Everything here runs on the library's loop.

    One `chunks` is one HTTP request; retrying is the caller's. The exception is a server that refuses to be
    asked for usage in a stream: it is asked again without.
    """

    def __init__(self, info: ModelInfo, api_key: str | None, timeout_ms: int) -> None:
        self.info = info
        self._key = api_key
        self._timeout = timeout_ms / 1000
        self._asks_for_usage = True

    def require_supported(self) -> None:
        """Raises ProviderError where no request can be made to this model."""
        if self.info.unsupported:
            raise self.failure(self.info.unsupported, retryable=False)
        if not self.info.litellm_model:
            raise self.failure(
                "its ModelInfo does not say what litellm calls it (litellm_model)", retryable=False
            )

    async def chunks(self, litellm: Any, messages: Sequence[Json], **more: Any) -> AsyncGenerator[Any, None]:
        """The answer's chunks as litellm gives them; `more` are litellm's arguments for this request.

        Raises ContextOverflow, NoCredentials and ProviderError (`data["retryAfterMs"]` where the provider
        said when to come again).
        """
        arguments = self._arguments(messages) | more
        headers = self.info.headers | arguments.pop("extra_headers", {})
        if headers:
            arguments["extra_headers"] = headers
        begun = False
        while True:
            try:
                async for chunk in self._stream(litellm, arguments):
                    begun = True
                    yield chunk
            except Exception as error:  # noqa: BLE001 - litellm promises no base class
                if begun or "stream_options" not in arguments or not refuses_usage_option(error):
                    raise self._translated(error) from None
                self._asks_for_usage = False
                del arguments["stream_options"]
            else:
                return

    async def _stream(self, litellm: Any, arguments: Json) -> AsyncGenerator[Any, None]:
        """One request. Pings reset the socket's time limit without bringing a chunk, hence another limit."""
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

    def _arguments(self, messages: Sequence[Json]) -> Json:
        import httpx

        info = self.info
        arguments: Json = {
            "model": info.litellm_model,
            "messages": list(messages),
            "stream": True,
            "num_retries": 0,
            "max_retries": 0,
            "timeout": httpx.Timeout(connect=min(10, self._timeout), read=self._timeout, write=60, pool=10),
            "drop_params": True,
            "api_key": self._key or ("none" if info.is_loopback else None),
        }
        if info.base_url:
            arguments["api_base"] = info.base_url
        if self._asks_for_usage:
            arguments["stream_options"] = {"include_usage": True}
        return arguments

    def _translated(self, error: Exception) -> PiError:
        """litellm's exception as one of ours, without any key that the provider repeated in its answer."""
        if isinstance(error, PiError):
            return error
        if isinstance(error, TimeoutError):
            return self.failure(f"no answer for {2 * self._timeout:g} s", retryable=True)
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
        return self.failure(said, retryable=kind == "transient", status=status, wait=wait)

    def failure(
        self, said: str, *, retryable: bool, status: int | None = None, wait: float | None = None
    ) -> ProviderError:
        """A failure of this provider, in a sentence."""
        data = self._data(retryable=retryable, status=status)
        if wait is not None:
            data["retryAfterMs"] = int(wait * 1000)
        return ProviderError(f"{self.info.ref}: {said}", **data)

    def _data(self, *, retryable: bool, status: int | None = None) -> Json:
        known = {} if status is None else {"status": status}
        return {"provider": self.info.provider, "retryable": retryable} | known

    def _redacted(self, text: str) -> str:
        return redacted(text, [self._key or "", *self.info.headers.values()])
