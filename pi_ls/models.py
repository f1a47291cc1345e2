"""Which models there are, what they can hold, and the keys to reach them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import msgspec


class ModelCost(msgspec.Struct, frozen=True, rename="camel"):
    """Prices in dollars for a million tokens."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One model of one provider.

    `context_window` and `max_tokens` are tokens, None where they are not known. `api` is pi's name of the
    wire protocol. `litellm_model` is the name litellm takes (`anthropic/claude-sonnet-4-5`); empty where
    no request can be made, and then `unsupported` is the sentence that says why.
    """

    provider: str
    id: str
    name: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    reasoning: bool = False
    api: str | None = None
    base_url: str | None = None
    headers: dict[str, str] = {}
    cost: ModelCost | None = None
    litellm_model: str = ""
    unsupported: str | None = None

    def __repr__(self) -> str:
        """The name alone: headers and URLs may hold keys."""
        return f"ModelInfo({self.ref})"

    @property
    def ref(self) -> str:
        """`provider/id`, as settings and editors name a model."""
        return f"{self.provider}/{self.id}"

    @property
    def is_loopback(self) -> bool:
        """Whether the model is served by this machine."""
        return self.base_url is not None and is_loopback(self.base_url)


OFFLINE = ModelInfo(provider="offline", id="extractive", name="Extractive summary, no model")
"""What summarises without any model: no window, no key, no network."""


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine (`localhost`, 127.0.0.0/8, ::1)."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
