"""Sessions in an editor: a pytest-lsp client, a real server process, real session files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests import sessions
from tests.e2e.conftest import OFFLINE, Home, RecordingClient
from tests.provider import ProviderProcess, Reply


async def initialize(client: RecordingClient, home: Home, *, progress: bool = True, **options: Any) -> Any:
    params = home.params(**options)
    window = types.WindowClientCapabilities(work_done_progress=progress)
    return await client.initialize_session(
        types.InitializeParams(
            capabilities=types.ClientCapabilities(window=window),
            workspace_folders=[types.WorkspaceFolder(uri=home.folder.as_uri(), name="app")],
            initialization_options=params["initializationOptions"],
        )
    )


async def test_the_newest_session_opens_by_itself_and_tells_its_usage(lsp: RecordingClient, home: Home):
    home.add_long()
    result = await initialize(lsp, home)
    assert "pi.compact" in result.capabilities.execute_command_provider.commands
    state = await lsp.run("pi.sessionState")
    assert (state.sessionId, state.cwd, state.leafId) == ("s-1", str(home.folder), "a2")
    await lsp.run("pi.contextUsage")
    assert lsp.names()[0] == "session_opened"
    assert lsp.named("session_opened")[0].workspace == home.folder.as_uri()


async def test_compact_undo_and_navigate(lsp: RecordingClient, home: Home):
    file = home.add_long()
    await initialize(lsp, home, settings=OFFLINE)
    result = await lsp.run("pi.compact")
    assert result.firstKeptEntryId == "u2"
    assert sessions.types(sessions.read(file))[-1] == "compaction"
    names = lsp.names()
    assert names.index("compaction_start") < names.index("entry_appended") < names.index("compaction_end")
    [end] = lsp.named("compaction_end")
    assert (end.reason, end.aborted, end.willRetry) == ("manual", False, False)
    assert end.result.entryId == result.entryId
    with pytest.raises(JsonRpcException) as refusal:
        await lsp.run("pi.compact")
    assert (refusal.value.code, refusal.value.message) == (-32803, "Already compacted")
    assert names.count("compaction_start") == names.count("compaction_end")
    assert (await lsp.run("pi.undoCompaction")).leafId == "a2"
    move = await lsp.run("pi.navigateTree", targetId="u2")
    assert (move.cancelled, move.leafId) == (False, "a1")
    assert move.editorText.startswith("lorem")
    assert [moved.newLeafId for moved in lsp.named("session_tree")] == ["a2", "a1"]


async def test_progress_is_paired_around_a_compaction_and_around_its_failure(
    lsp: RecordingClient, home: Home
):
    home.add_long()
    await initialize(lsp, home, settings=OFFLINE)
    await lsp.run("pi.compact")
    with pytest.raises(JsonRpcException):
        await lsp.run("pi.compact")
    async with asyncio.timeout(5):
        while lsp.kinds().count("end") < 2:
            await asyncio.sleep(0.01)
    assert lsp.kinds().count("begin") == 2


async def test_a_compaction_that_waits_for_its_model_is_cancelled_at_once(
    lsp: RecordingClient, home: Home, provider: ProviderProcess
):
    provider.queue(Reply(hang=True), Reply(hang=True))
    file = home.add_long()
    before = file.read_bytes()
    await initialize(lsp, home)
    request = lsp.protocol.send_request_async(
        types.WORKSPACE_EXECUTE_COMMAND,
        types.ExecuteCommandParams(command="pi.compact"),
        msg_id="the-compaction",
    )
    compaction = asyncio.ensure_future(request)
    async with asyncio.timeout(60):
        while not provider.requests:
            await asyncio.sleep(0.05)
    assert (await lsp.run("pi.sessionState")).isCompacting is True
    lsp.cancel_request(types.CancelParams(id="the-compaction"))
    with pytest.raises(JsonRpcException) as cancelled:
        await asyncio.wait_for(compaction, 2)
    assert (cancelled.value.code, cancelled.value.message) == (-32800, "Compaction cancelled")
    [end] = lsp.named("compaction_end")
    assert end.aborted is True
    assert (await lsp.run("pi.sessionState")).isCompacting is False
    assert file.read_bytes() == before
    async with asyncio.timeout(5):
        while not provider.closed:
            await asyncio.sleep(0.05)


async def test_fork_clone_and_new_sessions_become_current(lsp: RecordingClient, home: Home):
    home.add_long()
    await initialize(lsp, home)
    fork = await lsp.run("pi.forkSession", entryId="u2")
    assert fork.session.leafId == "a1"
    assert fork.text.startswith("lorem")
    assert (await lsp.run("pi.sessionState")).sessionId == fork.session.sessionId
    assert (await lsp.run("pi.forkSession", entryId="u1")).session.leafId is None
    assert (await lsp.run("pi.openSession", id="s-1")).sessionId == "s-1"
    assert (await lsp.run("pi.cloneSession")).session.leafId == "a2"
    assert (await lsp.run("pi.newSession", name="new")).name == "new"
    assert len((await lsp.run("pi.listSessions")).sessions) == 3, "an empty session is no file yet"


async def test_a_broken_settings_file_is_told_and_does_not_stop_anything(lsp: RecordingClient, home: Home):
    (home.agent_dir / "settings.json").write_text('{"compaction": {"keepRecentTokens": 5000},}')
    home.add_long()
    await initialize(lsp, home)
    await lsp.run("pi.contextUsage")
    [problem] = lsp.named("settings_problem")
    assert problem.file == str(home.agent_dir / "settings.json")
    assert len((await lsp.run("pi.reloadSettings")).problems) == 1
