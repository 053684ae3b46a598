"""Map, a neighbor graph -> a place in two dimensions for each photo, kept in a file of the index."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.threads import Progress
from logt._internal.types import Array, Floats
from logt.errors import CorruptIndexError
from logt.graph.neighbor_graph import NeighborGraph
from logt.storage.files import UNUSABLE, array_file, parse_arrays, read_bytes, replace_file

MAP_FILE = "map.safetensors"
"""In the folder of the index: names and positions. If it is damaged, it is computed again."""
MAX_NEW = 0.25
"""If a larger part of the photos has no position yet, all get new positions."""

_MAX_BYTES = 1 << 30
_NEIGHBORS, _PERPLEXITY = 15, 5
_EARLY, _ITERATIONS, _STEP = 100, 250, 10
_NEAR = 1e-3  # distance of a new photo from its neighbors, as a part of the width of the map


@dataclass(frozen=True, eq=False)
class PhotoMap:
    """The position of each photo, from -1 to 1 in both directions. ids: of the photos. positions: (N, 2)."""

    ids: Array
    positions: Floats


def photo_map(graph: NeighborGraph, index_path: Path, report: Progress) -> PhotoMap:
    """Return the stored map with new photos next to their neighbors, or compute a new one; store what is new."""
    known = _read(index_path)
    ids = graph.ids.tolist()
    missing = np.array([name not in known for name in ids], bool)
    if ids and missing.mean() > MAX_NEW:
        positions = _compute(graph, report)
    else:
        positions = np.array([known.get(name, (0.0, 0.0)) for name in ids], np.float32).reshape(-1, 2)
        _place_new(graph, positions, missing)
    if missing.any() or len(known) != len(ids):
        _write(index_path, ids, positions)
    return PhotoMap(graph.ids, positions)


def _compute(graph: NeighborGraph, report: Progress) -> Floats:
    """Return the positions that t-SNE finds for the nearest neighbors."""
    with needs_extra("map", "the map needs openTSNE"):
        from openTSNE import TSNEEmbedding
        from openTSNE.affinity import PerplexityBasedNN
        from openTSNE.nearest_neighbors import PrecomputedNeighbors
    count = len(graph)
    start = np.random.default_rng(0).normal(0, 1e-4, (count, 2))
    if count <= 2 * _NEIGHBORS:
        return _scaled(start)
    rows, distances = _nearest(graph)
    nearest = PrecomputedNeighbors(rows, distances)
    affinities = PerplexityBasedNN(knn_index=nearest, perplexity=_PERPLEXITY)
    positions = TSNEEmbedding(start, affinities, random_state=0)
    done = 0

    def show(iteration: int, _: float, __: Array) -> None:
        report("placing photos", (done + iteration) * count // (_EARLY + _ITERATIONS), count)

    options = {"callbacks": show, "callbacks_every_iters": _STEP}
    positions = positions.optimize(_EARLY, exaggeration=12, momentum=0.5, **options)
    done = _EARLY
    positions = positions.optimize(_ITERATIONS, momentum=0.8, **options)
    return _scaled(np.asarray(positions))


def _nearest(graph: NeighborGraph) -> tuple[Array, Floats]:
    """Return (rows, distances) of the same number of neighbors of each photo; where some are missing, far ones."""
    count = len(graph)
    column = np.arange(_NEIGHBORS)
    has = column < np.diff(graph.starts)[:, None]
    at = np.where(has, graph.starts[:-1, None] + column, 0)
    others = (np.arange(count)[:, None] + 1 + column) % count
    far = 2.0 + 1e-3 * column
    return np.where(has, graph.rows[at], others), np.where(has, np.maximum(1 - graph.similarity[at], 1e-6), far)


def _scaled(positions: Array) -> Floats:
    positions = positions - (positions.max(axis=0) + positions.min(axis=0)) / 2
    return np.asarray(positions / max(float(np.abs(positions).max()), 1e-12), np.float32)


def _place_new(graph: NeighborGraph, positions: Floats, missing: Array) -> None:
    """Move photos without a place next to the most similar ones that have one; the others to the border."""
    rng = np.random.default_rng(0)
    for row in np.flatnonzero(missing).tolist():
        mine = slice(graph.starts[row], graph.starts[row + 1])
        near = graph.rows[mine][~missing[graph.rows[mine]]][:3]
        positions[row] = positions[near].mean(axis=0) if len(near) else rng.uniform(-1, 1, 2)
        positions[row] += rng.normal(0, _NEAR, 2)


def _read(index_path: Path) -> dict[str, tuple[float, float]]:
    """Return the place of each photo of the stored map; none if there is no map, or it is damaged."""
    try:
        arrays, _ = parse_arrays(np.frombuffer(read_bytes(index_path / MAP_FILE, _MAX_BYTES), np.uint8))
        names, positions = json.loads(arrays["names"].tobytes()), arrays["positions"]
        if positions.dtype == np.float32 and positions.shape == (len(names), 2) and np.isfinite(positions).all():
            return dict(zip(map(str, names), map(tuple, positions.tolist()), strict=True))
    except (OSError, CorruptIndexError, *UNUSABLE):
        pass
    return {}


def _write(index_path: Path, names: list[str], positions: Floats) -> None:
    arrays: dict[str, Array] = {"names": np.frombuffer(json.dumps(names).encode(), np.uint8), "positions": positions}
    with suppress(OSError):  # a folder that cannot be written to: the map is computed again next time
        replace_file(index_path / MAP_FILE, array_file(arrays))
