from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pi_ls.core.jsonvalues import Json, dumps, is_count, loads, number, stringify
from pi_ls.core.messages import AssistantMessage, ToolCall
from tests.conformance_data import session


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1.0", "1"),
        ("-0.0", "0"),
        ("1e3", "1000"),
        ("1E-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("0.00001234", "0.00001234"),
        ("-1.5e-9", "-1.5e-9"),
        ("1e16", "10000000000000000"),
        ("123456789012345680000", "123456789012345680000"),
        ("1e21", "1e+21"),
        ("1.25e25", "1.25e+25"),
        ("100000000000000000000000", "1e+23"),
        ("12345678901234567890", "12345678901234567000"),
        ("9007199254740993", "9007199254740992"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("123456789.123456789", "123456789.12345679"),
        ("1e400", "null"),
        ("-1e400", "null"),
        ("1" + "0" * 5_000, "null"),
    ],
)
def test_numbers_are_written_as_javascript_writes_them(text: str, written: str) -> None:
    assert stringify(loads(text)) == written


def test_keys_that_are_array_indices_come_first_in_numeric_order() -> None:
    value = {"10": 1, "b": 2, "2": 3, "01": 4, "a": 5, "4294967295": 6, "4294967294": 7, "²": 8}
    assert stringify(value) == ('{"2":3,"10":1,"4294967294":7,"b":2,"01":4,"a":5,"4294967295":6,"²":8}')


def test_only_controls_quotes_backslashes_and_lone_surrogates_are_escaped() -> None:
    assert stringify('" / \\ \u2028 \x01\x1f\b\f\n\r\t\x7f é \ud800 \udc00 🙂') == (
        '"\\" / \\\\ \u2028 \\u0001\\u001f\\b\\f\\n\\r\\t\x7f é \\ud800 \\udc00 🙂"'
    )
    assert stringify("\ud83d\ude42") == '"🙂"'  # two halves side by side are one character


def test_the_rest_is_compact_json() -> None:
    value: Json = {"n": None, "t": True, "f": False, "l": [], "o": {}, "d": {"x": [1, "two", [None]]}}
    assert stringify(value) == '{"n":null,"t":true,"f":false,"l":[],"o":{},"d":{"x":[1,"two",[null]]}}'


def test_arguments_recorded_from_javascript_are_written_the_same() -> None:
    """The tokens of each call tell the length of its arguments' text."""
    case = session("tool-args-json-forms")
    checked = 0
    for entry in case.entries():
        message = entry.message
        if not isinstance(message, AssistantMessage):
            continue
        for call in message.content:
            if isinstance(call, ToolCall):
                ((_, tokens, *_),) = case.expected["entryMessages"][entry.id]
                length = (
                    len((call.name + stringify(call.arguments)).encode("utf-16-le", "surrogatepass")) // 2
                )
                assert math.ceil(length / 4) == tokens
                checked += 1
    assert checked == 8


def test_what_is_no_json_value_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        stringify({"a": {1}})


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_any_depth_is_written() -> None:
    assert stringify(nested(50_000)) == "[" * 50_001 + "]" * 50_001
    assert dumps(nested(50_000)) == b"[" * 50_001 + b"]" * 50_001


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' {"a": 1} ', {"a": 1}),
        (b'{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}),
        (b'"\\ud83d"', "\ud83d"),
        (b'"\\ud83d\\ude42"', "🙂"),
        (b'"a\xffb"', "a�b"),
        (b'"\xe2\x82"', "�"),
        (b'[1e400,"x"]', [math.inf, "x"]),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        ("\u2028".join(["[1,", "]"]).replace("\u2028", "2").encode(), [1, 2]),
        ('"text"', "text"),
        ('"\ud83d"', "\ud83d"),
    ],
)
def test_what_other_programs_write_is_read(data: bytes | str, value: Any) -> None:
    assert loads(data) == value


@pytest.mark.parametrize(
    "data", [b"", b"{", b"NaN", b'{"a":Infinity}', b"[-Infinity]", b"{} {}", b"'a'", b'{"a":1,}', b'"\n"']
)
def test_what_is_no_json_is_refused_with_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are the parser's
        loads(data)


def test_nesting_beyond_reading_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        loads(b"[" * 100_000 + b"]" * 100_000)


def test_a_line_is_compact_and_keeps_the_order_of_keys() -> None:
    assert dumps({"b": 1, "2": [True, None, "é"], "1": 1.5}) == '{"b":1,"2":[true,null,"é"],"1":1.5}'.encode()


def test_a_line_with_a_lone_surrogate_is_valid_and_reads_back_the_same() -> None:
    value = {"10": 2**70, "2": "half \ud83d", "f": 0.1, "big": 1e21}
    line = dumps(value)
    assert loads(line) == value
    assert list(json.loads(line.decode("utf-8"))) == list(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beside", ["", "\ud83d"])
def test_a_line_never_holds_nan_or_infinity(value: float, beside: str) -> None:
    assert json.loads(dumps([value, beside]))[0] is None


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_every_value_reads_back_from_its_line(value: Any) -> None:
    line = dumps(value)
    assert b"\n" not in line
    again = loads(line)
    assert dumps(again) == line


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_written_the_javascript_way_is_the_same_number(value: float) -> None:
    assert float(stringify(value)) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, True, "1", None])
def test_what_arithmetic_cannot_take_is_no_number(value: Any) -> None:
    assert not is_count(value)
    assert number(value) == 0


def test_a_count_is_not_negative() -> None:
    values: Json = {"zero": 0, "many": 2**53, "half": 0.5}
    assert all(map(is_count, values.values()))
    assert not is_count(-1)
    assert number(-1) == -1
