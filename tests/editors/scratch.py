"""A project for editor tests: `scratch.py DIRECTORY` gives it a session, in PI_CODING_AGENT_DIR.

Two long turns; the model's window is 200,000 tokens, 128,000 of them used; summaries are made offline.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests import sessions


def write(agent_dir: Path, project: Path) -> Path:
    """Write settings, models and the session; returns the session's file."""
    compaction = {"models": ["offline/extractive"], "keepRecentTokens": 1000}
    models = [{"id": "m200", "contextWindow": 200_000, "maxTokens": 8_192}]
    provider = {
        "baseUrl": "http://127.0.0.1:9/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": models,
    }
    agent_dir.mkdir(parents=True, exist_ok=True)
    (agent_dir / "settings.json").write_text(json.dumps({"compaction": compaction}))
    (agent_dir / "models.json").write_text(json.dumps({"providers": {"fake": provider}}))
    name = str(project).strip("/").replace("/", "-")
    file = agent_dir / "sessions" / f"--{name}--" / "2026-01-01T00-00-00-000Z_s-1.jsonl"
    return sessions.write(file, sessions.two_long_turns(128_000, cwd=str(project)))


if __name__ == "__main__":
    write(Path(os.environ["PI_CODING_AGENT_DIR"]), Path(sys.argv[1]).resolve())
