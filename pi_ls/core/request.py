"""From a conversation as it is kept to the messages of one provider request.

Two steps. `good_messages` mends in the request what must stay as it is in the file: failed answers, calls
without results, results without calls, text that is no valid Unicode. `chat_messages` writes the outcome in
the form of OpenAI's chat completions, which litellm takes for every provider. Signed thinking passes both
unchanged to the byte, or not at all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pi_ls.core.chat import ToolSpec
from pi_ls.core.jsonvalues import Json, is_array, is_object
from pi_ls.core.messages import (
    AssistantMessage,
    Block,
    Content,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks_of,
    text_of,
    tool_calls,
)

INTERRUPTED = "interrupted: the tool call did not finish and has no result"
"""What a model is told of a call that has no result."""

FAILED_STOPS = ("error", "aborted")
"""How an answer ends that is not sent again."""

IMAGE_LEFT_OUT = "[image left out: this model takes no images]"
IMAGE_FOLLOWS = "(see the image below)"
NO_OUTPUT = "(no output)"
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def clean_text(text: str) -> str:
    """Text that is valid in UTF-8: halves of a pair are joined, a half that stands alone becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: Any) -> Any:
    """A decoded JSON value with every text in it, keys included, valid in UTF-8."""
    if isinstance(value, str):
        return clean_text(value)
    if is_array(value):
        return [clean_json(part) for part in value]
    if is_object(value):
        return {clean_text(key): clean_json(part) for key, part in value.items()}
    return value


def good_messages(messages: Iterable[Message]) -> list[Message]:
    """The messages a provider accepts, made of those a conversation holds.

    Answers that ended in an error or were aborted are left out with the results of their calls. Each kept
    call has exactly one result, right after its answer and in the order of the calls: the first one found
    later in the conversation, else an error result. Other results are left out. Roles other than user,
    assistant, toolResult and system are left out too.
    """
    conversation = list(messages)
    results = _results_by_call(conversation)
    good: list[Message] = []
    for at, message in enumerate(conversation):
        if isinstance(message, UserMessage | SystemMessage):
            good.append(msgspec.structs.replace(message, content=_clean_content(message.content)))
        elif isinstance(message, AssistantMessage) and message.stop_reason not in FAILED_STOPS:
            good.append(msgspec.structs.replace(message, content=_clean_blocks(message.content)))
            good += [_clean_result(results.get((at, call.id)), call) for call in tool_calls(message)]
    return good


def _results_by_call(conversation: Sequence[Message]) -> dict[tuple[int, str], ToolResultMessage]:
    """(place of the answer, call id) → the call's result. Ids may be used again: the nearest call counts."""
    results: dict[tuple[int, str], ToolResultMessage] = {}
    owner: dict[str, int] = {}
    for at, message in enumerate(conversation):
        if isinstance(message, AssistantMessage):
            owner |= dict.fromkeys((call.id for call in tool_calls(message)), at)
        elif isinstance(message, ToolResultMessage) and message.tool_call_id in owner:
            results.setdefault((owner[message.tool_call_id], message.tool_call_id), message)
    return results


def _clean_result(result: ToolResultMessage | None, call: ToolCall) -> ToolResultMessage:
    content: Content = (TextContent(INTERRUPTED),) if result is None else _clean_content(result.content)
    return ToolResultMessage(
        tool_call_id=clean_text(call.id),
        tool_name=clean_text(call.name),
        content=content,
        is_error=result is None or result.is_error,
        timestamp=result.timestamp if result is not None else 0,
    )


def _clean_content(content: Content) -> Content:
    return clean_text(content) if isinstance(content, str) else _clean_blocks(content)


def _clean_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    return tuple(clean for block in blocks if (clean := _clean_block(block)) is not None)


def _clean_block(block: Block) -> Block | None:
    match block:
        case TextContent():
            return TextContent(clean_text(block.text))
        case ToolCall():
            return ToolCall(clean_text(block.id), clean_text(block.name), clean_json(block.arguments))
        case ThinkingContent():
            # Its signature would no longer fit a mended text.
            return block if clean_text(block.thinking) == block.thinking else None
        case _:
            return block


