from __future__ import annotations

import time
from typing import Any

import pytest

from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import Message, decode_message
from pi_ls.core.tokens import TokenCounter, estimate_tokens, utf16_length
from tests.conformance_data import Session, opened_sessions, table
from tests.core.builders import assistant, branch_summary, compaction, label, message, user

OPENED = opened_sessions()


def words(text: str) -> int:
    """A tokenizer whose counts a reader can see."""
    return len(text.split())


def decoded(raw: Json) -> Message:
    found = decode_message(raw)
    assert found is not None
    return found


def image(size: int) -> Json:
    return {"type": "image", "data": "A" * size, "mimeType": "image/png"}


@pytest.mark.parametrize("row", table("estimate-tokens"), ids=lambda row: str(row["message"])[:60])
def test_the_heuristic_agrees_with_pi(row: Json) -> None:
    assert estimate_tokens(decoded(row["message"])) == row["expected"]


@pytest.mark.parametrize("case", OPENED, ids=repr)
def test_every_message_of_a_session_weighs_what_pi_says(case: Session) -> None:
    entries = case.entries()
    references = case.references(entries)
    recorded: dict[str, list[list[Any]]] = case.expected["entryMessages"]
    counter = TokenCounter()
    weights = {references[id(entry)]: TokenCounter().entry(entry) for entry in entries}
    assert {ref: weight for ref, weight in weights.items() if weight} == {
        ref: tokens for ref, rows in recorded.items() if (tokens := sum(row[1] for row in rows))
    }
    assert counter.name == "chars"


@pytest.mark.parametrize(
    ("text", "length"), [("", 0), ("abc", 3), ("é", 1), ("🙂", 2), ("\ud83d", 1), ("\ud83d\ude42", 2)]
)
def test_length_is_counted_in_utf16_units(text: str, length: int) -> None:
    assert utf16_length(text) == length


@pytest.mark.parametrize("count_text", [None, words])
def test_an_image_weighs_the_same_whatever_its_size_and_place(count_text: Any) -> None:
    text = {"type": "text", "text": "see"}
    weights = {
        estimate_tokens(decoded({"role": role, "content": [text, image(size)]}), count_text)
        for role in ("user", "toolResult")
        for size in (4_000, 4_000_000)
    }
    assert len(weights) == 1
    (weight,) = weights
    assert 500 <= weight <= 6_000
    one = estimate_tokens(decoded({"role": "user", "content": [image(10)]}), count_text)
    two = estimate_tokens(decoded({"role": "user", "content": [image(10), image(10)]}), count_text)
    assert two == 2 * one


def test_a_tokenizer_counts_exactly_the_text_that_goes_out() -> None:
    answer: Json = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "let me think"},
            {"type": "text", "text": "here it is"},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a b"}},
        ],
    }
    assert estimate_tokens(decoded(answer), words) == 3 + 3 + 1 + 2
    bash: Json = {"role": "bashExecution", "command": "ls -la", "output": "a b c"}
    assert estimate_tokens(decoded(bash), words) == 5
    assert estimate_tokens(decoded({**bash, "excludeFromContext": True}), words) == 0
    assert estimate_tokens(decoded({"role": "user", "content": [image(10)]}), words) == 1_200


def test_an_entry_weighs_what_its_message_weighs_and_a_state_entry_nothing() -> None:
    counter = TokenCounter(words)
    assert counter.name == "tiktoken"
    weigh = {
        one["id"]: counter.entry(Entry.of(one))
        for one in (
            user("u", None, "two words"),
            assistant("a", "u", "three words now"),
            compaction("c", "a", "u", "a summary"),
            branch_summary("b", "c", "left this behind"),
            branch_summary("b0", "b", ""),
            label("l", "b", "u", "many words in a label"),
            message("null", "l", "user", None),
        )
    }
    assert weigh == {"u": 2, "a": 3, "c": 2, "b": 3, "b0": 0, "l": 0, "null": 0}


def test_an_entry_is_read_once_until_it_is_forgotten() -> None:
    reads: list[str] = []

    def read(entry: Entry) -> Json:
        reads.append(entry.id)
        return user("u", None, "two words")

    entry = Entry("u", None, "message", None, "user", read)
    counter = TokenCounter(words)
    assert [counter.entry(entry), counter.entry(entry)] == [2, 2]
    assert reads == ["u"]
    counter.forget("u")
    assert counter.entry(entry) == 2
    assert reads == ["u", "u"]


def test_a_message_with_a_huge_image_is_weighed_at_once() -> None:
    huge = decoded({"role": "user", "content": [image(4_000_000)]})
    began = time.perf_counter()
    estimate_tokens(huge)
    assert time.perf_counter() - began < 0.05
