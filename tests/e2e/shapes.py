"""The shape of a JSON value in a few words, compared to the last key."""

from __future__ import annotations

from types import UnionType
from typing import Any, NamedTuple

from pi_ls.core.jsonvalues import is_array, is_object


class Maybe(NamedTuple):
    """A member that may be absent."""

    shape: Any


class Each(NamedTuple):
    """A list, every member of which has this shape."""

    shape: Any


def difference(value: Any, shape: Any, at: str = "") -> str | None:
    """Where a value first differs from a shape, in words; None where it does not.

    A shape is a type (`bool` is no `int`), a dict with exactly the members there may be, a list of shapes,
    `Each`, or the value itself.
    """
    if isinstance(shape, type | UnionType):
        fits = isinstance(value, shape) and (not isinstance(value, bool) or _allows_bool(shape))
        return None if fits else f"{at} is {value!r}, no {shape}"
    if is_object(shape) and is_object(value):
        return _difference_of_objects(value, shape, at)
    if isinstance(shape, Each) and is_array(value):
        shape = [shape.shape] * len(value)
    if is_array(shape) and is_array(value):
        return _difference_of_lists(value, shape, at)
    return None if value == shape and type(value) is type(shape) else f"{at} is {value!r}, not {shape!r}"


def _difference_of_lists(value: list[Any], shapes: list[Any], at: str) -> str | None:
    if len(value) != len(shapes):
        return f"{at} has {len(value)} members: {value!r}"
    pairs = enumerate(zip(value, shapes, strict=True))
    return next(filter(None, (difference(one, shape, f"{at}[{i}]") for i, (one, shape) in pairs)), None)


def _difference_of_objects(value: dict[str, Any], shape: dict[str, Any], at: str) -> str | None:
    if unknown := value.keys() - shape.keys():
        return f"{at} has more: {sorted(unknown)}"
    for key, wanted in shape.items():
        optional = isinstance(wanted, Maybe)
        if key not in value:
            if optional:
                continue
            return f"{at}.{key} is missing in {value!r}"
        found = difference(value[key], wanted.shape if optional else wanted, f"{at}.{key}")
        if found is not None:
            return found
    return None


def _allows_bool(shape: type | UnionType) -> bool:
    kinds = shape.__args__ if isinstance(shape, UnionType) else (shape,)
    return bool in kinds or object in kinds
