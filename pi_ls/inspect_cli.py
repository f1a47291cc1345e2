"""The commands that look at session files: check, tree, usage, inspect. None of them changes a byte.

Each takes a path and a terminal and returns the exit code. With `as_json` it writes one JSON object in the
shapes of the protocol instead of text for people.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pi_ls.core.context import build_session_context, context_usage, estimate_context_tokens
from pi_ls.core.errors import EntryNotFound, PiError
from pi_ls.core.jsonvalues import Json
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Message,
    role_of,
    text_of,
    tool_calls,
)
from pi_ls.core.outline import outline
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.tree import SessionTree
from pi_ls.render import meter, tree_lines
from pi_ls.store import Opened, SessionFile, Totals
from pi_ls.terminal import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Terminal, count, fit, plain


def check(paths: Sequence[Path], terminal: Terminal, *, as_json: bool) -> int:
    """What is broken in each file; 1 if anything is."""
    found = [_problems(path) for path in paths]
    if as_json:
        _write_json(terminal, {"files": found})
    else:
        for row in found:
            _show_problems(row, terminal)
    return int(any("error" in row or row["problems"] for row in found))


def _problems(path: Path) -> Json:
    try:
        opened = SessionFile.open(path)
    except PiError as error:
        return {"path": str(path), "error": {"kind": error.kind, "message": error.message}}
    session_tree = SessionTree(opened.entries)
    problems: list[Json] = [
        _present({"line": one.line, "kind": one.kind, "entryId": one.entry_id, "message": one.message})
        for one in opened.problems
    ]
    for one in session_tree.problems:
        entry = session_tree.get(one.entry_id)
        line = opened.file.line_of(entry) if entry is not None else None
        problems.append(
            _present({"line": line, "kind": one.kind, "entryId": one.entry_id, "message": one.message})
        )
    opened.file.close()
    return {"path": str(path), "entries": len(opened.entries), "problems": problems}


def _show_problems(row: Json, terminal: Terminal) -> None:
    if "error" in row:
        terminal.line(f"{terminal.style('refused', RED)}  {plain(row['error']['message'])}")
        return
    path = terminal.style(plain(row["path"]), BOLD)
    entries = f"{count(row['entries'])} entries"
    if not row["problems"]:
        terminal.line(f"{terminal.style('ok', GREEN)}       {path} ({entries})")
        return
    terminal.line(
        f"{terminal.style('broken', YELLOW)}   {path} ({entries}, {_counted(row['problems'], 'problem')})"
    )
    terminal.table(
        [
            (
                f"line {one['line']}" if "line" in one else "",
                terminal.style(one["kind"], YELLOW),
                plain(one["message"]),
            )
            for one in row["problems"]
        ],
        indent=9,
    )


def _counted(things: Sequence[Any], name: str) -> str:
    return f"{count(len(things))} {name}{'s' if len(things) != 1 else ''}"


def tree(path: Path, terminal: Terminal, filter: str, *, as_json: bool) -> int:
    """The session's tree, as `pi.getTree` tells it, whole."""
    opened, session_tree = _open(path)
    page = outline(session_tree, _counter(), filter=filter, limit=max(1, len(session_tree)))
    opened.file.close()
    if as_json:
        _write_json(terminal, msgspec.to_builtins(page))
        return 0
    _title(opened, terminal)
    for line in tree_lines([msgspec.to_builtins(node) for node in page.nodes], terminal):
        terminal.line(line)
    return 0


def usage(path: Path, terminal: Terminal, *, as_json: bool) -> int:
    """How full the context is at the leaf, and the totals of the whole file."""
    opened, session_tree = _open(path)
    session_path = session_tree.path()
    context = build_session_context(session_path)
    counter = _counter()
    found = context_usage(session_path, _window(context.model), counter)
    answer: Json = {
        "model": context.model,
        "thinkingLevel": context.thinking_level,
        "contextTokens": estimate_context_tokens(session_path, counter).tokens,
        "contextMessages": len(context.messages),
        "contextUsage": msgspec.to_builtins(found) if found is not None else {},
        "stats": stats(opened.file.totals),
    }
    opened.file.close()
    if as_json:
        _write_json(terminal, answer)
    else:
        _title(opened, terminal)
        _show_usage(answer, terminal)
    return 0


def _show_usage(answer: Json, terminal: Terminal) -> None:
    messages = count(answer["contextMessages"])
    if answer["contextUsage"]:
        terminal.line(meter(answer["contextUsage"], terminal))
    totals = answer["stats"]
    tokens = totals["tokens"]
    terminal.table(
        [
            ("model", model_name(answer["model"])),
            ("thinking", plain(answer["thinkingLevel"])),
            ("context", f"{count(answer['contextTokens'])} tokens in {messages} messages"),
            (
                "whole file",
                f"{count(totals['totalMessages'])} messages, {count(totals['toolCalls'])} tool calls",
            ),
            ("", f"{count(tokens['input'])} tokens in, {count(tokens['output'])} out"),
            ("", f"{count(tokens['cacheRead'])} read from cache, {count(tokens['cacheWrite'])} written"),
            ("cost", f"${totals['cost']:.4f}"),
        ]
    )


