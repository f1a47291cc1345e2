from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from pi_ls.core.arguments import BadArguments, convert_arguments, parse_arguments, schema_of
from pi_ls.core.jsonvalues import Json


class Piece(msgspec.Struct, rename="camel"):
    """A part."""

    old_text: Annotated[str, Meta(description="what was there")]


class Arguments(msgspec.Struct):
    """Arguments for the tests."""

    path: str
    limit: int | UnsetType = UNSET
    pieces: list[Piece] | UnsetType = UNSET


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ("null", {}),
        ('{"path": "a"}', {"path": "a"}),
        (r'{"path": "\ud83d"}', {"path": "\ud83d"}),
    ],
)
def test_arguments_are_an_object(text: str, value: Json) -> None:
    assert parse_arguments(text) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"path": "a', "not valid JSON"),
        ("[1]", "must be one JSON object"),
        ('"x"', "must be one JSON object"),
        ('{"path":"a"}{"path":"b"}', "not valid JSON"),
        ('{"path":"a",}', "not valid JSON"),
        ('{"path":NaN}', "NaN is not a JSON value"),
        ('{"path":-Infinity}', "-Infinity is not a JSON value"),
        ('{"path":[1e999]}', "too large"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_told(text: str, told: str) -> None:
    with pytest.raises(BadArguments, match=told):
        parse_arguments(text)


def test_null_counts_as_absent_and_a_number_in_quotes_as_a_number() -> None:
    assert convert_arguments({"path": "a", "limit": None}, Arguments) == Arguments("a")
    assert convert_arguments({"path": "a", "limit": "5", "odd": 1}, Arguments) == Arguments("a", 5)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (dict[str, Any](), "required field `path`"),
        ({"path": 5}, r"\$\.path"),
        ({"path": "a", "limit": "many"}, r"\$\.limit"),
        ({"path": "a", "pieces": [dict[str, Any]()]}, r"required field `oldText` - at `\$\.pieces\[0\]`"),
    ],
)
def test_arguments_that_do_not_fit_say_which_and_what_was_expected(given: Json, told: str) -> None:
    with pytest.raises(BadArguments, match=told) as caught:
        convert_arguments(given, Arguments)
    assert "Expected: path (string), limit (integer, optional)" in str(caught.value)


def test_a_schema_is_whole_and_says_only_what_a_model_needs() -> None:
    piece = {
        "type": "object",
        "properties": {"oldText": {"type": "string", "description": "what was there"}},
        "required": ["oldText"],
    }
    assert schema_of(Arguments) == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer"},
            "pieces": {"type": "array", "items": piece},
        },
        "required": ["path"],
    }
