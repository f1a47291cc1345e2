"""The face: a language server over stdio or a loopback socket. pygls and lsprotocol appear only here.

`app.py` wires; `rpc.py` is the connection, `reader.py` and `writer.py` its two threads; `protocol.py` holds
the names and arguments; `commands.py` is the table of commands; `workspaces.py` knows folders and sessions;
`notifications.py` turns events into pushes, `progress.py` shows work being done; `lifecycle.py` sees to it
that the server leaves.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import socket
import sys
from io import RawIOBase
from typing import NoReturn, cast


def serve(stdin: RawIOBase, stdout: RawIOBase) -> NoReturn:
    """Serve one client over two unbuffered streams until it leaves, then end the process.

    The exit code is 0 after `shutdown`, 1 where the client left without it, 128 + n after signal n.
    """
    gc.disable()  # what an import makes is there to stay: looking through it again and again delays the start
    from pi_ls.secrets import guard_logging
    from pi_ls.server.app import create_server
    from pi_ls.server.lifecycle import leave

    gc.freeze()
    gc.enable()
    guard_logging()
    leave(asyncio.run(create_server().run(stdin, stdout)))


def serve_tcp(address: str) -> int:
    """Serve the first client that connects to `[HOST:]PORT` (port 0: any free one), then end.

    Only a loopback address is taken: there is no password, so any user of this machine may connect, and
    nobody from elsewhere. The address in use is told on stderr. The exit codes are those of `serve`, and 2
    for an address that cannot be had, with a sentence on stderr.
    """
    try:
        host, port = loopback_address(address)
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except (ValueError, OSError) as error:
        sys.stderr.write(f"pi-ls: cannot listen on {address}: {error}\n")
        return 2
    with listener:
        sys.stderr.write(f"Listening on {host}:{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        connection, _ = listener.accept()
    with connection:
        stream = cast("RawIOBase", connection.makefile("rwb", buffering=0))
        return serve(stream, stream)


def loopback_address(address: str) -> tuple[str, int]:
    """`[HOST:]PORT` as a loopback host and a port. Raises ValueError with a sentence that says why not."""
    host, _, port = address.rpartition(":")
    host = {"": "127.0.0.1", "localhost": "127.0.0.1"}.get(host, host.removeprefix("[").removesuffix("]"))
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ValueError(f"{host} is no loopback address: the server can be reached from this machine only")
    if not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"“{port}” is no port: give a number up to 65535")
    return host, int(port)
