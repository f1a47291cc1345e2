"""`pi-ls demo --agent`: the agent mends a bug in a scratch project, and its small window fills on the way.

The model is a script behind an address on loopback (`model.py`); everything else is real: the server, the
provider library, the tools, the files and the test that is run. When the window is full, the run compacts
itself between two turns, by a summary that is made offline, and goes on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pi_ls.core.jsonvalues import Json
from pi_ls.demo.model import DATA
from pi_ls.demo.stage import Stage, Story, play, scratch, write_json
from pi_ls.terminal import BOLD, CYAN, GREEN, MAGENTA, RED, YELLOW, Terminal, count, fit, plain

PROMPT = "The report shows a length of 65 seconds as 1:5. Find out why, mend it, and show me that it works."
CONTEXT_WINDOW = 5_000
RESERVE_TOKENS, KEEP_RECENT_TOKENS = 1_200, 700
RECORDINGS = 180
RESULT_LINES = 4

FILES = {
    "clock.py": '''"""Lengths of time as people write them."""


def show(seconds: int) -> str:
    """Seconds as minutes and seconds: 65 is 1:05."""
    return f"{seconds // 60}:{seconds % 60}"
''',
    "test_clock.py": """import unittest

import clock


class ShowTest(unittest.TestCase):
    def test_seconds_have_two_digits(self):
        self.assertEqual(clock.show(65), "1:05")


if __name__ == "__main__":
    unittest.main()
""",
}


def run_demo(terminal: Terminal) -> int:
    """Tell the story; returns the exit code (1 where the server did not do what it should)."""
    with scratch(terminal, "report") as stage:
        _set(stage)
        return play(stage, _Story(stage).tell)


def _set(stage: Stage) -> None:
    """A project with a bug, a test that shows it, and enough data to fill a small window."""
    for name, text in FILES.items():
        (stage.folder / name).write_text(text, encoding="utf-8")
    rows = (f"2025-10-{1 + number % 28:02},{(number * 37) % 600}\n" for number in range(RECORDINGS))
    (stage.folder / DATA).write_text("".join(rows), encoding="utf-8")
    write_json(stage.agent_dir / "settings.json", _settings())


def _settings() -> Json:
    return {
        "approval": {"bash": "allow", "edit": "allow", "write": "allow"},
        "compaction": {
            "reserveTokens": RESERVE_TOKENS,
            "keepRecentTokens": KEEP_RECENT_TOKENS,
            "models": ["offline/extractive"],
        },
    }


def _models(address: str) -> Json:
    model = {"id": "scripted", "contextWindow": CONTEXT_WINDOW, "maxTokens": 1_024}
    reached = {"baseUrl": f"{address}/v1", "api": "openai-completions", "apiKey": "none"}
    return {"providers": {"demo": {**reached, "models": [model]}}}


@asynccontextmanager
async def _model() -> AsyncGenerator[str]:
    """The model's process, and its address; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pi_ls.demo.model",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


class _Story(Story):
    """One prompt, told by the events the server pushes."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._stage = stage
        self._settled = asyncio.Event()

    async def tell(self) -> None:
        """The whole run. Raises ResponseError, or ServerGone where the server died."""
        async with _model() as address:
            write_json(self._stage.agent_dir / "models.json", _models(address))
            async with self.client:
                await self._open()
                await self._prompt()
                await self._show_what_came_of_it()
                await self.client.shutdown()

    # --- scenes

    async def _open(self) -> None:
        self.scene("An editor starts the server in a project with a bug, and asks the agent about it")
        options = {"agentDir": str(self._stage.agent_dir), "model": "demo/scripted", "trusted": True}
        answer = await self.client.initialize(self._stage.folder, options)
        server = answer["serverInfo"]
        self.say(f"{server['name']} {server['version']}, process {self.client.pid}, over stdio")
        self.say(f"The model is a script on this machine, with a window of {count(CONTEXT_WINDOW)} tokens.")
        self.terminal.line()

    async def _prompt(self) -> None:
        self.quiet = False
        await self.command("pi.prompt", text=PROMPT)
        await self._settled.wait()
        self.quiet = True

    async def _show_what_came_of_it(self) -> None:
        self.scene("What came of it")
        await self.meter()
        stats = await self.command("pi.sessionStats")
        calls = count(stats["toolCalls"])
        self.say(f"{count(stats['assistantMessages'])} answers, {calls} tool calls, one file changed:")
        changed = (self._stage.folder / "clock.py").read_text(encoding="utf-8").splitlines()[-1].strip()
        self.terminal.line(f"  {self.dim('│')} {self.terminal.style(plain(changed), GREEN)}")
        self.terminal.line()

    # --- what the server says by itself

    def on_notification(self, method: str, params: Json) -> None:
        """A line or two for each event that belongs to the story."""
        if self.quiet:
            return
        match method:
            case "pi/message_end":
                self._show_message(params["message"])
            case "pi/tool_execution_start":
                self._show_call(params)
            case "pi/tool_execution_end":
                self._show_result(params)
            case "pi/compaction_start":
                self.terminal.line()
                told = "the window is nearly full: the run makes room before it goes on"
                self._event(method, f"reason: {params['reason']} · {told}")
            case "pi/compaction_end":
                self._show_compaction(method, params)
            case "pi/turn_end":
                self._show_size(params["message"])
            case "pi/agent_end" if "errorMessage" in params:
                self._event(method, plain(params["errorMessage"]), RED)
            case "pi/agent_settled":
                self._settled.set()
            case _:
                pass

    def _show_message(self, message: Json) -> None:
        if message["role"] != "assistant":
            return
        text = " ".join(block.get("text", "") for block in message["content"])
        self.terminal.line()
        self.terminal.line(f"  {self.terminal.style(fit(plain(text), self.terminal.width - 2), BOLD)}")

    def _show_call(self, params: Json) -> None:
        arguments = params["args"]
        what = arguments.get("command") or arguments.get("path", "")
        shown = fit(plain(f"{params['toolName']} {what}"), self.terminal.width - 6)
        self.terminal.line(f"    {self.terminal.style('▸', CYAN)} {self.terminal.style(shown, CYAN)}")

    def _show_result(self, params: Json) -> None:
        text = "\n".join(block.get("text", "") for block in params["result"]["content"])
        lines = [line for line in text.splitlines() if line.strip()]
        for line in lines[:RESULT_LINES]:
            self.terminal.line(f"    {self.dim('│')} {fit(plain(line), self.terminal.width - 8)}")
        if len(lines) > RESULT_LINES:
            self.terminal.line(f"    {self.dim(f'│ … {len(lines) - RESULT_LINES} more lines')}")

    def _show_size(self, message: Json) -> None:
        tokens = message["usage"]["totalTokens"]
        percent = 100 * tokens / CONTEXT_WINDOW
        colour = YELLOW if percent > 60 else GREEN
        figures = f"{count(tokens)} tokens, {percent:.0f}% of the window"
        self.terminal.line(f"    {self.terminal.style(figures, colour)}")

    def _show_compaction(self, method: str, params: Json) -> None:
        result = params.get("result")
        if result is None:
            self._event(method, plain(params.get("errorMessage", "aborted")), RED)
            return
        after = count(result["estimatedTokensAfter"])
        self._event(method, f"{count(result['tokensBefore'])} tokens before, about {after} after")
        self.terminal.line()
        self.summary(result["summary"])

    def _event(self, method: str, text: str, colour: str = MAGENTA) -> None:
        shown = fit(f"◂ {method:<20} {text}", self.terminal.width - 4)
        self.terminal.line(f"  {self.terminal.style(shown, colour)}")
