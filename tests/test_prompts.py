"""Prompt files: the shipped ones, the user's in their place, and quoted text that stays quoted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pi_ls import prompts as names
from pi_ls.core.errors import InvalidSettings
from pi_ls.prompts import (
    Prompts,
    file_tags,
    neutralise,
    shipped_prompts,
    strip_file_tags,
    summary_request,
)
from tests.headings import HEADINGS

VALUES = {
    "summary": "S",
    "continued": True,
    "read_files": ["a"],
    "modified_files": ["b"],
    "folder": "/w",
    "tools": [],
}


def override(agent_dir: Path, name: str, text: str | bytes) -> Path:
    path = agent_dir / "prompts" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("path", sorted(shipped_prompts().rglob("*.md")), ids=lambda path: path.name)
def test_every_shipped_prompt_is_used_and_can_be_filled(path: Path) -> None:
    name = path.relative_to(shipped_prompts()).as_posix()

    assert name in vars(names).values()
    assert Prompts().render(name, **VALUES)


@pytest.mark.parametrize("name", [names.SUMMARY, names.UPDATE_SUMMARY, names.BRANCH_SUMMARY])
def test_summaries_are_asked_for_under_the_same_headings_in_the_same_order(name: str) -> None:
    text = Prompts().render(name, continued=False)

    places = [text.index(f"\n{heading}\n") for heading in HEADINGS]
    assert places == sorted(places)


def test_no_prompt_looks_like_a_quotation_itself() -> None:
    prompts = Prompts()
    texts = [
        prompts.render(name, continued=True)
        for name in (
            names.SYSTEM,
            names.SUMMARY,
            names.UPDATE_SUMMARY,
            names.TURN_PREFIX,
            names.BRANCH_SUMMARY,
        )
    ]

    assert [text for text in texts if neutralise(text) != text] == []


def test_a_file_in_the_agent_directory_takes_the_place_of_ours(tmp_path: Path) -> None:
    prompts = Prompts(tmp_path)
    shipped = prompts.render(names.SUMMARY)
    override(tmp_path, names.SUMMARY, "\ufeffMine {{ continued }}\n")

    assert prompts.render(names.SUMMARY, continued=1) == "Mine 1"
    assert prompts.render(names.UPDATE_SUMMARY) != "Mine 1"

    (tmp_path / "prompts" / names.SUMMARY).unlink()
    assert prompts.render(names.SUMMARY) == shipped


def test_an_edited_prompt_counts_from_the_next_use_on(tmp_path: Path) -> None:
    prompts = Prompts(tmp_path)
    override(tmp_path, names.SUMMARY, "first")
    assert prompts.render(names.SUMMARY) == "first"

    path = override(tmp_path, names.SUMMARY, "second")
    changed = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(changed, changed))

    assert prompts.render(names.SUMMARY) == "second"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fine\n{% if %}", 2),
        ("fine\n\n{{ nobody }}", 3),
        ("{{ 1 / 0 }}", 1),
        ("{{ ''.__class__.__mro__ }}", 1),
        (b"\xff\xfe", None),
    ],
    ids=["syntax", "unknown value", "arithmetic", "escape from the sandbox", "not text"],
)
def test_a_prompt_that_cannot_be_used_is_named_with_its_line(
    tmp_path: Path, text: str | bytes, line: int | None
) -> None:
    path = override(tmp_path, names.SUMMARY, text)

    with pytest.raises(InvalidSettings) as caught:
        Prompts(tmp_path).render(names.SUMMARY)

    assert caught.value.data == {"file": str(path), "key": names.SUMMARY, "line": line}
    assert str(path) in caught.value.message
    assert line is None or f"line {line}" in caught.value.message


def test_the_parts_of_a_request_stand_in_order() -> None:
    request = summary_request(
        "Do it.", conversation="talk", previous_summary="before", context=["one", "two"], focus=" tests "
    )

    assert request == (
        "<conversation>\ntalk\n</conversation>\n\n"
        "<previous-summary>\nbefore\n</previous-summary>\n\n"
        "<additional-context>\n- one\n- two\n</additional-context>\n\n"
        "Do it.\n\n"
        "Additional focus: tests"
    )


def test_what_is_not_given_leaves_no_trace() -> None:
    assert summary_request("Do it.", conversation="talk", focus="  ") == (
        "<conversation>\ntalk\n</conversation>\n\nDo it."
    )


@pytest.mark.parametrize(
    "tag",
    [
        "</conversation>",
        "<conversation>",
        "</previous-summary>",
        "< / CONVERSATION >",
        '<conversation x="1">',
    ],
)
def test_quoted_text_cannot_end_its_quotation(tag: str) -> None:
    request = summary_request(
        "Do it.", conversation=f"a {tag} b", previous_summary=tag, context=[tag], focus=tag
    )

    assert request.count("<conversation>") == request.count("</conversation>") == 1
    assert request.count("<previous-summary>") == request.count("</previous-summary>") == 1
    assert f"a &lt;{tag[1:]} b" in request


def test_other_tags_are_left_as_they_are() -> None:
    assert neutralise("<div></div> <conversations> a < b") == "<div></div> <conversations> a < b"


def test_files_are_listed_in_blocks_one_path_a_line() -> None:
    assert file_tags(Prompts(), ["a b.ts", "ü.ts"], ["c\nd.ts"]) == (
        "<read-files>\na b.ts\nü.ts\n</read-files>\n\n<modified-files>\nc d.ts\n</modified-files>"
    )
    assert file_tags(Prompts(), [], []) == ""


def test_listed_files_can_be_taken_off_again() -> None:
    tags = file_tags(Prompts(), ["a.ts"], ["b.ts"])

    assert strip_file_tags(f"## Goal\nx\n\n{tags}") == "## Goal\nx"
    assert strip_file_tags(f"{tags}\n\nlater") == "later"
    assert strip_file_tags("no tags") == "no tags"


def test_a_path_cannot_end_its_block() -> None:
    assert file_tags(Prompts(), ["</read-files>x"], []).count("</read-files>") == 1
