"""What hooks return, checked strictly: an answer that is not exactly of a known shape is refused.

Every function takes what a hook returned (not None) and raises WrongAnswer with the rest of a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from pi_ls.core.compaction import CompactionPreparation, CompactionResult
from pi_ls.core.jsonvalues import Json, dumps, is_count, is_object, loads
from pi_ls.core.messages import Usage, decode_usage

T = TypeVar("T")


class WrongAnswer(Exception):
    """Why an answer cannot be used: “returned …”."""


class BeforeCompact(msgspec.Struct, frozen=True):
    """What came of `session_before_compact`: stop, or use this in place of a model's summary."""

    cancel: bool = False
    compaction: CompactionResult | None = None
    extension: str = ""


class AfterCompacting(msgspec.Struct, frozen=True):
    """What came of `session_compacting`. `preserve_data` is UNSET where no hook gave any."""

    prompt: str | None = None
    context: tuple[str, ...] = ()
    preserve_data: Any = msgspec.UNSET


class CustomSummary(msgspec.Struct, frozen=True):
    """A branch summary of an extension."""

    summary: str
    usage: Usage | None = None
    details: Any = None


class BeforeTree(msgspec.Struct, frozen=True):
    """What came of `session_before_tree`; UNSET stands for what was asked for."""

    cancel: bool = False
    summary: CustomSummary | None = None
    custom_instructions: str | msgspec.UnsetType | None = msgspec.UNSET
    replace_instructions: bool | msgspec.UnsetType = msgspec.UNSET
    label: str | msgspec.UnsetType | None = msgspec.UNSET


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class _Compaction(_Strict, frozen=True, kw_only=True):
    summary: str
    first_kept_entry_id: str
    tokens_before: float | None = None
    estimated_tokens_after: float | None = None
    short_summary: str | None = None
    usage: Any = None
    details: Any = None
    preserve_data: Any = None
    from_extension: bool = True


class _Summary(_Strict, frozen=True):
    summary: str
    usage: Any = None
    details: Any = None


class _BeforeCompact(_Strict, frozen=True):
    cancel: bool = False
    compaction: Any = None


class _Compacting(_Strict, frozen=True):
    prompt: str | None = None
    context: tuple[str, ...] | None = None
    preserve_data: Any = msgspec.UNSET


class _BeforeTree(_Strict, frozen=True):
    cancel: bool = False
    summary: Any = None
    custom_instructions: str | msgspec.UnsetType | None = msgspec.UNSET
    replace_instructions: bool | msgspec.UnsetType = msgspec.UNSET
    label: str | msgspec.UnsetType | None = msgspec.UNSET


def before_compact(
    answer: Any, preparation: CompactionPreparation, path_ids: frozenset[str]
) -> BeforeCompact:
    """An answer to `session_before_compact`; `path_ids` are the entries of the current path."""
    given = _convert(answer, _BeforeCompact, "")
    if given.compaction is None:
        return BeforeCompact(cancel=given.cancel)
    return BeforeCompact(given.cancel, _compaction(given.compaction, preparation, path_ids))


def _compaction(
    answer: Any, preparation: CompactionPreparation, path_ids: frozenset[str]
) -> CompactionResult:
    given = _convert(answer, _Compaction, "compaction")
    if given.first_kept_entry_id not in path_ids:
        raise WrongAnswer(
            f"returned the firstKeptEntryId “{given.first_kept_entry_id}”, which is not on the current path"
        )
    before = given.tokens_before
    if before is not None and not (math.isfinite(before) and before >= 0):
        raise WrongAnswer("returned a tokensBefore that is no number from 0")
    return CompactionResult(
        summary=_text(given.summary, "compaction.summary"),
        first_kept_entry_id=given.first_kept_entry_id,
        tokens_before=preparation.tokens_before if before is None else before,
        short_summary=None if given.short_summary is None else " ".join(given.short_summary.split()) or None,
        usage=_usage(given.usage, "compaction.usage"),
        details=_json(given.details, "compaction.details"),
        preserve_data=_json(given.preserve_data, "compaction.preserveData"),
        from_extension=True,
    )


def compacting(answer: Any) -> AfterCompacting:
    """An answer to `session_compacting`."""
    given = _convert(answer, _Compacting, "")
    preserve = given.preserve_data
    return AfterCompacting(
        prompt=None if given.prompt is None else _text(given.prompt, "prompt"),
        context=given.context or (),
        preserve_data=preserve if preserve is msgspec.UNSET else _json(preserve, "preserveData"),
    )


def before_tree(answer: Any) -> BeforeTree:
    """An answer to `session_before_tree`."""
    given = _convert(answer, _BeforeTree, "")
    summary = None
    if given.summary is not None:
        told = _convert(given.summary, _Summary, "summary")
        summary = CustomSummary(
            _text(told.summary, "summary.summary"),
            _usage(told.usage, "summary.usage"),
            _json(told.details, "summary.details"),
        )
    return BeforeTree(
        given.cancel, summary, given.custom_instructions, given.replace_instructions, given.label
    )


def _convert(answer: Any, kind: type[T], place: str) -> T:
    what = f" as {place}" if place else ""
    if isinstance(answer, msgspec.Struct):
        answer = {
            field.encode_name: getattr(answer, field.name)
            for field in msgspec.structs.fields(answer)
            if getattr(answer, field.name) is not None
        }
    if not isinstance(answer, Mapping):
        raise WrongAnswer(f"returned {type(answer).__name__}{what}, not a dictionary")
    try:
        return msgspec.convert(dict(cast("Mapping[Any, Any]", answer)), kind)
    except msgspec.ValidationError as error:
        raise WrongAnswer(f"returned a dictionary{what} that cannot be used: {error}") from None


def _text(text: str, place: str) -> str:
    if not text.strip():
        raise WrongAnswer(f"returned an empty {place}")
    return text


def _usage(value: Any, place: str) -> Usage | None:
    if value is None:
        return None
    raw = _json(value, place)
    if not is_object(raw) or not (is_count(raw.get("input")) and is_count(raw.get("output"))):
        raise WrongAnswer(f"returned a {place} that is no usage ({{input, output, …}})")
    return decode_usage(raw)  # None where it says that nothing was used


def _json(value: Any, place: str) -> Any:
    """The value as it comes back from a file: plain JSON, and nobody else's object any more."""
    if value is None:
        return None
    try:
        builtins: Json = {"value": msgspec.to_builtins(value)}
        return loads(dumps(builtins))["value"]
    except (TypeError, ValueError, RecursionError, OverflowError):
        raise WrongAnswer(f"returned a {place} that cannot be written as JSON") from None
