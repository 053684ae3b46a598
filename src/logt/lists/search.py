"""Search in inverted lists, (segments, Q) -> ranking: one compiled call per block of queries."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from logt import _kernels
from logt._internal.arrays import array_module
from logt._internal.recall_curve import RecallCurve
from logt._internal.segment import models
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt._internal.validation import MAX_NORM, MIN_NORM
from logt.errors import InvalidInputError
from logt.graph.stored_graph import StoredGraph
from logt.lists.codec import Codec
from logt.lists.graph_nodes import no_nodes, nodes_of
from logt.lists.inverted_lists import CandidateDepths, Probe, ScanLimits, efforts_of_lists
from logt.lists.segment import ListSegment
from logt.lists.shards import Candidates, ListTotals, segment_totals
from logt.lists.visible import VisibleRows
from logt.results import SearchResult

_BLOCK = 1 << 16  # rows whose scores are held at a time where all are computed
_FEW, _MANY = 16, 64  # queries per task, as there are threads for
_NO_MASK = np.empty(0, bool)

MOST_WALKED = 1000
"""For more results than this, a search does not use the neighbor graph: reading lists is faster."""

PreparedSearch = Callable[[Floats], SearchResult | None]
"""From one query, (dim,) or (1, dim), to scores as users see them, and ids; None if the query is not valid."""


class ListSearcher:
    """What one search reads: segments, and which of their rows are visible."""

    def __init__(
        self,
        segments: Sequence[ListSegment],
        visible: Sequence[Mask | Ids] | None = None,
        codecs: Sequence[Codec] | None = None,
        totals: Sequence[ListTotals] | None = None,
        graph: StoredGraph | None = None,
        like: str | None = None,
    ):
        """visible: the rows of each segment that can be found, as a mask or as a list; None means all.

        codecs, totals: of the whole index, if the segments are those of one shard. graph: the neighbor graph. like:
        the kind of queries.
        """
        self._searcher = _kernels.ListSearcher()
        self._segments = list(segments)
        self._visible: list[VisibleRows] = []
        self.codecs: list[Codec] = models(self._segments) if codecs is None else list(codecs)
        self.distances: bool = any(len(segment.bias) for segment in segments)
        refine = any(len(segment.refinement_scale) for segment in segments)
        used = [codec.of_kind(like) for codec in self.codecs]
        self.curves: list[RecallCurve] = [measured.curve for measured in used if measured.curve]
        self._like = like
        depths = (measured.depths for measured in used)
        self.depths: CandidateDepths | None = CandidateDepths.total(depths) if refine else None
        self.count: int = 0
        self._listed: dict[int, Codec] = {}  # codecs whose lists are read one by one
        self._efforts: dict[bool, Floats] = {}
        self.graph_bytes: int = 0
        numbers = {
            id(codec): codec.add_to(self._searcher, measured, distances=self.distances)
            for codec, measured in zip(self.codecs, used, strict=True)
        }
        for number, segment in enumerate(segments):
            mine = VisibleRows.of(segment, None if visible is None else visible[number], in_place=graph is not None)
            self._add(segment, numbers[id(segment.codec)], mine)
        for part in totals or ():
            self._searcher.add_totals(part.rows, part.visible, part.scanned)
        self.graph: StoredGraph | None = None
        if graph is not None:
            self._set_graph(graph, keep=visible is None)

    def _set_graph(self, graph: StoredGraph, *, keep: bool) -> None:
        """keep: for later snapshots. Not if a visible vector is hidden for this searcher only."""
        nodes = nodes_of(self._segments, graph) if keep else no_nodes(graph).moved_to(self._segments, graph)
        removed = _NO_MASK if graph.removed is None else graph.removed
        parts = [part.compiled for part in nodes.parts]
        self.graph = graph
        self.graph_bytes = self._searcher.set_graph(
            graph.low, graph.high, graph.level, removed, nodes.compiled, parts
        )

    def totals(self) -> list[ListTotals]:
        """Return the vectors of each codec by list; the sums of all shards are the totals of a search."""
        sums = {id(codec): ListTotals.empty(codec) for codec in self.codecs}
        for segment, visible in zip(self._segments, self._visible, strict=True):
            sums[id(segment.codec)] += segment_totals(segment, visible)
        return list(sums.values())

    def _add(self, segment: ListSegment, codec: int, rows: VisibleRows) -> None:
        self._visible.append(rows)
        self.count += rows.count
        if not segment.flat and rows.position is None:
            self._listed[id(segment.codec)] = segment.codec
        rows.add_to(self._searcher, codec)

    def limits(self, probe: Probe, k: int) -> ScanLimits:
        """Return how much a search for k results reads; it follows from the measured curves of the codecs."""
        graph = self.graph
        limits = search_limits(probe, k, self.depths, self.curves, None if graph is None else self._linked(graph))
        if graph is not None and limits.beam and probe.beam is None:  # removed vectors lead nowhere
            limits = limits._replace(beam=round(limits.beam * len(graph) / max(graph.count, 1)))
        return limits

    def _linked(self, graph: StoredGraph) -> list[RecallCurve]:
        """Return the curves of searches on the graph, none if these were not measured."""
        if self._like is None:
            return [RecallCurve(graph.recall)] if graph.recall.size else []
        kinds = [codec.kinds[self._like] for codec in self.codecs if self._like in codec.kinds]
        return [kind.linked for kind in kinds if kind.linked and kind.neighbors == graph.k]

    def efforts(self, *, linked: bool) -> Floats:
        """Return the effort at which a query like the collection reads 0, 1, ... lists."""
        known = self._efforts.get(linked)
        if known is None:
            known = self._efforts[linked] = efforts_of_lists([c.units for c in self._listed.values()], linked=linked)
        return known

    def search(self, Q: Floats, k: int, limits: ScanLimits, workers: Workers = SERIAL) -> tuple[Floats, Ids, Array]:
        """Return (scores, ids, counts): the best k for each row of Q, and what was read for it."""
        _, scores, ids, counts = self._search(Q, min(k, self.count), limits, workers, keyed=False)
        return scores, ids, counts

    def candidates(self, Q: Floats, limits: ScanLimits, workers: Workers = SERIAL) -> Candidates:
        """Return all `limits.candidates` of each row of Q, to be merged with those of other shards."""
        keys, scores, ids, _ = self._search(Q, min(limits.candidates, self.count), limits, workers, keyed=True)
        return Candidates(keys, scores, ids)

    def _search(
        self, Q: Floats, k: int, limits: ScanLimits, workers: Workers, *, keyed: bool
    ) -> tuple[Floats, Floats, Ids, Array]:
        """Return (keys if they are wanted, scores, ids, counts)."""
        scores, ids = np.empty((len(Q), k), np.float32), np.empty((len(Q), k), np.int64)
        keys = np.empty((len(Q) if keyed else 0, k), np.float32)
        counts = np.zeros((len(Q), 4), np.int64)
        compiled = _kernels.ScanLimits(*limits)

        def fill(rows: slice) -> None:
            out = scores[rows], ids[rows], keys[rows], counts[rows]
            self._searcher.search(Q[rows], self.distances, compiled, *out)

        parts = split_range(len(Q) if k else 0, min(max(-(-len(Q) // workers.threads), _FEW), _MANY))
        if len(parts) == 1:  # no threads to start, and nothing here uses BLAS
            fill(parts[0])
        elif parts:
            workers.map(fill, parts)
        return keys, scores, ids, counts

    def prepare(self, k: int, limits: ScanLimits, *, cosine: bool) -> PreparedSearch | None:
        """Return the search for k results of one query, as one compiled call; None if there are fewer."""
        if k > self.count:
            return None
        search_one, distances, compiled = self._searcher.search_one, self.distances, _kernels.ScanLimits(*limits)
        checks = cosine, MIN_NORM, MAX_NORM

        efforts = self.efforts(linked=limits.beam > 0)

        def search(q: Floats) -> SearchResult | None:
            shape = (*q.shape[:-1], k)
            scores, ids = np.empty(shape, np.float32), np.empty(shape, np.int64)
            lists = search_one(q, *checks, distances, compiled, scores, ids)
            if lists is None:
                return None
            return SearchResult(scores, ids).with_effort(
                efforts[lists] if q.ndim == 1 else efforts[lists : lists + 1]
            )

        return search

    def all_scores(self, q: Floats) -> Iterator[tuple[Floats, Ids]]:
        """Yield, block by block, (the scores of visible rows, their ids), from all that is kept."""
        for number, segment in enumerate(self._segments):
            row = self._visible[number].row
            for block in split_range(len(row), _BLOCK):
                scores = np.empty(block.stop - block.start, np.float32)
                self._searcher.scores(number, q, self.distances, block.start, scores)
                chosen = np.flatnonzero(scores > -np.inf)
                yield scores[chosen], segment.ids[row[block][chosen]]


@dataclass(frozen=True)
class ListSearch:
    """The search of an index: as that of a searcher, with scores as users see them."""

    segments: Sequence[ListSegment]
    metric: Metric
    visible: Sequence[Mask | Ids] | None = None
    graph: StoredGraph | None = None

    @cached_property
    def searcher(self) -> ListSearcher:
        """The searcher for queries of no special kind."""
        return ListSearcher(self.segments, self.visible, graph=self.graph)

    @cached_property
    def _of_kind(self) -> dict[str, ListSearcher]:
        return {}

    def _searcher_for(self, like: str | None) -> ListSearcher:
        """Return the searcher for a kind of queries."""
        if like is None or not self.segments:
            return self.searcher
        if like not in self._of_kind:
            known = sorted({name for codec in models(self.segments) for name in codec.kinds})
            if like not in known:
                names = ", ".join(map(repr, known)) or "none"
                raise InvalidInputError(
                    f"the index was not tuned with queries like {like!r}: index.tune(Q, name={like!r}) does that. "
                    f"Known kinds: {names}"
                )
            self._of_kind[like] = ListSearcher(self.segments, self.visible, graph=self.graph, like=like)
        return self._of_kind[like]

    def search(self, Q: Floats, k: int, probe: Probe, workers: Workers = SERIAL) -> SearchResult:
        """Return (scores, ids), (nq, at most k) each, best first."""
        searcher = self._searcher_for(probe.like)
        limits = searcher.limits(probe, k)
        scores, ids, counts = searcher.search(Q, k, limits, workers)
        efforts = searcher.efforts(linked=limits.beam > 0)
        return SearchResult(user_scores(scores, self.metric), ids).with_effort(efforts[counts[:, 0]])

    def prepare(self, k: int, probe: Probe) -> PreparedSearch | None:
        """Return the search for k results of one query."""
        searcher = self._searcher_for(probe.like)
        return searcher.prepare(k, searcher.limits(probe, k), cosine=self.metric == "cosine")

    def all_scores(self, q: Floats) -> Iterator[tuple[Floats, Ids]]:
        """Return (scores, ids) of all visible vectors, block by block."""
        return all_user_scores(self.searcher, self.metric, q)

    @property
    def nbytes(self) -> int:
        """The bytes of what the search keeps beside the segments and the graph."""
        return self.searcher.graph_bytes


def all_user_scores(searcher: ListSearcher, metric: Metric, q: Floats) -> Iterator[tuple[Floats, Ids]]:
    """Yield (scores as users see them, ids) of all visible vectors, block by block."""
    for scores, ids in searcher.all_scores(q):
        yield user_scores(scores, metric), ids


def search_limits(
    probe: Probe,
    k: int,
    depths: CandidateDepths | None,
    curves: Sequence[RecallCurve],
    linked: Sequence[RecallCurve] | None,
) -> ScanLimits:
    """Return how much a search for k results reads.

    depths, curves: of the codecs, as of `Probe.limits`. linked: the curves of searches on the neighbor graph, none if
    these were not measured; None if there is no graph.
    """
    if probe.beam == 0 or k > MOST_WALKED:
        linked = None
    if curves and not linked and probe.effort is None and probe.beam is None:
        linked = None  # how far a search on the graph must go for a recall was not measured
    return probe.limits(k, depths=depths, curves=curves, graph=linked)


def user_scores(scores: Floats, metric: Metric) -> Floats:
    """Return the scores of lists as users see them: lists give −‖q − x‖², except under inner product.

    Under cosine, vectors have norm 1, so that q·x = 1 − ‖q − x‖² / 2. A distance keeps its precision where all
    vectors point in nearly the same direction. An estimate of a distance may be below 0; none is returned.
    """
    if metric == "ip":
        return scores
    distances: Floats = array_module(scores).maximum(-scores, 0)
    return distances if metric == "l2" else np.float32(1) - distances / np.float32(2)
