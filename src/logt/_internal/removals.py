"""When the vectors of a log were removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from logt._internal.types import Array, Ids

NEVER = (1 << 62) - 1
"""The time of a removal that is not in the log."""


class LoggedChange(Protocol):
    """Vectors that were added, with the arrays of their segment, or ids that were removed."""

    @property
    def kind(self) -> str: ...

    @property
    def ids(self) -> Ids: ...

    @property
    def arrays(self) -> Mapping[str, Array]: ...

    @property
    def model(self) -> Any: ...


class Removals:
    """The removals of a log. The time of a change is its number in the log.

    ids: the removed ones, increasing, each once. first: when each is removed for the first time.
    """

    def __init__(self, log: Sequence[LoggedChange]):
        found = [(change.ids, time) for time, change in enumerate(log) if change.kind == "remove"]
        ids = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in found)])
        times = np.repeat([time for _, time in found], [len(ids) for ids, _ in found]).astype(np.int64)
        order = np.argsort(ids, kind="stable")
        self._ids, self._times = np.append(ids[order], np.int64(-1)), np.append(times[order], NEVER)
        is_first = np.append(True, self._ids[1:] != self._ids[:-1])[:-1]
        self.ids: Ids = self._ids[:-1][is_first]
        self.first: Ids = self._times[:-1][is_first]

    def after(self, ids: Ids, added: Ids) -> Ids:
        """Return when each vector is removed that was added at some time: that of a change, -1 before the log."""
        if not len(self.ids):
            return np.full(len(ids), NEVER)
        at = np.searchsorted(self._ids[:-1], ids)
        while (early := (self._ids[at] == ids) & (self._times[at] <= added)).any():
            at += early
        return np.where(self._ids[at] == ids, self._times[at], NEVER)
