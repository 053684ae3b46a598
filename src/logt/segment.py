"""Segments and the methods that build them: (X, Method) -> Segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from logt._types import Floats, Ids
from logt.correction import Suppress
from logt.decoder import Cascade, Codes, GroupPinv, Local, Sparse, Transpose, unit_type
from logt.errors import one_of
from logt.grouping import Orthogonal, Random, Units
from logt.memory import Pinv, Sum
from logt.quantize import Float32, Int8, Memory, ProductQuantizer
from logt.threads import SERIAL, Workers, spans


@dataclass(frozen=True)
class Segment:
    """What one batch becomes: memory vectors, codes, rising ids. Never changed once built; X is not kept.

    Estimates are codes.scale_i · (U c)_i + bias_i, so a norm per vector needs no step of its own.
    """

    memory: Memory
    codes: Codes
    ids: Ids
    units: Units | None = None
    bias: Floats | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nonzeros(self) -> int:
        """Entries of U; of the dense U = G⁺ where the codes stand for that."""
        if self.codes.inverse:
            return len(self) * self.memory.shape[0]
        return int(np.count_nonzero(self.codes.weight))

    def bytes_by_part(self) -> dict[str, int]:
        """True bytes of all that a search reads, apart from the memory, which segments may share."""
        codes = self.codes
        return {
            "decoder": codes.unit.nbytes + codes.weight.nbytes + codes.scale.nbytes,
            "units": 0 if self.units is None else self.units.of.nbytes,
            "ids": self.ids.nbytes,
            "norms": 0 if self.bias is None else self.bias.nbytes,
        }


@dataclass(frozen=True)
class Method:
    """A composition of stages. Its repr is the configuration of an experiment; `replace` makes the sweep.

    The decoder is fitted to what is stored (Ŷ); fit="exact" fits it to Y instead, as an experiment. With
    `unit_norm`, estimates are those of the reconstructions scaled to length 1: ŝ_i / ‖Ŷ u_i‖.
    """

    group: Random | Orthogonal
    memory: Sum | Pinv
    quantize: Float32 | Int8 | ProductQuantizer
    decode: Transpose | GroupPinv | Local | Sparse
    correct: Suppress | None = None
    cascade: Cascade | None = None
    unit_norm: bool = False
    fit: Literal["stored", "exact"] = "stored"

    def __post_init__(self) -> None:
        one_of("fit", self.fit, ("stored", "exact"))

    def build(self, X: Floats, ids: Ids, rng: np.random.Generator, workers: Workers = SERIAL) -> Segment:
        """X: unit vectors as rows (N ≥ 1)."""
        units = self.group(X, rng, workers)
        Y = self.memory(X, units, workers)
        memory = self.quantize(Y, rng)
        stored = memory.decoded()
        codes = self.decode(X, stored if self.fit == "stored" else Y, units, workers)
        if self.unit_norm:
            codes = replace(codes, scale=codes.scale / _lengths(codes, stored, workers))
        needs_units = self.correct is not None or codes.inverse
        compact = Units(units.of.astype(unit_type(units.count)), units.count)
        return Segment(memory, codes, ids, compact if needs_units else None)


def _lengths(codes: Codes, Y: Floats, workers: Workers) -> Floats:
    """‖Ŷ u_i‖, 1 where it is 0."""
    lengths = np.empty(len(codes), np.float32)

    def fill(rows: slice) -> None:
        lengths[rows] = np.linalg.norm(codes.reconstructed(Y, rows), axis=1)

    workers.each(fill, spans(len(codes), 256), "norms")
    lengths[lengths == 0] = 1
    return lengths
