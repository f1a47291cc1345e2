"""Two servers and a plain program that all write to one session file, for a while.

The servers compact, prune, restore, navigate and label; the plain program opens the file by its path for
each line it appends, as pi does, and knows of no lock. Afterwards nothing may be missing.

    python -m tests.e2e.writers 60      run it for a minute and say what happened
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests import sessions
from tests.e2e.conftest import SERVER, Home, RawServer

Json = dict[str, Any]

SETTINGS: Json = {
    "compaction": {
        "models": ["offline/extractive"],
        "keepRecentTokens": 60,
        "pruning": {"protectTokens": 200, "minimumSavings": 50, "minTokens": 20},
    }
}
REFUSALS = {"AlreadyCompacted", "NothingToCompact", "EntryNotFound"}
"""What a server may answer, since the session changes under it."""

PLAIN_WRITER = """
import json, random, sys, time
path, log, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
end, number, last = time.monotonic() + seconds, 0, "start-a"
with open(log, "wb", buffering=0) as told:
    while time.monotonic() < end:
        number += 1
        name = f"w{seed}-{number:06}"
        message = chance.choice([
            {"role": "user", "content": f"question {number}", "timestamp": number},
            {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "bash", "isError": False,
             "content": [{"type": "text", "text": "output " * 200}], "timestamp": number},
        ])
        entry = {"type": "message", "id": name, "parentId": last, "timestamp": "2026-01-01T00:00:01.000Z",
                 "message": message}
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\\n"
        with open(path, "ab", buffering=0) as file:
            file.write(line)
        told.write(line)
        last = chance.choice([name, name, name, last])
        time.sleep(chance.uniform(0.001, 0.02))
"""


class Server:
    """One server and what it was answered."""

    def __init__(self, raw: RawServer, chance: random.Random) -> None:
        self.raw = raw
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.acknowledged: set[str] = set()
        self.unexpected: list[Json] = []

    async def work(self, until: float) -> None:
        while time.monotonic() < until:
            await self._do_something()

    async def _do_something(self) -> None:
        match self.chance.randrange(7):
            case 0:
                await self._run("pi.compact", keep="entryId")
            case 1:
                await self._run("pi.undoCompaction")
            case 2:
                await self._run("pi.pruneToolOutputs")
            case 3:
                await self._run("pi.restorePruned")
            case 4:
                await self._run(
                    "pi.setLabel", keep="leafId", entryId="start-a", label=f"l{time.monotonic_ns()}"
                )
            case 5:
                await self._run("pi.navigateTree", targetId=await self._somewhere(), label="been here")
            case _:
                answer = await self._run("pi.navigateTree", targetId=await self._somewhere(), summarize=True)
                if answer and "summaryEntry" in answer:
                    self.acknowledged.add(answer["summaryEntry"]["id"])

    async def _somewhere(self) -> str:
        tree = await self.raw.result("pi.getTree", {"limit": 200})
        return self.chance.choice(tree["nodes"])["id"]

    async def _run(self, command: str, keep: str | None = None, **arguments: Any) -> Json | None:
        answer = await self.raw.answer(self.raw.begin_command(command, arguments), 30)
        if "error" in answer:
            if answer["error"]["data"]["kind"] not in REFUSALS:
                self.unexpected.append(answer["error"])
            return None
        self.done[command] += 1
        result: Json = answer["result"]
        if keep is not None:
            self.acknowledged.add(result[keep])
        return result

    async def tree(self) -> dict[str, str | None]:
        """Every entry the server knows, and what it hangs on."""
        found: dict[str, str | None] = {}
        cursor: Json = {}
        while True:
            page = await self.raw.result("pi.getTree", {"filter": "all", **cursor})
            found |= {node["id"]: node["parentId"] for node in page["nodes"]}
            if not page["hasMore"]:
                return found
            cursor = {"cursor": page["cursor"]}


class Outcome:
    """What the run came to: everything there is to compare."""

    def __init__(self, file: Path, written: list[bytes], servers: list[Server]) -> None:
        self.lines = [line for line in file.read_bytes().split(b"\n") if line.strip()]
        self.entries: list[Json] = [json.loads(line) for line in self.lines[1:]]
        self.written = written
        self.servers = servers
        self.trees: list[dict[str, str | None]] = []

    def check(self) -> None:
        """Raises AssertionError where anything is lost, changed or seen differently."""
        assert json.loads(self.lines[0])["type"] == "session"
        ids = Counter(entry["id"] for entry in self.entries)
        assert not [entry_id for entry_id, count in ids.items() if count > 1], "an id is used twice"
        by_id = {entry["id"]: entry for entry in self.entries}
        for line in self.written:
            entry = json.loads(line)
            assert by_id.get(entry["id"]) == entry, f"{entry['id']} is lost or changed"
        for server in self.servers:
            assert not server.unexpected, server.unexpected[:3]
            assert server.acknowledged <= ids.keys(), sorted(server.acknowledged - ids.keys())
        assert self.trees[0] == self.trees[1], "the servers see different trees"
        shown = {entry["id"] for entry in self.entries if entry.get("customType") != "pi_ls.leaf"}
        assert set(self.trees[0]) == shown


async def run(home: Home, seconds: float, seed: int) -> Outcome:
    """Let them all write for so long, then wait until everything has settled."""
    file = home.add(
        [
            sessions.header(str(home.folder)),
            sessions.user("start-u", None, "begin"),
            sessions.assistant("start-a", "start-u", "begun", total=50),
        ]
    )
    servers = [Server(await _start(home), random.Random(seed + number)) for number in range(2)]
    for server in servers:
        await server.raw.initialize(home.params(settings=SETTINGS, autoOpen="none"))
        await server.raw.result("pi.openSession", {"path": str(file)})
    log = home.folder / "written.log"
    writers = [
        subprocess.Popen([sys.executable, "-c", PLAIN_WRITER, str(file), str(log), str(seconds), str(seed)])
    ]
    end = time.monotonic() + seconds
    await asyncio.gather(*(server.work(end) for server in servers))
    for writer in writers:
        assert await asyncio.to_thread(writer.wait, 30) == 0
    await asyncio.sleep(2.5)  # lines that were written to a file just replaced are carried over within this
    await servers[0].raw.answer(servers[0].raw.begin_command("pi.restorePruned", {}), 30)
    await asyncio.sleep(2.5)
    outcome = Outcome(file, log.read_bytes().splitlines(), servers)
    outcome.trees = [await server.tree() for server in servers]
    for server in servers:
        await server.raw.shutdown()
        await server.raw.code()
        await server.raw.stop_reading()
    return outcome


async def _start(home: Home) -> RawServer:
    process = await asyncio.create_subprocess_exec(
        *SERVER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=home.env,
        cwd=home.folder,
    )
    server = RawServer(process)
    server.start_reading()
    return server


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else os.getpid()
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(run(Home(Path(folder)), seconds, seed))
        for server in outcome.servers:
            print(dict(server.done), "refused:", len(server.unexpected))
        outcome.check()
        print(f"seed {seed}: {len(outcome.written)} foreign lines of {len(outcome.lines)}, none lost")


if __name__ == "__main__":
    main()
