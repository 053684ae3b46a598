"""An index on disk, segments <-> folder: one file of arrays per codebook and segment, and a manifest.

Files are named by their checksum and never changed. A new generation is new files, then a new manifest, each written
under a temporary name, flushed to disk and renamed; so the folder holds the old state or the new one. Readers map the
files of the generation they opened and keep them when a writer unlinks them. See docs/reference/format.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from logt._types import Array
from logt.engine.method import Method
from logt.engine.segment import Segment
from logt.engine.string_ids import Layer, StringIds
from logt.errors import CorruptIndexError, FormatVersionError
from logt.stages.cascade import Cascade
from logt.stages.correction import Suppress
from logt.stages.decoder import GroupPinv, Local, Sparse, Transpose
from logt.stages.dictionary import DictionaryLearning
from logt.stages.grouping import KdTree, Orthogonal, Random
from logt.stages.inverted_lists import Probe
from logt.stages.kmeans import KMeans
from logt.stages.llc import LocalityConstrained
from logt.stages.memory_vectors import Mean, Pinv, Sum
from logt.stages.quantize import CODEBOOKS, Codebook, Float32, Int8, ProductQuantizer
from logt.stages.residual import ResidualQuantizer
from logt.storage.files import array_file, checksum, read_array_file, replace_file
from logt.storage.lock import INDEX_FILE, LOCK, MANIFEST

FORMAT = 2
"""Written. Format 1, which had no residual codes, is read as well."""

_STAGES: dict[str, type[Any]] = {
    **{
        stage.__name__: stage
        for stage in (
            *(
                Cascade,
                DictionaryLearning,
                Float32,
                GroupPinv,
                Int8,
                KdTree,
                KMeans,
                Local,
                LocalityConstrained,
                Mean,
            ),
            *(Method, Orthogonal, Pinv, ProductQuantizer, Random, Sparse, Sum, Suppress, Transpose),
        )
    },
    "Sketch": ResidualQuantizer,
    "Open": Probe,
}
_STAGE_NAMES = {stage: name for name, stage in _STAGES.items()}
_FIELD_NAMES = {"residual": "sketch", "probe": "open", "nprobe": "units"}
_STAGE_FIELDS = {stored: name for name, stored in _FIELD_NAMES.items()}
"""Names of stages and fields in the manifest, where they differ from those in the code."""


@dataclass(frozen=True)
class StoredIndex:
    """Everything that is stored of an index: settings, method, segments, string ids."""

    settings: Mapping[str, Any]
    method: Method
    segments: tuple[Segment, ...]
    strings: StringIds | None = None


def write(folder: Path, stored: StoredIndex) -> int:
    """Make `folder`, whose lock the caller holds, hold this state; return its generation.

    Files of older generations, or of a writer that died, are removed at the end.
    """
    about = {"settings": dict(stored.settings), "method": _to_json(stored.method)}
    json.dumps(about)  # what cannot be written is refused before anything is
    writer = _Writer(folder)
    entries = [writer.segment(segment) for segment in stored.segments]
    strings = None if stored.strings is None else writer.strings(stored.strings)
    number = _last_generation(folder) + 1
    manifest = {
        "format": FORMAT,
        "generation": number,
        **about,
        "segments": entries,
        "names": strings,
        "files": writer.files,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True)
    outer = {"manifest": manifest, "checksum": checksum(text.encode())}
    replace_file(folder / MANIFEST, json.dumps(outer, indent=1).encode())
    for other in folder.iterdir():
        if INDEX_FILE.fullmatch(other.name) and other.name not in (*writer.files, LOCK):
            other.unlink(missing_ok=True)
    return number


def read(folder: Path) -> tuple[StoredIndex, int]:
    """Return what `folder` holds and its generation; any byte that is not as written raises CorruptIndexError."""
    while True:
        manifest = _read_manifest(folder)
        try:
            return _read_generation(folder, manifest), manifest["generation"]
        except CorruptIndexError:
            if generation(folder) == manifest["generation"]:
                raise  # else a writer replaced the generation while it was read, and removed files of the old one


def generation(folder: Path) -> int:
    """Return the generation that `folder` holds; it increases with each save."""
    number: int = _read_manifest(folder)["generation"]
    return number


def _last_generation(folder: Path) -> int:
    """Return 0 for a folder without an index, or with a damaged one; a newer format is never overwritten."""
    try:
        return generation(folder)
    except (CorruptIndexError, FileNotFoundError):
        return 0


class _Writer:
    """Writes array files of one generation, each content once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._codebooks: dict[int, str] = {}
        self.files: dict[str, dict[str, Any]] = {}

    def segment(self, segment: Segment) -> dict[str, Any]:
        """Write a segment and return its manifest entry."""
        name = self._codebooks.get(id(segment.codebook))
        if name is None:
            name = self._codebooks[id(segment.codebook)] = self._write("memory", segment.codebook.arrays)
        entry = {
            "memory": name,
            "kind": type(segment.codebook).__name__.replace("Codebook", "Memory"),
            "segment": self._write("segment", segment.arrays),
        }
        if segment.lists is not None:
            halves = {"head": segment.residuals.head, "tail": segment.residuals.tail}
            entry["sketch"] = self._write("sketch", halves)
        if segment.removed is not None:
            entry["removed"] = self._write("removed", {"bits": np.packbits(segment.removed)})
        return entry

    def strings(self, strings: StringIds) -> str:
        """Write string ids and return the name of their file."""
        merged = Layer(
            tuple(s for layer in strings.layers for s in layer.strings),
            np.concatenate([np.empty(0, np.int64), *(layer.ints for layer in strings.layers)]),
        )
        return self._write("names", merged.arrays)

    def _write(self, kind: str, arrays: Mapping[str, Array]) -> str:
        """Write one file, unless a file of that content exists; record its length and checksum."""
        data = array_file(arrays)
        digest = checksum(data)
        name = f"{kind}-{digest[:16]}.safetensors"
        self.files[name] = {"bytes": len(data), "checksum": digest}
        path = self._folder / name
        if not (path.exists() and path.stat().st_size == len(data) and checksum(path.read_bytes()) == digest):
            replace_file(path, data)
        return name


