"""The model a session talks to, whichever that is at the moment.

The loop is given one partner for a whole run. Which model answers is looked up for each request, so that a
switch holds from the next request on, and a key that is missing by then is a failed answer like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from pi_ls.core.chat import ChatModel, ChatRequest, StreamEvent
from pi_ls.core.errors import NoModel
from pi_ls.models import ModelInfo

if TYPE_CHECKING:
    from pi_ls.session.agent_session import AgentSession


class Partner:
    """A session's model as a partner in conversation (`core.chat.ChatModel`)."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._info: ModelInfo | None = session.model
        self._reached: tuple[ModelInfo, ChatModel] | None = None

    @property
    def provider(self) -> str:
        """pi's id of the provider that was asked last."""
        return self._info.provider if self._info is not None else ""

    @property
    def id(self) -> str:
        """The provider's id of the model that was asked last."""
        return self._info.id if self._info is not None else ""

    @property
    def api(self) -> str:
        """pi's name of the interface it is reached by."""
        if self._reached is not None:
            return self._reached[1].api
        return (self._info.api or "") if self._info is not None else ""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        """See `ChatModel.stream`. Raises NoModel too."""
        model = await self._reach()
        async with aclosing(model.stream(request)) as answer:
            async for event in answer:
                yield event

    async def _reach(self) -> ChatModel:
        """The connection is kept as long as the model is: it knows what the server refuses."""
        info = self._info = self._session.model
        if info is None:
            raise NoModel("No model selected")
        if self._reached is None or self._reached[0] != info:
            session = self._session
            model = await asyncio.to_thread(session.environment.chat_model, info, session.id)
            self._reached = (info, model)
        return self._reached[1]
