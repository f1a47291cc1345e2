"""Events of sessions as `pi/…` notifications: numbered, cut to size, the fast ones slowed down.

Rule: the method is `pi/` and the event's name; the params are the event's fields with `workspace`,
`sessionId` and `seq`. Nothing is pushed before the client has said `initialized`; what happened until then
follows at once after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from pi_ls.core.events import ContextUsage, Event, SessionClosed, SettingsProblem, name_of, params_of
from pi_ls.core.jsonvalues import Json, is_array, is_object
from pi_ls.server.encoding import encode
from pi_ls.server.protocol import NOTIFICATION_PREFIX
from pi_ls.server.writer import MAX_WAITING_PUSHES, Message

MAX_PUSH_BYTES: Final = 256 * 1024
MAX_TEXT_BYTES: Final = 16 * 1024
USAGE_INTERVAL_S: Final = 0.2
"""`context_usage` is pushed at most once in this time, and the last one always."""

_REPLACED: Final = frozenset(
    {"context_usage", "session_info_changed", "model_changed", "thinking_level_changed"}
)
"""Events that tell how something is: of those a client has not read yet, the newest is enough."""

_KEPT: Final = frozenset(
    {
        "agent_end",
        "agent_settled",
        "agent_start",
        "approval_request",
        "approval_resolved",
        "compaction_end",
        "compaction_start",
        "message_end",
        "session_closed",
        "session_opened",
        "tool_execution_end",
        "tool_execution_start",
    }
)
"""Events that come in pairs or that a client cannot do without."""

_SHRINKING: Final = ((MAX_TEXT_BYTES, 1_000_000), (4_096, 1_000), (1_024, 100), (128, 10))
"""(bytes of a text, members of a list or object) tried one after the other until a push fits."""


class Notifier:
    """Turns events into messages for `send`, and holds them until `open`.

    `tell_person` gets each event, wanted as a push or not, to show what a person must know.
    """

    def __init__(self, send: Callable[[Message], None], tell_person: Callable[[Event], None]) -> None:
        self._send = send
        self._tell_person = tell_person
        self._held: list[tuple[str | None, str | None, Event]] | None = []
        self._wanted: Collection[str] | None = None
        self._told_settings: set[tuple[str | None, str, str, str]] = set()

    def want(self, events: Collection[str] | None) -> None:
        """Push only these events (None: all)."""
        self._wanted = events

    def open(self) -> None:
        """The client is ready: push what was held, and everything from now on."""
        held, self._held = self._held or [], None
        for workspace, session_id, event in held:
            self.push(workspace, session_id, event)

    def push(self, workspace: str | None, session_id: str | None, event: Event) -> None:
        """Push one event of a session, or of a workspace as such (no session id).

        A settings problem is told once for each workspace, however often its files are read, until it is
        mended.
        """
        name = name_of(event)
        if self._held is not None:
            if len(self._held) < MAX_WAITING_PUSHES or name in _KEPT:
                self._held.append((workspace, session_id, event))
            return
        if isinstance(event, SettingsProblem):
            problem = (workspace, event.file, event.key, event.message)
            if problem in self._told_settings:
                return
            self._told_settings.add(problem)
        self._tell_person(event)
        if self._wanted is None or name in self._wanted:
            self._send(_message(name, workspace, session_id, params_of(event)))

    def forget_mended(self, workspace: str, problems: Iterable[SettingsProblem]) -> None:
        """Of a workspace's settings these are the problems now: any other that comes back is told again."""
        left = {(workspace, one.file, one.key, one.message) for one in problems}
        self._told_settings = {one for one in self._told_settings if one[0] != workspace or one in left}


class Channel:
    """One session's way to the notifier: hand `emit` to the session, then `bind` its id.

    What a session tells while it is being opened, before anybody knows its id, waits for `bind`.
    """

    def __init__(self, notifier: Notifier, workspace: str) -> None:
        self._notifier = notifier
        self._workspace = workspace
        self._session_id: str | None = None
        self._early: list[Event] = []
        self._usage: ContextUsage | None = None
        self._timer: asyncio.TimerHandle | None = None

    def bind(self, session_id: str) -> None:
        """The session is known; what it has told so far is pushed."""
        self._session_id = session_id
        early, self._early = self._early, []
        for event in early:
            self.emit(event)

    def emit(self, event: Event) -> None:
        """Take one event of the session; call it on the event loop."""
        if self._session_id is None:
            self._early.append(event)
        elif isinstance(event, ContextUsage):
            self._slow_down(event)
        else:
            if isinstance(event, SessionClosed):
                self._usage = None  # the meter of a closed session is of no use to anybody
            self._push(event)

    def _slow_down(self, usage: ContextUsage) -> None:
        if self._timer is not None:
            self._usage = usage
            return
        self._push(usage)
        self._timer = asyncio.get_running_loop().call_later(USAGE_INTERVAL_S, self._next_usage)

    def _next_usage(self) -> None:
        self._timer = None
        usage, self._usage = self._usage, None
        if usage is not None:
            self._slow_down(usage)

    def _push(self, event: Event) -> None:
        self._notifier.push(self._workspace, self._session_id, event)


def _message(name: str, workspace: str | None, session_id: str | None, params: Json) -> Message:
    sequence = session_id or workspace or ""
    own = {key: value for key, value in params.items() if key not in {"workspace", "sessionId", "seq"}}
    rest = fit(own)
    address = encode({"workspace": workspace, "sessionId": session_id})[:-1]
    method = encode(NOTIFICATION_PREFIX + name)
    return Message(
        head=b'{"jsonrpc":"2.0","method":%b,"params":%b,"seq":' % (method, address),
        tail=b"}}" if rest == b"{}" else b",%b}" % rest[1:],
        key=(sequence, name) if name in _REPLACED else None,
        sequence=sequence,
        keep=name in _KEPT,
    )


def fit(params: Json) -> bytes:
    """The params as JSON of at most `MAX_PUSH_BYTES`.

    Text over `MAX_TEXT_BYTES` is cut and the data of images left out, told by `truncated: true`. What is
    still too big loses more text, then members of its lists and objects, and at last everything but plain
    values.
    """
    body = encode(params)
    if len(body) <= MAX_TEXT_BYTES and b'"image"' not in body:
        return body
    small = params
    for text_bytes, members in _SHRINKING:
        cutter = _Cutter(text_bytes, members)
        small = cutter.cut(params)
        body = encode({**small, "truncated": True} if cutter.cut_something else small)
        if len(body) <= MAX_PUSH_BYTES:
            return body
    plain = {key: value for key, value in small.items() if not (is_object(value) or is_array(value))}
    return encode({**plain, "truncated": True})


class _Cutter:
    """Copies a JSON value with its texts, lists and objects cut; remembers whether anything was."""

    def __init__(self, text_bytes: int, members: int) -> None:
        self._text_bytes = text_bytes
        self._members = members
        self.cut_something = False

    def cut(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if is_object(value):
            image = value.get("type") == "image" and "data" in value
            kept = [item for item in value.items() if not (image and item[0] == "data")][: self._members]
            self.cut_something |= len(kept) < len(value)
            return {key: self.cut(member) for key, member in kept}
        if is_array(value):
            self.cut_something |= len(value) > self._members
            return [self.cut(member) for member in value[: self._members]]
        return value

    def _text(self, text: str) -> str:
        if len(text) * 4 <= self._text_bytes:
            return text
        data = text.encode("utf-8", "surrogatepass")
        if len(data) <= self._text_bytes:
            return text
        self.cut_something = True
        return data[: self._text_bytes].decode("utf-8", "ignore")
