from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pi_ls.tools import ToolContext, output, searching
from tests.tools.conftest import Use, refused, said, use_in


def put(folder: Path, path: str, text: str = "") -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


async def found(use: Use, pattern: str, **arguments: object) -> list[str]:
    text = said(await use("find", pattern=pattern, **arguments))
    return [] if text == "Nothing found." else text.split("\n")


async def test_find_fits_names_or_with_a_slash_paths(use: Use, folder: Path) -> None:
    for path in ("a.py", "src/b.py", "src/deep/c.py", "src/d.ts", ".hidden.py"):
        put(folder, path)
    assert await found(use, "*.py") == [".hidden.py", "a.py", "src/b.py", "src/deep/c.py"]
    assert await found(use, "src/*.py") == ["src/b.py"]
    assert await found(use, "src/**/*.py") == ["src/b.py", "src/deep/c.py"]
    assert await found(use, "*.{ts,md}") == ["src/d.ts"]
    assert await found(use, "[ab].p?") == ["a.py", "src/b.py"]
    assert await found(use, "[!a].py") == ["src/b.py", "src/deep/c.py"]
    assert await found(use, "deep") == ["src/deep/"]
    assert await found(use, "*.py", path="src") == ["b.py", "deep/c.py"]
    assert await found(use, "*.rs") == []


async def test_find_stops_at_the_limit(use: Use, folder: Path) -> None:
    for n in range(5):
        put(folder, f"{n}.txt")
    text = said(await use("find", pattern="*.txt", limit=3))
    assert text == "0.txt\n1.txt\n2.txt\n\n[Stopped at 3 paths. Narrow the search for others.]"


RULES = r"""
*.log
!keep.log
/build
temp/
# comment
docs/*.html
**/cache/**
\#odd
[ab]x
q{1}
"""
FILES = """
a.log keep.log build/x src/build/x temp/x src/temp temp2 build2 docs/a.html docs/b/a.html src/cache/x cache/y
sub/a.log sub/local.txt local.txt #odd ax bx cx q{1} q1 src/a.log deep/er/keep.log
"""


@pytest.mark.skipif(shutil.which("git") is None, reason="git says what it ignores")
async def test_what_git_ignores_is_left_out_as_git_does(use: Use, folder: Path) -> None:
    for path in [*FILES.split(), "space "]:
        put(folder, path)
    put(folder, ".gitignore", RULES + "space\\ \n")
    put(folder, "sub/.gitignore", "!*.log\nlocal.txt\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=folder,
        check=True,
        capture_output=True,
    ).stdout.decode()
    ours = [path for path in await found(use, "**") if not path.endswith("/")]
    assert sorted(ours) == sorted(listed.rstrip("\0").split("\0"))
    within = [path for path in await found(use, "**", path="sub") if not path.endswith("/")]
    assert sorted(within) == [".gitignore", "a.log"]


async def test_rules_above_the_folder_count_within_a_repository_only(use: Use, folder: Path) -> None:
    put(folder.parent, ".gitignore", "*.txt\n")
    put(folder, "a.txt")
    assert await found(use, "*.txt") == ["a.txt"]
    (folder.parent / ".git").mkdir()
    assert await found(use, "*.txt") == []


async def test_grep_shows_path_line_and_text(use: Use, folder: Path) -> None:
    put(folder, "a.txt", "one\nTwo\r\nthree two\n")
    put(folder, "b/c.txt", "two.\n")
    assert said(await use("grep", pattern="two")) == "a.txt:3: three two\nb/c.txt:1: two."
    assert (
        said(await use("grep", pattern="two", ignoreCase=True, glob="*a.txt"))
        == "a.txt:2: Two\na.txt:3: three two"
    )
    assert said(await use("grep", pattern="two.", literal=True)) == "b/c.txt:1: two."
    assert said(await use("grep", pattern="^one$", path="a.txt")) == "a.txt:1: one"
    assert said(await use("grep", pattern="nowhere")) == "No matches."


async def test_grep_shows_lines_around_each_match_once(use: Use, folder: Path) -> None:
    put(folder, "a.txt", "1\n2\nx\n4\nx\n6\n7\n8\n")
    assert said(await use("grep", pattern="x", context=1)).split("\n") == [
        "a.txt-2- 2",
        "a.txt:3: x",
        "a.txt-4- 4",
        "a.txt:5: x",
        "a.txt-6- 6",
    ]


