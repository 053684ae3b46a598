"""Filters on a device, (mask, ids or function) -> lists in which only what passes is found."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from logt._internal.types import Array
from logt._internal.validation import as_mask, call_filter
from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError
from logt.gpu.device import Device
from logt.gpu.lists import DeviceLists


class DeviceFilter:
    """A filter on a device, for any number of searches: see `DeviceIndex.prepare`.

    owner: the state of the index that it belongs to. passing: which of `ids` pass. parts: the lists that are
    searched. searches: what was recorded for few queries.
    """

    def __init__(self, owner: object, passing: Any, parts: Sequence[DeviceLists]):
        self.owner: object = owner
        self.passing: Any = passing
        self.parts: Sequence[DeviceLists] = parts
        self.searches: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"DeviceFilter({int(self.passing.sum())} of {len(self.passing)} vectors)"


class Numbers:
    """The numbers of vectors, on a device: 0, 1, ... in the order of `Index.ids`, which is that of a mask."""

    def __init__(self, device: Device, ids: Any):
        self._device, xp = device, device.xp
        given = device.put(ids)
        increasing = len(given) < 2 or bool((given[1:] > given[:-1]).all())
        self._order = None if increasing else xp.argsort(given)
        self._known = given if self._order is None else given[self._order]

    def __len__(self) -> int:
        return len(self._known)

    def find(self, ids: Any) -> Any:
        """Return the number of each id as int32, -1 for unknown ones."""
        xp = self._device.xp
        if not len(self):
            return xp.full(ids.shape, -1, np.int32)
        at = xp.minimum(xp.searchsorted(self._known, ids), len(self) - 1)
        return xp.where(self._known[at] == ids, at if self._order is None else self._order[at], -1).astype(np.int32)

    def passing(self, snapshot: Snapshot, filter: Any, user_ids: Array | None) -> Any:
        """Return which vectors a filter passes, on the device; a mask that is there stays there.

        user_ids: those of all vectors, for functions.
        """
        put, given = self._device.put, filter
        if self._device.holds(given):
            there = put(given)
            if there.dtype.kind == "b":
                return self._whole(there)
            if there.dtype.kind in "iu" and snapshot.strings is None:
                return self._among(there.ravel().astype(np.int64))
            given = self._device.get(there)
        mask = as_mask(given) if user_ids is None else call_filter(given, user_ids)
        return self._among(put(snapshot.to_int_ids(given))) if mask is None else self._whole(mask)

    def _among(self, wanted: Any) -> Any:
        passing, at = self._device.xp.zeros(len(self), bool), self.find(wanted)
        passing[at[at >= 0]] = True
        return passing

    def _whole(self, mask: Any) -> Any:
        """Return a copy of a mask, which may change later; raise InvalidInputError if it is not for all vectors."""
        if mask.shape != (len(self),):
            values = "x".join(map(str, mask.shape))
            raise InvalidInputError(f"the mask has {values} values, the index {len(self)} vectors")
        return self._device.xp.array(mask)
