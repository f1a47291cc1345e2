"""The commands: one table from a command's name to its arguments and its handler.

A handler finds the session, calls one verb of it and returns one value. What the verbs do is their business;
who is meant, progress around them, and what becomes current is told here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from pi_ls.core.errors import Busy, InvalidParams
from pi_ls.core.jsonvalues import Json
from pi_ls.server import protocol as wire
from pi_ls.server.progress import LOADING_DELAY_S, work_done
from pi_ls.server.protocol import Arguments, CommandName
from pi_ls.server.rpc import CommandCall, ProgressToken, Protocol
from pi_ls.server.workspaces import Folder, Opened, Workspaces

A = TypeVar("A", bound=Arguments)


class Caller(msgspec.Struct, frozen=True):
    """What a handler has at hand: the sessions, the connection, and the request's own progress token."""

    workspaces: Workspaces
    protocol: Protocol
    token: ProgressToken | None = None

    def folder(self, arguments: Arguments) -> Folder:
        """The folder a command means that needs no session."""
        if arguments.workspace is None and arguments.session_id is not None:
            return self.workspaces.by_id(arguments.session_id).folder
        return self.workspaces.folder(arguments.workspace)

    async def session(self, arguments: Arguments) -> Opened:
        """The session a command means."""
        return await self.workspaces.session(arguments.workspace, arguments.session_id)

    async def session_or_new(self, arguments: Arguments) -> Opened:
        """The session a command means; a new one where the folder has none."""
        return await self.workspaces.session_or_new(arguments.workspace, arguments.session_id)

    async def open(self, folder: Folder, path: Path) -> Opened:
        """Open a session and make it current, with progress where that takes long."""
        async with work_done(self.protocol, "Opening session", self.token, delay=LOADING_DELAY_S):
            return await self.workspaces.open(folder, path)


# --- sessions -------------------------------------------------------------------------------------


async def list_sessions(caller: Caller, arguments: wire.ListSessions) -> Json:
    """The sessions of a folder, or of every folder, newest first."""
    rows = await caller.workspaces.list_sessions(caller.folder(arguments), everywhere=arguments.all)
    if arguments.query:
        rows = [row for row in rows if _matches(row, arguments.query.casefold())]
    return {"sessions": rows[: arguments.limit]}


def _matches(row: Json, query: str) -> bool:
    texts = (row.get("name"), row.get("firstMessage"), row.get("id"), row.get("cwd"))
    return any(query in text.casefold() for text in texts if isinstance(text, str))


async def open_session(caller: Caller, arguments: wire.OpenSession) -> Json:
    """Open a session by its file or its id; one that is open only becomes current."""
    if (arguments.path is None) == (arguments.id is None):
        raise InvalidParams("pi.openSession needs either “path” or “id”", path="path")
    folder = caller.folder(arguments)
    if arguments.path is not None:
        path = _file(folder, arguments.path)
    else:
        path = await caller.workspaces.path_of(folder, arguments.id or "")
    return (await caller.open(folder, path)).session.state()


def _file(folder: Folder, given: str) -> Path:
    if not given or "\0" in given:
        raise InvalidParams("“path” is no path of a file", path="path")
    return folder.path / Path(given).expanduser()


async def new_session(caller: Caller, arguments: wire.NewSession) -> Json:
    """Begin a session; its file appears with its first message."""
    opened = await caller.workspaces.create(
        caller.folder(arguments), parent_session=arguments.parent_session, name=arguments.name
    )
    return opened.session.state()


async def close_session(caller: Caller, arguments: Arguments) -> Json:
    """Close a session that is doing nothing."""
    opened = await caller.session(arguments)
    if (operation := opened.session.operation) is not None:
        raise Busy(f"Wait for the {operation} that is running, or stop it first", operation=operation)
    await caller.workspaces.close_session(opened)
    return {"closed": True}


async def session_state(caller: Caller, arguments: Arguments) -> Json:
    """What a session is and what it is doing."""
    return (await caller.session(arguments)).session.state()


async def set_session_name(caller: Caller, arguments: wire.SetSessionName) -> Json:
    """Name a session."""
    return await (await caller.session(arguments)).session.set_name(arguments.name)


async def fork_session(caller: Caller, arguments: wire.ForkSession) -> Json:
    """Go on in a new file from before a user message, whose text is returned."""
    opened = await caller.session(arguments)
    path, text = await opened.session.fork(arguments.entry_id)
    return {"session": (await _follow(caller, opened, path)).session.state(), "text": text}


