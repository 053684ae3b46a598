"""The CUDA kernels, compiled by CuPy at their first use, and how they are called."""

from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from logt.gpu.host import MOST, ROWS, Codes
from logt.graph.diffusion import PRECISION, STEPS

FEW = 64
"""Queries that `multiply` compares without cuBLAS, which CuPy cannot record (captured.py)."""

_LONG = 1 << 15  # values of one range that one block reads, if there are few ranges; longer ones are divided
_LONGEST = 1 << 19  # the same if the range may be much shorter
_FEW_THREADS, _THREADS = 1024, 256  # of a block that has one of few queries, or of many
_HIDDEN = 64  # tiles of a warp of `hide`
_SPREADING = 512  # threads of a block of `spread`, and the rows that it sorts in shared memory
_PLACES = 4096
_SOURCES = ("vectors.cu", "training.cu", "scan.cu", "diffusion.cu")


class CudaKernels:
    """The kernels of the .cu files; their reference implementations are in host.py."""

    # --------------------------------------------------------------------------------------------- vectors.cu

    def best(self, values: Any, first: Any, last: Any, k: int, longest: int | None = None) -> Any:
        """Return where the k largest values of each range are: see `HostKernels.best`."""
        rows = len(first)
        out = cupy.empty((rows, k), cupy.int64)
        if not rows or not k:
            return out
        if k > MOST:
            return _sorted(values, first, last, k)
        few = rows <= _processors()
        if few and (longest or int((last - first).max())) > (_LONGEST if longest else _LONG):
            return self._divided(values, first, last, k, longest or int((last - first).max()))
        halves = np.int32(values.dtype == cupy.float16)
        threads = _FEW_THREADS if few else _THREADS
        _kernel("best")((rows,), (threads,), (values, halves, first, last, np.int32(k), out))
        return out

    def _divided(self, values: Any, first: Any, last: Any, k: int, longest: int) -> Any:
        """As `best`, with as many blocks for each range as the card has space for: the best of each, then of all."""
        parts = min(-(-longest // _LONG), max(2, -(-2 * _processors() // len(first))))
        cuts = first[:, None] + (last - first)[:, None] * cupy.arange(parts + 1) // parts
        starts, ends = (cupy.ascontiguousarray(cut).ravel() for cut in (cuts[:, :-1], cuts[:, 1:]))
        found = self.best(values, starts, ends, k, _LONG).reshape(len(first), parts * k)
        some = cupy.where(found >= 0, values[cupy.maximum(found, 0)], -cupy.inf).astype(cupy.float32)
        begin = cupy.arange(len(first), dtype=cupy.int64) * (parts * k)
        chosen = self.best(some.ravel(), begin, begin + parts * k, k, parts * k)
        return cupy.where(chosen >= 0, found.ravel()[cupy.maximum(chosen, 0)], -1)

    def prepare(
        self, Q: Any, mean: Any, limits: tuple[float, float], *, distances: bool, cosine: bool
    ) -> tuple[Any, Any, Any]:
        """Return (queries as a codec compares them, part of their scores, which are not valid): see host.py."""
        V, offset, wrong = cupy.empty_like(Q), cupy.empty(len(Q), cupy.float32), cupy.empty(len(Q), bool)
        settings = np.int32(distances), np.int32(cosine), *map(np.float64, limits)
        if len(Q):
            _kernel("prepare")((len(Q),), (256,), (Q, np.int64(Q.shape[1]), mean, *settings, V, offset, wrong))
        return V, offset, wrong

    def weigh(self, whole: Any, factor: float, layout: Any) -> tuple[Any, Any]:
        """Return (values of queries for the codes as float16, the step of each): see host.py."""
        count, width = len(whole), layout.blocks * 32
        values, steps = cupy.empty((count, width), cupy.float16), cupy.empty(count, cupy.float32)
        sizes = np.int64(layout.coded), np.int64(width)
        arguments = (whole, np.int64(whole.shape[1]), np.float32(factor), layout.step, *sizes, values, steps)
        if count:
            _kernel("weigh")((count,), (256,), arguments)
        return values, steps

    def multiply(self, A: Any, B: Any) -> Any:
        """Return the products of all rows of A with all rows of B."""
        few, many = len(A), len(B)
        if not 0 < few <= FEW:
            return A @ B.T
        out = cupy.empty((few, many), cupy.float32)
        arguments = (A, np.int64(few), B, np.int64(many), np.int64(A.shape[1]), out)
        if few <= 4:
            _kernel("multiply_few")((-(-many // 8),), (256,), arguments)
        else:
            _kernel("multiply_some")((-(-many // 16),), (256,), arguments)
        return out

    # -------------------------------------------------------------------------------------------- training.cu

    def sums(self, X: Any, row: Any, first: Any) -> Any:
        """Return the sums of the rows X[row[first[j]:first[j + 1]]]."""
        out = cupy.empty((len(first) - 1, X.shape[1]), cupy.float32)
        _kernel("sums")((len(out),), (256,), (X, np.int64(X.shape[1]), row, first, out))
        return out

    def nearest(self, products: Any, length: Any, norms: Any) -> Any:
        """Return the nearest unit of each row: see host.py."""
        out = cupy.empty(len(products), cupy.int64)
        if len(out):
            _kernel("nearest")((len(out),), (256,), (products, np.int64(products.shape[1]), length, norms, out))
        return out

    def pursue(self, products: Any, length: Any, candidates: Any, nearest: Any, gram: Any, entries: int) -> Any:
        """Return (units, weights) of each row by orthogonal matching pursuit: see host.py."""
        rows, units = products.shape
        unit, weight = cupy.empty((rows, entries), cupy.int64), cupy.empty((rows, entries), cupy.float32)
        width = np.int32(candidates.shape[1])
        arguments = (
            products,
            np.int64(units),
            length,
            candidates,
            width,
            nearest,
            gram,
            np.int64(rows),
            unit,
            weight,
        )
        if rows:
            _kernel("pursue", entries)((-(-rows // 8),), (256,), arguments)
        return unit, weight

    def encode(self, Z: Any, unit: Any, weight: Any, Y: Any, bands: Any) -> Codes:
        """Return the codes of rotated vectors, whose units and weights are known: see host.py."""
        (rows, dim), entries, empty = Z.shape, weight.shape[1], cupy.empty
        sizes = bands.sign_from.size // 8, bands.low_from.size // 8
        scale, factor, square, refinement_scale = (empty(rows, cupy.float32) for _ in range(4))
        sign_bits, low_bits = (empty((rows, size), cupy.uint8) for size in sizes)
        rounded, refinement = empty((rows, entries), cupy.int8), empty((rows, dim), cupy.int8)
        codes = Codes(rounded, scale, factor, square, sign_bits, low_bits, refinement, refinement_scale)
        arguments = (
            *(Z, np.int64(dim), np.int64(bands.bits.size), Y, unit, weight, np.int32(entries)),
            *(bands.deviation, bands.step, bands.bits),
            *(bands.sign_from, np.int64(sizes[0]), bands.low_from, np.int64(sizes[1])),
            *codes,
        )
        if rows:
            _kernel("encode")((rows,), (256 if dim > 128 else 64,), arguments)
        return codes

    # ------------------------------------------------------------------------------------------------ scan.cu

    def near_lists(self, lists: Any, queries: Any, plan: Any, task_tiles: int) -> tuple[Any, Any]:
        """Return (the least rank of the lists that queries read, how many these are): see host.py."""
        count = len(queries)
        limit, totals = cupy.empty(count, cupy.uint32), cupy.empty((3, count), cupy.int64)
        ranks = queries.products, np.int64(lists.codec.units), lists.weight_of, lists.bias_of
        margin = np.float32(plan.margin * lists.deviation)
        deviation = queries.whole, np.int64(queries.whole.shape[1]), lists.variance, margin
        numbers = *map(np.int64, (plan.width, plan.least, plan.enough)), np.int32(lists.rows[-1] > 0)
        known = lists.tiles, *lists.counts, np.int32(task_tiles), queries.wrong
        if count:
            _kernel("near_lists")((count,), _of_lists(count), (*ranks, *deviation, *numbers, *known, limit, totals))
        return limit, totals

    def sum_totals(self, totals: Any, wrong: Any, most: int, capacity: int) -> Any:
        """Return the totals of all queries before each, and of all: see host.py."""
        count = totals.shape[1]
        out = cupy.empty((3, count + 1), cupy.int64)
        limits = map(np.int64, (count, most, capacity))
        _kernel("sum_totals")((1,), (1024,), (totals, *limits, wrong, out))
        return out

    def plan(self, lists: Any, queries: Any, limit: Any, before: Any, task_tiles: int, most: int) -> tuple[Any, ...]:
        """Return the lists that queries read, query by query: see host.py."""
        count = len(queries)
        out = tuple(cupy.empty(most, cupy.int64) for _ in range(4))
        first_task, query = cupy.empty(most + 1, cupy.int64), cupy.empty(most, cupy.int32)
        ranks = queries.products, np.int64(lists.codec.units), lists.weight_of, lists.bias_of
        known = limit, before, np.int32(lists.rows[-1] > 0), lists.tile, lists.tiles, np.int32(task_tiles)
        if count:
            arguments = (*ranks, *known, np.int64(most), *out, first_task, query)
            _kernel("plan")((count,), _of_lists(count), arguments)
        return (*out, first_task, query)

    def scan(self, lists: Any, queries: Any, groups: Any, out: Any) -> None:
        """Write the scores of all pairs of groups: see `gpu.search.Groups`."""
        layout = lists.layout
        arguments = (
            *(lists.codes, np.int64(lists.codes.shape[1]), np.int32(layout.blocks), layout.offset, layout.part_bits),
            *(lists.unit, lists.weight, lists.scale, lists.factor, lists.bias, _pointer(lists.stretch)),
            *(queries.values, queries.step, queries.products),
            *(*(np.int64(stride // 4) for stride in queries.products.strides), queries.offset),
            *(np.int32(len(groups.tile)), groups.first_task, groups.tile, groups.tiles),
            *(_pointer(groups.pair), _pointer(groups.pairs), groups.query, groups.start),
            *(np.int32(groups.task_tiles), out),
        )
        kernel = _kernel("scan", lists.unit.shape[1], lists.unit.dtype.itemsize, int(layout.planes.max()))
        few = groups.pair is None  # many small tasks; otherwise vectors of one list share what they read
        kernel((_processors() * (8 if few else 2),), (128 if few else 512,), arguments)

    def hide(self, lists: Any, number: Any, passing: Any) -> tuple[Any, Any]:
        """Return (biases by which only what passes is found, how many vectors of each list that are): see host.py."""
        bias, visible = cupy.empty_like(lists.bias), cupy.zeros(len(lists.rows), cupy.int64)
        tiles = lists.positions // ROWS
        arguments = passing, number, lists.bias, lists.tile, np.int64(len(lists.rows)), np.int64(tiles), bias, visible
        if tiles:
            _kernel("hide")((-(-tiles // (8 * _HIDDEN)),), (256,), arguments)
        return bias, visible

    def collect(self, lists: Any, queries: Any, scanned: Any, at: Any, out: Any) -> tuple[Any, Any, Any]:
        """Return (estimates, scores with the refinement, ids) of what was written to `out` at some positions."""
        estimates, scores = cupy.empty(at.shape, cupy.float32), cupy.empty(at.shape, cupy.float32)
        ids = cupy.empty(at.shape, cupy.int64)
        stride = 0 if lists.refinement is None else lists.refinement.shape[1]
        arguments = (
            *(at, np.int64(at.size), np.int32(at.shape[1]), out, scanned.start, _pointer(scanned.begin)),
            *(_pointer(scanned.lists), lists.tile, np.int64(lists.positions), _pointer(lists.refinement)),
            *(_pointer(lists.refinement_scale), _pointer(lists.stretch), np.int64(stride)),
            *(queries.whole, np.int64(queries.whole.shape[1]), lists.ids, estimates, scores, ids),
        )
        if at.size:
            _kernel("collect")((-(-at.size // 8),), (256,), arguments)
        return estimates, scores, ids

    # ------------------------------------------------------------------------------------------- diffusion.cu

    def spread(self, graph: Any, rows: Any, y: Any, how: Any, visible: Any) -> tuple[Any, Any, Any]:
        """Return what queries spread to: see host.py."""
        queries, (results, starts), total = len(rows), (rows.shape[1], y.shape[1]), len(graph.ids)
        nodes = min(how.nodes, total)
        most = max(nodes, min(starts, total))
        entries = min(total, most * (1 + graph.neighbors))
        slots, padded = 2 << (entries - 1).bit_length(), 1 << (most - 1).bit_length()
        outside = padded if padded > _PLACES else 0
        each = slots * 12 + entries * 4 + most * (8 + 8 * graph.neighbors + 24) + 8 * outside
        blocks = min(queries, 2 * _processors(), max(1, int(_free_bytes() // (2 * each))))
        out = cupy.empty((queries, results)), cupy.empty((queries, nodes), cupy.int64), cupy.empty((queries, nodes))
        if not queries:
            return out
        scratch = (
            *(cupy.zeros(blocks * slots, cupy.uint32), cupy.zeros(blocks * slots, cupy.uint64)),
            *(cupy.empty(blocks * entries, cupy.uint32), *(cupy.empty(blocks * most, cupy.int32) for _ in range(2))),
            *(cupy.empty(blocks * most * graph.neighbors, cupy.int64), cupy.empty(3 * blocks * most, cupy.float64)),
            cupy.empty(max(1, blocks * outside), cupy.uint64),
        )
        lists = graph.low, graph.high, np.int32(graph.high.dtype.itemsize == 2), graph.level
        edges = graph.mutual, np.int64(graph.mutual.shape[1]), np.int32(graph.neighbors), graph.gain, graph.cube
        sizes = np.int64(queries), np.int32(results), np.int32(starts)
        settings = np.float64(how.alpha), *map(np.int32, (min(how.hops, total), nodes, STEPS)), np.float64(PRECISION)
        arguments = (
            *(*lists, np.int64(graph.level.shape[1]), *edges, cupy.ascontiguousarray(rows)),
            *(cupy.ascontiguousarray(y), *sizes, _pointer(visible), *settings),
            *(*map(np.int64, (most, padded, entries, slots)), *scratch, np.int32(nodes), *out),
        )
        _kernel("spread")((blocks,), (_SPREADING,), arguments)
        return out


def _free_bytes() -> int:
    """Return the bytes that new arrays may have."""
    return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())


def _of_lists(count: int) -> tuple[int]:
    """Return the threads of a block that ranks the lists of one of some queries."""
    return (_FEW_THREADS if count <= _processors() else _THREADS,)


def _pointer(array: Any) -> Any:
    """Return an array as a pointer, which is null without one."""
    return np.uint64(0 if array is None else array.data.ptr)


def _sorted(values: Any, first: Any, last: Any, k: int) -> Any:
    """As `CudaKernels.best`, by sorting all values of each range."""
    out = cupy.full((len(first), k), -1, cupy.int64)
    for row, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        part = cupy.where(cupy.isnan(values[a:b]), -cupy.inf, values[a:b]).astype(cupy.float64)
        order = cupy.lexsort(cupy.stack([cupy.arange(b - a, dtype=cupy.float64), -part]))[:k]
        out[row, : len(order)] = a + order
    return out


def _kernel(name: str, entries: int = 4, unit_bytes: int = 2, bits: int = 2) -> Any:
    return _loaded(name, entries, unit_bytes, bits, int(cupy.cuda.runtime.getDevice()))


@cache
def _loaded(name: str, entries: int, unit_bytes: int, bits: int, device: int) -> Any:
    """Return a kernel for codes of so many entries and bits, and numbers of units of so many bytes."""
    return _module(entries, unit_bytes, bits, device).get_function(name)


@cache
def _module(entries: int, unit_bytes: int, bits: int, device: int) -> Any:
    unit = {2: "unsigned short", 4: "unsigned int"}[unit_bytes]
    numbers = f"-DENTRIES={entries}", f"-DBITS={bits}", f"-DMOST={MOST}", f"-DHIDDEN={_HIDDEN}"
    options = ("-std=c++17", f"-DUNIT={unit}", *numbers)
    code = "".join(Path(__file__).with_name(name).read_text() for name in _SOURCES)
    return cupy.RawModule(code=code, options=options)


@cache
def _processors() -> int:
    return int(cupy.cuda.Device().attributes["MultiProcessorCount"])
