"""Repair: an index with damaged files -> what can still be read of it, and a list of what is lost.

`examine` changes nothing. `repair` writes a new manifest that names only what can be read, and moves the damaged
files and the old manifest to a folder inside the index: nothing is deleted.
"""

import errno
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.segment import Segment, check_ids, unpack_removals
from logt._internal.types import Array, Ids, Mask
from logt.engine.items import Items
from logt.engine.string_ids import Layer
from logt.errors import CorruptIndexError
from logt.storage import changes
from logt.storage.changes import Change, log_path, start_of_log
from logt.storage.files import (
    UNUSABLE,
    describe_file,
    file_size,
    make_folder,
    parse_arrays,
    read_array_file,
    read_bytes,
)
from logt.storage.locations import LocalLocation
from logt.storage.manifest import MANIFEST, MAX_MANIFEST, misfit_is_corruption, state_of
from logt.storage.reading import ManifestReader
from logt.storage.store import Store
from logt.storage.writing import FileNames, Writer

LOST_ID = "lost-id-"
"""Vectors whose string id is lost get this and their number as an id."""

_MAX_IDS_FILE = 1 << 36


@dataclass(frozen=True)
class Loss:
    """A part of an index that cannot be read.

    what: the part, such as "segment 3". reason: what is wrong. vectors: how many are lost, None if that is not known.
    ids: their ids, as far as they are known; they may come from a damaged file.
    """

    what: str
    reason: str
    vectors: int | None = None
    ids: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Examination:
    """What can be read of an index, and what is lost.

    aside: the folder that a repair makes, and moves files to that the index does not have any more. kept: the number
    of vectors.
    """

    folder: Path
    aside: Path
    losses: tuple[Loss, ...]
    kept: int
    segments: int
    left_out: tuple[str, ...]  # names of files that the repaired index does not have
    manifest: dict[str, Any]  # of the repaired index
    new_files: Mapping[str, bytes]
    log: tuple[Change, ...]


def examine(folder: Path) -> Examination:
    """Read all files of an index and return what is lost; change nothing."""
    return _Examiner(folder.resolve()).run()


def repair(folder: Path, check: Callable[[Path], object] | None = None) -> Examination:
    """Keep what can be read of an index; return what was lost. An index that is not damaged is left as it is.

    folder: the folder of the index.
    check: called with the folder after the repair, for example `Index.open`; if it raises, the repair is undone.
    """
    folder = folder.resolve()
    location = LocalLocation(folder)
    location.read_manifest()  # do not leave a lock file where there is no index
    with location.lock():
        found = examine(folder)
        if not found.losses:
            return found
        old = read_bytes(folder / MANIFEST, MAX_MANIFEST)
        _link_aside(found, old)
        for name, data in found.new_files.items():
            location.write(name, data)
        manifest = {**found.manifest, "state": state_of(found.manifest)}
        if found.log:
            changes.append(log_path(folder, manifest["state"]), start_of_log(manifest), found.log)
        location.write_manifest(manifest)
        try:
            Store.open(folder, write=False).read()
            if check is not None:
                check(folder)
        except BaseException:
            location.write(MANIFEST, old)
            shutil.rmtree(found.aside)
            raise
        for name in found.left_out:  # damaged or not: the next save would remove it
            if (found.aside / name).exists():
                location.remove(name)
            elif (folder / name).exists():
                os.replace(folder / name, found.aside / name)
        return found


def _new_name(path: Path) -> Path:
    """Return a path, or one with a number after it, that nothing has: an earlier repair may have used the first."""
    names = chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2)))
    return next(name for name in names if not os.path.lexists(name))


def _link_aside(found: Examination, manifest: bytes) -> None:
    """Link what the repaired index does not have: even if this is killed, the next save removes it from the index."""
    make_folder(found.aside)
    for name in found.left_out:
        with suppress(OSError):  # such as one that is missing, or a file system without links: it is moved later
            os.link(found.folder / name, found.aside / name)
    LocalLocation(found.aside).write(MANIFEST, manifest)


@dataclass
class _Kept:
    """A segment that can be read, and its entry of the manifest. unsure: its tombstones are lost."""

    entry: dict[str, Any]
    segment: Segment
    unsure: bool

    @property
    def live_ids(self) -> Ids:
        return self.segment.ids[self.segment.live]