def stats(totals: Totals) -> Json:
    """The totals of a file in the shape of `pi.sessionStats`."""
    return {
        "userMessages": totals.roles.get("user", 0),
        "assistantMessages": totals.roles.get("assistant", 0),
        "toolCalls": totals.tool_calls,
        "toolResults": totals.roles.get("toolResult", 0),
        "totalMessages": totals.messages,
        "tokens": {
            "input": totals.input,
            "output": totals.output,
            "cacheRead": totals.cache_read,
            "cacheWrite": totals.cache_write,
            "total": totals.tokens,
        },
        "cost": totals.cost,
    }


def inspect(path: Path, terminal: Terminal, leaf_id: str | None, *, as_json: bool) -> int:
    """What the session is from one leaf: its path, its tree, and the messages a model would be sent."""
    opened, session_tree = _open(path)
    if leaf_id is not None:
        _move(session_tree, leaf_id)
    session_path = session_tree.path()
    context = build_session_context(session_path)
    answer: Json = {
        "leaf": session_tree.leaf_id,
        "entryCount": len(opened.entries),
        "branch": [entry.id for entry in session_path if not entry.is_leaf_marker],
        "tree": _depths(session_tree),
        "model": context.model,
        "thinkingLevel": context.thinking_level,
        "messages": [(role_of(one.message), message_text(one.message)) for one in context.messages],
    }
    opened.file.close()
    if as_json:
        _write_json(terminal, answer)
    else:
        _title(opened, terminal)
        _show_inspection(answer, [one.message for one in context.messages], terminal)
    return 0


def _show_inspection(answer: Json, messages: Sequence[Message], terminal: Terminal) -> None:
    terminal.table(
        [
            ("leaf", answer["leaf"] or "before the first entry"),
            ("path", f"{count(len(answer['branch']))} of {count(answer['entryCount'])} entries"),
            ("model", model_name(answer["model"])),
            ("thinking", plain(answer["thinkingLevel"])),
        ]
    )
    terminal.line()
    room = max(20, terminal.width - 22)
    terminal.table(
        [
            (
                terminal.style(role_of(message), CYAN),
                fit(plain(message_text(message)), room) or _calls(message),
            )
            for message in messages
        ]
    )


def _calls(message: Message) -> str:
    """What stands in the place of text in an answer that only calls tools."""
    names = (
        [plain(call.name) for call in tool_calls(message)] if isinstance(message, AssistantMessage) else []
    )
    return f"→ {', '.join(names)}" if names else "(no text)"


def message_text(message: Message) -> str:
    """All text of a message: blocks joined by line breaks, a command with its output, or a summary."""
    match message:
        case BashExecutionMessage():
            return f"{message.command}\n{message.output}"
        case CompactionSummaryMessage() | BranchSummaryMessage():
            return message.summary
        case _:
            return text_of(message.content, "\n")


def _depths(session_tree: SessionTree) -> list[Sequence[Any]]:
    """Every entry, depth first, as id, depth and (where it has one) label; leaf markers are passed over."""
    rows: list[Sequence[Any]] = []
    labels = session_tree.labels
    waiting = [(root, 0) for root in reversed(session_tree.children(None))]
    while waiting:
        entry, depth = waiting.pop()
        shown = not entry.is_leaf_marker
        if shown:
            label = labels.get(entry.id)
            rows.append((entry.id, depth, label) if label else (entry.id, depth))
        waiting += [(child, depth + shown) for child in reversed(session_tree.children(entry.id))]
    return rows


def _open(path: Path) -> tuple[Opened, SessionTree]:
    opened = SessionFile.open(path)
    return opened, SessionTree(opened.entries)


def _move(session_tree: SessionTree, leaf_id: str) -> None:
    try:
        session_tree.move(leaf_id)
    except KeyError:
        raise EntryNotFound(f"The session has no entry {plain(leaf_id)}; `pi-ls tree` lists them.") from None


def _counter() -> TokenCounter:
    from pi_ls.llm import text_counter

    return TokenCounter(text_counter("tiktoken"))


def _window(model: tuple[str, str] | None) -> int | None:
    from pi_ls.models import ModelCatalogue

    if model is None:
        return None
    known = ModelCatalogue(agent_directory()).find(*model)
    return known.context_window if known is not None else None


def agent_directory() -> Path:
    """Where pi keeps its settings and sessions: `$PI_CODING_AGENT_DIR`, or `~/.pi/agent`."""
    given = os.environ.get("PI_CODING_AGENT_DIR")
    return Path(given).expanduser() if given else Path.home() / ".pi" / "agent"


def _title(opened: Opened, terminal: Terminal) -> None:
    header = opened.file.header
    terminal.line(
        f"{terminal.style(plain(opened.file.path.name), BOLD)}  {terminal.style(plain(header.cwd), DIM)}"
    )


def model_name(model: Sequence[str] | None) -> str:
    """A provider and model id as they are written together."""
    return plain("/".join(model)) if model else "none"


def _present(row: Json) -> Json:
    return {key: value for key, value in row.items() if value is not None}


def _write_json(terminal: Terminal, value: Any) -> None:
    """One JSON object in ASCII: valid whatever the locale, and for lone surrogates too."""
    terminal.line(json.dumps(value))
