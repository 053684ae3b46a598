"""Methods, (X, Method) -> Segment: a composition of stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_choice
from logt.errors import InvalidInputError
from logt.group_testing.cascade import Cascade
from logt.group_testing.codes import Codes, unit_dtype
from logt.group_testing.correction import Suppress
from logt.group_testing.decoder import GroupPinv, Local, Sparse, Transpose
from logt.group_testing.dictionary import DictionaryLearning
from logt.group_testing.grouping import KdTree, Orthogonal, Random, Units
from logt.group_testing.kmeans import KMeans
from logt.group_testing.llc import LocalityConstrained
from logt.group_testing.memory_vectors import Mean, Pinv, Sum
from logt.group_testing.quantize import Float32, Int4, Int8, ProductQuantizer
from logt.group_testing.segment import CodedSegment, effective_codebook
from logt.lists.codec import Codec
from logt.lists.inverted_lists import Probe
from logt.lists.residual import ResidualQuantizer


@dataclass(frozen=True)
class Method:
    """A composition of stages. Its repr is the configuration of an experiment; `dataclasses.replace` makes a sweep.

    group: X -> units. memory: X, units -> memory vectors Y. quantize: Y -> Ŷ, how they are stored. decode: X, Ŷ ->
    the codes U. correct: the correction of rankings. cascade: the default cascade of searches.
    unit_norm: estimates are those of reconstructions of norm 1, ŝ_i / ‖Ŷ u_i‖.
    fit: the decoder is fitted to what is stored (Ŷ); "exact" fits it to Y instead, as an experiment.
    residual: keep the vectors in inverted lists, with a few bits per dimension of their residuals (default index).
    probe: how much of the inverted lists a search reads.

    The stages are called with X, vectors of norm 1; rng, the source of random numbers; and workers, the threads.
    """

    group: Random | Orthogonal | KMeans | KdTree
    memory: Sum | Pinv | Mean | DictionaryLearning
    quantize: Float32 | Int8 | Int4 | ProductQuantizer
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
        if self.residual is None:
            if isinstance(self.quantize, Int4):
                raise InvalidInputError("memory vectors of 4 bits are for methods with residual codes")
            return
        if self.cascade or self.correct or self.unit_norm:
            raise InvalidInputError("a method with residual codes takes no cascade, correction or unit_norm")
        near = isinstance(self.decode, Sparse) and self.decode.support == "near"
        if not (isinstance(self.group, KMeans) and isinstance(self.memory, Mean) and near):
            raise InvalidInputError("residual codes need k-means units, their means, and sparse codes of near units")
        if not isinstance(self.quantize, Int4):
            raise InvalidInputError("a method with residual codes keeps memory vectors in 4 bits: quantize=Int4()")

    @property
    def segment_size(self) -> int:
        """The rows of a segment of an index with segment_size="auto"."""
        return 1 << 20 if self.probe else 1 << 17

    def train(
        self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL, *, normalized: bool = True
    ) -> Codec:
        """Train the codec of a method with residual codes on vectors X; `normalized`: all have norm 1."""
        if self.residual is None or not isinstance(self.group, KMeans) or not isinstance(self.decode, Sparse):
            raise TypeError("only a method with residual codes has a codec")
        return Codec.train(X, self.group, self.decode, self.residual, rng, workers, normalized=normalized)

    def build(self, X: Floats, ids: Ids, rng: np.random.Generator, workers: Workers = SERIAL) -> CodedSegment:
        """Build a segment of a method without residual codes from unit vectors X (N ≥ 1 rows) and their ids."""
        units = self.units(X, rng, workers)
        Y = self.memory_vectors(X, units, rng, workers)
        codebook = self.quantize(Y, rng)
        codes = self.codes(X, codebook.decode() if self.fit == "stored" else Y, units, workers)
        if self.unit_norm:
            norms = _norms(codes, effective_codebook(codes, codebook.decode(), units), workers)
            codes = replace(codes, scale=codes.scale / norms)
        if self.correct is None and not codes.inverse:
            return CodedSegment.create(codebook, codes, ids)
        compact = Units(units.assignment.astype(unit_dtype(units.count)), units.count)
        return CodedSegment.create(codebook, codes, ids, compact)

    def units(self, X: Floats, rng: np.random.Generator, workers: Workers) -> Units:
        """Run the first stage, X -> units."""
        return self.group(X, rng, workers)

    def memory_vectors(self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers) -> Floats:
        """Run the second stage: X, units -> Y."""
        if isinstance(self.memory, DictionaryLearning):
            return self.memory(X, units, rng, workers)
        return self.memory(X, units, workers)

    def codes(self, X: Floats, Y: Floats, units: Units, workers: Workers) -> Codes:
        """Run the decoder stage: X, Y, units -> U."""
        return self.decode(X, Y, units, workers)


def _norms(codes: Codes, Y: Floats, workers: Workers) -> Floats:
    """Return ‖Ŷ u_i‖, or 1 where it is 0."""
    norms = np.empty(len(codes), np.float32)

    def fill(rows: slice) -> None:
        norms[rows] = np.linalg.norm(codes.reconstruct(Y, rows), axis=1)

    workers.map(fill, split_range(len(codes), 256), "norms")
    norms[norms == 0] = 1
    return norms
