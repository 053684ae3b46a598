"""The neighbor graph: as users see it, and as an index keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._types import Array, Floats, Ids, Mask
from logt._validation import check_array
from logt.engine.segment import check_ids
from logt.errors import MissingExtraError
from logt.stages.diffusion import Transition, transition

_LEVELS = 255  # similarities as bytes; 0 means no neighbor


@dataclass(frozen=True, eq=False)
class Neighbors:
    """ids: increasing. neighbors: (len(ids), k), rows of ids, nearest first, -1 where there are fewer than k.

    similarity: (len(ids), k), cosines.
    """

    ids: Ids
    neighbors: NDArray[np.int32]
    similarity: Floats


@dataclass(frozen=True, eq=False)
class NeighborGraph:
    """The nearest neighbors of every vector, as a sparse matrix in CSR form.

    ids: the id of each row. starts: the neighbors of row i are starts[i]:starts[i + 1], nearest first. rows: the row
    of each neighbor. similarity: its cosine, from the stored codes.
    """

    ids: Array
    starts: Ids
    rows: NDArray[np.int32]
    similarity: Floats

    @classmethod
    def from_neighbors(cls, ids: Array, neighbors: NDArray[np.int32], similarity: Floats) -> NeighborGraph:
        """Create the graph from (N, k) arrays, -1 for no neighbor."""
        known = neighbors >= 0
        starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))]).astype(np.int64)
        return cls(ids, starts, neighbors[known], similarity[known])

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"NeighborGraph(vectors={len(self)}, edges={len(self.rows)})"

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, without the ids."""
        return self.starts.nbytes + self.rows.nbytes + self.similarity.nbytes

    def neighbors(self, row: int) -> tuple[Array, Floats]:
        """Return (ids, similarities) of the neighbors of one row, nearest first."""
        mine = slice(self.starts[row], self.starts[row + 1])
        return self.ids[self.rows[mine]], self.similarity[mine]

    def to_scipy(self, *, distance: bool = False) -> Any:
        """Return a `scipy.sparse.csr_matrix` of similarities; needs `pip install 'logt-search[data]'`.

        distance: return 1 − similarity instead, as scikit-learn takes it for metric="precomputed".
        """
        try:
            from scipy.sparse import csr_matrix
        except ImportError as error:
            raise MissingExtraError("to_scipy needs scipy: pip install 'logt-search[data]'") from error
        values = np.maximum(1 - self.similarity, 0) if distance else self.similarity
        return csr_matrix((values, self.rows, self.starts), shape=(len(self), len(self)))

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph` with the ids as nodes and edges with a `similarity`; needs networkx."""
        try:
            import networkx
        except ImportError as error:
            raise MissingExtraError("to_networkx needs networkx: pip install networkx") from error
        graph = networkx.DiGraph()
        names = self.ids.tolist()
        graph.add_nodes_from(names)
        for row, name in enumerate(names):
            ids, similarity = self.neighbors(row)
            edges = zip(ids.tolist(), similarity.tolist(), strict=True)
            graph.add_edges_from((name, other, {"similarity": value}) for other, value in edges)
        return graph

    def groups(self, threshold: float) -> list[Array]:
        """Return the ids of each group of two or more vectors that pairs of at least this similarity connect.

        threshold: the least similarity of a pair. The largest groups come first.
        """
        strong = self.similarity >= threshold
        row = np.repeat(np.arange(len(self)), np.diff(self.starts))[strong]
        label = _components(row, self.rows[strong].astype(np.int64), len(self))
        order = np.argsort(label, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
        return [self.ids[part] for part in sorted(parts, key=lambda p: (-len(p), p[0])) if len(part) > 1]


def _components(a: Ids, b: Ids, count: int) -> Ids:
    """Return the smallest row that each row is connected to."""
    label = np.arange(count)
    while True:
        least = np.minimum(label[a], label[b])
        new = label.copy()
        np.minimum.at(new, label[a], least)
        np.minimum.at(new, label[b], least)
        new = new[new]
        while (shorter := new[new]).tolist() != new.tolist():
            new = shorter
        if np.array_equal(new, label):
            return label
        label = new


@dataclass(frozen=True, eq=False)
class Links:
    """The neighbor graph as it is stored: five bytes per neighbor at most, four below 2**24 vectors.

    ids: increasing. low, high: the row of each neighbor is low + 65536 · high, (N, k). level: its similarity, from 1
    to 255 between the two bounds; 0 means no neighbor.
    """

    ids: Ids
    low: NDArray[np.uint16]
    high: Array
    level: NDArray[np.uint8]
    bounds: Floats

    @classmethod
    def from_neighbors(cls, found: Neighbors) -> Links:
        known = found.neighbors >= 0
        values = found.similarity[known]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        step = max(high - low, 1e-6) / (_LEVELS - 1)
        level = np.where(known, np.rint((found.similarity - low) / step) + 1, 0).astype(np.uint8)
        rows = np.where(known, found.neighbors, 0)
        kind = np.uint8 if len(found.ids) <= 1 << 24 else np.uint16
        bounds = np.array([low, max(high, low + 1e-6)], np.float32)
        return cls(found.ids, (rows & 0xFFFF).astype(np.uint16), (rows >> 16).astype(kind), level, bounds)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def k(self) -> int:
        return int(self.level.shape[1])

    @property
    def neighbors(self) -> NDArray[np.int32]:
        """(N, k), -1 for no neighbor."""
        rows = self.low.astype(np.int32) | self.high.astype(np.int32) << 16
        return np.where(self.level > 0, rows, np.int32(-1))

    @property
    def similarity(self) -> Floats:
        """(N, k), 0 for no neighbor."""
        step = (self.bounds[1] - self.bounds[0]) / np.float32(_LEVELS - 1)
        values = np.arange(_LEVELS + 1, dtype=np.float32)
        values = self.bounds[0] + (values - 1) * step
        values[0] = 0
        found: Floats = values[self.level]
        return found

    @cached_property
    def _transitions(self) -> dict[int, Transition]:
        return {}

    def transition(self, first: int) -> Transition:
        """Return S of a diffusion over mutual neighbors among the first ones of each vector."""
        first = min(first, self.k)
        known = self._transitions.get(first)
        if known is None:
            known = self._transitions[first] = transition(self.neighbors, self.similarity, first)
        return known

    @property
    def nbytes(self) -> int:
        """The bytes that are stored."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def cached_bytes(self) -> int:
        """The bytes in memory of what diffusions need, once one was run."""
        parts = self._transitions.values() if "_transitions" in vars(self) else ()
        return sum(S.starts.nbytes + S.columns.nbytes + S.weights.nbytes for S in parts)

    def keep(self, rows: Ids) -> Links:
        """Return the graph of some rows only."""
        new = np.full(len(self), -1, np.int32)
        new[rows] = np.arange(len(rows), dtype=np.int32)
        neighbors = self.neighbors[rows]
        moved = np.where(neighbors >= 0, new[neighbors], np.int32(-1))
        return Links.from_neighbors(Neighbors(self.ids[rows], moved, np.where(moved >= 0, self.similarity[rows], 0)))

    @property
    def arrays(self) -> dict[str, Array]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Links:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        ids = check_ids(arrays["ids"])
        low, level = check_array(arrays["low"], np.uint16, 2), check_array(arrays["level"], np.uint8, 2)
        high = check_array(arrays["high"], np.uint8 if len(ids) <= 1 << 24 else np.uint16, 2)
        bounds = check_array(arrays["bounds"], np.float32, 1)
        if not len(ids) == len(low) or not low.shape == level.shape == high.shape:
            raise ValueError("the neighbor graph does not fit together")
        if len(bounds) != 2 or not np.isfinite(bounds).all() or not -1.01 <= bounds[0] < bounds[1] <= 1.01:
            raise ValueError("the neighbor graph has impossible similarities")
        links = cls(ids, low, high, level, bounds)
        if links.neighbors.max(initial=-1) >= len(ids):
            raise ValueError("the neighbor graph refers to a vector that does not exist")
        return links

    def __getstate__(self) -> dict[str, Any]:
        return self.arrays  # without what is cached


@dataclass(frozen=True, eq=False)
class LinkState:
    """The neighbor graph of a snapshot. Vectors that were removed since are `gone`; new ones are not linked yet."""

    links: Links
    gone: Mask | None = None

    @property
    def visible(self) -> Mask | None:
        return None if self.gone is None else ~self.gone

    def remove(self, ids: Ids) -> LinkState:
        """Return the state without the vectors of some ids."""
        rows, here = self.locate(ids)
        if not here.any():
            return self
        gone = np.zeros(len(self.links), bool) if self.gone is None else self.gone.copy()
        gone[rows[here]] = True
        return replace(self, gone=gone)

    def locate(self, ids: Ids) -> tuple[Ids, Mask]:
        """Return (a row for each id, whether the id is linked)."""
        rows = np.minimum(np.searchsorted(self.links.ids, ids), max(len(self.links) - 1, 0))
        here: Mask = self.links.ids[rows] == ids
        return rows, here if self.gone is None else here & ~self.gone[rows]

    def compact(self) -> LinkState | None:
        """Return the state without the space of removed vectors, None if none are left."""
        if self.gone is None:
            return self
        rows = np.flatnonzero(~self.gone)
        return LinkState(self.links.keep(rows)) if len(rows) else None

    @property
    def count(self) -> int:
        """The number of vectors that are linked."""
        return len(self.links) if self.gone is None else int(np.count_nonzero(~self.gone))

    def with_deletions(self, bits: Array) -> LinkState:
        """Return the state with the rows gone that are set in stored bits."""
        if len(check_array(bits, np.uint8, 1)) != -(-len(self.links) // 8):
            raise ValueError("the deletions do not fit the neighbor graph")
        return replace(self, gone=np.unpackbits(bits, count=len(self.links)).astype(bool))
