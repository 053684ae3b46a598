"""Search in inverted lists, (segments, Q) -> ranking: one compiled call per block of queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from logt import _kernels
from logt._threads import SERIAL, Workers, split_range
from logt._types import Array, Floats, Ids, Mask
from logt.engine.list_segment import ListSegment
from logt.engine.shards import Candidates, ListTotals, segment_totals
from logt.stages.codec import Codec
from logt.stages.inverted_lists import Probe, Reading

_TILE = 16  # queries per task
_KNOWN_READINGS = 64  # kept: most programs use one

NARROW = 8
"""A filter that passes less than 1/NARROW of a segment is searched row by row, not list by list."""


class ListSearcher:
    """What one search reads: segments, and which of their rows are visible."""

    def __init__(
        self,
        segments: Sequence[ListSegment],
        masks: Sequence[Mask | Ids] | None = None,
        codecs: Sequence[Codec] | None = None,
        totals: Sequence[ListTotals] | None = None,
    ):
        """With masks, only the rows of each segment that are set, or listed, are visible.

        codecs, totals: of the whole index, if the segments are those of one shard.
        """
        self._searcher = _kernels.ListSearcher()
        self._segments = list(segments)
        self._visible: list[Mask | Ids | None] = []
        self.codecs = list({id(s.codec): s.codec for s in segments}.values()) if codecs is None else list(codecs)
        self.distances = any(len(segment.bias) for segment in segments)
        self.refine = any(len(segment.supplement_scale) for segment in segments)
        self.curves = [codec.curve for codec in self.codecs if codec.curve]
        self.count = 0
        self._readings: dict[tuple[Probe, int], Reading] = {}
        numbers = {id(codec): codec.add_to(self._searcher, distances=self.distances) for codec in self.codecs}
        for number, segment in enumerate(segments):
            self.count += self._add(segment, numbers[id(segment.codec)], None if masks is None else masks[number])
        for part in totals or ():
            part.add_to(self._searcher)

    def totals(self) -> list[ListTotals]:
        """Return the vectors of each codec by list; the sums of all shards are the totals of a search."""
        sums = {id(codec): ListTotals.empty(codec) for codec in self.codecs}
        for segment, visible in zip(self._segments, self._visible, strict=True):
            sums[id(segment.codec)] += segment_totals(segment, visible)
        return list(sums.values())

    def _add(self, segment: ListSegment, codec: int, mask: Mask | Ids | None) -> int:
        """Add a segment and return how many of its rows are visible."""
        if mask is None:
            segment.add_to(self._searcher, codec)
            self._visible.append(None)
            return segment.count
        by_row = mask.dtype == bool
        count = int(np.count_nonzero(mask)) if by_row else len(mask)
        if count * NARROW <= len(segment):
            rows = np.flatnonzero(mask) if by_row else mask.astype(np.int64)
            segment.add_to(self._searcher, codec, rows=rows)
            self._visible.append(rows)
            return count
        visible = mask.astype(bool) if by_row else np.zeros(len(segment), bool)
        if not by_row:
            visible[mask] = True
        segment.add_to(self._searcher, codec, visible=visible)
        self._visible.append(visible)
        return count

    def reading(self, probe: Probe, k: int) -> Reading:
        """Return how a search for k results reads the lists; it follows from the measured curves of the codecs."""
        known = self._readings.get((probe, k))
        if known is None:
            if len(self._readings) >= _KNOWN_READINGS:
                self._readings = {}
            known = self._readings[probe, k] = probe.reading(k, refine=self.refine, curves=self.curves)
        return known

    def search(self, Q: Floats, k: int, reading: Reading, workers: Workers = SERIAL) -> tuple[Floats, Ids, Array]:
        """Return (scores, ids, counts): the best k for each row of Q, and what was read for it."""
        _, scores, ids, counts = self._search(Q, min(k, self.count), reading, workers, keyed=False)
        return scores, ids, counts

    def candidates(self, Q: Floats, reading: Reading, workers: Workers = SERIAL) -> Candidates:
        """Return all `reading.candidates` of each row of Q, to be merged with those of other shards."""
        keys, scores, ids, _ = self._search(Q, min(reading.candidates, self.count), reading, workers, keyed=True)
        return Candidates(keys, scores, ids)

    def _search(
        self, Q: Floats, k: int, reading: Reading, workers: Workers, *, keyed: bool
    ) -> tuple[Floats, Floats, Ids, Array]:
        """Return (keys if they are wanted, scores, ids, counts)."""
        scores, ids = np.empty((len(Q), k), np.float32), np.empty((len(Q), k), np.int64)
        keys = np.empty((len(Q) if keyed else 0, k), np.float32)
        counts = np.zeros((len(Q), 4), np.int64)

        def fill(rows: slice) -> None:
            out = scores[rows], ids[rows], keys[rows], counts[rows]
            self._searcher.search(Q[rows], self.distances, *reading, *out)

        if k and len(Q) <= _TILE:
            fill(slice(0, len(Q)))  # no threads to start, and nothing here uses BLAS
        elif k:
            workers.map(fill, split_range(len(Q), _TILE))
        return keys, scores, ids, counts

    def all_scores(self, q: Floats) -> Iterator[tuple[Floats, Ids]]:
        """Yield, segment by segment, (the scores of its visible rows, their ids), from all that is kept."""
        for number, segment in enumerate(self._segments):
            scores = np.empty(len(segment), np.float32)
            self._searcher.scores(number, q, self.distances, scores)
            visible = np.flatnonzero(scores > -np.inf)
            yield scores[visible], segment.ids[segment.row[visible]]
