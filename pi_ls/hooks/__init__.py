"""Hooks: how a person's Python takes part in what a session does.

    catalogue.py    every hook, its arguments and what it may return; `hookimpl`
    answers.py      what hooks return, checked: nothing of a wrong shape gets further
    loading.py      where extensions are found, and their signatures checked, once, off the event loop
    context.py      what a hook has at hand: its session, and the signal that its work is not wanted any more
    running.py      where extensions run: threads and loops of their own
    dispatch.py     calling them: before-hooks one after the other, after-hooks from a queue of their own

A *before* hook can stop or change what is about to happen; if it fails, what it stands before fails (nobody
can know what a broken guard would have said). An *after* hook is told what has happened; if it fails, that is
told, and nothing else comes of it. Source: seeds 000 and 002 for the hooks and what they may return, seed
001 for their place in each sequence.
"""

from pi_ls.hooks.answers import AfterCompacting, BeforeCompact, BeforeTree, CustomSummary
from pi_ls.hooks.catalogue import HOOKS, TreePreparation, hookimpl
from pi_ls.hooks.context import FolderHost, HookContext, Host, Signal
from pi_ls.hooks.dispatch import Hooks
from pi_ls.hooks.loading import Sources

__all__ = [
    "HOOKS",
    "AfterCompacting",
    "BeforeCompact",
    "BeforeTree",
    "CustomSummary",
    "FolderHost",
    "HookContext",
    "Hooks",
    "Host",
    "Signal",
    "Sources",
    "TreePreparation",
    "hookimpl",
]
