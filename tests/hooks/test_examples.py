"""The two worked examples of the README, as they stand there."""

from __future__ import annotations

import pytest

from pi_ls.core.errors import Cancelled
from tests.hooks.conftest import Bench
from tests.test_readme import blocks

SUMMARIZER, GUARD = (block for block in blocks("py") if "hookimpl" in block)


async def test_the_summarizer_makes_the_summary(bench: Bench):
    file = bench.extension("")
    file.write_text(SUMMARIZER)
    session = await bench.open()
    result = await session.compact("MIND THE GAP")
    assert result["summary"].startswith("## What was asked\n[User]: MARK-OLD lorem ip")
    assert result["summary"].endswith("MIND THE GAP")
    assert (result["details"], result["fromExtension"]) == ({"questions": 1}, True)
    assert bench.failures() == []


async def test_the_guard_stands_in_the_way_only_while_a_merge_is_under_way(bench: Bench):
    file = bench.extension("")
    file.write_text(GUARD)
    session = await bench.open()
    merge = bench.folder / ".git" / "MERGE_HEAD"
    merge.parent.mkdir()
    merge.touch()
    with pytest.raises(Cancelled):
        await session.compact()
    assert (await session.navigate_tree("a1"))["cancelled"] is True
    merge.unlink()
    assert (await session.navigate_tree("a1"))["cancelled"] is False
    await session.navigate_tree("a2")
    await session.compact()
    assert bench.failures() == []
