from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pi_ls.core.context import build_session_context
from pi_ls.core.extractive import LIMIT, SHORT_LIMIT, extractive_summary, short_summary
from pi_ls.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from tests.core.recorded import Recorded, recorded
from tests.headings import HEADINGS

TEST_FAILURE = """\
============================= test session starts ==============================
tests/test_retry.py ..F...                                               [100%]

=================================== FAILURES ===================================
>       assert max(delays) <= 60
E       assert 256 <= 60

tests/test_retry.py:31: AssertionError
=========================== short test summary info ============================
FAILED tests/test_retry.py::test_backoff_is_capped - assert 256 <= 60
========================= 1 failed, 13 passed in 0.42s =========================

Command exited with code 1"""

TEST_SUCCESS = "....\n============================== 14 passed in 0.40s =============================="


def said(text: str, **fields: str) -> Message:
    return AssistantMessage((TextContent(text),), **fields)  # pyright: ignore[reportArgumentType]


def used(
    tool: str, subject: str, output: str | None = "ok", *, fails: bool = False, text: str = ""
) -> list[Message]:
    """An answer that calls a tool, and its result (None: it never came)."""
    argument = "command" if tool == "bash" else "path"
    call = ToolCall(f"{tool}-{subject}", tool, {argument: subject})
    content = (TextContent(text), call) if text else (call,)
    answer: list[Message] = [AssistantMessage(content, stop_reason="toolUse")]
    if output is not None:
        answer.append(ToolResultMessage(call.id, tool, (TextContent(output),), fails))
    return answer


def bug_hunt() -> list[Message]:
    """Somebody has a bug looked for: reads, a failing test, a fix, a wish, and work that is not finished."""
    return [
        UserMessage(
            "The client hammers the gateway when it is down. Can you find out why the backoff is not capped?"
            "\n\nPlease don't touch anything under `vendor/`."
        ),
        *used(
            "read", "src/retry.py", "def backoff(base, attempts): ...", text="I'll start with the retry code."
        ),
        *used("bash", "grep -rn 'backoff(' src", "Command exited with code 1", fails=True),
        *used(
            "bash", "pytest -q", TEST_FAILURE, fails=True, text="`backoff` returns `2 ** n` without a limit."
        ),
        *used(
            "edit",
            "src/retry.py",
            text="I decided to cap it here instead of in the client, because both use it.",
        ),
        *used("bash", "pytest -q", TEST_SUCCESS),
        said("The backoff is capped at 60 seconds now. Should I also add jitter?"),
        UserMessage("Yes, add jitter, but it must be deterministic in tests."),
        *used("write", "tests/test_jitter.py", text="Writing a test first."),
        *used(
            "bash",
            "ruff check src",
            "src/retry.py:3:1: F401 `time` imported but unused\nFound 1 error.",
            fails=True,
        ),
        said("Jitter is in.\n\nNext steps:\n- remove the unused import\n- mention it in `CHANGELOG.md`"),
        UserMessage("go ahead"),
        *used("edit", "src/retry.py", None, text="Removing the import."),
    ]


def headings(summary: str) -> tuple[str, ...]:
    return tuple(line for line in summary.split("\n") if re.match("#+ ", line))


def section(summary: str, heading: str) -> list[str]:
    """The lines under a heading."""
    start = summary.index(f"{heading}\n") + len(heading) + 1
    return re.split(r"\n\n|\n#", summary[start:])[0].splitlines()


# How it reads


def test_a_bug_hunt_reads_as_somebody_would_tell_it() -> None:
    assert (
        extractive_summary(bug_hunt())
        == """\
## Goal
The client hammers the gateway when it is down. Can you find out why the backoff is not capped?
- Then: Add jitter, but it must be deterministic in tests.

## Constraints & Preferences
- Please don't touch anything under `vendor/`.
- Add jitter, but it must be deterministic in tests.

## Progress
### Done
- [x] The backoff is capped at 60 seconds now.
- [x] Jitter is in.
- [x] Edited `src/retry.py`
- [x] Wrote `tests/test_jitter.py`
- [x] `pytest -q` succeeds (14 passed in 0.40s); it had failed once

### In Progress
- [ ] Working on: Add jitter, but it must be deterministic in tests.
- [ ] Last said: Removing the import.
- [ ] edit of `src/retry.py` had not finished

### Blocked
- `ruff check src` fails: src/retry.py:3:1: F401 `time` imported but unused

## Key Decisions
- **I decided to cap it here instead of in the client**: both use it.

## Next Steps
1. Remove the unused import
2. Mention it in `CHANGELOG.md`
3. Make `ruff check src` succeed

## Critical Context
- `backoff` returns `2 ** n` without a limit.
- Commands that worked: `pytest -q`"""
    )


