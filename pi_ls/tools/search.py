"""Looking through a folder: the program behind `grep` and `find`, and nothing but the standard library.

It runs as a process of its own (`python search.py REQUEST`, the request a JSON object, the answer another on
stdout). A regular expression that backtracks without end would hold the interpreter it runs in, and so the
whole server; a process can be ended. Folders that Git ignores are left out as Git does: `.gitignore` files
from the repository's root down, the last matching rule wins, nothing under an ignored folder comes back.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MAX_LINE_CHARS = 500
"""Longer lines are shown cut."""
_MAX_LINE_BYTES = 1 << 20
_LARGEST_RULES = 1 << 20


class Rule(NamedTuple):
    """One line of a `.gitignore`."""

    matches: Callable[[str], Any]
    """Whether it speaks of a path, relative to the folder of the file."""
    ignores: bool
    folders_only: bool


class RuleFile(NamedTuple):
    """The rules of one `.gitignore`, and the absolute path of its folder with a slash at the end."""

    folder: str
    rules: Sequence[Rule]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """Whether the file ignores a path; None where it says nothing about it."""
        relative = path[len(self.folder) :]
        for rule in reversed(self.rules):
            if (is_folder or not rule.folders_only) and rule.matches(relative):
                return rule.ignores
        return None


def glob_to_regex(pattern: str) -> str:
    """A glob over paths as a regular expression: `*` and `?` stop at slashes, `**` does not."""
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out, at = out + "(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            inside = "^" + inside[1:] if inside[0] in "!^" else inside
            out, at = out + f"(?!/)[{inside}]", end + 1
        elif pattern[at] == "{" and (end := pattern.find("}", at)) > 0:
            choices = pattern[at + 1 : end].split(",")
            out, at = out + f"(?:{'|'.join(map(glob_to_regex, choices))})", end + 1
        else:
            at += pattern[at] == "\\" and at + 1 < len(pattern)
            out, at = out + re.escape(pattern[at]), at + 1
    return out


def parse_rule(line: str) -> Rule | None:
    """A line of a `.gitignore`; None for a comment, an empty line, and a pattern that can match nothing."""
    line = line.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    folders_only = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/").replace("{", "\\{")  # Git knows no braces
    regex = glob_to_regex(f"{pattern[:-3]}/**" if pattern.endswith("/**") else pattern)
    try:
        compiled = re.compile(f"{'' if anchored else '(?:.*/)?'}{regex}", re.DOTALL)
    except re.error:
        return None
    return Rule(compiled.fullmatch, ignores, folders_only) if pattern else None


def read_rules(folder: str) -> list[RuleFile]:
    """The rules of a folder's `.gitignore`; none where there is no such file, or it cannot be read."""
    try:
        file = Path(folder, ".gitignore")
        if not file.is_file() or file.stat().st_size > _LARGEST_RULES:  # a pipe or a device has no end
            return []
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    rules = [rule for line in text.split("\n") if (rule := parse_rule(line)) is not None]
    return [RuleFile(folder.rstrip("/") + "/", rules)] if rules else []


def rules_above(folder: str) -> list[RuleFile]:
    """The rules that hold in a folder from the root of its repository down, its own not included."""
    above: list[RuleFile] = []
    for parent in [Path(folder), *Path(folder).parents]:
        if str(parent) != folder:
            above = [*read_rules(str(parent)), *above]
        if (parent / ".git").exists():
            return above
    return []


def is_ignored(path: str, is_folder: bool, files: Sequence[RuleFile]) -> bool:
    """Whether the nearest rule that speaks of a path ignores it."""
    for file in reversed(files):
        verdict = file.verdict(path, is_folder)
        if verdict is not None:
            return verdict
    return False


