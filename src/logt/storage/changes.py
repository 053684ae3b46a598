"""The write-ahead log: changes since the manifest was written. Each save appends a record and flushes it to disk.

A record is a header (magic, generation, length, checksum of the header), a checksum that also covers the one before,
and arrays. Added vectors are kept as their codes, so opening an index encodes nothing. If the last record is torn, as
after a power failure, it was never acknowledged: it is dropped with a warning. Damage before it is an error.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from logt._internal.segment import Segment
from logt._internal.types import Array, Ids
from logt._internal.validation import check_array
from logt.engine.items import Items
from logt.engine.string_ids import Layer
from logt.errors import CorruptIndexError
from logt.storage.files import UNUSABLE, append_to_file, array_file, file_size, parse_arrays, read_bytes

MAX_PENDING = 8 << 20
"""Bytes of codes that wait to be logged; more are written as segments."""

MAX_LOG, MIN_LOG, LOG_SHARE = 16 << 20, 128 << 10, 32
"""A log has at most 1/LOG_SHARE of the bytes of the other files, or MIN_LOG if that is more, and at most MAX_LOG.
The save that would make it larger writes segments instead: opening takes a few times as long per byte of a log."""

MAX_CHANGES = 16
"""Changes in a log: each takes time to read and repeat, however small it is."""

_MAX_FILE = 2 * MAX_LOG  # with what a save that did not finish may have left
_MAGIC = b"LOGT"
_LIKE_MAGIC, _ESCAPED = b"LOG", b"LOG\0"  # no payload contains the magic: none of its bytes begin a record
_HEADER = struct.Struct("<4sQQI")
_DIGEST = 32
_ITEM = "item_"  # before the names of the arrays of items


@dataclass(frozen=True, eq=False)
class Change:
    """Vectors that were added, or ids that were removed.

    arrays: of the segment of added vectors, with their ids; of a removal, the ids alone. model: what the segment was
    encoded with; in the log, the name of its file. strings: the ids of added vectors, if they are strings, with
    their integers. items: of added vectors, if they have any.
    """

    kind: Literal["add", "remove"]
    arrays: Mapping[str, Array]
    model: Any = None
    strings: Layer | None = None
    items: Items | None = None

    @classmethod
    def add(cls, segment: Segment, strings: Sequence[str] | None, items: Items | None = None) -> Change:
        arrays = {name: array for part in segment.stored_parts.values() for name, array in part.arrays.items()}
        layer = None if strings is None else Layer.of(strings, segment.ids)
        return cls("add", arrays, segment.model, layer, items)

    @classmethod
    def remove(cls, ids: Ids) -> Change:
        return cls("remove", {"ids": ids})

    @property
    def ids(self) -> Ids:
        return self.arrays["ids"]

    @property
    def nbytes(self) -> int:
        items = 0 if self.items is None else self.items.nbytes
        strings = 0 if self.strings is None else self.strings.nbytes
        return items + strings + sum(array.nbytes for array in self.arrays.values())


class PendingChanges:
    """The changes of an index since it was saved; None if they are not known, or too many, or not of these kinds."""

    def __init__(self) -> None:
        self.changes: list[Change] | None = None
        self.nbytes = 0

    def restart(self) -> None:
        self.changes, self.nbytes = [], 0

    def rewrite(self) -> None:
        """Note a change that only new files can hold."""
        self.changes = None

    def record(self, change: Change) -> None:
        """Note a change; if there are too many, only new files can hold them."""
        if self.changes is None:
            return
        self.changes.append(change)
        self.nbytes += change.nbytes
        if len(self.changes) > MAX_CHANGES or self.nbytes > MAX_PENDING:
            self.changes = None


@dataclass(frozen=True)
class Position:
    """The end of the last complete record of a log.

    offset: where it is. generation, digest: of that record. start: where that record begins. changes: in all records.
    """

    offset: int
    generation: int
    digest: bytes
    start: int = 0
    changes: int = 0


def log_path(folder: Path, state: str | None) -> Path:
    """Return the path of the log of a manifest with this state."""
    return folder / f"changes-{state}.log"


def start_of_log(manifest: Mapping[str, Any]) -> Position:
    """Return the position at the start of the log of a manifest."""
    digest = hashlib.blake2b(manifest["state"].encode(), digest_size=_DIGEST).digest()
    return Position(0, manifest["generation"], digest)


def is_whole(path: Path, at: Position) -> bool:
    """Return whether a log still has all bytes before a position."""
    return at.offset <= (file_size(path) or 0)


def limit_of_log(files: Mapping[str, Mapping[str, Any]]) -> int:
    """Return how many bytes a log may have. files: those of the manifest, with their "bytes"."""
    share: int = sum(about["bytes"] for about in files.values()) // LOG_SHARE
    return min(max(share, MIN_LOG), MAX_LOG)


def append(path: Path, at: Position, changes: Sequence[Change], limit: int | None = None) -> Position | None:
    """Append one record with some changes, flush it to disk, and return the new end.

    Bytes after `at` are of a save that did not finish, and are cut off. limit: write nothing, and return None, if the
    log would have more bytes, or more than MAX_CHANGES changes.
    """
    payload = b"".join(_encode(change) for change in changes).replace(_LIKE_MAGIC, _ESCAPED)
    generation = at.generation + 1
    digest = _digest(at, payload)
    head = _HEADER.pack(_MAGIC, generation, len(payload), 0)[:-4]
    record = head + struct.pack("<I", zlib.crc32(head)) + digest + payload
    end = Position(at.offset + len(record), generation, digest, at.offset, at.changes + len(changes))
    if limit is not None and (end.offset > limit or end.changes > MAX_CHANGES):
        return None
    append_to_file(path, at.offset, record)
    return end


def read(path: Path, at: Position, *, locked: bool = False) -> tuple[list[Change], Position, str | None]:
    """Return the changes of the records after `at`, where they end, and what is wrong with the next one, or None.

    Only the record before `at` and those after it are read.

    A record is wrong if it is damaged, or if the one before `at` is not the one that was read: a writer removes a
    record that could not be flushed to disk. A last record that is torn is left out, with a warning. Without one if
    it is a part of a record that a writer may be writing; locked: there is no other writer.
    """
    try:
        log = _Log(path, read_bytes(path, _MAX_FILE, at.start), at.start)
    except FileNotFoundError:
        log = _Log(path, b"", at.start)
    except CorruptIndexError as error:
        return [], at, str(error)
    if at.offset and log.part(at.start + _HEADER.size, _DIGEST) != at.digest:
        return [], at, f"{path} has another record at byte {at.start} than before"
    changes, headers = list[Change](), dict[bytes, Any]()
    try:
        while at.offset < log.end:
            record = log.next_record(at)
            if record is None:
                return changes, at, log.torn_end(at, locked=locked)
            payload, end = record
            new = _decode(payload, headers)
            changes += new
            at = replace(end, changes=at.changes + len(new))
    except (*UNUSABLE, struct.error) as error:
        return changes, at, f"{path} is damaged at byte {at.offset}: {error}"
    return changes, at, None


@dataclass(frozen=True)
class _Log:
    """The bytes of a log from `first` on. All places are those in the file."""

    path: Path
    data: bytes
    first: int

    @property
    def end(self) -> int:
        return self.first + len(self.data)

    def part(self, start: int, length: int) -> bytes:
        return self.data[start - self.first : start - self.first + length]

    def next_record(self, at: Position) -> tuple[bytes, Position] | None:
        """Return (payload, end) of the record at a position; None if there is no complete and undamaged one."""
        found = self._header(at.offset)
        if found is None:
            return None
        generation, length = found
        start = at.offset + _HEADER.size + _DIGEST
        payload, digest = self.part(start, length), self.part(start - _DIGEST, _DIGEST)
        if len(payload) < length or _digest(at, payload) != digest:
            return None
        if generation != at.generation + 1:
            raise ValueError(f"a record of generation {generation} after {at.generation}")
        return payload, Position(start + length, generation, digest, at.offset)

    def _header(self, at: int) -> tuple[int, int] | None:
        """Return (generation, length) from the header of a record at this byte, None if there is none."""
        header = self.part(at, _HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, generation, length, crc = _HEADER.unpack(header)
        return (generation, length) if magic == _MAGIC and zlib.crc32(header[:-4]) == crc else None

    def torn_end(self, at: Position, *, locked: bool) -> str | None:
        """Warn of the bytes after the last record, and return None; or say what is wrong if a record follows them."""
        header = self._header(at.offset)
        inside = 1 if header is None else _HEADER.size + _DIGEST + header[1]
        later = self.data.find(_MAGIC, at.offset + inside - self.first)
        while later >= 0:
            if self._header(self.first + later) is not None:
                return f"{self.path} is damaged at byte {at.offset}: the checksum of a record does not match"
            later = self.data.find(_MAGIC, later + 1)
        left = self.end - at.offset
        started = left < (_HEADER.size if header is None else inside)
        if locked or not started:
            text = f"{self.path} ends in {left:,} bytes of a save that did not finish; they are ignored"
            warnings.warn(text, stacklevel=2)
        return None


def _digest(before: Position, payload: bytes) -> bytes:
    """Return the checksum of a record, which covers the records before it."""
    return hashlib.blake2b(before.digest + payload, digest_size=_DIGEST).digest()


def _encode(change: Change) -> bytes:
    arrays, metadata = dict(change.arrays), {"kind": str(change.kind)}
    if change.model is not None:
        metadata["model"] = change.model
    if change.strings is not None:
        arrays |= {"text": change.strings.text, "ends": change.strings.ends}
    if change.items is not None:
        arrays |= {_ITEM + name: array for name, array in change.items.arrays.items() if name != "ids"}
    data = array_file(arrays, metadata)
    return struct.pack("<Q", len(data)) + data


def _decode(payload: bytes, headers: dict[bytes, Any]) -> list[Change]:
    """Return the changes of a record. headers: those that were read before; many changes have the same."""
    payload = payload.replace(_ESCAPED, _LIKE_MAGIC)
    changes, start = [], 0
    while start < len(payload):
        (length,) = struct.unpack_from("<Q", payload, start)
        found, metadata = parse_arrays(np.frombuffer(payload[start + 8 : start + 8 + length], np.uint8), headers)
        start += 8 + length
        arrays = dict(found)
        ids = check_array(arrays["ids"], np.int64, 1)
        strings = None
        if "text" in arrays:
            strings = Layer.from_arrays({"text": arrays.pop("text"), "ends": arrays.pop("ends"), "numbers": ids})
        of_items = {name: arrays.pop(name) for name in list(arrays) if name.startswith(_ITEM)}
        items = None
        if of_items:
            items = Items.from_arrays({"ids": ids, **{name.removeprefix(_ITEM): of_items[name] for name in of_items}})
        kind, model = metadata["kind"], metadata.get("model")
        if kind == "add" and isinstance(model, str):
            changes.append(Change("add", arrays, model, strings, items))
        elif kind == "remove":
            changes.append(Change.remove(ids))
        else:
            raise ValueError(f"a change of kind {kind!r} with the model {model!r}")
    return changes
