"""Prefixes U⁰ in use, cached per index: making one reads all codes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from logt.stages.cascade import Prefix
from logt.stages.codes import Codes

_CAPACITY = 64


class PrefixCache:
    """The most recently used prefixes, by codes and p. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, float], tuple[Codes, Prefix]] = OrderedDict()

    def get(self, codes: Codes, p: float) -> Prefix:
        """Return U⁰ of the codes for the fraction p of the energy."""
        key = (id(codes), p)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry[1]
        prefix = Prefix.from_codes(codes, p)
        with self._lock:
            self._entries[key] = codes, prefix  # keeps the codes alive, so that their id stays theirs
            while len(self._entries) > _CAPACITY:
                self._entries.popitem(last=False)
        return prefix

    def nbytes(self, codes: Iterable[Codes]) -> int:
        """Return the bytes cached for these codes; prefixes of other codes are dropped."""
        wanted = {id(each) for each in codes}
        with self._lock:
            for key in [key for key in self._entries if key[0] not in wanted]:
                del self._entries[key]
            return sum(prefix.nbytes for _, prefix in self._entries.values())
