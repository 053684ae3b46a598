"""Memory of the host that a device copies from and to by itself, and uploads through it."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from logt._internal.threads import split_range
from logt._internal.types import Array

LARGE = 1 << 24
"""Bytes of an array from which on several threads copy it."""

_THREADS = 4
_BUFFER = 1 << 25  # bytes
_WAITING = 3  # buffers at most


def pinned(cupy: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return a NumPy array that the device can copy to and from by itself."""
    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(max(1, count * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype, count).reshape(shape)


class Uploads:
    """Copies large arrays of the host to a device: threads fill buffers, from which the device copies meanwhile."""

    def __init__(self, cupy: Any):
        self._cupy = cupy
        self._running: deque[tuple[Any, Array]] = deque()  # events, and buffers that must live as long
        self._lock = Lock()

    def __call__(self, array: Array) -> Any:
        """Return the array, whose bytes are in one piece, on the device."""
        cupy = self._cupy
        out, given = cupy.empty(array.shape, array.dtype), array.reshape(-1).view(np.uint8)
        stream = cupy.cuda.get_current_stream()
        for part in split_range(len(given), _BUFFER):
            buffer = pinned(cupy, (part.stop - part.start,), np.uint8)
            pieces = split_range(len(buffer), -(-len(buffer) // _THREADS))
            for _ in _threads().map(lambda piece, b=buffer, g=given[part]: np.copyto(b[piece], g[piece]), pieces):
                pass
            (out.data + part.start).copy_from_host_async(buffer.ctypes.data, len(buffer), stream)
            with self._lock:
                self._running.append((stream.record(), buffer))
                if len(self._running) > _WAITING:
                    self._running.popleft()[0].synchronize()
        return out


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS)