def test_every_section_is_there_even_if_it_says_nothing() -> None:
    summary = extractive_summary([])
    assert headings(summary) == HEADINGS
    assert set(summary.splitlines()) - set(HEADINGS) == {"", "(none)"}


def test_the_same_messages_always_give_the_same_text() -> None:
    assert len({extractive_summary(bug_hunt(), None, "retries and jitter") for _ in range(5)}) == 1


# What it picks out


def test_conditions_are_told_apart_from_the_goal() -> None:
    summary = extractive_summary([UserMessage("Port the parser to Rust. Never log the body.")])
    assert section(summary, "## Goal") == ["Port the parser to Rust."]
    assert section(summary, "## Constraints & Preferences") == ["- Never log the body."]


@pytest.mark.parametrize("text", ["ok", "Go ahead.", "yes, please", "Continue if you have next steps.", "  "])
def test_a_mere_go_on_is_no_request(text: str) -> None:
    summary = extractive_summary([UserMessage("Port the parser."), said("Ported."), UserMessage(text)])
    assert section(summary, "## Goal") == ["Port the parser."]


def test_a_failure_that_was_made_good_blocks_nothing() -> None:
    messages = [
        *used("bash", "pytest -q", TEST_FAILURE, fails=True),
        *used("bash", "pytest -q", TEST_SUCCESS),
    ]
    summary = extractive_summary(messages)
    assert section(summary, "### Blocked") == ["(none)"]
    assert "`pytest -q` succeeds (14 passed in 0.40s); it had failed once" in summary


@pytest.mark.parametrize(
    ("failing", "succeeding", "blocks"),
    [
        ("pytest tests/test_a.py", "pytest -q", False),  # everything was run
        ("pytest -q", "pytest tests/test_a.py", True),  # a part of it was
        ("cd app && npm test", "npm test", False),
        ("npm test", "npm run build", True),
        ("python -m mypy src 2>&1 | tail -5", "python -m mypy src", False),
    ],
)
def test_a_success_makes_good_a_failure_of_the_same_things(
    failing: str, succeeding: str, blocks: bool
) -> None:
    summary = extractive_summary(
        [*used("bash", failing, "Error: boom", fails=True), *used("bash", succeeding, "fine")]
    )
    assert (section(summary, "### Blocked") != ["(none)"]) == blocks


def test_a_search_without_a_hit_blocks_nothing() -> None:
    messages = [
        *used("read", "nowhere", "ENOENT", fails=True),
        *used("bash", "grep -rn x src", "", fails=True),
    ]
    assert section(extractive_summary(messages), "### Blocked") == ["(none)"]


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (TEST_FAILURE, "FAILED tests/test_retry.py::test_backoff_is_capped - assert 256 <= 60"),
        ("Traceback (most recent call last):\nKeyError: 'a'\n\nCommand exited with code 1", "KeyError: 'a'"),
        ("src/a.c:3:5: error: expected ';'\nsrc/a.c:9:1: error: other", "src/a.c:3:5: error: expected ';'"),
        ("Compiling\nfatal: not a git repository\nbye", "fatal: not a git repository"),
        ("starting\npermission denied\nstopped", "permission denied"),
        ("only this\n\nCommand exited with code 3", "only this"),
        ("Command exited with code 3", "Command exited with code 3"),
        ("", "no output"),
    ],
)  # fmt: skip
def test_of_a_failure_the_line_is_told_that_says_why(output: str, told: str) -> None:
    blocked = section(extractive_summary(used("bash", "make all", output, fails=True)), "### Blocked")
    assert blocked == [f"- `make all` fails: {told}"]


def test_a_command_a_person_ran_counts_like_a_tool_call() -> None:
    summary = extractive_summary([BashExecutionMessage("make deploy", "Error: no key", 2)])
    assert section(summary, "### Blocked") == ["- `make deploy` fails: Error: no key"]


def test_an_answer_that_failed_is_said_to_have_failed() -> None:
    summary = extractive_summary(
        [UserMessage("hi"), AssistantMessage(stop_reason="error", error_message="overloaded")]
    )
    assert section(summary, "### Blocked") == ["- The last answer failed: overloaded"]


def test_an_open_question_is_a_next_step() -> None:
    summary = extractive_summary([UserMessage("Fix it."), said("Fixed. Should I push the branch?")])
    assert section(summary, "## Next Steps") == ["1. Answer the question: Should I push the branch?"]
    assert section(summary, "### In Progress") == ["(none)"]


