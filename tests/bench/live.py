"""How fast a server answers while its agent is at work: `python -m tests.bench.live [--calls 500] [--check]`.

A real server with the provider library loaded; while a tool sleeps, a provider says nothing, and a command
writes 50 MB, the usage is asked for again and again. With `--check` it ends with 1 if the 99th percentile of
one of them misses `MOST_MS`, or an abort takes longer than `MOST_ABORT_S`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pi_ls.client import Client
from pi_ls.core.jsonvalues import Json
from tests.provider import Call, Provider, Reply

MOST_MS = 50.0
MOST_ABORT_S = 1.0


def command(text: str) -> Reply:
    """An answer that runs a command."""
    return Reply(calls=[Call("c1", "bash", json.dumps({"command": text}))], finish="tool_calls")


STATES: Mapping[str, Reply] = {
    "nothing happens": Reply(),
    "a tool sleeps": command("sleep 60"),
    "the provider is silent": Reply(hang=True),
    "50 MB of output arrive": command(
        "for i in $(seq 50); do yes | head -c 1000000; sleep 0.1; done; sleep 60"
    ),
}


class Bench:
    """A server, its client and its provider."""

    def __init__(self, client: Client, provider: Provider) -> None:
        self._client, self._provider = client, provider

    async def measure(self, reply: Reply, calls: int) -> tuple[list[float], float]:
        """Milliseconds of each call while the agent does that, sorted, and the seconds an abort takes."""
        asked = len(self._provider.requests)
        self._provider.script = [reply]
        await self._client.command("pi.prompt", text="go")
        await self._provider.until(lambda provider: len(provider.requests) > asked, 60)
        times: list[float] = []
        for _ in range(calls):
            began = time.perf_counter()
            await self._client.command("pi.contextUsage")
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.002)
        began = time.perf_counter()
        await self._client.command("pi.abort")
        return sorted(times), time.perf_counter() - began


async def run(calls: int) -> list[tuple[str, float, float, float]]:
    """What happens, the median and the 99th percentile in milliseconds, and the abort in seconds."""
    rows: list[tuple[str, float, float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder, agent_dir = Path(name) / "app", Path(name) / "agent"
        folder.mkdir()
        agent_dir.mkdir()
        async with Provider() as provider:
            model: Json = {"id": "m200", "contextWindow": 200_000, "maxTokens": 8_192}
            reached: Json = {"baseUrl": provider.openai, "apiKey": "none", "api": "openai-completions"}
            models: Json = {"providers": {"fake": reached | {"models": [model]}}}
            (agent_dir / "models.json").write_text(json.dumps(models))
            async with Client(
                [sys.executable, "-m", "pi_ls"],
                folder=folder,
                environ={**os.environ, "PI_CODING_AGENT_DIR": str(agent_dir)},
                on_notification=lambda method, params: None,
            ) as client:
                settings = {"approval": {"bash": "allow"}}
                options: Json = {"trusted": True, "model": "fake/m200", "settings": settings}
                await client.initialize(folder, options)
                bench = Bench(client, provider)
                await bench.measure(Reply(), 20)  # the library is loaded with the first prompt
                for state, reply in STATES.items():
                    times, abort = await bench.measure(reply, calls)
                    rows.append((state, times[len(times) // 2], times[int(len(times) * 0.99)], abort))
                await client.shutdown()
    return rows


def main() -> int:
    """Measure and print; 1 if a limit was to be checked and is missed."""
    parser = argparse.ArgumentParser(description="Measure a server whose agent is at work.")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--check", action="store_true", help="end with 1 if a limit is missed")
    options = parser.parse_args()
    rows = asyncio.run(run(options.calls))
    print(f"pi.contextUsage, {options.calls} calls each\n")
    print(f"{'while':<28}{'median ms':>12}{'p99 ms':>12}{'abort s':>12}")
    for state, median, most, abort in rows:
        print(f"{state:<28}{median:>12.2f}{most:>12.2f}{abort:>12.3f}")
    missed = any(most > MOST_MS or abort > MOST_ABORT_S for _, _, most, abort in rows)
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
