"""Reference implementations of the CUDA kernels, in NumPy: those of the device "cpu", and of tests."""

from itertools import pairwise
from typing import Any, NamedTuple

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


class Codes(NamedTuple):
    """Codes of some vectors, without their units, on a device."""

    weight: Any
    scale: Any
    factor: Any
    square: Any  # of the norm of each vector, without the mean
    sign_bits: Any
    low_bits: Any
    refinement: Any
    refinement_scale: Any


class HostKernels:
    """What `CudaKernels` has, by simple means."""

    # --------------------------------------------------------------------------------------------- vectors.cu

    def best(self, values: Floats, first: Ids, last: Ids, k: int, longest: int | None = None) -> Ids:
        """Return where the k largest values of each range are, best first, equal ones by place; -1 for none.

        longest: about how many values a range has at most, if known.
        """
        out = np.full((len(first), k), -1, np.int64)
        for row, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            part = np.where(np.isnan(values[a:b]), -np.inf, values[a:b])
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

    def encode(self, Z: Floats, unit: Ids, weight: Floats, Y: Floats, bands: Any) -> Codes:
        """Return the codes of rotated vectors, whose units and weights are known; Z then has what they leave out.

        bands: a `DeviceBands`.
        """
        scale = np.maximum(np.abs(weight).max(axis=1), np.float32(1e-30)) / np.float32(127)
        rounded = np.rint(weight / scale[:, None]).astype(np.int8)
        square = np.square(Z).sum(axis=1, dtype=np.float64).astype(np.float32)
        weight = rounded * scale[:, None]
        for e in range(weight.shape[1]):
            Z -= weight[:, e : e + 1] * Y[unit[:, e]]
        fields, factor = bands.bands.quantize(Z)
        sign_bits, low_bits = bands.bands.pack(fields)
        Z -= bands.bands.dequantize(fields, factor)
        most = np.maximum(np.abs(Z).max(axis=1) / 127, np.float32(1e-30))
        refinement = np.rint(Z / most[:, None]).astype(np.int8)
        return Codes(rounded, scale, factor, square, sign_bits, low_bits, refinement, most)

    # ------------------------------------------------------------------------------------------------ scan.cu

    def near_lists(self, lists: Any, queries: Any, plan: Any, task_tiles: int) -> tuple[Array, Ids]:
        """Return (the least score of the lists that each query reads, how many lists, positions and tasks these are).

        They are those near enough to the best one (Plan), and further ones until they are, and hold, enough. What is
        in no list is always read, but by no query that is not valid.
        """
        needed = np.array([plan.width, plan.least, plan.enough])
        own = lists.rows[:-1], lists.visible[:-1]
        limit, totals = np.full(len(queries), np.inf, np.float32), np.zeros((3, len(queries)), np.int64)
        scores = _list_scores(lists, queries.products)
        for q in np.flatnonzero(~queries.wrong):
            deviation = np.sqrt(np.square(queries.whole[q]) @ lists.variance) * lists.deviation
            order = np.argsort(-scores[q], kind="stable")
            before = np.cumsum([np.ones(len(order), np.int64), *(part[order] for part in own)], axis=1)
            held = (before >= needed[:, None]).all(axis=0)
            limit[q] = scores[q, order[np.argmax(held) if held.any() else -1]]
            if plan.margin >= 0:
                limit[q] = min(limit[q], scores[q].max() - np.float32(plan.margin) * deviation)
            tiles = lists.tiles[np.append(scores[q] >= limit[q], lists.rows[-1] > 0)]
            totals[:, q] = len(tiles), tiles.sum() * ROWS, (-(-tiles // task_tiles)).sum()
        return limit, totals

    def sum_totals(self, totals: Ids, wrong: Mask, most: int, capacity: int) -> Ids:
        """Return the totals of all queries before each, and of all.

        If they read more than `most` lists or `capacity` positions, nothing is read, and all queries are marked as
        wrong.
        """
        before = np.pad(np.cumsum(totals, axis=1), ((0, 0), (1, 0)))
        if before[0, -1] > most or before[1, -1] > capacity:
            before[:], wrong[:] = 0, True
        return before

    def plan(
        self, lists: Any, queries: Any, limit: Array, before: Ids, task_tiles: int, most: int
    ) -> tuple[Array, ...]:
        """Return the lists that queries read, query by query.

        Of each its number, the first tile, the tiles, where its scores are written, the number of tasks before it,
        and the query. most: lists that there is space for.
        """
        scores = _list_scores(lists, queries.products)
        out = [np.zeros(most, np.int64) for _ in range(4)]
        first_task, query = np.full(most + 1, before[2, -1]), np.zeros(most, np.int32)
        for q, (a, b) in enumerate(pairwise(before[0].tolist())):
            if a == b:
                continue
            unit = np.flatnonzero(np.append(scores[q] >= limit[q], lists.rows[-1] > 0))
            tiles = lists.tiles[unit]
            tasks = -(-tiles // task_tiles)
            start = before[1, q] + ROWS * (np.cumsum(tiles) - tiles)
            for array, values in zip(out, (unit, lists.tile[unit], tiles, start), strict=True):
                array[a:b] = values
            first_task[a:b], query[a:b] = before[2, q] + np.cumsum(tasks) - tasks, q
        return (*out, first_task, query)

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
            for start, row in zip(groups.start[pair : pair + pairs].tolist(), scores, strict=True):
                out[start : start + len(row)] = row

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

    def collect(self, lists: Any, queries: Any, scanned: Any, at: Ids, out: Floats) -> tuple[Floats, Floats, Ids]:
        """Return (estimates, scores with the refinement, ids) of what was written to `out` at some positions."""
        estimates = np.append(out, np.float32(-np.inf))[at]  # which is at -1
        known = estimates > -np.inf
        if scanned.lists is None:
            position = at % lists.positions
        elif not len(scanned.lists):
            position = at
        else:
            pair = np.maximum(np.searchsorted(scanned.start[: scanned.begin[-1]], at, side="right") - 1, 0)
            position = lists.tile[scanned.lists[pair]] * ROWS + at - scanned.start[pair]
        position = np.where(known, position, 0)
        scores = estimates.copy()
        if lists.refinement is not None:
            dim = queries.whole.shape[1]
            for values, mine, row, used in zip(queries.whole, position, scores, known, strict=True):
                more = (lists.refinement[mine, :dim] @ values) * lists.refinement_scale[mine]
                row[used] += (more if lists.stretch is None else more * lists.stretch[mine])[used]
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
            _, result, column = np.intersect1d(mine, near[:count], return_indices=True)
            gained[query, result], near[column] = f[column], -1
            others = slice(len(inside), count)
            found[query, : count - len(inside)] = near[others]
            value[query, : count - len(inside)] = np.where(near[others] >= 0, f[others], 0)
        return gained, found, value


def _list_scores(lists: Any, products: Floats) -> Floats:
    """Return the scores by which lists are ranked."""
    scores: Floats = products * lists.weight_of + lists.bias_of
    return scores


def decode_tiles(codes: Array, layout: Any) -> Floats:
    """Return the numbers of tiles of codes, less their means, (rows, 32 · blocks)."""
    planes = codes[:, layout.table].reshape(len(codes) * ROWS, -1, 4)
    fields = layout.unpack(planes)
    out = np.zeros((len(fields), layout.blocks * 32), np.float32)
    out[:, : layout.coded] = fields - ((1 << layout.per_dim[: layout.coded]) - 1) / 2
    return out