def test_code_blocks_are_no_prose() -> None:
    summary = extractive_summary(
        [UserMessage("Make this faster:\n```\nnever_ever = must_not()\n```\nThanks.")]
    )
    assert "never_ever" not in summary


def test_branches_notes_and_images_are_mentioned() -> None:
    summary = extractive_summary(
        [
            CustomMessage("ci", "Build 17 is red."),
            BranchSummaryMessage("## Goal\nTry the other parser. It failed.\n\n## Progress"),
            UserMessage((TextContent("See"), ImageContent("AA==", "image/png"))),
            SystemMessage("SECRET PROMPT"),
        ]
    )
    context = section(summary, "## Critical Context")
    assert "- Build 17 is red." in context
    assert "- Another branch: Try the other parser." in context
    assert "- 1 image was shown, not described here" in context
    assert "SECRET" not in summary


def test_instructions_set_a_focus() -> None:
    messages = [
        UserMessage("Clean up the importer."),
        said("The cache key holds the locale. The button is blue. The locale comes from the header."),
    ]
    context = section(
        extractive_summary(messages, None, "focus on the locale handling"), "## Critical Context"
    )
    assert context[0] == "- Focus asked for: focus on the locale handling"
    assert "- The cache key holds the locale." in context
    assert "- The locale comes from the header." in context
    assert "The button is blue." not in "".join(context)


# Carrying on


def test_a_previous_summary_is_merged_and_not_nested() -> None:
    first = extractive_summary(bug_hunt(), None, "the retries")
    tags = "\n\n<read-files>\nsrc/a.py\n</read-files>\n\n<modified-files>\nsrc/b.py\n</modified-files>"
    later = [
        *used("bash", "ruff check src", "All checks passed!"),
        *used("edit", "CHANGELOG.md"),
        said("Ruff is clean and the changelog mentions the jitter."),
        UserMessage("Now look at the webhooks. Never log the body."),
    ]
    summary = extractive_summary(later, first + tags)
    assert headings(summary) == HEADINGS
    assert section(summary, "## Goal") == [
        *section(first, "## Goal"),
        "- Then: Look at the webhooks.",
    ]
    assert section(summary, "## Constraints & Preferences")[-1] == "- Never log the body."
    assert "- [x] The backoff is capped at 60 seconds now." in summary
    assert section(summary, "### In Progress") == ["- [ ] Working on: Look at the webhooks."]
    assert section(summary, "### Blocked") == ["(none)"]
    assert section(summary, "## Next Steps") == ["1. Go on with: Look at the webhooks."]
    assert "src/a.py" not in summary
    assert "Focus asked for" not in summary


def test_a_compaction_among_the_messages_is_carried_on_too() -> None:
    messages = [CompactionSummaryMessage("## Goal\nBuild the tower."), UserMessage("Paint it red.")]
    assert section(extractive_summary(messages), "## Goal") == ["Build the tower.", "- Then: Paint it red."]


def test_a_summary_that_somebody_else_wrote_is_understood() -> None:
    previous = """\
**Overview:**
A web shop.

## Goal
Make the shop fast
and keep it so.

## Progress
### Done
- [x] Measured the pages
  - the list takes 2 s
* Added an index

### Blocked
- None

## Open Questions
1) Which cache?
"""
    summary = extractive_summary([UserMessage("Go for Redis.")], previous)
    assert section(summary, "## Goal") == ["Make the shop fast and keep it so.", "- Then: Go for Redis."]
    assert section(summary, "### Done") == [
        "- [x] Measured the pages",
        "- [x] the list takes 2 s",
        "- [x] Added an index",
    ]
    assert section(summary, "### Blocked") == ["(none)"]
    assert section(summary, "## Critical Context") == ["- A web shop.", "- Which cache?"]


def test_a_summary_without_headings_is_context() -> None:
    assert section(extractive_summary([], "just words"), "## Critical Context") == ["- just words"]


def test_the_two_parts_of_a_split_turn_become_one() -> None:
    history = extractive_summary([UserMessage("Build the tower."), said("Built.")])
    prefix = extractive_summary([UserMessage("Paint it.")])
    previous = f"{history}\n\n---\n\n**Turn Context (split turn):**\n\n{prefix}"
    summary = extractive_summary([said("Painted it red.")], previous)
    assert headings(summary) == HEADINGS
    assert section(summary, "## Goal") == ["Build the tower.", "- Then: Paint it."]
    assert section(summary, "### Done") == ["- [x] Built.", "- [x] Painted it red."]


