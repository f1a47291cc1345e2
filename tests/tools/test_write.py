from __future__ import annotations

import os
from pathlib import Path

import pytest

from pi_ls.tools import TextEdit, ToolFailed
from pi_ls.tools.files import read_whole, replace_file
from pi_ls.tools.write import smallest_edit
from tests.tools.conftest import Buffers, Use, names, refused, said


async def test_a_file_is_made_with_its_folders(use: Use, folder: Path) -> None:
    assert said(await use("write", path="new/deep/a.txt", content="é")) == "Wrote 2 bytes to new/deep/a.txt."
    assert (folder / "new/deep/a.txt").read_bytes() == "é".encode()
    assert names(folder / "new/deep") == ["a.txt"]


async def test_a_new_file_has_the_mode_the_user_wants_for_new_files(use: Use, folder: Path) -> None:
    before = os.umask(0o027)
    try:
        await use("write", path="a.txt", content="x")
    finally:
        os.umask(before)
    assert (folder / "a.txt").stat().st_mode & 0o777 == 0o640


async def test_a_file_is_replaced_as_it_is_given(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("old")
    said(await use("write", path="a.txt", content="a\r\nb \ud83d"))
    assert (folder / "a.txt").read_bytes() == "a\r\nb �".encode()


async def test_an_open_file_is_written_in_the_editor_only(use: Use, folder: Path, buffers: Buffers) -> None:
    (folder / "a.txt").write_text("old")
    buffers.texts[folder / "a.txt"] = "unsaved one\nkept\n"
    assert "not yet saved" in said(await use("write", path="a.txt", content="unsaved two\nkept\n"))
    assert buffers.edits == [TextEdit(8, 11, "two")]
    assert (folder / "a.txt").read_text() == "old"


async def test_what_is_no_ordinary_file_is_not_replaced(use: Use, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "no ordinary file" in refused(await use("write", path="pipe", content=""))
    assert "is a directory" in refused(await use("write", path=".", content=""))
    (folder / "file").write_text("x")
    assert refused(await use("write", path="file/below", content=""))
    assert names(folder) == ["file", "pipe"]


def test_a_file_that_was_changed_meanwhile_is_not_replaced(folder: Path) -> None:
    path = folder / "a.txt"
    path.write_text("one")
    _, version = read_whole(path, 100)
    path.write_text("other")
    with pytest.raises(ToolFailed, match="changed by another program"):
        replace_file(path, b"two", version)
    assert path.read_text() == "other"
    assert names(folder) == ["a.txt"]


@pytest.mark.parametrize(
    ("old", "new", "edit"),
    [
        ("", "a", TextEdit(0, 0, "a")),
        ("abc", "abc", TextEdit(3, 3, "")),
        ("aaa", "aa", TextEdit(2, 3, "")),
        ("x\r\ny", "x\ny", TextEdit(1, 3, "\n")),
        ("x\r\ny", "x\ry", TextEdit(1, 3, "\r")),
        ("one\ntwo\n", "one\n2\n", TextEdit(4, 7, "2")),
    ],
)
def test_the_smallest_edit_makes_one_text_of_the_other(old: str, new: str, edit: TextEdit) -> None:
    assert smallest_edit(old, new) == edit
    assert old[: edit.start] + edit.text + old[edit.end :] == new
