from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pi_ls.core.context import build_session_context
from pi_ls.core.entries import Entry
from pi_ls.core.jsonvalues import Json
from pi_ls.core.options import PruningSettings
from pi_ls.core.pruning import PruningPlan, plan_pruning, plan_restoring
from pi_ls.core.tokens import TokenCounter
from tests.conformance_data import table
from tests.core.builders import compaction, edit, line, message, path

SEED_000 = PruningSettings(min_tokens=0)


def tool_result(id: str, parent: str | None, chars: int, tool: str = "bash", **fields: Any) -> Json:
    content = [{"type": "text", "text": "x" * chars}]
    return message(id, parent, "toolResult", content, toolCallId=f"call-{id}", toolName=tool, **fields)


def plan(*lines: Json, settings: PruningSettings = SEED_000) -> PruningPlan:
    return plan_pruning(build_session_context(path(*lines)).messages, settings, TokenCounter())


def pruned_ids(found: PruningPlan) -> list[str]:
    return [output.entry.id for output in found.outputs]


def recorded_line(at: int, item: Json) -> Json:
    parent = str(at - 1) if at else None
    if "role" in item:
        return message(str(at), parent, item["role"], [{"type": "text", "text": "x" * item["chars"]}])
    made = tool_result(str(at), parent, item["chars"], item["tool"], isError=item.get("isError", False))
    if item.get("image"):
        made["message"]["content"].append({"type": "image", "data": "AA==", "mimeType": "image/png"})
    return (
        made | {"message": made["message"] | {"prunedAt": item["prunedAt"]}} if "prunedAt" in item else made
    )


@pytest.mark.parametrize("row", table("prune-tool-outputs"), ids=lambda row: row["name"])
def test_what_is_blanked_is_what_was_recorded(row: Json) -> None:
    found = plan(*(recorded_line(at, item) for at, item in enumerate(row["items"])))
    texts = [
        {"index": int(entry_id), "text": new["message"]["content"][0]["text"]}
        for entry_id, new in found.replacements(1).items()
    ]
    assert (found.pruned_count, found.tokens_saved, texts) == (
        row["expected"]["prunedCount"],
        row["expected"]["tokensSaved"],
        row["expected"]["pruned"],
    )


def test_a_blanked_line_keeps_everything_but_the_content() -> None:
    old: Json = tool_result("1", None, 400_000, details={"exitCode": 3}, isError=True)
    old["unknown"] = [1]
    [(entry_id, new)] = plan(old, tool_result("2", "1", 160_000)).replacements(77).items()
    assert entry_id == "1"
    assert new["message"]["content"] == [{"type": "text", "text": "[Output truncated - 100000 tokens]"}]
    assert new["message"]["prunedAt"] == 77
    del new["message"]["prunedAt"]
    assert new | {"message": new["message"] | {"content": old["message"]["content"]}} == old
    assert old["message"]["content"][0]["text"].startswith("x")  # the line at hand is left alone


def test_a_second_run_changes_nothing() -> None:
    lines = [tool_result("1", None, 400_000), tool_result("2", "1", 160_000)]
    lines[0] = plan(*lines).replacements(5)["1"]
    assert plan(*lines) == PruningPlan()


def test_small_results_stay_unless_the_floor_is_zero() -> None:
    lines = [tool_result("1", None, 196), tool_result("2", "1", 400_000), tool_result("3", "2", 160_000)]
    assert pruned_ids(plan(*lines, settings=PruningSettings())) == ["2"]
    assert pruned_ids(plan(*lines)) == ["1", "2"]


def test_only_the_present_context_counts() -> None:
    lines = [
        tool_result("1", None, 400_000),
        tool_result("2", "1", 400_000),
        compaction("3", "2", "2"),
        tool_result("4", "3", 160_000),
    ]
    assert pruned_ids(plan(*lines)) == ["2"]


def test_a_result_that_an_edit_replaced_counts_as_it_is_shown() -> None:
    lines = [tool_result("1", None, 200_000), tool_result("2", "1", 160_000)]
    assert pruned_ids(plan(*lines)) == ["1"]
    assert pruned_ids(plan(*lines, edit("3", "2", "2", "short"))) == []


def test_a_result_that_an_edit_replaced_stays() -> None:
    lines = [tool_result("1", None, 8), edit("2", "1", "1", "x" * 400_000), tool_result("3", "2", 160_000)]
    assert pruned_ids(plan(*lines)) == []


def test_the_policy_keeps_reads_skills_and_the_newest_output() -> None:
    lines, last = [message("p0", None, "user", "start")], "p0"
    sizes = [("r0", "read", 400_000), ("s0", "skill", 400_000), ("b1", "bash", 400_000)]
    for id, tool, chars in [*sizes, *((f"q{n:02}", "bash", 20_000) for n in range(1, 13))]:
        lines.append(tool_result(id, last, chars, tool))
        last = id
    found = plan(*lines, settings=PruningSettings())
    assert "b1" in pruned_ids(found)
    assert not {"r0", "s0", "q09", "q10", "q11", "q12"} & set(pruned_ids(found))


def test_output_that_is_lone_surrogates_can_be_counted_and_blanked() -> None:
    lines = [tool_result("1", None, 0), tool_result("2", "1", 160_000)]
    lines[0]["message"]["content"] = [{"type": "text", "text": "\ud83d" * 400_000}]
    assert pruned_ids(plan(*lines)) == ["1"]


def test_restoring_gives_back_the_lines_that_were_put_away() -> None:
    lines = [tool_result("1", None, 200_000), tool_result("2", "1", 200_000), tool_result("3", "2", 160_000)]
    found = plan(*lines)
    archive = found.originals()
    now = [Entry.of(found.replacements(9).get(one["id"], one)) for one in lines]
    assert plan_restoring(now, archive) == {"1": lines[0], "2": lines[1]}
    assert plan_restoring(now, archive, ["2"]) == {"2": lines[1]}
    assert plan_restoring(path(*lines), archive) == {}


def test_restoring_takes_nothing_that_is_of_another_call() -> None:
    lines = [tool_result("1", None, 200_000), tool_result("2", "1", 160_000)]
    [entry] = [Entry.of(new) for new in plan(*lines).replacements(9).values()]
    other = lines[0] | {"message": lines[0]["message"] | {"toolCallId": "other"}}
    broken: list[Json] = [line("message", "1", None), {"id": 7}, line("message", "1", None, message=None)]
    assert plan_restoring([entry], [other, *broken]) == {}


def test_the_settings_decide() -> None:
    lines = [tool_result("1", None, 4_000, "grep"), tool_result("2", "1", 4_000)]
    low = PruningSettings(protect_tokens=1_000, minimum_savings=900)
    assert pruned_ids(plan(*lines, settings=low)) == ["1"]
    kept = msgspec.structs.replace(low, protected_tools=("grep",))
    assert pruned_ids(plan(*lines, settings=kept)) == []
