"""The tool `find`: files and folders by their names."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from pi_ls.core.chat import ToolOutput
from pi_ls.tools.searching import place_to_search, run_search, told
from pi_ls.tools.tool import Tool, ToolContext, ToolFailed, Update, one_line

DEFAULT_LIMIT = 1_000


class FindArguments(msgspec.Struct, frozen=True):
    """Arguments of `find`."""

    pattern: Annotated[str, Meta(min_length=1, description="Glob for the name, or with a slash for the path")]
    path: Annotated[str, Meta(description="Folder to search; the workspace folder if absent")] = "."
    limit: Annotated[int, Meta(ge=1, le=20_000, description="Largest number of paths")] = DEFAULT_LIMIT


class Find(Tool[FindArguments]):
    """Searches a folder for names."""

    name: ClassVar[str] = "find"
    description: ClassVar[str] = (
        "Find files and folders by a glob such as *.py, test_?.c or src/**/*.ts. What Git ignores is left "
        "out. Returns paths relative to the searched folder."
    )
    changes_things: ClassVar[bool] = False
    arguments = FindArguments

    def summary(self, arguments: FindArguments) -> str:
        """What is looked for, and where."""
        return f"Find {one_line(arguments.pattern, 100)} in {arguments.path}"

    async def run(self, arguments: FindArguments, context: ToolContext, update: Update) -> ToolOutput:
        """The paths found."""
        place = place_to_search(context, arguments.path)
        if not place.is_dir():
            raise ToolFailed(f"{arguments.path} is not a folder.")
        request = {"what": "find", "pattern": arguments.pattern, "limit": arguments.limit}
        answer = await run_search(context, place, request)
        return ToolOutput.of(told(answer, "paths", arguments.limit, "Nothing found."))
