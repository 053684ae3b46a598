"""Searches, whatever the method and wherever the segments are: in this process, or in shards."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.arrays import to_numpy
from logt._internal.params import SearchParams, check_k
from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt._internal.validation import as_matrix, check_choice, check_float, normalize_rows, row_norms
from logt.engine.items import Items, best_of_items
from logt.engine.protocols import Method
from logt.engine.rerank import CANDIDATES, as_diffusion, diffuse, is_function, rescore
from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError
from logt.metrics import check_queries, worst_score
from logt.results import SearchResult, pad_results


@dataclass(frozen=True)
class Searched:
    """What a search reads: one state of an index.

    vectors: how many there are. find: (Q, k, limits) -> (scores, ids), (nq, at most k) each, best first. reconstruct:
    ids -> vectors as they are kept. to_user_ids: integer ids -> ids as users see them. linked: returns the snapshot
    with the neighbor graph and the string ids. filter: what can be found, as users pass it. workers: of a diffusion.
    """

    dim: int
    metric: Metric
    vectors: int
    method: Method
    find: Callable[[Floats, int, Any], SearchResult]
    reconstruct: Callable[[Ids, int], Floats]
    to_user_ids: Callable[[Ids], Array]
    linked: Callable[[], Snapshot]
    filter: Any = None
    workers: Workers = SERIAL

    def search(
        self, Q: Any, k: Any, params: SearchParams, rerank: Any, on_invalid: str, items: Items | None = None
    ) -> SearchResult:
        """Return (scores, integer ids), (nq, k) each, or (k,) for one query of shape (dim,): see `Index.search`.

        items: return the best vectors of k items.
        """
        check_choice("on_invalid", on_invalid, ("raise", "ignore"))
        k = check_k(k, self.vectors)
        given = to_numpy(Q)
        matrix = as_matrix(given, self.dim, "Q")
        limits = self.method.limits(params)
        queries, valid = check_queries(matrix, self.metric, ignore=on_invalid == "ignore")
        if params.expand and self.metric != "cosine":
            raise InvalidInputError(f"expand works under cosine, not under {self.metric}")
        function = rerank if is_function(rerank) else None
        diffusion = None if rerank is None or function else as_diffusion(rerank, self.linked(), self.metric)
        used = queries if valid is None else queries[valid]
        if params.expand and len(used):
            first = self.find(used, check_k(params.expand, self.vectors, "expand"), limits)
            used = expand_queries(self.reconstruct, used, *first, params.alpha)

        effort: Any = None

        def ranked(Q: Floats, k: int) -> tuple[Floats, Ids]:
            nonlocal effort
            width = diffusion.results(k) if diffusion else max(k, CANDIDATES) if function else k
            found = self.find(Q, width, limits)
            scores, ids = found
            effort = found.effort
            if function is not None:
                scores, ids = rescore(function, Q, (scores, ids), self.to_user_ids, self.metric)
            if diffusion is not None:
                scores, ids = diffuse(self.linked(), diffusion, scores, ids, k, self.filter, self.workers)
            return scores[:, :k], ids[:, :k]

        if items is None:
            scores, ids = ranked(used, k)
        else:
            scores, ids = best_of_items(ranked, used, k, items, self.vectors, worst_score(self.metric))
            effort = None  # some items took several searches
        if valid is not None or ids.shape[1] < k:
            scores, ids = pad_results(scores, ids, len(queries), valid, k, worst_score(self.metric))
        if valid is not None and effort is not None:
            effort = _spread(effort, valid)
        if np.ndim(given) == 1 and len(matrix) == 1:
            scores, ids = scores[0], ids[0]
            effort = None if effort is None else effort[0]
        return SearchResult(scores, ids).with_effort(effort)


def _spread(values: Array, valid: Mask) -> Array:
    """Return values of valid queries for all of them; 0 for the others."""
    out = np.zeros(len(valid), values.dtype)
    out[valid] = values
    return out


def check_range(Q: Any, threshold: Any, dim: int, metric: Metric) -> tuple[Floats, float]:
    """Return (queries, threshold) of a search for all results within a threshold."""
    matrix = as_matrix(Q, dim, "Q")
    threshold = check_float("threshold", threshold)
    return check_queries(matrix, metric, ignore=False, hint="correct it")[0], threshold


def expand_queries(
    reconstruct: Callable[[Ids, int], Floats], Q: Floats, scores: Floats, ids: Ids, alpha: float
) -> Floats:
    """Add to each query its results, weighted by score**alpha, and normalize: αQE of Radenović et al. (2019)."""
    flat = reconstruct(ids.ravel(), Q.shape[1])
    found = normalize_rows(flat, row_norms(flat)).reshape(*ids.shape, Q.shape[1])
    weights = np.maximum(scores, 0) ** np.float32(alpha)
    sums: Floats = Q + np.einsum("qk,qkd->qd", weights, found)
    return normalize_rows(sums, row_norms(sums))


AllScores = Callable[[Floats], Iterator[tuple[Floats, Ids]]]
"""From one query to (scores, ids) of all vectors, block by block."""


def search_range(
    all_scores: AllScores, Q: Floats, threshold: float, workers: Workers, *, l2: bool
) -> tuple[Array, Floats, Ids]:
    """Return (limits, scores, ids) of all results within the threshold, best first for each query."""
    return _join_ranges(workers.map(lambda q: _within(all_scores(q), threshold, l2), list(Q)))


def merge_ranges(parts: Sequence[tuple[Ids, Floats, Ids]], *, l2: bool) -> tuple[Array, Floats, Ids]:
    """Return (limits, scores, ids) of a range search from those of each shard."""
    queries = range(len(parts[0][0]) - 1)
    of_query = ([(scores[a[q] : a[q + 1]], ids[a[q] : a[q + 1]]) for a, scores, ids in parts] for q in queries)
    return _join_ranges([_in_order(found, l2) for found in of_query])


def _join_ranges(found: Sequence[tuple[Floats, Ids]]) -> tuple[Array, Floats, Ids]:
    """Return (limits, scores, ids) of all queries from (scores, ids) of each."""
    limits = np.cumsum([0, *(len(ids) for _, ids in found)])
    scores = np.concatenate([np.empty(0, np.float32), *(scores for scores, _ in found)])
    return limits, scores, np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])


def _within(blocks: Iterator[tuple[Floats, Ids]], threshold: float, l2: bool) -> tuple[Floats, Ids]:
    """Return (scores, ids) of the results of one query; only the scores of one block are held at a time."""
    parts = [(np.empty(0, np.float32), np.empty(0, np.int64))]
    for scores, ids in blocks:
        inside = scores <= threshold if l2 else scores >= threshold
        parts.append((scores[inside], ids[inside]))
    return _in_order(parts, l2)


def _in_order(parts: Sequence[tuple[Floats, Ids]], l2: bool) -> tuple[Floats, Ids]:
    """Return (scores, ids) of one query from several parts, best first, equal scores by id."""
    scores, ids = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((ids, scores if l2 else -scores))
    return scores[order], ids[order]