async def clone_session(caller: Caller, arguments: Arguments) -> Json:
    """Go on in a new file that holds the current path."""
    opened = await caller.session(arguments)
    path = await opened.session.clone()
    return {"session": (await _follow(caller, opened, path)).session.state()}


async def _follow(caller: Caller, origin: Opened, path: Path | None) -> Opened:
    """Open the session that came of another one; where there was nothing to take over, a new one."""
    if path is None:
        return await caller.workspaces.create(origin.folder, parent_session=str(origin.session.file.path))
    return await caller.open(origin.folder, path)


async def export_session(caller: Caller, arguments: wire.ExportSession) -> Json:
    """Write a session to a file for others to read."""
    opened = await caller.session(arguments)
    path = None if arguments.path is None else str(_file(opened.folder, arguments.path))
    return {"path": str(await opened.session.export(arguments.format, path))}


# --- looking --------------------------------------------------------------------------------------


async def session_stats(caller: Caller, arguments: Arguments) -> Json:
    """Counts and totals of the whole file."""
    return await (await caller.session(arguments)).session.stats()


async def get_entries(caller: Caller, arguments: wire.GetEntries) -> Json:
    """A page of the file's entries."""
    return await (await caller.session(arguments)).session.entries_page(arguments.since, arguments.limit)


async def get_messages(caller: Caller, arguments: wire.GetMessages) -> Json:
    """A page of the messages a model would get."""
    session = (await caller.session(arguments)).session
    return await session.messages_page(arguments.leaf_id, arguments.limit, arguments.cursor)


async def context_usage(caller: Caller, arguments: wire.ContextUsage) -> Json:
    """How full the context is."""
    return await (await caller.session(arguments)).session.context_usage(arguments.detail)


async def get_tree(caller: Caller, arguments: wire.GetTree) -> Json:
    """A page of the tree."""
    session = (await caller.session(arguments)).session
    return await session.tree_page(
        filter=arguments.filter,
        query=arguments.query,
        root_id=arguments.root_id,
        depth=arguments.depth,
        limit=arguments.limit,
        cursor=arguments.cursor,
    )


# --- compaction -----------------------------------------------------------------------------------


async def preview_compaction(caller: Caller, arguments: wire.PreviewCompaction) -> Json:
    """What a compaction would do."""
    session = (await caller.session(arguments)).session
    return await session.preview_compaction(arguments.custom_instructions, arguments.keep_recent_tokens)


async def compact(caller: Caller, arguments: wire.Compact) -> Json:
    """Compact a session by hand."""
    session = (await caller.session(arguments)).session
    async with work_done(caller.protocol, "Compacting session", caller.token) as progress:
        return await session.compact(arguments.custom_instructions, progress)


async def abort_compaction(caller: Caller, arguments: Arguments) -> Json:
    """Stop a compaction."""
    return {"aborted": await (await caller.session(arguments)).session.abort_compaction()}


async def undo_compaction(caller: Caller, arguments: Arguments) -> Json:
    """Go back to before the newest compaction."""
    return await (await caller.session(arguments)).session.undo_compaction()


async def set_auto_compaction(caller: Caller, arguments: wire.SetAutoCompaction) -> Json:
    """Turn automatic compaction on or off, for every session of the server."""
    opened = await caller.session(arguments)
    state = await opened.session.set_auto_compaction(arguments.enabled)
    for other in caller.workspaces.sessions_of(opened.environment):
        if other is not opened:
            await other.session.settings_changed()
    return state


# --- navigation -----------------------------------------------------------------------------------


async def navigate_tree(caller: Caller, arguments: wire.NavigateTree) -> Json:
    """Go to another entry; progress is shown where that means a summary."""
    session = (await caller.session(arguments)).session
    if not arguments.summarize:
        return await session.navigate_tree(arguments.target_id, label=arguments.label)
    async with work_done(caller.protocol, "Summarizing branch", caller.token) as progress:
        return await session.navigate_tree(
            arguments.target_id,
            summarize=True,
            custom_instructions=arguments.custom_instructions,
            replace_instructions=arguments.replace_instructions,
            label=arguments.label,
            progress=progress,
        )


async def abort_branch_summary(caller: Caller, arguments: Arguments) -> Json:
    """Stop a navigation that is summarizing."""
    return {"aborted": await (await caller.session(arguments)).session.abort_branch_summary()}