class _Examiner:
    """Reads an index file by file."""

    def __init__(self, folder: Path):
        self._folder = folder
        try:
            self._manifest = LocalLocation(folder).read_manifest()
        except CorruptIndexError as error:
            raise CorruptIndexError(f"{error}. It names all other files, so nothing can be repaired") from error
        self._bad: dict[str, str] = {}  # by file: what is wrong with it
        self._loaded: dict[str, dict[str, Array]] = {}
        self._strings: dict[int, str] = {}  # by integer id
        self._newest: dict[str, int] = {}  # the present integer id of each string
        self._losses: list[Loss] = []
        self._new_files: dict[str, bytes] = {}
        self._writer = Writer(self._new_files.__setitem__, {}, FileNames())

    def run(self) -> Examination:
        manifest = self._manifest
        with misfit_is_corruption(self._folder / MANIFEST):
            for name, about in manifest["files"].items():
                self._load(name, about)
            self._read_strings()
            reader = ManifestReader(manifest, self._loaded.__getitem__)
            found = [self._read_segment(reader, *numbered) for numbered in enumerate(manifest["segments"], 1)]
            kept = [segment for segment in found if segment is not None]
            complete = len(kept) == len(found) and not any(segment.unsure for segment in kept)
            self._guess_removals(kept)
            strings = self._string_files(kept)
            graph = self._graph_files(reader, complete=complete)
            items = self._items_file()
        entries = [segment.entry for segment in kept]
        log, generation, old_log = self._read_log({entry["model"] for entry in entries})
        if "items" in manifest and not items:
            log = [replace(change, items=None) for change in log]
        used = (
            {name for entry in entries for name in entry.values()}
            | set(strings or ())
            | set(graph.values())
            | set(items.values())
        )
        files = manifest["files"] | self._writer.files
        repaired = {
            **{key: value for key, value in manifest.items() if key not in ("state", "graph", "items")},
            **({"graph": graph} if graph else {}),
            **items,
            "generation": generation + 1,
            "segments": entries,
            "models": {name: kind for name, kind in manifest["models"].items() if name in used},
            "strings": strings,
            "files": {name: about for name, about in files.items() if name in used},
        }
        return Examination(
            folder=self._folder,
            aside=_new_name(self._folder / f"damaged-{generation}"),
            losses=tuple(self._losses),
            kept=_count(kept, log),
            segments=len(entries),
            left_out=(*(name for name in manifest["files"] if name not in repaired["files"]), *old_log),
            manifest=repaired,
            new_files=self._new_files,
            log=tuple(log),
        )

    def _load(self, name: str, about: Mapping[str, Any]) -> None:
        path = self._folder / name
        try:
            if describe_file(path) != about:  # without mapping: a bad sector is then an error, not a signal
                self._bad[name] = "its checksum does not match the manifest"
                return
            self._loaded[name] = read_array_file(path, about)
        except FileNotFoundError:
            self._bad[name] = "it is missing"
        except CorruptIndexError as error:
            self._bad[name] = str(error)
        except UNUSABLE as error:
            self._bad[name] = f"its arrays cannot be read: {error}"
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._bad[name] = "the disk cannot read it"

    def _damage(self, names: Iterable[str]) -> str:
        """Return what is wrong with the damaged ones of some files; empty if there are none."""
        return "; ".join(f"{name}: {self._bad[name]}" for name in names if name in self._bad)

    def _lose(self, what: str, reason: str, vectors: int | None = 0, ids: tuple[Any, ...] = ()) -> None:
        self._losses.append(Loss(what, reason, vectors, ids))

    # ------------------------------------------------------------------------------------------------ segments

    def _read_segment(self, reader: ManifestReader, number: int, stored: Mapping[str, Any]) -> _Kept | None:
        """Return what can be read of a segment, None if it is lost."""
        entry = dict(stored)
        unsure = entry.get("removed") in self._bad
        tombstones = entry.pop("removed") if unsure else ""
        try:
            self._replace_refinement(number, entry)
            reason = self._damage(name for key, name in entry.items() if key != "vectors")
            if unsure and not reason:
                entry["vectors"] = len(self._loaded[entry["segment"]]["ids"])
                again = f"{self._damage([tombstones])}; vectors that were removed from it are found again"
                self._lose(f"the removals of segment {number}", again)
            if not reason:
                return _Kept(entry, reader.segment(entry), unsure)
        except UNUSABLE as error:
            reason = f"its arrays do not fit together: {error}"
        self._lose(f"segment {number}", reason, stored.get("vectors"), self._lost_ids(entry))
        return None

    def _replace_refinement(self, number: int, entry: dict[str, Any]) -> None:
        """If only the refinement of a segment is lost, replace it by zeros."""
        name = entry.get("refinement")
        codes, model = (self._loaded.get(entry[part]) for part in ("segment", "model"))
        if name not in self._bad or codes is None or model is None:
            return
        shape = len(codes["ids"]), len(model["mean"])
        zeros: dict[str, Array] = {
            "refinement": np.zeros(shape, np.int8),
            "refinement_scale": np.zeros(shape[0], np.float32),
        }
        entry["refinement"] = self._writer.write("refinement", zeros, zeros)
        self._loaded[entry["refinement"]] = zeros
        reason = f"{self._damage([name])}; its vectors are found by their codes alone, with less accuracy"
        self._lose(f"the refinement of segment {number}", reason)

    def _lost_ids(self, entry: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the ids of a segment that is lost, if they can be read: from its file, even if it is damaged."""
        name = entry["segment"]
        try:
            arrays = self._loaded.get(name)
            if arrays is None:
                data = read_bytes(self._folder / name, _MAX_IDS_FILE)
                arrays = parse_arrays(np.frombuffer(data, np.uint8))[0]
            ids = check_ids(arrays["ids"])
            if entry.get("removed") in self._loaded:
                ids = ids[~unpack_removals(self._loaded[entry["removed"]]["bits"], len(ids))]
        except (*UNUSABLE, OSError):
            return ()
        if self._manifest["strings"] is None:
            return tuple(ids.tolist())
        return tuple(self._strings[n] for n in ids.tolist() if n in self._strings)

    def _guess_removals(self, kept: list[_Kept]) -> None:
        """Mark in segments whose tombstones are lost what must have been removed: ids that are elsewhere."""
        replaced = [n for n, string in self._strings.items() if self._newest[string] != n]
        elsewhere = [np.array(replaced, np.int64), *(segment.live_ids for segment in kept if not segment.unsure)]
        for segment in reversed([segment for segment in kept if segment.unsure]):
            removed: Mask = np.isin(segment.segment.ids, np.concatenate(elsewhere))
            elsewhere.append(segment.segment.ids)
            if removed.any():
                segment.segment = replace(segment.segment, removed=removed)
                segment.entry["removed"] = self._writer.write("removed", {"bits": np.packbits(removed)}, removed)
                segment.entry["vectors"] = segment.segment.count

    # ---------------------------------------------------------------------------------- string ids, graph, log

    def _read_strings(self) -> None:
        for name in self._manifest["strings"] or ():
            if name not in self._bad:
                try:
                    layer = Layer.from_arrays(self._loaded[name])
                except UNUSABLE as error:
                    self._bad[name] = f"its arrays do not fit together: {error}"
                    continue
                self._strings |= dict(zip(layer.ints.tolist(), layer.strings, strict=True))
                self._newest |= layer.lookup

    def _items_file(self) -> dict[str, str]:
        """Return the entry of the items; none if they are damaged."""
        name = self._manifest.get("items")
        if name is None:
            return {}
        if name not in self._bad:
            try:
                Items.from_arrays(self._loaded[name])
                return {"items": name}
            except UNUSABLE as error:
                self._bad[name] = f"its arrays do not fit together: {error}"
        self._lose("the items of all vectors", self._damage([name]))
        return {}

    def _string_files(self, kept: list[_Kept]) -> list[str] | None:
        """Return the files of string ids; vectors whose ids are lost get new ones."""
        names: list[str] | None = self._manifest["strings"]
        reason = self._damage(names or ())
        if not reason:
            return names
        unnamed = [n for segment in kept for n in segment.live_ids.tolist() if n not in self._strings]
        prefix = LOST_ID
        while any(string.startswith(prefix) for string in self._strings.values()):
            prefix = f"_{prefix}"
        new = {n: f"{prefix}{n}" for n in unnamed}
        reason += f"; their vectors are kept as {prefix}NUMBER"
        self._lose(f"{len(unnamed):,} string ids", reason, ids=tuple(new.values()))
        strings = self._strings | new
        ints = np.array(sorted(strings), np.int64)
        layer = Layer.of([strings[n] for n in ints.tolist()], ints)
        return [self._writer.write("strings", layer.arrays, layer)]

    def _graph_files(self, reader: ManifestReader, *, complete: bool) -> dict[str, str]:
        """Return the files of the neighbor graph; none if one of them, or a segment, is lost: it is then dropped.

        complete: all vectors are known.
        """
        graph = dict(self._manifest.get("graph", {}))
        reason = self._damage(graph.values())
        if not reason:
            try:
                reader.graph()
            except UNUSABLE as error:
                reason = f"its arrays do not fit together: {error}"
        if not graph or (complete and not reason):
            return graph
        reason = reason or "it does not fit what is left"
        self._lose("the neighbor graph", f"{reason}; compute it again with: logt link")
        return {}

    def _read_log(self, models: set[str]) -> tuple[list[Change], int, list[str]]:
        """Return the changes that can be kept, the last generation, and the log if the repair replaces it.

        models: the files of models that are kept.
        """
        path = log_path(self._folder, self._manifest["state"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is reported as a loss
            log, end, wrong = changes.read(path, start_of_log(self._manifest))
        left = max(0, (file_size(path) or 0) - end.offset)
        if left or wrong:
            reason = wrong or "of a save that did not finish"
            self._lose(f"the last {left:,} bytes of the write-ahead log", reason, vectors=None if wrong else 0)
        lost = [change for change in log if change.kind == "add" and change.model not in models]
        for change in lost:
            ids = change.ids.tolist() if change.strings is None else change.strings.strings
            self._lose("an addition in the write-ahead log", f"{change.model} is lost", len(ids), tuple(ids))
        return [change for change in log if change not in lost], end.generation, [path.name] if self._losses else []


def _count(kept: Iterable[_Kept], log: Iterable[Change]) -> int:
    """Return how many vectors the segments hold after the changes of the log."""
    ids = np.concatenate([np.empty(0, np.int64), *(segment.live_ids for segment in kept)])
    for change in log:
        ids = np.union1d(ids, change.ids) if change.kind == "add" else np.setdiff1d(ids, change.ids)
    return len(ids)