def _read_generation(folder: Path, manifest: Any) -> StoredIndex:
    try:
        if any(Path(name).name != name for name in manifest["files"]):
            raise ValueError("a file outside the folder is named")
        loaded = {name: read_array_file(folder / name, about) for name, about in manifest["files"].items()}
        kinds = {entry["memory"]: entry["kind"] for entry in manifest["segments"]}
        codebooks = {name: _codebook(kind, loaded[name]) for name, kind in kinds.items()}
        segments = tuple(_segment(entry, codebooks, loaded) for entry in manifest["segments"])
        method = _from_json(manifest["method"])
        if not isinstance(method, Method):
            raise ValueError(f"the method is a {type(method).__name__}")
        strings = None
        if manifest["names"] is not None:
            strings = StringIds((Layer.from_arrays(loaded[manifest["names"]]),))
        return StoredIndex(manifest["settings"], method, segments, strings)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise CorruptIndexError(f"{folder}: the manifest and its files do not fit together: {error}") from error


def _codebook(kind: str, arrays: Mapping[str, Array]) -> Codebook:
    name = kind.replace("Memory", "Codebook")
    if name not in CODEBOOKS:
        raise ValueError(f"unknown kind of codebook {kind!r}")
    codebook: Codebook = CODEBOOKS[name].from_arrays(arrays)
    return codebook


def _segment(
    entry: Mapping[str, str], codebooks: Mapping[str, Codebook], loaded: Mapping[str, Mapping[str, Array]]
) -> Segment:
    arrays = {**loaded[entry["segment"]], **(loaded[entry["sketch"]] if "sketch" in entry else {})}
    segment = Segment.from_arrays(codebooks[entry["memory"]], arrays)
    return segment.with_deletions(loaded[entry["removed"]]["bits"]) if "removed" in entry else segment


# ------------------------------------------------------------------------------------------------- manifest


def _read_manifest(folder: Path) -> Any:
    try:
        text = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder} holds no index: it has no {MANIFEST}") from None
    try:
        outer = json.loads(text)
        manifest, digest = outer["manifest"], outer["checksum"]
        version = manifest["format"]
        if type(manifest["generation"]) is not int:
            raise ValueError("the generation is not an integer")
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise CorruptIndexError(f"{folder / MANIFEST} is damaged: {error}") from error
    if checksum(json.dumps(manifest, indent=1, sort_keys=True).encode()) != digest:
        raise CorruptIndexError(f"{folder / MANIFEST} is damaged: its checksum does not match")
    if version not in (1, FORMAT):
        raise FormatVersionError(f"{folder} has format {version}, this version of logt reads {FORMAT}: update logt")
    return manifest


def _to_json(stage: Any) -> Any:
    """Return a stage as {"stage": its class, **its parameters}."""
    if not is_dataclass(stage):
        return stage
    values = {_FIELD_NAMES.get(f.name, f.name): _to_json(getattr(stage, f.name)) for f in fields(stage)}
    return {"stage": _STAGE_NAMES[type(stage)], **values}


def _from_json(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    stage = _STAGES[plain["stage"]]
    known = {f.name for f in fields(stage)}
    values: dict[str, Any] = {}
    for stored, value in plain.items():
        if stored != "stage":
            name = str(stored) if stored in known else _STAGE_FIELDS.get(stored, str(stored))
            values[name] = _from_json(value)
    return stage(**values)
