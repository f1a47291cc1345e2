from __future__ import annotations

import json
import re

import pytest

from pi_ls.core.chat import ToolSpec
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from pi_ls.core.request import (
    INTERRUPTED,
    ChatForm,
    chat_messages,
    chat_tools,
    clean_json,
    clean_text,
    good_messages,
    portable_call_id,
)
from pi_ls.testing import MODEL, PROVIDER, assistant, call, result, user

OPENAI = ChatForm(provider=PROVIDER, model=MODEL)
ANTHROPIC = ChatForm(provider=PROVIDER, model=MODEL, thinking_blocks=True)
PICTURE = ImageContent("AAAA", "image/png")
PICTURE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def shape(messages: list[Message]) -> list[str]:
    """One word a message: its role, and for a result the call and whether it is an error."""
    return [
        f"{one.tool_call_id}{'!' if one.is_error else ''}"
        if isinstance(one, ToolResultMessage)
        else type(one).__name__.removesuffix("Message").lower()
        for one in messages
    ]


def test_a_conversation_that_is_good_stays_as_it_is() -> None:
    whole = [user("do"), assistant("yes", call("bash")), result("out"), assistant("done")]
    assert good_messages(whole) == whole


def test_a_call_without_a_result_gets_one_that_says_interrupted() -> None:
    cut = [user("do"), assistant(call("bash", "c1"), call("bash", "c2")), result("ok", "c1"), user("go on")]
    good = good_messages(cut)
    assert shape(good) == ["user", "assistant", "c1", "c2!", "user"]
    assert isinstance(good[3], ToolResultMessage)
    assert good[3].content == (TextContent(INTERRUPTED),)
    assert good[3].tool_name == "bash"


def test_results_come_right_after_their_answer_in_the_order_of_its_calls() -> None:
    mixed = [
        assistant(call("bash", "c1"), call("bash", "c2")),
        user("hurry"),
        result("2", "c2"),
        result("1", "c1"),
    ]
    assert shape(good_messages(mixed)) == ["assistant", "c1", "c2", "user"]


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
def test_a_failed_answer_is_left_out_with_the_results_of_its_calls(stop_reason: str) -> None:
    failed = assistant("half", call("bash", "c1"), stop_reason=stop_reason)
    assert shape(good_messages([user("do"), failed, result("out", "c1"), user("again")])) == ["user", "user"]


def test_an_id_that_was_used_before_belongs_to_the_nearest_call() -> None:
    failed = assistant(call("bash"), stop_reason="error")
    again = assistant(call("bash"))
    good = good_messages([again, result("first"), failed, result("lost"), again, result("second")])
    assert shape(good) == ["assistant", "c1", "assistant", "c1"]
    assert [one.content for one in good if isinstance(one, ToolResultMessage)] == [
        (TextContent("first"),),
        (TextContent("second"),),
    ]


def test_results_without_a_call_and_second_results_are_left_out() -> None:
    good = good_messages(
        [result("early"), assistant(call("bash")), result("one"), result("two"), result("x", "c9")]
    )
    assert shape(good) == ["assistant", "c1"]
    assert isinstance(good[1], ToolResultMessage)
    assert good[1].content == (TextContent("one"),)


def test_roles_that_are_no_part_of_a_request_are_left_out() -> None:
    assert shape(good_messages([SystemMessage("rules"), BashExecutionMessage("ls"), user("x")])) == [
        "system",
        "user",
    ]


def test_half_an_emoji_is_replaced_everywhere_and_two_halves_are_joined() -> None:
    assert clean_text("x \ud83d y") == "x � y"
    assert clean_text("\ud83d\ude00 ok") == "😀 ok"
    assert clean_json({"\ud83d": ["\ude00", 1, None]}) == {"�": ["�", 1, None]}
    broken = [
        user("a \ud83d"),
        assistant("b \ud83d", ToolCall("c1", "bash", {"command": "c \ud83d"})),
        result("d \ud83d"),
    ]
    sent = json.dumps(chat_messages(good_messages(broken), OPENAI, system="s \ud83d"), ensure_ascii=False)
    assert len(re.findall("�", sent.encode().decode())) == 5


