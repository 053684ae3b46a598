"""The files of a shard: some segments of a stored index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logt._internal.types import Metric
from logt.engine.string_ids import Layer, StringIds
from logt.errors import ConflictError, InvalidInputError
from logt.graph.stored_graph import StoredGraph
from logt.lists.codec import Codec
from logt.lists.method import Sketched
from logt.lists.segment import ListSegment
from logt.metrics import parse_metric
from logt.storage.locations import open_store
from logt.storage.manifest import method_from_json, misfit_is_corruption
from logt.storage.store import Store


@dataclass(frozen=True)
class Outline:
    """What a stored index holds, without its segments.

    state, generation: of its manifest. codecs: in the order of the segments. sizes: the bytes of each segment.
    counts: the vectors of each segment. strings: if ids are strings. linked: if there is a neighbor graph.
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
    store = open_store(path, write=False)
    manifest = store.current_manifest()
    method = method_from_json(manifest["method"])
    if not isinstance(method, Sketched):
        raise InvalidInputError(f"{path} has no inverted lists; only those can be searched in shards")
    if store.has_log(manifest):
        raise InvalidInputError(
            f"{path} has changes in its log that are in no segment yet; open it with mode='a', "
            "call compact() and save()"
        )
    with misfit_is_corruption(path):
        files = manifest["files"]
        strings = None
        if manifest["strings"] is not None:
            layers = [Layer.from_arrays(store._load(name, files[name])) for name in manifest["strings"]]
            strings = StringIds(tuple(layers))
        entries = manifest["segments"]
        parts = ("segment", "refinement", "removed")
        sizes = [sum(files[entry[part]]["bytes"] for part in parts if part in entry) for entry in entries]
        return Outline(
            manifest["state"],
            manifest["generation"],
            manifest["settings"],
            method,
            tuple(_read_codecs(store, manifest).values()),
            tuple(sizes),
            tuple(int(entry["vectors"]) for entry in entries),
            strings,
            "graph" in manifest,
        )


def read_part(path: object, state: str, numbers: Sequence[int]) -> tuple[list[ListSegment], list[Codec]]:
    """Return (the segments with these numbers, all codecs); raise ConflictError if there is another state now."""
    store = open_store(path, write=False)
    manifest = store.current_manifest()
    if manifest["state"] != state:
        raise ConflictError(f"{path} was written by another meanwhile")
    with misfit_is_corruption(path):
        codecs = _read_codecs(store, manifest)
        segments: list[Any] = []
        for number in numbers:
            entry = manifest["segments"][number]
            names = [entry[part] for part in ("segment", "refinement", "removed") if part in entry]
            loaded = {name: store._load(name, manifest["files"][name]) for name in names}
            segments.append(store.read_segment(entry, codecs, Sketched(), loaded))
        return segments, list(codecs.values())


def read_graph(path: object, state: str) -> StoredGraph | None:
    """Return the neighbor graph, None if there is none; raise ConflictError if there is another state now."""
    store = open_store(path, write=False)
    manifest = store.current_manifest()
    if manifest["state"] != state:
        raise ConflictError(f"{path} was written by another meanwhile; call refresh()")
    if "graph" not in manifest:
        return None
    with misfit_is_corruption(path):
        names = manifest["graph"].values()
        return store.read_graph(
            manifest["graph"], {name: store._load(name, manifest["files"][name]) for name in names}
        )


def _read_codecs(store: Store, manifest: Mapping[str, Any]) -> dict[str, Codec]:
    """Return the codecs by the names of their files, in the order in which segments use them."""
    names = dict.fromkeys(entry["model"] for entry in manifest["segments"])
    return {name: Codec.from_arrays(store._load(name, manifest["files"][name])) for name in names}
