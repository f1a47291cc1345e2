"""What the agent is told before a conversation: our words, and those of the user and the project.

It is made anew for each run from files, and is no part of what is ever summarized. Source: pi's resource
loading (`AGENTS.md`, `SYSTEM.md`, `APPEND_SYSTEM.md`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pi_ls.core.chat import ToolSpec
from pi_ls.prompts import AGENT_SYSTEM, Prompts
from pi_ls.regular import read_regular

CONTEXT_FILES = ("AGENTS.md", "CLAUDE.md")
"""Standing instructions of a folder; the first that is there counts."""

LARGEST_INSTRUCTIONS = 1 << 20
"""Bytes of a file of instructions; no window has room for more."""


def system_prompt(
    prompts: Prompts, folder: Path, agent_dir: Path, tools: Sequence[ToolSpec], *, trusted: bool
) -> str:
    """The system prompt for a workspace folder. Files that cannot be read are left out, huge ones too.

    `SYSTEM.md` (in a trusted folder's `.pi`, else in the agent's folder) replaces our own words;
    `APPEND_SYSTEM.md` follows them. Then come the standing instructions: the agent folder's, and those of
    the workspace folder and the folders above it, the outermost first.
    """
    places = [folder / ".pi", agent_dir] if trusted else [agent_dir]
    own = _first(place / "SYSTEM.md" for place in places)
    parts = [own if own is not None else prompts.render(AGENT_SYSTEM, folder=str(folder), tools=tools)]
    appended = _first(place / "APPEND_SYSTEM.md" for place in places)
    if appended is not None:
        parts.append(appended)
    for path, text in _standing_instructions(folder, agent_dir, trusted=trusted):
        parts.append(f"# Instructions from {path}\n\n{text}")
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _standing_instructions(folder: Path, agent_dir: Path, *, trusted: bool) -> Iterator[tuple[Path, str]]:
    for place in (agent_dir, *reversed(folder.parents), folder):
        for name in CONTEXT_FILES:
            text = _read(place / name) if trusted or place == agent_dir or _is_of(place, name) else None
            if text is not None:
                yield place / name, text
                break


def _is_of(place: Path, name: str) -> bool:
    """Whether a file of a folder lies in it: a link could send any file of the user's to a provider."""
    return Path(os.path.realpath(place / name)).is_relative_to(os.path.realpath(place))


def _first(paths: Iterator[Path]) -> str | None:
    return next((text for path in paths if (text := _read(path)) is not None), None)


def _read(path: Path) -> str | None:
    try:
        return read_regular(path, LARGEST_INSTRUCTIONS).decode("utf-8-sig", "replace")
    except OSError:
        return None
