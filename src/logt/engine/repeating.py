"""Repeating a log, (snapshot, changes) -> snapshot: what a writer has saved since the files were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from logt._internal.removals import LoggedChange, Removals
from logt._internal.segment import BuildSettings
from logt._internal.types import Ids
from logt.engine.items import Items
from logt.engine.protocols import Method
from logt.engine.snapshot import Snapshot
from logt.engine.string_ids import Layer, StringIds
from logt.errors import InvalidInputError


class Change(LoggedChange, Protocol):
    """A change with the strings and the items of added vectors."""

    @property
    def strings(self) -> Layer | None: ...

    @property
    def items(self) -> Items | None: ...


def repeat_log(
    snapshot: Snapshot, log: Sequence[Change], method: Method, dim: int, settings: BuildSettings
) -> Snapshot:
    """Return the snapshot after the changes of a log, as if they were made one by one, but all at once.

    Raise InvalidInputError, or what unusable arrays raise, if they do not fit the snapshot.
    """
    if not log:
        return snapshot
    removals = Removals(log)
    segments, start = method.repeat(snapshot.segments, log, removals, dim, settings)
    next_id = max([snapshot.next_id, *(int(change.ids[-1]) + 1 for change in log if change.kind == "add")])
    if start:  # there was no vector left
        snapshot = replace(snapshot, segments=(), strings=None, graph=None, items=None)
    strings, items = _strings(snapshot, log, start, removals), _items(snapshot, log[start:])
    graph = None if snapshot.graph is None else snapshot.graph.remove(removals.ids)
    return replace(snapshot, segments=segments, next_id=next_id, strings=strings, graph=graph, items=items)


def _strings(snapshot: Snapshot, log: Sequence[Change], start: int, removals: Removals) -> StringIds | None:
    """Return the string ids after a log. start: the first change that counts."""
    times = [time for time, change in enumerate(log) if time >= start and change.kind == "add"]
    layers = [log[time].strings for time in times]
    known = [layer for layer in layers if layer is not None]
    if not known and (snapshot.strings is None or not layers):
        return snapshot.strings
    if len(known) < len(layers) or (snapshot.strings is None and len(snapshot)):
        raise InvalidInputError("some ids are strings, and others integers")
    bounds = [(int(layer.ints[0]), int(layer.ints[-1])) for layer in known]
    if bounds[0][0] < snapshot.next_id or any(low <= last for (_, last), (low, _) in pairwise(bounds)):
        raise InvalidInputError("the integers of string ids were in use")
    new, added = Layer.join(known), np.repeat(times, [len(layer) for layer in known])
    _check_unused(snapshot, new, added, removals)
    return (snapshot.strings or StringIds()).with_layer(new)


def _check_unused(snapshot: Snapshot, new: Layer, added: Ids, removals: Removals) -> None:
    """Raise InvalidInputError if a string is the id of another vector when it is added. added: when that is."""
    removed, last = removals.after(new.ints, added), dict[str, int]()
    for row, string in enumerate(new.strings):
        before = last.get(string)
        if before is not None and removed[before] > added[row]:
            raise InvalidInputError("a string id is added twice")
        last[string] = row
    for layer in () if snapshot.strings is None else snapshot.strings.layers:
        rows, of_new = layer.equal_to(new)
        ints = layer.ints[rows]
        used = removals.after(ints, np.full(len(ints), -1)) > added[of_new]
        if (used & snapshot.holds(ints)).any():
            raise InvalidInputError("a string id is in the index already")


def _items(snapshot: Snapshot, log: Sequence[Change]) -> Items | None:
    """Return the items after the changes of a log that count."""
    added = [change.items for change in log if change.kind == "add"]
    known = [items for items in added if items is not None]
    if not known and (snapshot.items is None or not added):
        return snapshot.items
    if len(known) < len(added) or (snapshot.items is None and len(snapshot)):
        raise InvalidInputError("some vectors have items, and others none")
    return (snapshot.items or Items()).append(known)
