"""Segments -> array files and the entries of a manifest, wherever the files are written to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.segment import Segment
from logt._internal.types import Array
from logt.engine.items import Items
from logt.engine.protocols import Method
from logt.engine.string_ids import StringIds
from logt.graph.stored_graph import StoredGraph
from logt.storage.files import array_file, checksum
from logt.storage.manifest import FORMAT, stage_to_json


@dataclass(frozen=True)
class StoredIndex:
    """Everything that is stored of an index: settings, method, segments, string ids, neighbor graph, items."""

    settings: Mapping[str, Any]
    method: Method
    segments: tuple[Segment, ...]
    strings: StringIds | None = None
    graph: StoredGraph | None = None
    items: Items | None = None


class FileNames:
    """The names of files, by the objects that they were made from or read into.

    Objects are known by identity, and kept: no other object can get their address.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[int, ...], tuple[str, tuple[object, ...]]] = {}

    def note(self, name: str, *parts: object) -> None:
        self._names[tuple(map(id, parts))] = name, parts

    def find(self, *parts: object) -> str | None:
        """Return the name of the file of some objects, None if there is none."""
        return self._names.get(tuple(map(id, parts)), (None,))[0]

    def of(self, name: str) -> Any:
        """Return the one object of a file; raise KeyError if there is none."""
        for found, parts in self._names.values():
            if found == name and len(parts) == 1:
                return parts[0]
        raise KeyError(name)


class Writer:
    """Writes the array files of one manifest; what an earlier manifest has in a file is not written again.

    write: of a file, by name and bytes. files, names: those of the earlier manifest. salt: see `LocalLocation`.
    """

    def __init__(
        self,
        write: Callable[[str, bytes], None],
        files: Mapping[str, dict[str, Any]],
        names: FileNames,
        salt: str = "",
    ):
        self._write_file, self._old_files, self._old_names, self._salt = write, files, names, salt
        self.files: dict[str, dict[str, Any]] = {}
        self.names = FileNames()
        self.models: dict[str, str] = {}

    def manifest(self, stored: StoredIndex, generation: int) -> dict[str, Any]:
        """Write the files of an index, and return its manifest."""
        entries = [self.segment(segment) for segment in stored.segments]
        strings = (
            None
            if stored.strings is None
            else [self.write("strings", layer.arrays, layer) for layer in stored.strings.layers]
        )
        return {
            "format": FORMAT,
            "generation": generation,
            "settings": dict(stored.settings),
            "method": stage_to_json(stored.method),
            "models": self.models,
            "segments": entries,
            "strings": strings,
            **({} if stored.graph is None else {"graph": self.graph(stored.graph)}),
            **({} if stored.items is None else {"items": self.write("items", stored.items.arrays, stored.items)}),
            "files": self.files,
        }

    def segment(self, segment: Segment) -> dict[str, Any]:
        """Write a segment and return its entry. Removed rows are marked in a file of their own, the tombstones."""
        model = segment.model
        name = self.write("model", model.arrays, model)
        self.models[name] = type(model).__name__
        entry: dict[str, Any] = {"model": name, "vectors": segment.count}
        for kind, part in segment.stored_parts.items():
            entry[kind] = self.write(kind, part.arrays, *part.made_from)
        if segment.removed is not None:
            entry["removed"] = self.write("removed", {"bits": np.packbits(segment.removed)}, segment.removed)
        return entry

    def graph(self, graph: StoredGraph) -> dict[str, str]:
        entry = {"graph": self.write("graph", graph.arrays, *graph_parts(graph))}
        if graph.removed is not None:
            entry["unlinked"] = self.write("unlinked", {"bits": np.packbits(graph.removed)}, graph.removed)
        return entry

    def write(self, kind: str, arrays: Mapping[str, Array], *parts: object) -> str:
        """Write one file, unless the objects that it is made from have one; return its name."""
        name = self.names.find(*parts) or self._old_names.find(*parts)
        about = self.files.get(name or "") or self._old_files.get(name or "")
        if name is None or about is None:
            data = array_file(arrays)
            about = {"bytes": len(data), "checksum": checksum(data)}
            digest = checksum((self._salt + about["checksum"]).encode()) if self._salt else about["checksum"]
            name = f"{kind}-{digest[:16]}.safetensors"
            self._write_file(name, data)
        self.files[name] = about
        self.names.note(name, *parts)
        return name


def write_segment(
    write: Callable[[str, bytes], None], segment: Segment
) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Write the files of one segment; return its entry of a manifest, the kinds of its models, and all its files."""
    writer = Writer(write, {}, FileNames())
    return writer.segment(segment), writer.models, writer.files


def graph_parts(graph: StoredGraph) -> tuple[object, ...]:
    """Return the objects that the file of a neighbor graph is made from."""
    return graph.ids, graph.level, graph.recall
