"""The commands that look at session files: check, tree, usage, inspect. None of them changes a byte.

Each takes a path and a terminal and returns the exit code. With `as_json` it writes one JSON object in the
shapes of the protocol instead of text for people.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pi_ls.core.context import ContextUsage, build_session_context, context_usage, estimate_context_tokens
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
from pi_ls.core.outline import Filter, outline
from pi_ls.core.tokens import TokenCounter
from pi_ls.core.tree import SessionTree
from pi_ls.render import meter, tree_lines
from pi_ls.session.reading import totals_told
from pi_ls.store import LoadedSession, load_session
from pi_ls.terminal import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Terminal, count, counted, fit, plain

PAGE = 500
"""How many nodes of a tree are counted before they are shown."""


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
        with _session(path) as session:
            told = [(one.line, one.kind, one.entry_id, one.message) for one in session.problems]
            told += [
                (_line(session, one.entry_id), one.kind, one.entry_id, one.message)
                for one in session.tree.problems
            ]
            entries = len(session.tree)
    except PiError as error:
        return {"path": str(path), "error": {"kind": error.kind, "message": error.message}}
    names = ("line", "kind", "entryId", "message")
    problems = [
        {name: value for name, value in zip(names, one, strict=True) if value is not None} for one in told
    ]
    return {"path": str(path), "entries": entries, "problems": problems}


def _line(session: LoadedSession, entry_id: str) -> int | None:
    entry = session.tree.get(entry_id)
    return session.file.line_of(entry) if entry is not None else None


def _show_problems(row: Json, terminal: Terminal) -> None:
    if "error" in row:
        terminal.line(f"{terminal.style('refused', RED)}  {plain(row['error']['message'])}")
        return
    path = terminal.style(plain(row["path"]), BOLD)
    entries = counted(row["entries"], "entry", "entries")
    if not row["problems"]:
        terminal.line(f"{terminal.style('ok', GREEN)}       {path} ({entries})")
        return
    terminal.line(
        f"{terminal.style('broken', YELLOW)}   {path} ({entries}, {counted(len(row['problems']), 'problem')})"
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


def tree(path: Path, terminal: Terminal, filter: Filter, *, as_json: bool) -> int:
    """The session's tree, as `pi.getTree` tells it, whole."""
    with _session(path) as session:
        nodes = _nodes(session.tree, filter)
        if as_json:
            told = {"nodes": list(nodes), "leafId": session.tree.leaf_id, "hasMore": False}
            _write_json(terminal, told)
            return 0
        _title(session, terminal)
        for line in tree_lines(nodes, terminal):
            terminal.line(line)
    return 0


def _nodes(session_tree: SessionTree, filter: Filter) -> Iterator[Json]:
    """All nodes, a page at a time: the first ones need not wait for the last."""
    counter = _counter()
    cursor: str | None = None
    while True:
        page = outline(session_tree, counter, filter=filter, limit=PAGE, cursor=cursor)
        yield from msgspec.to_builtins(page.nodes)
        if not isinstance(page.cursor, str):
            return
        cursor = page.cursor


def usage(path: Path, terminal: Terminal, *, as_json: bool) -> int:
    """How full the context is at the leaf, and the totals of the whole file."""
    with _session(path) as session:
        counter = _counter()
        session_path = session.tree.path()
        context = build_session_context(session_path)
        found = context_usage(session_path, _window(context.model), counter)
        answer: Json = {
            "model": context.model,
            "thinkingLevel": context.thinking_level,
            "contextTokens": estimate_context_tokens(session_path, counter).tokens,
            "contextMessages": len(context.messages),
            "contextUsage": _usage_told(found) if found is not None else {},
            "stats": totals_told(session.file.totals),
        }
    if as_json:
        _write_json(terminal, answer)
    else:
        _title(session, terminal)
        _show_usage(answer, terminal)
    return 0


def _show_usage(answer: Json, terminal: Terminal) -> None:
    if answer["contextUsage"]:
        terminal.line(meter(answer["contextUsage"], terminal))
    messages = counted(answer["contextMessages"], "message")
    known = answer["contextUsage"] or not answer["model"]
    where = plain(str(agent_directory() / "models.json"))
    totals = answer["stats"]
    tokens = totals["tokens"]
    terminal.table(
        [
            ("model", model_name(answer["model"])),
            *([] if known else [("window", f"not known; contextWindow of this model in {where} tells it")]),
            ("thinking", plain(answer["thinkingLevel"])),
            ("context", f"{counted(answer['contextTokens'], 'token')} in {messages}"),
            (
                "whole file",
                f"{counted(totals['totalMessages'], 'message')}, {counted(totals['toolCalls'], 'tool call')}",
            ),
            ("", f"{counted(tokens['input'], 'token')} in, {count(tokens['output'])} out"),
            ("", f"{count(tokens['cacheRead'])} read from cache, {count(tokens['cacheWrite'])} written"),
            ("cost", f"${totals['cost']:.4f}"),
        ]
    )


def _usage_told(found: ContextUsage) -> Json:
    """What `pi.contextUsage` tells, without what only a running session knows."""
    return {
        "tokens": found.tokens,
        "contextWindow": found.context_window,
        "percent": found.percent,
        "estimatedTokens": found.estimated_tokens,
        "source": found.source,
    }


def inspect(path: Path, terminal: Terminal, leaf_id: str | None, *, as_json: bool) -> int:
    """What the session is from one leaf: its path, its tree, and the messages a model would be sent."""
    with _session(path) as session:
        if leaf_id is not None:
            _move(session.tree, leaf_id)
        session_path = session.tree.path()
        context = build_session_context(session_path)
        messages = [one.message for one in context.messages]
        answer: Json = {
            "leaf": session.tree.leaf_id,
            "entryCount": len(session.tree),
            "branch": [entry.id for entry in session_path if not entry.is_leaf_marker],
            "tree": _depths(session.tree),
            "model": context.model,
            "thinkingLevel": context.thinking_level,
            "messages": [(role_of(one), message_text(one)) for one in messages],
        }
    if as_json:
        _write_json(terminal, answer)
    else:
        _title(session, terminal)
        _show_inspection(answer, messages, terminal)
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


@contextmanager
def _session(path: Path) -> Generator[LoadedSession]:
    session = load_session(path)
    try:
        yield session
    finally:
        session.file.close()


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


def _title(session: LoadedSession, terminal: Terminal) -> None:
    name, folder = session.file.path.name, session.header.cwd
    terminal.line(f"{terminal.style(plain(name), BOLD)}  {terminal.style(plain(folder), DIM)}")


def model_name(model: Sequence[str] | None) -> str:
    """A provider and model id as they are written together."""
    return plain("/".join(model)) if model else "none"


def _write_json(terminal: Terminal, value: Any) -> None:
    """One JSON object in ASCII: valid whatever the locale, and for lone surrogates too."""
    terminal.line(json.dumps(value))
