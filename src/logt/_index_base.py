"""What every index has: a method and a snapshot that change together, and a folder that they are saved to."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Never, Self, overload

import numpy as np

from logt._internal.segment import MAX_ROWS, BuildSettings, Segment
from logt._internal.threads import Progress, Workers, available_cores
from logt._internal.types import Array, Ids, Metric
from logt._internal.validation import check_choice, check_int, refuse_file
from logt.engine.protocols import Method, Searchable
from logt.engine.repeating import repeat_log
from logt.engine.snapshot import Snapshot, check_snapshot
from logt.engine.state import IndexState
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError, ReadOnlyError
from logt.gpu.building import DeviceBuilder
from logt.gpu.device import Device
from logt.gpu.index import DeviceIndex
from logt.lists.method import Sketched
from logt.methods import _check_method, _refuse_unknown
from logt.metrics import parse_metric
from logt.storage.changes import Change, PendingChanges, Position
from logt.storage.files import UNUSABLE
from logt.storage.manifest import stage_to_json
from logt.storage.store import Store
from logt.storage.verification import AT_ONCE, Verification, Verify
from logt.storage.writing import StoredIndex


class IndexBase(Searchable):
    """The contents of an index and their storage; `logt.Index` adds what users do with them.

    dim, method, metric, seed, threads, segment_size, device: see `logt.Index`.
    """

    def __init__(
        self,
        dim: int,
        *,
        method: Method | None = None,
        metric: str = "cosine",
        seed: int = 0,
        threads: int | None = None,
        segment_size: int | Literal["auto"] | None = "auto",
        device: str | None = None,
        **unknown: Never,
    ):
        _refuse_unknown(unknown)
        self._metric = parse_metric(metric)
        self._dim = check_int("dim", dim)
        method = _check_method(method)
        self._seed = check_int("seed", seed, least=0)
        self._threads = None if threads is None else check_int("threads", threads)
        if isinstance(segment_size, str) and segment_size == "auto":
            segment_size = method.segment_size
        self._segment_size = None if segment_size is None else check_int("segment_size", segment_size)
        self._builder = None if device is None else _builder(method, device, self._metric)
        self._state = IndexState(method, self._metric, Snapshot())
        self._writing = threading.RLock()
        self._store: Store | None = None
        self._saved: dict[str, Position | None] = {}  # other stores, and what was written there last, if it is known
        self._pending = PendingChanges()

    @property
    def dim(self) -> int:
        return self._dim

    @property
    def method(self) -> Method:
        return self._state.method

    @property
    def _snapshot(self) -> Snapshot:
        return self._state.snapshot

    @_snapshot.setter
    def _snapshot(self, snapshot: Snapshot) -> None:
        if snapshot is not self._state.snapshot:  # the state keeps what its searches have prepared
            self._state = replace(self._state, snapshot=snapshot)

    @property
    def metric(self) -> Metric:
        return self._metric

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, id: object) -> bool:
        return id in self._snapshot

    @property
    def ids(self) -> Array:
        """The ids of all vectors, in the order of a mask that filters them."""
        snapshot = self._snapshot
        return snapshot.to_user_ids(snapshot.ids)

    @property
    def items(self) -> Array | None:
        """The item of each vector, in the order of `ids`; None if there are none."""
        snapshot = self._snapshot
        return None if snapshot.items is None else snapshot.items.to_user_items(snapshot.ids)

    # ------------------------------------------------------------------------------------------------ storage

    def save(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> None:
        """Write the index to a folder or URL; without a path, to the one it was opened from in mode "a".

        overwrite: replace another index that is there, even a damaged one; without it, that raises InvalidInputError.
        If this index was saved there before and another writer has saved since, that raises ConflictError.
        The previous state stays valid until the new one is complete, and stays with its readers after that. A few
        changes are appended to a log; many, or a log that has grown, are written as new files.
        """
        if path is None and self._store is None:
            raise InvalidInputError("no path to save to: pass one, or open the index with mode='a'")
        with self._writing:
            store = self._store
            if store is not None and (path is None or store.is_at(path)):
                self._refuse_read_only()
                self._save_changes(store)
                return
            stage_to_json(self.method)  # what cannot be stored is refused before there is a folder
            new = Store.create(path or "")
            try:
                self._replace(new, overwrite=overwrite)
            finally:
                new.close()

    def _replace(self, store: Store, *, overwrite: bool) -> None:
        """Write the index to a store that it was not opened from."""
        before = self._saved.get(store.name)
        readable = store.generation > 0
        if store.replaces_index and store.name not in self._saved and not overwrite:
            raise InvalidInputError(
                f"{store.name} is another index; choose another path, pass overwrite=True to replace it, or "
                + ("open it with mode='a' to change it" if readable else "restore a backup: it has no valid manifest")
            )
        if readable and before is not None and store.position != before:
            raise ConflictError(
                f"{store.name} was written by another since this index was saved there; nothing was written. "
                "Save to another path, or open it with mode='a' and change that"
            )
        self._saved[store.name] = None  # if writing fails, what is there is not known
        self.verify()
        store.write(self._stored())
        self._saved[store.name] = store.position

    def _save_changes(self, store: Store) -> None:
        pending = self._pending.changes
        if pending is None or not store.append(pending):
            self.verify()  # a new file of damaged codes would have a right checksum
            store.write(self._stored())
        self._pending.restart()

    def _stored(self) -> StoredIndex:
        snapshot = self._snapshot
        settings = {
            "dim": self._dim,
            "metric": self._metric,
            "seed": self._seed,
            "segment_size": self._segment_size,
            "next_id": snapshot.next_id,
        }
        return StoredIndex(settings, self.method, snapshot.segments, snapshot.strings, snapshot.graph, snapshot.items)

    @overload
    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: Literal["r", "a"] = "r",
        *,
        threads: int | None = None,
        verify: Verify = "all",
        device: None = None,
    ) -> Self: ...

    @overload
    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: Literal["r"] = "r",
        *,
        threads: int | None = None,
        verify: Verify = "all",
        device: str,
    ) -> DeviceIndex: ...

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: Literal["r", "a"] = "r",
        *,
        threads: int | None = None,
        verify: Verify = "all",
        device: str | None = None,
    ) -> Self | DeviceIndex:
        """Open the index that `save` wrote to `path`; its arrays are memory-mapped.

        path: the folder, or a URL (s3://...), which needs `logt-search[cloud]`. The files of a URL are fetched into a
        cache on this machine. mode: "r" opens the index for reading: changes raise ReadOnlyError, the index keeps
        its state until `refresh`, and any number of processes can read. "a" opens it for changes, and locks the
        folder until `close`. At a URL there is no lock; `save` raises ConflictError if another writer has saved.
        threads: the default of all calls; None means all cores. verify: "all" checks every byte, in the background
        those of files that do not fit into 64 MiB; `save` waits for this check, and all calls raise CorruptIndexError
        once it finds damage.
        "sizes" checks the lengths of files and the values that could crash a search, so damaged bytes elsewhere give
        wrong scores. The files of a URL are always checked completely before this returns. device: "cuda" copies the
        index to a GPU and returns the copy (see `Index.to`); only in mode "r".
        """
        check_choice("mode", mode, ("r", "a"))
        if device is not None and mode == "a":
            raise InvalidInputError("an index on a device is not changed: open it with mode='r', or without device")
        check_choice("verify", verify, ("sizes", "all"))
        threads = None if threads is None else check_int("threads", threads)
        refuse_file(path)
        store = Store.open(path, write=mode == "a")
        store.verification = Verification(verify, AT_ONCE)
        try:
            index = cls._from_store(store, threads)
        except BaseException:
            store.close()
            raise
        index._store = store
        index._pending.restart()
        store.verification.start()
        weakref.finalize(index, store.stop_verification)
        if device is not None:
            index.verify()
            return DeviceIndex(index, device)
        return index

    def verify(self) -> None:
        """Wait until every byte of an index that was opened with verify="all" is checked; raise if one is damaged."""
        if self._store is not None:
            self._store.verification.finish()

    def _refuse_damage(self) -> None:
        if self._store is not None:
            self._store.verification.raise_damage()

    @property
    def generation(self) -> int | None:
        """The number of the saved state that was opened, refreshed to or saved last; None if it was not opened."""
        return self._store.generation if self._store else None

    def refresh(self) -> bool:
        """Move an index opened in mode "r" to the newest saved state; return whether there was a newer one."""
        store = self._store
        if store is None:
            raise InvalidInputError("only an index that was opened from a folder can be refreshed")
        with self._writing:
            if store.writable:
                return False
            try:
                return self._read_newer(store)
            except BaseException:
                store.forget()  # what was read is not in this index
                raise

    def _read_newer(self, store: Store) -> bool:
        """Move to the state of the store; return whether it is a newer one."""
        if store.verification.damage is not None:
            store.forget()
        changes = store.read_changes()
        if changes is not None:
            self._snapshot = self._repeated(self._snapshot, changes)
            return bool(changes)
        fresh = type(self)._from_store(store, self._threads)
        store.verification.start()
        if (fresh.dim, fresh.metric) != (self.dim, self.metric):
            raise InvalidInputError(f"{store.name} now holds another kind of index; open it again")
        self._seed, self._segment_size = fresh._seed, fresh._segment_size
        self._state = fresh._state
        return True

    def close(self) -> None:
        """Unlock the folder of an index opened in mode "a"; unsaved changes are lost."""
        if self._store:
            self._store.close()

    def lock(self) -> None:
        """Move an index that was opened in mode "r", or closed, to the newest saved state, and lock its folder.

        After that it is as if it were opened in mode "a", but what it has in memory is not read again.
        """
        store = self._store
        if store is None:
            raise InvalidInputError("only an index that was opened from a folder can be locked")
        with self._writing:
            if not store.writable:
                with store.locking(reread=self._pending.changes != []):  # changes that were not saved are lost
                    self.refresh()
                self._pending.restart()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def _from_store(cls, store: Store, threads: int | None) -> Self:
        stored, changes = store.read()
        settings = dict(stored.settings)
        try:
            next_id = check_int("next_id", settings.pop("next_id"), least=0)
            snapshot = Snapshot(stored.segments, next_id, stored.strings, stored.graph, stored.items)
            index = cls(**settings, method=stored.method, threads=threads)
            check_snapshot(snapshot, index.dim, index.metric, stored.method)
            snapshot = index._repeated(snapshot, changes)
        except (TypeError, KeyError, InvalidInputError) as error:
            raise CorruptIndexError(f"{store.name}: the settings cannot be used: {error}") from error
        index._snapshot = snapshot
        return index

    def _repeated(self, snapshot: Snapshot, changes: Sequence[Change]) -> Snapshot:
        """Return a snapshot with the changes of a log."""
        try:
            return repeat_log(snapshot, changes, self.method, self._dim, self._settings)
        except (*UNUSABLE, InvalidInputError) as error:
            raise CorruptIndexError(f"the write-ahead log cannot be used: {error}") from error

    # ------------------------------------------------------------------------------------------------ details

    @contextmanager
    def _change(self) -> Iterator[Snapshot]:
        """Allow one change at a time, from the snapshot it starts with."""
        self._refuse_read_only()
        self._refuse_damage()
        with self._writing:
            yield self._snapshot

    def _refuse_read_only(self) -> None:
        if self._store and not self._store.writable:
            raise ReadOnlyError(f"{self._store.name} is open for reading; open it with mode='a' to change it")

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the copy is in memory, and belongs to no folder."""
        names = ("_metric", "_dim", "_seed", "_threads", "_segment_size", "_state")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._writing = threading.RLock()
        self._store, self._saved, self._pending, self._builder = None, {}, PendingChanges(), None

    @property
    def _settings(self) -> BuildSettings:
        return BuildSettings(self._metric, self._seed, self._segment_size, self._builder)

    def _with_vectors(
        self, snapshot: Snapshot, rows: Array, ids: Ids, workers: Workers
    ) -> tuple[Snapshot, Segment | None]:
        """Return the snapshot with new vectors, whose ids it knows already, and what the log needs of them.

        That is their segment; None if new files are needed.
        """
        if not len(rows):
            return snapshot, None
        if self._settings.parts(len(rows))[0].stop > MAX_ROWS:
            raise InvalidInputError(
                f"a segment holds at most {MAX_ROWS:,} vectors: pass a segment_size; nothing was added"
            )
        if (np.diff(ids) <= 0).any():  # segments are sorted by id
            order = np.argsort(ids)
            rows, ids = rows[order], ids[order]
        segments, new = self.method.add(snapshot.segments, rows, ids, self._settings, workers)
        return snapshot.with_segments(segments), new

    def _workers(self, threads: int | None, progress: Progress | None = None) -> Workers:
        count = check_int("threads", threads) if threads is not None else self._threads or available_cores()
        return Workers(count, progress)


def _builder(method: Method, device: str, metric: Metric) -> DeviceBuilder:
    """Return what builds on a device."""
    if not isinstance(method, Sketched):
        raise InvalidInputError(f"only logt.methods.sketched() builds on a device, not {method.describe()}")
    return DeviceBuilder(Device(device), metric)
