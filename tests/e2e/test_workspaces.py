"""Folders, sessions, options: who is meant, what is current, and what holds for whom."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests import sessions
from tests.e2e.conftest import Disk, Home, RawServer, Serve, Start
from tests.e2e.office import Desk
from tests.e2e.raw import Json

shared = pytest.mark.asyncio(loop_scope="session")


async def opened(server: RawServer, session_id: str) -> None:
    await server.wait_for(
        lambda m: m.get("method") == "pi/session_opened" and m["params"]["sessionId"] == session_id
    )


# ---- what is current


async def test_the_newest_session_is_opened_unless_the_client_does_not_want_that(serve: Serve, home: Home):
    home.use()
    for age, session_id in enumerate(("newest", "older", "oldest")):
        lines = sessions.two_long_turns(120_000, cwd=str(home.folder), session_id=session_id)
        os.utime(home.add(lines, f"{session_id}.jsonl"), (1_000 - age, 1_000 - age))
    server = await serve()
    assert (await server.notification("pi/session_opened"))["sessionId"] == "newest"
    assert (await server.result("pi.sessionState"))["sessionId"] == "newest"
    server = await serve(autoOpen="none")
    assert (await server.error("pi.sessionState"))["data"] == {"kind": "NoSession"}
    [model] = (await server.result("pi.listModels", {"query": "fake/"}))["models"]
    assert model["id"] == "m200", "that needs no session"


async def test_a_session_begun_while_the_newest_is_being_opened_stays_current(
    serve: Serve, home: Home, disk: Disk
):
    file = home.add_long()
    disk.hold(file, after=1)  # it is listed, and then opened
    server = await serve()
    waiting = server.begin_command("pi.sessionState")
    await disk.until_asked(file)
    new = (await server.result("pi.newSession"))["sessionId"]
    disk.release(file)
    await opened(server, "s-1")
    assert (await server.answer(waiting))["result"]["sessionId"] == new, "it waited for a session"
    assert (await server.result("pi.sessionState"))["sessionId"] == new


@shared
async def test_opening_what_is_open_makes_it_current(desk: Desk):
    one = (await desk.open(sessions.fork_with_two_branches()))["sessionId"]
    lines = sessions.fork_with_two_branches(cwd=str(desk.folder), session_id=f"{one}-two")
    path = sessions.write(desk.file.with_name("two.jsonl"), lines)
    two = (await desk.run("pi.openSession", path=str(path)))["sessionId"]
    assert (await desk.run("pi.openSession", id=one))["sessionId"] == one
    assert (await desk.run("pi.sessionState"))["sessionId"] == one
    assert (await desk.run("pi.sessionState", sessionId=two))["sessionId"] == two
    assert [push["sessionId"] for push in desk.named("session_opened")] == [one, two, one]


@shared
async def test_a_session_opened_twice_at_once_is_one_session(desk: Desk):
    lines = sessions.fork_with_two_branches(cwd=str(desk.folder), session_id=desk.folder.name)
    sessions.write(desk.file, lines)
    requests = [desk.begin("pi.openSession", path=str(desk.file)) for _ in range(3)]
    for request in requests:
        assert (await desk.answer(request))["result"]["sessionId"] == desk.folder.name
    assert await desk.run("pi.closeSession") == {"closed": True}
    refusal = await desk.refusal("pi.sessionState", sessionId=desk.folder.name)
    assert refusal["data"]["kind"] == "SessionNotFound"


@shared
async def test_sessions_are_listed_found_and_limited(desk: Desk):
    elsewhere = desk.office.new_folder()
    places = {"two": desk.folder, "one": desk.folder, "other": elsewhere}
    for age, (name, folder) in enumerate(places.items()):
        lines = [
            sessions.header(str(folder), session_id=f"{desk.folder.name}-{name}"),
            sessions.user("u1", None, "hello"),
            sessions.entry("session_info", "i1", "u1", name=f"Name of {name}"),
        ]
        file = sessions.write(desk.office.home.sessions(folder) / f"{name}.jsonl", lines)
        os.utime(file, (1_000 - age, 1_000 - age))

    async def names(**arguments: Any) -> list[str]:
        rows = (await desk.run("pi.listSessions", **arguments))["sessions"]
        return [row.get("name", "") for row in rows]

    assert await names() == ["Name of two", "Name of one"]
    assert await names(limit=1) == ["Name of two"]
    assert await names(query="OF ONE") == ["Name of one"]
    assert "Name of other" in await names(all=True)
    other = f"{desk.folder.name}-other"
    assert (await desk.run("pi.openSession", id=other))["sessionId"] == other


# ---- folders


async def test_folders_come_and_go_with_their_sessions(serve: Serve, home: Home):
    home.add_long()
    other = home.add_folder("other")
    lines = sessions.two_long_turns(90_000, cwd=str(other), session_id="o-1")
    sessions.write(home.sessions(other) / "o.jsonl", lines)
    server = await serve()
    await opened(server, "s-1")
    folder = {"uri": other.as_uri(), "name": "other"}
    change: Json = {"added": [folder], "removed": []}
    server.notify("workspace/didChangeWorkspaceFolders", {"event": change})
    await opened(server, "o-1")
    change = {"added": [], "removed": [folder]}
    server.notify("workspace/didChangeWorkspaceFolders", {"event": change})
    assert (await server.notification("pi/session_closed"))["sessionId"] == "o-1"
    assert (await server.result("pi.sessionState"))["sessionId"] == "s-1"


@pytest.mark.parametrize("key", ["rootUri", "rootPath", None])
async def test_older_ways_to_name_the_folder_are_understood_and_without_any_nothing_is_trusted(
    start: Start, home: Home, key: str | None
):
    """Without a folder the process's own directory serves, which nobody can have vouched for."""
    home.add_long()
    roots = {"rootUri": home.folder.as_uri(), "rootPath": str(home.folder)}
    named: Json = {key: roots[key]} if key is not None else {}
    server = await start()
    await server.initialize(home.params(trusted=True), workspaceFolders=None, **named)
    state = await server.result("pi.sessionState")
    assert (state["sessionId"], state["cwd"]) == ("s-1", str(home.folder))
    assert state["trusted"] is (key is not None)


