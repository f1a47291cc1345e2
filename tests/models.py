"""Models for tests: reached over the real library at the scripted provider, or scripted in the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pi_ls.llm import Completion, LitellmModel, Request
from pi_ls.models import ModelInfo
from tests.provider import Provider, ProviderProcess

KEY = "sk-test-5d41402abc4b2a76"


def openai_model(
    provider: Provider | ProviderProcess, *, timeout_ms: int = 5_000, **info: Any
) -> LitellmModel:
    """`fake/m200` at the provider's OpenAI-like address."""
    return LitellmModel(openai_info(provider, **info), KEY, timeout_ms=timeout_ms)


def openai_info(provider: Provider | ProviderProcess, **info: Any) -> ModelInfo:
    name = info.pop("id", "m200")
    known: dict[str, Any] = {
        "context_window": 200_000,
        "max_tokens": 8_192,
        "base_url": provider.openai,
    } | info
    return ModelInfo(provider="fake", id=name, litellm_model=f"openai/{name}", **known)


def anthropic_model(
    provider: Provider | ProviderProcess, *, timeout_ms: int = 5_000, **info: Any
) -> LitellmModel:
    """`claudia/c200` at the provider's Anthropic-like address."""
    known: dict[str, Any] = {
        "context_window": 200_000,
        "max_tokens": 16_384,
        "base_url": provider.anthropic,
    } | info
    described = ModelInfo(provider="claudia", id="c200", litellm_model="anthropic/c200", **known)
    return LitellmModel(described, KEY, timeout_ms=timeout_ms)


class ScriptedModel:
    """A model in the process: answers in order with completions, or raises what stands in their place."""

    def __init__(self, *script: Completion | Exception | str, **info: Any) -> None:
        known: dict[str, Any] = {
            "context_window": 200_000,
            "max_tokens": 8_192,
            "base_url": "https://models.example/v1",
        } | info
        self.info = ModelInfo(
            provider="fake", id=known.pop("id", "m200"), litellm_model="openai/m200", **known
        )
        self.script: list[Completion | Exception | str] = list(script)
        self.requests: list[Request] = []
        self.refuses: Callable[[Request], Exception | None] = lambda _request: None

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        refusal = self.refuses(request)
        if refusal:
            raise refusal
        answer = self.script.pop(0) if self.script else Completion(text="S")
        if isinstance(answer, Exception):
            raise answer
        return Completion(text=answer) if isinstance(answer, str) else answer


def between(text: str, start: str, end: str) -> str:
    """What stands in a text between two markers that both occur once."""
    assert text.count(start) == 1, f"{text.count(start)} times {start}"
    assert text.count(end) == 1, f"{text.count(end)} times {end}"
    return text[text.index(start) + len(start) : text.index(end)]


def conversation(prompt: str) -> str:
    """The quoted conversation of a summary request."""
    return between(prompt, "<conversation>\n", "\n</conversation>")


def previous_summary(prompt: str) -> str | None:
    """The quoted previous summary of a summary request, None where there is none."""
    if "<previous-summary>" not in prompt:
        return None
    return between(prompt, "<previous-summary>\n", "\n</previous-summary>")


def texts(requests: Sequence[Request]) -> list[str]:
    """The prompts of requests."""
    return [request.prompt for request in requests]
