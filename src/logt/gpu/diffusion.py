"""Diffusion on a device, (graph, results of a search) -> ranking: as `graph.diffusion`, all queries at once."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from logt._internal.threads import split_range
from logt.gpu.device import Device
from logt.graph.diffusion import EXPONENT, Diffusion, transition
from logt.graph.stored_graph import StoredGraph


@dataclass(frozen=True, eq=False)
class DeviceGraph:
    """A neighbor graph on a device, with the edges among the first neighbors: see `graph.diffusion.Transition`.

    live: the rows that are not removed, or None for all.
    """

    ids: Any
    low: Any
    high: Any
    level: Any
    mutual: Any
    gain: Any
    cube: Any
    live: Any
    neighbors: int
    background: float

    @classmethod
    def copy(cls, device: Device, graph: StoredGraph, first: int) -> Self:
        """Copy a graph. first: neighbors per vector that are used."""
        S = transition(graph, first)
        stored = graph.ids, graph.low, graph.high, graph.level
        device.require(
            sum(array.nbytes for array in stored) + S.nbytes + len(graph),
            f"a neighbor graph of {len(graph):,} vectors",
            "search without rerank, or re-rank on the processor",
        )
        ids, low, high, level = map(device.put, stored)
        mutual, gain, cube = map(device.put, (S.mutual, S.gain, S.cube))
        live = None if graph.removed is None else device.put(graph.live)
        return cls(ids, low, high, level, mutual, gain, cube, live, min(first, graph.k), S.background)

    @property
    def nbytes(self) -> int:
        """The bytes on the device."""
        arrays = (getattr(self, name) for name in self.__dataclass_fields__)
        return sum(int(array.nbytes) for array in arrays if hasattr(array, "nbytes"))

    def locate(self, xp: Any, ids: Any) -> Any:
        """Return the row of each id, -1 for those that are not in the graph."""
        rows = xp.minimum(xp.searchsorted(self.ids, ids), len(self.ids) - 1)
        here = self.ids[rows] == ids
        return xp.where(here if self.live is None else here & self.live[rows], rows, -1)


def diffuse(
    device: Device, graph: DeviceGraph, how: Diffusion, scores: Any, ids: Any, k: int, visible: Any
) -> tuple[Any, Any]:
    """Return (scores, ids) of the k best of each query by diffusion from the results of a plain search.

    visible: the rows of the graph that can be found, or None for all. All arrays are on the device.
    """
    width = ids.shape[1] + min(how.nodes, len(graph.ids))
    parts = split_range(len(ids), max(1, device.workspace // (64 * width)))
    found = [_diffuse(device, graph, how, scores[part], ids[part], k, visible) for part in parts]
    if not found:
        return scores[:, :k], ids[:, :k]
    out_scores, out_ids = (device.xp.concatenate(part) for part in zip(*found, strict=True))
    return out_scores, out_ids


def _diffuse(
    device: Device, graph: DeviceGraph, how: Diffusion, scores: Any, ids: Any, k: int, visible: Any
) -> tuple[Any, Any]:
    xp, (count, results) = device.xp, ids.shape
    starts = min(how.candidates, results)  # the others follow, scored 0 or what reaches them
    known, rows = ids >= 0, graph.locate(xp, ids)
    cosine = scores[:, :starts].astype(np.float64)
    above = xp.maximum(cosine - graph.background, 0) / (1 - graph.background)
    y = xp.where(known[:, :starts], above**EXPONENT, 0)
    outside = (rows[:, :starts] < 0) & (y > 0)
    inside = xp.where(outside, 0, y)
    gained, found, value = device.kernels.spread(graph, rows, inside, how, visible)
    query, column = xp.nonzero(outside)
    for part in split_range(len(query), max(1, device.workspace // (64 * max(starts, 1)))):
        mine, at = query[part], column[part]  # they gain as much as the linked result with the nearest score
        far = xp.where(inside[mine] > 0, abs(cosine[mine] - cosine[mine, at][:, None]), np.inf)
        near = far.argmin(axis=1)
        some = inside[mine, near]
        factor = xp.where(some > 0, gained[mine, near] / xp.where(some > 0, some, 1), 1)
        gained[mine, at] = y[mine, at] * factor
    values = xp.where(known, gained, -np.inf), xp.where((found >= 0) & (value > 0), value, -np.inf)
    joined = xp.concatenate(values, axis=1).astype(np.float32)
    first = xp.arange(count, dtype=np.int64) * joined.shape[1]
    k = min(k, joined.shape[1])
    best = device.kernels.best(joined.ravel(), first, first + joined.shape[1], k, longest=joined.shape[1])
    all_ids = xp.concatenate([ids, graph.ids[found]], axis=1)  # those that are none are not among the best
    out = joined.ravel()[best]
    return out, xp.where(out > -np.inf, all_ids.ravel()[best], -1)
