"""The editor as the agent's tools see it: its open documents, and the person in front of it.

Source: LSP 3.17, `workspace/applyEdit`, `window/showMessageRequest`, and its position encodings.
"""

from __future__ import annotations

import asyncio
import bisect
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lsprotocol import types
from pygls import uris
from pygls.exceptions import JsonRpcException

from pi_ls.core.events import ApprovalRequest
from pi_ls.session import Answer, Decision
from pi_ls.tools import TextEdit, ToolFailed

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer
    from pygls.workspace import TextDocument

    from pi_ls.server.buffers import SavedTexts

FOLLOW_TIMEOUT_S: Final = 2.0
"""How long an editor may take to tell of the change it was asked to make."""

LONGEST_COMMAND: Final = 4_000
"""Characters of a command that are shown when a person is asked about it."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")

CHOICES: Final[dict[str, Decision]] = {
    "Allow once": "once",
    "Allow in this session": "session",
    "Always allow here": "always",
    "No": "no",
}
"""What a person may answer when asked whether a tool may run."""

TRUST_CHOICES: Final[dict[str, bool | None]] = {"Trust": True, "Do not trust": False, "Not now": None}
"""What a person may answer when asked whether a folder is to be trusted."""


class Documents:
    """The documents that are open in the editor (`tools.Workspace`)."""

    def __init__(self, server: LanguageServer, saved: SavedTexts) -> None:
        self._server = server
        self._saved = saved

    def open_text(self, path: Path) -> str | None:
        """The text of an open document, unsaved changes included; None where the file is not open.

        A document without unsaved changes whose file has changed on disk does not count: the editor is about
        to read it anew.
        """
        document = self._open(path)
        if document is None or self._saved.is_stale(document.uri, document.source):
            return None
        return document.source

    async def apply_edit(self, path: Path, edits: Sequence[TextEdit]) -> None:
        """Change an open document in the editor, where it can be undone; returns when the editor has told so.

        Raises ToolFailed where the editor cannot or will not.
        """
        document = self._open(path)
        if document is None:
            raise ToolFailed(f"{path} is not open in the editor any more; try again.")
        if not self._can_apply():
            raise ToolFailed(
                f"{path} is open in an editor that cannot be asked to change it. "
                "Save it and close it there first."
            )
        wanted = _edited(document.source, edits)
        answer = await self._server.workspace_apply_edit_async(self._params(document, edits))
        if not answer.applied:
            why = f": {answer.failure_reason}" if answer.failure_reason else ""
            raise ToolFailed(f"The editor did not make the change in {path}{why}.")
        await self._follow(path, wanted)

    def _open(self, path: Path) -> TextDocument | None:
        documents = self._server.workspace.text_documents
        document = documents.get(path.as_uri())
        if document is not None:
            return document
        real = os.path.realpath(path)
        return next((one for one in documents.values() if _real_path(one.uri) == real), None)

    def _can_apply(self) -> bool:
        workspace = self._server.client_capabilities.workspace
        return workspace is not None and workspace.apply_edit is True

    def _params(self, document: TextDocument, edits: Sequence[TextEdit]) -> types.ApplyWorkspaceEditParams:
        place = _Places(document.source, self._server.workspace.position_encoding)
        changes = [
            types.TextEdit(types.Range(place.of(edit.start), place.of(edit.end)), edit.text) for edit in edits
        ]
        if self._takes_versions():
            target = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
            versioned = types.TextDocumentEdit(target, changes)
            edit = types.WorkspaceEdit(document_changes=[versioned])
        else:
            edit = types.WorkspaceEdit(changes={document.uri: changes})
        return types.ApplyWorkspaceEditParams(edit, label="pi")

    def _takes_versions(self) -> bool:
        workspace = self._server.client_capabilities.workspace
        edit = workspace.workspace_edit if workspace is not None else None
        return edit is not None and edit.document_changes is True

    async def _follow(self, path: Path, wanted: str) -> None:
        """Wait until our copy of the document is what it should be now, or the file was closed."""
        give_up = asyncio.get_running_loop().time() + FOLLOW_TIMEOUT_S
        while asyncio.get_running_loop().time() < give_up:
            if self.open_text(path) in (None, wanted):
                return
            await asyncio.sleep(0.01)


class _Places:
    """Code points of a text as positions in the unit a client counts in."""

    def __init__(self, text: str, encoding: types.PositionEncodingKind | str | None) -> None:
        self._text = text
        self._encoding = encoding.value if isinstance(encoding, types.PositionEncodingKind) else encoding
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def of(self, offset: int) -> types.Position:
        """The position of a code point."""
        line = bisect.bisect_right(self._starts, offset) - 1
        before = self._text[self._starts[line] : offset]
        if self._encoding == "utf-8":
            character = len(before.encode("utf-8", "surrogatepass"))
        elif self._encoding == "utf-32":
            character = len(before)
        else:
            character = len(before.encode("utf-16-le", "surrogatepass")) // 2
        return types.Position(line, character)


def _edited(text: str, edits: Sequence[TextEdit]) -> str:
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _real_path(uri: str) -> str | None:
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    return os.path.realpath(path) if path else None


def _question(question: ApprovalRequest) -> str:
    """What a person is asked. Nothing they allow may be hidden from them: a command is shown as it is."""
    command = question.args.get("command")
    if question.tool_name != "bash" or not isinstance(command, str):
        return f"May the agent do this? {question.summary}"
    hidden = len(command) - LONGEST_COMMAND
    shown = command if hidden <= 0 else f"{command[:LONGEST_COMMAND]}… ({hidden} more characters, not shown)"
    return f"May the agent run this?\n{shown}"


class Person:
    """Puts questions to the person in front of the editor.

    `by_notification`: the client shows `pi/approval_request` itself and answers by command; else a message
    with choices is shown, where the client announced that it can.
    """

    def __init__(self, server: LanguageServer, *, by_notification: bool) -> None:
        self._server = server
        self._by_notification = by_notification

    async def ask(self, question: ApprovalRequest, answer: Answer) -> bool:
        """Ask whether a tool may run; False where nobody can be asked."""
        if self._by_notification:
            await asyncio.Event().wait()  # the answer comes by a command; whoever waits cancels this
        if not self._can_show():
            return False
        params = types.ShowMessageRequestParams(
            type=types.MessageType.Warning,
            message=_question(question),
            actions=[types.MessageActionItem(title) for title in CHOICES],
        )
        try:
            chosen = await self._server.window_show_message_request_async(params)
        except JsonRpcException:
            return False  # it said that it can, and cannot
        answer(question.approval_id, CHOICES.get(chosen.title, "no") if chosen is not None else "no")
        return True

    async def ask_trust(self, question: str) -> bool | None:
        """Ask whether a folder is to be trusted; None where nobody can be asked or nothing is decided yet."""
        if not self._can_show():
            return None
        chosen = await self._server.window_show_message_request_async(
            types.ShowMessageRequestParams(
                type=types.MessageType.Warning,
                message=question,
                actions=[types.MessageActionItem(title) for title in TRUST_CHOICES],
            )
        )
        return TRUST_CHOICES.get(chosen.title) if chosen is not None else None

    def _can_show(self) -> bool:
        window = self._server.client_capabilities.window
        return window is not None and window.show_message is not None
