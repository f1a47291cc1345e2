"""One stream of litellm folded into an answer, and what it used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pi_ls.core.jsonvalues import Json, is_object, number
from pi_ls.core.messages import Cost, Usage

if TYPE_CHECKING:
    from pi_ls.models import ModelCost

_STOP_REASONS = {"stop": "stop", "length": "length", "tool_calls": "toolUse", "function_call": "toolUse"}


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A model's whole answer. It may be empty; whether that will do is the caller's business."""

    text: str = ""
    thinking: str = ""
    stop_reason: str = "stop"
    """stop, length, toolUse or error (the provider withheld the answer)."""
    usage: Usage | None = None
    """None where the provider reported none."""
    tool_calls: int = 0


class Answer:
    """Takes in litellm's chunks, one after the other."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: set[tuple[int, str]] = set()
        self._usage: Json = {}
        self.finish = "stop"

    def add(self, chunk: Any) -> None:
        """One more chunk; text, reasoning, calls, finish and usage come in any of them."""
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self._usage = usage.model_dump(exclude_none=True)
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        self._text.append(choice.delta.content or "")
        self._thinking.append(getattr(choice.delta, "reasoning_content", None) or "")
        for call in choice.delta.tool_calls or ():
            if call.id:  # only the first piece of a call has one
                self._calls.add((call.index, call.id))
        if choice.finish_reason:
            self.finish = choice.finish_reason

    def completion(self, prices: ModelCost | None) -> Completion:
        """The answer as far as it came; `prices` as in `usage_from_litellm`."""
        return Completion(
            text="".join(self._text),
            thinking="".join(self._thinking),
            stop_reason=_STOP_REASONS.get(self.finish, "error"),
            usage=usage_from_litellm(self._usage, prices),
            tool_calls=len(self._calls),
        )


def usage_from_litellm(raw: Json, prices: ModelCost | None = None) -> Usage | None:
    """A usage as litellm reports it (OpenAI's form), or None where it says nothing.

    Its prompt tokens include those read from and written to a cache; here they are told apart, so that each
    token counts once. The cost comes from `prices`, or else is what litellm or the provider worked out.
    """
    prompt, output = number(raw.get("prompt_tokens")), number(raw.get("completion_tokens"))
    if prompt <= 0 and output <= 0:
        return None
    details = raw.get("prompt_tokens_details")
    details = details if is_object(details) else {}
    read = number(raw.get("cache_read_input_tokens")) or number(details.get("cached_tokens"))
    write = (
        number(raw.get("cache_creation_input_tokens"))
        or number(details.get("cache_creation_tokens"))
        or number(details.get("cache_write_tokens"))
    )
    usage = Usage(
        input=max(0, prompt - read - write),
        output=output,
        cache_read=read,
        cache_write=write,
        total_tokens=number(raw.get("total_tokens")) or prompt + output,
    )
    cost = _priced(usage, prices) if prices else Cost(total=number(raw.get("cost")))
    return msgspec.structs.replace(usage, cost=cost)


def _priced(usage: Usage, prices: ModelCost) -> Cost:
    million = 1_000_000
    input_, output = usage.input * prices.input / million, usage.output * prices.output / million
    read = usage.cache_read * prices.cache_read / million
    write = usage.cache_write * prices.cache_write / million
    return Cost(
        input=input_, output=output, cache_read=read, cache_write=write, total=input_ + output + read + write
    )
