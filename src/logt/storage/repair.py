"""Repair: an index with damaged files -> what can still be read of it, and a list of what is lost.

`examine` changes nothing. `repair` writes a new manifest that names only what can be read, and moves the damaged
files and the old manifest to a folder inside the index: nothing is deleted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.segment import Segment, check_ids
from logt._internal.types import Array, Ids, Mask
from logt.engine.string_ids import Layer
from logt.errors import CorruptIndexError
from logt.storage import changes
from logt.storage.changes import Change
from logt.storage.files import (
    array_file,
    checksum,
    describe_file,
    make_folder,
    parse_arrays,
    read_array_file,
    read_bytes,
    replace_file,
)
from logt.storage.lock import Lock
from logt.storage.manifest import MANIFEST, UNUSABLE, method_from_json, read_manifest, state_of, write_manifest
from logt.storage.store import Store

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
    """What can be read of an index, and what is lost. kept: the number of vectors in its segments."""

    folder: Path
    losses: tuple[Loss, ...]
    kept: int
    segments: int
    left_out: tuple[str, ...] = ()  # names of files that the repaired index does not have
    manifest: dict[str, Any] = field(default_factory=dict, repr=False)  # of the repaired index
    new_files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    log: tuple[Change, ...] = field(default=(), repr=False)

    @property
    def aside(self) -> Path:
        """The folder that a repair moves files to that the index does not have any more."""
        return self.folder / f"damaged-{self.manifest['generation'] - 1}"


def examine(folder: Path) -> Examination:
    """Read all files of an index and return what is lost; change nothing."""
    return _Examiner(folder.resolve()).run()


def repair(folder: Path, check: Callable[[Path], object] | None = None) -> Examination:
    """Keep what can be read of an index; return what was lost. An index that is not damaged is left as it is.

    folder: the folder of the index.
    check: called with the folder after the repair, for example `Index.open`; if it raises, the repair is undone.
    """
    folder = folder.resolve()
    read_manifest(folder)  # do not leave a lock file where there is no index
    with Lock(folder):
        found = examine(folder)
        if not found.losses:
            return found
        old = read_bytes(folder / MANIFEST, 1 << 28)
        for name, data in found.new_files.items():
            replace_file(folder / name, data)
        state = state_of(found.manifest)
        if found.log:
            start = changes.start_of_log(state, found.manifest["generation"])
            changes.append(folder / f"changes-{state}.log", start, found.log)
        write_manifest(folder, {**found.manifest, "state": state})
        try:
            Store.open(folder, write=False).read()
            if check is not None:
                check(folder)
        except BaseException:
            replace_file(folder / MANIFEST, old)
            raise
        _set_aside(folder, old, found)
        return found


def _set_aside(folder: Path, manifest: bytes, found: Examination) -> None:
    """Move what is left out, damaged or not, to a folder inside the index: the next save would remove it."""
    make_folder(found.aside)
    replace_file(found.aside / MANIFEST, manifest)
    for name in found.left_out:
        if (folder / name).exists():
            os.replace(folder / name, found.aside / name)


class _Examiner:
    """Reads an index file by file."""

    def __init__(self, folder: Path):
        self._folder = folder
        try:
            self._manifest = read_manifest(folder)
        except CorruptIndexError as error:
            raise CorruptIndexError(f"{error}. It names all other files, so nothing can be repaired") from error
        self._bad: dict[str, str] = {}  # by file: what is wrong with it
        self._loaded: dict[str, dict[str, Array]] = {}
        self._losses: list[Loss] = []
        self._new_files: dict[str, bytes] = {}

    def run(self) -> Examination:
        manifest = self._manifest
        try:
            for name, about in manifest["files"].items():
                self._load(name, about)
            kept, lost, unsure = self._read_segments()
            layers = self._read_layers()
            for number, entry, reason in lost:
                self._losses.append(self._describe_loss(number, entry, reason, layers))
            kept = self._with_removals(kept, unsure, layers)
            strings = self._strings(kept, layers)
            graph = self._graph(complete=not lost and not any(unsure))
        except UNUSABLE as error:
            raise CorruptIndexError(f"{self._folder / MANIFEST} is damaged: {error}") from error
        log, generation, old_log = self._read_log()
        entries = [entry for entry, _ in kept]
        used = {name for entry in entries for name in entry.values()} | set(strings or ()) | set(graph.values())
        repaired = {
            **{key: value for key, value in manifest.items() if key not in ("state", "graph")},
            **({"graph": graph} if graph else {}),
            "generation": generation + 1,
            "segments": entries,
            "models": {name: kind for name, kind in manifest["models"].items() if name in used},
            "strings": strings,
            "files": {name: about for name, about in self._all_files().items() if name in used},
        }
        return Examination(
            folder=self._folder,
            losses=tuple(self._losses),
            kept=sum(segment.count for _, segment in kept),
            segments=len(kept),
            left_out=(*(name for name in manifest["files"] if name not in repaired["files"]), *old_log),
            manifest=repaired,
            new_files=self._new_files,
            log=tuple(log),
        )

    def _load(self, name: str, about: Mapping[str, Any]) -> None:
        """Read one file; note what is wrong with it."""
        path = self._folder / name
        try:
            if describe_file(path) != dict(about):  # without mapping: a bad sector is then an error, not a signal
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

    # ------------------------------------------------------------------------------------------------ segments

    def _read_segments(self) -> tuple[list[Any], list[Any], list[bool]]:
        """Return (entry, segment) of those that can be read, (number, entry, reason) of the others.

        The third list states for each segment that can be read whether its removals are lost.
        """
        store, method = Store(self._folder), method_from_json(self._manifest["method"])
        kept, lost, unsure = [], [], []
        for number, entry in enumerate(self._manifest["segments"], 1):
            entry = self._with_refinement(number, entry)
            bad = [name for name in entry.values() if name in self._bad]
            only_removals = bad == [entry.get("removed")]
            if bad and not only_removals:
                lost.append((number, entry, "; ".join(f"{name}: {self._bad[name]}" for name in bad)))
                continue
            entry = {key: value for key, value in entry.items() if value not in bad and key != "vectors"}
            try:
                kind = self._manifest["models"][entry["model"]]
                model = store.read_model(entry["model"], kind, method, self._loaded)
                kept.append((entry, store.read_segment(entry, {entry["model"]: model}, method, self._loaded)))
                unsure.append(only_removals)
            except UNUSABLE as error:
                lost.append((number, entry, f"its arrays do not fit together: {error}"))
        return kept, lost, unsure

    def _with_refinement(self, number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of a segment; if only its refinement is lost, with one of zeros."""
        name = entry.get("refinement")
        codes, model = (self._loaded.get(entry[part]) for part in ("segment", "model"))
        if name not in self._bad or codes is None or model is None:
            return dict(entry)
        shape = len(codes["ids"]), len(model["mean"])
        zeros: dict[str, Array] = {
            "refinement": np.zeros(shape, np.int8),
            "refinement_scale": np.zeros(shape[0], np.float32),
        }
        new = self._new_file("refinement", zeros)
        self._loaded[new] = zeros
        reason = f"{name}: {self._bad[name]}; its vectors are found by their codes alone, with less accuracy"
        self._losses.append(Loss(f"the refinement of segment {number}", reason, vectors=0))
        return {**entry, "refinement": new}

    def _describe_loss(self, number: int, entry: Mapping[str, Any], reason: str, layers: list[Layer]) -> Loss:
        ids = self._ids_of(entry)
        names: tuple[Any, ...] = ()
        if ids is not None:
            strings = {n: s for layer in layers for s, n in zip(layer.strings, layer.ints.tolist(), strict=True)}
            has_strings = self._manifest["strings"] is not None
            names = tuple(strings.get(n) if has_strings else n for n in ids.tolist())
            names = tuple(name for name in names if name is not None)
        count = entry.get("vectors", None if ids is None else len(ids))
        return Loss(f"segment {number}", reason, count, names)

    def _ids_of(self, entry: Mapping[str, Any]) -> Ids | None:
        """Return the ids of a segment that is lost, if they can be read: from its file, even if it is damaged."""
        name = entry["segment"]
        try:
            arrays = self._loaded.get(name)
            if arrays is None:
                data = read_bytes(self._folder / name, _MAX_IDS_FILE)
                arrays = parse_arrays(np.frombuffer(data, np.uint8))[0]
            ids = check_ids(arrays["ids"])
            if entry.get("removed") in self._loaded:
                bits = self._loaded[entry["removed"]]["bits"]
                ids = ids[~np.unpackbits(bits, count=len(ids)).astype(bool)]
            return ids
        except (*UNUSABLE, OSError):
            return None

    def _with_removals(self, kept: list[Any], unsure: list[bool], layers: list[Layer]) -> list[Any]:
        """Mark in segments whose removals are lost what must have been removed: ids that are elsewhere."""
        newest = {s: n for layer in layers for s, n in zip(layer.strings, layer.ints.tolist(), strict=True)}
        replaced = [
            n for layer in layers for s, n in zip(layer.strings, layer.ints.tolist(), strict=True) if newest[s] != n
        ]
        result = []
        for at, (entry, segment) in enumerate(kept):
            if unsure[at]:
                sure_or_later = [i for i in range(len(kept)) if i > at or (i != at and not unsure[i])]
                others = [kept[i][1].ids[kept[i][1].live] for i in sure_or_later]
                removed: Mask = np.isin(segment.ids, np.concatenate([*others, np.array(replaced, np.int64)]))
                name = self._manifest["segments"][self._number(entry)]["removed"]
                self._losses.append(
                    Loss(
                        f"the removals of segment {self._number(entry) + 1}",
                        f"{name}: {self._bad[name]}; vectors that were removed from it are found again",
                        vectors=0,
                    )
                )
                if removed.any():
                    segment = replace(segment, removed=removed)
                    entry = {**entry, "removed": self._new_file("removed", {"bits": np.packbits(removed)})}
            result.append(({**entry, "vectors": segment.count}, segment))
        return result

    def _number(self, entry: Mapping[str, Any]) -> int:
        return next(i for i, e in enumerate(self._manifest["segments"]) if e["segment"] == entry["segment"])

    # ----------------------------------------------------------------------------------------- string ids, log

    def _read_layers(self) -> list[Layer]:
        """Return the layers of string ids that can be read."""
        layers = []
        for name in self._manifest["strings"] or ():
            if name not in self._bad:
                try:
                    layers.append(Layer.from_arrays(self._loaded[name]))
                except UNUSABLE as error:
                    self._bad[name] = f"its arrays do not fit together: {error}"
        return layers

    def _strings(self, kept: list[tuple[dict[str, Any], Segment]], layers: list[Layer]) -> list[str] | None:
        """Return the files of string ids; vectors whose ids are lost get new ones."""
        names: list[str] | None = self._manifest["strings"]
        bad = [name for name in names or () if name in self._bad]
        if names is None or not bad:
            return names
        strings = {n: s for layer in layers for s, n in zip(layer.strings, layer.ints.tolist(), strict=True)}
        live = [n for _, segment in kept for n in segment.ids[segment.live].tolist()]
        unnamed = [n for n in live if n not in strings]
        prefix = LOST_ID
        while any(string.startswith(prefix) for string in strings.values()):
            prefix = f"_{prefix}"
        strings |= {n: f"{prefix}{n}" for n in unnamed}
        reason = "; ".join(f"{name}: {self._bad[name]}" for name in bad)
        self._losses.append(
            Loss(
                f"{len(unnamed):,} string ids",
                f"{reason}; their vectors are kept as {prefix}NUMBER",
                vectors=0,
                ids=tuple(f"{prefix}{n}" for n in unnamed),
            )
        )
        ints = np.array(sorted(strings), np.int64)
        layer = Layer(tuple(strings[n] for n in ints.tolist()), ints)
        return [self._new_file("strings", layer.arrays)]

    def _graph(self, *, complete: bool) -> dict[str, str]:
        """Return the files of the neighbor graph; none if one of them, or a segment, is lost: it is then dropped.

        complete: all vectors are known.
        """
        graph = dict(self._manifest.get("graph", {}))
        bad = [name for name in graph.values() if name in self._bad]
        if not graph or (complete and not bad):
            return graph
        reason = "; ".join(f"{name}: {self._bad[name]}" for name in bad) or "it does not fit what is left"
        self._losses.append(Loss("the neighbor graph", f"{reason}; compute it again with: logt link", vectors=0))
        return {}

    def _read_log(self) -> tuple[list[Change], int, list[str]]:
        """Return the changes that can be read, their last generation, and the log if the repair replaces it."""
        state = self._manifest.get("state", "")
        path = self._folder / f"changes-{state}.log"
        start = changes.start_of_log(state, self._manifest["generation"])
        log, end, wrong = changes.read_undamaged(path, start)
        if wrong is None:
            return log, end.generation, [path.name] if self._losses else []
        left = path.stat().st_size - end.offset
        self._losses.append(Loss(f"the last {left:,} bytes of the log of changes", wrong))
        return log, end.generation, [path.name]

    def _new_file(self, kind: str, arrays: Mapping[str, Array]) -> str:
        data = array_file(arrays)
        name = f"{kind}-{checksum(data)[:16]}.safetensors"
        self._new_files[name] = data
        return name

    def _all_files(self) -> dict[str, Any]:
        new = {name: {"bytes": len(data), "checksum": checksum(data)} for name, data in self._new_files.items()}
        return {**self._manifest["files"], **new}
