"""Segments and the methods that build them: (X, Method) -> Segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from logt._threads import SERIAL, Workers, spans
from logt._types import Array, Floats, Ids, Mask
from logt.errors import InvalidInputError, one_of
from logt.stages.codes import Codes, unit_type
from logt.stages.correction import Suppress
from logt.stages.decoder import Cascade, GroupPinv, Local, Sparse, Transpose, solve_group_inverse
from logt.stages.dictionary import DictionaryLearning
from logt.stages.grouping import KdTree, Orthogonal, Random, Units
from logt.stages.inverted_lists import Lists, Open
from logt.stages.kmeans import KMeans
from logt.stages.llc import LocalityConstrained
from logt.stages.memory_vectors import Mean, Pinv, Sum
from logt.stages.quantize import Float32, Int8, Memory, ProductQuantizer
from logt.stages.residual import Sketch, Sketches


@dataclass(frozen=True)
class Segment:
    """What one batch becomes: memory vectors, codes, rising ids. Never changed once built; X is not kept.

    Under inner product and L2, `norms` are the lengths of the vectors, whose directions are coded. `removed` marks
    rows that are no longer there; a segment with other removals is another segment that shares all else. `fit` is
    what shared memory vectors captured of vectors of the batch that they were learned for (learning.py). Codes and
    sketches lie in the order of the rows, or, where there are lists, in that of the lists.
    """

    memory: Memory
    codes: Codes
    ids: Ids
    units: Units | None = None
    norms: Floats | None = None
    removed: Mask | None = None
    sketches: Sketches | None = None
    lists: Lists | None = None
    fit: float = 0.0

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def live(self) -> Mask:
        """The rows that are there."""
        return np.ones(len(self), bool) if self.removed is None else ~self.removed

    @property
    def count(self) -> int:
        return len(self) if self.removed is None else int(self.live.sum())

    @cached_property
    def gain(self) -> Floats:
        """What the sums of a row's code are multiplied by: its scale, times its norm."""
        return self.codes.scale if self.norms is None else self.codes.scale * self._by_place(self.norms)

    @cached_property
    def sketch_gain(self) -> Floats:
        """What a row's fields are multiplied by: their factor, times its norm."""
        assert self.sketches is not None
        return self.sketches.factor if self.norms is None else self.sketches.factor * self._by_place(self.norms)

    @cached_property
    def minus_squares(self) -> Floats:
        """−‖x‖², which l2 adds to the scores."""
        assert self.norms is not None
        return -np.square(self.norms)

    def _by_place(self, values: Floats) -> Floats:
        return values if self.lists is None else values[self.lists.row]

    def _places(self, rows: Ids | slice) -> Array | slice:
        return rows if self.lists is None else self.lists.place[rows]

    def opened(self, open: Open) -> Segment:
        """The same, which has no lists, with lists, and codes and sketches in their order."""
        assert self.sketches is not None
        lists = open(self.codes, self.memory.shape[0])
        return replace(self, codes=self.codes.take(lists.row), sketches=self.sketches.take(lists.row), lists=lists)

    def by_row(self) -> Segment:
        """The same without lists, and with nobody who was removed."""
        rows = np.asarray(self._places(np.flatnonzero(self.live)))
        return Segment(
            self.memory,
            self.codes.take(rows),
            self.ids[self.live],
            None if self.units is None else Units(self.units.of[self.live], self.units.count),
            None if self.norms is None else self.norms[self.live],
            sketches=None if self.sketches is None else self.sketches.take(rows),
            fit=self.fit,
        )

    @property
    def nonzeros(self) -> int:
        """Entries of U; of the dense U = G⁺ where the codes stand for that."""
        if self.codes.inverse:
            return len(self) * self.memory.shape[0]
        return int(np.count_nonzero(self.codes.weight))

    def operations(self, dim: int, read: Cascade | Open | None, share: float = 1.0) -> float:
        """Of one query: entries of U that are read, and a product a dimension for each sketch.

        Of a cascade, those of U⁰; of opened units, those of units of the mean size, or this segment's share of the
        least number.
        """
        if isinstance(read, Cascade) and not self.codes.inverse:
            return float(self.codes.prefix(read.p).lengths.sum(dtype=np.int64))
        if self.sketches is None or self.lists is None:
            return float(self.nonzeros)
        M = self.memory.shape[0]
        opened = min(read.opened(M), M) if isinstance(read, Open) else M
        listed = len(self) + len(self.lists.further)
        rows = min(len(self), max(listed * opened / M, read.least * share if isinstance(read, Open) else 0))
        return rows * (dim + self.nonzeros / len(self))

    def bytes_by_part(self) -> dict[str, int]:
        """True bytes of all that a search reads, apart from the memory, which segments may share."""
        codes = self.codes
        return {
            "decoder": codes.nbytes,
            "sketches": 0 if self.sketches is None else self.sketches.nbytes,
            "lists": 0 if self.lists is None else self.lists.nbytes,
            "units": 0 if self.units is None else self.units.of.nbytes,
            "ids": self.ids.nbytes,
            "norms": 0 if self.norms is None else self._norm_bytes(),
            "removals": 0 if self.removed is None else self.removed.nbytes,
        }

    def _norm_bytes(self) -> int:
        """The norms, and what was made of them so far."""
        made = (vars(self).get(name) for name in ("norms", "gain", "sketch_gain", "minus_squares"))
        return sum(part.nbytes for part in made if part is not None)

    def rows_of(self, ids: Ids) -> Ids:
        """The rows of those of the given ids that are there."""
        rows, here = self.located(ids)
        return rows[here]

    def located(self, ids: Ids) -> tuple[Ids, Mask]:
        """(a row for each id, whether it is that id's and there)."""
        rows: Ids = np.minimum(np.searchsorted(self.ids, ids), len(self) - 1)
        return rows, (self.ids[rows] == ids) & self.live[rows]

    def without(self, rows: Ids) -> Segment:
        """The same, with some rows removed."""
        removed = np.zeros(len(self), bool) if self.removed is None else self.removed.copy()
        removed[rows] = True
        return replace(self, removed=removed)

    def compacted(self, open: Open | None = None) -> Segment:
        """The same without the space of removed rows: what is left is estimated exactly as before.

        The pseudo-inverse of G needs all of G: such a segment stays as it is.
        """
        if self.removed is None or self.codes.inverse:
            return self
        plain = self.by_row()
        return plain.opened(open) if open is not None else plain

    @staticmethod
    def joined(segments: Sequence[Segment], open: Open) -> Segment:
        """One segment of all that several with sketches and the same memory hold; found exactly as before."""
        parts = [segment.by_row() for segment in segments]
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids)
        width = max(part.codes.width for part in parts)
        wide = [[np.pad(half, ((0, 0), (0, width - half.shape[1]))) for half in p.codes.rows()] for p in parts]
        unit, weight = (np.concatenate(halves)[order] for halves in zip(*wide, strict=True))
        norms = [part.norms for part in parts if part.norms is not None]
        return Segment(
            parts[0].memory,
            Codes.of(unit, weight, np.concatenate([part.codes.scale for part in parts])[order]),
            ids[order],
            norms=np.concatenate(norms)[order] if norms else None,
            sketches=Sketches.joined([p.sketches for p in parts if p.sketches is not None]).take(order),
            fit=parts[0].fit,
        ).opened(open)

    def reconstructed(self, rows: Ids | slice) -> Floats:
        """X̂ of some rows, at their true lengths."""
        places = self._places(rows)
        if self.codes.inverse:
            X = self.codes.reconstructed(read_as(self.codes, self.memory.decoded(), self.units), places)
        else:
            codes, used = self.codes.take(places).narrowed()
            X = codes.reconstructed(self.memory.decoded(used))
        if self.sketches is not None:
            X += self.sketches.reconstructed(places, X.shape[1])
        return X if self.norms is None else X * self.norms[rows, None]


