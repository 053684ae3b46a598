"""Segments of the default index: inverted lists of sparse codes and residual codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.segment import Segment, check_ids
from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import check_array, check_type
from logt.engine.on_demand import StoredRows, Wanted
from logt.group_testing.codes import unit_dtype
from logt.group_testing.decoder import Sparse
from logt.lists.codec import Codec, Encoded
from logt.lists.inverted_lists import sort_into_lists

MAX_FLAT = 1024
"""Up to this many rows, a segment has no lists, and a search scans all of it."""

_NO_FLOATS, _NO_BYTES = np.empty(0, np.float32), np.empty((0, 0), np.int8)
_NO_MASK, _NO_POSITIONS = np.empty(0, bool), np.empty(0, np.uint32)


@dataclass(frozen=True, eq=False)
class ListSegment(Segment):
    """Codes in list order: position p holds row[p]; the list of unit j is the positions starts[j]:starts[j + 1].

    unit: (L - 1, rows), the first entry being the list's unit; (L, rows) in a small segment, whose `starts` is empty.
    weight: (L, rows). bias: −‖v‖², empty under inner product. head, tail, factor: the residual. supplement,
    supplement_scale: what the residual's bits leave out, by row; empty if that is not kept. stored: if the arrays are
    those of files that are fetched in parts, how to fetch them.
    """

    codec: Codec
    row: NDArray[np.uint32]
    starts: Ids
    unit: Array
    weight: NDArray[np.int8]
    scale: Floats
    factor: Floats
    bias: Floats
    head: NDArray[np.uint8]
    tail: NDArray[np.uint8]
    supplement: NDArray[np.int8]
    supplement_scale: Floats
    stored: StoredRows | None = None

    @classmethod
    def build(
        cls, codec: Codec, rows: Any, ids: Ids, decode: Sparse, *, distances: bool, workers: Workers = SERIAL
    ) -> ListSegment:
        """Encode vectors, whose ids increase."""
        return cls.from_encoded(codec, codec.encode(rows, decode, workers), ids, distances=distances)

    @classmethod
    def from_encoded(cls, codec: Codec, codes: Encoded, ids: Ids, *, distances: bool) -> ListSegment:
        """Sort encoded vectors into lists."""
        flat = len(ids) <= MAX_FLAT
        if flat:
            row, starts = np.arange(len(ids), dtype=np.uint32), np.empty(0, np.int64)
        else:
            row, starts = sort_into_lists(codes.unit[:, 0], codec.units)
        unit = codes.unit[row] if flat else codes.unit[row, 1:]
        return cls(
            ids,
            None,
            codec,
            row,
            starts,
            np.ascontiguousarray(unit.T),
            np.ascontiguousarray(codes.weight[row].T),
            codes.scale[row],
            codes.factor[row],
            -codes.square[row] if distances else _NO_FLOATS,
            _aligned(codes.head, row),
            _aligned(codes.tail, row),
            _NO_BYTES if codes.supplement is None else codes.supplement,
            _NO_FLOATS if codes.supplement_scale is None else codes.supplement_scale,
        )

    @property
    def model(self) -> Codec:
        return self.codec

    @property
    def flat(self) -> bool:
        """Whether there are no lists."""
        return not len(self.starts)

    @cached_property
    def position(self) -> NDArray[np.uint32]:
        """The position of each row."""
        with self.having(lambda stored: stored.whole("row")):
            position = np.empty_like(self.row)
            position[self.row] = np.arange(len(position), dtype=np.uint32)
        return position

    @contextmanager
    def having(self, wanted: Callable[[StoredRows], list[Wanted]]) -> Iterator[None]:
        """Have some bytes here while they are read, if the segment is fetched in parts."""
        if self.stored is None:
            yield
            return
        with self.stored.fetcher.pinned():
            self.stored.fetcher.fetch(wanted(self.stored))
            yield

    # ------------------------------------------------------------------------------------------------ changes

    def encoded(self, rows: Array | slice) -> Encoded:
        """Return the codes of some rows, in their order."""
        at = self.position[rows]
        if self.stored is None:
            return self._encoded(rows, at)
        here, places = np.arange(len(self))[rows], at.astype(np.int64)
        with self.having(lambda stored: stored.positions(places, places + 1) + stored.supplement(here)):
            return self._encoded(rows, at)

    def _encoded(self, rows: Array | slice, at: Array) -> Encoded:
        unit = self.unit[:, at].T
        if not self.flat:
            first = np.searchsorted(self.starts, at, side="right") - 1
            unit = np.concatenate([first[:, None].astype(unit.dtype), unit], axis=1)
        refine = len(self.supplement_scale) > 0
        return Encoded(
            np.ascontiguousarray(unit),
            np.ascontiguousarray(self.weight[:, at].T),
            *(self.scale[at], self.head[at], self.tail[at], self.factor[at]),
            -self.bias[at] if len(self.bias) else np.zeros(len(at), np.float32),
            supplement=self.supplement[rows] if refine else None,
            supplement_scale=self.supplement_scale[rows] if refine else None,
        )

    def reconstruct(self, rows: Ids | slice = slice(None)) -> Floats:
        return self.codec.decode(self.encoded(rows))

    # ------------------------------------------------------------------------------------------------- search

    def add_to(
        self, searcher: _kernels.ListSearcher, codec: int, visible: Mask | None = None, rows: Ids | None = None
    ) -> None:
        """Add the segment to a searcher; only visible rows are found, or only the given ones."""
        chosen, count = _NO_POSITIONS, self.count
        if rows is not None:
            chosen, visible = np.sort(self.position[rows]), None
            count = len(rows)
        elif visible is not None:
            count = int(np.count_nonzero(visible))
        else:
            visible = None if self.removed is None else self.live
        searcher.add_segment(
            codec,
            self.starts,
            self.unit,
            self.weight,
            self.scale,
            self.factor,
            self.bias,
            self.head,
            self.tail,
            self.supplement,
            self.supplement_scale,
            self.row,
            self.ids,
            _NO_MASK if visible is None else visible,
            count,
            chosen,
            rows is not None,
        )

    # ------------------------------------------------------------------------------------------------- storage

    def bytes_by_part(self) -> dict[str, int]:
        cached = self.position.nbytes if "position" in vars(self) else 0
        return {
            "codes": sum(part.nbytes for part in (self.unit, self.weight, self.scale)),
            "residual codes": sum(part.nbytes for part in (self.head, self.tail, self.factor)),
            "lists": self.row.nbytes + self.starts.nbytes + cached,
            "ids": self.ids.nbytes,
            "norms": self.bias.nbytes,
            "deletions": 0 if self.removed is None else self.removed.nbytes,
        }

    @property
    def supplement_bytes(self) -> int:
        """The bytes of the supplement, which is mapped from a file and read a little at a time."""
        return self.supplement.nbytes + self.supplement_scale.nbytes

    @property
    def arrays(self) -> dict[str, Array]:
        names = ("ids", "row", "starts", "unit", "weight", "scale", "factor", "bias", "head", "tail")
        return {name: getattr(self, name) for name in names}

    @property
    def supplement_arrays(self) -> dict[str, Array]:
        """The arrays of the supplement, stored in a file of their own."""
        return {"supplement": self.supplement, "supplement_scale": self.supplement_scale}

    @classmethod
    def from_arrays(cls, codec: Codec, arrays: Mapping[str, Array]) -> ListSegment:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        segment = cls._of_shapes(codec, arrays)
        segment.check_values()
        return segment

    @classmethod
    def from_stored(cls, codec: Codec, arrays: Mapping[str, Array], stored: StoredRows) -> ListSegment:
        """Build from arrays whose values are not here yet, but for `starts`."""
        return replace(cls._of_shapes(codec, arrays), stored=stored)

    def check_values(self) -> None:
        """Raise ValueError unless the values fit together."""
        check_ids(self.ids)
        if self.row.max() >= len(self) or (np.bincount(self.row, minlength=len(self)) != 1).any():
            raise ValueError("the lists do not hold each vector once")
        if self.unit.max(initial=0) >= self.codec.units:
            raise ValueError("a code refers to a memory vector that does not exist")
        for values in (self.scale, self.factor, self.bias, self.supplement_scale):
            check_array(values, np.float32, 1)

    @classmethod
    def _of_shapes(cls, codec: Codec, arrays: Mapping[str, Array]) -> ListSegment:
        """Build from arrays whose types and shapes are checked, and the values of `starts`."""
        ids = check_type(arrays["ids"], np.int64, 1)
        rows, L = len(ids), codec.entries
        row, starts = check_type(arrays["row"], np.uint32, 1), check_type(arrays["starts"], np.int64, 1)
        if len(row) != rows or not rows:
            raise ValueError("the lists do not hold each vector once")
        if len(starts):
            fits = len(starts) == codec.units + 1 and starts[0] == 0 and starts[-1] == rows
            if not fits or (starts[1:] < starts[:-1]).any():  # differences might overflow
                raise ValueError("the lists do not fit the units")
        unit = check_type(arrays["unit"], unit_dtype(codec.units), 2)
        weight = check_type(arrays["weight"], np.int8, 2)
        if unit.shape != (L - bool(len(starts)), rows) or weight.shape != (L, rows):
            raise ValueError("the codes do not fit the vectors")
        scale, factor, bias = (check_type(arrays[name], np.float32, 1) for name in ("scale", "factor", "bias"))
        head, tail = (check_type(arrays[name], np.uint8, 2) for name in ("head", "tail"))
        if (head.shape[1], tail.shape[1]) != codec.bands.code_bytes or not len(head) == len(tail) == rows:
            raise ValueError("the residual codes do not fit the vectors")
        if not len(scale) == len(factor) == rows or len(bias) not in (0, rows):
            raise ValueError("arrays of one segment differ in length")
        more, more_scale = _NO_BYTES, _NO_FLOATS
        if codec.refine:
            more = check_type(arrays["supplement"], np.int8, 2)
            more_scale = check_type(arrays["supplement_scale"], np.float32, 1)
            if more.shape != (rows, codec.dim) or len(more_scale) != rows:
                raise ValueError("the supplement does not fit the vectors")
        return cls(ids, None, codec, row, starts, unit, weight, scale, factor, bias, head, tail, more, more_scale)


def merge_segments(segments: Sequence[ListSegment]) -> ListSegment:
    """Return one segment with the live rows of several that share a codec; their estimates do not change."""
    first = segments[0]
    live = [np.flatnonzero(segment.live) for segment in segments]
    parts = [segment.encoded(rows) for segment, rows in zip(segments, live, strict=True)]
    ids = np.concatenate([segment.ids[rows] for segment, rows in zip(segments, live, strict=True)])
    order = np.argsort(ids)
    gathered = {
        field.name: _gather([getattr(part, field.name) for part in parts], order) for field in fields(Encoded)
    }
    return ListSegment.from_encoded(first.codec, Encoded(**gathered), ids[order], distances=len(first.bias) > 0)


def compact_segment(segment: ListSegment) -> ListSegment:
    """Return the segment without the space of removed rows."""
    return segment if segment.removed is None else merge_segments([segment])


def _gather(parts: Sequence[Array | None], order: Ids) -> Any:
    """Return the rows of several arrays in one order, or None if there are none."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known)[order] if known else None


def _aligned(code: NDArray[np.uint8], rows: Array) -> NDArray[np.uint8]:
    """Return a copy of some rows that starts at a multiple of 64 bytes: the fewest cache lines are read."""
    size = len(rows) * code.shape[1]
    space = np.empty(size + 64, np.uint8)
    first = -space.ctypes.data % 64
    copy = space[first : first + size].reshape(len(rows), code.shape[1])
    np.take(code, rows, axis=0, out=copy)
    return copy
