"""Values of the protocol as lines for a terminal: the context meter, the tree of a session, a preview.

The same values go to editors; this is how the command line and the demo show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pi_ls.core.jsonvalues import Json
from pi_ls.terminal import (
    BLUE,
    BOLD,
    CYAN,
    DIM,
    GREEN,
    MAGENTA,
    RED,
    YELLOW,
    Style,
    Terminal,
    cells,
    count,
    fit,
    pad,
    plain,
)

METER_CELLS = 32
BESIDE_METER = 62
"""Columns that the figures beside a meter take."""
MOST_RAIL = 32
"""How far a tree is indented, at most: forks within forks within forks must leave room for what was said."""

WARNING_PERCENT, ERROR_PERCENT = 70, 90
"""From where on a meter is yellow and red, as in pi's own footer."""

_ROLE_STYLE: dict[str, Style] = {
    "user": CYAN,
    "assistant": BLUE,
    "compaction": MAGENTA,
    "branch_summary": MAGENTA,
}


def meter(usage: Json, terminal: Terminal) -> str:
    """One line that says how full a context is, from the result of `pi.contextUsage`."""
    if "contextWindow" not in usage:
        return "context: unknown (no model, or a model whose window is not known)"
    window = usage["contextWindow"]
    percent = usage.get("percent")
    if percent is None:
        tokens, source = usage["estimatedTokens"], "not measured yet"
        percent, about = 100 * tokens / window, "about "
    else:
        tokens, source, about = usage["tokens"], usage["source"], ""
    colour = RED if percent >= ERROR_PERCENT else YELLOW if percent >= WARNING_PERCENT else GREEN
    room = min(METER_CELLS, max(METER_CELLS // 4, terminal.width - BESIDE_METER))
    full = min(room, round(room * percent / 100))
    bar = terminal.style("█" * full, colour) + terminal.style("░" * (room - full), DIM)
    figures = terminal.style(f"{'~' if about else ''}{percent:.1f}%", BOLD, colour)
    detail = f"{about}{count(tokens)} of {count(window)} tokens"
    return f"{bar} {pad(figures, 6, right=True)}  {detail}  {terminal.style(source, DIM)}"


def tree_lines(nodes: Iterable[Json], terminal: Terminal, *, indent: int = 0) -> Iterator[str]:
    """The nodes of `pi.getTree`, one line each: id, tokens, place in the tree, who spoke, and how it begins.

    A line of talk stays flat; only where it really forks do its branches get a rail of their own. Each line
    comes as soon as its node does, so that the beginning of a long tree is there at once.
    """
    rails: dict[str | None, str] = {None: ""}
    missing: dict[str | None, int] = {}
    forks: set[str] = set()
    for node in nodes:
        node_id, parent, children = node["id"], node["parentId"], node["childCount"]
        missing[node_id] = children
        if children > 1:
            forks.add(node_id)
        above = rails.get(parent, "")
        if parent in forks:
            missing[parent] -= 1
            last = missing[parent] == 0
            rail, rails[node_id] = above + ("└─" if last else "├─"), above + ("  " if last else "│ ")
        else:
            rail = rails[node_id] = above
        if len(rail) > MOST_RAIL:
            rail = "…" + rail[1 - MOST_RAIL :]
        yield " " * indent + _tree_line(node, rail, terminal, terminal.width - indent)


def _tree_line(node: Json, rail: str, terminal: Terminal, width: int) -> str:
    on_path = node["onPath"]
    dot = "◆" if node["isLeaf"] else "●" if on_path else "○"
    kind = str(node.get("role") or node["type"])
    label = f" [{plain(node['label'])}]" if node.get("label") else ""
    mark = (" (orphan)" if node.get("orphan") else "") + (" ← leaf" if node["isLeaf"] else "")
    head = f"{node['id'][:8]}  {count(node['tokens']):>7}  "
    who = pad(_NAMES.get(kind, kind), 10)
    room = width - len(head) - len(rail) - len(dot) - len(who) - cells(label) - len(mark) - 1
    text = fit(plain(node["text"]), max(room, 12))
    style = (_ROLE_STYLE.get(kind, DIM),) if on_path else (DIM,)
    return (
        terminal.style(head, DIM)
        + terminal.style(rail, DIM)
        + terminal.style(dot, *(style if on_path else (DIM,)))
        + " "
        + terminal.style(who, *style)
        + terminal.style(label.lstrip() + " " if label else "", YELLOW)
        + (text if on_path else terminal.style(text, DIM))
        + terminal.style(mark, BOLD, GREEN)
    )


_NAMES = {
    "toolResult": "result",
    "assistant": "assistant",
    "bashExecution": "bash",
    "branch_summary": "summary",
    "compaction": "compacted",
    "custom_message": "custom",
}
