"""What happened in a conversation: what was asked, said and done, and how it ended.

Messages of any roles, sorted by what a summary can use of them. Tool calls and commands are joined with
their results, and a failure is told apart from one that a later success made good.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from pi_ls.core.jsonvalues import stringify
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    ImageContent,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks_of,
    text_of,
    tool_calls,
)
from pi_ls.core.prose import clip, code, gist, one_line

LOOKING = frozenset({"read", "grep", "find", "ls"})
"""Tools whose failure blocks nothing: what is not there is looked for elsewhere."""

_TRIVIAL = re.compile(
    r"|ls|cat|cd|pwd|grep|rg|find|head|tail|sed|awk|echo|printf|which|wc|test|diff|tree|less|stat|file|true|sleep"
    r"|git|mkdir|cp|mv|rm|touch"
)
"""Programs whose exit code says little about how the work stands."""

_LAUNCHERS = frozenset({"sudo", "time", "env", "uv", "poetry", "pipenv", "run", "xvfb-run"})
_TASK_RUNNERS = frozenset({"npm", "yarn", "pnpm", "cargo", "go", "make", "docker", "npx", "bundle", "dotnet"})


class Action(msgspec.Struct):
    """A tool call, or a command a person ran (as `bash`), and how it ended."""

    tool: str
    subject: str
    """The path, the command, or whatever else says what it was about."""
    outcome: Literal["done", "failed", "open"] = "open"
    output: str = ""

    @property
    def words(self) -> list[str]:
        """The words of a line's last command, without what only starts it or shortens its output."""
        line = self.subject.strip().split("\n", 1)[0].split("|", 1)[0].replace("2>&1", "")
        words = re.split(r"&&|;", line.rstrip("; &"))[-1].split()
        while words and ("=" in words[0] or words[0] in _LAUNCHERS):
            words.pop(0)
        return words

    @property
    def program(self) -> str:
        """What a command runs, without arguments (`pytest`, `npm test`, `python -m build`)."""
        words = self.words
        if words[1:2] == ["-m"]:
            return " ".join(words[:3])
        return " ".join(words[: 2 if words and words[0] in _TASK_RUNNERS else 1])

    @property
    def is_check(self) -> bool:
        """Whether it is a command whose success or failure says how the work stands."""
        return self.tool == "bash" and _TRIVIAL.fullmatch(self.program) is None

    @property
    def quoted(self) -> str:
        """What it was about, on one line, as code."""
        first, *rest = self.subject.strip().splitlines() or [""]
        return code(f"{clip(one_line(first), 100)}{' …' if rest else ''}")

    def makes_good(self, failed: Action) -> bool:
        """Whether this success makes good a failure: it was about the same things, or about everything."""
        if self.tool != "bash":
            return self.subject == failed.subject
        named = {word for word in self.words if not word.startswith("-")}
        return named <= set(failed.words)


class Story(msgspec.Struct):
    """A conversation by what its messages are good for; texts in the order they were said."""

    requests: list[str] = []
    """What a person asked for; a mere "go on" is no request."""
    said: list[str] = []
    """Everything the model said."""
    answers: list[str] = []
    """What it said at the end of a turn."""
    closing: list[str] = []
    """What it said since the last request."""
    actions: list[Action] = []
    notes: list[str] = []
    """What extensions put in."""
    branches: list[str] = []
    """Summaries of branches that were left."""
    earlier: list[str] = []
    """Summaries of what came before."""
    images: int = 0
    failure: str | None = None
    """Why the last answer failed, if it did."""
    finished: bool = False
    """Whether the last thing that happened was an answer."""


_GO_ON = re.compile(
    r"(?:ok(?:ay)?|yes|yep|sure|thanks?(?: you)?|great|good|nice|perfect|please|do it|go (?:on|ahead)"
    r"|continue(?: if you have next steps)?|next|[\s,.!])+",
    re.IGNORECASE,
)


