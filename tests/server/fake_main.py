"""The server as a process, over fake sessions: `python -m tests.server.fake_main`."""

from __future__ import annotations

from pi_ls.stdio import take_stdio

if __name__ == "__main__":
    stdin, stdout = take_stdio()
    import sys

    from pi_ls.server import serve, serve_tcp
    from tests.server.fake_session import FakeBackend

    if sys.argv[1:] == ["--tcp"]:
        sys.exit(serve_tcp("0", load_backend=FakeBackend))
    sys.exit(serve(stdin, stdout, load_backend=FakeBackend))
