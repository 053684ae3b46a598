"""Rows of vector files, local or by URL, a range at a time: files may be larger than memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from logt._internal.types import Array
from logt.datasets.mat_hdf5 import only_matrix, open_hdf5
from logt.datasets.table_files import matrix_of_table, read_csv, read_npz
from logt.datasets.vector_files import SUFFIXES, read_vectors
from logt.errors import InvalidInputError, MissingExtraError
from logt.storage.locations import file_system, is_url

_TABLES = {".npz": read_npz, ".csv": read_csv}
_BIN = {".fbin": "<f4", ".u8bin": "u1", ".i8bin": "i1"}
_HDF5 = (".h5", ".hdf5")


def rows_shape(source: str) -> tuple[int, int]:
    """Return (rows, dimensions) of a file; of most types, only the header is read. source: a path or URL."""
    suffix = _suffix(source)
    if suffix == ".parquet":
        with _parquet(source) as file:
            width = matrix_of_table(file.schema_arrow.empty_table(), source).shape[1]
            if not width and file.metadata.num_rows:  # lists of any length: the first row shows it
                width = matrix_of_table(next(file.iter_batches(1)), source).shape[1]
            return file.metadata.num_rows, width
    if suffix in _HDF5:
        with _hdf5(source) as dataset:
            return dataset.shape[0], dataset.shape[1]
    if not is_url(source) or suffix in _TABLES:
        return _whole(source).shape
    return _remote_layout(source, suffix)[2]


def read_rows(source: str, start: int, stop: int) -> Array:
    """Return some rows of a file; those of a local .npy, .fvecs or .fbin file are mapped. source: a path or URL."""
    suffix = _suffix(source)
    if suffix == ".parquet":
        with _parquet(source) as file:
            return _parquet_rows(file, source, start, stop)
    if suffix in _HDF5:
        with _hdf5(source) as dataset:
            return np.asarray(dataset[start:stop])
    if not is_url(source) or suffix in _TABLES:
        return _whole(source)[start:stop]
    offset, dtype, (_, dim) = _remote_layout(source, suffix)
    width = dim * dtype.itemsize
    files, path = file_system(source)
    data = files.cat_file(path, start=offset + start * width, end=offset + stop * width)
    return np.frombuffer(data, dtype).reshape(stop - start, dim)


def source_stamp(source: str) -> list[Any]:
    """Return what changes when a file changes: its size, and its time or tag."""
    if not is_url(source):
        found = os.stat(source)
        return [found.st_size, found.st_mtime_ns]
    files, path = file_system(source)
    about = files.info(path)
    return [about["size"], str(about.get("ETag") or about.get("etag") or about.get("mtime") or "")]


def _suffix(source: str) -> str:
    suffix = Path(source.partition("?")[0]).suffix
    if suffix not in SUFFIXES:
        supported = ", ".join(SUFFIXES)
        raise InvalidInputError(f"{source}: unsupported file type {suffix!r}; supported: {supported}")
    return suffix


def _whole(source: str) -> Array:
    if not is_url(source):
        return read_vectors(source)
    files, path = file_system(source)
    return _TABLES[_suffix(source)](io.BytesIO(files.cat_file(path)), source)


def _remote_layout(source: str, suffix: str) -> tuple[int, np.dtype[Any], tuple[int, int]]:
    """Return (where the first row starts, type, shape) of a .npy or .fbin file in a store."""
    files, path = file_system(source)
    if suffix in _BIN:
        count, dim = (int(n) for n in np.frombuffer(files.cat_file(path, start=0, end=8), "<u4"))
        return 8, np.dtype(_BIN[suffix]), (count, dim)
    if suffix != ".npy":
        raise InvalidInputError(f"{source}: {suffix} files are read from local disks only; convert it to .npy")
    head = io.BytesIO(files.cat_file(path, start=0, end=4096))
    try:
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(head)
    except (ValueError, EOFError) as error:
        raise InvalidInputError(f"{source} is not a .npy file of numbers: {error}") from error
    if len(shape) != 2 or min(shape) < 0 or fortran or dtype.hasobject:
        raise InvalidInputError(f"{source} must hold a matrix of numbers, row by row; it has shape {shape}")
    return head.tell(), dtype, (shape[0], shape[1])


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    files, path = file_system(source)
    with files.open(path, "rb") as file:
        yield file


@contextmanager
def _parquet(source: str) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(f"reading {source} needs pyarrow: pip install 'logt-search[data]'") from error
    try:
        if is_url(source):
            with _opened(source) as file, pq.ParquetFile(file) as table:
                yield table
        else:
            with pq.ParquetFile(source) as table:
                yield table
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:  # of the system, not of the content
            raise
        raise InvalidInputError(f"{source} is not a Parquet file: {error}") from error


def _parquet_rows(file: Any, source: str, start: int, stop: int) -> Array:
    """Read the row groups that hold some rows, one after the other."""
    parts, first = [], 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        low, high = max(start - first, 0), min(stop - first, count)
        if low < high:
            parts.append(matrix_of_table(file.read_row_group(group), source)[low:high])
        first += count
    return np.concatenate(parts)


@contextmanager
def _hdf5(source: str) -> Iterator[Any]:
    with (
        _opened(source) if is_url(source) else nullcontext(Path(source)) as opened,
        open_hdf5(opened, source) as file,
    ):
        yield only_matrix(file, source)
