"""The write-ahead log: changes since the manifest was written. Each save appends a record and flushes it to disk.

A record is a header (magic, generation, length, checksum of the header), a checksum that also covers the one before,
and arrays. A record that is not complete was never acknowledged, and is ignored; one that is complete but damaged is
an error.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import check_array, check_lengths
from logt.engine.string_ids import Layer
from logt.errors import CorruptIndexError
from logt.storage.files import UNUSABLE, append_to_file, array_file, parse_arrays, read_bytes

MAX_PENDING = 8 << 20
"""Bytes of vectors that wait to be logged; more are written as segments."""

MAX_LOG = 16 << 20
"""Bytes of a log; a larger one is folded into segments by the next save."""

MAX_CHANGES = 1000
"""Changes in a log: opening an index repeats them one by one, which takes a few milliseconds each."""

_MAX_FILE = 1 << 34
_MAGIC = b"LOGT"
_HEADER = struct.Struct("<4sQQI")
_DIGEST = 32


@dataclass(frozen=True, eq=False)
class Change:
    """Vectors that were added under ids (and strings, if the index has string ids), or ids that were removed."""

    kind: Literal["add", "remove"]
    ids: Ids
    X: Floats | None = None
    strings: tuple[str, ...] | None = None

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + (0 if self.X is None else self.X.nbytes)


class PendingChanges:
    """The changes of an index since it was saved; None if they are not known, or too many, or not of these kinds."""

    def __init__(self) -> None:
        self.changes: list[Change] | None = None
        self.nbytes = 0

    def restart(self) -> None:
        """Begin to record: everything is saved."""
        self.changes, self.nbytes = [], 0

    def rewrite(self) -> None:
        """Note a change that only new files can hold."""
        self.changes = None

    def has_room(self, more: int) -> bool:
        if self.changes is None or len(self.changes) >= MAX_CHANGES:
            return False
        return self.nbytes + more <= MAX_PENDING

    def record(self, change: Change) -> None:
        if not self.has_room(change.nbytes):
            self.changes = None
        elif self.changes is not None:
            self.changes.append(change)
            self.nbytes += change.nbytes


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

    def has_room(self, nbytes: int, count: int) -> bool:
        """Return whether the log can take so many bytes and changes more."""
        return self.offset + nbytes <= MAX_LOG and self.changes + count <= MAX_CHANGES


def log_path(folder: Path, state: str | None) -> Path:
    """Return the path of the log of a manifest with this state."""
    return folder / f"changes-{state}.log"


def start_of_log(manifest: Mapping[str, Any]) -> Position:
    """Return the position at the start of the log of a manifest."""
    digest = hashlib.blake2b(manifest["state"].encode(), digest_size=_DIGEST).digest()
    return Position(0, manifest["generation"], digest)


def append(path: Path, at: Position, changes: Sequence[Change]) -> Position:
    """Append one record with some changes, flush it to disk, and return the new end.

    Bytes after `at` are of a record that was not complete, and are cut off.
    """
    payload = b"".join(_encode(change) for change in changes)
    generation = at.generation + 1
    digest = hashlib.blake2b(at.digest + payload, digest_size=_DIGEST).digest()
    head = _HEADER.pack(_MAGIC, generation, len(payload), 0)[:-4]
    record = head + struct.pack("<I", zlib.crc32(head)) + digest + payload
    append_to_file(path, at.offset, record)
    return Position(at.offset + len(record), generation, digest, at.offset, at.changes + len(changes))


def read(path: Path, at: Position) -> tuple[list[Change], Position, str | None]:
    """Return the changes of the records after `at`, where they end, and what is wrong with the next one, or None.

    A record is wrong if it is damaged, or if the one before `at` is not the one that was read: a writer removes a
    record that could not be flushed to disk.
    """
    try:
        data = read_bytes(path, _MAX_FILE)
    except FileNotFoundError:
        data = b""
    known = at.start + _HEADER.size
    if at.offset and data[known : known + _DIGEST] != at.digest:
        return [], at, f"{path} has another record at byte {at.start} than before"
    changes: list[Change] = []
    try:
        while record := _next_record(path, data, at):
            payload, end = record
            new = _decode(payload)
            changes += new
            at = replace(end, changes=at.changes + len(new))
    except CorruptIndexError as error:
        return changes, at, str(error)
    except (*UNUSABLE, struct.error) as error:
        return changes, at, f"{path} is damaged at byte {at.offset}: {error}"
    return changes, at, None


def _next_record(path: Path, data: bytes, at: Position) -> tuple[bytes, Position] | None:
    """Return (payload, end) of the record at a position; None if there is no complete one."""
    start = at.offset + _HEADER.size + _DIGEST
    if start > len(data):
        return None
    magic, generation, length, crc = _HEADER.unpack_from(data, at.offset)
    head = data[at.offset : at.offset + _HEADER.size - 4]
    if magic != _MAGIC or zlib.crc32(head) != crc or generation != at.generation + 1:
        raise CorruptIndexError(f"{path} is damaged at byte {at.offset}: a record has a wrong header")
    if start + length > len(data):
        return None
    payload, digest = data[start : start + length], data[start - _DIGEST : start]
    if hashlib.blake2b(at.digest + payload, digest_size=_DIGEST).digest() != digest:
        raise CorruptIndexError(f"{path} is damaged at byte {at.offset}: the checksum of a record does not match")
    return payload, Position(start + length, generation, digest, at.offset)


def _encode(change: Change) -> bytes:
    arrays: dict[str, Array] = {"ids": change.ids}
    if change.X is not None:
        arrays["X"] = change.X
    if change.strings is not None:
        layer = Layer(change.strings, change.ids).arrays
        arrays |= {"text": layer["text"], "ends": layer["ends"]}
    data = array_file(arrays, {"kind": change.kind})
    return struct.pack("<Q", len(data)) + data


def _decode(payload: bytes) -> list[Change]:
    changes, start = [], 0
    while start < len(payload):
        (length,) = struct.unpack_from("<Q", payload, start)
        arrays, metadata = parse_arrays(np.frombuffer(payload[start + 8 : start + 8 + length], np.uint8))
        start += 8 + length
        kind = metadata["kind"]
        ids = np.array(check_array(arrays["ids"], np.int64, 1))
        X = strings = None
        if kind not in ("add", "remove") or (kind == "add") != ("X" in arrays):
            raise ValueError(f"a change of kind {kind!r}")
        if kind == "add":
            X = np.array(check_array(arrays["X"], np.float32, 2))
            check_lengths(ids, X)
        if "text" in arrays:
            strings = Layer.from_arrays({**arrays, "numbers": ids}).strings
        changes.append(Change("add" if kind == "add" else "remove", ids, X, strings))
    return changes
