"""A model and how it is asked: the protocol every caller knows, and its form over litellm."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from pi_ls.llm.answers import Answer, Completion
from pi_ls.llm.asking import limit_name, routing, thinking, valid
from pi_ls.llm.connection import Connection
from pi_ls.llm.library import library

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
    """A model reached through litellm. One `complete` is one HTTP request; retrying is the caller's."""

    def __init__(self, info: ModelInfo, api_key: str | None = None, *, timeout_ms: int = 120_000) -> None:
        """Args:
        info: What to ask, and where.
        api_key: The provider's key; None where it needs none.
        timeout_ms: The longest silence between two bytes, in milliseconds.
        """
        self.info = info
        self._connection = Connection(info, api_key, timeout_ms)

    def __repr__(self) -> str:
        return f"LitellmModel({self.info.ref})"

    async def complete(self, request: Request) -> Completion:
        """See `Model.complete`."""
        self._connection.require_supported()
        return await library.run(lambda litellm: self._complete(litellm, request))

    async def _complete(self, litellm: Any, request: Request) -> Completion:
        info, answer = self.info, Answer()
        messages = [
            {"role": "system", "content": valid(request.system)},
            {"role": "user", "content": valid(request.prompt)},
        ]
        more = {
            limit_name(info): request.max_tokens,
            **routing(info, litellm.model_cost, uuid.uuid4().hex),
            **thinking(info, request.thinking_level, request.max_tokens, litellm.model_cost),
        }
        async with contextlib.aclosing(self._connection.chunks(litellm, messages, **more)) as chunks:
            async for chunk in chunks:
                answer.add(chunk)
        return answer.completion(info.cost)
