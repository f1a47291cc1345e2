"""A model that follows a script, as a process of its own on loopback: what the agent's demo asks.

It speaks OpenAI's chat completions as a stream and measures what it is sent, so that the agent's meter shows
real figures. Its address is the first line of its output; it ends when its input does.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pi_ls.core.jsonvalues import Json

CHARACTERS_PER_TOKEN = 4
PIECE = 24
"""Characters of an answer that are sent at once."""
PAUSE_S = 0.01

DATA = "recordings.csv"
LISTING = (
    "python -c 'import clock\n"
    f'for row in open("{DATA}"):\n'
    '    print(row.strip(), "->", clock.show(int(row.split(",")[1])))\''
)
TEST = "python -m unittest"
BROKEN = 'return f"{seconds // 60}:{seconds % 60}"'
MENDED = 'return f"{seconds // 60}:{seconds % 60:02}"'

SCRIPT: Sequence[tuple[str, tuple[str, Json] | None]] = (
    ("I'll see what there is first.", ("bash", {"command": "ls"})),
    ("The formatting lives in clock.py.", ("read", {"path": "clock.py"})),
    ("Now the test that fails.", ("bash", {"command": TEST})),
    (
        "65 seconds come out as 1:5: the seconds are not padded. Who depends on that?",
        ("read", {"path": DATA}),
    ),
    (
        "These are the lengths the report is made of. How does each of them look now?",
        ("bash", {"command": LISTING}),
    ),
    (
        "Every length under ten seconds past a minute is wrong. One format is all it takes.",
        ("edit", {"path": "clock.py", "edits": [{"oldText": BROKEN, "newText": MENDED}]}),
    ),
    ("Does the test agree?", ("bash", {"command": TEST})),
    ("It does: show() in clock.py pads the seconds, so 65 is 1:05. Nothing else changed.", None),
)
"""What the model says in each turn, and the tool it calls."""


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the next turn of the script."""

    turns: Iterator[int] = itertools.count()

    def do_POST(self) -> None:
        """One chat completion."""
        asked = self.rfile.read(int(self.headers["content-length"]))
        model = json.loads(asked)["model"]
        turn = min(next(Handler.turns), len(SCRIPT) - 1)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in _events(model, turn, len(asked) // CHARACTERS_PER_TOKEN):
            self.wfile.write(b"data: %b\n\n" % json.dumps(event).encode())
            self.wfile.flush()
            time.sleep(PAUSE_S)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads a log here."""


def _events(model: str, turn: int, prompt_tokens: int) -> Iterator[Json]:
    frame: Json = {"id": f"turn-{turn}", "object": "chat.completion.chunk", "created": 0, "model": model}
    text, call = SCRIPT[turn]

    def delta(finish: str | None = None, **fields: object) -> Json:
        return frame | {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}

    for start in range(0, len(text), PIECE):
        yield delta(role="assistant", content=text[start : start + PIECE])
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        yield delta(tool_calls=[{"index": 0, "id": f"call_{turn}", "type": "function", "function": function}])
    yield delta("stop" if call is None else "tool_calls")
    said = len(text) // CHARACTERS_PER_TOKEN
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": said,
        "total_tokens": prompt_tokens + said,
    }
    yield frame | {"choices": [], "usage": usage}


def main() -> None:
    """Serve until standard input ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
