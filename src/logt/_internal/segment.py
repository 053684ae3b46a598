"""Segments: what one batch of vectors becomes. Immutable; the vectors themselves are not kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt._internal.validation import check_array

MAX_ROWS = (1 << 31) - 1
"""The most vectors of a segment."""


class BuildSettings(NamedTuple):
    """What an index has besides its method.

    segment_size: the most rows of a segment, or None: a batch is one. builder: what trains and encodes on another
    device (`gpu.building.DeviceBuilder`), if not this processor.
    """

    metric: Metric
    seed: int
    segment_size: int | None
    builder: Any = None

    def parts(self, N: int) -> list[slice]:
        """Return the rows of each segment of a batch of N vectors: equal segments, as few as possible."""
        count = -(-N // (self.segment_size or N))
        cuts = np.linspace(0, N, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(cuts)]


class StoredPart(NamedTuple):
    """The arrays of one file of a segment, and the objects that they are made from.

    While these are the same objects, the file does not change.
    """

    arrays: Mapping[str, Array]
    made_from: tuple[object, ...]


class RemovableRows:
    """A frozen dataclass of rows with increasing ids, one at least; `removed` marks removed ones.

    What has other removals is another object that shares everything else.
    """

    ids: Ids
    removed: Mask | None

    def __len__(self) -> int:
        return len(self.ids)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type] # no caches

    @cached_property
    def live(self) -> Mask:
        """The rows that are not removed."""
        return np.ones(len(self), bool) if self.removed is None else ~self.removed

    @cached_property
    def count(self) -> int:
        """The number of live rows."""
        return len(self) if self.removed is None else len(self) - int(np.count_nonzero(self.removed))

    def locate(self, ids: Ids) -> tuple[Ids, Mask]:
        """Return (a row for each id, whether the id is live in that row)."""
        last = len(self) - 1
        if len(self) and self.ids[last] - self.ids[0] == last:  # consecutive ids
            here: Mask = (ids >= self.ids[0]) & (ids <= self.ids[last])
            rows: Ids = np.where(here, ids - self.ids[0], 0)
        else:
            rows = np.minimum(np.searchsorted(self.ids, ids), last)
            here = self.ids[rows] == ids
        return rows, here if self.removed is None else here & ~self.removed[rows]

    def find(self, ids: Ids) -> Ids:
        """Return the rows of the given ids that are here."""
        rows, here = self.locate(ids)
        return rows[here]

    def remove(self, ids: Ids) -> Self:
        """Return the same without the rows of some ids, which need not be here."""
        rows = self.find(ids)
        if not len(rows):
            return self
        removed = np.zeros(len(self), bool) if self.removed is None else self.removed.copy()
        removed[rows] = True
        return replace(self, removed=removed)  # type: ignore[type-var]

    def with_removals(self, bits: Array) -> Self:
        """Return the same with the rows removed that are set in stored bits."""
        return replace(self, removed=unpack_removals(bits, len(self)))  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Segment(RemovableRows, ABC):
    """Encoded vectors."""

    ids: Ids
    removed: Mask | None

    @abstractmethod
    def compact(self) -> Segment:
        """Return the segment without the space of removed rows; the estimates of the others do not change."""

    @abstractmethod
    def reconstruct(self, rows: Ids | slice = slice(None)) -> Floats:
        """Return the stored approximations of some vectors."""

    def reconstruct_live(self) -> Floats:
        """Return the best approximations of all live vectors, to encode them again."""
        return self.reconstruct(np.flatnonzero(self.live))

    @property
    @abstractmethod
    def model(self) -> Any:
        """What segments may share, a codebook or a codec: it has `units`, `operations`, `arrays` and `nbytes`."""

    @property
    @abstractmethod
    def stored_parts(self) -> dict[str, StoredPart]:
        """What is stored of the segment, by the kind of file, apart from the model and the removals."""

    @property
    @abstractmethod
    def entries(self) -> int:
        """The entries of U."""

    @abstractmethod
    def bytes_by_part(self) -> dict[str, int]:
        """Return the bytes in memory of all that a search reads, apart from what segments share."""

    @property
    def mapped_bytes(self) -> int:
        """The bytes that stay on disk and are read a little at a time."""
        return 0

    def list_order(self) -> tuple[Ids, Ids]:
        """Return (the live rows, list by list; the sizes of the lists); all are in one list if there are none."""
        rows = np.flatnonzero(self.live)
        return rows, np.array([len(rows)])


def unpack_removals(bits: Array, rows: int) -> Mask:
    """Return which of so many rows are removed, from stored bits."""
    if len(check_array(bits, np.uint8, 1)) != -(-rows // 8):
        raise ValueError("the removals do not fit the rows")
    return np.unpackbits(bits, count=rows).astype(bool)


def as_row_mask(rows: Mask | Ids, count: int) -> Mask:
    """Return some rows, given as a mask or as a list, as a mask over `count` rows."""
    mask = np.zeros(count, bool)
    mask[rows] = True
    return mask


def models(segments: Iterable[Segment]) -> list[Any]:
    """Return the models of some segments, each once."""
    return list({id(segment.model): segment.model for segment in segments}.values())


def check_ids(ids: Array) -> Ids:
    """Return ids read from disk; raise ValueError unless there are some and they increase."""
    ids = check_array(ids, np.int64, 1)
    if not len(ids) or ids[0] < 0 or (ids[1:] <= ids[:-1]).any():  # differences might overflow
        raise ValueError("the ids do not increase")
    return ids
