"""Ids of text: each stands for a number, which is what segments know."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logt._types import Array, Ids
from logt.errors import InvalidInputError


@dataclass(frozen=True)
class Names:
    """Texts and their numbers, both ways; never changed once made."""

    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str], numbers: Iterable[int]) -> Names:
        pairs = dict(zip(texts, numbers, strict=True))
        return cls(pairs, {number: text for text, number in pairs.items()})

    def __or__(self, other: Names) -> Names:
        """Both; a text that both have means what it means in the other."""
        merged = self.numbers | other.numbers
        return Names(merged, {number: text for text, number in merged.items()})

    def kept(self, numbers: Ids) -> Names:
        """Only those with these numbers."""
        texts = {number: self.texts[number] for number in numbers.tolist()}
        return Names({text: number for number, text in texts.items()}, texts)

    @property
    def nbytes(self) -> int:
        """What the texts, their numbers and both tables take in memory."""
        inside = sum(sys.getsizeof(text) + sys.getsizeof(number) for text, number in self.numbers.items())
        return inside + sys.getsizeof(self.numbers) + sys.getsizeof(self.texts)

    def moved(self, by: int) -> Names:
        return Names.of(self.numbers, (number + by for number in self.numbers.values()))

    def shown(self, numbers: Ids) -> Array:
        """The texts of an array of numbers; None where a number is -1."""
        texts = np.empty(numbers.shape, object)
        texts[...] = None
        flat, given = texts.reshape(-1), numbers.reshape(-1).tolist()
        for place, number in enumerate(given):
            flat[place] = self.texts.get(number)
        return texts

    def found(self, texts: list[str]) -> Ids:
        """The numbers of those texts that are there."""
        return np.array([self.numbers[text] for text in texts if text in self.numbers], np.int64)


def as_texts(ids: Any) -> list[str] | None:
    """Ids as a list of texts, or None if they are something else."""
    if isinstance(ids, str):
        return [ids]
    if ids is None or callable(ids):
        return None
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iufb":
        return None
    array = np.asarray(list(ids) if isinstance(ids, set | frozenset | range) else ids, object)
    flat = array.reshape(-1).tolist()
    if array.ndim == 1 and flat and all(isinstance(text, str) for text in flat):
        return [str(text) for text in flat]
    return None


def checked_texts(texts: list[str], count: int, present: Names) -> list[str]:
    """One new text per vector."""
    if len(texts) != count:
        raise InvalidInputError(f"{len(texts)} ids are given, but there are {count} vectors: one id each")
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise InvalidInputError(f"id {text!r} is given twice; nothing was added")
        if text in present.numbers:
            raise InvalidInputError(f"id {text!r} is in the index already; nothing was added")
        seen.add(text)
    return texts