async def set_label(caller: Caller, arguments: wire.SetLabel) -> Json:
    """Name an entry."""
    return await (await caller.session(arguments)).session.set_label(arguments.entry_id, arguments.label)


async def abort(caller: Caller, arguments: Arguments) -> Json:
    """Stop whatever runs in a session; answered once it is idle."""
    return {"aborted": await (await caller.session(arguments)).session.abort()}


# --- the agent ----------------------------------------------------------------------------------------


async def prompt(caller: Caller, arguments: wire.Prompt) -> Json:
    """Say something to the agent; answered at once, the run is told in events."""
    agent = (await caller.session_or_new(arguments)).session.agent
    return {
        "disposition": await agent.prompt(arguments.text, _images(arguments), arguments.streaming_behavior)
    }


async def steer(caller: Caller, arguments: wire.Say) -> Json:
    """Say something that reaches the agent before its next request."""
    agent = (await caller.session(arguments)).session.agent
    return {"disposition": await agent.prompt(arguments.text, _images(arguments), "steer")}


async def follow_up(caller: Caller, arguments: wire.Say) -> Json:
    """Say something that reaches the agent when it would stop."""
    agent = (await caller.session(arguments)).session.agent
    return {"disposition": await agent.prompt(arguments.text, _images(arguments))}


def _images(arguments: wire.Say) -> list[Json]:
    return [msgspec.to_builtins(image) for image in arguments.images]


async def clear_queue(caller: Caller, arguments: Arguments) -> Json:
    """Forget what waits for the agent."""
    return (await caller.session(arguments)).session.agent.clear_queue()


async def go_on(caller: Caller, arguments: Arguments) -> Json:
    """Ask the model again without saying anything."""
    return {"disposition": await (await caller.session(arguments)).session.agent.go_on()}


async def bash(caller: Caller, arguments: wire.Bash) -> Json:
    """Run a command for the user."""
    agent = (await caller.session_or_new(arguments)).session.agent
    return await agent.bash(arguments.command, exclude_from_context=arguments.exclude_from_context)


async def abort_bash(caller: Caller, arguments: Arguments) -> Json:
    """Stop the user's command."""
    return {"aborted": await (await caller.session(arguments)).session.agent.abort_bash()}


async def answer_approval(caller: Caller, arguments: wire.AnswerApproval) -> Json:
    """Answer whether a tool may run."""
    approvals = (await caller.session(arguments)).session.agent.approvals
    return {"answered": approvals.answer(arguments.approval_id, arguments.decision)}


async def prune_tool_outputs(caller: Caller, arguments: wire.PruneToolOutputs) -> Json:
    """Blank old tool output, or say what that would come to."""
    return await (await caller.session(arguments)).session.prune_tool_outputs(dry_run=arguments.dry_run)


async def restore_pruned(caller: Caller, arguments: wire.RestorePruned) -> Json:
    """Put blanked tool output back."""
    return await (await caller.session(arguments)).session.restore_pruned(arguments.entry_ids)


# --- models and settings --------------------------------------------------------------------------


async def list_models(caller: Caller, arguments: wire.ListModels) -> Json:
    """The models that are known, and the one in use."""
    folder = caller.folder(arguments)
    environment = await caller.workspaces.environment(folder)
    models = await asyncio.to_thread(environment.list_models, arguments.query)
    current = folder.current.session.state().get("model") if folder.current is not None else None
    return {"models": models} | ({"current": current} if current else {})


async def set_model(caller: Caller, arguments: wire.SetModel) -> Json:
    """Use another model from here on."""
    return await (await caller.session(arguments)).session.set_model(arguments.provider, arguments.model_id)


async def set_thinking_level(caller: Caller, arguments: wire.SetThinkingLevel) -> Json:
    """Use another thinking level from here on."""
    return await (await caller.session(arguments)).session.set_thinking_level(arguments.level)


async def set_trust(caller: Caller, arguments: wire.SetTrust) -> Json:
    """Say whether the folder, as it is now, is trusted; the session's state, where there is a session."""
    folder = caller.folder(arguments)
    not_saved = await caller.workspaces.set_trust(folder, arguments.trusted)
    state = folder.current.session.state() if folder.current is not None else {"trusted": arguments.trusted}
    return state | ({"notSaved": not_saved} if not_saved else {})


