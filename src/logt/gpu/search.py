"""Search on a device, (lists, Q) -> ranking.

All pairs of a query and a list are gathered by list, so that the vectors of each are read once, and compared with its
queries by a product of matrices.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np

from logt._internal.recall_curve import RecallCurve
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ids, Metric
from logt._internal.validation import MAX_NORM, MIN_NORM
from logt.gpu.device import Device
from logt.gpu.host import MOST, ROWS
from logt.gpu.lists import DeviceLists, bytes_needed
from logt.lists.calibration import measure_curve
from logt.lists.inverted_lists import MARGINS, SURE, CandidateDepths, Probe, ScanLimits
from logt.lists.sampling import sample_queries
from logt.lists.segment import ListSegment, by_codec
from logt.lists.shards import Candidates

FEW = 64
"""Up to so many queries, lists are not gathered: each query has its own, and nothing waits for the device."""

_QUERIES_MEASURED = {True: 128, False: 16}  # on a GPU, and by the reference implementation
_QUERIES = 32  # that one task of a scan compares (scan.cu)
_ONE_TILES, _FEW_TILES, _TILES = 4, 16, 64  # tiles of vectors of a task: few queries have few tasks
_ONE = 8  # queries at most
_SPARE, _PAIRS = 4, 16  # times as many positions and lists as on average that few queries have space for
_DEEPER = 4  # times as many candidates as on a CPU: they take little time
_OF_PAIR = 16  # floats that are kept of a query and a list
_ANY = 1 << 62


@dataclass(frozen=True, eq=False)
class DeviceQueries:
    """Queries in the terms of a codec, on the device.

    whole: rotated, (count, dim). values, step: for the codes, as float16 times a step each. products: with all units.
    offset: of all scores of a query. wrong: which are not valid.
    """

    whole: Any
    values: Any
    step: Any
    products: Any
    offset: Any
    wrong: Any

    def __len__(self) -> int:
        return len(self.whole)


@dataclass(frozen=True, eq=False)
class Groups:
    """What a scan compares: group g has some tiles of vectors from tile[g] on, and some pairs from pair[g] on.

    pair, pairs: None if each group has one. query, start: of each pair, its query and where the scores of the group's
    vectors are written. first_task: the number of tasks before each group, and of all. task_tiles: tiles of a task.
    """

    tile: Any
    tiles: Any
    pair: Any
    pairs: Any
    query: Any
    start: Any
    first_task: Any
    task_tiles: int

    @classmethod
    def create(cls, xp: Any, tile: Any, tiles: Any, pair: Any, pairs: Any, query: Any, start: Any) -> Groups:
        """Return groups with the tasks that follow from their sizes."""
        tasks = -(-tiles // _TILES) * -(-pairs // _QUERIES)
        first_task = xp.zeros(len(tile) + 1, np.int64)
        first_task[1:] = xp.cumsum(tasks)
        return cls(tile, tiles, pair, pairs, query, start, first_task, _TILES)


@dataclass(frozen=True, eq=False)
class ScannedLists:
    """What some queries read.

    begin: where the lists of each query start, and all end. lists, start: each, and where its scores start; all are
    None if all vectors are read. first, last: where the scores of each query start, and end. total: of all scores, at
    most. longest: of those of a query, about, at most, if it is known.
    """

    begin: Any
    lists: Any
    start: Any
    first: Any
    last: Any
    total: int
    longest: int | None
    groups: Groups


@dataclass(frozen=True)
class Plan:
    """How much searches of some lists read, as far as it is known before the queries are: as Extent of readers.hpp.

    wanted: candidates by code, more than a CPU keeps. everything: all vectors are read. margin: the lists that score
    at most so many deviations of the query less than its best one; negative if it is not known. width, least, enough:
    more lists until they are so many, hold so many vectors, and so many that can be found. lists, positions: that a
    query reads, on average. longest: positions that few queries have space for, each.
    """

    wanted: int
    everything: bool
    margin: float
    width: int
    least: int
    enough: int
    lists: int
    positions: float
    longest: int

    @classmethod
    def of(cls, lists: DeviceLists, limits: ScanLimits, k: int) -> Plan:
        """Return how much a search for k results reads."""
        wanted = max(k, limits.candidates)
        units, others = lists.codec.units, int(lists.visible[-1])
        rows, visible = int(lists.rows[:-1].sum()), int(lists.visible[:-1].sum())
        if limits.everything or not rows:
            return cls(wanted, True, -1, 0, 0, 0, 0, lists.positions, lists.positions)
        wider = rows / max(visible, 1)  # a filter hides vectors of each list
        usual = min(math.ceil((limits.nprobe or units**limits.lists) * wider), units)
        enough = max(0, min(wanted, visible + others) - others)
        positions = lists.positions * min(1.0, (usual + 1) / len(lists.rows))
        reads = usual, positions, min(lists.positions, math.ceil(_SPARE * positions))
        margins = lists.codec.measured.margins
        if lists.refinement is not None and not limits.nprobe:
            wanted = max(wanted, min(_DEEPER * wanted, MOST))
        if limits.nprobe or not len(margins):
            return cls(wanted, False, -1, usual, int(limits.least * wider), enough, *reads)
        exponent = min(1.0, limits.lists + math.log(wider) / math.log(max(units, 2)))
        margin = float(np.interp(exponent, np.linspace(0, 1, MARGINS), margins[0]))
        return cls(wanted, False, margin, 1, 0, enough, *reads)


class Found(NamedTuple):
    """Results of a search on the device: scores, ids, which queries are not valid, and the vectors read for each."""

    scores: Any
    ids: Any
    wrong: Any
    read: int


class _Candidates(NamedTuple):
    """The best candidates of one codec: (estimates, scores, ids); which queries are not valid; vectors read."""

    columns: tuple[Any, ...]
    wrong: Any
    read: int


class DeviceSearcher:
    """What searches read: the segments of an index on a device, codec by codec."""

    def __init__(self, device: Device, segments: Sequence[ListSegment], metric: Metric):
        self.device, self.metric = device, metric
        groups = list(by_codec(segments).values())
        with device.active():
            device.require(
                sum(bytes_needed(device, same) for same in groups) + device.workspace * bool(groups),
                f"an index of {sum(map(len, segments)):,} vectors",
                "use a card with more memory, or shards on several (logt.distributed)",
            )
            self.parts = [DeviceLists.from_segments(device, same, distances=metric != "ip") for same in groups]
            for part in self.parts:
                _ = part.counts  # they are there before a search is recorded
            device.synchronize()  # recorded searches have streams of their own
        codecs = [part.codec for part in self.parts]
        self._segments = segments
        self._curves: tuple[list[RecallCurve], list[RecallCurve]] | None = None  # measured when they are needed
        self._measuring = threading.Lock()
        refine = any(part.refinement is not None for part in self.parts)
        self.depths = CandidateDepths.total(codec.measured.depths for codec in codecs) if refine else None
        self.count = sum(segment.count for segment in segments)

    @property
    def nbytes(self) -> int:
        """The bytes on the device."""
        return sum(part.nbytes for part in self.parts)

    def limits(self, probe: Probe, k: int) -> ScanLimits:
        """Return how much a search for k results reads: as on a CPU without a neighbor graph, in one round."""
        curves: list[RecallCurve] = []
        if probe.effort is None and probe.nprobe is None:
            with self._measuring:
                if self._curves is None:
                    self.measure()
                curves = (self._curves or ([], []))[probe.recall >= SURE]
        return probe.limits(k, depths=self.depths, curves=curves)

    def measure(self, Q: Floats | None = None) -> None:
        """Measure the recall of searches by effort, with queries Q or vectors of the segments.

        Without Q, the searches for a recall of SURE also find it for means of some vectors.
        """
        listed, count = any(not segment.flat for segment in self._segments), _QUERIES_MEASURED[self.device.cuda]
        if not listed:
            self._curves = [], []
        elif Q is not None:
            tuned = [measure_curve(self, Q, None)]
            self._curves = tuned, tuned
        else:
            sampled, own = sample_queries(self._segments, count, np.random.default_rng(0))
            vectors = own >= 0
            usual = measure_curve(self, np.ascontiguousarray(sampled[vectors]), own[vectors])
            self._curves = [usual], [measure_curve(self, sampled, own)]

    def search(self, Q: Floats, k: int, limits: ScanLimits, workers: Workers = SERIAL) -> tuple[Floats, Ids, Array]:
        """Return (scores, ids, counts) on the host, as `ListSearcher.search`."""
        with self.device.active():
            found = self.find(self.device.put(Q), k, limits)
            counts = np.zeros((len(Q), 5), np.int64)
            counts[:, 1] = found.read
            return self.device.get(found.scores), self.device.get(found.ids), counts

    def candidates(self, Q: Floats, limits: ScanLimits, workers: Workers = SERIAL) -> Candidates:
        """Return all `limits.candidates` of each row of Q, on the host, as `ListSearcher.candidates`."""
        with self.device.active():
            found = [self._candidates(self.device.put(Q), 1, limits, part).columns for part in self.parts]
            return Candidates(*map(self.device.get, _joined(self.device.xp, found)))

    def find(
        self,
        Q: Any,
        k: int,
        limits: ScanLimits,
        parts: Sequence[DeviceLists] | None = None,
        capacity: int | None = None,
    ) -> Found:
        """Return the best k for each row of Q.

        Q: float32 on the device, where the results are. parts: the lists that are searched, all by default. capacity:
        of up to FEW queries, the scores that there is space for, so that nothing waits for the device; if the queries
        read more, all are marked as wrong.
        """
        xp, kernels = self.device.xp, self.device.kernels
        parts = self.parts if parts is None else parts
        found = [self._candidates(Q, k, limits, part, capacity) for part in parts]
        if not found or not len(Q):
            nothing = xp.empty((len(Q), 0), np.float32), xp.empty((len(Q), 0), np.int64)
            return Found(*nothing, self._wrong(Q), 0)
        _, scores, ids = _joined(xp, [part.columns for part in found])
        k = min(k, scores.shape[1])
        best = kernels.best(scores.ravel(), *_rows_of(xp, *scores.shape), k, longest=scores.shape[1])
        read = sum(part.read for part in found) // len(Q)
        wrong = reduce(or_, (part.wrong for part in found))
        return Found(scores.ravel()[best], ids.ravel()[best], wrong, read)

    def _wrong(self, Q: Any) -> Any:
        """Return which queries are not valid, without lists to compare them with."""
        mean, cosine = self.device.xp.zeros(Q.shape[1], np.float32), self.metric == "cosine"
        return self.device.kernels.prepare(Q, mean, (MIN_NORM, MAX_NORM), distances=False, cosine=cosine)[2]

    # ------------------------------------------------------------------------------------------- one codec

    def _candidates(
        self, Q: Any, k: int, limits: ScanLimits, lists: DeviceLists, capacity: int | None = None
    ) -> _Candidates:
        """Return the best candidates of one codec. Queries are searched for in blocks, as the memory allows.

        capacity: as of `find`.
        """
        xp, plan, read = self.device.xp, Plan.of(lists, limits, k), 0
        floats = self.device.workspace // 4
        rows = max(1, min(len(Q), int(floats / max(plan.positions, 1)), floats // len(lists.rows)))
        if capacity is not None:
            rows, floats = max(1, len(Q)), max(floats, capacity)
        columns, wrong = [], []
        blocks = split_range(len(Q), rows)[::-1]
        while blocks:
            block = blocks.pop()
            queries = self._queries(lists, Q[block], ranked=not plan.everything)
            count = block.stop - block.start
            scanned = self._read(lists, queries, plan, capacity, floats if count > 1 else None)
            if scanned is None:  # they read more than on average
                middle = block.start + count // 2
                blocks += [slice(middle, block.stop), slice(block.start, middle)]
                continue
            columns.append(self._scored(lists, queries, scanned, plan.wanted))
            wrong.append(queries.wrong)
            read += scanned.total
        if len(columns) == 1:
            return _Candidates(columns[0], wrong[0], read)
        joined = tuple(xp.concatenate(parts) for parts in zip(*columns, strict=True))
        return _Candidates(joined, xp.concatenate(wrong) if wrong else xp.zeros(0, bool), read)

    def _queries(self, lists: DeviceLists, Q: Any, *, ranked: bool) -> DeviceQueries:
        """Return queries as users pass them, float32, in the terms of a codec: as Query of query.hpp.

        ranked: whether they read lists. Otherwise, a scan compares vectors with queries one after the other, whose
        products with a unit are then side by side in memory.
        """
        kernels, distances = self.device.kernels, self.metric != "ip"
        V, offset, wrong = kernels.prepare(
            Q, lists.mean, (MIN_NORM, MAX_NORM), distances=distances, cosine=self.metric == "cosine"
        )
        whole = kernels.multiply(V, lists.rotation)
        values, step = kernels.weigh(whole, 2.0 if distances else 1.0, lists.layout)
        by_query = ranked or len(Q) <= FEW
        products = kernels.multiply(whole, lists.Y) if by_query else kernels.multiply(lists.Y, whole).T
        return DeviceQueries(whole, values, step, products, offset, wrong)

    def _read(
        self, lists: DeviceLists, queries: DeviceQueries, plan: Plan, capacity: int | None, most: int | None
    ) -> ScannedLists | None:
        """Return what queries read; None if there are more than `most` scores. capacity: as of `find`."""
        count, kernels = len(queries), self.device.kernels
        if plan.everything:
            return self._everything(lists, count)
        few = count <= FEW
        task_tiles = (_ONE_TILES if count <= _ONE else _FEW_TILES) if few else _TILES
        limit, totals = kernels.near_lists(lists, queries, plan, task_tiles)
        if capacity is None:
            before = kernels.sum_totals(totals, queries.wrong, _ANY, _ANY)
            pairs, total = (int(number) for number in self.device.get(before[:2, -1]))
            if most is not None and total + _OF_PAIR * pairs > most:
                return None
        else:
            pairs = count * min(len(lists.rows), _PAIRS * (plan.lists + 1))
            total = min(count * lists.positions, capacity)
            before = kernels.sum_totals(totals, queries.wrong, pairs, total)
        unit, tile, tiles, start, first_task, query = kernels.plan(lists, queries, limit, before, task_tiles, pairs)
        if few:
            groups = Groups(tile, tiles, None, None, query, start, first_task, task_tiles)
        else:
            groups = self._by_list(lists, unit, query, start)
        longest = plan.longest if few else None
        return ScannedLists(before[0], unit, start, before[1, :-1], before[1, 1:], total, longest, groups)

    def _everything(self, lists: DeviceLists, count: int) -> ScannedLists:
        """Return what queries read that are compared with all vectors: one group."""
        xp = self.device.xp
        one, start = xp.ones(1, np.int64), xp.arange(count + 1, dtype=np.int64) * lists.positions
        tiles, query = one * (lists.positions // ROWS), xp.arange(count, dtype=np.int32)
        groups = Groups.create(xp, one * 0, tiles, one * 0, one * count, query, start)
        longest = lists.positions if count <= FEW else None
        return ScannedLists(None, None, None, start[:-1], start[1:], count * lists.positions, longest, groups)

    def _by_list(self, lists: DeviceLists, unit: Any, query: Any, start: Any) -> Groups:
        """Return a group for each list, with the queries that read it."""
        xp = self.device.xp
        order = xp.argsort(unit)
        first = xp.searchsorted(unit[order], xp.arange(len(lists.rows) + 1))
        counts = first[1:] - first[:-1]
        return Groups.create(xp, lists.tile, lists.tiles, first[:-1], counts, query[order], start[order])

    def _scored(
        self, lists: DeviceLists, queries: DeviceQueries, scanned: ScannedLists, wanted: int
    ) -> tuple[Any, ...]:
        """Return (estimates by code, scores, ids) of the `wanted` best of what queries read, by code."""
        xp, kernels = self.device.xp, self.device.kernels
        out = xp.empty(scanned.total, np.float32)
        kernels.scan(lists, queries, scanned.groups, out)
        at = kernels.best(out, scanned.first, scanned.last, min(wanted, lists.positions), longest=scanned.longest)
        columns: tuple[Any, ...] = kernels.collect(lists, queries, scanned, at, out)
        return columns

    def all_scores(self, q: Any, parts: Sequence[DeviceLists] | None = None) -> Iterator[tuple[Floats, Ids]]:
        """Yield (scores, ids) of all vectors that can be found, codec by codec, on the host."""
        xp, kernels = self.device.xp, self.device.kernels
        for lists in self.parts if parts is None else parts:
            queries, everything = self._queries(lists, q[None], ranked=False), self._everything(lists, 1)
            out = xp.empty(lists.positions, np.float32)
            kernels.scan(lists, queries, everything.groups, out)
            seen = xp.flatnonzero(out > -np.inf)
            _, scores, ids = kernels.collect(lists, queries, everything, seen[None], out)
            yield self.device.get(scores[0]), self.device.get(ids[0])


def _joined(xp: Any, found: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return (estimates, scores, ids) of all codecs."""
    return found[0] if len(found) == 1 else tuple(xp.concatenate(part, axis=1) for part in zip(*found, strict=True))


def _rows_of(xp: Any, rows: int, width: int) -> tuple[Any, Any]:
    """Return where the rows of a matrix start and end in its values."""
    starts = xp.arange(rows, dtype=np.int64) * width
    return starts, starts + width