def test_thinking_and_its_signature_are_sent_byte_for_byte_in_their_order() -> None:
    thought = ThinkingContent("because\r\n  \u2028x", "SIG-A=")
    hidden = ThinkingContent("", "ENCRYPTED", redacted=True)
    [sent] = chat_messages(good_messages([assistant(thought, "first", hidden, "second")]), ANTHROPIC)
    assert sent["content"] == [
        {"type": "thinking", "thinking": "because\r\n  \u2028x", "signature": "SIG-A="},
        {"type": "text", "text": "first"},
        {"type": "redacted_thinking", "data": "ENCRYPTED"},
        {"type": "text", "text": "second"},
    ]


@pytest.mark.parametrize(
    ("thought", "form"),
    [
        (ThinkingContent("why", "SIG"), OPENAI),
        (ThinkingContent("why", "SIG"), ChatForm(provider="other", model=MODEL, thinking_blocks=True)),
        (ThinkingContent("why", "SIG"), ChatForm(provider=PROVIDER, model="other", thinking_blocks=True)),
        (ThinkingContent("unsigned"), ANTHROPIC),
        (ThinkingContent("mended \ud83d", "SIG"), ANTHROPIC),
    ],
    ids=["other interface", "other provider", "other model", "no signature", "would have to be mended"],
)
def test_thinking_that_cannot_be_taken_back_is_left_out(thought: ThinkingContent, form: ChatForm) -> None:
    assert chat_messages(good_messages([assistant(thought, "so")]), form) == [
        {"role": "assistant", "content": "so"}
    ]


def test_calls_and_results_in_the_form_of_chat_completions() -> None:
    messages = [user("do"), assistant(call("bash", command="ls", n=1.5)), result("out"), assistant("done")]
    assert chat_messages(messages, OPENAI, system="rules") == [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "do"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"command":"ls","n":1.5}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
        {"role": "assistant", "content": "done"},
    ]


def test_messages_that_say_nothing_are_left_out_and_empty_results_are_not() -> None:
    nothing = [UserMessage(""), UserMessage((TextContent(" \n"),)), AssistantMessage(), assistant(" ")]
    assert chat_messages(nothing, OPENAI) == []
    [answer, tool] = chat_messages([assistant(call("bash")), result("")], OPENAI)
    assert (answer["content"], tool["content"]) == (None, "(no output)")


def test_images_of_a_person() -> None:
    shown = [UserMessage((TextContent("look"), PICTURE))]
    assert chat_messages(shown, OPENAI)[0]["content"] == [{"type": "text", "text": "look"}, PICTURE_PART]
    blind = ChatForm(provider=PROVIDER, model=MODEL, images=False)
    assert "image left out" in chat_messages(shown, blind)[0]["content"]


def test_images_of_results_follow_the_batch_or_go_with_the_result() -> None:
    pictured = ToolResultMessage("c1", "read", (TextContent("here"), PICTURE))
    messages = [assistant(call("read"), call("bash", "c2")), pictured, result("out", "c2"), user("next")]
    assert [one["role"] for one in chat_messages(messages, OPENAI)] == [
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    assert chat_messages(messages, OPENAI)[3]["content"] == [PICTURE_PART]
    assert chat_messages(messages, ANTHROPIC)[1]["content"] == [
        {"type": "text", "text": "here"},
        PICTURE_PART,
    ]
    only = [assistant(call("read")), ToolResultMessage("c1", "read", (PICTURE,))]
    assert [one["content"] for one in chat_messages(only, OPENAI)] == [
        None,
        "(see the image below)",
        [PICTURE_PART],
    ]


def test_tools_in_the_form_of_chat_completions() -> None:
    assert chat_tools([ToolSpec("ls", "List.", {"type": "object"})]) == [
        {
            "type": "function",
            "function": {"name": "ls", "description": "List.", "parameters": {"type": "object"}},
        }
    ]


def test_call_ids_fit_every_provider_and_stay_different() -> None:
    assert portable_call_id("toolu_01-AB") == "toolu_01-AB"
    long = [portable_call_id(f"call_{'x' * 60}|fc_{n}") for n in (1, 2)]
    assert long[0] != long[1]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", one) for one in long)
    sent = chat_messages(good_messages([assistant(call("bash", "a|b")), result("out", "a|b")]), OPENAI)
    assert sent[0]["tool_calls"][0]["id"] == sent[1]["tool_call_id"]
