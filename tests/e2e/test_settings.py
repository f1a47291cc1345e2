"""Settings as a person meets them: broken files, layers, wrong values, and where a conversation is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import sessions
from tests.e2e.conftest import NOBODY, OFFLINE, Home, RawServer, Serve
from tests.e2e.raw import Json
from tests.provider import Provider, ProviderProcess, Reply, error

BROKEN: dict[str, bytes] = {
    "a comma too many": b'{"compaction":{"keepRecentTokens":5000},}',
    "empty": b"",
    "an array": b"[]",
    "a text": b'"x"',
    "UTF-16": '{"compaction":{}}'.encode("utf-16"),
}


def project_file(home: Home) -> Path:
    file = home.folder / ".pi" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    return file


def told(server: RawServer, file: Path | str) -> list[Json]:
    return [one for one in server.named("pi/settings_problem") if one["file"] == str(file)]


# ---- files that cannot be used


@pytest.mark.parametrize("whose", ["user", "project"])
async def test_a_file_that_cannot_be_used_is_told_and_left_alone_and_the_switch_holds_for_the_run(
    serve: Serve, home: Home, whose: str
):
    home.use()
    home.add_long()
    users = home.agent_dir / "settings.json"
    file, other = (users, project_file(home)) if whose == "user" else (project_file(home), users)
    file.write_bytes(BROKEN["a comma too many"])
    other.write_text('{"compaction":{"reserveTokens":77}}')
    server = await serve(trusted=True)
    await server.result("pi.sessionState")
    [problem] = told(server, file)
    assert (problem["key"], problem["line"]) == ("", 1)
    assert str(file) in problem["message"]
    for name, content in BROKEN.items():
        file.write_bytes(content)
        [known] = (await server.result("pi.reloadSettings"))["problems"]
        assert known["file"] == str(file), name
        preview = (await server.result("pi.previewCompaction"))["settings"]
        assert (preview["reserveTokens"], preview["keepRecentTokens"]) == (77, 20_000), name
        for enabled in (False, True):
            switched = await server.result("pi.setAutoCompaction", {"enabled": enabled})
            assert switched["autoCompactionEnabled"] is enabled, name
            assert (str(file) in switched.get("notSaved", "")) == (whose == "user"), name
        assert file.read_bytes() == content, name
    await server.result("pi.setAutoCompaction", {"enabled": False})
    assert (await server.result("pi.contextUsage"))["autoCompactionEnabled"] is False
    messages = [one["message"] for one in told(server, file)]
    assert len(set(messages)) == len(messages), "each is told once"
    await server.shutdown()
    assert await server.code() == 0
    assert file.read_bytes() == BROKEN["UTF-16"]
    saved = json.loads(users.read_bytes())["compaction"] if whose == "project" else None
    assert saved == (None if whose == "user" else {"reserveTokens": 77, "enabled": False})


async def test_a_folder_in_the_place_of_the_file_and_one_that_may_not_be_read_are_left_alone(
    serve: Serve, home: Home
):
    home.add_long()
    file = home.agent_dir / "settings.json"
    file.mkdir()
    server = await serve(obeying=True)
    await server.result("pi.sessionState")
    assert len(told(server, file)) == 1
    switched = await server.result("pi.setAutoCompaction", {"enabled": False})
    assert (switched["autoCompactionEnabled"], str(file) in switched["notSaved"]) == (False, True)
    assert file.is_dir()
    file.rmdir()
    content = b'{"compaction":{"reserveTokens":1}}'
    file.write_bytes(content)
    file.chmod(0)
    reloaded = await server.result("pi.reloadSettings")
    assert [problem["file"] for problem in reloaded["problems"]] == [str(file)]
    assert "reserveTokens" not in json.dumps(reloaded["problems"])
    switched = await server.result("pi.setAutoCompaction", {"enabled": True})
    assert (switched["autoCompactionEnabled"], str(file) in switched["notSaved"]) == (True, True)
    file.chmod(0o600)
    assert file.read_bytes() == content


async def test_other_files_of_the_user_that_are_broken_are_told_too(serve: Serve, home: Home):
    home.add_long()
    models, keys = home.agent_dir / "models.json", home.agent_dir / "auth.json"
    models.write_text('{"providers": {\n  "fake": }')
    keys.write_text("[sk-secret")
    server = await serve()
    await server.result("pi.sessionState")
    assert [(one["line"], str(models) in one["message"]) for one in told(server, models)] == [(2, True)]
    assert len(told(server, keys)) == 1
    assert {one["file"] for one in (await server.result("pi.reloadSettings"))["problems"]} == {
        str(models),
        str(keys),
    }
    assert len(told(server, models)) == 1, "told once"
    broken = models.read_text()
    models.write_text("{}")
    await server.result("pi.reloadSettings")
    models.write_text(broken)
    await server.result("pi.reloadSettings")
    assert len(told(server, models)) == 2, "mended, and broken again"
    assert len(told(server, keys)) == 1
    assert "sk-secret" not in json.dumps(server.messages)


async def test_a_window_written_into_the_models_file_is_used_at_once(serve: Serve, home: Home):
    home.add_long()
    server = await serve()
    assert await server.result("pi.contextUsage") == {}
    problem = await server.notification("pi/session_problem")
    assert problem["kind"] == "windowUnknown"
    assert str(home.agent_dir / "models.json") in problem["message"]
    home.use()
    usage = await server.wait_for(
        lambda m: m.get("method") == "pi/context_usage" and "contextWindow" in m["params"]
    )
    assert (usage["params"]["contextWindow"], usage["params"]["percent"]) == (200_000, 60)
    home.use(m200={"contextWindow": 240_000})
    assert (await server.result("pi.contextUsage"))["percent"] == 50


# ---- layers


async def test_files_are_merged_at_every_depth_and_what_is_given_counts(serve: Serve, home: Home):
    home.use()
    home.add_long()
    home.configure(
        {
            "compaction": {
                "enabled": True,
                "reserveTokens": 30_000,
                "keepRecentTokens": 9_000,
                "modelOverrides": {"fake/m200": {"reserveTokens": 1}, "fake/b": {"reserveTokens": 2}},
            },
            "branchSummary": {"enabled": True},
            "list": [1, 2, 3],
        }
    )
    project = project_file(home)
    project.write_text(
        json.dumps(
            {
                "compaction": {
                    "keepRecentTokens": 7_000,
                    "modelOverrides": {"fake/b": {"keepRecentTokens": 5}},
                },
                "list": [9],
            }
        )
    )
    server = await serve(trusted=True)

    async def values() -> tuple[int, int, int]:
        known = (await server.result("pi.previewCompaction"))["settings"]
        usage = await server.result("pi.contextUsage")
        return known["reserveTokens"], known["keepRecentTokens"], usage["thresholdTokens"]

    assert await values() == (1, 7_000, 199_999)
    merged = (await server.result("pi.reloadSettings"))["settings"]
    assert merged["list"] == [9]
    assert merged["compaction"]["enabled"] is True
    assert merged["compaction"]["modelOverrides"] == {
        "fake/m200": {"reserveTokens": 1},
        "fake/b": {"reserveTokens": 2, "keepRecentTokens": 5},
    }

    nothing = {"enabled": False, "reserveTokens": 0, "keepRecentTokens": 0, "autoContinue": False}
    given = {"compaction": {**nothing, "modelOverrides": {"fake/m200": {"reserveTokens": 0}}}}
    project.write_text(json.dumps({**given, "branchSummary": {"enabled": False}}))
    assert await values() == (0, 0, 200_000)
    merged = (await server.result("pi.reloadSettings"))["settings"]
    assert nothing.items() <= merged["compaction"].items()
    assert merged["branchSummary"]["enabled"] is False
    assert (await server.result("pi.sessionState"))["autoCompactionEnabled"] is False


async def test_a_project_that_is_not_trusted_sets_nothing(serve: Serve, home: Home):
    home.use()
    home.add_long()
    project_file(home).write_text('{"compaction":{"reserveTokens":5}}')
    server = await serve()
    assert (await server.result("pi.previewCompaction"))["settings"]["reserveTokens"] == 16_384
    assert (await server.result("pi.sessionState"))["trusted"] is False


async def test_a_change_of_a_file_reaches_an_idle_session_without_a_command(serve: Serve, home: Home):
    home.use()
    home.add_long()
    server = await serve()
    assert (await server.result("pi.contextUsage"))["thresholdTokens"] == 183_616
    home.configure({"compaction": {"reserveTokens": 50_000}})
    await server.wait_for(
        lambda m: m.get("method") == "pi/context_usage" and m["params"]["thresholdTokens"] == 150_000
    )


async def test_the_switch_is_saved_and_holds_for_every_folder(serve: Serve, home: Home):
    home.use()
    other = home.add_folder("other")
    home.add_long()
    lines = sessions.two_long_turns(90_000, cwd=str(other), session_id="o-1")
    sessions.write(home.sessions(other) / "o.jsonl", lines)
    file = home.agent_dir / "settings.json"
    file.write_text('{"z": 1,\n "compaction": {"keepRecentTokens": 5000}, "a": "é"}')
    server = await serve(home.folder, other)
    here, there = ({"workspace": folder.as_uri()} for folder in (home.folder, other))
    for place in (here, there):
        assert (await server.result("pi.contextUsage", place))["autoCompactionEnabled"] is True
    switched = await server.result("pi.setAutoCompaction", {**here, "enabled": False})
    assert "notSaved" not in switched
    assert (await server.result("pi.sessionState", there))["autoCompactionEnabled"] is False
    for session_id in ("s-1", "o-1"):
        await server.wait_for(
            lambda m, wanted=session_id: (
                m.get("method") == "pi/context_usage"
                and m["params"]["sessionId"] == wanted
                and m["params"]["autoCompactionEnabled"] is False
            )
        )
    saved = json.loads(file.read_bytes())
    assert list(saved) == ["z", "compaction", "a"]
    assert saved["compaction"] == {"keepRecentTokens": 5000, "enabled": False}
    await server.shutdown()
    again = await serve()
    assert (await again.result("pi.sessionState"))["autoCompactionEnabled"] is False


# ---- wrong values


async def test_a_wrong_value_fails_what_needs_it_and_nothing_else(serve: Serve, home: Home):
    """The plain value fails even where the model has a good one of its own."""
    home.use()
    file = home.add_long()
    before = file.read_bytes()
    settings = home.agent_dir / "settings.json"
    server = await serve()
    await server.result("pi.sessionState")
    for value in ("-1", "1.5", '"400000"', "null", "1e400", "9007199254740992"):
        settings.write_text(
            '{"compaction": {"models": ["offline/extractive"], "reserveTokens": ' + value + ","
            ' "modelOverrides": {"fake/m200": {"reserveTokens": 9}, "fake/other": {"reserveTokens": "x"}}}}'
        )
        usage = await server.result("pi.contextUsage")
        assert (usage["tokens"], usage["autoCompactionPaused"]) == (120_000, True), value
        assert "thresholdTokens" not in usage, value
        assert told(server, settings)[-1]["key"] == "compaction.reserveTokens"
        assert value in told(server, settings)[-1]["message"] or value == "1e400"
        refusal = await server.error("pi.compact")
        wanted = {"kind": "InvalidSettings", "file": str(settings), "key": "compaction.reserveTokens"}
        assert refusal["data"] == wanted, value
        assert (await server.error("pi.previewCompaction"))["data"] == wanted, value
        assert file.read_bytes() == before, value
    assert len(told(server, settings)) == 6
    starts, ends = (len(server.named(f"pi/compaction_{event}")) for event in ("start", "end"))
    assert starts == ends <= 6
    for command in ("pi.getTree", "pi.sessionStats", "pi.getMessages", "pi.reloadSettings"):
        await server.result(command)
    await server.result("pi.setLabel", {"entryId": "u1", "label": "x"})
    assert sessions.types(sessions.read(file))[5:] == ["label"]
    home.configure(OFFLINE)
    assert (await server.result("pi.compact"))["firstKeptEntryId"] == "u2"


async def test_a_branch_summary_fails_by_its_own_wrong_setting(serve: Serve, home: Home):
    file = home.add(sessions.fork_with_two_branches(cwd=str(home.folder)))
    before = file.read_bytes()
    settings = home.configure({**OFFLINE, "branchSummary": {"reserveTokens": -5}})
    server = await serve()
    refusal = await server.error("pi.navigateTree", {"targetId": "Ff", "summarize": True})
    assert refusal["data"] == {
        "kind": "InvalidSettings",
        "file": str(settings),
        "key": "branchSummary.reserveTokens",
    }
    assert (await server.result("pi.sessionState"))["leafId"] == "Dd"
    assert file.read_bytes() == before
    moved = await server.result("pi.navigateTree", {"targetId": "Ff"})
    assert moved["leafId"] == "Ff", "a plain move needs no setting"


async def test_a_change_during_a_compaction_waits_for_its_end(serve: Serve, home: Home):
    """A split turn makes two requests: the second goes where the first went."""
    home.add(
        [
            sessions.header(cwd=str(home.folder)),
            sessions.user("u1", None, sessions.filler(100_000)),
            sessions.assistant("a1", "u1", "x", total=30_000),
            sessions.user("u2", "a1", sessions.filler(100_000)),
            sessions.assistant("a2", "u2", sessions.filler(60_000), total=90_000),
        ]
    )
    home.use()
    async with Provider() as provider:
        provider.script = [Reply(text="first"), Reply(text="second")]
        provider.hold()
        home.configure({"compaction": {"keepRecentTokens": 10_000, "remoteEndpoint": provider.summary}})
        server = await serve()
        running = server.begin_command("pi.compact")
        await provider.until(lambda p: len(p.requests) == 1, seconds=30)
        home.configure({"compaction": {"remoteEndpoint": NOBODY, "keepRecentTokens": 1}})
        merged = (await server.result("pi.reloadSettings"))["settings"]
        assert merged["compaction"]["remoteEndpoint"] == NOBODY
        assert (await server.result("pi.sessionState"))["isCompacting"] is True
        provider.release()
        result = (await server.answer(running, 30))["result"]
        assert len(provider.requests) == 2
    history, _, prefix = result["summary"].partition("**Turn Context (split turn):**")
    assert ("first" in history, "second" in prefix) == (True, True)
    assert result["firstKeptEntryId"] == "a2"
    await server.result("pi.undoCompaction")
    refusal = await server.error("pi.compact")
    assert refusal["data"]["kind"] == "ProviderError", "now the change holds"


# ---- where a conversation is sent


async def test_a_repository_cannot_say_where_the_conversation_goes(
    serve: Serve, home: Home, provider: ProviderProcess
):
    home.add_long()
    home.configure(OFFLINE)
    project_file(home).write_text(json.dumps({"compaction": {"remoteEndpoint": provider.summary}}))

    async def compacted_by(server: RawServer) -> str | None:
        result = await server.result("pi.compact")
        await server.result("pi.undoCompaction")
        await server.shutdown()
        return result["details"].get("generator")

    server = await serve()
    editor = {"pi": {"compaction": {"remoteEndpoint": provider.summary}}}
    server.notify("workspace/didChangeConfiguration", {"settings": editor})
    problem = await server.wait_for(
        lambda m: (
            m.get("method") == "pi/settings_problem" and m["params"]["key"] == "compaction.remoteEndpoint"
        )
    )
    assert "not trusted" in problem["params"]["message"]
    assert await compacted_by(server) == "offline/extractive"
    assert provider.requests == []

    assert await compacted_by(await serve(trusted=True)) is None
    project_file(home).unlink()
    home.configure({"compaction": {"remoteEndpoint": provider.summary}})
    assert await compacted_by(await serve()) is None
    assert [request.path for request in provider.requests] == ["/summary", "/summary"]


async def test_a_summary_endpoint_is_not_believed_and_learns_no_key(
    serve: Serve, home: Home, provider: ProviderProcess
):
    file = home.add_long()
    home.configure({"compaction": {"remoteEndpoint": provider.summary}})
    before = file.read_bytes()
    wrong: list[Any] = [
        error(500),
        Reply(body="<html>S</html>"),
        Reply(body={}),
        Reply(body={"summary": ""}),
        Reply(body={"summary": 5}),
        Reply(status=302, headers={"location": f"{provider.openai}/chat/completions"}, body={}),
        Reply(status=307, headers={"location": f"{provider.openai}/chat/completions"}, body={}),
        Reply(body={"summary": "S"}, padding=5 << 20),
    ]
    provider.queue(*wrong, Reply(body={"summary": "S", "extra": 1}), Reply(hang=True))
    server = await serve()
    for number in range(len(wrong)):
        refusal = await server.error("pi.compact", timeout=60)
        assert refusal["data"]["kind"] in ("ProviderError", "SummarizationFailed"), number
        end = server.named("pi/compaction_end")[-1]
        assert (end["aborted"], end["errorMessage"]) == (False, f"Compaction failed: {refusal['message']}")
        assert "127.0.0.1" in refusal["message"] or refusal["message"] == "Summary is empty"
        assert "/summary" not in refusal["message"], "the host is enough"
        assert file.read_bytes() == before, number
    assert len(provider.requests) == len(wrong), "nothing is asked twice, and no redirect is followed"
    result = await server.result("pi.compact")
    assert result["summary"] == "S"
    await server.result("pi.undoCompaction")
    running = server.begin_command("pi.compact")
    await provider.until(requests=len(wrong) + 2)
    assert await server.result("pi.abortCompaction") == {"aborted": True}
    assert (await server.answer(running))["error"]["message"] == "Compaction cancelled"
    await provider.until(closed=1)
    for request in provider.requests:
        assert request.path == "/summary"
        assert set(request.body) == {"systemPrompt", "prompt"}
        assert "sk-test-1" not in json.dumps([request.headers, request.body])
    assert "sk-test-1" not in json.dumps(server.messages)


async def test_a_wrong_value_for_the_model_in_use_is_told_when_its_session_is_opened(
    serve: Serve, home: Home
):
    home.use()
    home.add_long()
    wrong = {"fake/m200": {"reserveTokens": "5"}, "fake/other": {"reserveTokens": "x"}}
    settings = home.configure({"compaction": {"modelOverrides": wrong}})
    server = await serve()
    await server.until(lambda: bool(told(server, settings)))
    [problem] = told(server, settings)
    assert problem["key"] == 'compaction.modelOverrides["fake/m200"].reserveTokens'


async def test_of_two_files_with_one_id_the_current_one_is_meant(serve: Serve, home: Home):
    home.use()
    for name in ("a.jsonl", "b.jsonl"):
        home.add(sessions.two_long_turns(120_000, cwd=str(home.folder)), name)
    server = await serve(autoOpen="none")
    for name in ("a.jsonl", "b.jsonl"):
        await server.result("pi.openSession", {"path": str(home.sessions() / name)})
    state = await server.result("pi.setSessionName", {"sessionId": "s-1", "name": "copy"})
    assert state["sessionFile"] == str(home.sessions() / "b.jsonl")
    assert "session_info" not in sessions.types(sessions.read(home.sessions() / "a.jsonl"))
