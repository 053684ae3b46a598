"""Array files and the entries of a manifest -> segments, wherever the files are read from."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from logt._internal.segment import Segment
from logt._internal.types import Array
from logt.engine.items import Items
from logt.engine.string_ids import Layer, StringIds
from logt.graph.stored_graph import StoredGraph
from logt.storage.manifest import method_from_json
from logt.storage.writing import FileNames, StoredIndex, graph_parts


class ManifestReader:
    """Reads what a manifest names; raises one of UNUSABLE if the files do not fit together.

    load: returns the arrays of a file, by its name. names: which objects were read from which file.
    """

    def __init__(self, manifest: Mapping[str, Any], load: Callable[[str], Mapping[str, Array]]):
        self._manifest, self._load = manifest, cache(load)
        self._models: dict[str, Any] = {}
        self.method = method_from_json(manifest["method"])
        self.names = FileNames()

    def index(self) -> StoredIndex:
        segments = tuple(map(self.segment, self._manifest["segments"]))
        more = self.strings(), self.graph(), self.items()
        return StoredIndex(self._manifest["settings"], self.method, segments, *more)

    def segment(self, entry: Mapping[str, Any]) -> Segment:
        model, arrays = self.model(entry["model"]), self._load(entry["segment"])
        if "refinement" in entry:  # the largest file last: the others are checked before it
            arrays = {**arrays, **self._load(entry["refinement"])}
        segment = self.method.read_segment(model, arrays)
        for kind, part in segment.stored_parts.items():
            self.names.note(entry[kind], *part.made_from)
        if "removed" in entry:
            segment = segment.with_removals(self._load(entry["removed"])["bits"])
            self.names.note(entry["removed"], segment.removed)
        if entry["vectors"] != segment.count:
            raise ValueError(f"a segment has {segment.count} vectors, not {entry['vectors']}")
        return segment

    def model(self, name: str) -> Any:
        """Return the codec or codebook in a file."""
        if name not in self._models:
            kind = self._manifest["models"][name]
            if kind not in self.method.model_types:
                raise ValueError(f"the memory vectors are a {kind!r}, which does not fit the method")
            self._models[name] = self._read(name, self.method.model_types[kind])
        return self._models[name]

    def strings(self) -> StringIds | None:
        names = self._manifest["strings"]
        return None if names is None else StringIds(tuple(self._read(name, Layer) for name in names))

    def items(self) -> Items | None:
        name = self._manifest.get("items")
        return None if name is None else self._read(name, Items)

    def _read(self, name: str, kind: Any) -> Any:
        """Return the object in a file, and note its name."""
        found = kind.from_arrays(self._load(name))
        self.names.note(name, found)
        return found

    def graph(self) -> StoredGraph | None:
        entry = self._manifest.get("graph")
        if entry is None:
            return None
        graph = StoredGraph.from_arrays(self._load(entry["graph"]))
        self.names.note(entry["graph"], *graph_parts(graph))
        if "unlinked" in entry:
            graph = graph.with_removals(self._load(entry["unlinked"])["bits"])
            self.names.note(entry["unlinked"], graph.removed)
        return graph
