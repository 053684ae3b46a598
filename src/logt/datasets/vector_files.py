"""Vector files: .npy, .fvecs, .fbin and others are memory-mapped, so that they may be larger than memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.types import Array
from logt.datasets.mat_hdf5 import read_hdf5
from logt.datasets.table_files import NPY_ERRORS, read_csv, read_npz, read_parquet
from logt.errors import InvalidInputError

_VECS = {".fvecs": np.float32, ".bvecs": np.uint8}
_BIN = {".fbin": np.float32, ".u8bin": np.uint8, ".i8bin": np.int8}
_TABLES = {  # read into memory
    ".npz": read_npz,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".h5": read_hdf5,
    ".hdf5": read_hdf5,
}
SUFFIXES = (".npy", *_VECS, *_BIN, *_TABLES)
"""The types of files that vectors are read from."""


def read_vectors(path: str | os.PathLike[str]) -> Array:
    """Return the vectors of a file as the rows of a matrix.

    path: a .npy, .fvecs, .bvecs, .fbin, .u8bin or .i8bin file, which is memory-mapped; or a .npz, .csv, .parquet,
    .h5 or .hdf5 file. Of a .h5 file, `train` is read, or its only matrix.
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; pass a file of vectors: {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}")
    if path.suffix == ".npy":
        return _read_npy(path)
    if path.suffix in _VECS:
        return _read_vecs(path, np.dtype(_VECS[path.suffix]))
    if path.suffix in _BIN:
        return _read_bin(path, np.dtype(_BIN[path.suffix]))
    if path.suffix in _TABLES:
        return _TABLES[path.suffix](path, str(path))
    raise InvalidInputError(f"{path}: unsupported file type {path.suffix!r}; supported: {', '.join(SUFFIXES)}")


def _read_npy(path: Path) -> Array:
    try:
        matrix: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except NPY_ERRORS as error:
        raise InvalidInputError(f"{path} is not a .npy file of numbers: {error}") from error
    if matrix.ndim != 2:
        raise InvalidInputError(f"{path} has shape {matrix.shape}, expected (rows, dimensions)")
    return matrix


def _read_vecs(path: Path, dtype: np.dtype[Any]) -> Array:
    """Map a file of rows, each an int32 dimension d followed by d components."""
    size = path.stat().st_size
    head = np.fromfile(path, "<i4", 1)
    dim = int(head[0]) if len(head) else 0
    width = 4 + dim * dtype.itemsize
    if dim < 1 or size % width:
        raise InvalidInputError(f"{path} is damaged: {size:,} bytes are not a multiple of a row of dimension {dim}")
    rows = np.memmap(path, np.uint8, "r").reshape(-1, width)
    dims = np.ndarray((len(rows),), "<i4", rows, strides=(width,))
    if (dims != dim).any():
        row = int((dims != dim).argmax())
        raise InvalidInputError(f"{path} is damaged: row {row} has dimension {dims[row]}, row 0 has {dim}")
    return np.ndarray((len(rows), dim), dtype.newbyteorder("<"), rows, offset=4, strides=(width, dtype.itemsize))


def _read_bin(path: Path, dtype: np.dtype[Any]) -> Array:
    """Map a file of a uint32 number of rows, a uint32 dimension, then all components."""
    size = path.stat().st_size
    head = np.fromfile(path, "<u4", 2)
    count, dim = (int(head[0]), int(head[1])) if len(head) == 2 else (0, 0)
    if size != 8 + count * dim * dtype.itemsize or dim < 1:
        raise InvalidInputError(
            f"{path} is damaged: its header states {count:,} rows of dimension {dim}, but it has {size:,} bytes"
        )
    if count == 0:
        return np.empty((0, dim), dtype)
    return np.memmap(path, dtype.newbyteorder("<"), "r", offset=8, shape=(count, dim))


def read_neighbors(path: str | os.PathLike[str]) -> Array:
    """Return the rows (nq, k) of an .ibin file of nearest neighbors; distances that follow them are not read.

    path: the file: a uint32 number of queries, a uint32 k, then k int32 rows per query.
    """
    path = Path(path)
    size = path.stat().st_size
    head = np.fromfile(path, "<u4", 2)
    count, k = (int(head[0]), int(head[1])) if len(head) == 2 else (0, 0)
    if k < 1 or size not in (8 + 4 * count * k, 8 + 8 * count * k):
        raise InvalidInputError(
            f"{path} is damaged: its header states {k} neighbors of {count:,} queries, but it has {size:,} bytes"
        )
    return np.fromfile(path, "<i4", count * k, offset=8).reshape(count, k)
