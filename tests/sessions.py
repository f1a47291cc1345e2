"""Session files in a few words: builders for header and entries, and what they are most often combined to.

Every builder returns the JSON object of one line. A parent is an id or None for a root.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
TIME = "2026-01-01T00:00:00.000Z"


def filler(length: int) -> str:
    """Plain text of exactly that many characters."""
    return ("lorem ip " * (length // 9 + 1))[:length]


def header(cwd: str = "/w/p", *, version: int = 3, session_id: str = "s-1", **more: Any) -> Json:
    return {"type": "session", "version": version, "id": session_id, "timestamp": TIME, "cwd": cwd, **more}


def entry(kind: str, entry_id: str, parent: str | None, **fields: Any) -> Json:
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": TIME, **fields}


def user(entry_id: str, parent: str | None, text: Any) -> Json:
    return entry("message", entry_id, parent, message={"role": "user", "content": text, "timestamp": 1})


def usage(total: float, cost: float = 0) -> Json:
    return {
        "input": total,
        "output": 0,
        "cacheRead": 0,
        "cacheWrite": 0,
        "totalTokens": total,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": cost},
    }


def call(call_id: str, name: str, **arguments: Any) -> Json:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def assistant(
    entry_id: str,
    parent: str | None,
    text: str = "",
    *calls: Json,
    total: float = 0,
    cost: float = 0,
    stop: str | None = None,
    thinking: tuple[str, str] | None = None,
    provider: str = "fake",
    model: str = "m200",
    **more: Any,
) -> Json:
    content: list[Json] = []
    if thinking is not None:
        content.append({"type": "thinking", "thinking": thinking[0], "thinkingSignature": thinking[1]})
    if text:
        content.append({"type": "text", "text": text})
    message = {
        "role": "assistant",
        "content": content + list(calls),
        "api": "openai-completions",
        "provider": provider,
        "model": model,
        "usage": usage(total, cost),
        "stopReason": stop or ("toolUse" if calls else "stop"),
        "timestamp": 2,
    }
    return entry("message", entry_id, parent, message=message | more)


def result(
    entry_id: str, parent: str, call_id: str, text: str, *, name: str = "bash", error: bool = False
) -> Json:
    message = {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": name,
        "content": [{"type": "text", "text": text}],
        "isError": error,
        "timestamp": 3,
    }
    return entry("message", entry_id, parent, message=message)


def compaction(
    entry_id: str, parent: str, summary: str, kept: str, *, before: int = 1000, **more: Any
) -> Json:
    return entry(
        "compaction", entry_id, parent, summary=summary, firstKeptEntryId=kept, tokensBefore=before, **more
    )


def custom_message(entry_id: str, parent: str | None, text: str) -> Json:
    return entry("custom_message", entry_id, parent, customType="note", content=text, display=True)


def label(entry_id: str, parent: str, target: str, text: str | None) -> Json:
    return entry("label", entry_id, parent, targetId=target, label=text)


def model_change(entry_id: str, parent: str | None, provider: str, model: str) -> Json:
    return entry("model_change", entry_id, parent, provider=provider, modelId=model)


def thinking_level(entry_id: str, parent: str | None, level: str) -> Json:
    return entry("thinking_level_change", entry_id, parent, thinkingLevel=level)


def two_long_turns(total: int, **more: Any) -> list[Json]:
    """Two turns of 50,000 to 75,000 tokens; a compaction with default settings keeps from `u2`."""
    return [
        header(**more),
        user("u1", None, "MARK-OLD " + filler(200_000)),
        assistant("a1", "u1", "x", total=60_000),
        user("u2", "a1", filler(200_000)),
        assistant("a2", "u2", "y", total=total),
    ]


def fork_with_two_branches(**more: Any) -> list[Json]:
    """`A` ─ `Ee` ─ `Ff` and `A` ─ `B` ─ `Cc` ─ `D` ─ `Dd`; the leaf is `Dd`."""
    return [
        header(**more),
        assistant("A", None, "root", total=5),
        user("Ee", "A", "e"),
        assistant("Ff", "Ee", "f", total=90),
        user("B", "A", "b"),
        assistant("Cc", "B", "c", total=100),
        user("D", "Cc", "d"),
        assistant("Dd", "D", "dd", total=120),
    ]


def small_model_then_large(**more: Any) -> list[Json]:
    """`a1` by fake/m200 with thinking low, then `a2`, the leaf, by fake/m1000 with thinking high."""
    return [
        header(**more),
        model_change("k1", None, "fake", "m200"),
        thinking_level("t1", "k1", "low"),
        user("u1", "t1", "a"),
        assistant("a1", "u1", "b", total=10),
        model_change("k2", "a1", "fake", "m1000"),
        thinking_level("t2", "k2", "high"),
        user("u2", "t2", "c"),
        assistant("a2", "u2", "d", total=20, model="m1000"),
    ]


def grown_in_a_large_window(**more: Any) -> list[Json]:
    """Work of fake/m1000 up to `z` at 600,000 tokens: twelve calls with results of 200,000 characters."""
    lines = [header(**more), model_change("k1", None, "fake", "m1000"), user("u1", "k1", "start")]
    last = "u1"
    for at in range(12):
        step = call(f"c{at}", "bash", command="x")
        lines.append(assistant(f"a{at}", last, "", step, model="m1000"))
        lines.append(result(f"r{at}", f"a{at}", f"c{at}", filler(200_000)))
        last = f"r{at}"
    return [*lines, assistant("z", last, "done", total=600_000, model="m1000")]


def encode(lines: Iterable[Json], *, ascii_only: bool = False, newline: str = "\n") -> bytes:
    """The lines as the bytes of a session file; lone surrogates as escapes."""
    text = "".join(json.dumps(line, ensure_ascii=ascii_only) + newline for line in lines)
    return text.encode("utf-8")


def write(path: Path, lines: Iterable[Json], *, ascii_only: bool = False, newline: str = "\n") -> Path:
    """Write a session file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(lines, ascii_only=ascii_only, newline=newline))
    return path


def read(path: Path) -> list[Json]:
    """Every line of a session file, decoded; fails on a line that is no JSON."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


def types(lines: Sequence[Json]) -> list[str]:
    return [line["type"] for line in lines]
