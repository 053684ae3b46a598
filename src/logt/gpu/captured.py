"""Searches for few queries as a graph of CUDA: all steps are recorded once, and started together for each search."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from logt._internal.types import Floats, Ids
from logt.gpu.copies import pinned
from logt.gpu.host import MOST
from logt.gpu.lists import DeviceLists
from logt.gpu.search import FEW, DeviceSearcher, Found, Plan
from logt.lists.inverted_lists import ScanLimits
from logt.lists.search import user_scores
from logt.metrics import worst_score

_MOST = 1 << 26  # scores that a search keeps space for
_PARTS = 8  # codecs: CuPy joins more arrays through memory that it uses again


def can_capture(
    searcher: DeviceSearcher, count: int, k: int, limits: ScanLimits, parts: Sequence[DeviceLists]
) -> bool:
    """Return whether a search never waits for the device: there is space for all that it reads, nearly always."""
    if not searcher.device.cuda or not 0 < count <= FEW or not parts:
        return False
    if k > MOST or len(parts) > _PARTS:
        return False
    plans, most = [Plan.of(part, limits, k) for part in parts], _capacity(searcher)
    return all(p.wanted <= MOST and count * p.longest <= most for p in plans)


def _capacity(searcher: DeviceSearcher) -> int:
    return min(_MOST, searcher.device.workspace // 4)


def as_users_see(searcher: DeviceSearcher, found: Found) -> tuple[Any, Any, Any]:
    """Return (scores as users see them, ids, which queries are not valid) on the device."""
    worst = np.float32(worst_score(searcher.metric))
    scores = searcher.device.xp.where(found.ids >= 0, user_scores(found.scores, searcher.metric), worst)
    return scores, found.ids, found.wrong


class CapturedSearch:
    """The search for k results of `count` queries; one at a time."""

    def __init__(
        self, searcher: DeviceSearcher, count: int, k: int, limits: ScanLimits, parts: Sequence[DeviceLists]
    ):
        cupy = searcher.device.xp
        self._lock = threading.Lock()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = cupy.cuda.MemoryPool()  # the graph keeps its arrays
        self._given = pinned(cupy, (count, searcher.parts[0].codec.dim), np.float32)
        self._given[:] = 1
        search = partial(searcher.find, k=k, limits=limits, parts=parts, capacity=_capacity(searcher))
        with cupy.cuda.using_allocator(self._pool.malloc), self._stream:
            self._Q = cupy.asarray(self._given)
            as_users_see(searcher, search(self._Q))  # compiles the kernels
            self._stream.synchronize()
            self._stream.begin_capture()
            try:
                found = as_users_see(searcher, search(self._Q))
                self._found = tuple(map(cupy.ascontiguousarray, found))
            finally:
                self._graph = self._stream.end_capture()
        self._out = tuple(pinned(cupy, part.shape, part.dtype) for part in self._found)

    def __call__(self, Q: Floats) -> tuple[Floats, Ids] | None:
        """Return (scores as users see them, ids); None if a query is not valid, or for what there is no space."""
        with self._lock:
            self._given[:] = Q
            self._Q.data.copy_from_host_async(self._given.ctypes.data, self._given.nbytes, self._stream)
            self._graph.launch(self._stream)
            for part, out in zip(self._found, self._out, strict=True):
                part.data.copy_to_host_async(out.ctypes.data, out.nbytes, self._stream)
            self._stream.synchronize()
            scores, ids, wrong = self._out
            return None if wrong.any() else (scores.copy(), ids.copy())
