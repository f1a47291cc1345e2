"""The summary endpoint: a server of the user's own that makes summaries in place of a model.

It is sent two texts and nothing else, no key of any provider among them, and its answer is not trusted: it
may be late, huge, of another shape, or point elsewhere. Source: seed 000 (`compaction.remoteEndpoint`).
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from pi_ls.core.errors import InvalidSettings, ProviderError, SummarizationFailed
from pi_ls.core.jsonvalues import is_object

if TYPE_CHECKING:
    from httpx import Response

TIME_LIMIT = 60.0
"""Seconds in which the whole answer has to be there."""
SIZE_LIMIT = 4 * 1024 * 1024
"""Bytes an answer may have."""
_UNPACKED = {"accept-encoding": "identity"}  # a packed answer could be of any size once it is unpacked


class RemoteEndpoint:
    """A summary endpoint that answers `{systemPrompt, prompt}` with `{summary}`."""

    def __init__(self, url: str, *, time_limit: float = TIME_LIMIT, size_limit: int = SIZE_LIMIT) -> None:
        """Args:
            url: https, or http to this machine.
            time_limit: Seconds for the whole answer.
            size_limit: Bytes of the whole answer.

        Raises:
            InvalidSettings: the address is not one of these.
        """
        self._url = url
        self._host, secure = _host(url)
        self.is_loopback = _is_this_machine(self._host)
        if not self._host or not (secure or self.is_loopback):
            raise InvalidSettings(
                "compaction.remoteEndpoint must be an https address, or an http address of this machine",
                key="compaction.remoteEndpoint",
            )
        self._time_limit = time_limit
        self._size_limit = size_limit

    def __repr__(self) -> str:
        return f"RemoteEndpoint({self._host})"

    async def summarize(self, system: str, prompt: str) -> str:
        """Sends one request and returns the summary it is answered with.

        Raises:
            ProviderError: no answer, not in time, too long, not one of success, or not of the right shape.
            SummarizationFailed: the summary in it is empty.

        No error holds more of the address than its host. Cancelling closes the connection at once.
        """
        try:
            async with asyncio.timeout(self._time_limit):
                body = await self._post({"systemPrompt": _valid(system), "prompt": _valid(prompt)})
        except TimeoutError:
            raise self._failure(f"no complete answer within {self._time_limit:g} s") from None
        return self._summary_in(body)

    async def _post(self, question: dict[str, str]) -> bytes:
        await asyncio.to_thread(_load_httpx)
        import httpx

        try:
            async with (
                # a proxy for the world cannot reach this machine; a redirect could lead anywhere
                httpx.AsyncClient(
                    trust_env=not self.is_loopback, follow_redirects=False, timeout=None
                ) as client,
                client.stream("POST", self._url, json=question, headers=_UNPACKED) as answer,
            ):
                if not answer.is_success:
                    raise self._failure(f"HTTP status {answer.status_code}", status=answer.status_code)
                return await self._limited(answer)
        except httpx.HTTPError as error:
            raise self._failure(f"no answer ({type(error).__name__})") from None

    async def _limited(self, answer: Response) -> bytes:
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > self._size_limit:
                raise self._failure(f"an answer of more than {self._size_limit} bytes")
        return bytes(body)

    def _summary_in(self, body: bytes) -> str:
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._failure("an answer that is no JSON") from None
        summary = answer.get("summary") if is_object(answer) else None
        if not isinstance(summary, str):
            raise self._failure("an answer without a text `summary`")
        if not summary.strip():
            raise SummarizationFailed("Summary is empty")
        return summary.strip()

    def _failure(self, what: str, status: int | None = None) -> ProviderError:
        known = {} if status is None else {"status": status}
        return ProviderError(
            f"Summarization failed: the summary endpoint at {self._host} gave {what}",
            provider=self._host,
            retryable=False,
            **known,
        )


def _load_httpx() -> None:
    """Imports httpx, off the event loop since it takes a while the first time."""
    import httpx as _  # noqa: F401


def _host(url: str) -> tuple[str, bool]:
    """The host an address names, and whether it is reached by https; an empty host where it is no address."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "" if parts.scheme in ("http", "https") else ""), parts.scheme == "https"
    except ValueError:
        return "", False


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _valid(text: str) -> str:
    """`text` as valid Unicode: halves of a surrogate pair joined, single ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
