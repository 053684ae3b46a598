"""Copies from a device to the host that go on while the device computes."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from logt._internal.types import Array
from logt.gpu.device import Device
from logt.gpu.pinned import pinned

_THREADS = 4
_WAITING = 8  # copies at most


class Downloads:
    """Copies arrays of a device, one after the other, into parts of arrays of the host."""

    def __init__(self, device: Device):
        self._device = device
        self._running: deque[Future[None]] = deque()
        self._threads = ThreadPoolExecutor(_THREADS) if device.cuda else None

    def start(self, array: Any, out: Array) -> None:
        """Copy an array into `out`, which has its shape and type."""
        if self._threads is None:
            out[...] = array
            return
        cupy = self._device.xp
        array = cupy.ascontiguousarray(array)
        buffer, stream = pinned(cupy, array.shape, array.dtype), cupy.cuda.get_current_stream()
        array.data.copy_to_host_async(buffer.ctypes.data, array.nbytes, stream)
        done = stream.record()

        def finish(kept: Any = array) -> None:  # the array must live as long
            done.synchronize()
            np.copyto(out, buffer)

        self._running.append(self._threads.submit(finish))
        if len(self._running) > _WAITING:
            self._running.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for all copies."""
        while self._running:
            self._running.popleft().result()
        if self._threads is not None:
            self._threads.shutdown()
