"""An index on disk, segments <-> folder: one file of plain arrays per memory and segment, and a manifest.

Files are named by their checksum and never changed. A new state is new files, then a new manifest, each written
under a temporary name, flushed to disk and renamed; so the folder holds the old state or the new one. Readers map
the files of the state they opened, which stay theirs when a writer unlinks them. The format is described in
docs/format.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from logt._types import Array
from logt.engine.segment import Method, Segment
from logt.engine.string_ids import Names
from logt.errors import CorruptIndexError, FormatVersionError
from logt.stages.codes import Codes
from logt.stages.correction import Suppress
from logt.stages.decoder import Cascade, GroupPinv, Local, Sparse, Transpose
from logt.stages.dictionary import DictionaryLearning
from logt.stages.grouping import KdTree, Orthogonal, Random, Units
from logt.stages.inverted_lists import Lists, Open
from logt.stages.kmeans import KMeans
from logt.stages.llc import LocalityConstrained
from logt.stages.memory_vectors import Mean, Pinv, Sum
from logt.stages.quantize import Float32, Float32Memory, Int8, Int8Memory, Memory, PQMemory, ProductQuantizer
from logt.stages.residual import CHUNK, Sketch, Sketches, sketch_bytes
from logt.storage.lock import LOCK, MANIFEST, OUR_FILE

FORMAT = 2
"""Written; 1, which knew no sketches and lists, is read as well."""

_STAGES: dict[str, type[Any]] = {
    stage.__name__: stage
    for stage in (
        *(Cascade, DictionaryLearning, Float32, GroupPinv, Int8, KdTree, KMeans, Local, LocalityConstrained, Mean),
        *(Method, Open, Orthogonal, Pinv, ProductQuantizer, Random, Sketch, Sparse, Sum, Suppress, Transpose),
    )
}


@dataclass(frozen=True)
class Stored:
    """All that an index is, apart from how it is used: settings, method, segments, names."""

    settings: Mapping[str, Any]
    method: Method
    segments: tuple[Segment, ...]
    names: Names | None = None


def write(folder: Path, stored: Stored) -> int:
    """Make `folder`, whose lock the caller holds, hold this state; say its generation.

    Files that the new state does not need, of older states or of a writer that died, are removed at the end.
    """
    about = {"settings": dict(stored.settings), "method": _plain(stored.method)}
    json.dumps(about)  # what cannot be written is refused before anything is
    files: dict[str, dict[str, Any]] = {}
    memories: dict[int, str] = {}
    entries = []
    for segment in stored.segments:
        memory = memories.get(id(segment.memory))
        if memory is None:
            memory = memories[id(segment.memory)] = _write_arrays(folder, "memory", segment.memory.arrays, files)
        entry = {
            "memory": memory,
            "kind": type(segment.memory).__name__,
            "segment": _write_arrays(folder, "segment", _segment_arrays(segment), files),
        }
        if segment.sketches is not None:
            halves = {"head": segment.sketches.head, "tail": segment.sketches.tail}
            entry["sketch"] = _write_arrays(folder, "sketch", halves, files)
        if segment.removed is not None:
            entry["removed"] = _write_arrays(folder, "removed", {"bits": np.packbits(segment.removed)}, files)
        entries.append(entry)
    names = None if stored.names is None else _write_arrays(folder, "names", _name_arrays(stored.names), files)
    number = _last_generation(folder) + 1
    manifest = {
        "format": FORMAT,
        "generation": number,
        **about,
        "segments": entries,
        "names": names,
        "files": files,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True)
    whole = {"manifest": manifest, "checksum": _digest(text.encode())}
    replace_file(folder / MANIFEST, json.dumps(whole, indent=1).encode())
    for other in folder.iterdir():
        if OUR_FILE.fullmatch(other.name) and other.name not in (*files, LOCK):
            other.unlink(missing_ok=True)
    return number


def read(folder: Path) -> tuple[Stored, int]:
    """The state that `folder` holds and its generation; any byte that is not as written raises CorruptIndexError."""
    while True:
        manifest = _read_manifest(folder)
        try:
            return _read_state(folder, manifest), manifest["generation"]
        except CorruptIndexError:
            if generation(folder) == manifest["generation"]:
                raise  # else a writer moved on while we read, and has removed files of the older state


def _last_generation(folder: Path) -> int:
    """0 for a folder that holds no index, or a damaged one; an index of a newer format is not written over."""
    try:
        return generation(folder)
    except (CorruptIndexError, FileNotFoundError):
        return 0


def generation(folder: Path) -> int:
    """The number of the state that `folder` holds, rising with each save."""
    number: int = _read_manifest(folder)["generation"]
    return number


def _read_state(folder: Path, manifest: Any) -> Stored:
    try:
        if any(Path(name).name != name for name in manifest["files"]):
            raise ValueError("a file outside the folder is named")
        loaded = {name: _read_arrays(folder / name, about) for name, about in manifest["files"].items()}
        kinds = {entry["memory"]: entry["kind"] for entry in manifest["segments"]}
        memories = {name: _memory(kind, loaded[name]) for name, kind in kinds.items()}
        segments = tuple(
            _segment(
                memories[entry["memory"]],
                loaded[entry["segment"]],
                loaded[entry["sketch"]] if "sketch" in entry else {},
                loaded[entry["removed"]] if "removed" in entry else {},
            )
            for entry in manifest["segments"]
        )
        method = _parsed(manifest["method"])
        if not isinstance(method, Method):
            raise ValueError(f"the method is a {type(method).__name__}")
        names = None if manifest["names"] is None else _names(loaded[manifest["names"]])
        if names is not None and sorted(names.texts) != sorted(i for s in segments for i in s.ids[s.live].tolist()):
            raise ValueError("names and vectors differ")
        return Stored(manifest["settings"], method, segments, names)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise CorruptIndexError(f"{folder}: the manifest and its files do not fit together: {error}") from error


# ------------------------------------------------------------------------------------------------- manifest


def _read_manifest(folder: Path) -> Any:
    try:
        text = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder} holds no index: there is no {MANIFEST} in it") from None
    try:
        outer = json.loads(text)
        manifest, checksum = outer["manifest"], outer["checksum"]
        version = manifest["format"]
        if type(manifest["generation"]) is not int:
            raise ValueError("the generation is no whole number")
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise CorruptIndexError(f"{folder / MANIFEST} is damaged: {error}") from error
    if _digest(json.dumps(manifest, indent=1, sort_keys=True).encode()) != checksum:
        raise CorruptIndexError(f"{folder / MANIFEST} is damaged: its checksum does not fit")
    if version not in (1, FORMAT):
        raise FormatVersionError(f"{folder} has format {version}, this version of logt reads {FORMAT}: update logt")
    return manifest


def _plain(stage: Any) -> Any:
    """A stage as {"stage": its class, **its parameters}."""
    if not is_dataclass(stage):
        return stage
    return {"stage": type(stage).__name__, **{f.name: _plain(getattr(stage, f.name)) for f in fields(stage)}}


def _parsed(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    return _STAGES[plain["stage"]](**{name: _parsed(value) for name, value in plain.items() if name != "stage"})


# --------------------------------------------------------------------------------------------- arrays, files


def _segment_arrays(segment: Segment) -> dict[str, Array]:
    codes = segment.codes
    arrays = {"unit": codes.unit, "weight": codes.weight, "scale": codes.scale, "ids": segment.ids}
    if segment.units is not None:
        arrays["units"] = segment.units.of
    if segment.norms is not None:
        arrays["norms"] = segment.norms
    if codes.inverse:
        arrays["inverse"] = np.ones(1, np.uint8)
    if segment.sketches is not None and segment.lists is not None:
        lists = segment.lists
        arrays |= {"factor": segment.sketches.factor, "bits": np.array([segment.sketches.bits], np.uint8)}
        arrays |= {"row": lists.row, "starts": lists.starts, "offsets": lists.offsets, "further": lists.further}
        arrays["fit"] = np.array([segment.fit], np.float32)
    return arrays


def _name_arrays(names: Names) -> dict[str, Array]:
    """Texts one after the other in UTF-8, where each ends, and the number each stands for."""
    coded = [text.encode("utf-8", "surrogatepass") for text in names.numbers]
    return {
        "text": np.frombuffer(b"".join(coded), np.uint8),
        "ends": np.cumsum([len(text) for text in coded], dtype=np.int64),
        "numbers": np.array(list(names.numbers.values()), np.int64),
    }


def _names(arrays: Mapping[str, Array]) -> Names:
    text, ends = _typed(arrays["text"], np.uint8, 1).tobytes(), _typed(arrays["ends"], np.int64, 1)
    _same_length(ends, _typed(arrays["numbers"], np.int64, 1))
    starts = [0, *ends.tolist()][:-1]
    texts = [text[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends.tolist(), strict=True)]
    return Names.of(texts, arrays["numbers"].tolist())


def _memory(kind: str, arrays: Mapping[str, Array]) -> Memory:
    if kind == "Float32Memory":
        memory: Memory = Float32Memory(_typed(arrays["Y"], np.float32, 2))
    elif kind == "Int8Memory":
        memory = Int8Memory(_typed(arrays["codes"], np.int8, 2), _typed(arrays["scale"], np.float32, 1))
        _same_length(arrays["codes"], arrays["scale"])
    elif kind == "PQMemory":
        codes, centroids = _typed(arrays["codes"], np.uint8, 2), _typed(arrays["centroids"], np.float32, 3)
        memory = PQMemory(codes, centroids, int(arrays["dim"][0]))
        if codes.shape[1] != len(centroids) or codes.max(initial=0) >= centroids.shape[1]:
            raise ValueError("a code names no centroid")
    else:
        raise ValueError(f"no memory of kind {kind!r}")
    return memory


def _segment(
    memory: Memory, arrays: Mapping[str, Array], sketch: Mapping[str, Array], removals: Mapping[str, Array]
) -> Segment:
    count = memory.shape[0]
    unit, weight = arrays["unit"], arrays["weight"]
    if unit.dtype not in (np.uint16, np.uint32) or weight.dtype not in (np.int8, np.float32):
        raise ValueError(f"codes of type {unit.dtype} and {weight.dtype}")
    unit, weight = _typed(unit, unit.dtype, 1), _typed(weight, weight.dtype, 1)
    if unit.shape != weight.shape or unit.max(initial=0) >= count:
        raise ValueError("a code names no memory vector")
    ids = _typed(arrays["ids"], np.int64, 1)
    codes = Codes(unit, weight, _typed(arrays["scale"], np.float32, 1), inverse="inverse" in arrays)
    _same_length(ids, codes.scale)
    if not len(ids) or not len(unit) or len(unit) % len(ids):
        raise ValueError(f"{len(unit)} codes for {len(ids)} vectors")
    if (np.diff(ids) <= 0).any() or ids[0] < 0:
        raise ValueError("ids do not rise")
    units = norms = removed = None
    if "units" in arrays:
        of = _typed(arrays["units"], unit.dtype, 2)
        _same_length(ids, of)
        if of.max(initial=0) >= count:
            raise ValueError("a unit has no memory vector")
        units = Units(of, count)
    if "norms" in arrays:
        norms = _typed(arrays["norms"], np.float32, 1)
        _same_length(ids, norms)
    if removals:
        bits = _typed(removals["bits"], np.uint8, 1)
        if len(bits) != -(-len(ids) // 8):
            raise ValueError("removals do not fit the segment")
        removed = np.unpackbits(bits, count=len(ids)).astype(bool)
    plain = Segment(memory, codes, ids, units, norms, removed)
    if not sketch:
        return plain
    return replace(
        plain,
        sketches=_sketches(arrays, sketch, memory.shape[1], len(ids)),
        lists=_lists(arrays, count, len(ids)),
        fit=float(_typed(arrays["fit"], np.float32, 1)[0]),
    )


def _sketches(arrays: Mapping[str, Array], halves: Mapping[str, Array], dim: int, rows: int) -> Sketches:
    bits = int(_typed(arrays["bits"], np.uint8, 1)[0])
    head, tail = (_typed(halves[name], np.uint8, 2) for name in ("head", "tail"))
    factor = _typed(arrays["factor"], np.float32, 1)
    if bits not in (1, 2, 4) or (head.shape[1], tail.shape[1]) != sketch_bytes(dim, bits):
        raise ValueError("sketches do not fit the vectors")
    if not len(head) == len(tail) == len(factor) == rows:
        raise ValueError("arrays of one segment differ in length")
    return Sketches(head, tail, factor, bits)


def _lists(arrays: Mapping[str, Array], units: int, rows: int) -> Lists:
    row, further = _typed(arrays["row"], np.uint32, 1), _typed(arrays["further"], np.uint32, 1)
    starts, offsets = _typed(arrays["starts"], np.int64, 1), _typed(arrays["offsets"], np.int64, 1)
    for ends, total in ((starts, rows), (offsets, len(further))):
        fits = len(ends) == units + 1 and ends[0] == 0 and ends[-1] == total
        if not fits or (np.diff(ends) < 0).any():
            raise ValueError("lists do not fit the units")
    if len(row) != rows or row.max(initial=0) >= rows or further.max(initial=0) >= rows:
        raise ValueError("lists name vectors that are not there")
    if (np.bincount(row, minlength=rows) != 1).any():
        raise ValueError("lists name a vector twice")
    return Lists(row, starts, offsets, further)


def _typed(array: Array, dtype: Any, ndim: int) -> Array:
    if array.dtype != dtype or array.ndim != ndim:
        raise ValueError(f"an array of {array.dtype} with {array.ndim} dimensions stands where {dtype} should")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("an array holds NaN or infinity")
    return array


def _same_length(*arrays: Array) -> None:
    if len({len(array) for array in arrays}) != 1:
        raise ValueError("arrays of one segment differ in length")


def _write_arrays(folder: Path, kind: str, arrays: Mapping[str, Array], files: dict[str, dict[str, Any]]) -> str:
    """Write one file, unless a file of that content is there; note its length and checksum in `files`."""
    from safetensors.numpy import save

    data = _aligned(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    checksum = _digest(data)
    name = f"{kind}-{checksum[:16]}.safetensors"
    files[name] = {"bytes": len(data), "checksum": checksum}
    path = folder / name
    if not (path.exists() and path.stat().st_size == len(data) and _digest(path.read_bytes()) == checksum):
        replace_file(path, data)
    return name


def _aligned(data: bytes) -> bytes:
    """A file whose first array begins at a multiple of CHUNK, once it is mapped: spaces end the header."""
    header = int.from_bytes(data[:8], "little")
    more = -(8 + header) % CHUNK
    return (header + more).to_bytes(8, "little") + data[8 : 8 + header] + b" " * more + data[8 + header :]


_DTYPES = {"F32": np.float32, "I8": np.int8, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I64": np.int64}


def _read_arrays(path: Path, about: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of one file, mapped: read from disk when they are used, shared by all processes, never copied."""
    try:
        data = np.asarray(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as error:
        raise CorruptIndexError(f"{path} cannot be read: {error}") from error
    if len(data) != about["bytes"] or _digest(data) != about["checksum"]:
        raise CorruptIndexError(f"{path} is damaged: its length or checksum does not fit")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    arrays = {}
    for name, about_array in header.items():
        if name != "__metadata__":
            first, last = about_array["data_offsets"]
            values = data[start + first : start + last].view(_DTYPES[about_array["dtype"]])
            arrays[name] = values.reshape(about_array["shape"])
    return arrays


def replace_file(path: Path, data: bytes) -> None:
    """Write under a temporary name, flush to disk, rename, flush the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    with _opened(path.parent, os.O_RDONLY) as directory:
        os.fsync(directory)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield file
    finally:
        os.close(file)


def _digest(data: Any) -> str:
    """BLAKE2b-256 of bytes, or of a mapped file without a copy of it."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()
