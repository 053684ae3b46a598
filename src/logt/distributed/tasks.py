"""The tasks of a build: plain descriptions in, plain descriptions out; vectors go from sources to files.

Each task can be repeated: files are named by their content, and on one kind of processor the same task writes the
same bytes.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from logt._internal.segment import BuildSettings
from logt._internal.threads import Workers
from logt._internal.types import Array, Floats
from logt._internal.validation import FloatRows
from logt.datasets.row_files import rows_shape, source_stamp
from logt.distributed.blocks import Block, read_block
from logt.errors import (
    ConflictError,
    CorruptIndexError,
    DeviceError,
    DeviceMemoryError,
    InvalidInputError,
    MissingExtraError,
)
from logt.gpu.building import DeviceBuilder
from logt.gpu.device import Device
from logt.gpu.neighbors import nearest_neighbors as nearest_on_device
from logt.graph.build import nearest_neighbors
from logt.graph.stored_graph import StoredGraph
from logt.lists.calibration import calibrate, calibrate_graph
from logt.lists.codec import Codec
from logt.lists.method import Sketched
from logt.lists.regions import read_region
from logt.lists.segment import ListSegment
from logt.storage.files import array_file, checksum
from logt.storage.locations import Location, location_at
from logt.storage.manifest import method_from_json
from logt.storage.writing import write_segment

Task = Mapping[str, Any]
Result = dict[str, Any]

HELD_OUT = 512
"""Vectors of the sample that are not trained on: they measure how well the codec fits."""

_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        *(InvalidInputError, CorruptIndexError, ConflictError, MissingExtraError, DeviceError, DeviceMemoryError),
        OSError,
    )
}


def answer(line: bytes, _: bytes) -> tuple[bytes, bytes]:
    """Run a task in a worker process; see `logt._internal.subprocess_worker`."""
    return run_task(line), b""


def run_task(line: bytes) -> bytes:
    """Return the result of a task, both as JSON; an error is a result too, so that no traceback has to travel."""
    task = json.loads(line)
    try:
        result = _KINDS[task["kind"]](task)
    except Exception as error:
        name = next((name for name, kind in _ERRORS.items() if isinstance(error, kind)), type(error).__name__)
        result = {"error": name, "message": str(error)}
    return json.dumps(result).encode()


def parse_result(line: bytes, task: Task) -> Result:
    """Return a result, or raise the error that it describes."""
    result: Result = json.loads(line)
    if "error" in result:
        known = _ERRORS.get(result["error"])
        if known is not None:
            raise known(result["message"])
        raise RuntimeError(f"a task of kind {task['kind']!r} failed: {result['error']}: {result['message']}")
    return result


def inspect(task: Task) -> Result:
    """Return the shape of a source, and what changes when the source changes."""
    rows, dim = rows_shape(task["source"])
    return {"rows": rows, "dim": dim, "stamp": source_stamp(task["source"])}


def draw_sample(task: Task) -> Result:
    """Write some random rows of a block to a file."""
    block, location = Block.from_json(task["block"]), location_at(task["out"])
    rows = FloatRows(read_block(block, task["dim"], task["metric"]), normalize=task["metric"] == "cosine")  # type: ignore[arg-type]
    rng = np.random.default_rng([task["seed"], block.number])
    chosen = rng.permutation(block.rows)[: task["rows"]]  # in random order: any of them may be held out
    return _write(location, "sample", {"X": rows[chosen]})


def train(task: Task) -> Result:
    """Train the codec on the samples of all blocks, and write it to a file."""
    location, method = location_at(task["out"]), method_from_json(task["method"])
    held, used = [], []
    for file in task["samples"]:
        X = location.read_arrays(file["name"], file)["X"]
        share = len(X) * HELD_OUT // max(task["drawn"], HELD_OUT * 8)
        held.append(X[:share])
        used.append(X[share:])
    vectors: Floats = np.concatenate(used)
    if not isinstance(method, Sketched):
        raise InvalidInputError(f"only inverted lists have a codec, not {method!r}")
    settings = method.codec_settings(vectors.shape[1], task["vectors"])
    settings = settings._replace(units=min(settings.units, len(vectors)))
    rng = np.random.default_rng([task["seed"], task["vectors"]])
    builder = _builder(task)
    learn = Codec.train if builder is None else builder.train
    codec = learn(vectors, settings, rng, Workers(task["threads"]), normalized=task["metric"] == "cosine")
    sample: Floats = np.concatenate(held)
    if len(sample):
        codec = replace(codec, captured=codec.captured_energy(sample))
    return _write(location, "model", codec.arrays)


def encode(task: Task) -> Result:
    """Write the segment of a block; return its entry of the manifest, and the lengths and checksums of its files."""
    block, location = Block.from_json(task["block"]), location_at(task["out"])
    method = method_from_json(task["method"])
    rows = read_block(block, task["dim"], task["metric"])
    ids = np.arange(block.first, block.first + block.rows, dtype=np.int64)
    settings = BuildSettings(task["metric"], task["seed"], None, _builder(task))
    codec = None if task["codec"] is None else _codec(task["out"], json.dumps(task["codec"]))
    segment = method.encode(rows, ids, block.number, codec, settings, Workers(task["threads"]))
    entry, models, files = write_segment(location.write, segment)
    result = {"number": block.number, "entry": entry, "models": models, "files": files}
    write_record(location, task["record"], result)
    return result


def measure(task: Task) -> Result:
    """Measure the accuracy of searches on some segments; write the codec with it, and return its file."""
    rng = np.random.default_rng(task["seed"])
    segments, builder = _read_segments(task), _builder(task)
    full = None if builder is None else builder.searcher(segments)
    measured = calibrate(segments, None, rng, Workers(task["threads"]), task["share"], full)
    return _write(location_at(task["out"]), "model", measured[0].codec.arrays)


def link_region(task: Task) -> Result:
    """Write the neighbors of the vectors of one region of lists, and return their file."""
    location = location_at(task["out"])
    part, own = read_region(_read_segments(task), task["number"], task["regions"])
    builder = _builder(task)
    find = nearest_neighbors if builder is None else partial(nearest_on_device, builder.device)
    ids, neighbors, similarity = find([part], task["dim"], task["k"], Workers(task["threads"]))
    rows = np.append(ids, -1).astype(np.int32)  # a vector is in the row of its id
    arrays: dict[str, Array] = {"ids": ids[own], "neighbors": rows[neighbors[own]], "similarity": similarity[own]}
    result = {"number": task["number"], **_write(location, "links", arrays)}
    write_record(location, task["record"], result)
    return result


def store_links(task: Task) -> Result:
    """Write the neighbor graph of all regions, with the measured accuracy of searches on it; return its file."""
    location, k = location_at(task["out"]), task["k"]
    parts = [location.read_arrays(file["name"], file) for file in task["links"]]
    least = min(part["similarity"].min(where=part["neighbors"] >= 0, initial=1.0) for part in parts)
    ids = np.arange(sum(len(part["ids"]) for part in parts))
    graph = StoredGraph.assemble(
        ids, k, float(least), ((part["ids"], part["neighbors"], part["similarity"]) for part in parts)
    )
    segments = _read_segments(task)
    measured = graph.restrict(np.concatenate([segment.ids for segment in segments]))
    if measured is not None:
        measured = calibrate_graph(segments, measured, None, np.random.default_rng(0), Workers(task["threads"]))
        graph = replace(graph, recall=measured.recall, measured=len(graph))
    return _write(location, "graph", graph.arrays)


def _read_segments(task: Task) -> list[ListSegment]:
    location, codec = location_at(task["out"]), _codec(task["out"], json.dumps(task["codec"]))
    parts = ([location.read_arrays(file["name"], file) for file in files] for files in task["segments"])
    return [ListSegment.from_arrays(codec, {name: part[name] for part in some for name in part}) for some in parts]


_KINDS: dict[str, Callable[[Task], Result]] = {
    function.__name__: function
    for function in (inspect, draw_sample, train, encode, measure, link_region, store_links)
}


def write_record(location: Location, name: str, result: Result) -> None:
    """Keep a result, so that a build that is started again does not compute it again."""
    location.write(name, json.dumps({"result": result, "checksum": _checksum(result)}).encode())


def read_record(location: Location, name: str) -> Result | None:
    """Return the result that an earlier run kept; None if there is none, or if it is damaged."""
    try:
        record = json.loads(location.read(name))
        result: Result = record["result"]
        return result if record["checksum"] == _checksum(result) else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _checksum(result: Result) -> str:
    return checksum(json.dumps(result, sort_keys=True).encode())


def _write(location: Location, kind: str, arrays: Mapping[str, Array]) -> Result:
    data = array_file(arrays)
    digest = checksum(data)
    name = f"{kind}-{digest[:16]}.safetensors"
    location.write(name, data)
    return {"file": {"name": name, "bytes": len(data), "checksum": digest}}


def _builder(task: Task) -> DeviceBuilder | None:
    """Return what computes on the device of a build, if it has one."""
    return None if task["device"] is None else DeviceBuilder(Device(task["device"]), task["metric"])


@lru_cache(maxsize=1)
def _codec(out: str, file: str) -> Codec:
    """Return the codec in a file; a worker reads it once."""
    about = json.loads(file)
    return Codec.from_arrays(location_at(out).read_arrays(about["name"], about))