class ChatForm(msgspec.Struct, frozen=True, kw_only=True):
    """What the receiving model understands.

    `provider` and `model` are pi's ids of it: thinking is only sent back to the model that signed it.
    """

    provider: str
    model: str
    thinking_blocks: bool = False
    """Whether the provider takes back signed thinking (Anthropic's interface); else it is left out."""
    images: bool = True


def chat_messages(messages: Iterable[Message], form: ChatForm, *, system: str = "") -> list[Json]:
    """Messages that have been made good, as those of an OpenAI chat completion.

    Messages that would be empty are left out. Images of tool results go along with the result where the
    interface takes them (the one that takes thinking), else in a user message after the batch of results.
    """
    chat: list[Json] = [{"role": "system", "content": clean_text(system)}] if system else []
    images: list[Json] = []
    for message in messages:
        if images and not isinstance(message, ToolResultMessage):
            chat.append({"role": "user", "content": images})
            images = []
        match message:
            case SystemMessage():
                chat += _unless_empty("system", text_of(message.content, "\n"))
            case UserMessage():
                chat += _unless_empty("user", _user_content(message.content, form))
            case AssistantMessage():
                chat += _answer(message, form)
            case ToolResultMessage():
                result, pictures = _result(message, form)
                chat.append(result)
                images += pictures
            case _:
                pass
    if images:
        chat.append({"role": "user", "content": images})
    return chat


def _unless_empty(role: str, content: str | list[Json]) -> list[Json]:
    return [{"role": role, "content": content}] if content else []


def _user_content(content: Content, form: ChatForm) -> str | list[Json]:
    if isinstance(content, str):
        return content if content.strip() else ""
    parts = _parts(content, form)
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _parts(content: Content, form: ChatForm) -> list[Json]:
    parts: list[Json] = []
    for block in blocks_of(content):
        if isinstance(block, TextContent) and block.text.strip():
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ImageContent):
            parts.append(_image(block) if form.images else {"type": "text", "text": IMAGE_LEFT_OUT})
    return parts


def _image(block: ImageContent) -> Json:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _answer(message: AssistantMessage, form: ChatForm) -> list[Json]:
    own = (message.provider, message.model) == (form.provider, form.model)
    parts: list[Json] = []
    for block in message.content:
        if isinstance(block, TextContent) and block.text.strip():
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ThinkingContent) and form.thinking_blocks and own and block.thinking_signature:
            parts.append(_thinking(block, block.thinking_signature))
    calls = [_call(call) for call in tool_calls(message)]
    said = [part for part in parts if part["type"] == "text"]
    if not said and not calls:
        return []  # reasoning alone says nothing that could be answered
    content = parts if len(said) < len(parts) else "\n".join(part["text"] for part in said) or None
    answer: Json = {"role": "assistant", "content": content}
    return [answer | {"tool_calls": calls} if calls else answer]


def _thinking(block: ThinkingContent, signature: str) -> Json:
    if block.redacted:
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": block.thinking, "signature": signature}


def _call(call: ToolCall) -> Json:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {
        "id": portable_call_id(call.id),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _result(message: ToolResultMessage, form: ChatForm) -> tuple[Json, list[Json]]:
    """A result's message, and the images that have to follow it."""
    parts = _parts(message.content, form)
    images = [part for part in parts if part["type"] != "text"]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    result: Json = {"role": "tool", "tool_call_id": portable_call_id(message.tool_call_id)}
    if images and form.thinking_blocks:
        return result | {"content": parts}, []
    return result | {"content": text or (IMAGE_FOLLOWS if images else NO_OUTPUT)}, images


def chat_tools(specs: Iterable[ToolSpec]) -> list[Json]:
    """Tools in the form of chat completions."""
    return [{"type": "function", "function": msgspec.to_builtins(spec)} for spec in specs]


def portable_call_id(call_id: str) -> str:
    """A call's id as every provider takes it: letters, digits, `_` and `-`, at most 40 of them.

    Ids of one provider can be refused by another to which a session was moved. Equal ids stay equal, and
    different ones different.
    """
    if _CALL_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_-]', '_', call_id)[:27]}-{digest}"
