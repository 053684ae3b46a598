"""Files: atomic writes, checksums, and arrays in the safetensors format."""

import errno
import hashlib
import json
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.types import Array
from logt.errors import CorruptIndexError
from logt.storage.verification import Verification

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ALIGNMENT = 64
"""Bytes of a cache line. The first array of a file starts at a multiple of this."""

UNUSABLE = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, RecursionError)
"""What bytes that are not as logt writes them raise."""

_METADATA = "__metadata__"  # the key of a header that is no array
_MAX_HEADER = 1 << 20  # bytes
_PIECE = 1 << 20  # bytes that are copied at a time
_NOT_SUPPORTED = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY)  # F_FULLFSYNC on network file systems

_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)

_TYPES = {
    "F32": np.float32,
    "I8": np.int8,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "I32": np.int32,
    "I64": np.int64,
}
_DTYPES: dict[str, Any] = {name: np.dtype(kind) for name, kind in _TYPES.items()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def checksum(data: Any) -> str:
    """Return the BLAKE2b-256 of bytes, or of a mapped file without copying it."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


# ---------------------------------------------------------------------------------------------------- writing


def replace_file(path: Path, data: bytes) -> None:
    """Write under a temporary name, flush to disk, rename, flush the folder."""
    with _replacing(path) as file:
        write_all(file, data)


@contextmanager
def _replacing(path: Path) -> Iterator[int]:
    """Open a temporary file; it is flushed and renamed at the end, or removed if the body raises.

    No other writer uses its name, even on another machine that shares the folder.
    """
    temporary = path.with_name(f".{path.name}.{int.from_bytes(os.urandom(8))}.tmp")
    try:
        with open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            yield file
            flush(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


def write_all(file: int, data: bytes) -> None:
    """Write all bytes to an open file."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def append_to_file(path: Path, start: int, data: bytes) -> None:
    """Write bytes at the end of a file, from `start` on, and flush them to disk; cut them off if that fails.

    The name of the file is flushed with its first bytes, even if an earlier attempt has made it.
    """
    with open_descriptor(path, os.O_WRONLY | os.O_CREAT) as file:
        os.ftruncate(file, start)
        os.lseek(file, start, os.SEEK_SET)
        try:
            write_all(file, data)
            flush(file)
            if start == 0:
                flush_folder(path.parent)
        except BaseException:
            os.ftruncate(file, start)
            raise


def flush(file: int) -> None:
    """Flush an open file to disk; on macOS, `fsync` alone leaves it in the cache of the drive."""
    if fcntl is not None and hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
    os.fsync(file)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    with open_descriptor(folder, os.O_RDONLY) as directory:
        flush(directory)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, and flush their names to disk.

    The innermost one that exists is flushed, too: a process that was killed may have made it a moment ago.
    """
    for path in reversed(missing_folders(folder)):
        _flush_name(path.parent)
        path.mkdir(exist_ok=True)
    _flush_name(folder)


def _flush_name(folder: Path) -> None:
    """Flush the name of a folder to disk, unless it is in one that only others can have made it in."""
    try:
        flush_folder(folder.parent)
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise


def missing_folders(folder: Path) -> list[Path]:
    """Return the folder and its parents that do not exist, the innermost first."""
    folders = [folder, *folder.parents]
    return folders[: next((n for n, path in enumerate(folders) if path.exists()), len(folders))]


def file_size(path: Path) -> int | None:
    """Return the bytes of a file, None if there is none; it may be deleted at any moment."""
    try:
        about = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None


def copy_file(source: Path, target: Path, about: Mapping[str, Any]) -> None:
    """Copy a file of an index, as `replace_file` writes it; the bytes that are read are checked.

    about: "bytes" and "checksum" of the file; a target that has them is left as it is.
    """
    if target.is_file() and describe_file(target) == about:
        return
    with _replacing(target) as file:
        if describe_file(source, copy_to=file) != about:
            raise CorruptIndexError(f"{source} is damaged: its checksum does not match the manifest")


def array_file(arrays: Mapping[str, Array], metadata: dict[str, str] | None = None) -> bytes:
    """Return arrays as the bytes of a safetensors file.

    Arrays of whole cache lines come first, so that their rows are aligned once the file is mapped; then those of the
    largest items, so that all items are aligned.
    """
    placed = sorted(arrays.items(), key=lambda item: (item[1].nbytes % ALIGNMENT > 0, -item[1].itemsize, item[0]))
    header: dict[str, Any] = {} if metadata is None else {_METADATA: metadata}
    size = 0
    for name, array in placed:
        offsets = [size, size := size + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    parts = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for _, array in placed)
    return b"".join((len(text).to_bytes(8, "little"), text, *parts))


# ---------------------------------------------------------------------------------------------------- reading


def read_bytes(path: Path, most: int, start: int = 0) -> bytes:
    """Return the bytes of a regular file of at most `most` bytes, from `start` on."""
    with open_regular(path) as file:
        if os.fstat(file).st_size > most:
            raise CorruptIndexError(f"{path} has more than {most:,} bytes")
        os.lseek(file, start, os.SEEK_SET)
        with os.fdopen(os.dup(file), "rb") as stream:
            return stream.read()


def describe_file(path: Path, copy_to: int | None = None) -> dict[str, Any]:
    """Return the length and the checksum of a file, read piece by piece, as a manifest has them.

    copy_to: an open file that the pieces are written to.
    """
    digest, size = hashlib.blake2b(digest_size=32), 0
    with open_regular(path) as file:
        while piece := os.read(file, _PIECE):
            if copy_to is not None:
                write_all(copy_to, piece)
            digest.update(piece)
            size += len(piece)
    return {"bytes": size, "checksum": digest.hexdigest()}


def read_array_file(
    path: Path, about: Mapping[str, Any], *, large_pages: bool = False, verification: Verification | None = None
) -> dict[str, Array]:
    """Return the arrays of one file, mapped: read from disk when used, shared by all processes, never copied.

    about: "bytes" and "checksum" of the file. verification: checks the checksum; at once if None.
    large_pages: ask the system to map it in large pages, where it can. Searches read vectors in many places, and find
    their addresses sooner; but what is not in memory is then read 2 MiB at a time.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file).st_size
            if size != about["bytes"] or size < 8:
                raise CorruptIndexError(f"{path} is damaged: it has {size:,} bytes, not {about['bytes']:,}")
            mapped = mmap.mmap(file, size, access=mmap.ACCESS_READ)
            if large_pages and hasattr(mmap, "MADV_HUGEPAGE"):
                with suppress(OSError):  # of a system without them
                    mapped.madvise(mmap.MADV_HUGEPAGE)
            data = np.frombuffer(mapped, np.uint8)
    except FileNotFoundError:
        raise CorruptIndexError(f"{path} is missing") from None
    (verification or Verification()).add(path, data, about)
    return parse_arrays(data)[0]


