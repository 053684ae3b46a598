"""Segments: what one batch of vectors becomes. Immutable; the vectors themselves are not kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from logt import _kernels
from logt._types import Array, Floats, Ids, Mask
from logt._validation import check_array, check_lengths
from logt.stages.codes import Codes, concatenate_codes
from logt.stages.decoder import solve_group_inverse
from logt.stages.grouping import Units
from logt.stages.inverted_lists import InvertedLists, Probe
from logt.stages.quantize import Codebook
from logt.stages.residual import ResidualCodes


@dataclass(frozen=True)
class Segment:
    """A codebook (memory vectors), codes, and increasing ids.

    Under inner product and L2, `norms` are the norms of the vectors, whose directions are encoded. `removed` marks
    deleted rows; a segment with other deletions is another segment that shares everything else. `captured` is the
    energy that the codebook captured of the batch it was trained for (training.py). With inverted lists, codes are
    stored in list order, else in row order.
    """

    codebook: Codebook
    codes: Codes
    ids: Ids
    units: Units | None = None
    norms: Floats | None = None
    removed: Mask | None = None
    lists: InvertedLists | None = None
    captured: float = 0.0

    # ------------------------------------------------------------------------------------------------- lookup

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def live(self) -> Mask:
        """The rows that are not deleted."""
        return np.ones(len(self), bool) if self.removed is None else ~self.removed

    @cached_property
    def count(self) -> int:
        """The number of live rows."""
        return len(self) if self.removed is None else int(self.live.sum())

    def find(self, ids: Ids) -> Ids:
        """Return the rows of the given ids that are here."""
        rows, here = self.locate(ids)
        return rows[here]

    def locate(self, ids: Ids) -> tuple[Ids, Mask]:
        """Return (a row for each id, whether the id is live in that row)."""
        rows: Ids = np.minimum(np.searchsorted(self.ids, ids), len(self) - 1)
        return rows, (self.ids[rows] == ids) & self.live[rows]

    # ------------------------------------------------------------------------------- what a search multiplies by

    @cached_property
    def code_scale(self) -> Floats:
        """The scale of each row's code, times its norm, in the order of the codes."""
        return self.codes.scale if self.norms is None else self.codes.scale * self._by_position(self.norms)

    @cached_property
    def residual_scale(self) -> Floats:
        """The factor of each row's residual code, times its norm, in the order of the lists."""
        factor = self.residuals.factor
        return factor if self.norms is None else factor * self._by_position(self.norms)

    @cached_property
    def minus_squares(self) -> Floats | None:
        """−‖x‖², which L2 adds to the scores; None where there are no norms."""
        return None if self.norms is None else -np.square(self.norms)

    @cached_property
    def scanner(self) -> _kernels.ListScanner:
        """The compiled object that scans the inverted lists: it holds their arrays."""
        lists, codes = self.lists, self.codes
        if lists is None:
            raise TypeError("this segment has no inverted lists")
        residuals = lists.residuals
        return _kernels.ListScanner(
            codes.unit,
            codes.weight,
            self.code_scale,
            residuals.head,
            residuals.tail,
            self.residual_scale,
            residuals.bits,
            lists.row,
            lists.starts,
            lists.offsets,
            lists.further,
        )

    @property
    def residuals(self) -> ResidualCodes:
        if self.lists is None:
            raise TypeError("this segment has no residual codes")
        return self.lists.residuals

    def _by_position(self, values: Floats) -> Floats:
        return values if self.lists is None else values[self.lists.row]

    def _positions(self, rows: Ids | slice) -> Array | slice:
        return rows if self.lists is None else self.lists.position[rows]

    # ------------------------------------------------------------------------------------------------ changes

    def remove(self, rows: Ids) -> Segment:
        """Return the segment with some more rows deleted."""
        removed = np.zeros(len(self), bool) if self.removed is None else self.removed.copy()
        removed[rows] = True
        return replace(self, removed=removed)

    def compact(self, probe: Probe | None = None) -> Segment:
        """Return the segment without the space of deleted rows; the estimates of the others do not change.

        The pseudo-inverse of G needs all of G: such a segment stays as it is.
        """
        if self.removed is None or self.codes.inverse:
            return self
        return merge_segments([self], probe)

    def reconstruct(self, rows: Ids | slice = slice(None)) -> Floats:
        """Return x̂ = Ŷu plus the decoded residual, at the stored norm."""
        codes, used = self.codes.take(self._positions(rows)).renumbered()
        if self.codes.inverse and self.units is not None:
            Y = effective_codebook(self.codes, self.codebook.decode(), self.units)[used]
        else:
            Y = self.codebook.decode(used)
        X = codes.reconstruct(Y)
        if self.lists is not None:
            X += self.residuals.reconstruct(self._positions(rows), X.shape[1])
        return X if self.norms is None else X * self.norms[rows, None]

    # ------------------------------------------------------------------------------------------------ storage

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store, apart from the codebook, the residual codes and the deletions."""
        codes = self.codes
        arrays = {"unit": codes.unit, "weight": codes.weight, "scale": codes.scale, "ids": self.ids}
        if self.units is not None:
            arrays["units"] = self.units.assignment
        if self.norms is not None:
            arrays["norms"] = self.norms
        if codes.inverse:
            arrays["inverse"] = np.ones(1, np.uint8)
        if self.lists is not None:
            arrays |= {**self.lists.arrays, "fit": np.array([self.captured], np.float32)}
        return arrays

    @classmethod
    def from_arrays(cls, codebook: Codebook, arrays: Mapping[str, Array]) -> Segment:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        count, dim = codebook.shape
        ids = check_array(arrays["ids"], np.int64, 1)
        if (np.diff(ids) <= 0).any() or (len(ids) and ids[0] < 0):
            raise ValueError("the ids do not increase")
        codes = _codes_from_arrays(arrays, count, len(ids))
        units = norms = lists = None
        captured = 0.0
        if "units" in arrays:
            assignment = check_array(arrays["units"], codes.unit.dtype, 2)
            check_lengths(ids, assignment)
            if assignment.max(initial=0) >= count:
                raise ValueError("a unit has no memory vector")
            units = Units(assignment, count)
        if "norms" in arrays:
            norms = check_array(arrays["norms"], np.float32, 1)
            check_lengths(ids, norms)
        if "head" in arrays:
            lists = InvertedLists.from_arrays(arrays, count, dim)
            check_lengths(ids, lists.row)
            captured = float(check_array(arrays["fit"], np.float32, 1)[0])
        return cls(codebook, codes, ids, units, norms, lists=lists, captured=captured)

    def with_deletions(self, bits: Array) -> Segment:
        """Return the segment with the rows deleted that are set in stored bits."""
        if len(check_array(bits, np.uint8, 1)) != -(-len(self) // 8):
            raise ValueError("the deletions do not fit the segment")
        return replace(self, removed=np.unpackbits(bits, count=len(self)).astype(bool))


def merge_segments(segments: Sequence[Segment], probe: Probe | None = None) -> Segment:
    """Return one segment with the live rows of several that share a codebook; their estimates do not change."""
    first = segments[0]
    live = [np.flatnonzero(segment.live) for segment in segments]
    ids = np.concatenate([segment.ids[rows] for segment, rows in zip(segments, live, strict=True)])
    order = np.argsort(ids)
    positions = [np.asarray(segment._positions(rows)) for segment, rows in zip(segments, live, strict=True)]
    parts = list(zip(segments, live, positions, strict=True))
    codes = concatenate_codes([segment.codes.take(at) for segment, _, at in parts]).take(order)
    norms = units = lists = None
    if first.norms is not None:
        norms = np.concatenate([s.norms[rows] for s, rows, _ in parts if s.norms is not None])[order]
    if first.units is not None:
        assignment = np.concatenate([s.units.assignment[rows] for s, rows, _ in parts if s.units is not None])
        units = Units(assignment[order], first.units.count)
    if probe is not None:
        residuals = ResidualCodes.concatenate([segment.residuals.take(at) for segment, _, at in parts]).take(order)
        lists = probe(codes, residuals, first.codebook.shape[0])
        codes = codes.take(lists.row)
    return Segment(first.codebook, codes, ids[order], units, norms, lists=lists, captured=first.captured)


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