async def reload_settings(caller: Caller, arguments: Arguments) -> Json:
    """Read the settings files, and the extensions, again; says what the settings come to."""
    folder = caller.folder(arguments)
    environment = await caller.workspaces.reload(folder)
    await caller.workspaces.reload_extensions(folder)
    problems = [
        {"file": problem.file, "key": problem.key, "message": problem.message}
        | ({} if problem.line is None else {"line": problem.line})
        for problem in environment.problems
    ]
    return {"settings": environment.settings.effective(), "problems": problems}


# --- the table ------------------------------------------------------------------------------------


class Command(NamedTuple):
    """What a command takes and what runs it."""

    arguments: type[Arguments]
    run: Callable[[Caller, Any], Awaitable[Json]]


COMMANDS: Final[dict[CommandName, Command]] = {
    CommandName.LIST_SESSIONS: Command(wire.ListSessions, list_sessions),
    CommandName.OPEN_SESSION: Command(wire.OpenSession, open_session),
    CommandName.NEW_SESSION: Command(wire.NewSession, new_session),
    CommandName.CLOSE_SESSION: Command(Arguments, close_session),
    CommandName.SESSION_STATE: Command(Arguments, session_state),
    CommandName.SET_SESSION_NAME: Command(wire.SetSessionName, set_session_name),
    CommandName.FORK_SESSION: Command(wire.ForkSession, fork_session),
    CommandName.CLONE_SESSION: Command(Arguments, clone_session),
    CommandName.SESSION_STATS: Command(Arguments, session_stats),
    CommandName.EXPORT_SESSION: Command(wire.ExportSession, export_session),
    CommandName.GET_ENTRIES: Command(wire.GetEntries, get_entries),
    CommandName.GET_MESSAGES: Command(wire.GetMessages, get_messages),
    CommandName.CONTEXT_USAGE: Command(wire.ContextUsage, context_usage),
    CommandName.PREVIEW_COMPACTION: Command(wire.PreviewCompaction, preview_compaction),
    CommandName.COMPACT: Command(wire.Compact, compact),
    CommandName.ABORT_COMPACTION: Command(Arguments, abort_compaction),
    CommandName.UNDO_COMPACTION: Command(Arguments, undo_compaction),
    CommandName.SET_AUTO_COMPACTION: Command(wire.SetAutoCompaction, set_auto_compaction),
    CommandName.GET_TREE: Command(wire.GetTree, get_tree),
    CommandName.NAVIGATE_TREE: Command(wire.NavigateTree, navigate_tree),
    CommandName.ABORT_BRANCH_SUMMARY: Command(Arguments, abort_branch_summary),
    CommandName.SET_LABEL: Command(wire.SetLabel, set_label),
    CommandName.PROMPT: Command(wire.Prompt, prompt),
    CommandName.STEER: Command(wire.Say, steer),
    CommandName.FOLLOW_UP: Command(wire.Say, follow_up),
    CommandName.CLEAR_QUEUE: Command(Arguments, clear_queue),
    CommandName.ABORT: Command(Arguments, abort),
    CommandName.CONTINUE: Command(Arguments, go_on),
    CommandName.BASH: Command(wire.Bash, bash),
    CommandName.ABORT_BASH: Command(Arguments, abort_bash),
    CommandName.ANSWER_APPROVAL: Command(wire.AnswerApproval, answer_approval),
    CommandName.PRUNE_TOOL_OUTPUTS: Command(wire.PruneToolOutputs, prune_tool_outputs),
    CommandName.RESTORE_PRUNED: Command(wire.RestorePruned, restore_pruned),
    CommandName.LIST_MODELS: Command(wire.ListModels, list_models),
    CommandName.SET_MODEL: Command(wire.SetModel, set_model),
    CommandName.SET_THINKING_LEVEL: Command(wire.SetThinkingLevel, set_thinking_level),
    CommandName.SET_TRUST: Command(wire.SetTrust, set_trust),
    CommandName.RELOAD_SETTINGS: Command(Arguments, reload_settings),
}


async def run_command(workspaces: Workspaces, protocol: Protocol, call: CommandCall) -> Json:
    """Run one command of the table. Raises PiError; cancelling the task stops the command."""
    try:
        command = COMMANDS[CommandName(call.command)]
    except (ValueError, KeyError):
        raise InvalidParams(f"There is no command {call.command}", path="command") from None
    arguments = wire.parse_arguments(call.command, call.arguments, command.arguments)
    return await command.run(Caller(workspaces, protocol, call.work_done_token), arguments)
