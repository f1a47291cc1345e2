"""`pi-ls demo`: an editor's afternoon with a session, in a terminal and in a few seconds.

A real client starts a real server in a scratch folder and speaks LSP with it over pipes, as an editor would.
The session is one that ships with the program; the summaries are made offline from its own messages, so no
model, key or network is needed. Nothing outside the scratch folder is read or written.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pi_ls.client import Client, ResponseError, ServerGone
from pi_ls.core.jsonvalues import Json
from pi_ls.render import meter, tree_lines
from pi_ls.terminal import BOLD, CYAN, DIM, GREEN, MAGENTA, RED, Terminal, count, fit, plain

SESSION = Path(__file__).with_name("demo_session.jsonl")
READY, IDEA = "ready to merge", "dead end: localtime"
"""The label the session has before its dead end, and the one the demo puts on the way back."""

CONTEXT_WINDOW = 40_960
RESERVE_TOKENS, KEEP_RECENT_TOKENS = 8_192, 9_350
SUMMARY_LINES = 40
LOG_LINES = 20
TIMEOUT = 60.0
"""Seconds after which something is wrong; the demo itself takes a few."""


def run_demo(terminal: Terminal) -> int:
    """Tell the story; returns the exit code (1 where the server did not do what it should)."""
    started = time.monotonic()
    with _scratch() as (folder, agent_dir), (folder.parent / "server.log").open("w+b") as log:
        story = _Story(terminal, folder, agent_dir, log)
        try:
            asyncio.run(asyncio.wait_for(story.tell(), TIMEOUT))
        except (ResponseError, ServerGone, TimeoutError) as error:
            _show_failure(error, log, terminal)
            return 1
    seconds = time.monotonic() - started
    terminal.line(
        terminal.style(f"Done in {seconds:.1f} s. Nothing was kept, nothing left this machine.", DIM)
    )
    return 0


def _show_failure(error: Exception, log: BinaryIO, terminal: Terminal) -> None:
    terminal.line(terminal.style(f"The demo failed: {str(error) or 'no answer in time'}", RED))
    log.seek(0)
    for line in log.read().decode(errors="replace").splitlines()[-LOG_LINES:]:
        terminal.line(f"  {plain(line)}")


@contextmanager
def _scratch() -> Generator[tuple[Path, Path]]:
    """A workspace folder and an agent directory that know the bundled session and its model."""
    with tempfile.TemporaryDirectory(prefix="pi-ls-demo-") as scratch:
        root = Path(scratch).resolve()
        folder, agent_dir = root / "meterlog", root / "agent"
        sessions = (
            agent_dir / "sessions" / f"--{str(folder).strip('/').translate(str.maketrans('/:', '--'))}--"
        )
        for directory in (folder, sessions):
            directory.mkdir(parents=True)
        _write_json(agent_dir / "settings.json", _settings())
        _write_json(agent_dir / "models.json", _models())
        header, _, entries = SESSION.read_text(encoding="utf-8").partition("\n")
        moved = {**json.loads(header), "cwd": str(folder)}
        (sessions / "2025-10-28T19-04-08-212Z_019a2c5e-7b10-7c44-9d1e-2f6a8c0b4e71.jsonl").write_text(
            f"{json.dumps(moved)}\n{entries}", encoding="utf-8"
        )
        yield folder, agent_dir


def _settings() -> Json:
    return {
        "compaction": {
            "reserveTokens": RESERVE_TOKENS,
            "keepRecentTokens": KEEP_RECENT_TOKENS,
            "models": ["offline/extractive"],
        }
    }


def _models() -> Json:
    """The session's two models, on a host that does not exist: the demo must never ask them."""
    models = [
        {"id": name, "contextWindow": CONTEXT_WINDOW, "maxTokens": 8_192, "reasoning": True}
        for name in ("qwen3-coder-30b", "qwen3-coder-480b")
    ]
    workstation = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "none"}
    return {"providers": {"workstation": {**workstation, "models": models}}}


