"""A long session, the same bytes for the same arguments: what the benchmark measures on.

The session is shaped like work with an agent: turns of a question, calls and results, answers with usage,
now and then a change of model, a label, a branch that was left with a summary, and compactions on the way.

    python tests/bench/generate.py FILE [MEGABYTES [ENTRIES]]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import msgspec

from pi_ls.core.entries import iso_time
from pi_ls.core.jsonvalues import Json

START_MS = 1_767_607_200_000
WORDS = (
    *("session", "tree", "leaf", "branch", "compaction", "summary", "token", "window", "cache", "entry"),
    *("parent", "folder", "index", "retry", "parser", "editor", "buffer", "cursor", "signal", "socket"),
    *("über", "naïve", "你好", "→", "😀"),
)


class Writer:
    """Collects entries; the leaf moves as in a session."""

    def __init__(self, seed: int, entries: int, size: int) -> None:
        self._random = random.Random(seed)
        self._wanted = entries
        self._text = " ".join(self._random.choice(WORDS) for _ in range(40_000))
        bytes_a_character = len(self._text.encode()) / len(self._text)
        # An entry holds 420 bytes that are no text, and a text and a quarter of the mean length.
        self._mean = int(max(size // entries - 420, 16) / bytes_a_character / 1.25)
        self.leaf: str | None = None
        self.ids: list[str] = []
        self.lines: list[bytes] = [
            self._line(
                {
                    "type": "session",
                    "version": 3,
                    "id": "0199d0de-0000-7000-8000-000000000001",
                    "timestamp": iso_time(START_MS),
                    "cwd": "/project",
                }
            )
        ]

    @staticmethod
    def _line(data: Json) -> bytes:
        return msgspec.json.encode(data) + b"\n"

    def full(self) -> bool:
        """Whether the session has as many entries as were asked for."""
        return len(self.ids) >= self._wanted

    def add(self, type_: str, **fields: Any) -> str:
        """Append an entry under the leaf and move the leaf to it."""
        at = len(self.ids)
        # An odd multiplier permutes the 32-bit numbers: ids are distinct and look random.
        entry_id = f"{(at * 2_654_435_761 + 12_345) % 2**32:08x}"
        when = iso_time(START_MS + at * 1_500)
        self.lines.append(
            self._line({"type": type_, "id": entry_id, "parentId": self.leaf, "timestamp": when, **fields})
        )
        self.ids.append(entry_id)
        self.leaf = entry_id
        return entry_id

    def text(self, share: float = 1) -> str:
        """Some text, `share` times the mean size of an entry, with a long tail."""
        length = int(self._mean * share * self._random.choice((0.3, 0.6, 1, 1.2, 2)))
        start = self._random.randrange(max(len(self._text) - length, 1))
        text = self._text[start : start + length]
        while len(text) < length:
            text += self._text[: length - len(text)]
        return text.replace(" signal ", " signal\n")

    def message(self, role: str, **fields: Any) -> str:
        """Append a message."""
        stamp = START_MS + len(self.ids) * 1_500
        return self.add("message", message={"role": role, **fields, "timestamp": stamp})

    def answer(self, content: list[Json], tokens: int, stop_reason: str) -> str:
        """Append an assistant message with usage."""
        usage = {
            "input": 900,
            "output": 250,
            "cacheRead": tokens,
            "cacheWrite": 120,
            "totalTokens": tokens + 1_270,
            "cost": {
                "input": 0.0027,
                "output": 0.00375,
                "cacheRead": 0.01,
                "cacheWrite": 0.0004,
                "total": 0.01685,
            },
        }
        return self.message(
            "assistant",
            content=content,
            api="anthropic-messages",
            provider="anthropic",
            model="claude-sonnet-4-5",
            usage=usage,
            stopReason=stop_reason,
        )

    def turn(self, number: int) -> None:
        """One turn: a question, three calls with results, an answer."""
        self.message("user", content=[{"type": "text", "text": self.text(0.4)}])
        used = 20_000 + number % 60 * 2_000
        for step in range(3):
            call = f"call_{number}_{step}"
            name, arguments = (
                ("bash", {"command": self.text(0.1)}),
                ("read", {"path": f"src/module_{number % 97}.py"}),
                ("edit", {"path": f"src/module_{number % 89}.py", "oldText": "a", "newText": self.text(0.3)}),
            )[step]
            thinking = {"type": "thinking", "thinking": self.text(0.3), "thinkingSignature": "c2ln"}
            tool_call = {"type": "toolCall", "id": call, "name": name, "arguments": arguments}
            self.answer([thinking, tool_call], used + step * 500, "toolUse")
            self.message(
                "toolResult",
                toolCallId=call,
                toolName=name,
                content=[{"type": "text", "text": self.text(2.4)}],
                isError=step == 2 and number % 11 == 0,
            )
        self.answer([{"type": "text", "text": self.text(0.8)}], used + 1_500, "stop")


def session(megabytes: float = 100, entries: int = 40_000, seed: int = 7) -> bytes:
    """The session's bytes: about `megabytes` × 10⁶ bytes, exactly `entries` entries (+ the header)."""
    writer = Writer(seed, entries, int(megabytes * 1_000_000))
    number = 0
    while not writer.full():
        number += 1
        before = writer.leaf
        writer.turn(number)
        if number % 50 == 0:  # a branch that is left: back to where the turn began, with a summary of it
            left, writer.leaf = writer.leaf, before
            writer.add("branch_summary", fromId=left, summary=writer.text(0.5), details={"readFiles": []})
        if number % 40 == 0:
            writer.add("label", targetId=writer.leaf, label=f"checkpoint {number}")
        if number % 70 == 0:
            writer.add("model_change", provider="anthropic", modelId="claude-sonnet-4-5")
        if number % 60 == 0:
            writer.add(
                "compaction",
                summary=writer.text(2),
                firstKeptEntryId=before or writer.ids[0],
                tokensBefore=150_000,
                details={"readFiles": ["src/a.py"], "modifiedFiles": []},
            )
    return b"".join(writer.lines[: entries + 1])


def main() -> None:
    """Write the session to the file named on the command line."""
    path, *sizes = sys.argv[1:]
    Path(path).write_bytes(session(*(int(size) for size in sizes)))


if __name__ == "__main__":
    main()
