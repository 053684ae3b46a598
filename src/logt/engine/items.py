"""Items: things that several vectors show, such as the regions of a photo, or the frames of a video."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from logt._internal.segment import check_ids
from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import as_int_ids, check_array, check_lengths
from logt.engine.string_ids import Layer, as_strings
from logt.errors import InvalidInputError

_MORE = 4  # results for each item that is still missing


def _none() -> Ids:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Items:
    """The item of each vector. Immutable.

    ids: the integer ids of the vectors, increasing; some may be removed. numbers: the item of each of them. names:
    what the numbers stand for if items are strings; else None, and the numbers are the items.
    """

    ids: Ids = field(default_factory=_none)
    numbers: Ids = field(default_factory=_none)
    names: tuple[str, ...] | None = None

    def add(self, ids: Ids, items: Any) -> Items:
        """Return the items with those of new vectors, integers or strings, one for each."""
        names, numbers = as_strings(items), _none()
        if len(self.ids) and (names is None) != (self.names is None):
            kind = "integers" if self.names is None else "strings"
            raise InvalidInputError(f"the items of this index are {kind}, got {items!r}; nothing was added")
        if names is None:
            numbers = as_int_ids(items)
            if len(numbers) and numbers.min() < 0:
                raise InvalidInputError(f"items must be strings or integers from 0 on, got {numbers.min()}")
        if len(names or numbers) != len(ids):
            raise InvalidInputError(f"{len(names or numbers)} items are given for {len(ids)} vectors: pass one each")
        known = self.names
        if names is not None:
            number_of = dict(self._number_of)
            numbers = np.array([number_of.setdefault(name, len(number_of)) for name in names], np.int64)
            known = tuple(number_of)
        return self._with(ids, numbers, known)

    def append(self, added: Sequence[Items]) -> Items:
        """Return the items with those of others in turn; later ones replace earlier ones."""
        named = {self.names is not None} if len(self.ids) else set()
        if len(named | {items.names is not None for items in added}) > 1:
            raise InvalidInputError("some items are integers, and others strings")
        numbers, known = [items.numbers for items in added], None
        if any(items.names is not None for items in added):
            number_of = dict(self._number_of)
            for at, items in enumerate(added):
                new = [number_of.setdefault(name, len(number_of)) for name in items.names or ()]
                numbers[at] = np.array(new, np.int64)[items.numbers]
            known = self.names if len(number_of) == len(self.names or ()) else tuple(number_of)
        ids = np.concatenate([_none(), *(items.ids for items in added)])
        return self._with(ids, np.concatenate([_none(), *numbers]), known)

    def _with(self, ids: Ids, numbers: Ids, names: tuple[str, ...] | None) -> Items:
        """Return the items with those of more vectors, of which the last of each id counts."""
        order = np.argsort(ids, kind="stable")
        order = order[np.append(ids[order][1:] != ids[order][:-1], True)[: len(ids)]]
        ids, numbers = ids[order], numbers[order]
        at = np.searchsorted(self.ids, ids)
        here = self.ids[np.minimum(at, len(self.ids) - 1)] == ids if len(self.ids) else at > 0
        old_ids, old_numbers = (np.delete(old, at[here]) if here.any() else old for old in (self.ids, self.numbers))
        at = np.searchsorted(old_ids, ids)
        return Items(np.insert(old_ids, at, ids), np.insert(old_numbers, at, numbers), names)

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names or ())}

    @cached_property
    def _names(self) -> Array:
        return np.array([*(self.names or ()), None], object)

    def of(self, ids: Ids) -> Ids:
        """Return the numbers of the items of some vectors; -1 for id -1."""
        if not len(self.ids):
            return np.full_like(ids, -1)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(ids >= 0, self.numbers[at], -1)

    def to_user_items(self, ids: Ids) -> Array:
        """Return the items of some vectors as users see them; -1 or None for id -1."""
        numbers = self.of(ids)
        return numbers if self.names is None else self._names[numbers]

    def keep(self, ids: Ids) -> Items:
        """Return only the items of these vectors."""
        return Items().add(np.sort(ids), self.to_user_items(np.sort(ids)))

    @property
    def nbytes(self) -> int:
        names = 0 if self.names is None else Layer.of(self.names, _none()).nbytes
        return self.ids.nbytes + self.numbers.nbytes + names

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store."""
        arrays: dict[str, Array] = {"ids": self.ids, "items": self.numbers}
        return arrays if self.names is None else {**Layer.of(self.names, np.arange(len(self.names))).arrays, **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Items:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        ids, numbers = check_ids(arrays["ids"]), check_array(arrays["items"], np.int64, 1)
        check_lengths(ids, numbers)
        if numbers.min() < 0:
            raise ValueError("an item is below 0")
        if "text" not in arrays:
            return cls(ids, numbers)
        layer = Layer.from_arrays(arrays)
        is_complete = np.array_equal(layer.ints, np.arange(len(layer))) and len(layer.lookup) == len(layer)
        if not is_complete or numbers.max() >= len(layer):
            raise ValueError("the items do not fit their names")
        items = cls(ids, numbers, tuple(layer.lookup))
        vars(items)["_number_of"] = layer.lookup
        return items


def items_of(items: Items | None, vectors: int) -> Items:
    """Return the items of an index with so many vectors; raise if they have none."""
    if items is None and vectors:
        raise InvalidInputError("the vectors of this index have no items; pass items to add")
    return items or Items()


Ranked = Callable[[Floats, int], tuple[Floats, Ids]]


def best_of_items(ranked: Ranked, Q: Floats, k: int, items: Items, vectors: int, worst: float) -> tuple[Floats, Ids]:
    """Return (scores, ids) of the best vector of each of the k best items.

    ranked: (Q, n) -> (scores, ids) of the n best vectors. More of them are ranked until k items are among them, or
    all vectors. worst: the score of padding.
    """
    scores, ids = np.full((len(Q), k), worst, np.float32), np.full((len(Q), k), -1, np.int64)
    width = min(_MORE * k, vectors)
    for row, found in enumerate(zip(*ranked(Q, width), strict=True)):
        wide, known = width, found[1][found[1] >= 0]
        while len(at := np.unique(items.of(known), return_index=True)[1]) < k and len(known) == wide < vectors:
            wide = min(_MORE * wide, vectors)
            found = tuple(part[0] for part in ranked(Q[row : row + 1], wide))
            known = found[1][found[1] >= 0]
        at = np.sort(at)[:k]
        scores[row, : len(at)], ids[row, : len(at)] = found[0][at], known[at]
    return scores, ids
