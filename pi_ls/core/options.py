"""The settings the core computes with, each default written once.

`settings.py` reads them from files and resolves them for a model; the core only sees the resolved values.
All token values are whole numbers of tokens, not negative.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class PruningSettings(msgspec.Struct, frozen=True, rename="camel"):
    """When old tool output is blanked (seed 000)."""

    enabled: bool = True
    protect_tokens: int = 40_000
    minimum_savings: int = 20_000
    min_tokens: int = 50
    protected_tools: tuple[str, ...] = ("skill", "read")


class CompactionSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What a compaction of one session, with one model, goes by."""

    enabled: bool = True
    reserve_tokens: int = 16_384
    keep_recent_tokens: int = 20_000
    auto_continue: bool | Literal["unfinished"] = True
    calibrate: bool = True
    short_summary: bool = False
    remote_endpoint: str | None = None
    models: tuple[str, ...] = ()
    pruning: PruningSettings = PruningSettings()


class BranchSummarySettings(msgspec.Struct, frozen=True, rename="camel"):
    """What a branch summary goes by."""

    enabled: bool = False
    reserve_tokens: int = 16_384
    skip_prompt: bool = False


class RetrySettings(msgspec.Struct, frozen=True, rename="camel"):
    """How transient failures of a provider are retried; times in milliseconds."""

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2_000
    max_agent_delay_ms: int = 60_000
    request_timeout_ms: int = 120_000
