"""The neighbor graph as users get it: matrices, networks, and groups with their scores."""

import numpy as np
import pytest
from exact_index import built

from logt.datasets.synthetic import synthetic_collection
from logt.graph.neighbor_graph import NeighborGraph, scored_groups


def test_scikit_learn_takes_the_distances_as_a_precomputed_graph():
    cluster = pytest.importorskip("sklearn.cluster")
    matrix = built(synthetic_collection(1000, 64, seed=1).X).graph(10).to_csr(symmetric=True)
    assert matrix.shape == (1000, 1000)
    assert matrix.data.min() >= 0
    labels = cluster.DBSCAN(eps=0.4, min_samples=3, metric="precomputed").fit_predict(matrix)
    assert labels.max() > 1


@pytest.mark.parametrize("kind", ["distance", "similarity"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_matrix_has_all_neighbors_nearest_first_and_distances_of_0(vectors, kind, symmetric, own):
    pytest.importorskip("scipy")
    X = vectors(60, 8)
    X[9] = X[4]
    graph = built(X).graph(5)
    matrix = graph.to_csr(kind, symmetric=symmetric, own=own)
    expected = {(a, int(b)): s for a in range(60) for b, s in zip(*graph.neighbors(a), strict=True)}
    if symmetric:
        expected |= {(b, a): s for (a, b), s in expected.items() if (b, a) not in expected}
    if own:
        expected |= {(a, a): 1 for a in range(60)}
    rows = np.repeat(np.arange(60), np.diff(matrix.indptr))
    found = dict(zip(zip(rows.tolist(), matrix.indices.tolist(), strict=True), matrix.data, strict=True))
    assert found.keys() == expected.keys()
    for pair, value in found.items():
        assert value == pytest.approx(
            expected[pair] if kind == "similarity" else max(1 - expected[pair], 0), abs=1e-5
        )
    values = matrix.data if kind == "distance" else -matrix.data
    ends = matrix.indptr[1:-1]
    assert (np.delete(np.diff(values), ends - 1) >= 0).all()
    assert not symmetric or np.array_equal(matrix.toarray(), matrix.T.toarray())
    assert not own or matrix.indices[matrix.indptr[:-1]].tolist() == list(range(60))


def test_networkx_gets_ids_and_similarities():
    pytest.importorskip("networkx")
    index = built(np.eye(8, dtype=np.float32)[:3] + 0.1, ["a", "b", "c"])
    graph = index.graph(1).to_networkx()
    assert set(graph.nodes) == {"a", "b", "c"}
    assert all("similarity" in data for *_, data in graph.edges(data=True))


def test_groups_are_connected_components():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 32)).astype(np.float32)
    X[10:14] = X[3] + 0.01 * rng.standard_normal((4, 32))
    X[30] = X[20]
    graph = built(X, [f"v{i}" for i in range(40)]).graph(10)
    groups = [sorted(group) for group in graph.groups(0.95)]
    assert groups == [sorted(["v3", "v10", "v11", "v12", "v13"]), ["v20", "v30"]]
    assert graph.groups(1.1) == []


@pytest.mark.parametrize("edges", [0, 1, 30, 200])
def test_the_score_of_a_group_is_the_lowest_of_the_pairs_that_connect_it(edges):
    rng = np.random.default_rng(edges)
    row = np.sort(rng.integers(0, 60, edges))
    other = (row + rng.integers(1, 60, edges)) % 60
    similarity = rng.uniform(0.9, 1.01, edges).astype(np.float32)
    starts = np.searchsorted(row, np.arange(61))
    graph = NeighborGraph(np.arange(60), starts, other.astype(np.int32), similarity)
    groups = {i: ({i}, 1.0) for i in range(60)}
    for a, b, value in zip(row.tolist(), other.tolist(), similarity.tolist(), strict=True):
        if value >= np.float32(0.95) and groups[a] is not groups[b]:
            joined = groups[a][0] | groups[b][0], min(groups[a][1], groups[b][1], value)
            groups.update(dict.fromkeys(joined[0], joined))
    expected = {(*sorted(rows), score) for rows, score in groups.values() if len(rows) > 1}
    found = scored_groups(graph, 0.95)
    assert {(*rows.tolist(), score) for rows, score in found} == expected
    assert [len(rows) for rows, _ in found] == sorted((len(group) - 1 for group in expected), reverse=True)
