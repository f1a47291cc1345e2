"""Messages that wait for the agent: those that steer a run, and those that follow when it would stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import ImageContent, TextContent, UserMessage, text_of

QueueMode = Literal["one-at-a-time", "all"]


def user_message(
    text: str, images: Sequence[Json], timestamp: float, *, synthetic: bool = False
) -> UserMessage:
    """What a person said, with pictures (`{data, mimeType}`, base64) where there are any."""
    pictures = (ImageContent(image["data"], image["mimeType"]) for image in images)
    return UserMessage((TextContent(text), *pictures), timestamp, synthetic or None)


class Queue:
    """One line of waiting messages, taken out one by one or all at once."""

    def __init__(self) -> None:
        self._waiting: list[UserMessage] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: UserMessage) -> None:
        """Add one at the end."""
        self._waiting.append(message)

    def put_back(self, messages: Sequence[UserMessage]) -> None:
        """Let messages wait again that were taken out too early: before all others."""
        self._waiting[:0] = messages

    def next(self, mode: QueueMode) -> list[UserMessage]:
        """What `take` would give."""
        return self._waiting[:1] if mode == "one-at-a-time" else list(self._waiting)

    def take(self, mode: QueueMode) -> list[UserMessage]:
        """The next message, or all of them; empty where none waits."""
        taken = self.next(mode)
        del self._waiting[: len(taken)]
        return taken

    def clear(self) -> list[str]:
        """Forget all; returns their texts."""
        texts, self._waiting = self.texts(), []
        return texts

    def texts(self) -> list[str]:
        """The texts that wait, in order."""
        return [text_of(message.content) for message in self._waiting]
