"""The face: a language server over stdio or a loopback socket. pygls and lsprotocol appear only here.

`app.py` wires; `rpc.py` is the connection, `reader.py` and `writer.py` its two threads; `protocol.py` holds the names
and arguments; `commands.py` is the table of commands; `workspaces.py` knows folders and sessions; `notifications.py`
turns events into pushes, `progress.py` shows work being done; `lifecycle.py` sees to it that the server leaves.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from io import RawIOBase
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from pi_ls.server.backend import Backend

LOOPBACK: Final = "127.0.0.1"


def serve(stdin: RawIOBase, stdout: RawIOBase, *, load_backend: Callable[[], Backend] | None = None) -> int:
    """Serve one client over two unbuffered streams until it leaves; returns the process's exit code.

    0 after `shutdown`, 1 where the client left without it, 128 + n after signal n. `load_backend` stands in for the
    real layers below.
    """
    from pi_ls.server.app import create_server
    from pi_ls.server.lifecycle import leave_by_force

    if load_backend is None:
        from pi_ls.server.backend import load_backend
    return asyncio.run(create_server(load_backend).run(stdin, stdout, on_leaving=leave_by_force))


def serve_tcp(port: int, *, load_backend: Callable[[], Backend] | None = None) -> int:
    """Serve the first client that connects to a port of the loopback interface (0: any free one).

    The port is told on stderr. Any user of this machine may connect, and nobody from elsewhere.
    """
    with socket.create_server((LOOPBACK, port)) as listener:
        sys.stderr.write(f"Listening on {LOOPBACK}:{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        connection, _ = listener.accept()
    with connection:
        stream = cast("RawIOBase", connection.makefile("rwb", buffering=0))
        return serve(stream, stream, load_backend=load_backend)
