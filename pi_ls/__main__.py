"""The command line: serve (the default), look at session files, and the demo.

Nothing heavy is imported before it is known what is asked for: a language server must answer at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
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
        # Whoever read our output has seen enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED


def _serve(arguments: argparse.Namespace) -> int:
    from pi_ls.stdio import take_stdio

    streams = None if arguments.tcp else take_stdio()
    from pi_ls.server import serve

    return serve(streams, arguments.tcp)


def _speak(arguments: argparse.Namespace) -> int:
    from pi_ls.core.errors import PiError
    from pi_ls.terminal import Terminal

    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    sys.stderr.reconfigure(encoding="utf-8", errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    terminal = Terminal(sys.stdout)
    try:
        code = _run(arguments, terminal)
        sys.stdout.flush()
        return code
    except PiError as error:
        sys.stderr.write(f"pi-ls: {error.message}\n")
        return EXIT_FAILED


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.command == "demo":
        from pi_ls.demo import run_demo

        return run_demo(terminal)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pi-ls",
        description="A language server for pi agent sessions. Without a command it serves an editor over stdio.",
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

    demo = "a real client and server over a bundled session: meter, compaction, tree, branch summary"
    commands.add_parser("demo", help=demo, description=demo)
    _looks_at_files(
        commands, "check", "what is broken in session files, with line numbers; exits 1 if anything is"
    )
    tree = _looks_at_a_file(commands, "tree", "the tree of a session, with tokens and labels")
    tree.add_argument(
        "--filter",
        choices=("default", "no-tools", "user-only", "labeled-only", "all"),
        default="default",
        help="which entries to show (default: all that are part of the conversation)",
    )
    _looks_at_a_file(commands, "usage", "how full a session's context is, and what the whole file has cost")
    inspect = _looks_at_a_file(
        commands, "inspect", "what a model would see of a session: path, model, messages"
    )
    inspect.add_argument(
        "--leaf", metavar="ID", help="the entry to look from (default: the session's own leaf)"
    )
    return parser


def _looks_at_files(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, what: str
) -> None:
    parser = commands.add_parser(name, help=what, description=what.capitalize() + ".")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true", help="answer in JSON")


def _looks_at_a_file(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, what: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=what, description=what.capitalize() + ".")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
