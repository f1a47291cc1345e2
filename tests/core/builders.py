"""Small entries for tests: each builder gives the JSON object of one line, `tree` puts them together."""

from __future__ import annotations

from typing import Any

from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json
from pi_ls.core.tree import SessionTree

TIMESTAMP = "2026-01-01T00:00:00.000Z"


def line(type: str, id: str, parent: str | None, **fields: Any) -> Json:
    return {"type": type, "id": id, "parentId": parent, "timestamp": TIMESTAMP, **fields}


def message(id: str, parent: str | None, role: str, content: Any, **fields: Any) -> Json:
    body = {"role": role, "content": content, "timestamp": 0, **fields}
    return line("message", id, parent, message=body)


def user(id: str, parent: str | None, content: Any = "question") -> Json:
    return message(id, parent, "user", content)


def assistant(
    id: str, parent: str | None, text: str = "answer", total: float | None = None, **fields: Any
) -> Json:
    """An answer; `total` is the measured total of its usage, None for no usage."""
    usage = {} if total is None else {"usage": {"input": total, "output": 0, "totalTokens": total}}
    content = [{"type": "text", "text": text}] if text else []
    defaults = {"provider": "fake", "model": "m200", "stopReason": "stop"}
    return message(id, parent, "assistant", content, **(defaults | usage | fields))


def result(id: str, parent: str | None, text: str = "output", **fields: Any) -> Json:
    content = [{"type": "text", "text": text}]
    return message(id, parent, "toolResult", content, toolCallId="c", toolName="bash", **fields)


def compaction(id: str, parent: str | None, first_kept: str, summary: str = "summary") -> Json:
    return line("compaction", id, parent, summary=summary, firstKeptEntryId=first_kept, tokensBefore=1)


def branch_summary(id: str, parent: str | None, summary: str = "left behind") -> Json:
    return line("branch_summary", id, parent, summary=summary, fromId="root")


def label(id: str, parent: str | None, target: str, name: str | None) -> Json:
    return line("label", id, parent, targetId=target, **({} if name is None else {"label": name}))


def edit(id: str, parent: str | None, target: str, content: Any = None) -> Json:
    replacement = None if content is None else {"content": content}
    return line("context_edit", id, parent, targetId=target, replacement=replacement)


def leaf_marker(id: str, parent: str | None) -> Json:
    return line("custom", id, parent, customType="pi_ls.leaf", data={})


def tree(*lines: Json) -> SessionTree:
    return SessionTree(Entry.of(one) for one in lines)


def path(*lines: Json) -> list[Entry]:
    return [Entry.of(one) for one in lines]
