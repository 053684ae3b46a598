"""The models that a user has passed. An index may name any ONNX file; it is loaded only if it is one of these."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from logt.errors import CorruptIndexError
from logt.storage.files import read_bytes

_MAX_BYTES = 1 << 20
_of_this_process: set[str] = set()  # the file may not be writable


def model_key(path: str | Path, sha256: str, settings: Mapping[str, Any]) -> str:
    """Return a line for a model: the SHA-256 and path of its file, and the text encoder that its settings name."""
    return json.dumps([sha256, str(path), settings.get("text_model"), settings.get("tokenizer")])


def remember(key: str) -> None:
    """Record that the user has passed a model; an error while writing it is ignored."""
    if is_known(key):
        return
    _of_this_process.add(key)
    with suppress(OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as stream:
            stream.write(f"{key}\n")


def is_known(key: str) -> bool:
    """Return whether the user has passed a model before."""
    if key in _of_this_process:
        return True
    try:
        return key in read_bytes(_file(), _MAX_BYTES).decode().split("\n")
    except (OSError, UnicodeDecodeError, CorruptIndexError):
        return False


def _file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "logt" / "models"
