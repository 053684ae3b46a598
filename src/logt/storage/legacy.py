"""Formats 1 and 2, which earlier versions wrote, read into the segments of today.

Segments of the paper's methods are the same. The default index of format 2 had other codes: its vectors are
reconstructed from those, and encoded again when they are read. What the new codes leave out is kept in their
supplement, so that scores change by little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._internal.segment import Segment
from logt._internal.types import Array, Floats
from logt._internal.validation import check_array, check_lengths
from logt.engine.string_ids import Layer, StringIds
from logt.group_testing.codes import Codes
from logt.group_testing.decoder import Sparse
from logt.group_testing.method import Method
from logt.group_testing.quantize import CODEBOOKS, Codebook, Int4
from logt.group_testing.segment import CodedSegment
from logt.lists.codec import Codec
from logt.lists.inverted_lists import Probe
from logt.lists.residual import Bands, ResidualQuantizer
from logt.lists.segment import ListSegment
from logt.storage.files import read_array_file
from logt.storage.manifest import STAGES, misfit_is_corruption

_FIELDS = {"sketch": "residual", "open": "probe"}  # of a method, as they are called now


def read(folder: Path, manifest: Any) -> dict[str, Any]:
    """Return the fields of a StoredIndex."""
    with misfit_is_corruption(folder):
        loaded = {name: read_array_file(folder / name, about) for name, about in manifest["files"].items()}
        method = _stage(manifest["method"])
        if not isinstance(method, Method):
            raise ValueError(f"the method is a {type(method).__name__}")
        kinds = {entry["memory"]: entry["kind"] for entry in manifest["segments"]}
        codebooks = {name: _codebook(kind, loaded[name]) for name, kind in kinds.items()}
        codecs: dict[str, Codec] = {}
        metric = manifest["settings"]["metric"]
        segments = tuple(_segment(e, codebooks, codecs, loaded, method, metric) for e in manifest["segments"])
        strings = None
        if manifest["names"] is not None:
            strings = StringIds((Layer.from_arrays(loaded[manifest["names"]]),))
        return {
            "settings": manifest["settings"],
            "method": method,
            "segments": segments,
            "strings": strings,
        }


def _stage(plain: Any) -> Any:
    """Return a stage as it is written today."""
    if not isinstance(plain, dict):
        return plain
    name = plain["stage"]
    if name == "Sketch":
        return ResidualQuantizer(plain["bits"])
    if name == "Open":
        return Probe()
    values = {_FIELDS.get(key, key): _stage(value) for key, value in plain.items() if key != "stage"}
    if name == "Method" and values.get("residual") is not None:
        values["quantize"] = Int4()
    stage = STAGES[name]
    known = {field.name for field in fields(stage)}
    return stage(**{key: value for key, value in values.items() if key in known})


def _codebook(kind: str, arrays: Mapping[str, Array]) -> Codebook:
    name = kind.replace("Memory", "Codebook")
    if name not in CODEBOOKS:
        raise ValueError(f"unknown kind of memory vectors {kind!r}")
    codebook: Codebook = CODEBOOKS[name].from_arrays(arrays)
    return codebook


def _segment(
    entry: Mapping[str, str],
    codebooks: Mapping[str, Codebook],
    codecs: dict[str, Codec],
    loaded: Mapping[str, Mapping[str, Array]],
    method: Method,
    metric: str,
) -> Segment:
    codebook, arrays = codebooks[entry["memory"]], loaded[entry["segment"]]
    segment: Segment = CodedSegment.from_arrays(codebook, arrays)
    if method.probe is not None:
        if "sketch" not in entry:
            raise ValueError("a segment has no residual codes")
        codec = codecs.get(entry["memory"])
        segment = _convert(segment, arrays, loaded[entry["sketch"]], method, metric, codec)
        codecs[entry["memory"]] = segment.codec
    return segment.with_removals(loaded[entry["removed"]]["bits"]) if "removed" in entry else segment


def _convert(
    old: Any,
    arrays: Mapping[str, Array],
    halves: Mapping[str, Array],
    method: Method,
    metric: str,
    codec: Codec | None,
) -> ListSegment:
    """Encode the vectors of a segment with sketches again, with the same memory vectors."""
    X = _vectors(old, arrays, halves)
    decode, residual = method.decode, method.residual
    if not isinstance(decode, Sparse) or residual is None:
        raise ValueError("the method has no residual codes")
    if codec is None:
        zero = np.zeros(X.shape[1], np.float32)
        codec = Codec.from_memory_vectors(
            old.codebook.decode(), X, zero, decode, residual, normalized=metric == "cosine"
        )
    codes = codec.encode(X, decode)
    square = np.ones(len(X), np.float32) if old.norms is None else np.square(old.norms)  # known exactly
    return ListSegment.from_encoded(codec, replace(codes, square=square), old.ids, distances=metric != "ip")


def _vectors(old: CodedSegment, arrays: Mapping[str, Array], halves: Mapping[str, Array]) -> Floats:
    """Return the vectors of a segment with sketches, by row; their codes and sketches are in the order of lists."""
    dim, rows = old.codebook.shape[1], len(old)
    bits = int(check_array(arrays["bits"], np.uint8, 1)[0])
    factor, row = check_array(arrays["factor"], np.float32, 1), check_array(arrays["row"], np.uint32, 1)
    head, tail = (check_array(halves[name], np.uint8, 2) for name in ("head", "tail"))
    check_lengths(old.ids, factor, row, head, tail)
    if bits not in (1, 2, 4) or head.shape[1] + tail.shape[1] != -(-dim * bits // 512) * 64:
        raise ValueError("the residual codes do not fit the dimension")
    if row.max() >= rows or (np.bincount(row, minlength=rows) != 1).any():
        raise ValueError("the lists do not hold each vector once")
    codes: Codes = old.codes
    V = codes.reconstruct(old.codebook.decode())
    fields_of = _fields(np.concatenate([head, tail], axis=1), bits, dim)
    bands = Bands(np.arange(dim, dtype=np.int32), np.array([dim]), np.array([bits]), np.ones(1, np.float32))
    V += bands.rotate_back((fields_of - np.float32((2**bits - 1) / 2)) * factor[:, None])
    X = np.empty_like(V)
    X[row] = V
    return X if old.norms is None else X * old.norms[:, None]


def _fields(code: NDArray[np.uint8], bits: int, dim: int) -> Floats:
    """(rows, bytes) -> (rows, dim) fields: field f of byte b of a chunk of 64 bytes is its field f * 64 + b."""
    chunks = code.reshape(len(code), code.shape[1] // 64, 1, 64)
    shifts = (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None]
    values = (chunks >> shifts) & np.uint8(2**bits - 1)
    return values.reshape(len(code), code.shape[1] * 8 // bits)[:, :dim].astype(np.float32)