def walk(folder: str, within: str | None) -> Iterator[tuple[str, bool]]:
    """(absolute path, is a folder) of everything under a folder that Git would not ignore, in order of names.

    Links to folders are named but not followed. With `within`, links that lead out of that folder are left
    out. What cannot be read is passed over.
    """
    waiting: list[tuple[str, list[RuleFile]]] = [(folder, rules_above(folder))]
    while waiting:
        here, rules = waiting.pop()
        rules = rules + read_rules(here)
        try:
            with os.scandir(here) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue
        below: list[tuple[str, list[RuleFile]]] = []
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if (is_folder and entry.name == ".git") or is_ignored(entry.path, is_folder, rules):
                continue
            if within is not None and entry.is_symlink() and not _leads_into(entry.path, within):
                continue
            yield entry.path, is_folder
            if is_folder:
                below.append((entry.path, rules))
        waiting += reversed(below)


def _leads_into(path: str, folder: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def path_filter(pattern: str) -> Callable[[str], Any]:
    """A test of relative paths: a pattern with a slash sees the whole path, one without the last name."""
    if "/" in pattern:
        return re.compile(glob_to_regex(pattern.removeprefix("./").removeprefix("/")), re.DOTALL).fullmatch
    name = re.compile(glob_to_regex(pattern), re.DOTALL)
    return lambda path: name.fullmatch(path.rpartition("/")[2])


def find(request: dict[str, Any]) -> dict[str, Any]:
    """Paths under `folder` that fit the glob `pattern`, relative to it; folders end with a slash."""
    wanted = path_filter(request["pattern"])
    start = len(request["folder"].rstrip("/")) + 1
    found: list[str] = []
    for path, is_folder in walk(request["folder"], request["within"]):
        if wanted(path[start:]):
            if len(found) == request["limit"]:
                return {"lines": found, "limited": True}
            found.append(path[start:] + "/" * is_folder)
    return {"lines": found, "limited": False}


def grep(request: dict[str, Any]) -> dict[str, Any]:
    """Lines that fit, as `path:line: text`, in a file or under a folder; lines around them with dashes."""
    pattern = re.escape(request["pattern"]) if request["literal"] else request["pattern"]
    try:
        regex = re.compile(pattern, re.IGNORECASE if request["ignoreCase"] else 0)
    except re.error as error:
        return {"error": f"The pattern is no regular expression: {error}. Use literal for plain text."}
    root, lines, left = request["folder"], list[str](), request["limit"]
    for path, name in _files(root, request["glob"], request["within"]):
        try:
            matches = _grep_file(path, regex, request["context"], left)
            for line, is_match, text in matches:
                lines.append(f"{name}:{line}: {text}" if is_match else f"{name}-{line}- {text}")
                left -= is_match
        except OSError:
            continue
        if left <= 0:
            return {"lines": lines, "limited": True}
    return {"lines": lines, "limited": False}


def _files(root: str, glob: str | None, within: str | None) -> Iterable[tuple[str, str]]:
    """(path, name to show) of the files to look into."""
    if not Path(root).is_dir():
        yield root, Path(root).name
        return
    wanted = path_filter(glob) if glob else None
    start = len(root.rstrip("/")) + 1
    for path, is_folder in walk(root, within):
        if not is_folder and (wanted is None or wanted(path[start:])) and Path(path).is_file():
            yield path, path[start:]


def _grep_file(path: str, regex: re.Pattern[str], around: int, limit: int) -> Iterator[tuple[int, bool, str]]:
    """(line number, whether it fits, text) of the first `limit` lines that fit and those around them."""
    with Path(path).open("rb") as file:
        if b"\0" in file.read(8192):
            return
        file.seek(0)
        before: deque[tuple[int, bool, str]] = deque(maxlen=around)
        after = number = 0
        while raw := file.readline(_MAX_LINE_BYTES):
            number += 1
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            if limit > 0 and regex.search(text):
                yield from before
                before.clear()
                yield number, True, _short(text)
                limit, after = limit - 1, around
            elif after:
                yield number, False, _short(text)
                after -= 1
            elif limit <= 0:
                return
            else:
                before.append((number, False, _short(text)))


def _short(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}… [cut]"


def main() -> None:
    """Answer the one request on the command line."""
    request = json.loads(sys.argv[1])
    answer = {"find": find, "grep": grep}[request["what"]](request)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