def read_story(messages: Sequence[Message]) -> Story:
    """The story of messages of any roles."""
    story = Story()
    called: dict[str, Action] = {}
    for message in messages:
        match message:
            case UserMessage():
                _hear(story, text_of(message.content, "\n"))
                story.images += _images(message.content)
            case AssistantMessage():
                _listen(story, message, called)
            case ToolResultMessage():
                story.images += _images(message.content)
                if action := called.pop(message.tool_call_id, None):
                    action.outcome = "failed" if message.is_error else "done"
                    action.output = text_of(message.content, "\n")
            case BashExecutionMessage():
                outcome = "failed" if message.cancelled or message.exit_code else "done"
                story.actions.append(Action("bash", message.command, outcome, message.output))
            case CustomMessage():
                story.notes.append(gist(text_of(message.content, "\n"), 160))
            case BranchSummaryMessage():
                story.branches.append(message.summary)
            case CompactionSummaryMessage():
                story.earlier.append(message.summary)
            case _:
                pass
    return story


def _images(content: Content) -> int:
    return sum(isinstance(block, ImageContent) for block in blocks_of(content))


def _hear(story: Story, text: str) -> None:
    text = text.strip()
    says_something = any(character.isalnum() for character in text)
    if says_something and not (len(text) < 100 and _GO_ON.fullmatch(text)):
        story.requests.append(text)
        story.closing = []
    story.finished = False


def _listen(story: Story, message: AssistantMessage, called: dict[str, Action]) -> None:
    text = text_of(message.content, "\n").strip()
    calls = tool_calls(message)
    for call in calls:
        called[call.id] = Action(call.name, _subject(call))
        story.actions.append(called[call.id])
    if text:
        story.said.append(text)
        story.closing.append(text)
    story.finished = bool(text) and not calls and message.stop_reason == "stop"
    if story.finished:
        story.answers.append(text)
    story.failure = message.error_message if message.stop_reason == "error" else None


def _subject(call: ToolCall) -> str:
    for name in ("path", "command", "pattern", "query", "url"):
        value = call.arguments.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return stringify(call.arguments)


def unmended(actions: Sequence[Action]) -> list[Action]:
    """Failures that nothing later made good, the last one of each program and file."""
    failed: dict[tuple[str, str], Action] = {}
    for action in actions:
        if (
            action.outcome == "open"
            or action.tool in LOOKING
            or (action.tool == "bash" and not action.is_check)
        ):
            continue
        place = (action.tool, action.program if action.tool == "bash" else action.subject)
        before = failed.pop(place, None)
        if action.outcome == "failed":
            failed[place] = action
        elif before is not None and not action.makes_good(before):
            failed[place] = before
    return [*failed.values()]


_VERDICT = re.compile(
    r"\b\d+ (?:passed|passing|tests? ok|ok)\b.*|\btest result: .*|\bOK \(.*\)", re.IGNORECASE
)


def verdict(output: str) -> str | None:
    """What a test run says of its success (`14 passed in 0.40s`), None where it says nothing."""
    found = _VERDICT.search(output[-2_000:])
    return clip(one_line(found.group().strip(" =")), 60) if found else None


_EXIT_CODE = re.compile(r"(?:Command|Process) exited with (?:code|status)|\(?no output\)?$", re.IGNORECASE)
_EXCEPTION = re.compile(r"^FAILED\b|^(?:E\s+)?[\w.]*(?:Error|Exception)\b.*:|^E\s+\S")
_DIAGNOSTIC = re.compile(r"^\S+:\d+(?::\d+)?:?\s|\berror(?:\[\w+\])?:|^fatal:|\bpanic", re.IGNORECASE)
_COMPLAINT = re.compile(r"fail|not found|denied|cannot|could not|no such|timed out|refused", re.IGNORECASE)


def error_line(output: str) -> str:
    """The line of an output that says best what went wrong: the last exception, or the first complaint."""
    lines = [line for raw in output[-20_000:].splitlines() if (line := one_line(raw.strip(" =-_")))]
    told = [line for line in lines if not _EXIT_CODE.match(line)]
    for sign, which in ((_EXCEPTION, -1), (_DIAGNOSTIC, 0), (_COMPLAINT, 0)):
        if hits := [line for line in told if sign.search(line)]:
            return re.sub(r"^E\s+", "", hits[which])
    return (told or lines or ["no output"])[-1]
