"""Re-ranking, (snapshot, results) -> results: diffusion on the neighbor graph of a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np

from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Floats, Ids, Mask, Metric
from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError
from logt.graph.diffusion import Diffusion, transition
from logt.graph.stored_graph import StoredGraph


def as_diffusion(rerank: Any, snapshot: Snapshot, metric: Metric) -> Diffusion | None:
    """Return the requested diffusion, if any; raise InvalidInputError if the index cannot do it."""
    if rerank is None:
        return None
    if not isinstance(rerank, Diffusion) and not (isinstance(rerank, str) and rerank == "diffusion"):
        raise InvalidInputError(f"rerank must be 'diffusion', a logt.Diffusion or None, got {rerank!r}")
    if metric != "cosine":
        raise InvalidInputError(f"diffusion works under cosine, not under {metric}")
    if snapshot.graph is None:
        raise InvalidInputError("the index has no neighbor graph; call index.link() first")
    return rerank if isinstance(rerank, Diffusion) else Diffusion()


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