def test_carrying_on_with_nothing_new_changes_nothing() -> None:
    summary = extractive_summary(bug_hunt())
    assert extractive_summary([], summary) == summary


# Bounds


def endless_work(turns: int) -> list[Message]:
    words = random.Random(1)
    messages: list[Message] = []
    for turn in range(turns):
        topic = " ".join(
            words.choices(["cache", "parser", "index", "worker", "queue", "lexer", "socket"], k=12)
        )
        messages += [
            UserMessage(
                f"Task {turn}: rework the {topic}. Never skip test {turn}. See https://example.org/{turn}"
            ),
            *used(
                "edit",
                f"src/module_{turn}.py",
                text=f"I chose plan {turn} instead of {topic}, because of `x{turn}`.",
            ),
            *used("bash", f"check{turn} --all", f"Error: {topic} is broken", fails=True),
            said(
                f"Fixed part {turn} of the {topic}. `f{turn}` returns {turn} now. Next I'll look at {topic}."
            ),
        ]
    return messages


@pytest.mark.parametrize("turns", [1, 20, 2_000])
def test_however_much_went_on_a_summary_stays_short(turns: int) -> None:
    summary = extractive_summary(endless_work(turns), None, "the parser")
    assert len(summary) <= LIMIT
    assert section(summary, "## Goal")[0].startswith("Task 0")
    assert f"Fixed part {turns - 1}" in summary


def test_a_chain_of_summaries_stays_short_and_counts_what_it_left_out() -> None:
    work = endless_work(200)
    summary = None
    for at in range(0, 200, 10):
        summary = extractive_summary(work[6 * at : 6 * at + 60], summary)
    assert summary is not None
    assert len(summary) <= LIMIT
    assert section(summary, "## Goal")[0].startswith("Task 0")
    assert "- Never skip test 0." in summary
    done = section(summary, "### Done")
    counted = re.fullmatch(r"- \[x\] \((\d+) earlier points left out\)", done[0])
    assert counted is not None
    assert int(counted.group(1)) + len(done) - 1 >= 200


def test_huge_messages_take_no_time() -> None:
    huge = "abcdefg " * 500_000
    messages = [UserMessage(huge), *used("bash", "make all", huge, fails=True), said(huge)]
    assert len(extractive_summary(messages, huge, huge)) <= LIMIT


@given(
    st.lists(st.text(max_size=60), max_size=6),
    st.none() | st.text(max_size=200),
    st.none() | st.text(max_size=30),
)
def test_any_text_gives_a_summary_in_the_format(
    texts: list[str], previous: str | None, instructions: str | None
) -> None:
    messages: list[Message] = []
    for at, text in enumerate(texts):
        messages += [UserMessage(text)] if at % 2 else used("bash", text, text, fails=at % 4 == 0, text=text)
    summary = extractive_summary(messages, previous, instructions)
    assert headings(summary) == HEADINGS
    assert len(summary) <= LIMIT
    assert summary.encode()  # no lone surrogates


def test_lone_surrogates_and_our_tags_do_not_get_into_a_summary() -> None:
    text = "Look at \ud83d this. </conversation> <read-files> must never close the quote."
    summary = extractive_summary([UserMessage(text)], text)
    assert "\ufffd" in summary
    assert "<" not in summary


@pytest.mark.parametrize("one", recorded(), ids=repr)
def test_every_recorded_session_can_be_told(one: Recorded) -> None:
    for leaf in one.case.leaves:
        context = build_session_context(one.path(leaf["leaf"]))
        summary = extractive_summary([each.message for each in context.messages])
        assert headings(summary) == HEADINGS
        assert len(summary) <= LIMIT


# The short form


@pytest.mark.parametrize(
    ("summary", "short"),
    [
        ("## Goal\nFix the retries. Then more.\n\n## Progress", "Fix the retries."),
        ("# Title\n\n## Goal\n\n- **Fix** the retries\n- Then: more", "Fix the retries"),
        ("## Goal\n(none)\n\n## Progress", None),
        ("## Goal\n\n## Progress\ndone", None),
        ("## Progress\n### Done\n- [x] all", None),
        ("No prior history.", None),
        ("", None),
    ],
)
def test_the_short_form_is_the_first_sentence_of_the_goal(summary: str, short: str | None) -> None:
    assert short_summary(summary) == short


def test_a_long_goal_is_shortened_between_words() -> None:
    short = short_summary("## Goal\n" + "lorem ipsum " * 40)
    assert short is not None
    assert len(short) <= SHORT_LIMIT
    assert short.endswith("…")
    assert re.fullmatch(r"(lorem ipsum )*lorem( ipsum)?…", short)
