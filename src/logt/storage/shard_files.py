"""The files of a shard: some segments of a stored index, and its part of the neighbor graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.types import Metric
from logt.engine.items import Items
from logt.engine.string_ids import StringIds
from logt.errors import ConflictError, InvalidInputError
from logt.graph.stored_graph import StoredGraph
from logt.lists.codec import Codec
from logt.lists.method import Sketched
from logt.lists.segment import ListSegment
from logt.metrics import parse_metric
from logt.storage.manifest import misfit_is_corruption
from logt.storage.reading import ManifestReader
from logt.storage.store import Store, read_log


@dataclass(frozen=True)
class Outline:
    """What a stored index holds, without its segments.

    state, generation: of its manifest. codecs: in the order of the segments. sizes: the bytes of each segment.
    counts: the vectors of each segment. strings: if ids are strings. linked: if there is a neighbor graph. items: of
    the vectors, if they have some.
    """

    state: str
    generation: int
    settings: Mapping[str, Any]
    method: Sketched
    codecs: tuple[Codec, ...]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    strings: StringIds | None
    linked: bool
    items: Items | None

    @property
    def dim(self) -> int:
        return int(self.settings["dim"])

    @property
    def metric(self) -> Metric:
        return parse_metric(self.settings["metric"])

    def __len__(self) -> int:
        return sum(self.counts)


def read_outline(path: object) -> Outline:
    """Return what the index at a path or URL holds; raise InvalidInputError if it cannot be searched in parts."""
    store = Store.open(path, write=False)
    manifest = store.location.read_manifest()
    with misfit_is_corruption(path):
        reader = store.reader(manifest)
    if not isinstance(reader.method, Sketched):
        raise InvalidInputError(f"{path} has no inverted lists; only those can be searched in shards")
    if read_log(store.location, manifest)[0]:
        raise InvalidInputError(
            f"{path} has changes in its write-ahead log that are in no segment yet; open it with mode='a', "
            "call compact() and save()"
        )
    with misfit_is_corruption(path):
        files, entries = manifest["files"], manifest["segments"]
        parts = ("segment", "refinement", "removed")
        sizes = [sum(files[entry[part]]["bytes"] for part in parts if part in entry) for entry in entries]
        return Outline(
            manifest["state"],
            manifest["generation"],
            manifest["settings"],
            reader.method,
            tuple(_read_codecs(reader, manifest)),
            tuple(sizes),
            tuple(int(entry["vectors"]) for entry in entries),
            reader.strings(),
            "graph" in manifest,
            reader.items(),
        )


def read_part(
    path: object, state: str, numbers: Sequence[int]
) -> tuple[list[ListSegment], list[Codec], StoredGraph | None]:
    """Return (the segments with these numbers, all codecs, the edges of the neighbor graph between their vectors).

    Raise ConflictError if there is another state now.
    """
    with misfit_is_corruption(path):
        reader, manifest = _read_state(path, state)
        segments: list[Any] = [reader.segment(manifest["segments"][number]) for number in numbers]
        graph = reader.graph()
        if graph is not None:
            graph = graph.restrict(np.concatenate([np.empty(0, np.int64), *(segment.ids for segment in segments)]))
        return segments, _read_codecs(reader, manifest), graph


def read_graph(path: object, state: str) -> StoredGraph | None:
    """Return the neighbor graph, None if there is none; raise ConflictError if there is another state now."""
    with misfit_is_corruption(path):
        return _read_state(path, state)[0].graph()


def _read_state(path: object, state: str) -> tuple[ManifestReader, Any]:
    store = Store.open(path, write=False)
    manifest = store.location.read_manifest()
    if manifest["state"] != state:
        raise ConflictError(f"{path} was written by another meanwhile; call refresh()")
    return store.reader(manifest), manifest


def _read_codecs(reader: ManifestReader, manifest: Mapping[str, Any]) -> list[Codec]:
    """Return the codecs in the order in which segments use them."""
    return [reader.model(name) for name in dict.fromkeys(entry["model"] for entry in manifest["segments"])]
