"""What the store's tests do in processes of their own: without privileges, side by side, or killed.

    python -m tests.store_child NAME ARGUMENTS…

What is about permissions and full disks runs as an ordinary user, even if the tests run as root. A line on
stdout tells the test something; anything that is wrong ends the process with a traceback.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pi_ls.core.entries import Entry
from pi_ls.core.errors import WriteFailed
from pi_ls.core.jsonvalues import Json
from pi_ls.core.tree import SessionTree
from pi_ls.store import SessionFile, list_sessions

NOBODY = 65534


def drop_privileges() -> None:
    """Become an ordinary user, who is refused what permissions refuse."""
    "".encode("utf-16-le", "surrogatepass")  # the codec's module might be out of reach afterwards
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    assert os.geteuid() != 0


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def names_in(folder: Path | str) -> list[str]:
    return sorted(one.name for one in Path(folder).iterdir())


def message(parent: str | None, text: str, **more: str) -> Json:
    content = {"role": "user", "content": text, "timestamp": 1}
    return {"type": "message", "parentId": parent, "message": content, **more}


def texts(path: str) -> list[str]:
    return [one.data["message"]["content"] for one in SessionFile.open(path).entries if one.type == "message"]


# ---- permissions


def write_where_it_is_forbidden(path: str) -> None:
    """The file, and the folder it is in, may only be read."""
    file, entries, _ = SessionFile.open(path)
    before = Path(path).read_bytes()

    async def append() -> Entry:
        async with file.lock():
            return file.append(message(entries[-1].id, "kept in memory"))

    entry = asyncio.run(append())
    assert entry.data["message"]["content"] == "kept in memory"
    assert file.unsaved == 1
    assert file.write_problem is not None
    assert "permission denied" in file.write_problem
    assert path in file.write_problem
    try:
        file.append({"type": "compaction", "parentId": entry.id, "summary": "S"}, required=True)
    except WriteFailed:
        pass
    else:
        raise AssertionError("a required entry was not written, and nobody was told")
    try:
        file.rewrite({entries[0].id: entries[0].data})
    except WriteFailed:
        pass
    else:
        raise AssertionError("a rewrite in a folder that may not be written")
    assert file.unsaved == 1
    assert Path(path).read_bytes() == before
    assert names_in(Path(path).parent) == [Path(path).name]


def write_in_a_folder_that_may_not_be_written(path: str) -> None:
    """The folder may only be read, so there can be no lock; the file may be written."""
    file, entries, _ = SessionFile.open(path)

    async def append() -> None:
        async with file.lock():
            file.append(message(entries[-1].id, "written"))

    asyncio.run(append())
    assert file.write_problem is None
    assert texts(path)[-1] == "written"


def list_what_may_not_be_read(folder: str) -> None:
    say(json.dumps([one.id for one in list_sessions(Path(folder))]))


def begin_where_nothing_may_be_made(folder: str) -> None:
    file = SessionFile.create(Path(folder) / "sub", "/w/p", now_ms=1)
    file.append(message(None, "one"))
    assert file.unsaved == 1
    assert not file.on_disk
    assert names_in(folder) == []


# ---- a full disk


def fill_disk(path: str, how: str) -> None:
    """Appends while the disk is full and after; `how`: a small file system, or a limit on a file's size."""
    file, entries, _ = SessionFile.open(path)
    filler = Path(path).with_name("filler")
    size = Path(path).stat().st_size

    def fill() -> None:
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2000, resource.RLIM_INFINITY))
            return
        with filler.open("wb", buffering=0) as out:
            try:
                while True:
                    out.write(b"x" * 1024)
            except OSError:
                pass

    def empty() -> None:
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        else:
            filler.unlink()

    before = Path(path).read_bytes()
    names = names_in(Path(path).parent)
    fill()
    first = file.append(message(entries[-1].id, "first " + "x" * 9000))
    assert file.unsaved == 1
    problem = file.write_problem
    assert problem is not None
    assert ("no space left" in problem) or ("too large" in problem), problem
    second = file.append(message(first.id, "second"))
    assert file.unsaved == 2
    try:
        file.append({"type": "compaction", "parentId": second.id, "summary": "S" * 9000}, required=True)
    except WriteFailed:
        pass
    else:
        raise AssertionError("a compaction that could not be written was kept")
    try:
        file.rewrite({entries[0].id: {**entries[0].data, "big": "x" * 9000}})
    except WriteFailed:
        pass
    else:
        raise AssertionError("a rewrite on a full disk")
    assert file.unsaved == 2
    assert Path(path).read_bytes() == before, "something half written is left"
    assert [one.data["message"]["content"][:6] for one in (first, second)] == ["first ", "second"]
    empty()
    assert names_in(Path(path).parent) == names
    third = file.append(message(second.id, "third"))
    assert (file.unsaved, file.write_problem) == (0, None)
    again = SessionFile.open(path)
    assert not again.problems
    assert [one.id for one in again.entries[-3:]] == [first.id, second.id, third.id]
    assert [one.data["message"]["content"][:5] for one in (first, second, third)] == [
        "first",
        "secon",
        "third",
    ]


