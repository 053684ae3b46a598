"""Result types of searches and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple, Self

import numpy as np

from logt._internal.types import Array, Floats, Ids, Mask


class _Ranking(NamedTuple):
    scores: Floats
    ids: Array


class SearchResult(_Ranking):
    """The scores and ids of a search, which unpacks as `scores, ids = index.search(...)`.

    Both have the shape (nq, k), or (k,) for a single query, with the best results first. Scores are estimated cosines
    or inner products (larger is better), or squared L2 distances (smaller is better). If there are fewer than k
    results, they are padded with the id -1 (None if ids are strings) and the score -inf (+inf for distances).

    effort: how many inverted lists each query read, (nq,), or a number for a single query, as the effort, from 0 to
    1, at which a query like the collection reads that many. It is high for queries that are unlike the collection.
    None if it is not known: for the paper's methods, for shards, on a GPU, and by item.
    """

    effort: Any = None

    def with_effort(self, effort: Any) -> Self:
        """Set the effort that each query took, and return the result."""
        self.effort = effort
        return self

    def with_ids(self, to_user_ids: Callable[[Ids], Array]) -> SearchResult:
        """Return the result with the ids that users see."""
        return SearchResult(self.scores, to_user_ids(self.ids)).with_effort(self.effort)

    @property
    def counts(self) -> Any:
        """The number of results of each query that are not padding."""
        return np.isfinite(self.scores).sum(axis=-1)


class ItemResult(SearchResult):
    """The result of a search by item; `ids` has the id of the best vector of each item.

    items: the items, in the shape of `ids`, padded with -1 (None if items are strings).
    """

    items: Array


def pad_results(
    scores: Floats, ids: Ids, queries: int, valid: Mask | None, k: int, worst: float
) -> tuple[Floats, Ids]:
    """Return k results for all queries from those of the valid ones, or of all if None.

    Empty results have the worst score and id -1.
    """
    rows = slice(None) if valid is None else valid
    all_scores = np.full((queries, k), worst, np.float32)
    all_ids = np.full((queries, k), -1, np.int64)
    all_scores[rows, : ids.shape[1]], all_ids[rows, : ids.shape[1]] = scores, ids
    return all_scores, all_ids


class RangeResult(NamedTuple):
    """All results of query q: scores[limits[q]:limits[q + 1]] and ids[limits[q]:limits[q + 1]], best first."""

    limits: Array
    scores: Floats
    ids: Array


class Report(dict[str, Any]):
    """The contents, size and cost of an index; a dict that prints as a table."""

    def __repr__(self) -> str:
        return f"Report({super().__repr__()})"

    def __str__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {_format(value)}" for name, value in self.items())

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        rows = (f"<tr><th>{escape(k)}</th><td>{escape(_format(v))}</td></tr>" for k, v in self.items())
        return f"<table>{''.join(rows)}</table>"


def _format(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format(v)}" for name, v in value.items() if v)
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
