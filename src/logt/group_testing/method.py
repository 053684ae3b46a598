"""The paper's methods, (X, GroupTesting) -> segments: a composition of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

import numpy as np

from logt._internal.arrays import unit_dtype
from logt._internal.params import SearchParams
from logt._internal.removals import LoggedChange, Removals
from logt._internal.segment import BuildSettings, as_row_mask
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt._internal.validation import check_choice, normalize_rows, row_norms
from logt.errors import InvalidInputError
from logt.group_testing.cascade import Cascade, prefix_lengths
from logt.group_testing.codes import Codes
from logt.group_testing.correction import Suppress
from logt.group_testing.decoder import GroupPinv, Sparse, Transpose
from logt.group_testing.dictionary import DictionaryLearning
from logt.group_testing.grouping import KMeans, Orthogonal, Random, Units
from logt.group_testing.memory_vectors import Mean, Pinv, Sum
from logt.group_testing.quantize import CODEBOOKS, Codebook, Float32, Int8, ProductQuantizer
from logt.group_testing.search import DecodeSearch, Limits, MaskedSegment
from logt.group_testing.segment import CodedSegment, effective_codebook

Segments = tuple[CodedSegment, ...]
Graph = TypeVar("Graph")


@dataclass(frozen=True)
class GroupTesting:
    """A composition of stages. Its repr is the configuration of an experiment; `dataclasses.replace` makes a sweep.

    group: X -> units. memory: X, units -> memory vectors Y. quantize: Y -> Ŷ, how they are stored. decode: X, Ŷ ->
    the codes U. correct: the correction of rankings. cascade: the default cascade of searches.
    unit_norm: estimates are those of reconstructions of norm 1, ŝ_i / ‖Ŷ u_i‖.
    fit: the decoder is fitted to what is stored (Ŷ); "exact" fits it to Y instead, as an experiment.

    The stages are called with X, vectors of norm 1; rng, the source of random numbers; and workers, the threads.
    """

    group: Random | Orthogonal | KMeans
    memory: Sum | Pinv | Mean | DictionaryLearning
    quantize: Float32 | Int8 | ProductQuantizer
    decode: Transpose | GroupPinv | Sparse
    correct: Suppress | None = None
    cascade: Cascade | None = None
    unit_norm: bool = False
    fit: Literal["stored", "exact"] = "stored"

    segment_size: ClassVar[int] = 1 << 17
    model_types: ClassVar[dict[str, Any]] = CODEBOOKS

    def __post_init__(self) -> None:
        check_choice("fit", self.fit, ("stored", "exact"))

    def describe(self) -> str:
        """Return the names of the stages."""
        stages = (getattr(self, field.name) for field in fields(self))
        return ", ".join(type(stage).__name__ for stage in stages if is_dataclass(stage))

    # ------------------------------------------------------------------------------------------------ building

    def add(
        self, segments: Segments, rows: Array, ids: Ids, settings: BuildSettings, workers: Workers
    ) -> tuple[Segments, None]:
        """Return the segments with a batch of new vectors, whose ids increase, each segment with its own units."""
        parts = enumerate(settings.parts(len(rows)), len(segments))
        new = (self.encode(rows[part], ids[part], number, None, settings, workers) for number, part in parts)
        return (*segments, *new), None

    def repeat(
        self, segments: Segments, log: Sequence[LoggedChange], removals: Removals, dim: int, settings: BuildSettings
    ) -> tuple[Segments, int]:
        """Return the segments after the changes of a log, and how many of these precede the first that counts."""
        if any(change.kind == "add" for change in log):
            raise ValueError("segments with memory vectors of their own are not in a log")
        left = (segment.remove(removals.ids) for segment in segments)
        kept = tuple(segment for segment in left if segment.count)
        return kept, 0 if kept else len(log)

    def encode(
        self, rows: Any, ids: Ids, number: int, codec: None, settings: BuildSettings, workers: Workers
    ) -> CodedSegment:
        """Return the segment of some vectors on its own: the one with this number."""
        rows = rows[:]  # all of them, if they are read from a file
        norms = row_norms(rows)
        rng = np.random.default_rng([settings.seed, number])
        segment = self.build(normalize_rows(rows, norms), ids, rng, workers)
        return segment if settings.metric == "cosine" else replace(segment, norms=norms.astype(np.float32))

    def compact(self, segments: Segments, settings: BuildSettings, workers: Workers) -> Segments:
        """Free the space of removed vectors."""
        return tuple(segment.compact() for segment in segments)

    def measure_graph(self, segments: Segments, graph: Graph, rng: np.random.Generator, workers: Workers) -> Graph:
        """Return the graph: these searches do not use it."""
        return graph

    def build(self, X: Floats, ids: Ids, rng: np.random.Generator, workers: Workers = SERIAL) -> CodedSegment:
        """Build a segment from unit vectors X (N ≥ 1 rows) and their ids."""
        units = self.group(X, rng, workers)
        if isinstance(self.memory, DictionaryLearning):
            Y = self.memory(X, units, rng, workers)
        else:
            Y = self.memory(X, units, workers)
        codebook = self.quantize(Y, rng)
        codes = self.decode(X, codebook.decode() if self.fit == "stored" else Y, units, workers)
        if self.unit_norm:
            norms = _norms(codes, effective_codebook(codes, codebook.decode(), units), workers)
            codes = replace(codes, scale=codes.scale / norms)
        if self.correct is None and not codes.inverse:
            return CodedSegment.create(codebook, codes, ids)
        compact = Units(units.assignment.astype(unit_dtype(units.count)), units.count)
        return CodedSegment.create(codebook, codes, ids, compact)

    # ------------------------------------------------------------------------------------------------- search

    @property
    def thorough(self) -> Limits:
        """The limits of a search for the neighbors of a vector."""
        return Limits(self.cascade)

    def limits(self, params: SearchParams) -> Limits:
        """Return how much a search reads."""
        for name in ("nprobe", "recall", "beam", "like"):
            if getattr(params, name) is not None:
                raise InvalidInputError(f"{name} is for methods with inverted lists; set effort, or p and R")
        p = params.p if params.p is not None or params.effort is None else max(params.effort, 1e-3)
        cascade = self.cascade
        if p is not None or params.R is not None:
            usual = cascade or Cascade()
            cascade = Cascade(usual.p if p is None else p, usual.R if params.R is None else params.R)
        return Limits(cascade, self.correct if params.correct else None)

    def search(
        self, segments: Segments, metric: Metric, visible: Sequence[Mask | Ids] | None, graph: object
    ) -> DecodeSearch:
        """Return the search of some segments. visible: their rows that can be found; None means all."""
        l2 = metric == "l2"
        if visible is None:
            return DecodeSearch([MaskedSegment.of_segment(segment, l2=l2) for segment in segments], metric)
        masks = (as_row_mask(rows, len(segment)) for segment, rows in zip(segments, visible, strict=True))
        views = [MaskedSegment.of_segment(s, l2=l2, allowed=m) for s, m in zip(segments, masks, strict=True)]
        return DecodeSearch(views, metric)

    def operations(self, segments: Segments, limits: Limits) -> float:
        """Return how many operations a search takes after it has measured the query.

        A cascade decodes the rest of U for the fraction R / N of the vectors that it re-ranks.
        """
        full = float(sum(segment.entries for segment in segments))
        if limits.cascade is None:
            return full
        decoded = sum(_decoded(segment, limits.cascade.p) for segment in segments)
        share = min(1.0, limits.cascade.R / sum(segment.count for segment in segments))
        return decoded + (full - decoded) * share

    # ------------------------------------------------------------------------------------------------- storage

    def read_segment(self, model: Codebook, arrays: Mapping[str, Array]) -> CodedSegment:
        """Build a segment from stored arrays; raise ValueError if they do not fit together."""
        return CodedSegment.from_arrays(model, arrays)

    def check_segment(self, segment: Any, dim: int, metric: Metric) -> None:
        """Raise InvalidInputError unless a segment that was read from disk fits the index."""
        if segment.units is None and (self.correct is not None or segment.codes.inverse):
            raise InvalidInputError("a segment has no units")
        if segment.codebook.shape[1] != dim:
            raise InvalidInputError(f"a segment has dimension {segment.codebook.shape[1]}, not {dim}")
        if (segment.norms is not None) != (metric != "cosine"):
            raise InvalidInputError("the norms do not fit the metric")


STAGES: dict[str, tuple[type[Any], ...]] = {
    field: get_args(kind) for field, kind in get_type_hints(GroupTesting).items() if isinstance(kind, UnionType)
}
"""By field of a method: the classes of stages that can be saved and opened."""


def register_stage(field: str, stage: type[Any]) -> None:
    """Let methods with a stage of your own be saved, and opened: by programs that register it before.

    field: of `GroupTesting`, such as "group". stage: a dataclass; it is stored by its name and its parameters.
    """
    check_choice("field", field, tuple(STAGES))
    if not isinstance(stage, type) or not is_dataclass(stage):
        raise InvalidInputError(f"a stage is a class that is a dataclass, got {stage!r}")
    taken = [known for known in chain(*STAGES.values()) if known.__name__ == stage.__name__]
    if any(known.__module__ != stage.__module__ for known in taken):
        raise InvalidInputError(f"there is another stage {stage.__name__!r}; choose another name")
    others = (known for known in STAGES[field] if known not in taken)  # it may be defined again, as in a notebook
    STAGES[field] = (*others, stage)


def _decoded(segment: CodedSegment, p: float) -> float:
    """Return the entries of U⁰."""
    if segment.codes.inverse:
        return float(segment.entries)
    return float(prefix_lengths(segment.codes, p).sum(dtype=np.int64))


def _norms(codes: Codes, Y: Floats, workers: Workers) -> Floats:
    """Return ‖Ŷ u_i‖, or 1 where it is 0."""
    norms = np.empty(len(codes), np.float32)

    def fill(rows: slice) -> None:
        norms[rows] = np.linalg.norm(codes.reconstruct(Y, rows), axis=1)

    workers.map(fill, split_range(len(codes), 256), "norms")
    norms[norms == 0] = 1
    return norms
