"""The offline summary: a conversation told in its own sentences, in the format every summary has.

No model, no network, no key. The same messages always give the same text, at most `LIMIT` characters long,
however much went on. What a person asked for, what was changed, what failed and was not mended, and what
comes next are picked out by rules; nothing is made up. A previous summary, whoever wrote it, is taken apart
and merged section by section, not quoted as a whole. Format: seed 002, "summary format".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Literal

import msgspec

from pi_ls.core.messages import Message
from pi_ls.core.prose import clip, code, gist, joined, one_line, sentences
from pi_ls.core.story import LOOKING, Action, Story, error_line, read_story, unmended, verdict

LIMIT = 6_000
"""Most characters a summary has."""

SHORT_LIMIT = 120
"""Most characters a short summary has."""

NOTHING = "(none)"
"""What stands in a section that has nothing to say."""


class _Section(msgspec.Struct, frozen=True):
    """A section of the format: how many points of what width; the first `lead` of them are never dropped."""

    heading: str
    bullet: str
    most: int
    width: int
    lead: int = 0


_Name = Literal["goal", "constraints", "done", "in_progress", "blocked", "decisions", "next_steps", "context"]

_SECTIONS: dict[_Name, _Section] = {
    "goal": _Section("## Goal", "- ", most=6, width=300, lead=1),
    "constraints": _Section("## Constraints & Preferences", "- ", most=10, width=200, lead=5),
    "done": _Section("## Progress\n### Done", "- [x] ", most=12, width=200),
    "in_progress": _Section("### In Progress", "- [ ] ", most=3, width=240),
    "blocked": _Section("### Blocked", "- ", most=4, width=300),
    "decisions": _Section("## Key Decisions", "- ", most=6, width=260),
    "next_steps": _Section("## Next Steps", "{}. ", most=5, width=200),
    "context": _Section("## Critical Context", "- ", most=10, width=260),
}

_HEADINGS: dict[str, _Name] = {
    "goal": "goal",
    "original request": "goal",
    "constraints & preferences": "constraints",
    "constraints and preferences": "constraints",
    "done": "done",
    "progress": "done",
    "early progress": "done",
    "in progress": "in_progress",
    "blocked": "blocked",
    "key decisions": "decisions",
    "next steps": "next_steps",
    "critical context": "context",
}
"""Headings, in lower case, under which a previous summary may tell something; others are context."""

_Points = dict[_Name, list[str]]
"""The points of each section, oldest first, without bullets."""


def extractive_summary(
    messages: Sequence[Message], previous_summary: str | None = None, instructions: str | None = None
) -> str:
    """A summary of messages (any roles), carrying on a previous one; `instructions` name a focus.

    Serves for a whole conversation, for the beginning of a split turn and for a branch that was left. File
    tags are not part of it. At most `LIMIT` characters.
    """
    story = read_story(messages)
    earlier = [summary for summary in (previous_summary, *story.earlier) if summary]
    points = _tell(story, instructions)
    for summary in reversed(earlier):
        points = _merge(_parse(summary), points, story)
    return _render(_bounded(points))


def short_summary(summary: str) -> str | None:
    """One line for a list: the first sentence under `## Goal`, at most `SHORT_LIMIT` characters.

    None where a summary has no goal. Source: seed 000 (`shortSummary`).
    """
    found = re.search(r"^## Goal[ \t]*$(.*?)(?=^#{1,3} |^---$|\Z)", summary, re.MULTILINE | re.DOTALL)
    first = next(iter(sentences(found.group(1))), "") if found else ""
    return clip(first, SHORT_LIMIT) if first and first != NOTHING else None


# What is worth telling

_REQUIREMENT = re.compile(
    r"\b(?:always|never|must(?:n't)?|do not|don't|prefer(?:ably)?|avoid|(?:make|be) sure|stick to|from now on"
    r"|only (?:use|change|touch|edit|in|for)|keep (?:it|the|to|all)|leave .{1,40} (?:alone|as)|unchanged"
    r"|without|instead of|rather than|should(?:n't)?|remember|no (?:new|extra|external|more)|as long as"
    r"|immer|nie(?:mals)?|nicht|toujours|jamais|siempre|nunca)\b"
    r"|不要|必须|请勿|务必|总是|禁止|保持|只能",
    re.IGNORECASE,
)
_PASSING = re.compile(r"\b(?:yet|for now|this time)\b", re.IGNORECASE)
_DECIDED = re.compile(
    r"\b(?:decid(?:ed|e to)|chose|choose|opt(?:ed)? for|go(?:ing)? with|went with|instead of|rather than"
    r"|(?:the|actual|real) (?:cause|culprit|bug|reason) (?:is|was)|root cause|turn(?:s|ed) out|the fix is"
    r"|trade-?off|lesson|invariant)\b|^so[:,]",
    re.IGNORECASE,
)
_REASONED = re.compile(r"\b(?:because|so that)\b", re.IGNORECASE)
_BECAUSE = re.compile(r",?\s+(?:because|since|so that)\s+")
_DASH = re.compile(r"\s+[—–]\s+|:\s+")
_AGENDA = re.compile(r"\b(?:next steps?|remaining|left to do|to-?do|open points?)\b.*:$", re.IGNORECASE)
_UPCOMING = re.compile(
    r"^(?:next|then|after that|remaining|todo|to do|later)\b"
    r"|\b(?:next step|still (?:need|have|to)|needs? to be|remains? to|remaining|I'll|I will|let me|let's"
    r"|you (?:can|should|may want)|should I|shall I|do you want|would you like|want me to|left for you"
    r"|if you (?:like|want))\b",
    re.IGNORECASE,
)
_FOUND = re.compile(
    r"\b(?:found|lives? in|defined in|located|line \d+|returns?|expects?|depends on|comes from|caused by"
    r"|requires?|is called|reads?|defaults? to|limit|version)\b",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(r"(?:I'll|I will|let me|let's|now|\w+ing)\b", re.IGNORECASE)
_OPENING = re.compile(
    r"(?:(?:yes|ok(?:ay)?|sure|great|good|thanks|now|and|also|then|so)\b[,.!:]*\s+)+", re.IGNORECASE
)
_URL = re.compile(r"https?://[^\s<>\"')\]]+")
_CHANGES = {"edit": "Edited", "write": "Wrote"}


def _tell(story: Story, instructions: str | None) -> _Points:
    """The points of a conversation, by section."""
    asked = [sentence for text in story.requests for sentence in sentences(text)]
    said = [sentence for text in story.said for sentence in sentences(text)]
    requests = [
        _request(text) for text in (*story.requests[:1], *story.requests[1:][-_SECTIONS["goal"].most :])
    ]
    return {
        "goal": [*requests[:1], *(f"Then: {clip(text, 160)}" for text in requests[1:])],
        "constraints": [_plain_start(s) for s in asked if _is_condition(s)],
        "done": [*_headlines(story), *_changes(story.actions), *_mended_commands(story.actions)],
        "in_progress": _unfinished(story),
        "blocked": _blocked(story),
        "decisions": [_with_reason(_plain_start(sentence)) for sentence in _decisions(said)],
        "next_steps": _next_steps(story),
        "context": [*_focus([*said, *asked], instructions), *_facts(story, said)],
    }


def _is_condition(sentence: str) -> bool:
    """Whether it says how things are to be done, and not only for the moment."""
    lasting = _REQUIREMENT.search(sentence) and not _PASSING.search(sentence)
    return bool(lasting) and sentence[-1] != "?"


def _request(text: str) -> str:
    """What a person asked for, without the conditions, which are listed by themselves."""
    told = sentences(text) or [text]
    turn = next((at for at, sentence in enumerate(told) if _TURN.match(sentence)), 0)
    first, *rest = told[turn:]
    return _plain_start(gist(" ".join([first, *(s for s in rest if not _REQUIREMENT.search(s))]), 300))


_TURN = re.compile(r"(?:now|next)\b", re.IGNORECASE)
"""How a request begins after a word about the last answer."""


def _plain_start(sentence: str) -> str:
    """A sentence without the `Yes, ` or `Now ` that tied it to the one before."""
    plain = _OPENING.sub("", sentence, count=1) if _OPENING.match(sentence) else sentence
    return plain[:1].upper() + plain[1:] if plain else sentence


def _headlines(story: Story) -> list[str]:
    """Of each answer the first sentence, and the second where the first is hardly one."""
    found: list[str] = []
    for answer in story.answers:
        told = takewhile(lambda sentence: not _AGENDA.search(sentence), sentences(answer))
        first, second = [*(sentence for sentence in told if sentence[-1] not in "?:"), "", ""][:2]
        found += [f"{first} {second[:1].upper()}{second[1:]}".strip() if len(first) < 40 else first]
    return [headline for headline in found if headline]


def _decisions(said: Sequence[str]) -> list[str]:
    """What was decided, in order; where that is little, also what was done for a reason."""
    decided = [sentence for sentence in said if _DECIDED.search(sentence)]
    reasoned = [sentence for sentence in said if _REASONED.search(sentence)]
    told = {*decided, *reasoned[-4:]} if len(decided) < 4 else {*decided}
    return [sentence for sentence in said if sentence in told]


def _changes(actions: Sequence[Action]) -> list[str]:
    """The files that were changed, the last one first."""
    changed: dict[str, dict[str, None]] = {verb: {} for verb in _CHANGES.values()}
    for action in reversed(actions):
        if action.tool in _CHANGES and action.outcome == "done":
            changed[_CHANGES[action.tool]].setdefault(code(clip(one_line(action.subject), 80)))
    return [f"{verb} {joined(paths, 8)}" for verb, paths in changed.items() if paths]


def _mended_commands(actions: Sequence[Action]) -> list[str]:
    """Commands that succeed after they had failed, told by their last run."""
    failures: dict[str, list[Action]] = {}
    mended: dict[str, str] = {}
    for action in actions:
        if not action.is_check:
            continue
        program = action.program
        failed = failures.setdefault(program, [])
        if action.outcome == "failed":
            failed.append(action)
            mended.pop(program, None)
        elif failed and action.makes_good(failed[-1]):
            times = "once" if len(failed) == 1 else f"{len(failed)} times"
            said = f" ({told})" if (told := verdict(action.output)) else ""
            mended[program] = f"{action.quoted} succeeds{said}; it had failed {times}"
    return [*mended.values()]


def _blocked(story: Story) -> list[str]:
    points = [_failure(action) for action in unmended(story.actions)]
    if story.failure:
        points.append(f"The last answer failed: {one_line(story.failure)}")
    return points


def _failure(action: Action) -> str:
    return f"{_named(action)} fails: {clip(error_line(action.output), 180)}"


def _unfinished(story: Story) -> list[str]:
    if story.finished:
        return []
    points = [f"{_WORKING}{clip(_request(story.requests[-1]), 180)}"] if story.requests else []
    if story.closing:
        points.append(f"{_LAST_SAID}{gist(story.closing[-1], 180)}")
    running = [_named(action) for action in story.actions if action.outcome == "open"]
    return points + [f"{what} had not finished" for what in running[-1:]]


def _named(action: Action) -> str:
    return action.quoted if action.tool == "bash" else f"{action.tool} of {action.quoted}"


_WORKING, _LAST_SAID = "Working on: ", "Last said: "


def _next_steps(story: Story) -> list[str]:
    """What the last words announce; where something failed at least that."""
    last = story.closing[-1:] if story.finished else story.closing[-2:]
    steps = [step for text in last for step in _announced(sentences(text))][-4:]
    steps += [_repair(action) for action in unmended(story.actions)[-2:]]
    if not story.finished and story.requests and not steps:
        steps.append(f"Go on with: {clip(_request(story.requests[-1]), 160)}")
    return steps


def _announced(told: Sequence[str]) -> Iterator[str]:
    listing = False
    for sentence in told:
        if _AGENDA.search(sentence):
            listing = True
        elif sentence[-1] == "?" and _UPCOMING.search(sentence):
            yield f"Answer the question: {sentence}"
        elif listing or _UPCOMING.search(sentence):
            yield sentence[0].upper() + sentence[1:]


def _repair(action: Action) -> str:
    return f"{'Make' if action.tool == 'bash' else 'Have the'} {_named(action)} succeed"


def _with_reason(sentence: str) -> str:
    """`**decision**: reason` where a sentence has both."""
    for between in (_BECAUSE, _DASH):
        decision, *reason = between.split(sentence, maxsplit=1)
        if reason and len(decision) >= 12 and len(reason[0]) >= 12:
            return f"**{decision}**: {reason[0]}"
    return sentence


def _focus(told: Sequence[str], instructions: str | None) -> list[str]:
    """What was asked to be looked at, and the sentences that have most to do with it."""
    if not instructions or not instructions.strip():
        return []
    words = {*_WORD.findall(instructions[:2_000].lower())} - _COMMON
    hits = {sentence: len(words.intersection(_WORD.findall(sentence.lower()))) for sentence in told}
    best = sorted((s for s in hits if hits[s]), key=lambda s: -hits[s])[:4]
    return [f"{_FOCUS}{gist(instructions, 150)}", *(sentence for sentence in hits if sentence in best)]


_FOCUS = "Focus asked for: "
_WORD = re.compile(r"\w{4,}")
_COMMON = {"about", "focus", "summary", "summarize", "please", "keep", "with", "that", "this", "what"}


def _facts(story: Story, said: Sequence[str]) -> list[str]:
    """Names, places and addresses that work goes on with."""
    facts = _naming(said)
    addresses = dict.fromkeys(url for text in story.requests for url in _URL.findall(text[:20_000]))
    if addresses:
        facts.append(f"Addresses given: {', '.join([*addresses][-3:])}")
    if worked := _worked(story.actions):
        facts.append(f"{_WORKED}{', '.join(worked)}")
    if story.images:
        were = "images were" if story.images > 1 else "image was"
        facts.append(f"{story.images} {were} shown, not described here")
    branches = [f"Another branch: {short_summary(text) or gist(text, 160)}" for text in story.branches]
    return [*facts, *story.notes[-3:], *branches[-3:]]


def _naming(said: Sequence[str]) -> list[str]:
    """The sentences that say most about things that have names in the code, in order."""
    names: dict[str, int] = {}
    for sentence in said:
        if "`" in sentence and not _ANNOUNCED.match(sentence) and not _DECIDED.search(sentence):
            names[sentence] = sentence.count("`") // 2 + bool(_FOUND.search(sentence))
    best = sorted((sentence for sentence in names if names[sentence] > 1), key=lambda one: -names[one])[:4]
    return [sentence for sentence in names if sentence in best]


def _worked(actions: Sequence[Action]) -> list[str]:
    """The last commands that succeeded, short ones only: what one would run again."""
    commands = [one.quoted for one in reversed(actions) if one.is_check and one.outcome == "done"]
    short = dict.fromkeys(command for command in commands if len(command) < 60 and "…" not in command)
    return [*short][3::-1]


_WORKED = "Commands that worked: "


# Carrying on an earlier summary

_FILE_TAGS = re.compile(r"<(read-files|modified-files)>.*?</\1>", re.DOTALL)
_HEADING = re.compile(r"^#{1,4}\s+(.+?)\s*$|^\*\*([^*]+?):?\*\*:?\s*$")
_POINT = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX~]\]\s+)?")
_NOTHING = re.compile(r"[(\[]?none(?: yet| so far)?[)\]]?\.?|n/a|no prior history\.?|---+", re.IGNORECASE)
_LEFT_OUT = re.compile(r"\((\d+) earlier points? left out\)")


def _parse(summary: str) -> _Points:
    """The points of a summary, whoever wrote it; what stands under no heading we know is context."""
    points: _Points = {name: [] for name in _SECTIONS}
    section: _Name = "context"
    goals = 0
    fresh = True
    for line in _FILE_TAGS.sub("", summary).splitlines():
        if heading := _HEADING.match(line):
            title = (heading.group(1) or heading.group(2)).strip(" :*").lower()
            section, fresh = _HEADINGS.get(title, "context"), True
            goals += section == "goal"
        elif not line.strip() or _NOTHING.fullmatch(_POINT.sub("", line).strip()):
            fresh = True
        elif (point := _POINT.match(line)) or fresh or not points[section]:
            later = "Then: " if section == "goal" and goals > 1 else ""  # of the turn that a cut went through
            points[section].append(later + one_line(line[point.end() :] if point else line))
            fresh = False
        else:
            points[section][-1] += f" {one_line(line)}"
    return points


_REPLACED = ("Edited ", "Wrote ", _WORKED, _WORKING, _LAST_SAID)
"""Beginnings of points that tell a state: a newer one takes the place of an older one."""


def _merge(old: _Points, new: _Points, story: Story) -> _Points:
    """One set of points from what was known and what happened since."""
    merged: _Points = {name: _united(old[name], new[name]) for name in _SECTIONS}
    if old["goal"] and new["goal"]:
        merged["goal"] = [*old["goal"], f"Then: {new['goal'][0]}", *new["goal"][1:]]
    if story.answers:
        merged["in_progress"] = new["in_progress"]
    mended = {name for action in story.actions if action.outcome == "done" for name in _names(action)}
    merged["blocked"] = [
        point for point in old["blocked"] if mended.isdisjoint(re.findall(r"`([^`]+)`", point))
    ] + new["blocked"]
    merged["next_steps"] = new["next_steps"] or old["next_steps"]
    return merged


def _united(old: Sequence[str], new: Sequence[str]) -> list[str]:
    replaced = tuple(start for start in _REPLACED if any(point.startswith(start) for point in new))
    return [point for point in old if not point.startswith((*replaced, _FOCUS))] + [*new]


def _names(action: Action) -> Iterator[str]:
    """How a failure of this action may have been called."""
    if action.tool not in LOOKING:
        yield action.quoted.strip("`")
        yield action.program if action.tool == "bash" else one_line(action.subject)


# As text


def _bounded(points: _Points) -> _Points:
    """Points without repetitions, shortened, and few enough to stay within `LIMIT`; the newest stay."""
    bounded: _Points = {}
    left_out: dict[_Name, int] = {}
    for name, section in _SECTIONS.items():
        left_out[name] = sum(int(count) for point in points[name] for count in _LEFT_OUT.findall(point))
        told = [clip(point, section.width) for point in points[name] if not _LEFT_OUT.search(point)]
        bounded[name] = _distinct(told)
        while len(bounded[name]) > section.most:
            del bounded[name][section.lead]
            left_out[name] += 1
    while len(_render(bounded)) > LIMIT - 40:
        name = max(_SECTIONS, key=lambda name: _spare(name, bounded))
        del bounded[name][_SECTIONS[name].lead]
        left_out[name] += 1
    if left_out["done"]:
        bounded["done"].insert(0, f"({left_out['done']} earlier points left out)")
    return bounded


def _spare(name: _Name, points: _Points) -> int:
    """Characters of the points that may go."""
    keep = max(1, _SECTIONS[name].lead)
    return sum(map(len, points[name])) if len(points[name]) > keep else 0


def _distinct(points: Iterable[str]) -> list[str]:
    """Points without those that say the same again; the later one stays."""
    last: dict[str, str] = {}
    for point in points:
        same = re.sub(r"[\W_]+", " ", point.lower()).strip()
        last.pop(same, None)
        last[same] = point
    return [*last.values()]


def _render(points: _Points) -> str:
    return "\n\n".join(f"{section.heading}\n{_list(name, points)}" for name, section in _SECTIONS.items())


def _list(name: _Name, points: _Points) -> str:
    if not points[name]:
        return NOTHING
    bullet = _SECTIONS[name].bullet
    lines = [f"{bullet.format(number)}{point}" for number, point in enumerate(points[name], 1)]
    if name == "goal":
        lines[0] = points[name][0]
    return "\n".join(lines)
