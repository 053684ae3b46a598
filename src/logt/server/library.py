"""The photos of an index: in order, by date or folder, filtered by name, folder and date; where matches end."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import groupby
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import normalize_rows, row_norms
from logt.errors import InvalidInputError
from logt.index import Index
from logt.photos.catalog import CatalogPhoto

Order = Literal["date", "folder"]
"""Newest photos first, or folder by folder and name by name."""

_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_CACHED_SELECTIONS = 16
_SAMPLE_SIZE = 1000
_MIN_SIZE = 20  # of a collection: fewer photos tell nothing
_FALSE_MATCHES = 0.5  # unrelated photos above the limit in one search, as expected for normal scores


@dataclass(frozen=True)
class PhotoFilter:
    """Conditions that a photo has to meet; empty ones are always met.

    name: words that its id contains, in any case. folder: the folder that it is in, or in a subfolder of it.
    first, last: dates, as YYYY, YYYY-MM or YYYY-MM-DD.
    """

    name: str = ""
    folder: str = ""
    first: str = ""
    last: str = ""

    def __post_init__(self) -> None:
        for date in (self.first, self.last):
            if date:
                _parse_date(date)

    def __bool__(self) -> bool:
        return bool(self.name.strip() or self.folder or self.first or self.last)


@dataclass(frozen=True)
class Group:
    """Consecutive photos with one heading: a month as YYYY-MM, or a folder."""

    label: str
    count: int


@dataclass(frozen=True)
class Selection:
    """Photos that meet a filter, in order, as rows of a library."""

    rows: Ids
    groups: tuple[Group, ...]

    def __len__(self) -> int:
        return len(self.rows)


class Library:
    """All photos of one state of an index. The date of a photo without EXIF date is that of its file.

    photos: what the catalog knows about each of them.
    """

    def __init__(self, photos: Sequence[CatalogPhoto]):
        order = sorted((_folder_order(photo.name.lower()), row) for row, photo in enumerate(photos))
        self._photos = photos = [photos[row] for _, row in order]
        self._row = {photo.name: row for row, photo in enumerate(photos)}
        self._folder = [photo.name.rpartition("/")[0] for photo in photos]
        self._lower = [photo.name.lower() for photo in photos]
        self._date = np.array([_date_of(photo) for photo in photos], "datetime64[s]")
        self._select = lru_cache(_CACHED_SELECTIONS)(self._compute_selection)

    def __len__(self) -> int:
        return len(self._photos)

    def find(self, name: str) -> CatalogPhoto | None:
        """Return what is known about a photo; None if the library does not have it."""
        row = self._row.get(name)
        return None if row is None else self._photos[row]

    def date(self, name: str) -> str:
        """Return the date and time of a photo, as YYYY-MM-DDTHH:MM:SS."""
        return str(self._date[self._row[name]])

    def select(self, condition: PhotoFilter, order: Order = "date") -> Selection:
        """Return the photos that meet a filter; recent selections are cached."""
        return self._select(condition, order)

    def page(self, selection: Selection, offset: int, limit: int) -> list[CatalogPhoto]:
        return [self._photos[row] for row in selection.rows[offset : offset + limit].tolist()]

    def names(self, selection: Selection) -> list[str]:
        return [self._photos[row].name for row in selection.rows.tolist()]

    @cached_property
    def folders(self) -> list[Group]:
        """All folders, with the number of photos in each and in its subfolders, by name."""
        totals: Counter[str] = Counter()
        for folder, count in Counter(self._folder).items():
            while folder.strip("/"):
                totals[folder] += count
                folder = folder.rpartition("/")[0]
        return [Group(folder, totals[folder]) for folder in sorted(totals, key=str.casefold)]

    def _compute_selection(self, condition: PhotoFilter, order: Order) -> Selection:
        rows = np.flatnonzero(self._matches(condition))
        if order == "folder":
            return Selection(rows, _runs([self._folder[row] for row in rows.tolist()]))
        rows = rows[np.argsort(-self._date[rows].astype(np.int64), kind="stable")]
        return Selection(rows, _runs(self._date[rows].astype("datetime64[M]").astype(str).tolist()))

    def _matches(self, condition: PhotoFilter) -> Mask:
        mask = np.ones(len(self), bool)
        for word in condition.name.lower().split():
            mask &= np.array([word in name for name in self._lower], bool)
        if condition.folder:
            start = condition.folder.rstrip("/") + "/"
            mask &= np.array([f"{folder}/".startswith(start) for folder in self._folder], bool)
        if condition.first:
            mask &= self._date >= _parse_date(condition.first)
        if condition.last:
            last = _parse_date(condition.last)
            unit: Any = np.datetime_data(last.dtype)[0]  # a day, a month or a year
            mask &= self._date < last + np.timedelta64(1, unit)
        return mask


class Background:
    """The similarity of a query to photos that were chosen at random; nearly all of them are unrelated to it.

    index: the index of the collection, under cosine.
    """

    def __init__(self, index: Index):
        ids = index.ids
        self._count = len(ids)
        chosen = np.sort(np.random.default_rng(0).permutation(len(ids))[:_SAMPLE_SIZE])
        vectors = index.reconstruct(ids[chosen]) if len(chosen) else np.zeros((0, index.dim), np.float32)
        self._vectors = normalize_rows(vectors, row_norms(vectors))

    def limit(self, query: Floats) -> float | None:
        """Return the score that unrelated photos of this collection rarely exceed; None if there are few photos.

        The median and the middle two thirds of the scores give a normal distribution; the few related photos hardly
        change them. The limit is where half a photo of the whole collection is expected above it.
        """
        if self._count < _MIN_SIZE:
            return None
        scores = self._vectors @ (query / max(float(np.linalg.norm(query)), 1e-30))
        low, middle, high = np.quantile(scores, [NormalDist().cdf(-1), 0.5, NormalDist().cdf(1)])
        deviations = NormalDist().inv_cdf(1 - _FALSE_MATCHES / self._count)
        return float(middle + deviations * (high - low) / 2)


def _folder_order(name: str) -> str:
    """Return a sort key: folders by name, the photos of a folder before those of its subfolders."""
    folder, _, file = name.rpartition("/")
    return folder.replace("/", "\1") + "\0" + file


def _date_of(photo: CatalogPhoto) -> str:
    try:
        return photo.taken or datetime.fromtimestamp(photo.mtime_ns / 1e9).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00"


def _parse_date(text: str) -> Array:
    """Return a date with the precision that it was given with."""
    try:
        if _DATE.fullmatch(text):
            return np.datetime64(text)  # type: ignore[return-value]
    except ValueError:
        pass
    raise InvalidInputError(f"a date must be YYYY, YYYY-MM or YYYY-MM-DD, got {text!r}")


def _runs(labels: list[str]) -> tuple[Group, ...]:
    return tuple(Group(label, sum(1 for _ in run)) for label, run in groupby(labels))
