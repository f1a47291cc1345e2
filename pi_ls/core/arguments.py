"""The arguments of tool calls: from a model's text to a JSON object, from an object to a typed struct.

Models make mistakes. Each of them becomes a sentence the model can act on; what is stored and sent again is
an object whatever happened. The schemas a provider is given come from the same structs.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

import msgspec

from pi_ls.core.jsonvalues import Json, is_array, is_object

S = TypeVar("S", bound=msgspec.Struct)


class BadArguments(ValueError):
    """Arguments that cannot be used; the message is written for the model."""


def parse_arguments(text: str) -> Json:
    """The JSON object a model wrote as arguments; nothing at all and `null` are an empty one.

    Raises BadArguments with what is wrong: no JSON, cut off, more than one value, no object, or a number
    JSON does not have.
    """
    if not text.strip():
        return {}
    try:
        value: Any = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise BadArguments("The arguments are nested too deeply.") from None
    except ValueError as error:
        raise BadArguments(f"The arguments are not valid JSON: {error}. Got: {_excerpt(text)}") from None
    if value is None:
        return {}
    if not is_object(value):
        raise BadArguments(f"The arguments must be one JSON object. Got: {_excerpt(text)}")
    if not _is_finite(value):
        raise BadArguments(f"The arguments hold a number that is too large. Got: {_excerpt(text)}")
    return value


def convert_arguments(arguments: Json, kind: type[S]) -> S:
    """Arguments as a struct of `kind`. Null counts as absent, a number in quotes as a number.

    Raises BadArguments with the field that is wrong and what was expected.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadArguments(f"The arguments do not fit: {error}. Expected: {_expected(kind)}") from None


def schema_of(kind: type[msgspec.Struct]) -> Json:
    """The JSON schema of a struct with every reference written out, as providers want it."""
    (schema,), definitions = msgspec.json.schema_components([kind], ref_template="{name}")
    inlined = _inline(schema, definitions)
    assert is_object(inlined)
    return inlined


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    if is_array(schema):
        return [_inline(part, definitions) for part in schema]
    if not is_object(schema):
        return schema
    if isinstance(name := schema.get("$ref"), str):
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
    # Titles and the docstrings of structs are for readers of the code, not for a model.
    return {
        key: _inline_properties(value, definitions) if key == "properties" else _inline(value, definitions)
        for key, value in schema.items()
        if key != "title" and not (key == "description" and "properties" in schema)
    }


def _inline_properties(properties: Json, definitions: dict[str, Any]) -> Json:
    return {name: _inline(part, definitions) for name, part in properties.items()}


def _expected(kind: type[msgspec.Struct]) -> str:
    schema = schema_of(kind)
    required = schema.get("required", [])
    fields = [
        f"{name} ({part.get('type', 'any')}{'' if name in required else ', optional'})"
        for name, part in schema.get("properties", {}).items()
    ]
    return ", ".join(fields) or "no arguments"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _is_finite(value: Any) -> bool:
    """Whether no number in a decoded value overflowed to infinity (`1e999`), which JSON cannot hold."""
    if is_object(value):
        return all(map(_is_finite, value.values()))
    if is_array(value):
        return all(map(_is_finite, value))
    return not (isinstance(value, float) and value in (float("inf"), float("-inf")))


def _excerpt(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
