"""The default method: inverted lists of sparse codes, and a few bits per dimension of the residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import numpy as np

from logt._internal.params import SearchParams
from logt._internal.recall_curve import RecallCurve
from logt._internal.removals import LoggedChange, Removals
from logt._internal.segment import BuildSettings
from logt._internal.threads import Workers
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt._internal.validation import FloatRows, check_effort, check_fields, check_fraction, check_int
from logt.errors import InvalidInputError
from logt.graph.stored_graph import StoredGraph
from logt.lists.calibration import calibrate, calibrate_changed, calibrate_graph
from logt.lists.codec import Codec, CodecSettings
from logt.lists.inverted_lists import Probe
from logt.lists.merge_policy import Merge, merge_all, merge_small
from logt.lists.repeating import Planned, repeat_changes
from logt.lists.residual import MAX_BITS, usual_bits
from logt.lists.search import ListSearch
from logt.lists.segment import ListSegment, merge_segments
from logt.lists.training import MIN_CHECKED, Training, codec_for_batch, has_drifted, may_pause

Segments = tuple[ListSegment, ...]


@dataclass(frozen=True)
class Sketched:
    """Inverted lists with residual codes; `logt.methods.sketched` describes the parameters."""

    bits: int | None = None
    L: int = 4
    units: int | None = None
    refine: bool = True
    recall: float = 0.95
    effort: float | None = None

    segment_size: ClassVar[int] = 1 << 20
    model_types: ClassVar[dict[str, type[Codec]]] = {"Codec": Codec}
    thorough: ClassVar[Probe] = Probe(recall=0.9, recall_at=100)

    def __post_init__(self) -> None:
        check_fields(self, bits=check_int, L=check_int, units=check_int, recall=check_fraction, effort=check_effort)
        object.__setattr__(self, "refine", bool(self.refine))
        if self.bits is not None and self.bits > MAX_BITS:
            raise InvalidInputError(f"bits must be from 1 to {MAX_BITS}, got {self.bits!r}")

    def describe(self) -> str:
        """Return the call of `sketched` that makes this method."""
        changed = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default)
        return f"sketched({', '.join(changed)})"

    def codec_settings(self, dim: int, vectors: int) -> CodecSettings:
        """Return what a codec for so many vectors is trained for."""
        units = min(vectors, self.units or round(4 * vectors**0.5))
        return CodecSettings(units, self.L, self.bits or usual_bits(dim), self.refine)

    # ------------------------------------------------------------------------------------------------ building

    def add(
        self, segments: Segments, rows: Array, ids: Ids, settings: BuildSettings, workers: Workers
    ) -> tuple[Segments, ListSegment | None]:
        """Return the segments with a batch of new vectors, whose ids increase, and what `repeat` needs of it.

        That is the segment of the batch; None if a codec was trained or measured.
        """
        rng = np.random.default_rng([settings.seed, len(segments), sum(segment.count for segment in segments)])
        vectors: Any = FloatRows(rows, normalize=settings.metric == "cosine")
        if settings.builder is not None:
            vectors = rows = settings.builder.rows(rows)
        train = Codec.train if settings.builder is None else settings.builder.train
        codec_settings = partial(self.codec_settings, rows.shape[1])
        training = codec_for_batch(segments, vectors, codec_settings, rng, workers, train)
        codec = training.codec
        kept = (segment for segment in segments if segment not in training.again)
        again = [self.encode(*_live_rows(segment), 0, codec, settings, workers) for segment in training.again]
        new = [self.encode(rows[part], ids[part], 0, codec, settings, workers) for part in settings.parts(len(rows))]
        grown = _merge_tiny((*kept, *again, *new), len(rows), settings)
        newest = grown[-1]
        if len(rows) < MIN_CHECKED <= newest.count and has_drifted(newest, rng):
            return self.add(grown[:-1], *_live_rows(newest), settings, workers)[0], None
        grown = _merge_checked(grown, settings)
        measured = _measure(grown, segments, training, rng, workers, settings.builder)
        return measured, new[0] if measured == grown and not training.new and len(new) == 1 else None

    def repeat(
        self, segments: Segments, log: Sequence[LoggedChange], removals: Removals, dim: int, settings: BuildSettings
    ) -> tuple[Segments, int]:
        """Return the segments after the changes of a log, and how many of these precede the first that counts."""

        def join(planned: tuple[Planned, ...], new: Planned) -> tuple[Planned, ...]:
            joined = _merge_tiny((*planned, new), new.count, settings, Planned.of)
            return tuple(_merge_checked(joined, settings, Planned.of))

        def check(segment: ListSegment) -> None:
            self.check_segment(segment, dim, settings.metric)

        return repeat_changes(segments, log, removals, join, check)

    def encode(
        self, rows: Any, ids: Ids, number: int, codec: Codec | None, settings: BuildSettings, workers: Workers
    ) -> ListSegment:
        """Return the segment of some vectors on its own, encoded with a codec."""
        if codec is None:
            raise TypeError("vectors of inverted lists are encoded with a codec")
        if settings.builder is not None:
            segment: ListSegment = settings.builder.encode(
                codec, rows, ids, workers, distances=settings.metric != "ip"
            )
            return segment
        vectors = FloatRows(rows, normalize=settings.metric == "cosine")
        return ListSegment.build(codec, vectors, ids, distances=settings.metric != "ip", workers=workers)

    def compact(self, segments: Segments, settings: BuildSettings, workers: Workers) -> Segments:
        """Free the space of removed vectors, merge segments, and measure codecs whose vectors have changed."""
        merged = merge_all(segments, settings.segment_size)
        return calibrate_changed(merged, np.random.default_rng(settings.seed), workers)

    def measure_graph(
        self, segments: Segments, graph: StoredGraph, rng: np.random.Generator, workers: Workers
    ) -> StoredGraph:
        """Return the graph with the measured accuracy of searches that use it."""
        return calibrate_graph(segments, graph, None, rng, workers)

    # ------------------------------------------------------------------------------------------------- search

    def limits(self, params: SearchParams) -> Probe:
        """Return how much a search reads."""
        if params.p is not None or params.R is not None:
            raise InvalidInputError("p and R set a cascade; this method probes inverted lists: set effort or nprobe")
        if params.recall is not None:
            return Probe(recall=params.recall, recall_at=RecallCurve.KS[-1], beam=params.beam, like=params.like)
        effort = self.effort if params.effort is None else params.effort
        return Probe(effort, nprobe=params.nprobe, recall=self.recall, beam=params.beam, like=params.like)

    def search(
        self, segments: Segments, metric: Metric, visible: Sequence[Mask | Ids] | None, graph: StoredGraph | None
    ) -> ListSearch:
        """Return the search of some segments. visible: their rows that can be found; None means all."""
        return ListSearch(segments, metric, visible, graph)

    def operations(self, segments: Segments, probe: Probe) -> float:
        """Return about how many operations a search takes after it has compared the query with the units.

        The codes of lists of mean size are counted, and one operation per dimension for each vector of 1/8 of them,
        which is about how many residuals are read; `ListSearcher.search` returns the exact number.
        """
        total = sum(segment.count for segment in segments)
        return sum(_scanned(segment, probe, segment.count / total) for segment in segments)

    # ------------------------------------------------------------------------------------------------- storage

    def read_segment(self, model: Codec, arrays: Mapping[str, Array]) -> ListSegment:
        """Build a segment from stored arrays; raise ValueError if they do not fit together."""
        return ListSegment.from_arrays(model, arrays)

    def check_segment(self, segment: Any, dim: int, metric: Metric) -> None:
        """Raise InvalidInputError unless a segment that was read from disk fits the index."""
        codec: Codec = segment.codec
        if codec.dim != dim:
            raise InvalidInputError(f"a segment has dimension {codec.dim}, not {dim}")
        if (len(segment.bias) > 0, codec.normalized) != (metric != "ip", metric == "cosine"):
            raise InvalidInputError("the norms do not fit the metric")


def _merge_tiny(segments: Any, added: int, settings: BuildSettings, merge: Merge = merge_segments) -> Any:
    """Merge segments that are too small to show whether their codec fits, after so many vectors were added."""
    if added >= MIN_CHECKED:
        return segments
    return merge_small(segments, settings.segment_size, below=MIN_CHECKED, merge=merge)


def _merge_checked(segments: Any, settings: BuildSettings, merge: Merge = merge_segments) -> Any:
    """Merge the newest segment with others, unless its vectors are too few to check whether their codec fits."""
    return segments if segments[-1].count < MIN_CHECKED else merge_small(segments, settings.segment_size, merge=merge)


def _measure(
    segments: Segments,
    before: Segments,
    training: Training,
    rng: np.random.Generator,
    workers: Workers,
    builder: Any = None,
) -> Segments:
    """Return the segments with the measured accuracy of a codec that is new, or that has many more vectors now."""
    if training.new:
        own = [segment for segment in segments if segment.codec is training.codec]
        full = None if builder is None else builder.searcher(own)
        measured = calibrate(own, None, rng, workers, full=full)
        return (*(segment for segment in segments if segment not in own), *measured)
    existing = sum(segment.count for segment in before if segment.codec is training.codec)
    added = max(len(segment) for segment in segments if segment not in before)  # with what was merged with the batch
    return calibrate_changed(segments, rng, workers) if may_pause(existing, added) else segments


def _live_rows(segment: ListSegment) -> tuple[Floats, Ids]:
    """Return (the vectors of a segment as they are kept, their ids), without removed ones."""
    rows = np.flatnonzero(segment.live)
    return segment.reconstruct(rows), segment.ids[rows]


def _scanned(segment: ListSegment, probe: Probe, share: float) -> float:
    """Return the operations of one query in the lists of a segment; `share` is its share of all vectors."""
    codec, M = segment.codec, segment.codec.units
    curve = codec.measured.curve
    limits = probe.limits(1, depths=None, curves=[curve] if curve else [])
    lists = M if limits.everything else min(limits.nprobe or M**limits.lists, M)
    rows = min(len(segment), max(len(segment) * lists / M, limits.least * share))
    if segment.flat:
        rows = len(segment)
    return rows * (codec.entries + (codec.dim if limits.everything else codec.dim / 8))
