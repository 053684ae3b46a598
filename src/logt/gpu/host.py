"""Reference implementations of the CUDA kernels, in NumPy: those of the device "cpu", and of tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.types import Array, Floats, Ids, Mask
from logt.graph.diffusion import PRECISION, STEPS, Diffusion

ROWS = 16
"""Vectors of a tile of codes (scan.cu)."""

MOST = 2048
"""Values that `best` sorts in shared memory; for more, CuPy sorts everything (vectors.cu)."""

_NOTHING_LEFT, _DEPENDENT = 1e-3, 1e-2  # of correlations and norms, below which nothing is chosen (training.cu)


class HostKernels:
    """What `CudaKernels` has, by simple means."""

    # --------------------------------------------------------------------------------------------- vectors.cu

    def best(
        self,
        values: Floats,
        first: Ids,
        last: Ids,
        k: int,
        longest: int | None = None,
        weight: Floats | None = None,
        bias: Floats | None = None,
    ) -> Ids:
        """Return where the k largest values of each range are, best first, equal ones by place; -1 for none.

        longest: the most values of a range, if known. weight, bias: value i of a range counts as value · weight[i] +
        bias[i].
        """
        out = np.full((len(first), k), -1, np.int64)
        for row, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            part = values[a:b] if weight is None or bias is None else values[a:b] * weight + bias
            part = np.where(np.isnan(part), -np.inf, part)
            order = np.argsort(-part, kind="stable")[:k]
            out[row, : len(order)] = a + order
        return out

    def prepare(
        self, Q: Floats, mean: Floats, limits: tuple[float, float], *, distances: bool, cosine: bool
    ) -> tuple[Floats, Floats, Mask]:
        """Return (queries as a codec compares them, what is added to all their scores, which are not valid).

        limits: the smallest and the largest norm.
        """
        norms = np.sqrt(np.square(Q, dtype=np.float64).sum(axis=1))
        X = Q / np.where(norms > 0, norms, 1).astype(np.float32)[:, None] if cosine else Q
        V = X - mean if distances else X
        offset = -np.square(V, dtype=np.float64).sum(axis=1) if distances else V.astype(np.float64) @ mean
        small = norms == 0 if cosine else (norms > 0) & (norms < limits[0])
        return V, offset.astype(np.float32), ~(norms <= limits[1]) | small

    def weigh(self, whole: Floats, factor: float, layout: Any) -> tuple[Array, Floats]:
        """Multiply rotated queries by a factor; return (their values for the codes as float16, the step of each)."""
        whole *= np.float32(factor)
        wide = np.zeros((len(whole), layout.blocks * 32), np.float32)
        wide[:, : layout.coded] = whole[:, : layout.coded] * layout.step[: layout.coded]
        step = np.maximum(np.abs(wide).max(axis=1), np.float32(1e-30))
        return (wide / step[:, None]).astype(np.float16), step

    def multiply(self, A: Floats, B: Floats) -> Floats:
        """Return the products of all rows of A with all rows of B."""
        products: Floats = A @ B.T
        return products

    def sums(self, X: Floats, row: Ids, first: Ids) -> Floats:
        """Return the sums of the rows X[row[first[j]:first[j + 1]]]."""
        out = np.zeros((len(first) - 1, X.shape[1]), np.float32)
        for j, (a, b) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
            out[j] = X[row[a:b]].sum(axis=0)
        return out

    def nearest(self, products: Array, length: Floats, norms: Floats) -> Ids:
        """Return the unit of each row with the largest product · length · norm − norm² / 2.

        products: with units of norm 1, as float16. length: of the rows. norms: of the units.
        """
        values = (products.astype(np.float32) * length[:, None] - norms / 2) * norms
        best: Ids = values.argmax(axis=1)
        return best

    def pursue(
        self, products: Array, length: Floats, candidates: Ids, nearest: Ids, gram: Array, entries: int
    ) -> tuple[Ids, Floats]:
        """Return (units, weights), (rows, entries) each, of orthogonal matching pursuit from the nearest unit on.

        candidates: where those of each row are in `products`. gram: the products of units of norm 1, as float16.
        """
        rows, width = candidates.shape
        unit, weight = np.zeros((rows, entries), np.int64), np.zeros((rows, entries), np.float32)
        known = gram.astype(np.float64)
        known[np.diag(known) == 0, np.diag(known) == 0] = 1  # units of norm 0
        for i in range(rows):
            mine = candidates[i] - i * products.shape[1]
            if nearest[i] not in mine:
                mine[-1] = nearest[i]
            correlation = products[i, mine].astype(np.float64) * length[i]
            chosen = [int(np.flatnonzero(mine == nearest[i])[0])]
            while True:
                some = mine[chosen]
                solved = np.linalg.solve(known[np.ix_(some, some)], correlation[chosen])
                unit[i, : len(chosen)], weight[i, : len(chosen)] = some, solved
                if len(chosen) == min(entries, width):
                    break
                across = known[np.ix_(some, mine)]
                left = 1 - (across * np.linalg.solve(known[np.ix_(some, some)], across)).sum(axis=0)
                rest = np.where(left > _DEPENDENT, np.abs(correlation - solved @ across), -1)
                rest[chosen] = -1
                if rest.max() <= _NOTHING_LEFT * np.abs(correlation).max():
                    break
                chosen.append(int(rest.argmax()))
        return unit, weight

    # ------------------------------------------------------------------------------------------------ scan.cu

    def levels(self, lists: Any, whole: Floats, products: Floats) -> Array:
        """Return how many bounds of the codec's likeness are above the largest cosine with a memory vector."""
        norms = np.maximum(np.linalg.norm(whole, axis=1), np.float32(1e-30))
        cosine = (products / lists.unit_norm).max(axis=1) / norms
        below = ~(cosine[:, None] >= np.array(lists.codec.measured.likeness, np.float32))
        return np.asarray(below.sum(axis=1), np.int8)

    def plan(
        self, lists: Any, chosen: Ids, queries: Any, plan: Any, task_tiles: int, capacity: int
    ) -> tuple[Array, ...]:
        """Return the lists that few queries read, and the groups of their scan: see `gpu.search`.

        chosen: where the best lists of each query are in the scores of all, best first. The lists, and of each the
        first tile, the tiles, the place and the number of tasks before it, and the query; then where the scores of
        each query start and end. If they have more than `capacity` positions, nothing is read, and all queries are
        marked as wrong.
        """
        count, units, others = len(chosen), lists.codec.units, int(lists.rows[-1] > 0)
        list_ = np.full((count, plan.widest + others), units, np.int64)
        for q in range(count):
            read = seen = 0
            for j, unit in enumerate((chosen[q] - q * units).tolist()):
                kept = j < plan.width[queries.level[q]] or read < plan.least or seen < plan.enough
                list_[q, j] = unit if kept else -1
                read, seen = read + int(lists.rows[unit]), seen + int(lists.visible[unit])
        flat = list_.ravel()
        tiles = np.where(flat >= 0, lists.tiles[flat], 0)
        place = np.concatenate([[0], np.cumsum(tiles * ROWS)])
        first_task = np.concatenate([[0], np.cumsum(-(-tiles // task_tiles))])
        query = np.repeat(np.arange(count, dtype=np.int32), list_.shape[1])
        if place[-1] > capacity:
            tiles, place, first_task = (np.zeros_like(part) for part in (tiles, place, first_task))
            queries.wrong[:] = True
        limits = place[:: list_.shape[1]]
        return list_, lists.tile[flat], tiles, place, first_task, query, limits[:-1], limits[1:]

    def scan(self, lists: Any, queries: Any, groups: Any, out: Floats) -> None:
        """Write the scores of all pairs of groups: see `gpu.search.Groups`."""
        for g in range(len(groups.tile)):
            first, tiles = int(groups.tile[g]), int(groups.tiles[g])
            pair, pairs = (g, 1) if groups.pair is None else (int(groups.pair[g]), int(groups.pairs[g]))
            if not tiles or not pairs:
                continue
            rows, which = slice(first * ROWS, (first + tiles) * ROWS), groups.query[pair : pair + pairs]
            levels = decode_tiles(lists.codes[first : first + tiles], lists.layout)
            scores = (queries.values[which].astype(np.float32) @ levels.T) * lists.factor[rows]
            scores *= queries.step[which, None]
            scores += queries.offset[which, None]
            for e in range(lists.unit.shape[1]):
                weight = lists.scale[rows] * lists.weight[rows, e]
                scores += weight * queries.products[which[:, None], lists.unit[rows, e]]
            if lists.stretch is not None:
                scores *= lists.stretch[rows]
            scores += lists.bias[rows]
            for place, row in zip(groups.place[pair : pair + pairs].tolist(), scores, strict=True):
                out[place : place + len(row)] = row

    def hide(self, lists: Any, number: Ids, passing: Mask) -> tuple[Floats, Ids]:
        """Return (biases by which only what passes is found, how many vectors of each list that are).

        number: of the vector at each position in `passing`, -1 for none.
        """
        seen = (
            (number >= 0) & passing[number] & (lists.bias > -np.inf) if len(passing) else np.zeros(len(number), bool)
        )
        counts = np.concatenate([[0], np.cumsum(seen)])
        visible = counts[(lists.tile + lists.tiles) * ROWS] - counts[lists.tile * ROWS]
        return np.where(seen, lists.bias, np.float32(-np.inf)), visible

    def collect(self, lists: Any, queries: Any, reading: Any, at: Ids, out: Floats) -> tuple[Floats, Floats, Ids]:
        """Return (estimates, scores with the refinement, ids) of what was written to `out` at some places."""
        estimates = np.where(at >= 0, out[at], np.float32(-np.inf))
        known = estimates > -np.inf
        if reading.lists is None:
            position = at % lists.positions
        else:
            pair = np.maximum(np.searchsorted(reading.place[:-1], at, side="right") - 1, 0)
            position = lists.tile[reading.lists.ravel()[pair]] * ROWS + at - reading.place[pair]
        position = np.where(known, position, 0)
        scores = estimates.copy()
        if lists.refinement is not None:
            dim = queries.whole.shape[1]
            for values, places, row, used in zip(queries.whole, position, scores, known, strict=True):
                more = (lists.refinement[places, :dim] @ values) * lists.refinement_scale[places]
                row[used] += (more if lists.stretch is None else more * lists.stretch[places])[used]
        return estimates, scores, np.where(known, lists.ids[position], -1)

    # ------------------------------------------------------------------------------------------- diffusion.cu

    def spread(
        self, graph: Any, rows: Ids, y: NDArray[np.float64], how: Diffusion, visible: Mask | None
    ) -> tuple[NDArray[np.float64], Ids, NDArray[np.float64]]:
        """Return (f of all results, other rows that queries spread to, f of these), by the kernel of the processor.

        graph: a `gpu.diffusion.DeviceGraph`. rows: results of each query, -1 for none. y: of the first of them; they
        are where f = (I - alpha S)^-1 y starts. There are -1 and 0 in place of other rows where there are fewer.
        """
        most = min(how.nodes, len(graph.ids))
        gained = np.zeros(rows.shape)
        found, value = np.full((len(rows), most), -1, np.int64), np.zeros((len(rows), most))
        edges = graph.low, graph.high, graph.level, graph.mutual, graph.gain, graph.cube
        seen = np.empty(0, bool) if visible is None else visible
        for query, mine in enumerate(rows):
            inside = np.flatnonzero((mine[: y.shape[1]] >= 0) & (y[query] > 0))
            near, f = (np.empty(max(how.nodes, len(inside)), kind) for kind in (np.int64, np.float64))
            settings = how.alpha, how.hops, how.nodes, STEPS, PRECISION
            count = _kernels.spread(*edges, mine[inside], y[query, inside], seen, *settings, near, f)
            _, result, place = np.intersect1d(mine, near[:count], return_indices=True)
            gained[query, result], near[place] = f[place], -1
            others = slice(len(inside), count)
            found[query, : count - len(inside)] = near[others]
            value[query, : count - len(inside)] = np.where(near[others] >= 0, f[others], 0)
        return gained, found, value


def decode_tiles(codes: Array, layout: Any) -> Floats:
    """Return the numbers of tiles of codes, less their means, (rows, 32 · blocks)."""
    planes = codes[:, layout.table].reshape(len(codes) * ROWS, -1, 4)
    fields = layout.unpack(planes)
    out = np.zeros((len(fields), layout.blocks * 32), np.float32)
    out[:, : layout.coded] = fields - ((1 << layout.per_dim[: layout.coded]) - 1) / 2
    return out
