from __future__ import annotations

import os
from pathlib import Path

import pytest

from pi_ls.tools import TextEdit
from tests.tools.conftest import Buffers, Use, names, refused, said


async def edit(use: Use, path: str, *pairs: tuple[str, str]) -> str:
    return said(await use("edit", path=path, edits=[{"oldText": old, "newText": new} for old, new in pairs]))


async def fails(use: Use, path: str, *pairs: tuple[str, str]) -> str:
    return refused(
        await use("edit", path=path, edits=[{"oldText": old, "newText": new} for old, new in pairs])
    )


async def test_pieces_are_replaced_and_nothing_else(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"one\ntwo\nthree\n")
    assert await edit(use, "a.txt", ("three", "3"), ("one\n", "")) == "Replaced 2 pieces of text in a.txt."
    assert (folder / "a.txt").read_bytes() == b"two\n3\n"


async def test_a_single_replacement_may_stand_alone(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("one")
    said(await use("edit", path="a.txt", oldText="one", newText="two"))
    assert (folder / "a.txt").read_text() == "two"
    assert "nothing to replace" in refused(await use("edit", path="a.txt"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nB2\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\nc\n", b"\xef\xbb\xbfa\nB\nB2\nc\n"),
        (b"a\nb\nc\r\nd\r\n", b"a\nB\nB2\nc\r\nd\r\n"),
        (b"\xff\xfe\na\nb\nc", b"\xff\xfe\na\nB\nB2\nc"),
    ],
    ids=["crlf", "byte order mark", "mixed", "bytes that are no text"],
)
async def test_line_ends_marks_and_odd_bytes_are_kept(
    use: Use, folder: Path, before: bytes, after: bytes
) -> None:
    (folder / "a.txt").write_bytes(before)
    await edit(use, "a.txt", ("a\nb\nc", "a\nB\nB2\nc"))
    assert (folder / "a.txt").read_bytes() == after


async def test_a_piece_on_one_line_gets_the_line_ends_of_the_file(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"a\r\nb\r\n")
    await edit(use, "a.txt", ("b", "x\ny"))
    assert (folder / "a.txt").read_bytes() == b"a\r\nx\r\ny\r\n"


async def test_a_piece_that_occurs_more_than_once_is_refused_with_its_lines(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("x\ny\nx\nxx\n")
    assert "occurs 4 times in a.txt (lines 1, 3, 4, 4)" in await fails(use, "a.txt", ("x", "z"))
    assert (folder / "a.txt").read_text() == "x\ny\nx\nxx\n"


async def test_pieces_that_overlap_themselves_are_not_unique(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("aaa")
    assert "occurs 2 times" in await fails(use, "a.txt", ("aa", "b"))


async def test_a_piece_that_is_not_there_says_where_it_nearly_is(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("def f():\n    return  1\n")
    assert "Line 1 differs from it only in white space" in await fails(
        use, "a.txt", ("def f():\n\treturn 1", "x")
    )
    assert "was not found in a.txt" in await fails(use, "a.txt", ("nowhere", "x"))


async def test_edits_are_made_all_or_none(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("one two")
    assert "not found" in await fails(use, "a.txt", ("one", "1"), ("nowhere", "2"))
    assert "overlap" in await fails(use, "a.txt", ("one t", "1"), ("two", "2"))
    assert "would change" in await fails(use, "a.txt", ("one", "one"))
    assert "oldText is empty" in await fails(use, "a.txt", ("", "one"))
    assert (folder / "a.txt").read_text() == "one two"


async def test_an_open_file_is_changed_in_the_editor_only(use: Use, folder: Path, buffers: Buffers) -> None:
    (folder / "a.txt").write_text("old\n")
    buffers.texts[folder / "a.txt"] = '# 😀\nx = "😀" + y\n'
    told = await edit(use, "a.txt", ("y", "z"))
    assert buffers.edits == [TextEdit(14, 15, "z")]
    assert buffers.texts[folder / "a.txt"] == '# 😀\nx = "😀" + z\n'
    assert (folder / "a.txt").read_text() == "old\n"
    assert "not yet saved" in told


async def test_places_in_a_buffer_with_returns_are_those_of_the_buffer(
    use: Use, folder: Path, buffers: Buffers
) -> None:
    buffers.texts[folder / "a.txt"] = "a\r\nb\r\nc\r\n"
    await edit(use, "a.txt", ("b\nc", "B\nC"))
    assert buffers.edits == [TextEdit(3, 7, "B\r\nC")]


async def test_mode_and_links_survive(use: Use, folder: Path) -> None:
    (folder / "real.sh").write_text("one")
    (folder / "real.sh").chmod(0o750)
    (folder / "link.sh").symlink_to("real.sh")
    await edit(use, "link.sh", ("one", "two"))
    assert (folder / "link.sh").is_symlink()
    assert (folder / "real.sh").read_text() == "two"
    assert (folder / "real.sh").stat().st_mode & 0o777 == 0o750
    assert names(folder) == ["link.sh", "real.sh"]


async def test_the_change_is_told_as_a_diff(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 10)))
    output = await use(
        "edit",
        path="a.txt",
        edits=[{"oldText": "4\n", "newText": "four\nand\n"}, {"oldText": "9", "newText": "nine"}],
    )
    assert output.details["firstChangedLine"] == 4
    assert output.details["diff"].split("\n") == [
        "@@ -1,7 +1,8 @@",
        *(" 1", " 2", " 3", "-4", "+four", "+and", " 5", " 6", " 7"),
        "@@ -6,4 +7,4 @@",
        *(" 6", " 7", " 8", "-9", "+nine"),
    ]


async def test_half_an_emoji_in_new_text_is_replaced(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("one")
    await edit(use, "a.txt", ("one", "x\ud83d"))
    assert (folder / "a.txt").read_text() == "x�"


async def test_what_cannot_be_edited_is_said(use: Use, folder: Path) -> None:
    (folder / "big.txt").touch()
    os.truncate(folder / "big.txt", (20 << 20) + 1)
    assert "larger than 20 MB" in await fails(use, "big.txt", ("a", "b"))
    assert "No such file" in await fails(use, "missing", ("a", "b"))
    assert "directory" in await fails(use, ".", ("a", "b"))
