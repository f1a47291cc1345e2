"""The prompts: finding, reading and filling the files under `prompts/`.

What a prompt says is in those files; what stands around it in a request to a summarizer (the quoted
conversation, the summary it follows) is put together here, because this is where quoted text is kept from
breaking out of its quotation. Source: seed 000 (names of the files), seed 002 (format of a summary).
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pi_ls
from pi_ls.core.errors import InvalidSettings

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

AGENT_SYSTEM = "agent/system.md"
SYSTEM = "compaction/summarization-system.md"
SUMMARY = "compaction/compaction-summary.md"
UPDATE_SUMMARY = "compaction/compaction-update-summary.md"
TURN_PREFIX = "compaction/compaction-turn-prefix.md"
SHORT_SUMMARY = "compaction/compaction-short-summary.md"
BRANCH_SUMMARY = "compaction/branch-summary.md"
BRANCH_PREAMBLE = "compaction/branch-summary-preamble.md"
SUMMARY_CONTEXT = "compaction/compaction-summary-context.md"
BRANCH_CONTEXT = "compaction/branch-summary-context.md"
FILE_OPERATIONS = "compaction/file-operations.md"

_TAGS = ("conversation", "previous-summary", "additional-context", "read-files", "modified-files")
_OUR_TAG = re.compile(r"<(?=\s*/?\s*(?:" + "|".join(_TAGS) + r")\b)", re.IGNORECASE)
_FILE_BLOCK = re.compile(r"\s*<(read-files|modified-files)>.*?</\1>", re.DOTALL)
_LINE_BREAK = re.compile(r"[\r\n]+")


class Prompts:
    """Renders prompt files; a file of the same name under the agent directory replaces a shipped one.

    Files are looked up at every use, so that an edited prompt counts from the next request on.
    """

    def __init__(self, agent_dir: Path | None = None) -> None:
        self._override = agent_dir / "prompts" if agent_dir else None
        self._shipped = shipped_prompts()
        self._environment: SandboxedEnvironment | None = None
        self._compiled: dict[Path, tuple[int, Template]] = {}

    def render(self, name: str, **values: object) -> str:
        """The prompt `name` (`compaction/branch-summary.md`) filled with `values`, without outer blank lines.

        Raises:
            InvalidSettings: the file cannot be read, is no template, or uses a value that is not given;
                `data` has `file` and `key` (the prompt's name), and the sentence has the line.
        """
        from jinja2 import TemplateError

        path = self._find(name)
        try:
            return self._template(path).render(**values).strip()
        except TemplateError as error:
            raise _broken(path, name, _line_of(error, path), error) from error
        except (OSError, UnicodeDecodeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise _broken(path, name, _line_of(error, path), error) from error

    def _find(self, name: str) -> Path:
        override = self._override / name if self._override else None
        return override if override and override.is_file() else self._shipped / name

    def _template(self, path: Path) -> Template:
        modified = path.stat().st_mtime_ns
        cached = self._compiled.get(path)
        if cached and cached[0] == modified:
            return cached[1]
        environment = self._jinja()
        source = path.read_text(encoding="utf-8-sig")
        code = environment.compile(source, filename=str(path))
        template = environment.template_class.from_code(environment, code, environment.make_globals(None))
        self._compiled[path] = (modified, template)
        return template

    def _jinja(self) -> SandboxedEnvironment:
        if self._environment is None:
            from jinja2 import StrictUndefined
            from jinja2.sandbox import SandboxedEnvironment

            self._environment = SandboxedEnvironment(
                autoescape=False, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
            )
        return self._environment


def shipped_prompts() -> Path:
    """The folder of the prompts that come with the program: in the package, or in the checkout."""
    package = Path(pi_ls.__file__).parent
    installed = package / "_prompts"
    return installed if installed.is_dir() else package.parent / "prompts"


def summary_request(
    instruction: str,
    *,
    conversation: str | None = None,
    previous_summary: str | None = None,
    context: Sequence[str] = (),
    focus: str | None = None,
) -> str:
    """The user message of a request to a summarizer.

    Args:
        instruction: What to do with the quoted text; comes after it.
        conversation: Serialised messages.
        previous_summary: The summary of what came before them.
        context: What hooks want the summarizer to know, one item each.
        focus: What the user wants looked at in particular.
    """
    parts: list[str] = []
    if conversation is not None:
        parts.append(_quote("conversation", conversation))
    if previous_summary:
        parts.append(_quote("previous-summary", previous_summary))
    if context:
        parts.append(_quote("additional-context", "\n".join(f"- {item}" for item in context)))
    parts.append(instruction)
    if focus and focus.strip():
        parts.append(f"Additional focus: {neutralise(focus.strip())}")
    return "\n\n".join(parts)


def neutralise(text: str) -> str:
    """`text` with the `<` of our own tags written `&lt;`, so that quoted text cannot end its quotation."""
    return _OUR_TAG.sub("&lt;", text)


def file_tags(prompts: Prompts, read_files: Sequence[str], modified_files: Sequence[str]) -> str:
    """The blocks that name the files of a summary; empty where there are none."""
    return prompts.render(
        FILE_OPERATIONS, read_files=_one_line_each(read_files), modified_files=_one_line_each(modified_files)
    )


def strip_file_tags(summary: str) -> str:
    """A summary without the blocks that `file_tags` put after it; one without any comes back as it is."""
    without = _FILE_BLOCK.sub("", summary)
    return summary if without == summary else without.strip()


def _quote(tag: str, text: str) -> str:
    return f"<{tag}>\n{neutralise(text)}\n</{tag}>"


def _one_line_each(paths: Sequence[str]) -> list[str]:
    return [neutralise(_LINE_BREAK.sub(" ", path)) for path in paths]


def _line_of(error: Exception, path: Path) -> int | None:
    """The template's line at which it failed: told by a syntax error, else found in the traceback."""
    line = getattr(error, "lineno", None)
    if isinstance(line, int):
        return line
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return frames[-1].lineno if frames else None


def _broken(path: Path, name: str, line: int | None, error: Exception) -> InvalidSettings:
    where = f"{path}, line {line}" if line else str(path)
    return InvalidSettings(
        f"The prompt {where} cannot be used: {error}. Correct the file, or remove it to use the shipped one.",
        file=str(path),
        key=name,
        line=line,
    )
