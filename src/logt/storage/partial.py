"""An index by URL that is opened without its lists: the manifest, headers and memory vectors are read, no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from logt._internal.types import Array, Ids
from logt.engine.on_demand import StoredArray, StoredRows
from logt.engine.string_ids import StringIds
from logt.errors import CorruptIndexError
from logt.graph.neighbor_graph import LinkState
from logt.lists.codec import Codec
from logt.lists.segment import ListSegment
from logt.storage.files import MAX_HEADER, METADATA, array_at, header_bytes, parse_header
from logt.storage.sparse import BLOCK, FINE_BLOCK, BlockFetcher, SparseFile

_FIRST = 2048  # bytes of a file that are read for its header; most are shorter


class PartialFiles:
    """The files of segments, of which only headers are read."""

    def __init__(self, fetcher: BlockFetcher, files: Mapping[str, Mapping[str, Any]], name: str):
        """files: of the manifest. name: the URL of the index."""
        self._fetcher, self._files, self._name = fetcher, files, name
        self._headers: dict[str, tuple[int, dict[str, Any]]] = {}

    def check(self) -> None:
        """Raise CorruptIndexError if a file is missing or has another length."""
        for name, about in self._files.items():
            if name not in self._fetcher.versions:
                raise CorruptIndexError(f"{self._name}/{name} is missing")
            size = self._fetcher.versions[name][0]
            if size != about["bytes"]:
                raise CorruptIndexError(
                    f"{self._name}/{name} is damaged: it has {size:,} bytes, not {about['bytes']:,}"
                )

    def read_headers(self, names: list[str]) -> None:
        """Read the headers of some files, all at once."""
        first = self._fetcher.read_ranges([(n, 0, min(_FIRST, self._files[n]["bytes"])) for n in names])
        for name, data in zip(names, first, strict=True):
            length = header_bytes(data[:8])
            if 8 + length > self._files[name]["bytes"] or length > MAX_HEADER:
                raise ValueError(f"{name} has a header of {length:,} bytes")
            if 8 + length > len(data):
                data += self._fetcher.read_ranges([(name, len(data), 8 + length)])[0]
            self._headers[name] = 8 + length, parse_header(data[8 : 8 + length])

    def rows(self, name: str, array: str) -> int:
        """Return the rows of an array of a file whose header was read."""
        return int(self._headers[name][1][array]["shape"][0])

    def read_segments(self, entries: list[Mapping[str, Any]], codecs: Mapping[str, Any]) -> list[ListSegment]:
        """Return the segments of some entries of the manifest, without their removals."""
        self.read_headers([entry[part] for entry in entries for part in ("segment", "supplement") if part in entry])
        wanted = [self._first_ranges(entry["segment"]) for entry in entries]
        parts = iter(self._fetcher.read_ranges([piece for three in wanted for piece in three]))
        segments = []
        for entry in entries:
            lowest, highest, starts = (np.frombuffer(next(parts), np.int64) for _ in range(3))
            segments.append(self._segment(entry, codecs[entry["model"]], (int(lowest[0]), int(highest[0])), starts))
        return segments

    def _first_ranges(self, name: str) -> list[tuple[str, int, int]]:
        """Return the ranges of the first and the last id, and of where lists start."""
        start, header = self._headers[name]
        first, last = header["ids"]["data_offsets"]
        if last - first < 8 or header["ids"]["dtype"] != "I64" or header["starts"]["dtype"] != "I64":
            raise ValueError(f"{name} has no ids")
        lists = header["starts"]["data_offsets"]
        spans = [(first, first + 8), (last - 8, last), (lists[0], lists[1])]
        return [(name, start + low, start + high) for low, high in spans]

    def _segment(self, entry: Mapping[str, Any], codec: Codec, ends: tuple[int, int], starts: Ids) -> ListSegment:
        stored = self._arrays(entry["segment"], BLOCK, codec.units)
        if "supplement" in entry:
            stored |= self._arrays(entry["supplement"], FINE_BLOCK, 0)
        rows = len(stored["ids"].array)
        known = ends[1] - ends[0] == rows - 1 and ends[0] >= 0  # they increase
        ids = np.arange(ends[0], ends[1] + 1, dtype=np.int64) if known else np.zeros(rows, np.int64)
        arrays = {name: part.array for name, part in stored.items()} | {"ids": ids, "starts": starts}
        return ListSegment.from_stored(codec, arrays, StoredRows(self._fetcher, stored, ids, known))

    def _arrays(self, name: str, block: int, units: int) -> dict[str, StoredArray]:
        """Return the arrays of a file; its blocks are checked as they arrive."""
        start, header = self._headers[name]
        file = self._fetcher.open(name, self._files[name], block, units)
        stored = {}
        for key, about in header.items():
            if key != METADATA:
                array = array_at(file.data, start, about)
                stored[key] = StoredArray(file, start + about["data_offsets"][0], array)
        if not file.checks and units:
            file.checks += [
                _below(file, stored["unit"], units, "a code refers to a memory vector that does not exist"),
                _below(file, stored["row"], len(stored["row"].array), "a list refers to a row that does not exist"),
            ]
        return stored


def _below(file: SparseFile, stored: StoredArray, limit: int, message: str) -> Callable[[int, int], None]:
    """Return a check of the values of an array in some bytes of its file: the compiled search relies on them."""
    dtype, first, last = stored.array.dtype, stored.offset, stored.offset + stored.array.nbytes
    if file.block % dtype.itemsize or first % dtype.itemsize:
        raise ValueError("an array is not aligned")

    data = file.data

    def check(start: int, stop: int) -> None:
        values: Array = data[max(start, first) : max(min(stop, last), max(start, first))].view(dtype)
        if values.max(initial=0) >= limit:
            raise ValueError(message)

    return check


# --------------------------------------------------------------------------------- what is read when it is used


class DeferredStrings(StringIds):
    """String ids that are read when they are first used."""

    def __init__(self, read: Callable[[], StringIds], nbytes: int):
        vars(self).update(_read=read, _nbytes=nbytes)

    @cached_property
    def layers(self) -> Any:
        return vars(self)["_read"]().layers

    @property
    def nbytes(self) -> int:
        """The bytes of the files, or in memory once they are read."""
        return super().nbytes if "layers" in vars(self) else int(vars(self)["_nbytes"])


class DeferredLinks(LinkState):
    """A neighbor graph that is read when it is first used. count: of linked vectors. nbytes: of its files."""

    def __init__(self, read: Callable[[], LinkState], count: int, nbytes: int):
        vars(self).update(_read=read, _count=count, _nbytes=nbytes)

    @cached_property
    def _state(self) -> LinkState:
        state: LinkState = vars(self)["_read"]()
        return state

    @property
    def links(self) -> Any:
        return self._state.links

    @property
    def removed(self) -> Any:
        return self._state.removed

    @property
    def count(self) -> int:
        return int(vars(self)["_count"])

    @property
    def nbytes(self) -> int:
        return self._state.nbytes if "_state" in vars(self) else int(vars(self)["_nbytes"])