# ---- killed at any moment


def _killed_at_work(
    work: Callable[[Callable[[str], None]], None], after: int, more_seconds: float
) -> list[str]:
    """What `work` had acknowledged in a child of its own when it was killed.

    It is killed some time after its acknowledgement number `after`.
    """
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda word: _write_line(writable, word))
        finally:
            os._exit(3)
    os.close(writable)
    said = b""
    while said.count(b"\n") < after and (chunk := os.read(readable, 65536)):
        said += chunk
    end = time.perf_counter() + more_seconds
    while time.perf_counter() < end:
        pass
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself"
    while chunk := os.read(readable, 65536):
        said += chunk
    os.close(readable)
    return said.decode().split()


def _write_line(fd: int, word: str) -> None:
    os.write(fd, word.encode() + b"\n")


def _lines(path: Path) -> tuple[list[Json], int, bytes]:
    """The objects on the file's ended lines, how many such lines hold none, and what is not ended."""
    *ended, last = path.read_bytes().split(b"\n")
    objects: list[Json] = [json.loads(line) for line in ended if _parses(line)]
    return objects, len(ended) - len(objects), last


def _parses(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def kill_appends(folder: str, rounds: str, seed: str) -> None:
    """Append in a child that is killed, many times; what it had acknowledged is there every time."""
    chance = random.Random(int(seed))
    path = Path(folder) / "s.jsonl"
    path.write_text('{"type":"session","version":3,"id":"s-1","cwd":"/w/p"}\n', encoding="utf-8")
    torn: set[bytes] = set()
    acknowledged = 0

    def work(acknowledge: Callable[[str], None]) -> None:
        file, entries, _ = SessionFile.open(path)
        parent = entries[-1].id if entries else None
        while True:
            parent = file.append(message(parent, "é" * size)).id
            acknowledge(parent)

    for _ in range(int(rounds)):
        size = chance.choice((10, 500, 6_000))
        said = _killed_at_work(work, chance.randrange(4), chance.random() * 0.001)
        objects, broken, last = _lines(path)
        ids = {one["id"] for one in objects}
        assert ids.issuperset(said), "an acknowledged entry is lost"
        if last and not _parses(last):
            torn.add(last)  # the kernel was stopped in the middle of the write
        assert broken == len(torn - {last}), "a line that does not parse"
        opened = SessionFile.open(path)
        known = {entry.id for entry in opened.entries}
        assert known - {json.loads(last)["id"] if _parses(last) else None} == ids - {"s-1"}
        kinds = ["malformedLine"] * broken + ["tornLine"] * (last in torn)
        assert [one.kind for one in opened.problems] == kinds
        opened.file.close()
        acknowledged += len(said)
        assert names_in(folder) == ["s.jsonl"]
    say(f"{acknowledged} acknowledged, {len(torn)} torn")


def kill_rewrites(folder: str, rounds: str, seed: str) -> None:
    """Rewrite in a child that is killed, many times; the file is the old one or the new one every time."""
    chance = random.Random(int(seed))
    path = Path(folder) / "s.jsonl"
    entries = [{"type": "custom", "id": f"e{at}", "parentId": None, "data": "x" * 2_000} for at in range(400)]
    unknown = b'{"type":"future","id":"z1","parentId":null,"x":{"deep":[1,2.50]}}\nbroken\n'
    first = {**entries[0], "version": 0}
    lines = [{"type": "session", "version": 3, "id": "s-1", "cwd": "/w/p"}, first, *entries[1:]]
    path.write_bytes(b"".join(json.dumps(one).encode() + b"\n" for one in lines) + unknown)
    rest = path.read_bytes().split(b"\n")[2:]
    seen: set[int] = set()

    def work(acknowledge: Callable[[str], None]) -> None:
        file, (first, *_), _ = SessionFile.open(path)
        version: int = first.data["version"]
        while True:
            version += 1
            filling = "y" * (version % 7 * 1_000)
            file.rewrite({first.id: {**entries[0], "version": version, "filling": filling}})
            acknowledge(str(version))

    for _ in range(int(rounds)):
        said = _killed_at_work(work, chance.randrange(2), chance.random() * 0.006)
        header, first_line, *others = path.read_bytes().split(b"\n")
        assert json.loads(header)["id"] == "s-1"
        version = json.loads(first_line)["version"]
        assert version >= max(map(int, said), default=0), "an acknowledged rewrite is lost"
        assert others == rest, "something else has changed"
        assert [one.id for one in list_sessions(Path(folder))] == ["s-1"]
        seen.add(version)
        left = set(names_in(folder)) - {"s.jsonl"}
        assert all(name.startswith(".") and not name.endswith(".jsonl") for name in left), left
    file, (one, *_), _ = SessionFile.open(path)
    file.rewrite({one.id: one.data})
    file.close()
    assert set(names_in(folder)) <= {"s.jsonl", ".s.jsonl.lock"}, "a temporary file stays for ever"
    say(f"{len(seen)} versions")


# ---- side by side


def append_together(path: str, rounds: str, name: str) -> None:
    """Append on the newest entry, as another process of the same kind does at the same time."""
    file, entries, _ = SessionFile.open(path)
    tree = SessionTree(entries)
    say("ready")
    sys.stdin.readline()

    async def one(number: int) -> None:
        nonlocal file, tree
        async with file.lock():
            changes = file.poll()
            assert not changes.rewritten
            assert not changes.problems
            for entry in changes.appended:
                tree.append(entry)
            tree.append(file.append(message(tree.leaf_id, f"{name} {number}")))

    async def every() -> None:
        for number in range(int(rounds)):
            await one(number)

    asyncio.run(every())
    say("done")


def hold_lock(path: str) -> None:
    """Hold a session's lock until stdin ends."""

    async def hold() -> None:
        async with SessionFile.open(path).file.lock():
            say("held")
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(hold())


def in_a_strange_locale(path: str) -> None:
    """Read and write text of other scripts whatever the environment says."""
    text = "ü 你好 😀"
    file, entries, _ = SessionFile.open(path)
    assert entries[0].data["message"]["content"] == text
    entry = file.append(message(entries[-1].id, text))
    file.rewrite({entries[0].id: entries[0].data})
    assert entry.data["message"]["content"] == text
    assert [one.first_message for one in list_sessions(Path(path).parent)] == [text]
    file.close()


def measure_listing(folder: str) -> None:
    """Bytes of memory that a list of sessions takes, and bytes that are read when it is asked for again."""
    before = _most_memory()
    found = list_sessions(Path(folder))
    more = _most_memory() - before
    read = _bytes_read()
    list_sessions(Path(folder))
    say(json.dumps({"sessions": len(found), "memory": more, "read_again": _bytes_read() - read}))


def _bytes_read() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


def _most_memory() -> int:
    # Not getrusage: its figure begins with that of the process that started this one.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


UNPRIVILEGED = (
    write_where_it_is_forbidden,
    write_in_a_folder_that_may_not_be_written,
    list_what_may_not_be_read,
    begin_where_nothing_may_be_made,
    fill_disk,
)
OTHERS = (kill_appends, kill_rewrites, append_together, hold_lock, in_a_strange_locale, measure_listing)


def main() -> None:
    """Run the function named on the command line."""
    name, *arguments = sys.argv[1:]
    if name in [one.__name__ for one in UNPRIVILEGED]:
        drop_privileges()
    work: Callable[..., None] = {one.__name__: one for one in (*UNPRIVILEGED, *OTHERS)}[name]
    work(*arguments)


if __name__ == "__main__":
    main()
