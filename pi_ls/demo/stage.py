"""What the demos have in common: a scratch folder, a server of its own, and a way to tell what happens.

A real client starts a real server and speaks LSP with it over pipes, as an editor would. Nothing outside the
scratch folder is read or written.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pi_ls.client import Client, OnNotification, ResponseError, ServerGone
from pi_ls.core.jsonvalues import Json
from pi_ls.render import meter
from pi_ls.terminal import BOLD, CYAN, DIM, GREEN, RED, Terminal, fit, plain

SUMMARY_LINES = 40
LOG_LINES = 20
TIMEOUT = 60.0
"""Seconds after which something is wrong; a demo itself takes a few."""


class Stage:
    """Where a demo takes place: a workspace folder, an agent directory, and the log of the server."""

    def __init__(self, terminal: Terminal, root: Path, folder_name: str, log: BinaryIO) -> None:
        self.terminal = terminal
        self.folder = root / folder_name
        self.agent_dir = root / "agent"
        self.log = log
        for directory in (self.folder, self.agent_dir):
            directory.mkdir()

    @property
    def sessions(self) -> Path:
        """Where pi keeps the sessions of the folder."""
        encoded = str(self.folder).strip("/").translate(str.maketrans("/:", "--"))
        return self.agent_dir / "sessions" / f"--{encoded}--"

    def client(self, on_notification: OnNotification) -> Client:
        """A client with a server in the folder, which starts when it is entered."""
        return Client(
            [sys.executable, "-m", "pi_ls"],
            folder=self.folder,
            environ=environment(self.agent_dir),
            on_notification=on_notification,
            stderr=self.log,
        )


@contextmanager
def scratch(terminal: Terminal, folder_name: str) -> Generator[Stage]:
    """A stage that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pi-ls-demo-") as name:
        root = Path(name).resolve()
        with (root / "server.log").open("w+b") as log:
            yield Stage(terminal, root, folder_name, log)


def play(stage: Stage, tell: Callable[[], Awaitable[None]]) -> int:
    """Tell a story to its end; returns the exit code (1 where the server did not do what it should)."""
    started = time.monotonic()
    try:
        asyncio.run(_in_time(tell))
    except (ResponseError, ServerGone, TimeoutError) as error:
        show_failure(error, stage.log, stage.terminal)
        return 1
    seconds = time.monotonic() - started
    last = f"Done in {seconds:.1f} s. Nothing was kept, nothing left this machine."
    stage.terminal.line(stage.terminal.style(last, DIM))
    return 0


async def _in_time(tell: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        await tell()


def show_failure(error: Exception, log: BinaryIO, terminal: Terminal) -> None:
    """Tell what went wrong, with the end of the server's log."""
    terminal.line(terminal.style(f"The demo failed: {str(error) or 'no answer in time'}", RED))
    log.seek(0)
    for line in log.read().decode(errors="replace").splitlines()[-LOG_LINES:]:
        terminal.line(f"  {plain(line)}")


def write_json(path: Path, value: Json) -> None:
    """Write a value as a JSON file for people."""
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def environment(agent_dir: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The server's environment: ours, without a way to the user's own sessions, settings and keys."""
    kept = {name: value for name, value in environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "PI_CODING_AGENT_DIR": str(agent_dir), "PYTHONUTF8": "1"}


class Story:
    """Tells what a client does and what it is told, in lines of a terminal."""

    def __init__(self, stage: Stage) -> None:
        self.terminal = stage.terminal
        self.quiet = True
        """Whether what is sent and what comes by itself is not shown."""
        self.client = stage.client(self.on_notification)

    def on_notification(self, method: str, params: Json) -> None:
        """What the server says by itself."""

    async def command(self, name: str, /, **arguments: Any) -> Any:
        """The result of a command, which is shown as it is sent."""
        shown = f"{name} {json.dumps(arguments)}" if arguments else name
        if not self.quiet:
            text = fit(shown, self.terminal.width - 4)
            self.terminal.line(f"  {self.terminal.style('▸', CYAN)} {self.terminal.style(text, CYAN)}")
        return await self.client.command(name, **arguments)

    async def meter(self) -> None:
        """Show how full the context is."""
        usage = await self.command("pi.contextUsage")
        self.terminal.line(f"  {meter(usage, self.terminal)}")

    def scene(self, title: str) -> None:
        """Begin a part of the story."""
        self.terminal.line()
        self.terminal.line(self.terminal.style(title, BOLD))
        self.terminal.line()

    def say(self, text: str) -> None:
        """Tell one line."""
        self.terminal.line(f"  {text}")

    def dim(self, text: str) -> str:
        """Text that is not to be looked at first."""
        return self.terminal.style(text, DIM)

    def summary(self, text: str) -> None:
        """Show a summary, without what is empty in it."""
        lines = list(telling(text))
        for line in lines[:SUMMARY_LINES]:
            shown = fit(plain(line), self.terminal.width - 6)
            styled = self.terminal.style(shown, GREEN, BOLD) if line.startswith("#") else shown
            self.terminal.line(f"  {self.dim('│')} {styled}")
        if len(lines) > SUMMARY_LINES:
            self.terminal.line(f"  {self.dim(f'│ … {len(lines) - SUMMARY_LINES} more lines')}")
        self.terminal.line()


def telling(summary: str) -> Iterator[str]:
    """The lines of a summary without empty ones, and without headings that have nothing under them."""
    section: list[str] = []
    for line in summary.splitlines():
        if line.startswith("## "):
            section = [line]
        elif line.startswith("#"):
            section = [*(one for one in section if one.startswith("## ")), line]
        elif line.strip() not in ("", "(none)"):
            yield from (() if line.startswith("<") else section)  # the file lists belong to no section
            section = []
            yield line


def model_name(model: Any) -> str:
    """`model` of a session state as text, whichever way it is spelt."""
    return plain(f"{model['provider']}/{model['id']}") if model else "no model"
