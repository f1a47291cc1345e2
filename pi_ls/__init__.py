"""pi sessions in an editor: compaction, branches and context usage, over LSP or as a library.

Importing this package does nothing; each name below is fetched when it is first used:

    from pi_ls import CompactionSettings, load_session, prepare_compaction

    session = load_session("session.jsonl")
    preparation = prepare_compaction(session.tree.path(), CompactionSettings())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pi_ls.core.branch import collect_entries_for_branch_summary, prepare_branch_entries
    from pi_ls.core.compaction import (
        CompactionPreparation,
        CompactionResult,
        CutPoint,
        Refusal,
        find_cut_point,
        prepare_compaction,
        should_compact,
    )
    from pi_ls.core.context import SessionContext, build_session_context, estimate_context_tokens
    from pi_ls.core.entries import Entry, Header
    from pi_ls.core.errors import PiError
    from pi_ls.core.messages import AssistantMessage, Message, ToolResultMessage, Usage, UserMessage
    from pi_ls.core.options import BranchSummarySettings, CompactionSettings, RetrySettings
    from pi_ls.core.tokens import TokenCounter, estimate_tokens
    from pi_ls.core.transcript import serialize_conversation
    from pi_ls.core.tree import SessionTree
    from pi_ls.hooks import HookContext, Signal, TreePreparation, hookimpl
    from pi_ls.llm import Completion, LitellmModel, Model, Request
    from pi_ls.models import ModelInfo
    from pi_ls.store import LoadedSession, load_session
    from pi_ls.summarize import (
        BranchSummaryResult,
        Extractive,
        GeneratedSummary,
        Summarizers,
        compact,
        convert_to_llm,
        generate_branch_summary,
        generate_summary,
        generate_summary_with_usage,
    )

__version__ = "0.1.0"

_HOME = {
    "core.branch": ("collect_entries_for_branch_summary", "prepare_branch_entries"),
    "core.compaction": (
        "CompactionPreparation",
        "CompactionResult",
        "CutPoint",
        "Refusal",
        "find_cut_point",
        "prepare_compaction",
        "should_compact",
    ),
    "core.context": ("SessionContext", "build_session_context", "estimate_context_tokens"),
    "core.entries": ("Entry", "Header"),
    "core.errors": ("PiError",),
    "core.messages": ("AssistantMessage", "Message", "ToolResultMessage", "Usage", "UserMessage"),
    "core.options": ("BranchSummarySettings", "CompactionSettings", "RetrySettings"),
    "core.tokens": ("TokenCounter", "estimate_tokens"),
    "core.transcript": ("serialize_conversation",),
    "core.tree": ("SessionTree",),
    "hooks": ("HookContext", "Signal", "TreePreparation", "hookimpl"),
    "llm": ("Completion", "LitellmModel", "Model", "Request"),
    "models": ("ModelInfo",),
    "store": ("LoadedSession", "load_session"),
    "summarize": (
        "BranchSummaryResult",
        "Extractive",
        "GeneratedSummary",
        "Summarizers",
        "compact",
        "convert_to_llm",
        "generate_branch_summary",
        "generate_summary",
        "generate_summary_with_usage",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AssistantMessage",
    "BranchSummaryResult",
    "BranchSummarySettings",
    "CompactionPreparation",
    "CompactionResult",
    "CompactionSettings",
    "Completion",
    "CutPoint",
    "Entry",
    "Extractive",
    "GeneratedSummary",
    "Header",
    "HookContext",
    "LitellmModel",
    "LoadedSession",
    "Message",
    "Model",
    "ModelInfo",
    "PiError",
    "Refusal",
    "Request",
    "RetrySettings",
    "SessionContext",
    "SessionTree",
    "Signal",
    "Summarizers",
    "TokenCounter",
    "ToolResultMessage",
    "TreePreparation",
    "Usage",
    "UserMessage",
    "__version__",
    "build_session_context",
    "collect_entries_for_branch_summary",
    "compact",
    "convert_to_llm",
    "estimate_context_tokens",
    "estimate_tokens",
    "find_cut_point",
    "generate_branch_summary",
    "generate_summary",
    "generate_summary_with_usage",
    "hookimpl",
    "load_session",
    "prepare_branch_entries",
    "prepare_compaction",
    "serialize_conversation",
    "should_compact",
]


if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
