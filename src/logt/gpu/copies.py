"""Copies between host and device that go on while both work: through memory that the device reads by itself."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any, Self

import numpy as np

from logt._internal.threads import split_range
from logt._internal.types import Array

LARGE = 1 << 24
"""Bytes of an array from which on several threads copy it."""

_THREADS = 4
_BUFFER = 1 << 25  # bytes
_UPLOADING = 3  # buffers at most
_DOWNLOADING = 8  # arrays at most


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
                if len(self._running) > _UPLOADING:
                    self._running.popleft()[0].synchronize()
        return out


class Downloads:
    """Copies arrays of a device, one after the other, into parts of arrays of the host. cupy: None without a GPU."""

    def __init__(self, cupy: Any | None):
        self._cupy = cupy
        self._running: deque[Future[None]] = deque()
        self._threads = None if cupy is None else ThreadPoolExecutor(_THREADS)

    def start(self, array: Any, out: Array) -> None:
        """Copy an array into `out`, which has its shape and type."""
        cupy = self._cupy
        if cupy is None or self._threads is None:
            out[...] = array
            return
        array = cupy.ascontiguousarray(array)
        buffer, stream = pinned(cupy, array.shape, array.dtype), cupy.cuda.get_current_stream()
        array.data.copy_to_host_async(buffer.ctypes.data, array.nbytes, stream)
        done = stream.record()

        def finish(kept: Any = array) -> None:  # the array must live as long
            done.synchronize()
            np.copyto(out, buffer)

        self._running.append(self._threads.submit(finish))
        if len(self._running) > _DOWNLOADING:
            self._running.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for all copies."""
        while self._running:
            self._running.popleft().result()
        if self._threads is not None:
            self._threads.shutdown()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS)
