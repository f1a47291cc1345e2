from __future__ import annotations

import math
from typing import Any

import pytest

from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Cost,
    ImageContent,
    OtherBlock,
    OtherMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    blocks_of,
    context_tokens,
    decode_content,
    decode_message,
    decode_usage,
    encode_message,
    role_of,
    text_of,
    tool_calls,
)
from tests.conformance_data import sessions

ANSWER: Json = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig", "redacted": True},
        {"type": "text", "text": "hello"},
        {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a", "n": None}},
        {"type": "audio", "data": "…", "rate": 8},
    ],
    "api": "anthropic-messages",
    "provider": "anthropic",
    "model": "m",
    "usage": {
        "input": 1,
        "output": 2,
        "cacheRead": 3,
        "cacheWrite": 4,
        "totalTokens": 10,
        "cost": {"input": 0.1, "output": 0.2, "cacheRead": 0, "cacheWrite": 0, "total": 0.3},
    },
    "stopReason": "toolUse",
    "errorMessage": "none",
    "timestamp": 5,
}


def test_an_answer_is_read_with_all_of_its_fields() -> None:
    assert decode_message(ANSWER) == AssistantMessage(
        content=(
            ThinkingContent("hm", "sig", True),
            TextContent("hello"),
            ToolCall("c1", "read", {"path": "a", "n": None}),
            OtherBlock("audio", {"type": "audio", "data": "…", "rate": 8}),
        ),
        api="anthropic-messages",
        provider="anthropic",
        model="m",
        usage=Usage(1, 2, 3, 4, 10, Cost(0.1, 0.2, 0, 0, 0.3)),
        stop_reason="toolUse",
        error_message="none",
        timestamp=5,
    )


@pytest.mark.parametrize(
    "raw",
    [
        ANSWER,
        {"role": "user", "content": "text", "timestamp": 1},
        {
            "role": "user",
            "content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}],
            "timestamp": 1,
        },
        {
            "role": "toolResult",
            "toolCallId": "c1",
            "toolName": "read",
            "content": [{"type": "text", "text": "x"}],
            "isError": True,
            "details": {"lines": 1},
            "prunedAt": 9,
            "timestamp": 1,
        },
        {
            "role": "bashExecution",
            "command": "ls",
            "output": "x",
            "exitCode": 0,
            "cancelled": False,
            "truncated": True,
            "fullOutputPath": "/tmp/x",
            "excludeFromContext": True,
            "timestamp": 1,
        },
        {"role": "system", "content": "be kind", "timestamp": 1},
        {
            "role": "custom",
            "customType": "t",
            "content": "c",
            "display": True,
            "details": [1],
            "timestamp": 1,
        },
        {"role": "compactionSummary", "summary": "s", "tokensBefore": 9, "timestamp": 1},
        {"role": "branchSummary", "summary": "s", "fromId": "x", "timestamp": 1},
        {"role": "notification", "content": "n", "timestamp": 1},
    ],
    ids=lambda raw: raw["role"],
)
def test_a_message_is_written_as_it_was_read(raw: Json) -> None:
    message = decode_message(raw)
    assert message is not None
    assert role_of(message) == raw["role"]
    assert encode_message(message) == raw


def test_every_recorded_message_survives_reading_and_writing_again() -> None:
    for case in sessions():
        for entry in case.entries():
            message = entry.message
            if message is not None:
                assert decode_message(encode_message(message)) == message


def test_absent_optional_fields_are_not_written() -> None:
    assert encode_message(ToolResultMessage("c", "read")) == {
        "role": "toolResult",
        "toolCallId": "c",
        "toolName": "read",
        "content": [],
        "isError": False,
        "timestamp": 0,
    }


@pytest.mark.parametrize("raw", [None, "text", [], {}, {"role": None}, {"role": 1, "content": "x"}])
def test_what_has_no_role_is_no_message(raw: Any) -> None:
    assert decode_message(raw) is None


@pytest.mark.parametrize("content", [None, 5, {}, True, [None, "text", 5]])
def test_content_of_a_wrong_type_reads_as_empty(content: Any) -> None:
    assert decode_content(content) == ()
    assert decode_message({"role": "user", "content": content}) == UserMessage(())


def test_fields_of_a_wrong_type_read_as_their_defaults() -> None:
    assert decode_content(
        [
            {"type": "text", "text": 5},
            {"type": "image", "data": None},
            {"type": "toolCall", "name": "x", "arguments": "{"},
            {"text": "no type"},
        ]
    ) == (TextContent(""), ImageContent(), ToolCall("", "x", {}), OtherBlock("", {"text": "no type"}))
    assert (
        decode_message({"role": "bashExecution", "command": 1, "exitCode": "0", "timestamp": "x"})
        == BashExecutionMessage()
    )


def test_text_where_blocks_belong_is_one_block() -> None:
    message = decode_message({"role": "assistant", "content": "said"})
    assert isinstance(message, AssistantMessage)
    assert message.content == (TextContent("said"),)
    assert blocks_of("") == ()


def test_the_text_of_a_content_is_its_text_blocks_only() -> None:
    content = (TextContent("a"), ImageContent("A"), TextContent("b"), ThinkingContent("no"))
    assert text_of(content) == "ab"
    assert text_of(content, "\n") == "a\nb"
    assert text_of("plain") == "plain"


def test_the_calls_of_an_answer_keep_their_order() -> None:
    message = decode_message(ANSWER)
    assert isinstance(message, AssistantMessage)
    assert [call.name for call in tool_calls(message)] == ["read"]


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        ({"input": 5, "output": 1, "cacheRead": 2, "cacheWrite": 3}, 11),
        ({"input": 5, "output": 1, "totalTokens": 100}, 100),
        ({"input": 5, "output": 1, "totalTokens": 0}, 6),
        ({"input": 5, "output": 1, "totalTokens": None, "cacheRead": None}, 6),
        ({"input": 5, "output": 1, "totalTokens": -7, "cacheRead": -4, "cacheWrite": "3"}, 6),
        ({"input": 0, "output": 0, "cacheRead": 9}, 9),
        ({"input": 1.5, "output": 0}, 1.5),
    ],
)
def test_the_tokens_of_a_usage_are_its_total_or_the_sum(raw: Json, tokens: float) -> None:
    usage = decode_usage(raw)
    assert usage is not None
    assert context_tokens(usage) == tokens


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        {},
        {"input": 0, "output": 0},
        {"input": None, "output": 5},
        {"input": 5},
        {"input": "12", "output": 1},
        {"input": -1, "output": 1},
        {"input": math.inf, "output": 1},
        {"input": True, "output": 1},
        {"input": 1e308, "output": 1e308},
        {"totalTokens": 9},
    ],
)
def test_a_usage_that_cannot_be_trusted_is_none(raw: Any) -> None:
    assert decode_usage(raw) is None


def test_usages_add_up_with_their_costs() -> None:
    one = Usage(1, 2, 3, 4, 10, Cost(1, 2, 3, 4, 10))
    assert one + one == Usage(2, 4, 6, 8, 20, Cost(2, 4, 6, 8, 20))


def test_a_role_nobody_knows_is_kept() -> None:
    assert decode_message({"role": "notification", "content": "n"}) == OtherMessage("notification", "n")
