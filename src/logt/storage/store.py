"""The folder of an index: segments <-> files, a manifest, and a log of changes since it was written.

Array files are named by their checksum and never changed. A new generation is either new files and then a new
manifest, each written under a temporary name, flushed to disk and renamed, or one record that is appended to the log.
So the folder holds the old state or the new one, whatever is interrupted. Readers map the files of the generation
they opened, and keep them when a writer removes them. See docs/reference/format.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logt._internal.memory import memory_bytes
from logt._internal.segment import Segment
from logt._internal.types import Array
from logt.engine.protocols import Method
from logt.engine.string_ids import Layer, StringIds
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError
from logt.graph.stored_graph import StoredGraph
from logt.storage import changes
from logt.storage.changes import Change
from logt.storage.files import make_folder, read_array_file
from logt.storage.lock import LOCK, Lock
from logt.storage.manifest import (
    ARRAY_FILE,
    FORMAT,
    MANIFEST,
    method_from_json,
    misfit_is_corruption,
    read_manifest,
    stage_to_json,
    state_of,
    write_manifest,
)
from logt.storage.places import LocalPlace
from logt.storage.writing import StoredIndex, Writer, graph_parts, key_of

_BUILD = r"build-[0-9a-f]{16}-(plan|[0-9]{8})\.json"  # of a distributed build that has not ended
_LOG = r"changes-[0-9a-f]{32}\.log"
INDEX_FILE = re.compile(rf"\.lock|{ARRAY_FILE}|{_LOG}|{_BUILD}|\.(manifest\.json|{ARRAY_FILE}|{_BUILD})\.\d+\.tmp")
"""The names of all files of an index but the manifest."""


class Store:
    """The folder of an index, open for reading, or for writing with a lock."""

    def __init__(self, folder: Path, lock: Lock | None = None):
        self.folder, self.name = folder, str(folder)
        self._lock = lock
        self._state: str | None = None  # of the manifest that was read or written last
        self._end = changes.start_of_log("", 0)
        self._files: dict[str, dict[str, Any]] = {}
        self._fits = False  # whether all files but the refinements fit into half of the memory
        self._names: dict[tuple[int, ...], tuple[str, tuple[object, ...]]] = {}  # what is in which file
        self._attempt: tuple[str, int, Writer] | None = None  # a manifest that may or may not have been written

    # -------------------------------------------------------------------------------------- opening and closing

    @classmethod
    def create(cls, folder: Path) -> Store:
        """Lock a folder that is an index or can become one; what it holds will be replaced."""
        if folder.exists() and not is_index(folder):
            raise InvalidInputError(f"{folder} exists and is not an index; choose another path")
        make_folder(folder)
        store = cls(folder, Lock(folder))
        try:
            manifest = read_manifest(folder)
        except (CorruptIndexError, FileNotFoundError):
            return store
        except BaseException:
            store.close()
            raise
        store._end = last_position(folder, manifest)
        return store

    @classmethod
    def open(cls, folder: Path, *, write: bool) -> Store:
        """Open the index in a folder."""
        read_manifest(folder)  # do not leave a lock file where there is no index
        store = cls(folder, Lock(folder) if write else None)
        if write:
            for left in folder.glob(".*.tmp"):  # of a writer that was killed
                if INDEX_FILE.fullmatch(left.name):
                    left.unlink(missing_ok=True)
        return store

    @property
    def writable(self) -> bool:
        return self._lock is not None and self._lock.held

    @property
    def generation(self) -> int:
        """The number of the state that was read or written last; it increases with each save."""
        return self._end.generation

    @property
    def position(self) -> changes.Position:
        """The state that was found, read or written last; no other state is equal to it."""
        return self._end

    def close(self) -> None:
        if self._lock:
            self._lock.close()

    def forget(self) -> None:
        """Forget which state was read last, so that the next read reads everything."""
        self._state = None

    @contextmanager
    def locking(self, *, reread: bool) -> Iterator[None]:
        """Lock a folder that is open for reading, and keep the lock unless the body raises.

        reread: forget which state was read last, so that the body reads everything.
        """
        lock = Lock(self.folder)
        try:
            if reread:
                self.forget()
            yield
        except BaseException:
            lock.close()
            raise
        self._lock = lock

    # -------------------------------------------------------------------------------------------------- reading

    def read(self) -> tuple[StoredIndex, list[Change]]:
        """Return what the manifest holds, and the changes since; any byte that is not as written raises an error."""
        while True:
            manifest = read_manifest(self.folder)
            try:
                stored = self._read_manifest(manifest)
                start = changes.start_of_log(manifest.get("state", ""), manifest["generation"])
                log, end = changes.read(self._log_path(manifest.get("state", "")), start)
            except CorruptIndexError:
                if read_manifest(self.folder) == manifest:
                    raise
                continue  # a writer replaced the generation while it was read, and removed files of the old one
            if read_manifest(self.folder) == manifest:
                self._state, self._end = manifest.get("state", ""), end
                self._files = dict(manifest["files"])
                return stored, log

    def read_changes(self) -> list[Change] | None:
        """Return the changes since the last read, or None if everything must be read again.

        That is so if the manifest was replaced, or a record that was read could not be flushed and was removed.
        """
        if not self._is_current():
            return None
        log, end, wrong = changes.read_undamaged(self._log_path(self._state or ""), self._end)
        if wrong is not None or not self._is_current():
            return None
        self._end = end
        return log

    def current_manifest(self) -> Any:
        """Return the manifest that is there now."""
        return read_manifest(self.folder)

    def has_log(self, manifest: Any) -> bool:
        """Return whether there are changes since a manifest was written."""
        return last_position(self.folder, manifest).generation > int(manifest["generation"])

    def _is_current(self) -> bool:
        """Whether the manifest on disk is still the one that was read or written last."""
        return bool(read_manifest(self.folder).get("state", "") == self._state)

    def _log_path(self, state: str) -> Path:
        return self.folder / f"changes-{state}.log"

    def _read_manifest(self, manifest: Any) -> StoredIndex:
        with misfit_is_corruption(self.name):
            self._fits = _fit_in_memory(manifest["files"])
            loaded = {n: self._load(n, about) for n, about in manifest["files"].items()}
            self._names.clear()
            method = method_from_json(manifest["method"])
            kinds = manifest["models"].items()
            models = {name: self.read_model(name, kind, method, loaded) for name, kind in kinds}
            segments = tuple(self.read_segment(entry, models, method, loaded) for entry in manifest["segments"])
            strings = None
            if manifest["strings"] is not None:
                strings = StringIds(tuple(self._layer(name, loaded) for name in manifest["strings"]))
            graph = self.read_graph(manifest["graph"], loaded) if "graph" in manifest else None
            return StoredIndex(manifest["settings"], method, segments, strings, graph)

    def _load(self, name: str, about: Mapping[str, Any]) -> dict[str, Array]:
        """Return the arrays of a file, checked and mapped."""
        return read_array_file(self.folder / name, about, large_pages=self._large_pages(name))

    def _large_pages(self, name: str) -> bool:
        """Whether a file is mapped in large pages: those of which a search reads much."""
        return self._fits and name.startswith(("segment-", "graph-"))

    def read_model(self, name: str, kind: str, method: Method, loaded: Mapping[str, Mapping[str, Array]]) -> Any:
        """Return the codec or codebook in a file; raise ValueError and others if it is none of the method."""
        if kind not in method.model_types:
            raise ValueError(f"the memory vectors are a {kind!r}, which does not fit the method")
        model = method.model_types[kind].from_arrays(loaded[name])
        self._know(name, model)
        return model

    def read_segment(
        self, entry: Mapping[str, Any], models: Mapping[str, Any], method: Method, loaded: Mapping[str, Any]
    ) -> Segment:
        """Return the segment of an entry of the manifest; raise ValueError and others if its files do not fit."""
        arrays = {**loaded[entry["segment"]], **(loaded[entry["refinement"]] if "refinement" in entry else {})}
        segment = method.read_segment(models[entry["model"]], arrays)
        for kind, part in segment.stored_parts.items():
            self._know(entry[kind], *part.made_from)
        if "removed" in entry:
            segment = segment.with_removals(loaded[entry["removed"]]["bits"])
            self._know(entry["removed"], segment.removed)
        if entry.get("vectors", segment.count) != segment.count:
            raise ValueError(f"a segment has {segment.count} vectors, not {entry['vectors']}")
        return segment

    def read_graph(self, entry: Mapping[str, str], loaded: Mapping[str, Mapping[str, Array]]) -> StoredGraph:
        """Return the neighbor graph of an entry of the manifest; raise ValueError and others if it cannot be used."""
        graph = StoredGraph.from_arrays(loaded[entry["graph"]])
        self._know(entry["graph"], *graph_parts(graph))
        if "unlinked" in entry:
            graph = graph.with_removals(loaded[entry["unlinked"]]["bits"])
            self._know(entry["unlinked"], graph.removed)
        return graph

    def _layer(self, name: str, loaded: Mapping[str, Mapping[str, Array]]) -> Layer:
        layer = Layer.from_arrays(loaded[name])
        self._know(name, layer)
        return layer

    # -------------------------------------------------------------------------------------------------- writing

    def has_room(self, nbytes: int, count: int) -> bool:
        """Return whether the log can take so many bytes and changes; one that has grown is folded into segments."""
        return bool(self._state) and self._end.has_room(nbytes, count)

    def append(self, pending: Sequence[Change]) -> None:
        """Add changes to the log as one generation; they are on disk when this returns."""
        self._check_unchanged()
        self._end = changes.append(self._log_path(self._state or ""), self._end, pending)

    def write(self, stored: StoredIndex) -> None:
        """Write a new manifest and the files that it needs. Files that did not change are not read or written.

        Files of older generations, or of a writer that died, are removed at the end.
        """
        json.dumps(
            [dict(stored.settings), stage_to_json(stored.method)]
        )  # what cannot be written is refused before anything is
        self._check_unchanged()
        writer = self._writer()
        self._commit(writer.manifest(stored, self.generation + 1), writer)

    def write_entries(self, contents: Mapping[str, Any], files: Mapping[str, dict[str, Any]]) -> None:
        """Write a new manifest for files that are there already.

        contents: settings, method, models, segments and strings. files: length and checksum of each file.
        """
        self._check_unchanged()
        writer = self._writer()
        writer.files = dict(files)
        manifest = {"format": FORMAT, "generation": self.generation + 1, **contents, "files": writer.files}
        self._commit(manifest, writer)

    def _writer(self) -> Writer:
        """Return what writes files; it leaves out those that are there."""
        return Writer(LocalPlace(self.folder).write, self._files, self._names)

    def _commit(self, manifest: dict[str, Any], writer: Writer) -> None:
        state = state_of(manifest)
        self._attempt = state, self.generation + 1, writer
        write_manifest(self.folder, {**manifest, "state": state})
        self._adopt_attempt()
        for other in self.folder.iterdir():
            if INDEX_FILE.fullmatch(other.name) and other.name not in (*writer.files, LOCK):
                other.unlink(missing_ok=True)

    def _adopt_attempt(self) -> None:
        """Note that the last manifest is in place."""
        if self._attempt is not None:
            self._state, generation, writer = self._attempt
            self._end = changes.start_of_log(self._state, generation)
            self._files, self._names, self._attempt = writer.files, writer.names, None

    def _check_unchanged(self) -> None:
        """Raise unless the folder still holds what this writer read or wrote last, and its lock."""
        if self._lock is None or not self._lock.in_place:
            raise ConflictError(
                f"{self.folder} was replaced, or its lock was deleted, since it was opened; nothing was written. "
                "Save to another path, or open it again"
            )
        try:
            state = read_manifest(self.folder).get("state", "")
        except (FileNotFoundError, CorruptIndexError):
            state = None
        if self._attempt is not None and state == self._attempt[0]:
            self._adopt_attempt()  # it was written, though something failed after that
        if self._state is not None and state != self._state:
            raise ConflictError(
                f"{self.folder} was written by another since it was opened; nothing was written. "
                "Save to another path, or open it again"
            )

    def _know(self, name: str, *parts: object) -> None:
        self._names[key_of(parts)] = name, parts


def _fit_in_memory(files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the files that stay in memory take at most half of it."""
    needed = sum(about["bytes"] for name, about in files.items() if not name.startswith("refinement-"))
    return bool(needed <= (memory_bytes() or 0) // 2)


def last_position(folder: Path, manifest: Any) -> changes.Position:
    """Return the state of a folder, its log included as far as it can be read."""
    state = manifest.get("state", "")
    start = changes.start_of_log(state, manifest["generation"])
    try:
        return changes.read(folder / f"changes-{state}.log", start)[1]
    except CorruptIndexError:
        return start


def is_index(folder: Path) -> bool:
    """Return whether a folder is an index, even a damaged one, or holds only what a writer of one left.

    A folder with nothing but a manifest.json that another program wrote is not an index.
    """
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    ours = [name for name in names if INDEX_FILE.fullmatch(name)]
    if MANIFEST not in names:
        return len(ours) == len(names)
    if ours:
        return True
    path = folder / MANIFEST
    return path.is_file() and b'"generation"' in path.read_bytes() and b'"segments"' in path.read_bytes()
