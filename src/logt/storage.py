"""An index on disk, segments <-> folder: one file of plain arrays per memory and segment, and a manifest.

Files are named by their checksum and never changed. A new state is new files, then a new manifest, each written
under a temporary name, flushed to disk and renamed; so the folder holds the old state or the new one. The format
is described in docs/format.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from logt._types import Array
from logt.correction import Suppress
from logt.decoder import Cascade, Codes, GroupPinv, Local, Sparse, Transpose
from logt.errors import CorruptIndexError, FormatVersionError, InvalidInputError
from logt.grouping import Orthogonal, Random, Units
from logt.memory import Pinv, Sum
from logt.quantize import Float32, Float32Memory, Int8, Int8Memory, Memory, PQMemory, ProductQuantizer
from logt.segment import Method, Segment

FORMAT = 1
MANIFEST = "manifest.json"

_STAGES: dict[str, type[Any]] = {
    stage.__name__: stage
    for stage in (
        *(Cascade, Float32, GroupPinv, Int8, Local, Method, Orthogonal, Pinv),
        *(ProductQuantizer, Random, Sparse, Sum, Suppress, Transpose),
    )
}


@dataclass(frozen=True)
class Stored:
    """All that an index is, apart from how it is used: settings, method, segments."""

    settings: Mapping[str, Any]
    method: Method
    segments: tuple[Segment, ...]


def write(folder: Path, stored: Stored) -> None:
    """Make `folder` hold this state; other files of an index that stood there are removed at the end."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MANIFEST).exists())):
        raise InvalidInputError(f"{folder} exists and is not an index; choose another path")
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, dict[str, Any]] = {}
    memories: dict[int, str] = {}
    entries = []
    for segment in stored.segments:
        memory = memories.get(id(segment.memory))
        if memory is None:
            memory = memories[id(segment.memory)] = _write_arrays(folder, "memory", segment.memory.arrays, files)
        name = _write_arrays(folder, "segment", _segment_arrays(segment), files)
        entries.append({"memory": memory, "kind": type(segment.memory).__name__, "segment": name})
    manifest = {
        "format": FORMAT,
        "settings": dict(stored.settings),
        "method": _plain(stored.method),
        "segments": entries,
        "files": files,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True)
    _replace(
        folder / MANIFEST,
        json.dumps({"manifest": manifest, "checksum": _digest(text.encode())}, indent=1).encode(),
    )
    for other in folder.glob("*.safetensors"):
        if other.name not in files:
            other.unlink()


def read(folder: Path) -> Stored:
    """The state that `folder` holds; any byte that is not as written raises CorruptIndexError."""
    manifest = _read_manifest(folder)
    try:
        if any(Path(name).name != name for name in manifest["files"]):
            raise ValueError("a file outside the folder is named")
        loaded = {name: _read_arrays(folder / name, about) for name, about in manifest["files"].items()}
        kinds = {entry["memory"]: entry["kind"] for entry in manifest["segments"]}
        memories = {name: _memory(kind, loaded[name]) for name, kind in kinds.items()}
        segments = tuple(
            _segment(memories[entry["memory"]], loaded[entry["segment"]]) for entry in manifest["segments"]
        )
        method = _parsed(manifest["method"])
        if not isinstance(method, Method):
            raise ValueError(f"the method is a {type(method).__name__}")
        return Stored(manifest["settings"], method, segments)
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
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptIndexError(f"{folder / MANIFEST} is damaged: {error}") from error
    if _digest(json.dumps(manifest, indent=1, sort_keys=True).encode()) != checksum:
        raise CorruptIndexError(f"{folder / MANIFEST} is damaged: its checksum does not fit")
    if version != FORMAT:
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
    if segment.bias is not None:
        arrays["bias"] = segment.bias
    if codes.inverse:
        arrays["inverse"] = np.ones(1, np.uint8)
    return arrays


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


def _segment(memory: Memory, arrays: Mapping[str, Array]) -> Segment:
    count = memory.shape[0]
    unit, weight = arrays["unit"], arrays["weight"]
    if unit.dtype not in (np.uint16, np.uint32) or weight.dtype not in (np.int8, np.float32):
        raise ValueError(f"codes of type {unit.dtype} and {weight.dtype}")
    if unit.ndim != 1 or unit.shape != weight.shape or unit.max(initial=0) >= count:
        raise ValueError("a code names no memory vector")
    ids = _typed(arrays["ids"], np.int64, 1)
    codes = Codes(unit, weight, _typed(arrays["scale"], np.float32, 1), inverse="inverse" in arrays)
    _same_length(ids, codes.scale)
    if not len(ids) or not len(unit) or len(unit) % len(ids):
        raise ValueError(f"{len(unit)} codes for {len(ids)} vectors")
    units = bias = None
    if "units" in arrays:
        of = _typed(arrays["units"], unit.dtype, 2)
        _same_length(ids, of)
        if of.max(initial=0) >= count:
            raise ValueError("a unit has no memory vector")
        units = Units(of, count)
    if "bias" in arrays:
        bias = _typed(arrays["bias"], np.float32, 1)
        _same_length(ids, bias)
    return Segment(memory, codes, ids, units, bias)


def _typed(array: Array, dtype: Any, ndim: int) -> Array:
    if array.dtype != dtype or array.ndim != ndim:
        raise ValueError(f"an array of {array.dtype} with {array.ndim} dimensions stands where {dtype} should")
    return array


def _same_length(*arrays: Array) -> None:
    if len({len(array) for array in arrays}) != 1:
        raise ValueError("arrays of one segment differ in length")


def _write_arrays(folder: Path, kind: str, arrays: Mapping[str, Array], files: dict[str, dict[str, Any]]) -> str:
    """Write one file, unless a file of that content is there; note its length and checksum in `files`."""
    from safetensors.numpy import save

    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    checksum = _digest(data)
    name = f"{kind}-{checksum[:16]}.safetensors"
    files[name] = {"bytes": len(data), "checksum": checksum}
    path = folder / name
    if not (path.exists() and _digest(path.read_bytes()) == checksum):
        _replace(path, data)
    return name


def _read_arrays(path: Path, about: Mapping[str, Any]) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorruptIndexError(f"{path} cannot be read: {error}") from error
    if len(data) != about["bytes"] or _digest(data) != about["checksum"]:
        raise CorruptIndexError(f"{path} is damaged: its length or checksum does not fit")
    try:
        return dict(load(data))
    except SafetensorError as error:
        raise CorruptIndexError(f"{path} is damaged: {error}") from error


def _replace(path: Path, data: bytes) -> None:
    """Write under a temporary name, flush to disk, rename, flush the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()
