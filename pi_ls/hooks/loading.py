"""Finding extensions and taking them in: foreign code, run once, and never trusted to behave.

They are, in this order: entry points of installed packages (group `pi_ls`), the `*.py` files of
`<agentDir>/extensions`, and those of a trusted project's `.pi/extensions` whose content somebody vouched for.
Whatever one of them does while it is loaded (an error, `sys.exit`, a hook nobody knows) is its own problem,
told once with file and line. Blocks, and runs for as long as the extensions like: for a thread.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pluggy

from pi_ls.hooks.catalogue import HOOKS, PROJECT, Catalogue
from pi_ls.trust import extension_files, read_extension

Vouched = Callable[[Path, bytes], bool]
"""Whether somebody vouched for exactly this content of a project's file."""


class Sources(NamedTuple):
    """Where extensions come from. `project` is None where the folder is not trusted."""

    agent_dir: Path
    project: Path | None = None
    vouched: Vouched = lambda _path, _content: True


class LoadProblem(NamedTuple):
    """An extension that is left out, and the sentence that says why."""

    extension: str
    error: str


class Implementation(NamedTuple):
    """A function of an extension for one hook; `arguments` are those it wants, in its order."""

    extension: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]


class Loaded(NamedTuple):
    """The implementations of each hook in the order of calling, and what could not be loaded."""

    implementations: dict[str, tuple[Implementation, ...]]
    problems: tuple[LoadProblem, ...]


NOTHING = Loaded({}, ())


class _Refused(Exception):
    """Why an extension is left out."""


def load(sources: Sources) -> Loaded:
    """Run all extensions and collect their hooks. Never raises."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Catalogue)
    problems: list[LoadProblem] = []
    for name, take in _found(sources):
        try:
            plugin = take()
            _check(plugin)
            manager.register(plugin, name)
        except _Refused as error:
            problems.append(LoadProblem(name, str(error)))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  # foreign code, `sys.exit` included
            problems.append(LoadProblem(name, _told(error, name)))
    return Loaded({hook: found for hook in HOOKS if (found := _of(manager, hook))}, tuple(problems))


def _of(manager: pluggy.PluginManager, hook: str) -> tuple[Implementation, ...]:
    """The order is that of loading; who says `tryfirst` or `trylast` is taken at its word."""
    calls = sorted(
        getattr(manager.hook, hook).get_hookimpls(), key=lambda one: bool(one.trylast) - bool(one.tryfirst)
    )
    return tuple(Implementation(one.plugin_name, one.function, tuple(one.argnames)) for one in calls)


def _found(sources: Sources) -> Iterator[tuple[str, Callable[[], Any]]]:
    for point in sorted(importlib.metadata.entry_points(group=PROJECT), key=lambda one: one.name):
        yield f"{point.name} ({point.value})", point.load
    for file in extension_files(sources.agent_dir):
        yield str(file), lambda file=file: _run_file(file, lambda _path, _content: True)
    if sources.project is not None:
        for file in extension_files(sources.project):
            yield str(file), lambda file=file: _run_file(file, sources.vouched)


def _run_file(file: Path, vouched: Vouched) -> types.ModuleType:
    """The module of exactly the bytes that were vouched for: the file is read once."""
    try:
        content = read_extension(file)
    except OSError as error:
        raise _Refused(f"{file} cannot be read: {error.strerror or error}") from None
    if not vouched(file, content):
        raise _Refused(
            f"{file} is not what was trusted with this folder, and is left out until the folder is "
            "trusted again (pi.setTrust)"
        )
    module = types.ModuleType(f"pi_ls_extension_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    exec(compile(content, str(file), "exec", dont_inherit=True), module.__dict__)
    return module


def _check(plugin: Any) -> None:
    """Refuse functions no hook would call as they are written. Raises _Refused with file and line."""
    found = 0
    for name in dir(plugin):
        function = getattr(plugin, name, None)
        options = getattr(function, f"{PROJECT}_impl", None)
        if not inspect.isroutine(function) or not isinstance(options, dict):
            continue
        found += 1
        place = _place(function)
        hook = options.get("specname") or name  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        known = HOOKS.get(str(hook))  # pyright: ignore[reportUnknownArgumentType]
        if known is None:
            raise _Refused(f"{place}: there is no hook “{hook}”")
        if options.get("wrapper") or options.get("hookwrapper"):  # pyright: ignore[reportUnknownMemberType]
            raise _Refused(f"{place}: hooks cannot be wrapped; “{hook}” must be a plain or async function")
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise _Refused(f"{place}: {hook} must name the arguments it wants: {', '.join(known)}")
            if parameter.name not in known and parameter.default is parameter.empty:
                raise _Refused(
                    f"{place}: {hook} has no argument “{parameter.name}”; it has {', '.join(known)}"
                )
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
                raise _Refused(f"{place}: {hook} is called by position; take the * out")
    if not found:
        file = getattr(plugin, "__file__", None) or type(plugin).__name__
        raise _Refused(f"{file}:1: it marks no function with hookimpl, so it would never be called")


def _place(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def _told(error: BaseException, extension: str) -> str:
    return f"{place_of(error, extension)}{describe(error)}"


def place_of(error: BaseException, extension: str) -> str:
    """`file:line: ` of where an error of an extension came from: its own last line in the traceback."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 1}: "
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    own = [frame for frame in frames if frame.filename == extension]
    foreign = [frame for frame in frames if f"{Path(__file__).parent}" not in frame.filename]
    for frame in (own or foreign)[-1:]:
        return f"{frame.filename}:{frame.lineno}: "
    return ""


def describe(error: BaseException) -> str:
    """An error in one line; its text is foreign and may be anything."""
    try:
        said = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    except Exception:  # noqa: BLE001  # a broken __str__ of an extension
        said = ""
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return text if len(text) <= 500 else f"{text[:499]}…"