@dataclass(frozen=True)
class Method:
    """A composition of stages. Its repr is the configuration of an experiment; `replace` makes the sweep.

    The decoder is fitted to what is stored (Ŷ); fit="exact" fits it to Y instead, as an experiment. With
    `unit_norm`, estimates are those of the reconstructions scaled to length 1: ŝ_i / ‖Ŷ u_i‖. With a sketch, what
    the codes leave out is kept in a few bits, and a search opens units instead of reading U in a cascade.
    """

    group: Random | Orthogonal | KMeans | KdTree
    memory: Sum | Pinv | Mean | DictionaryLearning
    quantize: Float32 | Int8 | ProductQuantizer
    decode: Transpose | GroupPinv | Local | Sparse | LocalityConstrained
    correct: Suppress | None = None
    cascade: Cascade | None = None
    unit_norm: bool = False
    fit: Literal["stored", "exact"] = "stored"
    sketch: Sketch | None = None
    open: Open | None = None

    def __post_init__(self) -> None:
        one_of("fit", self.fit, ("stored", "exact"))
        if (self.sketch is None) != (self.open is None):
            raise InvalidInputError("a method with sketches opens units, and only such a method: give both or none")
        if self.sketch and (self.cascade or self.correct or isinstance(self.decode, GroupPinv)):
            raise InvalidInputError("a method with sketches has no cascade, no correction and a decoder of its own")

    @property
    def shares(self) -> bool:
        """Whether vectors of other batches can be coded with the memory vectors of one."""
        free = isinstance(self.decode, Sparse) and self.decode.support in ("free", "near")
        plain = not isinstance(self.memory, DictionaryLearning) and self.correct is None and self.fit == "stored"
        return free and plain and isinstance(self.group, KMeans)

    def learn(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Memory:
        """Memory vectors alone, to build segments with."""
        return self.quantize(self._memory_vectors(X, self.group(X, rng, workers), rng, workers), rng)

    def _memory_vectors(self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers) -> Floats:
        if isinstance(self.memory, DictionaryLearning):
            return self.memory(X, units, rng, workers)
        return self.memory(X, units, workers)

    def build(
        self,
        X: Floats,
        ids: Ids,
        rng: np.random.Generator,
        workers: Workers = SERIAL,
        memory: Memory | None = None,
    ) -> Segment:
        """X: unit vectors as rows (N ≥ 1); coded with memory vectors of another batch, if the method shares them."""
        units, Y = Units(np.empty((len(X), 0), np.int32), 0), None
        if memory is None:
            units = self.group(X, rng, workers)
            Y = self._memory_vectors(X, units, rng, workers)
            memory = self.quantize(Y, rng)
        stored = memory.decoded()
        codes = self.decode(X, stored if self.fit == "stored" or Y is None else Y, units, workers)
        return self.assembled(X, ids, units, memory, codes, workers)

    def assembled(
        self, X: Floats, ids: Ids, units: Units, memory: Memory, codes: Codes, workers: Workers = SERIAL
    ) -> Segment:
        """The last step of `build`: codes and what they refer to as a segment, with sketches and lists."""
        stored = memory.decoded()
        if self.unit_norm:
            lengths = _lengths(codes, read_as(codes, stored, units), workers)
            codes = replace(codes, scale=codes.scale / lengths)
        needs_units = self.correct is not None or codes.inverse
        compact = Units(units.of.astype(unit_type(units.count)), units.count)
        sketches = self.sketch(X, stored, codes, workers) if self.sketch else None
        segment = Segment(memory, codes, ids, compact if needs_units else None, sketches=sketches)
        return segment.opened(self.open) if self.open else segment


def read_as(codes: Codes, Y: Floats, units: Units | None) -> Floats:
    """The memory vectors that codes reconstruct with: Y, or (GGᵀ)⁺Y where they stand for a pseudo-inverse."""
    if not codes.inverse or units is None:
        return Y
    return np.ascontiguousarray(solve_group_inverse(np.ascontiguousarray(Y.T), units).T)


def _lengths(codes: Codes, Y: Floats, workers: Workers) -> Floats:
    """‖Ŷ u_i‖, 1 where it is 0."""
    lengths = np.empty(len(codes), np.float32)

    def fill(rows: slice) -> None:
        lengths[rows] = np.linalg.norm(codes.reconstructed(Y, rows), axis=1)

    workers.each(fill, spans(len(codes), 256), "norms")
    lengths[lengths == 0] = 1
    return lengths