async def test_grep_stops_at_the_limit(use: Use, folder: Path) -> None:
    put(folder, "a.txt", "x\n" * 10)
    text = said(await use("grep", pattern="x", limit=2))
    assert text == "a.txt:1: x\na.txt:2: x\n\n[Stopped at 2 matches. Narrow the search for others.]"


async def test_output_of_more_than_50_kb_goes_to_a_file(use: Use, folder: Path) -> None:
    put(folder, "a.txt", ("x" * 700 + "\n") * 200)
    text = said(await use("grep", pattern="x", limit=500))
    assert len(text.encode()) < 51 * 1024 + 300
    assert f"a.txt:1: {'x' * 500}… [cut]\n" in text
    log = Path(text.rpartition("All of them: ")[2].removesuffix("]"))
    assert log.read_text().count("\n") == 199


async def test_binary_files_and_broken_text(use: Use, folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"x\0")
    (folder / "b.txt").write_bytes(b"x \xff\n")
    assert said(await use("grep", pattern="x")) == "b.txt:1: x �"


async def test_a_pattern_that_is_no_expression_is_said(use: Use) -> None:
    assert "no regular expression" in refused(await use("grep", pattern="("))


async def test_places_that_are_not_there_are_said(use: Use, folder: Path) -> None:
    put(folder, "a.txt")
    assert "does not exist" in refused(await use("grep", pattern="x", path="missing"))
    assert "is not a folder" in refused(await use("find", pattern="x", path="a.txt"))


async def test_an_expression_without_end_neither_holds_the_loop_nor_outlives_its_time(
    use: Use, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a.txt", "a" * 60 + "!\n")
    monkeypatch.setattr(searching, "TIMEOUT_S", 1)
    ticks = 0
    task = asyncio.ensure_future(use("grep", pattern="(a+)+$"))
    while not task.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert "took more than 1 s" in refused(await task)
    assert ticks > 30


async def test_a_search_can_be_cancelled(use: Use, folder: Path) -> None:
    put(folder, "a.txt", "a" * 60 + "!\n")
    task = asyncio.ensure_future(use("grep", pattern="(a+)+$"))
    await asyncio.sleep(0.1)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 1


async def test_modules_of_the_searched_folder_are_never_imported(
    use: Use, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(folder))
    put(folder, "json.py", "open('imported', 'w')\n")
    put(folder, "re.py", "open('imported', 'w')\n")
    assert await found(use, "*.py") == ["json.py", "re.py"]
    assert not (folder / "imported").exists()


async def test_links_are_not_followed_out_of_an_untrusted_folder(
    use: Use, folder: Path, tmp_path: Path, untrusted: ToolContext
) -> None:
    put(tmp_path, "outside/secret.txt", "key\n")
    put(folder, "own.txt", "key\n")
    (folder / "file.txt").symlink_to(tmp_path / "outside/secret.txt")
    (folder / "dir").symlink_to(tmp_path / "outside")
    (folder / "loop").symlink_to(folder)
    assert said(await use_in(untrusted, "grep", pattern="key")) == "own.txt:1: key"
    assert said(await use_in(untrusted, "find", pattern="*")) == "loop\nown.txt"
    assert "not trusted" in refused(await use_in(untrusted, "grep", pattern="key", path="dir"))
    assert said(await use("grep", pattern="key")) == "file.txt:1: key\nown.txt:1: key"


async def test_ls_lists_names_folders_with_a_slash(use: Use, folder: Path) -> None:
    for path in ("b.txt", "A.txt", ".hidden", "c/d"):
        put(folder, path)
    assert said(await use("ls")) == ".hidden\nA.txt\nb.txt\nc/"
    assert said(await use("ls", path="c")) == "d"
    assert "not a folder" in refused(await use("ls", path="b.txt"))
    assert "does not exist" in refused(await use("ls", path="x"))


async def test_ls_of_many_names_goes_to_a_file(
    use: Use, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_LINES", 20)
    for n in range(25):
        (folder / f"{n:04}").touch()
    text = said(await use("ls"))
    assert "[The first 20 of 25 names. All of them: " in text
