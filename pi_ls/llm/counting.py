"""Counting the tokens of text with tiktoken, offline."""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

CountText = Callable[[str], int]
"""Counts the tokens of a text."""

_ENCODING = "cl100k_base"
_ENCODING_FILE = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
"""tiktoken names its files by the hash of their address; litellm's package brings this one along."""
_SLICE = 32_768
"""Longer texts are counted in slices: the encoder panics on a very long run of blanks."""

_encoding_lock = threading.Lock()
_encoding: Any = None  # None: not tried yet, False: cannot be loaded


def text_counter(kind: Literal["tiktoken", "chars"]) -> CountText | None:
    """Counts tokens of text with tiktoken, or None where `kind` is "chars" or no encoding can be loaded.

    Loading takes a third of a second once per process and never uses the network. Thread-safe, as is what
    it returns.
    """
    if kind != "tiktoken":
        return None
    encoding = _load_encoding()
    if not encoding:
        return None

    def count(text: str) -> int:
        slices = range(0, len(text), _SLICE)
        return sum(_count_slice(encoding, text[start : start + _SLICE]) for start in slices)

    return count


def _count_slice(encoding: Any, text: str) -> int:
    try:
        return len(encoding.encode_ordinary(text))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the native code's own, derived from BaseException
            raise
        return (len(text) + 3) // 4


def _load_encoding() -> Any:
    global _encoding
    with _encoding_lock:
        if _encoding is None:
            try:
                _encoding = _read_encoding()
            except Exception:  # noqa: BLE001 - whatever is wrong with it, estimates go on without it
                logging.getLogger(__name__).warning(
                    "No tiktoken encoding: token counts are estimated by length"
                )
                _encoding = False
    return _encoding


def _read_encoding() -> Any:
    folder = _encoding_folder()
    if folder is None:
        return False
    import tiktoken
    import tiktoken.load

    def refuse(address: str) -> bytes:
        raise OSError(f"not downloaded: {address}")

    setattr(tiktoken.load, "read_file", refuse)  # noqa: B010 - a file it holds for damaged is never fetched anew
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        return tiktoken.get_encoding(_ENCODING)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


def _encoding_folder() -> Path | None:
    """Where litellm's package keeps the encoding; found without importing it."""
    spec = importlib.util.find_spec("litellm")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        usual = Path(root) / "litellm_core_utils" / "tokenizers"
        if (usual / _ENCODING_FILE).is_file():
            return usual
        for found in Path(root).rglob(_ENCODING_FILE):
            return found.parent
    return None
