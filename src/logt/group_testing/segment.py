"""Segments of the paper's methods: memory vectors and the decoder matrix U."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from logt._internal.segment import Segment, StoredPart, check_ids
from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import check_array, check_lengths
from logt.group_testing.codes import Codes
from logt.group_testing.decoder import solve_group_inverse
from logt.group_testing.grouping import Units
from logt.group_testing.quantize import Codebook


@dataclass(frozen=True, eq=False)
class CodedSegment(Segment):
    """A codebook of memory vectors, codes (U), and units if a correction needs them.

    Under inner product and L2, `norms` are the norms of the vectors, whose directions are encoded.
    """

    codebook: Codebook
    codes: Codes
    units: Units | None = None
    norms: Floats | None = None

    @classmethod
    def create(
        cls, codebook: Codebook, codes: Codes, ids: Ids, units: Units | None = None, norms: Floats | None = None
    ) -> CodedSegment:
        """Return a segment without removed rows."""
        return cls(ids, None, codebook, codes, units, norms)

    @property
    def model(self) -> Codebook:
        return self.codebook

    @cached_property
    def code_scale(self) -> Floats:
        """The scale of each row's code, times its norm."""
        return self.codes.scale if self.norms is None else self.codes.scale * self.norms

    @cached_property
    def minus_squares(self) -> Floats | None:
        """−‖x‖², which L2 adds to the scores; None where there are no norms."""
        return None if self.norms is None else -np.square(self.norms)

    def compact(self) -> CodedSegment:
        """Return the segment without the space of removed rows; the estimates of the others do not change.

        The pseudo-inverse of G needs all of G: such a segment stays as it is.
        """
        if self.removed is None or self.codes.inverse:
            return self
        live: Mask = self.live
        units = None if self.units is None else Units(self.units.assignment[live], self.units.count)
        norms = None if self.norms is None else self.norms[live]
        return CodedSegment.create(self.codebook, self.codes.take(live), self.ids[live], units, norms)

    def reconstruct(self, rows: Ids | slice = slice(None)) -> Floats:
        """Return x̂ = Ŷu, at the stored norm."""
        codes, used = self.codes.take(rows).renumbered()
        if self.codes.inverse and self.units is not None:
            Y = effective_codebook(self.codes, self.codebook.decode(), self.units)[used]
        else:
            Y = self.codebook.decode(used)
        X = codes.reconstruct(Y)
        return X if self.norms is None else X * self.norms[rows, None]

    def reconstruct_live(self) -> Floats:
        """Return the directions x̂ of all live vectors at their norms, where these are kept."""
        X = super().reconstruct_live()
        if self.norms is not None:
            X *= (self.norms[self.live] / np.maximum(np.linalg.norm(X, axis=1), np.float32(1e-30)))[:, None]
        return X

    @property
    def entries(self) -> int:
        """The entries of U, or of the dense U = G⁺ if the codes represent that."""
        if self.codes.inverse:
            return len(self) * self.codebook.shape[0]
        return int(np.count_nonzero(self.codes.weight))

    def bytes_by_part(self) -> dict[str, int]:
        cached = (vars(self).get(name) for name in ("code_scale", "minus_squares"))
        norms = 0 if self.norms is None else self.norms.nbytes + sum(c.nbytes for c in cached if c is not None)
        return {
            "decoder": self.codes.nbytes,
            "prefixes": sum(prefix.nbytes for prefix in list(self.codes.cascade_cache.values())),
            "units": 0 if self.units is None else self.units.assignment.nbytes,
            "ids": self.ids.nbytes,
            "norms": norms,
            "deletions": 0 if self.removed is None else self.removed.nbytes,
        }

    @property
    def stored_parts(self) -> dict[str, StoredPart]:
        codes = self.codes
        arrays = {"unit": codes.unit, "weight": codes.weight, "scale": codes.scale, "ids": self.ids}
        if self.units is not None:
            arrays["units"] = self.units.assignment
        if self.norms is not None:
            arrays["norms"] = self.norms
        if codes.inverse:
            arrays["inverse"] = np.ones(1, np.uint8)
        return {"segment": StoredPart(arrays, (self.ids, codes, self.units, self.norms))}

    @classmethod
    def from_arrays(cls, codebook: Codebook, arrays: Mapping[str, Array]) -> CodedSegment:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        count = codebook.shape[0]
        ids = check_ids(arrays["ids"])
        codes = _codes_from_arrays(arrays, count, len(ids))
        units = norms = None
        if "units" in arrays:
            assignment = check_array(arrays["units"], codes.unit.dtype, 2)
            check_lengths(ids, assignment)
            if assignment.max(initial=0) >= count:
                raise ValueError("a unit has no memory vector")
            units = Units(assignment, count)
        if "norms" in arrays:
            norms = check_array(arrays["norms"], np.float32, 1)
            check_lengths(ids, norms)
        return cls.create(codebook, codes, ids, units, norms)


def effective_codebook(codes: Codes, Y: Floats, units: Units | None) -> Floats:
    """Return the memory vectors that codes reconstruct with: Y, or (GGᵀ)⁺Y if they represent a pseudo-inverse."""
    if not codes.inverse or units is None:
        return Y
    return np.ascontiguousarray(solve_group_inverse(np.ascontiguousarray(Y.T), units).T)


def _codes_from_arrays(arrays: Mapping[str, Array], units: int, rows: int) -> Codes:
    unit, weight = arrays["unit"], arrays["weight"]
    if unit.dtype not in (np.uint16, np.uint32) or weight.dtype not in (np.int8, np.float32):
        raise ValueError(f"codes have types {unit.dtype} and {weight.dtype}")
    unit, weight = check_array(unit, unit.dtype, 1), check_array(weight, weight.dtype, 1)
    if unit.shape != weight.shape or unit.max(initial=0) >= units:
        raise ValueError("a code refers to a memory vector that does not exist")
    scale = check_array(arrays["scale"], np.float32, 1)
    if len(scale) != rows or not rows or not len(unit) or len(unit) % rows:
        raise ValueError(f"{len(unit)} code entries for {rows} vectors")
    return Codes(unit, weight, scale, inverse="inverse" in arrays)
