from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from pi_ls.core.messages import ImageContent
from pi_ls.tools import ToolContext
from pi_ls.tools.output import MAX_BYTES
from tests.tools.conftest import Buffers, Use, refused, said, use_in


async def test_a_short_file_is_read_whole(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_bytes("one\ntwö\nthree".encode())
    assert said(await use("read", path="a.txt")) == "one\ntwö\nthree"


async def test_a_long_file_stops_at_the_limit_and_says_how_to_go_on(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 5_001)))
    text = said(await use("read", path="a.txt"))
    assert text.endswith("1999\n2000\n\n[Lines 1-2000 of 5000. Use offset=2001 to go on.]")
    rest = said(await use("read", path="a.txt", offset=4_999))
    assert rest == "4999\n5000\n"


@pytest.mark.parametrize("end", ["", "\n"])
async def test_the_last_line_counts_with_and_without_its_end(use: Use, folder: Path, end: str) -> None:
    (folder / "a.txt").write_text("1\n2\n3" + end)
    assert (
        said(await use("read", path="a.txt", offset=2, limit=1))
        == "2\n\n[Lines 2-2 of 3. Use offset=3 to go on.]"
    )
    assert said(await use("read", path="a.txt", offset=3)) == "3" + end
    assert "has 3 lines; there is no line 4" in refused(await use("read", path="a.txt", offset=4))
    assert "has 3 lines; there is no line 9" in refused(await use("read", path="a.txt", offset=9))


async def test_output_is_at_most_50_kb_in_whole_lines(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text(("é" * 499 + "\n") * 200)
    text, _, note = said(await use("read", path="a.txt")).partition("\n\n[")
    assert MAX_BYTES - 1_000 < len(text.encode()) <= MAX_BYTES
    assert set(text.split("\n")) == {"é" * 499}
    assert note == "Lines 1-51 of 200. Use offset=52 to go on.]"


async def test_a_line_longer_than_that_is_cut_between_characters(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_text("x" + "é" * 60_000 + "\nend\n")
    text, _, note = said(await use("read", path="a.txt")).partition("\n\n[")
    assert set(text) == {"x", "é"}
    assert "Line 1 is longer than 50 KB" in note


async def test_a_mark_at_the_start_and_returns_at_line_ends_are_not_shown(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert said(await use("read", path="a.txt")) == "one\ntwo\n"


async def test_bytes_that_are_no_text_are_replaced(use: Use, folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"a \xf0\x9f\x98 b\xff\n")
    assert said(await use("read", path="a.txt")) == "a � b�\n"


async def test_an_open_file_is_read_from_its_buffer(use: Use, folder: Path, buffers: Buffers) -> None:
    (folder / "a.txt").write_text("old\n")
    buffers.texts[folder / "a.txt"] = "unsaved\n"
    assert said(await use("read", path="a.txt")) == "unsaved\n"
    assert said(await use("read", path=str(folder / "sub/../a.txt"))) == "unsaved\n"
    buffers.texts.clear()
    assert said(await use("read", path="a.txt")) == "old\n"


async def test_images_come_as_images(use: Use, folder: Path) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(9_000)
    (folder / "a.png").write_bytes(data)
    output = await use("read", path="a.png")
    assert ImageContent(base64.b64encode(data).decode(), "image/png") in output.content


async def test_an_image_that_is_too_large_is_not_sent(use: Use, folder: Path) -> None:
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(6 << 20))
    assert "more than 5 MB" in refused(await use("read", path="a.png"))


async def test_what_is_no_text_file_is_refused_at_once(use: Use, folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"a\0b")
    os.mkfifo(folder / "pipe")
    assert "binary" in refused(await use("read", path="a.bin"))
    assert "no ordinary file" in refused(await use("read", path="pipe"))
    assert "no ordinary file" in refused(await use("read", path="/dev/zero"))
    assert "use ls" in refused(await use("read", path="."))
    assert "No such file" in refused(await use("read", path="missing"))
    assert "path is empty" in refused(await use("read", path=""))


async def test_an_empty_file_is_said_to_be_empty(use: Use, folder: Path) -> None:
    (folder / "a.txt").touch()
    assert said(await use("read", path="a.txt")) == "[The file is empty.]"


async def test_paths_start_at_the_folder_home_or_a_mention(
    use: Use, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "h.txt").write_text("home")
    (folder / "m.txt").write_text("mention")
    (folder / "@n.txt").write_text("really so named")
    assert said(await use("read", path="~/h.txt")) == "home"
    assert said(await use("read", path="@m.txt")) == "mention"
    assert said(await use("read", path="@n.txt")) == "really so named"
    assert said(await use("read", path=str(tmp_path / "h.txt"))) == "home"


async def test_an_untrusted_folder_is_not_left_by_any_way(
    folder: Path, tmp_path: Path, untrusted: ToolContext
) -> None:
    (tmp_path / "secret").write_text("key")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    (folder / "own.txt").write_text("own")
    (folder / "inner").symlink_to(folder / "own.txt")
    for path in ("../secret", str(tmp_path / "secret"), "link", "up/secret", "~/secret"):
        assert "not trusted" in refused(await use_in(untrusted, "read", path=path))
    assert said(await use_in(untrusted, "read", path="own.txt")) == "own"
    assert said(await use_in(untrusted, "read", path="inner")) == "own"
