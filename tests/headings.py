"""The structure of a summary: what the prompts ask a model for, and what the offline one has."""

from __future__ import annotations

HEADINGS = (
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "### Done",
    "### In Progress",
    "### Blocked",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)
"""Every heading, in order. Source: pi's compaction prompt."""