def parse_arrays(data: Array, headers: dict[bytes, Any] | None = None) -> tuple[dict[str, Array], Mapping[str, str]]:
    """Return (arrays, metadata) of the bytes of a safetensors file; raise one of UNUSABLE if they are none.

    headers: those of other files, which may have the same.
    """
    length = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or length > _MAX_HEADER:
        raise ValueError(f"a header of {length:,} bytes")
    start = 8 + length
    text = data[8:start].tobytes()
    header = json.loads(text) if headers is None or text not in headers else headers[text]
    if headers is not None:
        headers[text] = header
    abouts = ((name, about) for name, about in header.items() if name != _METADATA)
    return {name: _array_at(data, start, about) for name, about in abouts}, header.get(_METADATA, {})


def _array_at(data: Array, start: int, about: Mapping[str, Any]) -> Array:
    """Return an array of the bytes after a header, which ends at `start`. about: what the header has of it."""
    first, last = about["data_offsets"]
    if not 0 <= first <= last <= len(data) - start:
        raise ValueError("an array is not inside the file")
    array: Array = np.ndarray(about["shape"], _DTYPES[about["dtype"]], data.data, start + first)
    if array.nbytes != last - first:
        raise ValueError("an array has another shape than its bytes")
    if not array.flags.aligned:
        raise ValueError("an array does not start at a multiple of the size of its items")
    return array


@contextmanager
def open_regular(path: Path) -> Iterator[int]:
    """Open a file for reading without waiting for a writer of a pipe; anything but a regular file is refused."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise CorruptIndexError(f"{path} is not a regular file")
        yield file
    finally:
        os.close(file)


def open_here(path: Path, flags: int) -> int:
    """Create or open a file to write; raise CorruptIndexError if it is a link: an index may come from elsewhere."""
    try:
        return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise CorruptIndexError(f"{path} is a symbolic link, and would write to another place; remove it") from error


@contextmanager
def open_descriptor(path: Path, flags: int) -> Iterator[int]:
    """Open a file or folder by its path, and close it at the end."""
    file = open_here(path, flags) if flags & os.O_CREAT else os.open(path, flags)
    try:
        yield file
    finally:
        os.close(file)
