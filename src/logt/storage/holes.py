"""Holes in files: bytes that read as 0 and take no space."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate on Linux


def punch_hole(file: int, start: int, length: int) -> None:
    """Free the space of some bytes of an open file, or at least set them to 0."""
    call = _fallocate()
    if call is None or call(file, _KEEP_SIZE | _PUNCH_HOLE, start, length) != 0:
        done = 0
        while done < length:  # a file system without holes
            done += os.pwrite(file, bytes(min(1 << 20, length - done)), start + done)


def can_punch() -> bool:
    """Return whether this system frees the space of holes."""
    return _fallocate() is not None


@cache
def _fallocate() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    with suppress(OSError, AttributeError):
        call = ctypes.CDLL(None, use_errno=True).fallocate
        call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        return call
    return None
