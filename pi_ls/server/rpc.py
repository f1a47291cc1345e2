"""pygls, with the parts of JSON-RPC owned that an agent's server depends on.

What differs from pygls, and why:
- a command runs as the request's own task, so that `$/cancelRequest` and the progress's cancel reach it
  (pygls cancels only an outer future);
- an error is a sentence and a `kind`, never a traceback;
- a message that cannot be understood is answered where it was a request (pygls only logs it, and the
  client waits);
- the order of the protocol is kept: nothing before `initialize`, nothing but `exit` after `shutdown`;
- results are encoded once, by msgspec, and written by the writer's thread.

pygls' own handlers are generators that it drives itself; where one of ours is a coroutine or a plain function
instead, which pygls runs just as well, the override is marked for the type checker.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    LanguageServerProtocol,
    lsp_method,
)

from pi_ls.core.errors import InvalidParams, PiError
from pi_ls.core.jsonvalues import Json, is_object
from pi_ls.server.encoding import encode
from pi_ls.server.protocol import ErrorCode, WireError, wire_error
from pi_ls.server.writer import Message

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer

logger = logging.getLogger(__name__)

ProgressToken = str | int


class Phase(Enum):
    """How far the connection is; it only moves forward."""

    NEW = "new"
    RUNNING = "running"
    SHUT_DOWN = "shut down"


class CommandCall(msgspec.Struct, kw_only=True, rename="camel"):
    """The params of one `workspace/executeCommand`."""

    command: str
    arguments: Any = None
    work_done_token: ProgressToken | None = None


RunCommand = Callable[[CommandCall], Awaitable[Json]]

_RAW_PARAMS = frozenset({types.WORKSPACE_EXECUTE_COMMAND, types.WORKSPACE_DID_CHANGE_CONFIGURATION})
"""Methods whose params are taken as the JSON they are: they carry our own values, checked by ourselves."""


class Protocol(LanguageServerProtocol):
    """The connection with one client.

    Wired by the server: `send` takes a message to the client, `run_command` runs a command, `on_shutdown` is
    awaited by `shutdown`, `on_exit` is told the exit code that `exit` asks for.
    """

    send: Callable[[Message], None]
    run_command: RunCommand
    on_shutdown: Callable[[], Awaitable[None]]
    on_exit: Callable[[int], None]

    def __init__(self, server: LanguageServer, converter: Any) -> None:
        super().__init__(server, converter)
        self.phase = Phase.NEW
        self.initialization_options: Any = None
        self.commands: tuple[str, ...] = ()
        self._running: set[asyncio.Task[Any]] = set()
        self._task_of_progress: dict[ProgressToken, asyncio.Task[Any]] = {}

    # -- coming in -------------------------------------------------------------------------------------

    def receive(self, body: bytes) -> None:
        """Take one message's body in. Whatever is wrong with it, this returns."""
        try:
            data = json.loads(body)  # the standard one: editors send lone surrogates, which msgspec refuses
        except (ValueError, RecursionError):
            self.send_error(
                None, WireError(ErrorCode.PARSE_ERROR, "The message is no JSON", {"kind": "ParseError"})
            )
            return
        if not is_object(data):
            self._refuse_invalid(None, "A message is one JSON object; batches are not understood")
            return
        msg_id, method = data.get("id"), data.get("method")
        if isinstance(msg_id, dict | list | bool):
            self._refuse_invalid(None, "The id of a message is a number or a text")
            return
        if data.get("jsonrpc") != self.VERSION:
            self._refuse_invalid(msg_id, "The message is no JSON-RPC 2.0")
            return
        if "method" in data and not isinstance(method, str):
            self._refuse_invalid(msg_id, "The method of a message is a text")
            return
        if isinstance(method, str) and not self._in_order(msg_id, method):
            return
        try:
            message = self.structure_message(data)
        except JsonRpcException:
            if isinstance(method, str) and "id" in data:
                error = InvalidParams(f"The parameters of {method} have a wrong shape", path="params")
                self.send_error(data["id"], wire_error(error))
            return
        self.handle_message(message)

    def _in_order(self, msg_id: Any, method: str) -> bool:
        """Whether the method may be called now; a request that may not is refused."""
        if method == types.EXIT:
            return True
        match self.phase:
            case Phase.NEW:
                if method == types.INITIALIZE:
                    return True
                code, kind, sentence = (
                    ErrorCode.SERVER_NOT_INITIALIZED,
                    "ServerNotInitialized",
                    "Send initialize first",
                )
            case Phase.RUNNING:
                if method != types.INITIALIZE:
                    return True
                code, kind, sentence = (
                    ErrorCode.INVALID_REQUEST,
                    "InvalidRequest",
                    "initialize may be sent only once",
                )
            case Phase.SHUT_DOWN:
                code, kind, sentence = (
                    ErrorCode.INVALID_REQUEST,
                    "InvalidRequest",
                    "The server is shutting down",
                )
        self._refuse(msg_id, code, kind, sentence)
        return False

    def _refuse_invalid(self, msg_id: str | int | None, sentence: str) -> None:
        """Answer what is no message; JSON-RPC wants that also where it has no id."""
        error = WireError(ErrorCode.INVALID_REQUEST, sentence, {"kind": "InvalidRequest"})
        self.send_error(msg_id, error)

    def _refuse(self, msg_id: Any, code: int, kind: str, sentence: str) -> None:
        if msg_id is not None:
            self.send_error(msg_id, WireError(code, sentence, {"kind": kind}))

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The message as pygls' handlers take it."""
        method = data.get("method")
        if method == types.INITIALIZE and is_object(params := data.get("params")):
            self.initialization_options = params.pop("initializationOptions", None)
        if isinstance(method, str) and method in _RAW_PARAMS:
            params = data.get("params")
            if "id" in data:
                return JsonRPCRequestMessage(data["id"], method, self.VERSION, params)
            return JsonRPCNotification(method, self.VERSION, params)
        return super().structure_message(data)

    # -- lifecycle ---------------------------------------------------------------------------------------

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """Answer with what the server can do; waits for nothing."""
        self.phase = Phase.RUNNING
        result = yield from super().lsp_initialize(params)
        result.capabilities.execute_command_provider = types.ExecuteCommandOptions(
            commands=list(self.commands), work_done_progress=True
        )
        return result

    @lsp_method(types.SHUTDOWN)
    async def lsp_shutdown(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Stop what runs and close everything; answered when that is done."""
        self.phase = Phase.SHUT_DOWN
        await self.on_shutdown()

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Leave: with 0 after a `shutdown`, else with 1."""
        self.on_exit(0 if self.phase is Phase.SHUT_DOWN else 1)

    # -- commands and their cancellation -------------------------------------------------------------------

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, params: Any
    ) -> Json:
        """Run one command in this request's own task."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await self.run_command(_command_call(params))
        finally:
            self._running.discard(task)

    async def cancel_commands(self) -> None:
        """Cancel every running command and wait until each has cleaned up."""
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running)

    def cancel_by_progress(self, token: ProgressToken, task: asyncio.Task[Any] | None) -> None:
        """From now on the cancel button of that progress cancels this task (None: nothing)."""
        if task is None:
            self._task_of_progress.pop(token, None)
        else:
            self._task_of_progress[token] = task

    @lsp_method(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def lsp_work_done_progress_cancel(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, params: types.WorkDoneProgressCancelParams
    ) -> None:
        """The same as `$/cancelRequest` of the request the progress belongs to."""
        if task := self._task_of_progress.get(params.token):
            task.cancel()

    def _handle_cancel_notification(self, msg_id: str | int) -> None:
        """Cancel a request's task; one that is unknown or answered is nothing to speak of."""
        if (future := self._request_futures.get(msg_id)) is not None:
            future.cancel()

    # -- going out ---------------------------------------------------------------------------------------

    def _send_handler_result(self, future: Future[Any], *, msg_id: str | int) -> None:
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            self.send_error(
                msg_id, WireError(ErrorCode.REQUEST_CANCELLED, "Cancelled", {"kind": "Cancelled"})
            )
        elif (error := future.exception()) is None:
            self._send_response(msg_id, result=future.result())
        else:
            self.send_error(msg_id, _as_wire_error(error))

    def _send_response(
        self, msg_id: str | int, result: Any | None = None, error: types.ResponseError | None = None
    ) -> None:
        if error is not None:
            kind = "MethodNotFound" if error.code == ErrorCode.METHOD_NOT_FOUND else "InternalError"
            self.send_error(msg_id, WireError(error.code, error.message, {"kind": kind}))
            return
        if _is_lsp_value(result):
            result = self._converter.unstructure(result)
        self.send(Message(encode({"jsonrpc": self.VERSION, "id": msg_id, "result": result})))

    def send_error(self, msg_id: str | int | None, error: WireError) -> None:
        """Answer a request with an error (no id: one that could not be read)."""
        body = {"code": error.code, "message": error.message, "data": error.data}
        self.send(Message(encode({"jsonrpc": self.VERSION, "id": msg_id, "error": body})))

    def _send_data(self, data: Any) -> None:
        """Requests and notifications of the server: whatever pygls or `notify` makes."""
        if isinstance(data, JsonRPCNotification | JsonRPCRequestMessage | JsonRPCResponseMessage):
            message = attrs.asdict(data, recurse=False)
            if _is_lsp_value(message.get("params")):
                message["params"] = self._converter.unstructure(message["params"])
        else:
            message = self._converter.unstructure(data)
        self.send(Message(encode(message)))

    def report_progress(self, params: types.ProgressParams) -> None:
        """Send a progress report that a newer one of the same token replaces while it waits."""
        body = {
            "jsonrpc": self.VERSION,
            "method": types.PROGRESS,
            "params": self._converter.unstructure(params),
        }
        self.send(Message(encode(body), key=("progress", params.token)))


def _is_lsp_value(value: Any) -> bool:
    return hasattr(value, "__attrs_attrs__")


def _command_call(params: Any) -> CommandCall:
    try:
        return msgspec.convert(params, CommandCall)
    except msgspec.ValidationError as error:
        sentence = f"workspace/executeCommand takes a command's name and its arguments: {error}"
        raise InvalidParams(sentence, path="params") from None


def _as_wire_error(error: BaseException) -> WireError:
    if isinstance(error, PiError):
        return wire_error(error)
    if isinstance(error, JsonRpcException):
        return WireError(error.code, error.message, {"kind": type(error).__name__.removeprefix("JsonRpc")})
    logger.error("A request failed because of a fault in the server", exc_info=error)
    sentence = f"Something went wrong inside the server ({type(error).__name__}); its log (stderr) tells more"
    return WireError(ErrorCode.INTERNAL_ERROR, sentence, {"kind": "InternalError"})
