"""Rows of vector files, local or by URL, a range at a time: files may be larger than memory."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.types import Array
from logt.datasets.mat_hdf5 import only_matrix, open_hdf5
from logt.datasets.vector_files import BIN, SUFFIXES, open_parquet, read_csv, read_npz, read_vectors, table_of_arrow
from logt.errors import InvalidInputError
from logt.storage.locations import file_system, is_url

_TABLES = {".npz": read_npz, ".csv": read_csv}


def rows_shape(source: str) -> tuple[int, int]:
    """Return (rows, dimensions) of a file; of most types, only the header is read. source: a path or URL."""
    with _open_rows(source) as rows:
        count, dim = rows.shape
        return count, dim


def read_rows(source: str, start: int, stop: int) -> Array:
    """Return some rows of a file; those of a local .npy, .fvecs or .fbin file are mapped. source: a path or URL."""
    with _open_rows(source) as rows:
        some: Array = rows[start:stop]
        return some


def source_stamp(source: str) -> list[Any]:
    """Return what changes when a file changes: its size, and its time or tag."""
    if not is_url(source):
        found = os.stat(source)
        return [found.st_size, found.st_mtime_ns]
    files, path = file_system(source)
    about = files.info(path)
    return [about["size"], str(about.get("ETag") or about.get("etag") or about.get("mtime") or "")]


@contextmanager
def _open_rows(source: str) -> Iterator[Any]:
    """Return something with a shape, whose rows are read when it is sliced."""
    suffix = Path(source.partition("?")[0]).suffix
    if suffix not in SUFFIXES:
        supported = ", ".join(SUFFIXES)
        raise InvalidInputError(f"{source}: unsupported file type {suffix!r}; supported: {supported}")
    if suffix == ".parquet":
        with _opened(source) as opened, open_parquet(opened, source) as file:
            yield _ParquetRows(file, source)
    elif suffix in (".h5", ".hdf5"):
        with _opened(source) as opened, open_hdf5(opened, source) as file:
            yield only_matrix(file, source)[1]
    elif not is_url(source):
        yield read_vectors(source)
    elif suffix in _TABLES:
        files, path = file_system(source)
        yield _TABLES[suffix](io.BytesIO(files.cat_file(path)), source, ids=False).vectors
    else:
        yield _RemoteRows(source, suffix)


def _opened(source: str) -> Any:
    if not is_url(source):
        return nullcontext(Path(source))
    files, path = file_system(source)
    return files.open(path, "rb")


class _ParquetRows:
    """Rows of a Parquet file: the row groups that hold some of them are read one after the other."""

    def __init__(self, file: Any, source: str):
        self._file, self._source = file, source

    @property
    def shape(self) -> tuple[int, int]:
        count = self._file.metadata.num_rows
        width = table_of_arrow(self._file.schema_arrow.empty_table(), self._source, ids=False).vectors.shape[1]
        if not width and count:  # lists of any length: the first row shows it
            first = next(self._file.iter_batches(1), None)
            if first is None:
                raise InvalidInputError(f"{self._source} is damaged: it has none of its {count:,} rows")
            width = table_of_arrow(first, self._source, ids=False).vectors.shape[1]
        return count, width

    def __getitem__(self, rows: slice) -> Array:
        parts, first = [], 0
        for group in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(group).num_rows
            low, high = max(rows.start - first, 0), min(rows.stop - first, count)
            if low < high:
                parts.append(
                    table_of_arrow(self._file.read_row_group(group), self._source, ids=False).vectors[low:high]
                )
            first += count
        if sum(map(len, parts)) != rows.stop - rows.start:
            raise InvalidInputError(f"{self._source} is damaged: it has fewer rows than it states")
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]), np.float32)


class _RemoteRows:
    """Rows of a .npy or .fbin file in a store."""

    def __init__(self, source: str, suffix: str):
        self._source, (self._files, self._path) = source, file_system(source)
        if suffix in BIN:
            self._offset, self._dtype = 8, np.dtype(BIN[suffix]).newbyteorder("<")
            start = self._files.cat_file(self._path, start=0, end=8)
            if len(start) < 8:
                raise InvalidInputError(f"{source} is damaged: it has {len(start)} bytes, and no header")
            self.shape = tuple(int(n) for n in np.frombuffer(start, "<u4"))
            return
        if suffix != ".npy":
            raise InvalidInputError(f"{source}: {suffix} files are read from local disks only; convert it to .npy")
        head = io.BytesIO(self._files.cat_file(self._path, start=0, end=4096))
        try:
            version = np.lib.format.read_magic(head)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, fortran, self._dtype = read(head)
        except Exception as error:  # numpy passes on any exception of its parser
            raise InvalidInputError(f"{source} is not a .npy file of numbers: {error}") from error
        if len(self.shape) != 2 or min(self.shape) < 0 or fortran or self._dtype.hasobject:
            raise InvalidInputError(f"{source} must hold a matrix of numbers, row by row; it has shape {self.shape}")
        self._offset = head.tell()

    def __getitem__(self, rows: slice) -> Array:
        dim = self.shape[1]
        start, stop = (self._offset + row * dim * self._dtype.itemsize for row in (rows.start, rows.stop))
        data = self._files.cat_file(self._path, start=start, end=stop)
        if len(data) != stop - start:
            raise InvalidInputError(
                f"{self._source} is damaged: it ends before row {rows.stop:,} of {self.shape[0]:,}"
            )
        return np.frombuffer(data, self._dtype).reshape(rows.stop - rows.start, dim)
