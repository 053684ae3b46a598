"""Files: atomic writes, checksums, and arrays in the safetensors format."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from logt._types import Array
from logt.errors import CorruptIndexError

ALIGNMENT = 64
"""The first array of a file starts at a multiple of this, so that mapped arrays are aligned to cache lines."""

_DTYPES = {"F32": np.float32, "I8": np.int8, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I64": np.int64}


def checksum(data: Any) -> str:
    """Return the BLAKE2b-256 of bytes, or of a mapped file without copying it."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def replace_file(path: Path, data: bytes) -> None:
    """Write under a temporary name, flush to disk, rename, flush the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _file_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    with _file_descriptor(path.parent, os.O_RDONLY) as directory:
        os.fsync(directory)


def array_file(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays as the bytes of a safetensors file whose first array is aligned once it is mapped."""
    from safetensors.numpy import save

    data: bytes = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    header = int.from_bytes(data[:8], "little")
    more = -(8 + header) % ALIGNMENT  # a header may end in spaces
    return (header + more).to_bytes(8, "little") + data[8 : 8 + header] + b" " * more + data[8 + header :]


def read_array_file(path: Path, about: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of one file, mapped: read from disk when used, shared by all processes, never copied."""
    try:
        data = np.asarray(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as error:
        raise CorruptIndexError(f"{path} cannot be read: {error}") from error
    if len(data) != about["bytes"] or checksum(data) != about["checksum"]:
        raise CorruptIndexError(f"{path} is damaged: its length or checksum does not match the manifest")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    arrays = {}
    for name, about_array in header.items():
        if name != "__metadata__":
            first, last = about_array["data_offsets"]
            values = data[start + first : start + last].view(_DTYPES[about_array["dtype"]])
            arrays[name] = values.reshape(about_array["shape"])
    return arrays


@contextmanager
def _file_descriptor(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield file
    finally:
        os.close(file)
