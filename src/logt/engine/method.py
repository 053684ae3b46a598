"""Methods, (X, Method) -> Segment: a composition of stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from logt._threads import SERIAL, Workers, split_range
from logt._types import Floats, Ids
from logt._validation import check_choice
from logt.engine.segment import Segment, effective_codebook
from logt.errors import InvalidInputError
from logt.stages.cascade import Cascade
from logt.stages.codes import Codes, unit_dtype
from logt.stages.correction import Suppress
from logt.stages.decoder import GroupPinv, Local, Sparse, Transpose
from logt.stages.dictionary import DictionaryLearning
from logt.stages.grouping import KdTree, Orthogonal, Random, Units
from logt.stages.inverted_lists import Probe
from logt.stages.kmeans import KMeans
from logt.stages.llc import LocalityConstrained
from logt.stages.memory_vectors import Mean, Pinv, Sum
from logt.stages.quantize import Codebook, Float32, Int8, ProductQuantizer
from logt.stages.residual import ResidualQuantizer


@dataclass(frozen=True)
class Method:
    """A composition of stages. Its repr is the configuration of an experiment; `dataclasses.replace` makes a sweep.

    The decoder is fitted to what is stored (Ŷ); fit="exact" fits it to Y instead, as an experiment. With `unit_norm`,
    estimates are those of reconstructions of norm 1: ŝ_i / ‖Ŷ u_i‖. With `residual`, a few bits per dimension of the
    residual are kept, and a search probes inverted lists instead of decoding U in a cascade.
    """

    group: Random | Orthogonal | KMeans | KdTree
    memory: Sum | Pinv | Mean | DictionaryLearning
    quantize: Float32 | Int8 | ProductQuantizer
    decode: Transpose | GroupPinv | Local | Sparse | LocalityConstrained
    correct: Suppress | None = None
    cascade: Cascade | None = None
    unit_norm: bool = False
    fit: Literal["stored", "exact"] = "stored"
    residual: ResidualQuantizer | None = None
    probe: Probe | None = None

    def __post_init__(self) -> None:
        check_choice("fit", self.fit, ("stored", "exact"))
        if (self.residual is None) != (self.probe is None):
            raise InvalidInputError("residual codes need inverted lists: pass both residual and probe, or none")
        if self.residual and (self.cascade or self.correct or isinstance(self.decode, GroupPinv)):
            raise InvalidInputError("a method with residual codes takes no cascade, correction or GroupPinv decoder")

    @property
    def shares_codebook(self) -> bool:
        """Whether the codebook of one batch can encode vectors of other batches."""
        free = isinstance(self.decode, Sparse) and self.decode.support in ("free", "near")
        plain = not isinstance(self.memory, DictionaryLearning) and self.correct is None and self.fit == "stored"
        return free and plain and isinstance(self.group, KMeans)

    def train(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Codebook:
        """Return a codebook alone, to build segments with."""
        return self.quantize(self.memory_vectors(X, self.units(X, rng, workers), rng, workers), rng)

    def build(
        self,
        X: Floats,
        ids: Ids,
        rng: np.random.Generator,
        workers: Workers = SERIAL,
        codebook: Codebook | None = None,
    ) -> Segment:
        """Build a segment from unit vectors X (N ≥ 1 rows), with the codebook of another batch if it is given."""
        units, Y = Units(np.empty((len(X), 0), np.int32), 0), None
        if codebook is None:
            units = self.units(X, rng, workers)
            Y = self.memory_vectors(X, units, rng, workers)
            codebook = self.quantize(Y, rng)
        codes = self.codes(X, codebook.decode() if self.fit == "stored" or Y is None else Y, units, workers)
        return self._assemble(X, ids, units, codebook, codes, workers)

    def units(self, X: Floats, rng: np.random.Generator, workers: Workers) -> Units:
        """Run the first stage."""
        return self.group(X, rng, workers)

    def memory_vectors(self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers) -> Floats:
        """Run the second stage."""
        if isinstance(self.memory, DictionaryLearning):
            return self.memory(X, units, rng, workers)
        return self.memory(X, units, workers)

    def codes(self, X: Floats, Y: Floats, units: Units, workers: Workers) -> Codes:
        """Run the decoder stage."""
        return self.decode(X, Y, units, workers)

    def _assemble(
        self, X: Floats, ids: Ids, units: Units, codebook: Codebook, codes: Codes, workers: Workers
    ) -> Segment:
        stored = codebook.decode()
        if self.unit_norm:
            norms = _norms(codes, effective_codebook(codes, stored, units), workers)
            codes = replace(codes, scale=codes.scale / norms)
        if self.residual is not None and self.probe is not None:
            lists = self.probe(codes, self.residual(X, stored, codes, workers), codebook.shape[0])
            return Segment(codebook, codes.take(lists.row), ids, lists=lists)
        if self.correct is None and not codes.inverse:
            return Segment(codebook, codes, ids)
        compact = Units(units.assignment.astype(unit_dtype(units.count)), units.count)
        return Segment(codebook, codes, ids, compact)


def _norms(codes: Codes, Y: Floats, workers: Workers) -> Floats:
    """Return ‖Ŷ u_i‖, or 1 where it is 0."""
    norms = np.empty(len(codes), np.float32)

    def fill(rows: slice) -> None:
        norms[rows] = np.linalg.norm(codes.reconstruct(Y, rows), axis=1)

    workers.map(fill, split_range(len(codes), 256), "norms")
    norms[norms == 0] = 1
    return norms
