"""String ids: each maps to the integer id that segments know."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._internal.types import Array, Ids
from logt._internal.validation import check_array, check_lengths
from logt.errors import InvalidInputError

_UTF_8 = "utf-8", "surrogatepass"
_FIRST_BYTE_OF_MANY = 0x80  # of a character
_FINGERPRINT_BITS = 18
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHARE = 4  # of more than 1/_SHARE of the strings of a layer, all are decoded

MERGE_RATIO = 4
"""A layer is merged with the next newer one unless it is more than so many times as large."""


@dataclass(frozen=True, eq=False)
class Layer:
    """Some strings and their integer ids, in increasing order of the integers. Immutable.

    text: the strings in UTF-8, one after the other; ends: where each ends. They may be mapped from a file, and are
    decoded where they are used; all of them, to look up the first string.
    """

    text: NDArray[np.uint8]
    ends: Ids
    ints: Ids

    @classmethod
    def of(cls, strings: Sequence[str], ints: Ids) -> Layer:
        """Return the layer of some strings."""
        encoded = [string.encode(*_UTF_8) for string in strings]
        ends = np.cumsum([len(string) for string in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends, ints)

    def __len__(self) -> int:
        return len(self.ints)

    @cached_property
    def lookup(self) -> dict[str, int]:
        return dict(zip(self.strings, self.ints.tolist(), strict=True))

    @property
    def strings(self) -> list[str]:
        """All strings."""
        ends = self.ends.tolist()
        text = self.text.tobytes()
        parts = map(slice, [0, *ends[:-1]], ends)
        if text.isascii():  # which is quicker to decode at once
            return list(map(text.decode("ascii").__getitem__, parts))
        return [str(text[part], *_UTF_8) for part in parts]

    def at(self, rows: Ids) -> list[str]:
        """Return some strings."""
        if _SHARE * len(rows) > len(self):
            return list(map(self.strings.__getitem__, rows.tolist()))
        return [str(part, *_UTF_8) for part in self._parts(rows)]

    def take(self, rows: Ids) -> Layer:
        """Return the layer of some strings, in increasing order of their integers."""
        sizes = np.diff(self.ends, prepend=0)[rows]
        text = np.frombuffer(b"".join(self._parts(rows)), np.uint8)
        return Layer(text, np.cumsum(sizes, dtype=np.int64), self.ints[rows])

    def _parts(self, rows: Ids) -> Iterator[memoryview]:
        text = self.text.data
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        return (text[start:end] for start, end in zip(starts.tolist(), self.ends[rows].tolist(), strict=True))

    def equal_to(self, other: Layer) -> tuple[Ids, Ids]:
        """Return the rows of strings here that are in another layer, and the first row of each of them there.

        Here, only strings with the fingerprint of one there are decoded.
        """
        theirs, mine = other._fingerprints, self._fingerprints
        seen = np.zeros(1 << _FINGERPRINT_BITS, bool)
        seen[theirs] = True
        rows = np.flatnonzero(seen[mine])
        there = zip(reversed(other.strings), reversed(range(len(other))), strict=True) if len(rows) else ()
        row_of = dict(there)
        equal = np.array([row_of.get(string, -1) for string in self.at(rows)], np.int64)
        return rows[equal >= 0], equal[equal >= 0]

    @cached_property
    def _fingerprints(self) -> Ids:
        """A number for each string, from its length, its last 8 bytes, and the last 8 of its first half."""
        sizes, text = np.diff(self.ends, prepend=0), np.concatenate([np.zeros(8, np.uint8), self.text])
        words = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))
        half = sizes // 2
        mixed = sizes.astype(np.uint64)
        for ends, most in ((self.ends, sizes), (self.ends - half, sizes - half)):
            unused = 8 * (8 - np.minimum(most, 8)).astype(np.uint64)  # bits of the string before
            word = np.where(most > 0, words[ends] >> np.minimum(unused, 63), 0)
            mixed = (mixed ^ word) * _ODD
            mixed ^= mixed >> np.uint64(32)
        return (mixed & ((1 << _FINGERPRINT_BITS) - 1)).astype(np.int64)

    @staticmethod
    def join(layers: Sequence[Layer]) -> Layer:
        """Return one layer of several, whose integers increase."""
        sizes = [np.diff(layer.ends, prepend=0) for layer in layers]
        text, ints = ([getattr(layer, name) for layer in layers] for name in ("text", "ints"))
        return Layer(np.concatenate(text), np.cumsum(np.concatenate(sizes)), np.concatenate(ints))

    @property
    def nbytes(self) -> int:
        """The memory of the strings, the integers and the lookup table."""
        known = vars(self).get("lookup", {})
        table = sys.getsizeof(known) + sum(map(sys.getsizeof, known)) if known else 0
        return table + self.text.nbytes + self.ends.nbytes + self.ints.nbytes

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store."""
        return {"text": self.text, "ends": self.ends, "numbers": self.ints}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Layer:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        text = check_array(arrays["text"], np.uint8, 1)
        ends, ints = check_array(arrays["ends"], np.int64, 1), check_array(arrays["numbers"], np.int64, 1)
        check_lengths(ends, ints)
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        if (ends < starts).any() or ends.max(initial=0) != len(text):
            raise ValueError("the strings do not fit the text")
        if (text >= _FIRST_BYTE_OF_MANY).any():
            str(text.data, *_UTF_8)  # UnicodeDecodeError is a ValueError
            first = text[starts[ends > starts]]
            if ((first & 0xC0) == 0x80).any():
                raise ValueError("a string starts within a character")
        layer = cls(text, ends, ints)
        return layer if (ints[1:] > ints[:-1]).all() else layer.take(np.argsort(ints))


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
            if len(layer):
                at = np.minimum(np.searchsorted(layer.ints, wanted), len(layer) - 1)
                here = np.flatnonzero(layer.ints[at] == wanted)
                for position, string in zip(here.tolist(), layer.at(at[here]), strict=True):
                    flat[position] = string
        return strings

    def add(self, strings: Sequence[str], ints: Ids) -> StringIds:
        """Return the ids with a new layer; the integers must be larger than all that are there."""
        return self.with_layer(Layer.of(strings, ints)) if len(ints) else self

    def with_layer(self, layer: Layer) -> StringIds:
        """Return the ids with a new layer, whose integers are larger than all that are there."""
        layers = [*self.layers, layer]
        while len(layers) > 1 and len(layers[-2]) <= MERGE_RATIO * len(layers[-1]):
            layers[-2:] = [Layer.join(layers[-2:])]
        return StringIds(tuple(layers))

    def keep(self, ints: Ids) -> StringIds:
        """Return only the strings of these integer ids, in one layer."""
        rows = [np.flatnonzero(np.isin(layer.ints, ints)) for layer in self.layers]
        kept = [layer.take(mine) for layer, mine in zip(self.layers, rows, strict=True) if len(mine)]
        return StringIds((Layer.join(kept),) if kept else ())

    def shift(self, by: int) -> StringIds:
        """Return the ids with `by` added to each integer."""
        return StringIds(tuple(replace(layer, ints=layer.ints + by) for layer in self.layers))

    def append(self, other: StringIds) -> StringIds:
        """Return the ids of both; the integers of the other must be larger."""
        merged = self
        for layer in other.layers:
            merged = merged.with_layer(layer)
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
