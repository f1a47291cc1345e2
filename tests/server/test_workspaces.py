"""Folders, sessions, settings: who is meant and what holds for whom."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.raw import RawClient
from tests.server.conftest import Place


async def opened(client: RawClient, session_id: str) -> None:
    await client.wait_for(
        lambda m: m.get("method") == "pi/session_opened" and m["params"]["sessionId"] == session_id
    )


async def test_the_newest_session_is_opened_in_the_background(client: RawClient, place: Place):
    place.add_session("old")
    place.add_session("new")
    await client.initialize(place.params())
    assert (await client.notification("pi/session_opened"))["sessionId"] == "new"
    assert (await client.notification("pi/session_opened"))["workspace"] == place.folder


async def test_nothing_is_opened_where_the_client_does_not_want_it(client: RawClient, place: Place):
    place.add_session("one")
    await client.initialize(place.params(autoOpen="none"))
    assert (await client.error("pi.sessionState"))["data"]["kind"] == "NoSession"


async def test_a_command_waits_for_the_session_that_is_being_opened(client: RawClient, place: Place):
    place.add_session("slow")
    await client.initialize(place.params())
    assert (await client.result("pi.sessionState"))["sessionId"] == "slow"


async def test_a_session_begun_meanwhile_stays_current(client: RawClient, place: Place):
    place.add_session("slow")
    await client.initialize(place.params())
    while place.journal() != ["opening slow"]:
        await asyncio.sleep(0.01)
    assert (await client.result("pi.newSession", {"name": "n"}))["sessionId"] == "new"
    await opened(client, "slow")
    assert (await client.result("pi.sessionState"))["sessionId"] == "new"


async def test_opening_what_is_open_makes_it_current(ready: RawClient, place: Place):
    path = place.add_session("two")
    assert (await ready.result("pi.openSession", {"path": str(path)}))["sessionId"] == "two"
    assert (await ready.result("pi.openSession", {"id": "one"}))["sessionId"] == "one"
    assert (await ready.result("pi.sessionState"))["sessionId"] == "one"
    assert (await ready.result("pi.sessionState", {"sessionId": "two"}))["sessionId"] == "two"
    assert place.journal() == ["open one", "open two"]
    assert [push["sessionId"] for push in ready.named("pi/session_opened")] == ["one", "two", "one"]


async def test_a_session_opened_twice_at_once_is_one_session(client: RawClient, place: Place):
    place.add_session("slow")
    await client.initialize(place.params(autoOpen="none"))
    requests = [client.begin_command("pi.openSession", {"id": "slow"}) for _ in range(3)]
    for request in requests:
        assert (await client.answer(request))["result"]["sessionId"] == "slow"
    assert place.journal() == ["opening slow", "open slow"]


@pytest.mark.parametrize("given", ["../../../outside", "..\\x", "a/b", "", ".", "x\0y", "x" * 300, "-rf"])
async def test_an_id_is_only_ever_compared(ready: RawClient, place: Place, given: str):
    (place.root / "outside.jsonl").touch()
    assert (await ready.error("pi.openSession", {"id": given}))["data"]["kind"] == "SessionNotFound"


async def test_fork_and_clone_make_theirs_current(ready: RawClient):
    fork = await ready.result("pi.forkSession", {"entryId": "e"})
    assert (fork["session"]["sessionId"], fork["text"]) == ("forked", "text")
    assert (await ready.result("pi.sessionState"))["sessionId"] == "forked"
    assert (await ready.result("pi.cloneSession"))["session"]["sessionId"] == "cloned"
    assert (await ready.result("pi.forkSession", {"entryId": "first"}))["session"]["sessionId"] == "new"


async def test_sessions_are_listed_found_and_limited(ready: RawClient, place: Place):
    place.add_folder("other")
    place.add_session("two")
    place.add_session("three", folder="other")

    async def ids(**arguments: object) -> list[str]:
        return [row["id"] for row in (await ready.result("pi.listSessions", arguments))["sessions"]]

    assert await ids() == ["two", "one"]
    assert await ids(limit=1) == ["two"]
    assert await ids(query="OF ONE") == ["one"]
    assert await ids(all=True) == ["three", "two", "one"]
    assert (await ready.result("pi.openSession", {"id": "three"}))["sessionId"] == "three"


async def test_with_several_folders_the_folder_must_be_named(client: RawClient, place: Place):
    other = place.add_folder("other")
    place.add_session("one")
    place.add_session("two", folder="other")
    await client.initialize(place.params(place.folder, other))
    error = await client.error("pi.sessionState")
    assert (error["code"], error["data"]) == (-32602, {"kind": "InvalidParams", "path": "workspace"})
    assert (await client.result("pi.sessionState", {"workspace": other}))["sessionId"] == "two"
    assert (await client.result("pi.sessionState", {"workspace": other + "/"}))["sessionId"] == "two"
    assert (await client.result("pi.sessionState", {"sessionId": "two"}))["sessionId"] == "two"
    assert (await client.error("pi.sessionState", {"workspace": "file:///no"}))["data"]["path"] == "workspace"
    assert (await client.error("pi.sessionState", {"sessionId": "no"}))["data"]["kind"] == "SessionNotFound"


async def test_folders_come_and_go_with_their_sessions(ready: RawClient, place: Place):
    other = place.add_folder("other")
    place.add_session("two", folder="other")
    event = {"added": [{"uri": other, "name": "o"}], "removed": []}
    ready.notify("workspace/didChangeWorkspaceFolders", {"event": event})
    await opened(ready, "two")
    event = {"added": [], "removed": [{"uri": other, "name": "o"}]}
    ready.notify("workspace/didChangeWorkspaceFolders", {"event": event})
    assert (await ready.notification("pi/session_closed"))["sessionId"] == "two"
    assert (await ready.result("pi.sessionState"))["sessionId"] == "one"
    assert place.journal() == ["open one", "open two", "close two"]


async def test_without_a_folder_the_process_directory_serves_and_is_not_trusted(
    client: RawClient, place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(place.root / "app")
    params = place.params(trusted=True) | {"workspaceFolders": None}
    await client.initialize(params)
    assert (await client.result("pi.reloadSettings"))["settings"]["trusted"] is False


@pytest.mark.parametrize("key", ["rootUri", "rootPath"])
async def test_older_ways_to_name_the_folder_are_understood(client: RawClient, place: Place, key: str):
    root = place.folder if key == "rootUri" else str(place.root / "app")
    await client.initialize(place.params(trusted=True) | {"workspaceFolders": None, key: root})
    place.add_session("one")
    assert (await client.result("pi.openSession", {"id": "one"}))["sessionId"] == "one"
    assert (await client.result("pi.reloadSettings"))["settings"]["trusted"] is True


async def test_a_bad_option_is_told_and_its_default_used(client: RawClient, place: Place):
    place.add_session("one")
    await client.initialize(place.params(autoOpen="yes", trusted=3, tokenEstimatr="chars"))
    assert (await client.result("pi.sessionState"))["sessionId"] == "one"
    keys = {push["key"] for push in client.named("pi/settings_problem")}
    assert keys == {"autoOpen", "trusted", "tokenEstimatr"}
    assert "window/showMessage" not in client.methods()


async def test_options_of_a_wrong_kind_are_told(client: RawClient, place: Place):
    await client.initialize(place.params(autoOpen="none") | {"initializationOptions": ["x"]})
    assert (await client.notification("pi/settings_problem"))[
        "message"
    ] == "initializationOptions must be an object"


async def test_settings_of_the_editor_reach_open_sessions(ready: RawClient):
    ready.notify("workspace/didChangeConfiguration", {"settings": {"pi": {"a": 1}, "other": {}}})
    assert (await ready.result("pi.reloadSettings"))["settings"]["editor"] == {"a": 1}
    assert (await ready.result("pi.sessionState"))["seen"] == 2
    ready.notify("workspace/didChangeConfiguration", {"settings": None})
    ready.notify("workspace/didChangeConfiguration", {"settings": {"pi": "odd"}})
    assert (await ready.result("pi.reloadSettings"))["settings"]["editor"] == {"a": 1}


async def test_an_editor_that_only_says_that_something_changed_is_asked(client: RawClient, place: Place):
    await client.initialize(place.params() | {"capabilities": {"workspace": {"configuration": True}}})
    client.notify("workspace/didChangeConfiguration", {"settings": None})
    question = await client.wait_for(lambda m: m.get("method") == "workspace/configuration")
    assert question["params"] == {"items": [{"section": "pi"}]}
    client.send({"id": question["id"], "result": [{"b": 2}]})
    while (await client.result("pi.reloadSettings"))["settings"]["editor"] != {"b": 2}:
        pass


async def test_a_changed_settings_file_holds_for_the_next_command(ready: RawClient, place: Place):
    place.write_settings("broken")
    assert (await ready.result("pi.sessionState"))["seen"] == 1
    push = await ready.notification("pi/settings_problem")
    assert (push["file"], push["line"]) == (str(place.agent_dir / "settings.json"), 1)
    answer = await ready.result("pi.reloadSettings")
    assert answer["problems"] == [{k: push[k] for k in ("file", "key", "message", "line")}]
    assert len(ready.named("pi/settings_problem")) == 1, "told once"


async def test_a_changed_settings_file_is_noticed_without_a_command(ready: RawClient, place: Place):
    place.write_settings("broken")
    assert (await ready.notification("pi/settings_problem"))["key"] == ""


async def test_models_are_listed_without_a_session(client: RawClient, place: Place):
    await client.initialize(place.params())
    assert (await client.result("pi.listModels", {"query": "q"}))["models"][0]["id"] == "q"
