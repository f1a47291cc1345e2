"""Which workspace folders a person trusts, and with what content.

A repository can ship settings, extensions and prompts; only a person can say that they are to be used. That
word is kept in `<agentDir>/trust.json`, outside of every project, by the folder's real path, with a
fingerprint of what could do harm: the summary endpoint and each extension file. When one of them changes,
that one is not used until the folder is trusted again. Tools that a person always allows in a folder are
kept there too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pi_ls.configfile import ConfigFile
from pi_ls.core.jsonvalues import Json, dumps, is_array, is_object
from pi_ls.regular import read_regular

TRUST_FILE = "trust.json"
PROJECT_FOLDER = ".pi"
_MOST_NAMES = 12
"""How many things a message names; a hostile folder may hold any number of them."""
_LONGEST_NAME = 60
_LARGEST_SETTINGS = 1 << 20
_LARGEST_EXTENSION = 4 << 20
_PROMPT_FILES = ("SYSTEM.md", "APPEND_SYSTEM.md", "prompts", "models.json")


class TrustRecord(msgspec.Struct, frozen=True):
    """What is known of a folder. `trusted` is None where nobody was asked or has answered."""

    trusted: bool | None = None
    endpoint: str | None = None
    """Fingerprint of the project's `compaction.remoteEndpoint`."""
    extensions: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Fingerprints of the project's extension files, by name."""
    approved: tuple[str, ...] = ()
    """Tools that may always run here."""

    def vouches_for_endpoint(self, value: Any) -> bool:
        """Whether exactly this endpoint was trusted."""
        return self.endpoint == fingerprint(dumps(value))

    def changed_things(self, folder: Path) -> list[str]:
        """What of a trusted folder is not what was trusted, as names for a person. Reads files."""
        found = trusted_with_all(folder)
        changed = [
            f"{PROJECT_FOLDER}/extensions/{_plain(name)}"
            for name, content in found.extensions.items()
            if self.extensions.get(name) != content
        ]
        if found.endpoint is not None and found.endpoint != self.endpoint:
            changed.insert(0, f"{PROJECT_FOLDER}/settings.json (compaction.remoteEndpoint)")
        return changed[:_MOST_NAMES]

    def vouches_for(self, file: Path, content: bytes) -> bool:
        """Whether exactly this content of an extension file was trusted."""
        return self.extensions.get(file.name) == fingerprint(content)


class TrustStore:
    """The file of all folders. Looked at again on every call; may be shared by several processes."""

    def __init__(self, agent_dir: Path) -> None:
        self._file = ConfigFile(agent_dir / TRUST_FILE)

    def of(self, folder: Path) -> TrustRecord:
        """What is known of a folder. What cannot be read of it counts as unknown."""
        self._file.refresh()
        folders = self._file.values.get("folders")
        known = folders.get(str(folder)) if is_object(folders) else None
        return _record(known) if is_object(known) else TrustRecord()

    def keep(self, folder: Path, record: TrustRecord) -> str | None:
        """Write down what is known of a folder; None, or a sentence that says why it could not be saved."""
        return self._file.set(("folders", str(folder)), msgspec.to_builtins(record))

    def approve(self, folder: Path, tools: Sequence[str]) -> str | None:
        """Write down that these tools may always run in a folder, and nothing else of it; as `keep`."""
        return self._file.set(("folders", str(folder), "approved"), list(tools))


def _record(known: Json) -> TrustRecord:
    trusted, endpoint = known.get("trusted"), known.get("endpoint")
    extensions, approved = known.get("extensions"), known.get("approved")
    return TrustRecord(
        trusted=trusted if isinstance(trusted, bool) else None,
        endpoint=endpoint if isinstance(endpoint, str) else None,
        extensions={name: one for name, one in extensions.items() if isinstance(one, str)}
        if is_object(extensions)
        else {},
        approved=tuple(one for one in approved if isinstance(one, str)) if is_array(approved) else (),
    )


def fingerprint(content: bytes) -> str:
    """What content is recognised by."""
    return hashlib.sha256(content).hexdigest()


def trusted_with_all(folder: Path) -> TrustRecord:
    """The record of a folder that is trusted with everything it holds now. Reads files."""
    return TrustRecord(
        trusted=True,
        endpoint=endpoint_of(folder),
        extensions=dict(_fingerprints(folder / PROJECT_FOLDER)),
    )


def endpoint_of(folder: Path) -> str | None:
    """Fingerprint of the summary endpoint a folder's settings name (null is one too); None without any."""
    compaction = ConfigFile(folder / PROJECT_FOLDER / "settings.json").values.get("compaction")
    if not is_object(compaction) or "remoteEndpoint" not in compaction:
        return None
    return fingerprint(dumps(compaction["remoteEndpoint"]))


def _fingerprints(place: Path) -> Iterator[tuple[str, str]]:
    for file in extension_files(place):
        with contextlib.suppress(OSError):  # what cannot be read is not run either
            yield file.name, fingerprint(read_extension(file))


def ignored_things(folder: Path) -> list[str]:
    """What a folder would bring along if it were trusted, as names for a person; empty where nothing."""
    place = folder / PROJECT_FOLDER
    found = [*_settings_things(place), *_files(place)]
    more = len(found) - _MOST_NAMES
    return found if more <= 0 else [*found[:_MOST_NAMES], f"{more} more"]


def _settings_things(place: Path) -> Iterator[str]:
    file = place / "settings.json"
    try:
        if not file.exists():
            return
        small = file.stat().st_size <= _LARGEST_SETTINGS
    except OSError:
        return
    keys = _keys(ConfigFile(file).values) if small else []
    shown = ", ".join(_plain(key) for key in keys[:_MOST_NAMES])
    yield f"{PROJECT_FOLDER}/settings.json" + (
        f" ({shown}{', …' if len(keys) > _MOST_NAMES else ''})" if shown else ""
    )


def _keys(values: Json) -> list[str]:
    """The keys that are set, two levels deep, the one that sends a conversation elsewhere first."""
    keys: list[str] = []
    for key, value in values.items():
        keys += [f"{key}.{inner}" for inner in value] if is_object(value) and value else [key]
    return sorted(keys, key=lambda one: one != "compaction.remoteEndpoint")


def _files(place: Path) -> Iterator[str]:
    for file in extension_files(place):
        yield f"{PROJECT_FOLDER}/extensions/{_plain(file.name)}"
    for name in _PROMPT_FILES:
        if os.path.lexists(place / name):  # `exists` raises where one may not look
            yield f"{PROJECT_FOLDER}/{name}"


def extension_files(place: Path) -> Sequence[Path]:
    """The extension files under an agent directory or a project's `.pi`, by name."""
    try:
        return sorted(one for one in (place / "extensions").iterdir() if one.suffix == ".py")
    except OSError:
        return ()


def read_extension(file: Path) -> bytes:
    """The content of an extension file. Raises OSError."""
    return read_regular(file, _LARGEST_EXTENSION)


def _plain(name: str) -> str:
    """A foreign name, short and without anything that is not to be seen."""
    seen = "".join(one if one.isprintable() else "�" for one in name[: _LONGEST_NAME + 1])
    return seen if len(name) <= _LONGEST_NAME else f"{seen[:_LONGEST_NAME]}…"
