"""String ids: each maps to the integer id that segments know."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from logt._internal.types import Array, Ids
from logt._internal.validation import check_array, check_lengths
from logt.errors import InvalidInputError

MERGE_RATIO = 4
"""A layer is merged with the next newer one unless it is more than so many times as large."""


@dataclass(frozen=True, eq=False)
class Layer:
    """Some strings and their integer ids, in increasing order of the integers. Immutable."""

    strings: tuple[str, ...]
    ints: Ids

    def __len__(self) -> int:
        return len(self.strings)

    @cached_property
    def lookup(self) -> dict[str, int]:
        return dict(zip(self.strings, self.ints.tolist(), strict=True))

    @property
    def nbytes(self) -> int:
        """The memory of the strings, the integers and the lookup table."""
        table = sys.getsizeof(self.lookup) if "lookup" in vars(self) else 0
        return table + self.ints.nbytes + sum(map(sys.getsizeof, self.strings))

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store: the strings in UTF-8, where each ends, and its integer id."""
        encoded = [string.encode("utf-8", "surrogatepass") for string in self.strings]
        return {
            "text": np.frombuffer(b"".join(encoded), np.uint8),
            "ends": np.cumsum([len(string) for string in encoded], dtype=np.int64),
            "numbers": self.ints,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Layer:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        text = check_array(arrays["text"], np.uint8, 1).tobytes()
        ends, ints = check_array(arrays["ends"], np.int64, 1), check_array(arrays["numbers"], np.int64, 1)
        check_lengths(ends, ints)
        starts = [0, *ends.tolist()][:-1]
        if (ends < starts).any() or ends.max(initial=0) != len(text):
            raise ValueError("the strings do not fit the text")
        parts = map(slice, starts, ends.tolist())
        if text.isascii():
            strings = list(map(text.decode("ascii").__getitem__, parts))
        else:
            strings = [text[part].decode("utf-8", "surrogatepass") for part in parts]
        if (ints[1:] > ints[:-1]).all():
            return cls(tuple(strings), np.array(ints))
        order = np.argsort(ints)
        return cls(tuple(strings[i] for i in order.tolist()), np.array(ints[order]))


@dataclass(frozen=True, eq=False)
class StringIds:
    """Strings and their integer ids, in layers from the oldest and largest to the newest. Immutable.

    A new batch adds a small layer and copies nothing else; layers of similar size are merged, so that there are few.
    Strings of removed vectors may stay until `keep`; a newer layer overrides an older one.
    """

    layers: tuple[Layer, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.layers))

    def items(self) -> Iterator[tuple[str, int]]:
        for layer in self.layers:
            yield from zip(layer.strings, layer.ints.tolist(), strict=True)

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def get(self, string: str) -> int | None:
        """Return the newest integer id of a string."""
        for layer in reversed(self.layers):
            found = layer.lookup.get(string)
            if found is not None:
                return found
        return None

    def to_ints(self, strings: Sequence[str]) -> Ids:
        """Return the integer ids of the strings that are known."""
        found = (self.get(string) for string in strings)
        return np.array([number for number in found if number is not None], np.int64)

    def to_strings(self, ints: Ids) -> Array:
        """Return the strings of an array of integer ids; None where there is none."""
        strings = np.empty(ints.shape, object)
        flat, wanted = strings.reshape(-1), ints.reshape(-1)
        for layer in self.layers:
            at = np.minimum(np.searchsorted(layer.ints, wanted), max(len(layer) - 1, 0))
            if len(layer):
                for place in np.flatnonzero(layer.ints[at] == wanted).tolist():
                    flat[place] = layer.strings[at[place]]
        return strings

    def add(self, strings: Sequence[str], ints: Ids) -> StringIds:
        """Return the ids with a new layer; the integers must be larger than all that are there."""
        layers = [*self.layers, Layer(tuple(strings), ints)] if len(ints) else list(self.layers)
        while len(layers) > 1 and len(layers[-2]) <= MERGE_RATIO * len(layers[-1]):
            newer, older = layers.pop(), layers.pop()
            layers.append(Layer(older.strings + newer.strings, np.concatenate([older.ints, newer.ints])))
        return StringIds(tuple(layers))

    def keep(self, ints: Ids) -> StringIds:
        """Return only the strings of these integer ids, in one layer."""
        pairs = {number: string for string, number in self.items()}
        kept = np.sort(ints)
        return StringIds().add([pairs[number] for number in kept.tolist()], kept)

    def shift(self, by: int) -> StringIds:
        """Return the ids with `by` added to each integer."""
        return StringIds(tuple(Layer(layer.strings, layer.ints + by) for layer in self.layers))

    def append(self, other: StringIds) -> StringIds:
        """Return the ids of both; the integers of the other must be larger."""
        merged = self
        for layer in other.layers:
            merged = merged.add(layer.strings, layer.ints)
        return merged


def as_strings(ids: Any) -> list[str] | None:
    """Return ids as a list of strings, or None if they are something else."""
    if isinstance(ids, str):
        return [ids]
    if ids is None or callable(ids):
        return None
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iufb":
        return None
    array = np.asarray(list(ids) if isinstance(ids, set | frozenset | range) else ids, object)
    flat = array.reshape(-1).tolist()
    if array.ndim == 1 and flat and all(isinstance(string, str) for string in flat):
        return [str(string) for string in flat]
    return None


def check_distinct(strings: Sequence[str], count: int) -> None:
    """Raise unless there is one string per vector, and none twice."""
    if len(strings) != count:
        raise InvalidInputError(f"{len(strings)} ids are given, but there are {count} vectors: pass one id each")
    if len(set(strings)) < count:
        twice = Counter(strings).most_common(1)[0][0]
        raise InvalidInputError(f"id {twice!r} is given twice; nothing was added")
