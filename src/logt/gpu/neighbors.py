"""The nearest neighbors of every vector, on a device: each is searched for, together with those of its list."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from logt._internal.threads import Workers, split_range
from logt._internal.types import Ids
from logt.errors import InvalidInputError
from logt.gpu.device import Device
from logt.gpu.lists import DeviceLists
from logt.gpu.search import DeviceSearcher
from logt.graph.build import Neighbors
from logt.lists.inverted_lists import ScanLimits
from logt.lists.segment import ListSegment

_BLOCK = 1 << 14  # vectors that are searched for together
_DECODED = 1 << 16  # vectors that are decoded together
_SAMPLE = 256  # vectors whose true neighbors are searched for
_RECALL = 0.93  # of them that is found, at least
_LISTS = (4, 8, 16, 32, 64, 128, 256)  # that are tried for that


def nearest_neighbors(
    device: Device, segments: Sequence[ListSegment], dim: int, k: int, workers: Workers
) -> Neighbors:
    """Return the k nearest neighbors of each live vector, by the cosine of the decoded vectors: see `graph.build`."""
    if any(not isinstance(segment, ListSegment) for segment in segments):
        raise InvalidInputError("graphs are computed on a device for logt.methods.sketched() only: pass device=None")
    ids = np.sort(np.concatenate([np.empty(0, np.int64), *(segment.ids[segment.live] for segment in segments)]))
    k = min(k, max(len(ids) - 1, 0))
    neighbors, similarity = np.full((len(ids), k), -1, np.int32), np.zeros((len(ids), k), np.float32)
    if not k:
        return ids, neighbors, similarity
    try:
        with device.active():
            comparison = _Comparison(device, segments, ids, k)
            comparison.fill(neighbors, similarity, workers)
    finally:
        device.release()
    return ids, neighbors, similarity


class _Comparison:
    """Searches for the vectors of an index by cosine: x·y / ‖y‖, where ‖x‖ is the same for all results."""

    def __init__(self, device: Device, segments: Sequence[ListSegment], ids: Ids, k: int):
        self.device, self.k = device, k
        self.searcher = DeviceSearcher(device, segments, "ip")
        self.searcher.parts = [self._by_cosine(part) for part in self.searcher.parts]
        self.ids = device.put(ids)
        self.limits = ScanLimits(0, 1, 0, 0, 0, 0, k + k // 2 + 16, 0, False)

    def _by_cosine(self, lists: DeviceLists) -> DeviceLists:
        """Return the lists with scores q·x / ‖x‖. They are ranked by the distance from q, which has the mean, too."""
        xp, codec = self.device.xp, lists.codec
        stretch = xp.empty(lists.positions, np.float32)
        mean = lists.rotation @ lists.mean
        for part in split_range(lists.positions, _DECODED):
            square = xp.square(lists.decode(part) + mean).sum(axis=1)
            stretch[part] = 1 / xp.sqrt(xp.maximum(square, np.float32(1e-30)))
        half = self.device.put(codec.list_bias[: codec.units] / 2)
        bias = xp.where(lists.bias > -np.inf, np.float32(0), np.float32(-np.inf))
        return replace(lists, bias=bias, stretch=stretch, bias_of=half - lists.weight_of * (lists.Y @ mean))

    def fill(self, neighbors: Any, similarity: Any, workers: Workers) -> None:
        """Write the neighbors of all vectors, as rows of the ids, and their cosines."""
        device = self.device
        limits = self._enough_lists()
        total, done = len(self.ids), 0
        for lists in self.searcher.parts:
            live = self._live(lists)
            for part in split_range(len(live), _BLOCK):
                position = live[part]
                found, cosine = self._nearest(lists, position, limits)
                row = device.get(self.device.xp.searchsorted(self.ids, lists.ids[position]))
                neighbors[row], similarity[row] = device.get(found), device.get(cosine)
                done += len(position)
                workers.report("linking", done, total)

    def _live(self, lists: DeviceLists) -> Any:
        return self.device.xp.flatnonzero(lists.bias > -np.inf)

    def _vectors(self, lists: DeviceLists, position: Any) -> Any:
        """Return vectors as users know them."""
        Z = lists.chosen(position).decode(slice(0, len(position)))
        return Z @ lists.rotation + lists.mean

    def _nearest(self, lists: DeviceLists, position: Any, limits: ScanLimits) -> tuple[Any, Any]:
        """Return (rows of the k nearest neighbors, -1 for none; their cosines) of vectors at some positions."""
        xp = self.device.xp
        X, own = self._vectors(lists, position), lists.ids[position]
        found = self.searcher.find(X, self.k + 1, limits)
        scores, ids = found.scores, found.ids
        missing = self.k + 1 - ids.shape[1]
        if missing > 0:
            scores = xp.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
            ids = xp.pad(ids, ((0, 0), (0, missing)), constant_values=-1)
        mine = ids == own[:, None]
        after = xp.cumsum(mine, axis=1)[:, : self.k] > 0  # those after it move up by one
        kept = xp.arange(self.k) + after
        ids, scores = xp.take_along_axis(ids, kept, axis=1), xp.take_along_axis(scores, kept, axis=1)
        cosine = scores * lists.stretch[position][:, None]
        rows = xp.searchsorted(self.ids, ids)
        known = (ids >= 0) & (scores > -np.inf)
        return xp.where(known, rows, -1).astype(np.int32), xp.where(known, xp.clip(cosine, -1, 1), np.float32(0))

    def _enough_lists(self) -> ScanLimits:
        """Return limits at which a sample finds most of its true neighbors."""
        largest = max(self.searcher.parts, key=lambda part: part.positions)
        live = self._live(largest)
        chosen = np.random.default_rng(0).choice(len(live), min(_SAMPLE, len(live)), replace=False)
        position = live[self.device.put(np.sort(chosen))]
        full = self.limits._replace(everything=True)
        true, _ = self._nearest(largest, position, full)
        for lists in _LISTS:
            limits = self.limits._replace(nprobe=lists)
            if lists >= largest.codec.units:
                return full
            found, _ = self._nearest(largest, position, limits)
            same = (found[:, :, None] == true[:, None, :]) & (true[:, None, :] >= 0)
            if int(same.sum()) >= _RECALL * int((true >= 0).sum()):
                return limits
        return limits
