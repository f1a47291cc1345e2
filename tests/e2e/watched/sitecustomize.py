"""Python imports this by itself at its start: from then on every address it asks for is written down."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    match event, arguments:
        case "socket.connect", (_, (host, port, *_)):
            where = [host, port]
        case "socket.getaddrinfo", (host, port, *_):
            where = [host if isinstance(host, str) else repr(host), port]
        case _:
            return
    with open(os.environ["CONNECTIONS"], "a", encoding="utf-8") as journal:  # noqa: PTH123  # early, and often
        journal.write(json.dumps(where) + "\n")


sys.addaudithook(_note)
