"""The tasks of a build: plain descriptions in, plain descriptions out; vectors go from sources to files.

Each task can be repeated: files are named by their content, and the same task writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Array, Floats
from logt._internal.validation import FloatRows
from logt.datasets.row_files import rows_shape, source_stamp
from logt.distributed.blocks import Block, read_block
from logt.engine.builder import Builder
from logt.engine.snapshot import Snapshot
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError, MissingExtraError
from logt.group_testing.kmeans import KMeans
from logt.lists.calibration import calibrate
from logt.lists.codec import Codec
from logt.lists.segment import ListSegment
from logt.storage.files import array_file, checksum, parse_arrays, read_array_file
from logt.storage.locations import LocalLocation, Location, location_at
from logt.storage.manifest import method_from_json
from logt.storage.writing import write_segment

Task = Mapping[str, Any]
Result = dict[str, Any]

HELD_OUT = 512
"""Vectors of the sample that are not trained on: they measure how well the codec fits."""

_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (InvalidInputError, CorruptIndexError, ConflictError, MissingExtraError, OSError)
}


def run_task(line: str) -> str:
    """Return the result of a task, both as JSON; an error is a result too, so that no traceback has to travel."""
    task = json.loads(line)
    try:
        result = _KINDS[task["kind"]](task)
    except Exception as error:
        name = next((name for name, kind in _ERRORS.items() if isinstance(error, kind)), type(error).__name__)
        result = {"error": name, "message": str(error)}
    return json.dumps(result)


def parse_result(line: str, task: Task) -> Result:
    """Return a result, or raise the error that it describes."""
    result: Result = json.loads(line)
    if "error" in result:
        known = _ERRORS.get(result["error"])
        if known is not None:
            raise known(result["message"])
        raise RuntimeError(f"a task of kind {task['kind']!r} failed: {result['error']}: {result['message']}")
    return result


# ----------------------------------------------------------------------------------------------------- tasks


def inspect(task: Task) -> Result:
    """Return the shape of a source, and what changes when the source changes."""
    rows, dim = rows_shape(task["source"])
    return {"rows": rows, "dim": dim, "stamp": source_stamp(task["source"])}


def draw_sample(task: Task) -> Result:
    """Write some random rows of a block to a file."""
    block, place = Block.from_json(task["block"]), location_at(task["out"])
    rows = FloatRows(read_block(block, task["dim"], task["metric"]), normalize=task["metric"] == "cosine")  # type: ignore[arg-type]
    rng = np.random.default_rng([task["seed"], block.number])
    chosen = rng.permutation(block.rows)[: task["rows"]]  # in random order: any of them may be held out
    return _write(place, "sample", {"X": rows[chosen]})


def train(task: Task) -> Result:
    """Train the codec on the samples of all blocks, and write it to a file."""
    place, method = location_at(task["out"]), method_from_json(task["method"])
    held, used = [], []
    for file in task["samples"]:
        X = _read(place, file)["X"]
        share = len(X) * HELD_OUT // max(task["drawn"], HELD_OUT * 8)
        held.append(X[:share])
        used.append(X[share:])
    group = method.group
    if not isinstance(group, KMeans):
        raise InvalidInputError(f"a codec has k-means units, not {group!r}")
    recipe = replace(method, group=replace(group, units=min(group.count(task["vectors"]), task["drawn"]), n=None))
    rng = np.random.default_rng([task["seed"], task["vectors"]])
    codec = recipe.train(np.concatenate(used), rng, Workers(task["threads"]), normalized=task["metric"] == "cosine")
    sample: Floats = np.concatenate(held)
    if len(sample):
        codec = replace(codec, captured=codec.captured_energy(sample))
    return _write(place, "codec", codec.arrays)


def encode(task: Task) -> Result:
    """Write the segment of a block; return its entry of the manifest, and the lengths and checksums of its files."""
    block, place, method = Block.from_json(task["block"]), location_at(task["out"]), method_from_json(task["method"])
    rows = read_block(block, task["dim"], task["metric"])
    ids = np.arange(block.first, block.first + block.rows, dtype=np.int64)
    builder = Builder(method, task["metric"], task["seed"], None)
    codec = None if task["codec"] is None else _codec(task["out"], json.dumps(task["codec"]))
    segment = builder.segment(rows, ids, block.number, codec, Workers(task["threads"]))
    entry, models, files = write_segment(place.write, segment)
    result = {"number": block.number, "entry": entry, "models": models, "files": files}
    place.write(task["record"], json.dumps(result).encode())
    return result


def measure(task: Task) -> Result:
    """Measure the accuracy of searches on some segments; write the codec with it, and return its file."""
    place = location_at(task["out"])
    codec = _codec(task["out"], json.dumps(task["codec"]))
    segments = [
        ListSegment.from_arrays(codec, {name: array for file in files for name, array in _read(place, file).items()})
        for files in task["segments"]
    ]
    rng = np.random.default_rng(task["seed"])
    measured = calibrate(segments, None, rng, Workers(task["threads"]), task["share"])
    found = Snapshot(measured).list_segments
    return _write(place, "codec", (found[0].codec if found else codec).arrays)


_KINDS: dict[str, Callable[[Task], Result]] = {
    function.__name__: function for function in (inspect, draw_sample, train, encode, measure)
}


# ----------------------------------------------------------------------------------------------------- files


def _write(place: Location, kind: str, arrays: Mapping[str, Array]) -> Result:
    data = array_file(arrays)
    digest = checksum(data)
    name = f"{kind}-{digest[:16]}.safetensors"
    place.write(name, data)
    return {"file": {"name": name, "bytes": len(data), "checksum": digest}}


def _read(place: Location, file: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of a file, mapped if it is local; its bytes are checked."""
    if isinstance(place, LocalLocation):
        return read_array_file(Path(place.folder) / file["name"], file)
    data = place.read(file["name"])
    if len(data) != file["bytes"] or checksum(data) != file["checksum"]:
        raise CorruptIndexError(f"{place.name}/{file['name']} is damaged: its checksum does not match")
    return parse_arrays(np.frombuffer(data, np.uint8))[0]


@lru_cache(maxsize=1)
def _codec(out: str, file: str) -> Codec:
    """Return the codec in a file; a worker reads it once."""
    return Codec.from_arrays(_read(location_at(out), json.loads(file)))


def files_of(entry: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the array files of an entry of the manifest, as `measure` reads them."""
    names = [entry[part] for part in ("segment", "supplement") if part in entry]
    return [{"name": name, **files[name]} for name in names]
