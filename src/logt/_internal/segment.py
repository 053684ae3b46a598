"""Segments: what one batch of vectors becomes. Immutable; the vectors themselves are not kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import check_array

Self = TypeVar("Self", bound="Segment")


@dataclass(frozen=True, eq=False)
class Segment(ABC):
    """Encoded vectors with increasing ids.

    `removed` marks removed rows; a segment with other removals is another segment that shares everything else.
    """

    ids: Ids
    removed: Mask | None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def live(self) -> Mask:
        """The rows that are not removed."""
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
        here: Mask = self.ids[rows] == ids
        return rows, here if self.removed is None else here & self.live[rows]

    def remove(self: Self, rows: Ids) -> Self:
        """Return the segment with some more rows removed."""
        removed = np.zeros(len(self), bool) if self.removed is None else self.removed.copy()
        removed[rows] = True
        return replace(self, removed=removed)

    def with_removals(self: Self, bits: Array) -> Self:
        """Return the segment with the rows removed that are set in stored bits."""
        if len(check_array(bits, np.uint8, 1)) != -(-len(self) // 8):
            raise ValueError("the removals do not fit the segment")
        return replace(self, removed=np.unpackbits(bits, count=len(self)).astype(bool))

    @abstractmethod
    def reconstruct(self, rows: Ids | slice = slice(None)) -> Floats:
        """Return the stored approximations of some vectors."""

    @property
    @abstractmethod
    def model(self) -> object:
        """What segments may share: a codebook or a codec."""

    @property
    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """The arrays to store, apart from the shared ones and the removals."""

    @abstractmethod
    def bytes_by_part(self) -> dict[str, int]:
        """Return the bytes in memory of all that a search reads, apart from what segments share."""


def check_ids(ids: Array) -> Ids:
    """Return ids read from disk; raise ValueError unless there are some and they increase."""
    ids = check_array(ids, np.int64, 1)
    if not len(ids) or ids[0] < 0 or (ids[1:] <= ids[:-1]).any():  # differences might overflow
        raise ValueError("the ids do not increase")
    return ids
