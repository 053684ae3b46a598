"""Re-ranking, results -> results: by diffusion on the neighbor graph of a snapshot, or by a function of the user."""

from collections.abc import Callable
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError
from logt.graph.diffusion import Diffusion, transition
from logt.graph.stored_graph import StoredGraph
from logt.metrics import worst_score

CANDIDATES = 100
"""Results of the plain search that a function re-ranks, at least."""

ScoreFunction = Callable[[Floats, Array, Floats], ArrayLike]
"""(query, ids, scores) -> new scores of the same results."""

Rerank = Literal["diffusion"] | Diffusion | ScoreFunction
"""How results are re-ranked."""


def is_function(rerank: Any) -> TypeGuard[ScoreFunction]:
    """Return whether results are re-ranked by a function of the user."""
    return callable(rerank) and not isinstance(rerank, Diffusion)


def as_diffusion(rerank: Any, snapshot: Snapshot, metric: Metric) -> Diffusion | None:
    """Return the requested diffusion, if any; raise InvalidInputError if the index cannot do it."""
    if rerank is None:
        return None
    if not isinstance(rerank, Diffusion) and not (isinstance(rerank, str) and rerank == "diffusion"):
        if is_function(rerank):
            raise InvalidInputError("this index does not re-rank by a function: search without it, on the processor")
        raise InvalidInputError(f"rerank must be 'diffusion', a logt.Diffusion, a function or None, got {rerank!r}")
    if metric != "cosine":
        raise InvalidInputError(f"diffusion works under cosine, not under {metric}")
    if snapshot.graph is None:
        raise InvalidInputError("the index has no neighbor graph; call index.link() first")
    return rerank if isinstance(rerank, Diffusion) else Diffusion()


def rescore(
    function: ScoreFunction, Q: Floats, found: tuple[Floats, Ids], to_user_ids: Callable[[Ids], Array], metric: Metric
) -> tuple[Floats, Ids]:
    """Return the results of a plain search with the scores that a function gives them, best first.

    Equal scores stay in the order of the plain search.
    """
    scores, ids = np.full_like(found[0], worst_score(metric)), np.full_like(found[1], -1)
    for row, (old, known) in enumerate(zip(found[0], found[1] >= 0, strict=True)):
        mine = found[1][row][known]
        new = old[known]
        if len(mine):
            new = _check_scores(function(Q[row].copy(), to_user_ids(mine), new), len(mine))
        order = np.argsort(new if metric == "l2" else -new, kind="stable")
        scores[row, : len(mine)], ids[row, : len(mine)] = new[order], mine[order]
    return scores, ids


def _check_scores(scores: Any, count: int) -> Floats:
    """Return what a function returned for so many results as float32."""
    try:
        with np.errstate(over="ignore"):  # infinity is refused
            checked = np.asarray(scores, np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"rerank must return an array of scores: {error}") from error
    if checked.shape != (count,):
        raise InvalidInputError(
            f"rerank must return one score for each of {count} results, got shape {checked.shape}"
        )
    if not np.isfinite(checked).all():
        at = int(np.isfinite(checked).argmin())
        raise InvalidInputError(f"rerank returned {checked[at]} for result {at} of {count}; scores must be finite")
    return checked


def diffuse(
    snapshot: Snapshot,
    diffusion: Diffusion,
    scores: Floats,
    ids: Ids,
    k: int,
    filter: Any = None,
    workers: Workers = SERIAL,
) -> tuple[Floats, Ids]:
    """Return the k best by diffusion from the results of a plain search; what it does not reach follows, scored 0."""
    graph = snapshot.graph
    if graph is None or not ids.shape[1]:
        return scores[:, :k], ids[:, :k]
    visible = snapshot.visible_nodes(filter)
    transition(graph, diffusion.neighbors)  # once, before the threads
    ranked = workers.map(lambda row: _diffuse_one(graph, diffusion, scores[row], ids[row], visible), range(len(ids)))
    width = min(k, max((len(found) for _, found in ranked), default=0))
    out_scores = np.full((len(ids), width), -np.inf, np.float32)
    out_ids = np.full((len(ids), width), -1, np.int64)
    for row, (values, found) in enumerate(ranked):
        out_scores[row, : len(found)], out_ids[row, : len(found)] = values[:width], found[:width]
    return out_scores, out_ids


def _diffuse_one(
    graph: StoredGraph, diffusion: Diffusion, scores: Floats, ids: Ids, visible: Mask | None
) -> tuple[Floats, Ids]:
    """Return (scores, ids) of one query, best first."""
    known = ids >= 0
    scores, ids = scores[known], ids[known]
    first, rest = ids[: diffusion.candidates], ids[diffusion.candidates :]
    rows, here = graph.locate(first)
    S = transition(graph, diffusion.neighbors)
    nodes, f = diffusion(S, np.where(here, rows, -1), scores[: len(first)], visible)
    found = np.concatenate([first, graph.ids[nodes[len(first) :]]])
    used = np.ones(len(found), bool)
    used[len(first) :] = f[len(first) :] > 0
    order = np.argsort(-f[used], kind="stable")  # equal scores stay in the order of the plain search
    found, f = found[used][order], f[used][order]
    if len(rest):
        rest = rest[~np.isin(rest, found)]
    return np.concatenate([f, np.zeros(len(rest))]).astype(np.float32), np.concatenate([found, rest])
