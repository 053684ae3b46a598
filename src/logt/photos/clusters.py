"""Clusters, a neighbor graph -> groups of similar photos, with a representative each, and unusual photos."""

from dataclasses import dataclass

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.types import Array, Floats, Ids
from logt.graph.neighbor_graph import NeighborGraph, edge_rows

MIN_SIZE, ROOTS = 4, 10
"""A group has at least so many photos, and as many as a tenth of the root of their number."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """Groups of similar photos, the largest first.

    ids: of the photos. labels: the group of each, -1 for none. representatives: the row of the photo in each group
    that is most similar to the others. nearest: the similarity of each photo to its nearest neighbor.
    """

    ids: Array
    labels: Ids
    representatives: Ids
    nearest: Floats

    def members(self, label: int) -> list[str]:
        """Return the photos of a group, by name."""
        return sorted(self.ids[self.labels == label].tolist())

    def unusual(self, count: int) -> list[tuple[str, float]]:
        """Return the photos that are far from all others, and the similarity to their nearest neighbors."""
        rows = np.argsort(self.nearest, kind="stable")[:count]
        return list(zip(self.ids[rows].tolist(), self.nearest[rows].tolist(), strict=True))


def find_clusters(graph: NeighborGraph) -> Clusters:
    """Return the clusters of HDBSCAN on the graph; needs `pip install 'logt-search[map]'`."""
    with needs_extra("map", "groups need scikit-learn"):
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components
        from sklearn.cluster import HDBSCAN
    count, row = len(graph), edge_rows(graph)
    nearest = np.zeros(count, np.float32)
    np.maximum.at(nearest, row, graph.similarity)
    size = max(MIN_SIZE, round(count**0.5 / ROOTS))
    labels = np.full(count, -1)
    if count > 2 * size:
        distances = graph.to_csr(symmetric=True)
        distances.data = np.maximum(distances.data, 1e-6)  # 0 would be no edge
        parts, part = connected_components(distances, directed=False)
        if parts > 1:  # HDBSCAN needs a connected graph: join the parts by edges longer than all others
            first = np.unique(part, return_index=True)[1]
            ends = np.full(parts - 1, first[0]), first[1:]
            far = coo_matrix((np.full(parts - 1, 2.0), ends), (count, count))
            distances = (distances + far + far.T).tocsr()
        model = HDBSCAN(min_cluster_size=size, min_samples=1, metric="precomputed", copy=True)
        labels = model.fit_predict(distances.astype(np.float64))
    sizes = np.bincount(labels[labels >= 0])
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    labels = np.where(labels >= 0, rank[labels] if len(rank) else -1, -1)
    inside = labels[row] == labels[graph.rows]
    center = np.bincount(row[inside], graph.similarity[inside], count)
    order = np.lexsort((-center, labels))
    representatives = order[np.searchsorted(labels[order], np.arange(len(sizes)))]
    return Clusters(graph.ids, labels, representatives, nearest)
