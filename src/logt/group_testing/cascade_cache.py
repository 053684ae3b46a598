"""Prefixes U⁰ in use, cached per index: making one reads all codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logt.group_testing.cascade import Prefix
from logt.group_testing.codes import Codes

_CAPACITY = 64


class PrefixCache:
    """The newest prefixes, by codes and p.

    Safe to use from several threads and after a fork: there is no lock, and a change replaces the whole table. Of two
    changes at the same moment one may be lost; then a prefix is made once more.
    """

    def __init__(self) -> None:
        self._entries: Mapping[tuple[int, float], tuple[Codes, Prefix]] = {}

    def get(self, codes: Codes, p: float) -> Prefix:
        """Return U⁰ of the codes for the fraction p of the energy."""
        key = (id(codes), p)
        entry = self._entries.get(key)
        if entry is not None:
            return entry[1]
        prefix = Prefix.from_codes(codes, p)
        # The entry keeps the codes alive, so that their id stays theirs.
        newest = [*self._entries.items(), (key, (codes, prefix))][-_CAPACITY:]
        self._entries = dict(newest)
        return prefix

    def nbytes(self, codes: Iterable[Codes]) -> int:
        """Return the bytes cached for these codes; prefixes of other codes are dropped."""
        wanted = {id(each) for each in codes}
        self._entries = kept = {key: entry for key, entry in self._entries.items() if key[0] in wanted}
        return sum(prefix.nbytes for _, prefix in kept.values())
