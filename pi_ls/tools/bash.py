"""The tool `bash`: a shell command, its output and how it ended.

The output goes straight into a temporary file, so that its size costs no memory, nothing here has to keep
up with it, and what a command leaves running in the background neither holds the call nor is stopped by it.
"""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import STDOUT, Process
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pi_ls.core.chat import ToolOutput
from pi_ls.core.jsonvalues import Json
from pi_ls.core.request import clean_text
from pi_ls.tools.output import MAX_BYTES, MAX_LINES, Excerpt, last_text_of, output_file, tail_of_file
from pi_ls.tools.tool import Tool, ToolContext, ToolFailed, Update, one_line

DEFAULT_TIMEOUT_S = 300
MAX_TIMEOUT_S = 24 * 3600
MAX_OUTPUT_BYTES = 1 << 30
"""A command that writes more than this is ended: no disk should be filled by accident."""
LOOK_EVERY_S = 0.25
"""How often a running command's output is looked at."""


class BashArguments(msgspec.Struct, frozen=True):
    """Arguments of `bash`."""

    command: Annotated[str, Meta(description="Shell command")]
    timeout: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=MAX_TIMEOUT_S,
                description=f"Seconds after which it is ended; {DEFAULT_TIMEOUT_S} if absent",
            ),
        ]
        | UnsetType
    ) = UNSET


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How a command went. `exit_code` is None where it was ended from outside."""

    output: Excerpt
    exit_code: int | None
    ended_because: str | None = None
    """Why it was ended, None where it ended by itself."""
    full_output_path: str | None = None
    """Where all of the output is, if that is more than `output`."""
    background_path: str | None = None
    """Where processes that it left running write to."""


class Bash(Tool[BashArguments]):
    """Runs a command in the workspace folder."""

    name: ClassVar[str] = "bash"
    description: ClassVar[str] = (
        "Run a shell command in the workspace folder. It has no input. Returns its output and errors, the "
        f"last {MAX_LINES} lines or {MAX_BYTES // 1024} KB of them. Processes started in the background keep "
        "running."
    )
    changes_things: ClassVar[bool] = True
    arguments = BashArguments

    def summary(self, arguments: BashArguments) -> str:
        """The command."""
        return f"Run {one_line(arguments.command)}"

    async def run(self, arguments: BashArguments, context: ToolContext, update: Update) -> ToolOutput:
        """The command's output; an error where it did not end with exit code 0."""
        limit = arguments.timeout or DEFAULT_TIMEOUT_S
        done = await execute(arguments.command, context, timeout_s=limit, update=update)
        details: Json = {"exitCode": done.exit_code, "fullOutputPath": done.full_output_path}
        return ToolOutput.of(_told(done), is_error=done.exit_code != 0, details=details)


async def execute(
    command: str,
    context: ToolContext,
    *,
    timeout_s: float | None = None,
    update: Update | None = None,
    stop: asyncio.Event | None = None,
) -> Execution:
    """Run a shell command to the end of its shell.

    The time limit (seconds), too much output and `stop` end the command with everything it started, and what
    it wrote until then is its output; so does cancelling this, but then nobody is told of the output.
    Raises ToolFailed where there is no shell or no folder to run it in.
    """
    shell = context.shell or shutil.which("bash") or shutil.which("sh")
    if shell is None:
        raise ToolFailed("There is no shell; set shellPath in the settings.")
    with output_file() as file:
        path = Path(file.name)
        try:
            process = await context.processes.start(
                [shell, "-c", clean_text(command)], folder=context.folder, output=file, errors=STDOUT
            )
        except OSError as error:
            _remove(path)
            raise ToolFailed(f"{shell} could not be started in {context.folder}: {error.strerror}.") from None
    try:
        reason = await _wait(process, path, timeout_s, update, stop or asyncio.Event())
    except BaseException:
        _remove(path)  # nobody will be told of it
        raise
    finally:
        if process.returncode is None:
            await context.processes.end(process)
    output = await asyncio.to_thread(tail_of_file, path)
    background = reason is None and context.processes.left_behind(process)
    if not (output.cut or background):
        _remove(path)
    return Execution(
        output=output,
        exit_code=process.returncode if reason is None else None,
        ended_because=reason,
        full_output_path=str(path) if output.cut else None,
        background_path=str(path) if background else None,
    )


async def _wait(
    process: Process, path: Path, timeout_s: float | None, update: Update | None, stop: asyncio.Event
) -> str | None:
    """Wait for a process; None where it ended by itself, else why it has to be ended."""
    waiting, stopping = asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())
    first = asyncio.FIRST_COMPLETED
    shown = 0
    try:
        async with asyncio.timeout(timeout_s):
            while not (await asyncio.wait({waiting, stopping}, timeout=LOOK_EVERY_S, return_when=first))[0]:
                size = _size(path)
                if size > MAX_OUTPUT_BYTES:
                    return f"it wrote more than {MAX_OUTPUT_BYTES >> 20} MB"
                if update is not None and size != shown:
                    shown = size
                    update(ToolOutput.of(await asyncio.to_thread(last_text_of, path)))
    except TimeoutError:
        return f"it took more than {timeout_s:g} s"
    finally:
        waiting.cancel()
        stopping.cancel()
        await asyncio.wait({waiting, stopping})
    return None if not waiting.cancelled() else "it was stopped"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # the command may have cleared the folder of temporary files
        return 0


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _told(done: Execution) -> str:
    parts = [done.output.text.rstrip("\n")] if done.output.text.strip() else []
    notes: list[str] = []
    if done.full_output_path is not None:
        shown = f"{done.output.lines} of {done.output.total_lines}"
        notes.append(f"[The last {shown} lines. All of them: {done.full_output_path}]")
    if done.background_path is not None:
        notes.append(f"[Processes still run in the background; their output goes to {done.background_path}]")
    if done.ended_because is not None:
        notes.append(f"[The command was ended because {done.ended_because}.]")
    elif done.exit_code != 0:
        notes.append(f"[The command failed with exit code {done.exit_code}.]")
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]) or "(no output)"