# ---- options and configuration


async def test_a_bad_option_is_told_and_its_default_used(serve: Serve, home: Home):
    home.add_long()
    agent_dir = home.agent_dir.rename(home.agent_dir.with_name("elsewhere"))
    options: Json = {"autoOpen": "yes", "trusted": 3, "tokenEstimatr": "chars", "agentDir": str(agent_dir)}
    server = await serve(**options)
    state = await server.result("pi.sessionState")
    assert (state["sessionId"], state["trusted"]) == ("s-1", False)
    keys = {push["key"] for push in server.named("pi/settings_problem")}
    assert keys == {"autoOpen", "trusted", "tokenEstimatr"}
    assert "window/showMessage" not in server.methods()


async def test_options_of_a_wrong_kind_are_told(start: Start, home: Home):
    server = await start()
    await server.initialize(home.params() | {"initializationOptions": ["x"]})
    problem = await server.notification("pi/settings_problem")
    assert problem["message"] == "initializationOptions must be an object"


async def test_settings_of_the_editor_reach_open_sessions_sent_or_asked_for(serve: Serve, home: Home):
    home.use()
    home.add_long()
    server = await serve(capabilities={"workspace": {"configuration": True}})
    assert (await server.result("pi.contextUsage"))["thresholdTokens"] == 183_616

    async def threshold(tokens: int) -> None:
        await server.wait_for(
            lambda m: m.get("method") == "pi/context_usage" and m["params"]["thresholdTokens"] == tokens
        )

    changed = "workspace/didChangeConfiguration"
    settings: Json = {"pi": {"compaction": {"reserveTokens": 50_000}}, "other": {}}
    server.notify(changed, {"settings": settings})
    await threshold(150_000)
    server.notify(changed, {"settings": {"pi": "odd"}})
    assert (await server.result("pi.contextUsage"))["thresholdTokens"] == 150_000
    server.notify(changed, {"settings": None})
    question = await server.wait_for(lambda m: m.get("method") == "workspace/configuration")
    assert question["params"] == {"items": [{"section": "pi"}]}
    server.send({"id": question["id"], "result": [{"compaction": {"reserveTokens": 60_000}}]})
    await threshold(140_000)
