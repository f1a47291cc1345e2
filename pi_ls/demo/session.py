"""`pi-ls demo`: an editor's afternoon with a session, in a terminal and in a few seconds.

The session is one that ships with the program; the summaries are made offline from its own messages, so no
model, key or network is needed.
"""

from __future__ import annotations

import json
from pathlib import Path

from pi_ls.core.jsonvalues import Json
from pi_ls.demo.stage import Stage, Story, model_name, play, scratch, write_json
from pi_ls.render import tree_lines
from pi_ls.terminal import MAGENTA, Terminal, count, counted, fit, plain

SESSION = Path(__file__).parents[1] / "demo_session.jsonl"
READY, IDEA = "ready to merge", "dead end: localtime"
"""The label the session has before its dead end, and the one the demo puts on the way back."""

CONTEXT_WINDOW = 40_960
RESERVE_TOKENS, KEEP_RECENT_TOKENS = 8_192, 9_350


def run_demo(terminal: Terminal) -> int:
    """Tell the story; returns the exit code (1 where the server did not do what it should)."""
    with scratch(terminal, "meterlog") as stage:
        _set(stage)
        return play(stage, _Story(stage).tell)


def _set(stage: Stage) -> None:
    """Put the bundled session and its model in place."""
    write_json(stage.agent_dir / "settings.json", _settings())
    write_json(stage.agent_dir / "models.json", _models())
    stage.sessions.mkdir(parents=True)
    header, _, entries = SESSION.read_text(encoding="utf-8").partition("\n")
    moved = {**json.loads(header), "cwd": str(stage.folder)}
    (stage.sessions / "2025-10-28T19-04-08-212Z_019a2c5e-7b10-7c44-9d1e-2f6a8c0b4e71.jsonl").write_text(
        f"{json.dumps(moved)}\n{entries}", encoding="utf-8"
    )


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


class _Story(Story):
    """The scenes, in order. Each asks the server for something and shows what came back."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._stage = stage

    async def tell(self) -> None:
        """All scenes. Raises ResponseError, or ServerGone where the server died."""
        async with self.client:
            await self._open()
            await self._leave_the_dead_end()
            await self._preview()
            await self._compact()
            await self._look_at_the_tree()
            await self.client.shutdown()

    # --- scenes

    async def _open(self) -> None:
        self.scene("An editor starts the server and opens the newest session of its folder")
        answer = await self.client.initialize(
            self._stage.folder,
            {"agentDir": str(self._stage.agent_dir), "autoOpen": "none"},
            {"window": {"workDoneProgress": True}},
        )
        server = answer["serverInfo"]
        self.say(f"{server['name']} {server['version']}, process {self.client.pid}, over stdio")
        listed = await self.command("pi.listSessions")
        session = listed["sessions"][0]
        state = await self.command("pi.openSession", id=session["id"])
        model = state["model"]
        self.say(f"“{plain(state['name'])}”: {count(state['messageCount'])} messages, {model_name(model)}")
        self.say(fit(f"It began with: {plain(session['firstMessage'])}", self.terminal.width - 2))
        self.terminal.line()
        await self.meter()

    async def _leave_the_dead_end(self) -> None:
        nodes = (await self.command("pi.getTree", filter="user-only"))["nodes"]
        self.scene("The last question led nowhere. Go back to before it, and take the lesson along")
        self.terminal.line(self.dim("  What was asked so far, and where the talk forked:"))
        self._tree(nodes)
        labelled = (await self.command("pi.getTree", filter="labeled-only"))["nodes"]
        target = next(node["id"] for node in labelled if node["label"] == READY)
        self.terminal.line()
        self.quiet = False
        moved = await self.command("pi.navigateTree", targetId=target, summarize=True, label=IDEA)
        self.quiet = True
        self.terminal.line()
        self.say("What stays of the branch that was left:")
        self.summary(moved["summaryEntry"]["summary"])
        await self.meter()

    async def _preview(self) -> None:
        self.scene("What would a compaction do? (a preview: no model is asked, nothing is written)")
        preview = await self.command("pi.previewCompaction")
        rows = [
            ("keepRecentTokens", count(preview["settings"]["keepRecentTokens"])),
            ("summarized", _entries(preview["summarizedEntryIds"])),
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
        room = self.terminal.width - 28
        self.terminal.table([(self.dim(name), fit(plain(text), room)) for name, text in rows])

    async def _compact(self) -> None:
        self.scene("Compact")
        self.quiet = False
        result = await self.command("pi.compact")
        self.quiet = True
        self.terminal.line()
        self.say("The summary that now stands for everything before:")
        self.summary(result["summary"])
        await self.meter()

    async def _look_at_the_tree(self) -> None:
        self.scene("Nothing is lost: the whole tree is still in the file")
        self._tree((await self.command("pi.getTree", filter="no-tools"))["nodes"])
        self.terminal.line()
        stats = await self.command("pi.sessionStats")
        messages, calls = count(stats["totalMessages"]), count(stats["toolCalls"])
        self.say(f"{messages} messages and {calls} tool calls are in the file, each a place to go back to;")
        self.say("pi.undoCompaction takes the compaction back.")
        self.terminal.line()

    # --- what the server says by itself

    def on_notification(self, method: str, params: Json) -> None:
        if self.quiet or method == "pi/context_usage":
            return
        text = _told(method, params)
        if text is not None:
            arrow = self.terminal.style("◂", MAGENTA)
            self.terminal.line(f"  {arrow} {self.terminal.style(f'{method:<22}', MAGENTA)} {text}")

    def _tree(self, nodes: list[Json]) -> None:
        for line in tree_lines(nodes, self.terminal, indent=2):
            self.terminal.line(line)


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


def _entries(ids: list[str]) -> str:
    return counted(len(ids), "entry", "entries")


def _names(paths: list[str]) -> str:
    return ", ".join(paths) or "none"
