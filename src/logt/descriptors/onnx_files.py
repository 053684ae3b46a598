"""ONNX files: a model -> all its files, and one fingerprint of their bytes.

A model can keep its weights in other files, its external data. Their names are read from the model here, because the
package onnx is not required.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO

from logt.errors import CorruptIndexError, InvalidInputError
from logt.storage.files import open_regular

# The fields of the messages in onnx.proto that lead to tensors, and what they hold.
_NESTED = {
    "model": {7: "graph", 25: "function"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external data"},
}
_KEY, _VALUE = 1, 2  # the fields of an entry of the external data
_MAX_TEXT = 1 << 16  # bytes
_MAX_DEPTH = 100  # of groups in each other


def external_files(file: Path, stream: BinaryIO) -> dict[str, Path]:
    """Return the files that hold the external data of a model, by the names that the model gives them.

    file: the ONNX file. stream: its bytes. Names that lead out of its folder raise InvalidInputError, and so do bytes
    that are not a model: onnxruntime could read them in another way.
    """
    try:
        names = sorted(set(_locations(stream, 0, stream.seek(0, os.SEEK_END), "model")))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{file} cannot be loaded as an ONNX model: {error}; copy or export it again"
        ) from None
    folder = file.parent.resolve()
    paths = {name: folder / name for name in names}
    for name, path in paths.items():
        is_absolute = PurePosixPath(name).is_absolute() or bool(PureWindowsPath(name).anchor)
        is_plain = name.isprintable() and ".." not in PureWindowsPath(name).parts and not is_absolute
        if not is_plain or not path.resolve().is_relative_to(folder):
            raise InvalidInputError(f"{file} has external data in {name!r}, outside of its folder; it is not loaded")
        if not path.is_file():
            raise InvalidInputError(f"{file} has external data in {name!r}, which is missing; copy it to {folder}")
    return paths


def fingerprint(file: Path) -> str:
    """Return the SHA-256 of an ONNX file, or if it has external data, of the checksums of all its files."""
    try:
        with _opened(file) as stream:
            first, files = hashlib.file_digest(stream, "sha256").hexdigest(), external_files(file, stream)
        others = []
        for name, path in files.items():
            with _opened(path) as stream:
                others.append([name, hashlib.file_digest(stream, "sha256").hexdigest()])
    except (OSError, CorruptIndexError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"the model {file} cannot be read: {reason}") from error
    return hashlib.sha256(json.dumps([first, others]).encode()).hexdigest() if others else first


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    with open_regular(path) as file, os.fdopen(os.dup(file), "rb") as stream:
        yield stream


def _locations(stream: BinaryIO, at: int, end: int, kind: str) -> Iterator[str]:
    """Yield the names of the files of all tensors in a message, which is at these bytes of a stream."""
    for number, start, stop in _fields(stream, at, end):
        nested = _NESTED[kind].get(number)
        if nested == "external data":
            spans = {field: span for field, *span in _fields(stream, start, stop)}
            if _KEY in spans and _text(stream, *spans[_KEY]) == "location":
                yield _text(stream, *spans.get(_VALUE, (0, 0)))
        elif nested is not None:
            yield from _locations(stream, start, stop, nested)


def _fields(stream: BinaryIO, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, stop) of the fields of a protobuf message that have a length, outside of groups.

    Raise ValueError if it is damaged.
    """
    groups: list[int] = []  # that are open
    while at < end:
        tag, at = _varint(stream, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"invalid number of a field: {number}")
        if kind == 0:
            _, at = _varint(stream, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _varint(stream, at)
            if at + length <= end and not groups:
                yield number, at, at + length
            at += length
        elif kind == 3 and len(groups) < _MAX_DEPTH:
            groups.append(number)
        elif kind == 4 and groups and groups[-1] == number:
            groups.pop()
        else:
            raise ValueError(f"a field of the unknown kind {kind}, or a group without a beginning")
    if at > end or groups:
        raise ValueError("a field is longer than its message")


def _varint(stream: BinaryIO, at: int) -> tuple[int, int]:
    stream.seek(at)
    value = 0
    for shift in range(0, 70, 7):
        byte = ord(stream.read(1) or b"\xff")
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + shift // 7 + 1
    raise ValueError("an integer has no end")


def _text(stream: BinaryIO, start: int, stop: int) -> str:
    if stop - start > _MAX_TEXT:
        raise ValueError("a text is too long")
    stream.seek(start)
    return stream.read(stop - start).decode(errors="surrogateescape")
