"""Work done progress: where it is shown, and that every begin has its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.raw import RawClient
from tests.server.conftest import Place

SHOWS_PROGRESS = {"capabilities": {"window": {"workDoneProgress": True}}}


def kinds(client: RawClient) -> list[str]:
    return [params["value"]["kind"] for params in client.named("$/progress")]


async def ended(client: RawClient) -> list[dict[str, Any]]:
    await client.wait_for(lambda m: m.get("method") == "$/progress" and m["params"]["value"]["kind"] == "end")
    return client.named("$/progress")


async def open_one(client: RawClient, place: Place, **capabilities: Any) -> None:
    place.add_session("one")
    await client.initialize(place.params() | capabilities)
    await client.result("pi.sessionState")


async def test_a_client_that_does_not_show_progress_gets_none(client: RawClient, place: Place):
    await open_one(client, place)
    await client.result("pi.compact")
    assert not {"$/progress", "window/workDoneProgress/create"} & set(client.methods())


@pytest.mark.parametrize("how", ["", "fail", "crash"])
async def test_progress_of_our_own_begins_and_ends_however_it_goes(client: RawClient, place: Place, how: str):
    await open_one(client, place, **SHOWS_PROGRESS)
    await client.command("pi.compact", {"customInstructions": how})
    first, *_, last = await ended(client)
    assert first["value"] == {"kind": "begin", "title": "Compacting session", "cancellable": True,
                              "message": "working", "percentage": 10}  # fmt: skip
    assert last["value"]["kind"] == "end"
    assert kinds(client).count("begin") == kinds(client).count("end") == 1
    assert client.methods().index("window/workDoneProgress/create") < client.methods().index("$/progress")


async def test_the_cancel_button_of_our_own_progress_works(client: RawClient, place: Place):
    await open_one(client, place, **SHOWS_PROGRESS)
    request = client.begin_command("pi.compact", {"customInstructions": "wait"})
    token = (await client.notification("$/progress"))["token"]
    client.notify("window/workDoneProgress/cancel", {"token": token})
    assert (await client.answer(request))["error"]["code"] == -32800
    assert (await ended(client))[-1]["token"] == token


@pytest.mark.parametrize("how", ["", "fail"])
async def test_the_token_of_the_request_is_used_without_asking(client: RawClient, place: Place, how: str):
    await open_one(client, place, **SHOWS_PROGRESS)
    await client.command("pi.compact", {"customInstructions": how}, workDoneToken=7)
    assert [params["token"] for params in await ended(client)] == [7] * 3
    assert kinds(client) == ["begin", "report", "end"]
    assert "window/workDoneProgress/create" not in client.methods()


async def test_a_client_that_refuses_to_create_loses_only_the_progress(client: RawClient, place: Place):
    client.refuse_progress = True
    await open_one(client, place, **SHOWS_PROGRESS)
    assert await client.result("pi.compact")
    await client.notification("window/workDoneProgress/create")
    assert (await client.result("pi.contextUsage"))["tokens"] == 1
    assert not {"$/progress", "window/logMessage", "window/showMessage"} & set(client.methods())


async def test_loading_is_shown_only_when_it_takes_long(client: RawClient, place: Place):
    await open_one(client, place, **SHOWS_PROGRESS)
    assert "window/workDoneProgress/create" not in client.methods()
    place.add_session("slow")
    await client.result("pi.openSession", {"id": "slow"})
    assert (await ended(client))[0]["value"]["title"] == "Opening session"


async def test_a_plain_move_shows_nothing(client: RawClient, place: Place):
    await open_one(client, place, **SHOWS_PROGRESS)
    await client.result("pi.navigateTree", {"targetId": "x"})
    assert "window/workDoneProgress/create" not in client.methods()