def _write_json(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def _environment(agent_dir: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The server's environment: ours, without a way to the user's own sessions, settings and keys."""
    kept = {name: value for name, value in environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    return {**kept, "PI_CODING_AGENT_DIR": str(agent_dir), "PYTHONUTF8": "1"}


class _Story:
    """The scenes, in order. Each asks the server for something and shows what came back."""

    def __init__(self, terminal: Terminal, folder: Path, agent_dir: Path, log: BinaryIO) -> None:
        self._terminal = terminal
        self._folder = folder
        self._agent_dir = agent_dir
        self._quiet = True
        self._client = Client(
            [sys.executable, "-m", "pi_ls"],
            folder=folder,
            environ=_environment(agent_dir),
            on_notification=self._on_notification,
            stderr=log,
        )

    async def tell(self) -> None:
        """All scenes. Raises ResponseError, or ServerGone where the server died."""
        async with self._client:
            await self._open()
            await self._leave_the_dead_end()
            await self._preview()
            await self._compact()
            await self._look_at_the_tree()
            await self._client.shutdown()

    # --- scenes

    async def _open(self) -> None:
        self._scene("An editor starts the server and opens the newest session of its folder")
        answer = await self._client.initialize(
            self._folder,
            {"agentDir": str(self._agent_dir), "autoOpen": "none"},
            {"window": {"workDoneProgress": True}},
        )
        server = answer["serverInfo"]
        self._say(f"{server['name']} {server['version']}, process {self._client.pid}, over stdio")
        listed = await self._command("pi.listSessions")
        session = listed["sessions"][0]
        state = await self._command("pi.openSession", id=session["id"])
        model = state["model"]
        self._say(f"“{plain(state['name'])}”: {count(state['messageCount'])} messages, {_model(model)}")
        self._say(fit(f"It began with: {plain(session['firstMessage'])}", self._terminal.width - 2))
        self._terminal.line()
        await self._meter()

    async def _leave_the_dead_end(self) -> None:
        nodes = (await self._command("pi.getTree", filter="user-only"))["nodes"]
        self._scene("The last question led nowhere. Go back to before it, and take the lesson along")
        self._terminal.line(self._dim("  What was asked so far, and where the talk forked:"))
        self._tree(nodes)
        labelled = (await self._command("pi.getTree", filter="labeled-only"))["nodes"]
        target = next(node["id"] for node in labelled if node["label"] == READY)
        self._terminal.line()
        self._quiet = False
        moved = await self._command("pi.navigateTree", targetId=target, summarize=True, label=IDEA)
        self._quiet = True
        self._terminal.line()
        self._say("What stays of the branch that was left:")
        self._summary(moved["summaryEntry"]["summary"])
        await self._meter()

    async def _preview(self) -> None:
        self._scene("What would a compaction do? (a preview: no model is asked, nothing is written)")
        preview = await self._command("pi.previewCompaction")
        rows = [
            ("keepRecentTokens", count(preview["settings"]["keepRecentTokens"])),
            ("summarised", _entries(preview["summarizedEntryIds"])),
            *(
                [("start of a split turn", _entries(preview["turnPrefixEntryIds"]))]
                if preview["isSplitTurn"]
                else ()
            ),
            ("kept word for word", _entries(preview["keptEntryIds"])),
            (
                "context",
                f"{count(preview['tokensBefore'])} → about {count(preview['estimatedTokensAfter'])} tokens",
            ),
            ("files read", _names(preview["readFiles"])),
            ("files changed", _names(preview["modifiedFiles"])),
        ]
        room = self._terminal.width - 28
        self._terminal.table([(self._dim(name), fit(plain(text), room)) for name, text in rows])

    async def _compact(self) -> None:
        self._scene("Compact")
        self._quiet = False
        result = await self._command("pi.compact")
        self._quiet = True
        self._terminal.line()
        self._say("The summary that now stands for everything before:")
        self._summary(result["summary"])
        await self._meter()

    async def _look_at_the_tree(self) -> None:
        self._scene("Nothing is lost: the whole tree is still in the file")
        self._tree((await self._command("pi.getTree", filter="no-tools"))["nodes"])
        self._terminal.line()
        stats = await self._command("pi.sessionStats")
        messages, calls = count(stats["totalMessages"]), count(stats["toolCalls"])
        self._say(f"{messages} messages and {calls} tool calls are in the file, each a place to go back to;")
        self._say("pi.undoCompaction takes the compaction back.")
        self._terminal.line()

    # --- what the server says by itself

    def _on_notification(self, method: str, params: Json) -> None:
        if self._quiet or method == "pi/context_usage":
            return
        text = _told(method, params)
        if text is not None:
            arrow = self._terminal.style("◂", MAGENTA)
            self._terminal.line(f"  {arrow} {self._terminal.style(f'{method:<22}', MAGENTA)} {text}")

    # --- how it is shown

    async def _command(self, name: str, /, **arguments: Any) -> Any:
        shown = f"{name} {json.dumps(arguments)}" if arguments else name
        if not self._quiet:
            text = fit(shown, self._terminal.width - 4)
            self._terminal.line(f"  {self._terminal.style('▸', CYAN)} {self._terminal.style(text, CYAN)}")
        return await self._client.command(name, **arguments)

    async def _meter(self) -> None:
        usage = await self._command("pi.contextUsage")
        self._terminal.line(f"  {meter(usage, self._terminal)}")

    def _scene(self, title: str) -> None:
        self._terminal.line()
        self._terminal.line(self._terminal.style(title, BOLD))
        self._terminal.line()

    def _say(self, text: str) -> None:
        self._terminal.line(f"  {text}")

    def _dim(self, text: str) -> str:
        return self._terminal.style(text, DIM)

    def _tree(self, nodes: list[Json]) -> None:
        for line in tree_lines(nodes, self._terminal, indent=2):
            self._terminal.line(line)

    def _summary(self, text: str) -> None:
        lines = list(_telling(text))
        for line in lines[:SUMMARY_LINES]:
            shown = fit(plain(line), self._terminal.width - 6)
            styled = self._terminal.style(shown, GREEN, BOLD) if line.startswith("#") else shown
            self._terminal.line(f"  {self._dim('│')} {styled}")
        if len(lines) > SUMMARY_LINES:
            self._terminal.line(f"  {self._dim(f'│ … {len(lines) - SUMMARY_LINES} more lines')}")
        self._terminal.line()


def _telling(summary: str) -> Iterator[str]:
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


def _told(method: str, params: Json) -> str | None:
    """One line for a notification that belongs to the story, None for one that does not."""
    match method:
        case "$/progress":
            value = params["value"]
            known = [value.get("title"), value.get("message")]
            if "percentage" in value:
                known.append(f"{value['percentage']}%")
            return plain(" · ".join([value["kind"], *(text for text in known if text)]))
        case "pi/compaction_start":
            return f"reason: {params['reason']}"
        case "pi/compaction_end":
            result = params.get("result")
            if result is None:
                return plain(params.get("errorMessage", "aborted"))
            after = count(result["estimatedTokensAfter"])
            return f"{count(result['tokensBefore'])} tokens before, about {after} after"
        case "pi/session_tree":
            return f"leaf {params['oldLeafId']} → {params['newLeafId']}"
        case "pi/entry_appended":
            entry = params["entry"]
            return f"{entry['type']} {entry['id']} under {entry['parentId']}"
        case _:
            return None


def _model(model: Any) -> str:
    """`model` of a session state as text, whichever way it is spelt."""
    return plain(f"{model['provider']}/{model['id']}") if model else "no model"


def _entries(ids: list[str]) -> str:
    return f"{count(len(ids))} {'entry' if len(ids) == 1 else 'entries'}"


def _names(paths: list[str]) -> str:
    return ", ".join(paths) or "none"
