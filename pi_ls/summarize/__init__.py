"""From a preparation and something that can summarize to a summary: requests, retries, answers.

What is cut and what is kept was decided before (`core/compaction.py`, `core/branch.py`); how a model is
reached is `llm`'s. Here the conversation is put to a model in as many requests as it takes, an answer that is
no summary is refused, and what several requests gave is joined. Nothing is stored.

`verbs.py` has what others call; `candidates.py` who may be asked; `parts.py` what is asked; `run.py` does it.
Sources: seed 000 (prompts, remote endpoint, short summary), seed 002 (format, split turns, one-off requests).
"""

from __future__ import annotations

from pi_ls.summarize.candidates import Candidate, Extractive, Summarizers
from pi_ls.summarize.parts import convert_to_llm, output_limit
from pi_ls.summarize.verbs import (
    BranchSummaryResult,
    GeneratedSummary,
    compact,
    generate_branch_summary,
    generate_summary,
    generate_summary_with_usage,
    summary_prompts,
)

__all__ = [
    "BranchSummaryResult",
    "Candidate",
    "Extractive",
    "GeneratedSummary",
    "Summarizers",
    "compact",
    "convert_to_llm",
    "generate_branch_summary",
    "generate_summary",
    "generate_summary_with_usage",
    "output_limit",
    "summary_prompts",
]
