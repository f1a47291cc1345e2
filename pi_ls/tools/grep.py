"""The tool `grep`: lines that fit a pattern."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from pi_ls.core.chat import ToolOutput
from pi_ls.tools.searching import place_to_search, run_search, told
from pi_ls.tools.tool import Tool, ToolContext, Update, one_line

DEFAULT_LIMIT = 100


class GrepArguments(msgspec.Struct, frozen=True, rename="camel"):
    """Arguments of `grep`."""

    pattern: Annotated[str, Meta(min_length=1, description="Regular expression")]
    path: Annotated[str, Meta(description="Folder or file to search; the workspace folder if absent")] = "."
    glob: Annotated[str, Meta(description="Only files that fit, such as *.py or src/**/*.ts")] = ""
    ignore_case: Annotated[bool, Meta(description="Whether case does not matter")] = False
    literal: Annotated[bool, Meta(description="Whether the pattern is plain text")] = False
    context: Annotated[int, Meta(ge=0, le=20, description="Lines to show around each match")] = 0
    limit: Annotated[int, Meta(ge=1, le=2000, description="Largest number of matches")] = DEFAULT_LIMIT


class Grep(Tool[GrepArguments]):
    """Searches the files on the disk; what is only in an editor's buffer is not found."""

    name: ClassVar[str] = "grep"
    description: ClassVar[str] = (
        "Search files for lines that fit a regular expression (Python's). Files that Git ignores and binary "
        "files are left out. Returns path, line number and line."
    )
    changes_things: ClassVar[bool] = False
    arguments = GrepArguments

    def summary(self, arguments: GrepArguments) -> str:
        """What is searched for, and where."""
        return f"Search for {one_line(arguments.pattern, 100)} in {arguments.path}"

    async def run(self, arguments: GrepArguments, context: ToolContext, update: Update) -> ToolOutput:
        """The lines found."""
        place = place_to_search(context, arguments.path)
        answer = await run_search(
            context,
            place,
            {
                "what": "grep",
                "pattern": arguments.pattern,
                "glob": arguments.glob or None,
                "ignoreCase": arguments.ignore_case,
                "literal": arguments.literal,
                "context": arguments.context,
                "limit": arguments.limit,
            },
        )
        return ToolOutput.of(told(answer, "matches", arguments.limit, "No matches."))
