"""Groups of a neighbor graph: what connects them, and their scores."""

from __future__ import annotations

import numpy as np
import pytest

import logt
from logt.graph.neighbor_graph import NeighborGraph, scored_groups


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


def test_an_empty_graph_has_no_groups():
    assert logt.Index(8).graph().groups(0.9) == []
