"""Decoded JSON values: telling what they are, and reading them without ever failing.

Session files are written by many programs, so nothing about a value's type is taken for granted.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

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
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def number(value: Any) -> float:
    """A decoded JSON value as a finite number, 0 where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return 0


def string(value: Any, default: str = "") -> str:
    """A decoded JSON value as text, `default` where it is none."""
    return value if isinstance(value, str) else default


def optional_string(value: Any) -> str | None:
    """A decoded JSON value as text, None where it is none."""
    return value if isinstance(value, str) else None
