"""Matrices of numbers in .mat files of MATLAB 5 to 7.2. The reader of scipy ends the process for some damaged files.

A file is a header and elements. An element is a tag (type, bytes) and data. The data of a variable are elements:
flags, dimensions, name, numbers. A variable may be compressed, with its tag.
"""

import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from logt._internal.types import Array

_HEADER = 128  # bytes
_ORDERS = {b"IM": "<", b"MI": ">"}  # by the last bytes of the header
_MATRIX, _COMPRESSED = 14, 15  # types of elements
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x0800  # a bit of the flags
_START = 1024  # bytes of a compressed variable that are read to find its name


def read_mat_5(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """Return the matrices with these names that a file has, transposed; raise any error if the file is damaged."""
    data = np.memmap(path, np.uint8, "r").data
    order = _ORDERS.get(bytes(data[_HEADER - 2 : _HEADER]))
    if order is None:
        raise ValueError("it has no header of MATLAB 5 to 7.3")
    found = {}
    for kind, content in _elements(data[_HEADER:], order, step=1):
        parts = content
        if kind == _COMPRESSED:
            parts = memoryview(zlib.decompressobj().decompress(content, _START))[8:]
        if kind not in (_MATRIX, _COMPRESSED):
            raise ValueError(f"it has an element of type {kind}")
        *_, (_, name) = islice(_elements(parts, order), 3)
        text = bytes(name).decode()
        if text in names:
            whole = memoryview(zlib.decompress(content))[8:] if kind == _COMPRESSED else content
            found[text] = _matrix(whole, order)
    return found


def _elements(data: memoryview, order: str, step: int = 8) -> Iterator[tuple[int, memoryview]]:
    """Yield (type, data) of each element. step: data are padded to a multiple of these bytes."""
    at = 0
    while at + 8 <= len(data):
        kind, size = np.frombuffer(data[at : at + 8], f"{order}u4").tolist()
        if kind >> 16:  # a small element: its data are in the tag
            yield kind & 0xFFFF, data[at + 4 : at + 4 + min(4, kind >> 16)]
            at += 8
        else:
            yield kind, data[at + 8 : at + 8 + size]
            at += 8 + size + -size % step


def _matrix(variable: memoryview, order: str) -> Array:
    """Return the numbers of a variable, stored column by column, as the rows of a matrix."""
    (_, flags), (_, dims), _, (kind, numbers) = islice(_elements(variable, order), 4)
    flag = int(np.frombuffer(flags, f"{order}u4")[0])
    if flag & 0xFF not in _CLASSES or flag & _COMPLEX:
        raise ValueError("X or Q is not a full matrix of real numbers")
    shape = np.frombuffer(dims, f"{order}u4").tolist()
    values = np.frombuffer(numbers, f"{order}{_NUMBERS[kind]}").reshape(shape[::-1])
    return values.astype(_CLASSES[flag & 0xFF], copy=False)
