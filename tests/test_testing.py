from __future__ import annotations

from pathlib import Path

import pytest

from pi_ls.core.chat import Answer, ChatRequest
from pi_ls.core.context import build_session_context
from pi_ls.core.errors import ProviderError
from pi_ls.store.file import SessionFile
from pi_ls.testing import ScriptedModel, answer, assistant, call, chain, result, session_text, user


async def test_a_script_is_followed_in_order_and_its_end_is_told() -> None:
    model = ScriptedModel(answer("one"), ProviderError("down"), lambda request: answer(request.system))
    assert [event async for event in model.stream(ChatRequest())][-1] == answer("one")
    with pytest.raises(ProviderError):
        [event async for event in model.stream(ChatRequest())]
    last = [event async for event in model.stream(ChatRequest(system="rules"))][-1]
    assert isinstance(last, Answer)
    assert last == answer("rules")
    with pytest.raises(AssertionError, match="no answer to request 4"):
        [event async for event in model.stream(ChatRequest())]


def test_a_chain_of_messages_is_a_session_that_opens(tmp_path: Path) -> None:
    messages = [user("do"), assistant(call("bash"), total=7), result("out"), assistant("done")]
    entries = chain(messages)
    assert [one.message for one in build_session_context(entries).messages] == messages
    (tmp_path / "s.jsonl").write_bytes(session_text(entries))
    opened = SessionFile.open(tmp_path / "s.jsonl")
    assert opened.problems == []
    assert [entry.id for entry in opened.entries] == [entry.id for entry in entries]
    assert [entry.data for entry in opened.entries] == [entry.data for entry in entries]
