"""Everything that can go wrong, as one tree. The class name is the `kind` an editor tests.

    PiError
    ├── NoSession            no session is open
    ├── NoModel              no model is selected
    ├── NoCredentials        the model's provider has no key
    ├── AlreadyCompacted     the newest entry is a compaction
    ├── NothingToCompact     all of the history would be kept
    ├── Busy                 another operation of the session is running
    ├── EntryNotFound        no entry has that id
    ├── SessionNotFound      no session has that id or path
    ├── SessionUnreadable    the file is no session
    ├── SessionReadOnly      the session may be read but not written
    ├── SessionLocked        another process holds the file
    ├── InvalidSettings      a setting has a value that cannot be used
    ├── InvalidParams        an argument of a call is wrong
    ├── Untrusted            the workspace is not trusted
    ├── ProviderError        a model's provider or the summary endpoint failed
    │   └── ContextOverflow  the request was longer than the model's window
    ├── SummarizationFailed  what came back is no summary
    ├── ExtensionError       a hook failed
    ├── WriteFailed          the file could not be written
    └── Cancelled            somebody asked for it to stop

The message is a sentence for a person: what is wrong, where, and what to do. `data` holds what a program
needs to tell one case from another. Neither ever holds a key.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PiError(Exception):
    """Base of all errors this program raises on purpose."""

    kind: ClassVar[str] = "PiError"

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class NoSession(PiError):
    """No session is open in the workspace."""


class NoModel(PiError):
    """No model is selected (`message`: "No model selected")."""


class NoCredentials(PiError):
    """The model's provider has no key; the message names the variable to set."""


class AlreadyCompacted(PiError):
    """The newest entry of the path is a compaction."""

    def __init__(self) -> None:
        super().__init__("Already compacted")


class NothingToCompact(PiError):
    """Everything on the path would be kept."""

    def __init__(self) -> None:
        super().__init__("Nothing to compact (session too small)")


class Busy(PiError):
    """Another operation runs in the session; `data["operation"]` names it."""


class EntryNotFound(PiError):
    """The session has no entry of that id."""


class SessionNotFound(PiError):
    """There is no session of that id or path."""


class SessionUnreadable(PiError):
    """The file is no session; it is never modified."""


class SessionReadOnly(PiError):
    """The session was written by a newer program, or its file may not be written."""


class SessionLocked(PiError):
    """Another process holds the session's lock."""


class InvalidSettings(PiError):
    """A setting cannot be used; `data` has `file` and `key`."""


class InvalidParams(PiError):
    """An argument of a call is wrong; `data["path"]` names it."""


class Untrusted(PiError):
    """The workspace is not trusted."""


class ProviderError(PiError):
    """A provider failed; `data` has `provider`, `status` (where known) and `retryable`."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return bool(self.data.get("retryable"))


class ContextOverflow(ProviderError):
    """The request was longer than the model's context window. Never retried as it is."""


ContextOverflow.kind = ProviderError.kind  # one kind on the wire; the class is for our own recovery


class SummarizationFailed(PiError):
    """The answer is no summary: empty, cut off, or a tool call."""


class ExtensionError(PiError):
    """A hook raised or answered in a wrong shape; `data["extension"]` names it."""


class WriteFailed(PiError):
    """An entry could not be written to the session file."""


class Cancelled(PiError):
    """The operation was cancelled (`message`: "Compaction cancelled" for a compaction)."""
