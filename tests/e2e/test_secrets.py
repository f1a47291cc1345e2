"""Keys are nowhere but in requests to their provider: every channel of a running server."""

from __future__ import annotations

import json
from pathlib import Path

from tests import sessions
from tests.e2e.conftest import Home, Start
from tests.provider import ProviderProcess, Reply, error

KEY = 'canary-Zx9/q+0123456789"é'
CANARY = "canary-Zx9"
PROVIDER_KEY = "canary-Zx9-0123456789-in-ascii"
FALSE_KEY = "sk-guessed-but-wrong-0001"

EXTENSION = f"""
import logging
from pi_ls import hookimpl
KEY = {KEY!r}
print("printed by an extension, which is its own affair")

@hookimpl
def session_tree():
    logging.getLogger("ext").warning("logged %s", KEY)
    raise ValueError("raised " + KEY + " or {FALSE_KEY}")
"""


async def test_no_channel_of_a_server_has_a_key(home: Home, start: Start):
    with ProviderProcess() as provider:
        home.use(provider)
        models = home.agent_dir / "models.json"
        told = json.loads(models.read_text())
        told["providers"]["fake"]["apiKey"] = PROVIDER_KEY
        told["providers"]["fake"]["headers"] = {
            "X-Api-Key": f"{CANARY}-in-a-header",
            "X-Team": "not-secret-at-all",
        }
        models.write_text(json.dumps(told))
        login = {
            "type": "oauth",
            "access": f"{CANARY}-to-get-in",
            "refresh": f"{CANARY}-to-stay",
            "expires": 1,
        }
        auth = {"openai": {"type": "api_key", "key": KEY}, "anthropic": login}
        (home.agent_dir / "auth.json").write_text(json.dumps(auth))
        (home.agent_dir / "extensions").mkdir()
        (home.agent_dir / "extensions" / "leaky.py").write_text(EXTENSION)
        file = home.add_long()
        server = await start()
        settings = {"retry": {"enabled": False, "maxRetries": FALSE_KEY}}
        await server.initialize(home.params(trusted=True, settings=settings))
        await server.result("pi.sessionState")
        wrong = f"invalid key {KEY} and {PROVIDER_KEY}, or {FALSE_KEY}"
        provider.queue(error(401, wrong), error(400, wrong), Reply(text=f"the key is {PROVIDER_KEY} here"))
        for _ in range(2):
            answer = await server.answer(server.begin_command("pi.compact"), 60)
            assert "error" in answer
            assert "[key]" in answer["error"]["message"]
        await server.answer(server.begin_command("pi.prompt", {"text": f"my key is {KEY}"}), 60)
        await server.notification("pi/agent_settled", 60)
        output = await server.result("pi.bash", {"command": f"cat {home.agent_dir / 'auth.json'}"})
        assert output["output"].count("[key]") == 3
        output = await server.result("pi.bash", {"command": f"cat {models}"})
        assert output["output"].count("[key]") == 2
        assert "not-secret-at-all" in output["output"]
        await server.result("pi.navigateTree", {"targetId": "a1"})
        failure = await server.notification("pi/extension_error")
        assert "raised ValueError: raised [key] or [key]" in failure["error"]
        await server.result("pi.navigateTree", {"targetId": sessions.read(file)[-1]["id"]})
        foreign = sessions.user("x1", sessions.read(file)[-1]["id"], f"foreign {KEY}")
        with file.open("ab") as stream:
            stream.write(sessions.encode([foreign]))
        await server.wait_for(
            lambda m: m.get("method") == "pi/entry_appended" and m["params"]["entry"]["id"] == "x1"
        )
        exports = [
            Path((await server.result("pi.exportSession", {"format": kind}))["path"])
            for kind in ("markdown", "jsonl")
        ]
        for export in exports:
            assert "foreign [key]" in export.read_text()
        await server.result("pi.getMessages")
        await server.shutdown()
        await server.code()
        everything = {
            "the wire": json.dumps(server.messages, ensure_ascii=False),
            "the log": (await server.stderr).decode(),
            "the session file": "".join(
                line for line in file.read_text().splitlines() if '"id": "x1"' not in line
            ),
            **{export.name: export.read_text() for export in exports},
        }
        assert "logged [key]" in everything["the log"]
        for channel, content in everything.items():
            assert CANARY not in content, channel
            assert FALSE_KEY not in content, channel
        assert any(CANARY in str(request) for request in provider.requests), "the provider got it"
