"""Segments whose bytes are fetched before they are read, (lists or rows) -> byte ranges of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from logt._internal.types import Array, Ids, Mask

Wanted = tuple[Any, Ids]
"""A file, and ranges (n, 2) of its bytes: from, to."""


class Fetcher(Protocol):
    """Fetches parts of files. What was fetched within `pinned` stays until that ends."""

    def pinned(self) -> AbstractContextManager[int]:
        """Return a context in which nothing that is fetched or requested again is dropped; its value is the time."""

    def fetch(self, wanted: Sequence[Wanted], since: int = 0) -> bool:
        """Fetch what is not there; return whether anything was missing, or has come after the time `since`.

        Only within `pinned`.
        """

    def have_all(self, files: Sequence[Any]) -> bool:
        """Return whether all of some files is there; it stays then. Only within `pinned`."""

    def fetch_whole(self, files: Sequence[Any]) -> None:
        """Fetch files as a whole, check them, and keep them."""

    def read(self, file: Any, start: int, stop: int) -> bytes:
        """Return some bytes of a file, without keeping them."""


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array in a file. offset: of its first byte."""

    file: Any
    offset: int
    array: Array

    def ranges(self, first: Ids, last: Ids) -> Ids:
        """Return the bytes of some rows of the array: from first[i] to last[i] - 1."""
        size = self.array.nbytes // max(len(self.array), 1)
        return self.offset + np.stack([first, last], axis=1) * size

    def columns(self, first: Ids, last: Ids) -> Ids:
        """Return the bytes of some columns of the array, in all its rows."""
        rows, width = self.array.shape
        start = (np.arange(rows) * width)[:, None]
        both = np.stack([(start + first).ravel(), (start + last).ravel()], axis=1)
        return self.offset + both * self.array.itemsize


class StoredRows:
    """The files of one segment with inverted lists."""

    def __init__(self, fetcher: Fetcher, arrays: Mapping[str, StoredArray], ids: Ids, ids_known: bool):
        """arrays: by their names in the segment. ids: is filled by `fetch_ids`, unless its values are known."""
        self.fetcher = fetcher
        self._arrays, self._ids, self._ids_known = arrays, ids, ids_known

    @property
    def files(self) -> list[Any]:
        return list({id(stored.file): stored.file for stored in self._arrays.values()}.values())

    def fetch_ids(self) -> bool:
        """Fetch the ids; return whether they were missing."""
        if self._ids_known:
            return False
        stored = self._arrays["ids"]
        data = self.fetcher.read(stored.file, stored.offset, stored.offset + stored.array.nbytes)
        self._ids[:] = np.frombuffer(data, np.int64)
        self._ids_known = True
        return True

    def whole(self, name: str) -> list[Wanted]:
        """Return what one array needs."""
        stored = self._arrays[name]
        return [(stored.file, np.array([[stored.offset, stored.offset + stored.array.nbytes]]))]

    def positions(self, first: Ids, last: Ids) -> list[Wanted]:
        """Return what a search needs of the codes at the positions first[i] to last[i] - 1."""
        parts = [self._arrays[name] for name in ("row", "scale", "factor", "bias", "head", "tail")]
        wanted = [(part.file, part.ranges(first, last)) for part in parts if len(part.array)]
        return wanted + [(self._arrays[n].file, self._arrays[n].columns(first, last)) for n in ("unit", "weight")]

    def lists(self, starts: Ids, read: Mask) -> list[Wanted]:
        """Return what a search needs of some lists. read: one value per unit."""
        units = np.flatnonzero(read)
        first, last = starts[units], starts[units + 1]
        used = first < last
        return self.positions(first[used], last[used])

    def supplement(self, rows: Ids) -> list[Wanted]:
        """Return what the supplement of some rows needs."""
        names = [name for name in ("supplement", "supplement_scale") if name in self._arrays]
        return [(self._arrays[name].file, self._arrays[name].ranges(rows, rows + 1)) for name in names]
