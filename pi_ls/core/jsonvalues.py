"""JSON values: reading and writing them, and telling what they are, without ever failing on their content.

Session files are written by many programs, so nothing about a value's type is taken for granted. Two ways
of writing are here: `dumps` is for our own lines, `stringify` is what JavaScript's `JSON.stringify` would
have written, by which pi measures the arguments of tool calls.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, Final, TypeGuard

import msgspec

Json = dict[str, Any]
"""A decoded JSON object."""


def is_object(value: Any) -> TypeGuard[Json]:
    """Whether a decoded JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a decoded JSON value is an array."""
    return isinstance(value, list)


def is_count(value: Any) -> bool:
    """Whether a decoded JSON value is a finite number that is not negative."""
    return _is_number(value) and value >= 0


def number(value: Any) -> float:
    """A decoded JSON value as a finite number, 0 where it is none."""
    return value if _is_number(value) else 0


def string(value: Any, default: str = "") -> str:
    """A decoded JSON value as text, `default` where it is none."""
    return value if isinstance(value, str) else default


def optional_string(value: Any) -> str | None:
    """A decoded JSON value as text, None where it is none."""
    return value if isinstance(value, str) else None


def _is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is a number that arithmetic with floats can take (no NaN, no integer of 400 digits)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def loads(data: bytes | str) -> Any:
    """Decode one JSON text as session files may hold it.

    Lone surrogate escapes and numbers beyond a float (`1e400`, which reads as infinity) are taken, as other
    programs write them; bytes that are no UTF-8 become U+FFFD. NaN and Infinity are no JSON. Raises
    ValueError for what cannot be read, deep nesting included.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply to be read") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _parse_int(digits: str) -> int | float:
    # Python refuses integers of thousands of digits; as floats they are infinite, as in JavaScript.
    return int(digits) if len(digits) <= sys.int_info.str_digits_check_threshold else float(digits)


def dumps(value: Any) -> bytes:
    """One compact line of UTF-8 (no line end) that every JSON reader takes.

    Lone surrogates are escaped, since UTF-8 has no place for them; NaN and infinities become null.
    """
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return _write(value, members=lambda item: item.items(), real=_exact_number).encode()


def stringify(value: Any) -> str:
    """The text JavaScript's `JSON.stringify` makes of a decoded JSON value.

    Numbers are doubles in JavaScript's notation, keys that are array indices come first in numeric order,
    only control characters, quotes, backslashes and lone surrogates are escaped.
    """
    return _write(value, members=_javascript_order, real=_javascript_number)


def _write(
    value: Any,
    members: Callable[[Json], Iterable[tuple[str, Any]]],
    real: Callable[[int | float], str],
) -> str:
    """Compact JSON with the caller's member order and numbers; not recursive, so any depth will do."""
    out: list[str] = []
    todo: list[tuple[bool, Any]] = [(False, value)]  # (is it text already?, what)
    while todo:
        written, item = todo.pop()
        if written:
            out.append(item)
        elif item is None or isinstance(item, bool):
            out.append({None: "null", True: "true", False: "false"}[item])
        elif isinstance(item, str):
            out.append(_quote(item))
        elif isinstance(item, int | float):
            out.append(real(item) if _is_number(item) else "null")
        elif is_object(item):
            todo.extend(reversed([*_object_parts(members(item))]))
        elif is_array(item):
            todo.extend(reversed([*_array_parts(item)]))
        else:
            raise TypeError(f"a value of type {type(item).__name__} is no JSON value")
    return "".join(out)


def _object_parts(members: Iterable[tuple[str, Any]]) -> Iterator[tuple[bool, Any]]:
    opening = "{"
    for key, value in members:
        yield True, f"{opening}{_quote(key)}:"
        yield False, value
        opening = ","
    yield True, "{}" if opening == "{" else "}"


def _array_parts(items: Iterable[Any]) -> Iterator[tuple[bool, Any]]:
    opening = "["
    for item in items:
        yield True, opening
        yield False, item
        opening = ","
    yield True, "[]" if opening == "[" else "]"


_SURROGATES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def _quote(text: str) -> str:
    quoted = json.encoder.encode_basestring(text)
    return quoted if quoted.isascii() else _SURROGATES.sub(_escape_surrogate, quoted)


def _escape_surrogate(match: re.Match[str]) -> str:
    units = match.group()
    if len(units) == 2:  # a pair that was put together from two halves is a character
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return f"\\u{ord(units):04x}"


_ARRAY_INDEX: Final = re.compile("0|[1-9][0-9]{0,9}")
_LARGEST_INDEX: Final = 2**32 - 2


def _javascript_order(item: Json) -> Iterable[tuple[str, Any]]:
    indices = [key for key in item if _ARRAY_INDEX.fullmatch(key) and int(key) <= _LARGEST_INDEX]
    if not indices:
        return item.items()
    ordered = sorted(indices, key=int)
    ordered.extend(key for key in item if key not in set(indices))
    return [(key, item[key]) for key in ordered]


def _exact_number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else repr(value)


def _javascript_number(value: int | float) -> str:
    """A finite number as JavaScript prints it: plain up to 21 digits, `1e+21` and `1e-7` beyond."""
    if isinstance(value, int) and abs(value) <= 2**53:
        return str(value)
    value = float(value)
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "null"
    sign, digit_tuple, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, digit_tuple)).rstrip("0")
    point = len(digit_tuple) + int(exponent)  # how many digits stand before the decimal point
    if len(digits) <= point <= 21:
        text = digits.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
        text = f"{mantissa}e{point - 1:+d}"
    return f"-{text}" if sign else text
