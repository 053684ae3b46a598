"""Building, (snapshot, new vectors) -> snapshot: the segments that a batch becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from logt._internal.segment import Segment
from logt._internal.threads import Workers
from logt._internal.types import Floats, Ids
from logt._internal.validation import FloatRows, normalize_rows, row_norms
from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError
from logt.group_testing.decoder import Sparse
from logt.group_testing.method import Method
from logt.group_testing.segment import CodedSegment
from logt.lists.calibration import calibrate, calibrate_changed
from logt.lists.codec import Codec
from logt.lists.merge_policy import merge_tiers
from logt.lists.segment import ListSegment
from logt.lists.training import MIN_CHECKED, Training, codec_for_batch, has_drifted, may_pause
from logt.metrics import Metric

MAX_ROWS = (1 << 31) - 1


@dataclass(frozen=True)
class Builder:
    """How batches become segments: by a method, in equal segments of at most `segment_size` rows."""

    method: Method
    metric: Metric
    seed: int
    segment_size: int | None

    def add(self, snapshot: Snapshot, rows: Any, ids: Ids, workers: Workers) -> Snapshot:
        """Return the snapshot with new vectors, whose ids it knows already."""
        if not len(rows):
            return snapshot
        if -(-len(rows) // len(self._parts(len(rows)))) > MAX_ROWS:
            raise InvalidInputError(
                f"a segment holds at most {MAX_ROWS:,} vectors: pass a segment_size; nothing was added"
            )
        if (np.diff(ids) <= 0).any():  # segments are sorted by id
            order = np.argsort(ids)
            rows, ids = rows[order], ids[order]
        if self.method.probe is not None:
            return self._add_to_lists(snapshot, rows, ids, workers)
        first = len(snapshot.segments)
        parts = enumerate(self._parts(len(rows)), first)
        return snapshot.add_segments([self._code(rows[part], ids[part], number, workers) for number, part in parts])

    def segment(self, rows: Any, ids: Ids, number: int, codec: Codec | None, workers: Workers) -> Segment:
        """Return the segment of some vectors on its own: the one with this number."""
        if codec is not None:
            return self._encode(FloatRows(rows, normalize=self.metric == "cosine"), ids, codec, workers)
        return self._code(rows[:], ids, number, workers)

    def _code(self, rows: Any, ids: Ids, number: int, workers: Workers) -> CodedSegment:
        norms = row_norms(rows)
        rng = np.random.default_rng([self.seed, number])
        segment = self.method.build(normalize_rows(rows, norms), ids, rng, workers)
        return segment if self.metric == "cosine" else replace(segment, norms=norms.astype(np.float32))

    def _add_to_lists(self, snapshot: Snapshot, rows: Any, ids: Ids, workers: Workers) -> Snapshot:
        rng = np.random.default_rng([self.seed, len(snapshot.segments), len(snapshot)])
        vectors = FloatRows(rows, normalize=self.metric == "cosine")
        training = codec_for_batch(snapshot.list_segments, vectors, self.method, rng, workers)
        grown = self._encode_batch(snapshot, rows, ids, training, workers)
        segments = grown.segments
        if len(rows) < MIN_CHECKED:
            segments = merge_tiers(segments, self.segment_size, below=MIN_CHECKED)
            newest = segments[-1]
            if newest.count >= MIN_CHECKED and isinstance(newest, ListSegment) and has_drifted(newest, rng):
                others = replace(grown, segments=segments[:-1])
                return self._add_to_lists(others, *_live_rows(newest), workers)
        if segments[-1].count >= MIN_CHECKED:
            segments = merge_tiers(segments, self.segment_size)
        return replace(grown, segments=_measure(segments, snapshot, training, rng, workers))

    def _encode_batch(
        self, snapshot: Snapshot, rows: Any, ids: Ids, training: Training, workers: Workers
    ) -> Snapshot:
        """Return the snapshot with the segments of a batch, and with those that are encoded again."""
        kept = tuple(segment for segment in snapshot.segments if segment not in training.again)
        again = [self._encode(*_live_rows(segment), training.codec, workers) for segment in training.again]
        new = []
        for part in self._parts(len(rows)):
            vectors = FloatRows(rows[part], normalize=self.metric == "cosine")
            new.append(self._encode(vectors, ids[part], training.codec, workers))
        return replace(snapshot, segments=kept).add_segments([*again, *new])

    def _encode(self, vectors: Any, ids: Ids, codec: Codec, workers: Workers) -> ListSegment:
        decode = self.method.decode
        if not isinstance(decode, Sparse):
            raise TypeError(f"inverted lists need sparse codes, not {decode!r}")
        return ListSegment.build(codec, vectors, ids, decode, distances=self.metric != "ip", workers=workers)

    def _parts(self, N: int) -> list[slice]:
        """Return the rows of each segment of a batch."""
        count = -(-N // (self.segment_size or N))
        cuts = np.linspace(0, N, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(cuts)]


def _measure(
    segments: tuple[Segment, ...], before: Snapshot, training: Training, rng: np.random.Generator, workers: Workers
) -> tuple[Segment, ...]:
    """Return the segments with the measured accuracy of a codec that is new, or that has many more vectors now."""
    if training.new:
        own = [s for s in segments if isinstance(s, ListSegment) and s.codec is training.codec]
        return (*(s for s in segments if s not in own), *calibrate(own, None, rng, workers))
    existing = sum(s.count for s in before.list_segments if s.codec is training.codec)
    added = max(len(s) for s in segments if s not in before.segments)  # with what was merged with the batch
    return calibrate_changed(segments, rng, workers) if may_pause(existing, added) else segments


def _live_rows(segment: ListSegment) -> tuple[Floats, Ids]:
    """Return (the vectors of a segment as they are kept, their ids), without removed ones."""
    rows = np.flatnonzero(segment.live)
    return segment.reconstruct(rows), segment.ids[rows]
