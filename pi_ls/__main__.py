"""The command line: serve (the default), look at session files, and the demo.

Nothing heavy is imported before it is known what is asked for: a language server must answer at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from pi_ls import __version__

if TYPE_CHECKING:
    from pi_ls.terminal import Terminal

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the process's exit code.

    0: done. 1: a session is broken or cannot be read, or the demo failed. 2: the arguments are wrong.
    """
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command is None:
            return _serve(arguments)
        return _speak(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # whoever read it has seen enough
        return EXIT_PIPE_CLOSED


def _discard_output() -> None:
    """What could not be written goes nowhere; Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.tcp is not None:
        from pi_ls.server import serve_tcp

        return serve_tcp(arguments.tcp)
    if not arguments.stdio and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("pi-ls: waiting for an editor on standard input; `pi-ls --help` tells more\n")
    _leave_the_folder_out_of_imports()
    from pi_ls.stdio import take_stdio

    streams = take_stdio()  # before anything else is imported that might print
    from pi_ls.server import serve

    return serve(*streams)


def _leave_the_folder_out_of_imports() -> None:
    """A library that is imported later must not be found in the folder an editor started us in.

    `python -m` puts that folder in front, and it may hold anybody's `litellm.py`.
    """
    here = Path.cwd().resolve()
    sys.path[:] = [place for place in sys.path if place and Path(place).resolve() != here]


def _speak(arguments: argparse.Namespace) -> int:
    from pi_ls.core.errors import PiError
    from pi_ls.terminal import Terminal, plain

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    if sys.stdout is None:  # what a closed descriptor is to Python
        if sys.stderr is not None:
            sys.stderr.write("pi-ls: standard output is closed; there is nowhere to write to\n")
        return EXIT_FAILED
    terminal = Terminal(sys.stdout)
    try:
        code = _run(arguments, terminal)
        sys.stdout.flush()
        return code
    except PiError as error:
        sys.stderr.write(f"pi-ls: {plain(error.message)}\n")
        return EXIT_FAILED
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, most likely; what a session file is read with has its own errors
        sys.stderr.write(f"pi-ls: {plain(str(error))}\n")
        _discard_output()
        return EXIT_FAILED


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.command == "demo":
        return _demo(arguments, terminal)
    from pi_ls import inspect_cli

    match arguments.command:
        case "check":
            return inspect_cli.check(arguments.files, terminal, as_json=arguments.json)
        case "tree":
            return inspect_cli.tree(arguments.file, terminal, arguments.filter, as_json=arguments.json)
        case "usage":
            return inspect_cli.usage(arguments.file, terminal, as_json=arguments.json)
        case _:
            return inspect_cli.inspect(arguments.file, terminal, arguments.leaf, as_json=arguments.json)


def _demo(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.agent:
        from pi_ls.demo.agent import run_demo
    else:
        from pi_ls.demo.session import run_demo
    return run_demo(terminal)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pi-ls",
        description="A language server for pi agent sessions. Without a command it serves an editor.",
    )
    parser.add_argument("--version", action="version", version=f"pi-ls {__version__}")
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--stdio", action="store_true", help="serve over standard input and output (the default)"
    )
    way.add_argument(
        "--tcp", metavar="[HOST:]PORT", help="serve one client over TCP, on the loopback by default"
    )
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")

    def add(name: str, what: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")

    demo = add(
        "demo", "a real client and server over a bundled session: meter, compaction, tree, branch summary"
    )
    demo.add_argument(
        "--agent", action="store_true", help="instead an agent that mends a bug while its window fills"
    )
    check = add("check", "what is broken in session files, with line numbers; exits 1 if anything is")
    check.add_argument("files", metavar="FILE", type=Path, nargs="+")
    tree = add("tree", "the tree of a session, with tokens and labels")
    tree.add_argument("file", metavar="FILE", type=Path)
    tree.add_argument(
        "--filter",
        choices=("default", "no-tools", "user-only", "labeled-only", "all"),
        default="default",
        help="which entries to show (default: all that are part of the conversation)",
    )
    usage = add("usage", "how full a session's context is, and what the whole file has used")
    usage.add_argument("file", metavar="FILE", type=Path)
    inspect = add("inspect", "what a model would see of a session: path, model, messages")
    inspect.add_argument("file", metavar="FILE", type=Path)
    inspect.add_argument(
        "--leaf", metavar="ID", help="the entry to look from (default: the session's own leaf)"
    )
    for command in (check, tree, usage, inspect):
        command.add_argument("--json", action="store_true", help="answer in JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
