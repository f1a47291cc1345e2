"""Running `search.py` beside the server, and telling its findings within the limits."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from pi_ls.core.jsonvalues import Json, is_object
from pi_ls.tools import search
from pi_ls.tools.files import locate
from pi_ls.tools.output import with_limits
from pi_ls.tools.tool import ToolContext, ToolFailed

TIMEOUT_S = 60


def place_to_search(context: ToolContext, path: str) -> Path:
    """The folder or file a search begins at. Raises ToolFailed where there is none."""
    place = locate(context, path)
    if not place.exists():
        raise ToolFailed(f"{path} does not exist.")
    return place


async def run_search(context: ToolContext, place: Path, request: Json) -> Json:
    """The answer of one search (`lines`, and whether they are `limited`).

    Cancelling it and the time limit end the process. Raises ToolFailed with what the search has to say.
    """
    asked = request | {"folder": str(place), "within": None if context.trusted else str(context.folder)}
    # Isolated and without site packages: nothing from the folder that is searched can be imported.
    command = [sys.executable, "-I", "-S", search.__file__, json.dumps(asked)]
    process = await context.processes.start(command, folder=Path(os.sep), output=PIPE, errors=None)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await _answer(process)
    except TimeoutError:
        raise ToolFailed(
            f"The search took more than {TIMEOUT_S} s. Search in fewer files or with a simpler pattern."
        ) from None
    finally:
        if process.returncode is None:
            await context.processes.end(process)
        context.processes.left_behind(process)
    if not is_object(answer):
        raise ToolFailed(f"The search ended with exit code {process.returncode} and without an answer.")
    if "error" in answer:
        raise ToolFailed(answer["error"])
    return answer


async def _answer(process: Process) -> Any:
    output, _ = await process.communicate()
    return json.loads(output) if process.returncode == 0 else None


def told(answer: Json, what: str, limit: int, nothing: str) -> str:
    """The found lines as a text for the model."""
    lines: list[str] = answer["lines"]
    if not lines:
        return nothing
    text = with_limits("\n".join(lines), "lines")
    return (
        f"{text}\n\n[Stopped at {limit} {what}. Narrow the search for others.]" if answer["limited"] else text
    )
