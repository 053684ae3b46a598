"""Searches that go along the neighbor graph: against a naive walk, with removals and several segments, calibrated."""

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import reference
from exact_index import METRICS, assert_same, built, nearest, overlap, unmeasured

import logt
from logt import _kernels
from logt.datasets.synthetic import synthetic_collection
from logt.lists.inverted_lists import Probe, ScanLimits
from logt.lists.search import ListSearcher
from logt.methods import sketched

FAR = 1e30
N, K = 4500, 10
FIRST_LIST = ScanLimits(1, 1, 0, FAR, FAR, FAR, 3 * K, 5000, everything=False)


@pytest.fixture(scope="module")
def collection():
    data = synthetic_collection(N, 64, seed=1)
    return data.X, data.Q


@pytest.fixture(scope="module")
def plain(collection):
    return built(collection[0], measure=True)


@pytest.fixture(scope="module")
def index(plain):
    """The same index with a graph; tests change copies of it."""
    linked = copy.copy(plain)
    linked.link(12)
    return linked


def reached(graph, start):
    """Return all rows that the graph connects with some rows, these included."""
    rows, waiting = set(start), list(start)
    neighbors = graph.neighbors
    while waiting:
        for other in neighbors[waiting.pop()].tolist():
            if other >= 0 and other not in rows:
                rows.add(other)
                waiting.append(other)
    return np.array(sorted(rows))


@pytest.mark.parametrize("wide", [False, True])
def test_a_walk_without_limit_finds_what_a_naive_one_reaches(index, segment, decoded, collection, wide):
    graph = index._snapshot.graph
    few = replace(graph, level=np.where(np.arange(12) < 2, graph.level, 0).astype(np.uint8))
    if wide:
        few = replace(few, high=few.high.astype(np.uint16))
    searcher = ListSearcher([segment], graph=few)
    for q in collection[1][:8]:
        _, ids, counts = searcher.search(q[None], K, FIRST_LIST)
        start = reference.first_lists(segment, q, counts[0, 0])
        best = searcher.search(q[None], 3 * K, FIRST_LIST._replace(beam=0))[1][0].tolist()
        rows = reached(few, best)
        assert len(start) < len(rows) < N  # the graph of two neighbors has several components
        assert counts[0, 1] == len(start) + len(rows) - len(best)  # each vector is read once by the walk
        wanted = rows[np.argsort(-reference.list_scores(segment, decoded, q)[rows])[:K]]
        assert overlap(ids, [wanted]) >= 0.9


def test_a_list_of_neighbors_ends_at_its_first_gap(index, segment, collection):
    graph = index._snapshot.graph

    def search(wanted):
        lists = replace(graph, level=np.where(wanted, graph.level, 0).astype(np.uint8))
        return ListSearcher([segment], graph=lists).search(collection[1], K, FIRST_LIST)

    for a, b in zip(search(np.arange(12) != 2), search(np.arange(12) < 2), strict=True):
        np.testing.assert_array_equal(a, b)


def signs_and_ids(index, Q, walk_reach, nprobe=0):
    """Return (of how many vectors a walk reads the sign bits, the ids that it finds)."""
    (segment,) = index._snapshot.segments
    searcher = ListSearcher([segment], graph=index._snapshot.graph)
    limits = ScanLimits(0.3, nprobe, 0, FAR, FAR, walk_reach, 3 * K, 20, everything=False)
    _, ids, counts = searcher.search(Q, K, limits)
    return counts[:, 2], ids


def test_neighbors_are_left_out_by_their_codes(index, collection, isa):
    (every, all_ids), (fewer, most_ids), (fewest, some_ids) = (
        signs_and_ids(index, collection[1], reach, nprobe=2) for reach in (FAR, 4.0, 1.5)
    )
    assert fewest.mean() < fewer.mean() < every.mean()
    assert overlap(some_ids, all_ids) < 1
    assert overlap(most_ids, all_ids) > 0.99


@pytest.fixture(scope="module")
def few_directions():
    """Vectors, queries and an index, where residuals deviate more than if all directions were the same."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4100, 12)) @ rng.normal(size=(12, 128)) + 0.3 * rng.normal(size=(4100, 128))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    return X[100:], X[:100], built(X[100:], metric="l2", link=12)


def test_residuals_of_few_directions_are_not_left_out(few_directions, isa):
    _, Q, index = few_directions
    (every, all_ids), (signs, ids) = (signs_and_ids(index, Q, reach) for reach in (FAR, 4.0))
    assert signs.mean() < 0.9 * every.mean()
    assert overlap(ids, all_ids) > 0.99
    _kernels.use_instruction_set("baseline")  # which leaves out the same
    for mine, baseline in zip((signs, ids), signs_and_ids(index, Q, 4.0), strict=True):
        np.testing.assert_array_equal(mine, baseline)


@pytest.mark.parametrize("norm", [1e-12, 1e14])
def test_what_a_walk_leaves_out_does_not_depend_on_the_norm(few_directions, norm):
    X, Q, index = few_directions
    scaled = built(X * np.float32(norm), metric="l2", link=12)
    signs, ids = signs_and_ids(index, Q, 4.0)
    scaled_signs, scaled_ids = signs_and_ids(scaled, Q * np.float32(norm), 4.0)
    truth = nearest(X, Q, K, "l2")
    assert abs(scaled_signs.mean() / signs.mean() - 1) < 0.05
    assert abs(overlap(scaled_ids, truth) - overlap(ids, truth)) < 0.02


def test_few_vectors_are_not_enough_to_measure_deviations(rng):
    """Lists of a few vectors: all neighbors are read."""
    index = built(rng.normal(size=(1100, 64)), link=12)
    assert np.diff(index._snapshot.segments[0].starts).max() < 32
    Q = rng.normal(size=(50, 64)).astype(np.float32)
    Q /= np.linalg.norm(Q, axis=1, keepdims=True)
    (signs, _), (every, _) = (signs_and_ids(index, Q, reach, nprobe=1) for reach in (0.5, FAR))
    np.testing.assert_array_equal(signs, every)


def test_the_fewer_candidates_per_result_the_less_is_left_out():
    def reaches(k, **probe):
        limits = Probe(effort=0.7, **probe).limits(k, depths=None, graph=())
        return np.array([limits.code_reach, limits.sign_reach, limits.walk_reach])

    assert (reaches(10) < reaches(100)).all()
    assert (reaches(100) < reaches(1000)).all()
    assert (reaches(1000) < reaches(10, beam=10)).all()
    np.testing.assert_array_equal(reaches(10, beam=10), reaches(10, beam=1))
    np.testing.assert_allclose(reaches(1), reaches(10), atol=0.01)  # never less than for 10


def test_without_a_beam_the_graph_has_no_part(index, plain, collection):
    Q = collection[1]
    for settings in ({"effort": 0.3}, {"nprobe": 2}, {"recall": 0.9}, {}):
        assert_same(index.search(Q, K, beam=0, **settings), plain.search(Q, K, **settings))
    np.testing.assert_array_equal(index.search(Q, K, effort=1).ids, plain.search(Q, K, effort=1).ids)


def test_removed_and_filtered_vectors_are_not_found(index, collection):
    Q, changed = collection[1], copy.copy(index)
    best = changed.search(Q, 3).ids
    changed.remove(np.unique(best))
    found = changed.search(Q, K, nprobe=1, beam=40).ids
    assert not np.isin(found, best).any()
    odd = changed.search(Q, K, filter=np.arange(1, N, 2)).ids
    assert (odd[odd >= 0] % 2 == 1).all()
    assert not np.isin(odd, best).any()


def test_segments_and_codecs_are_walked_through_together(collection):
    X, Q = collection
    index = logt.Index(64, segment_size=1200)
    with unmeasured():
        for part in (X[:2000], X[2000:4400], X[4400:]):
            index.add(part)
        index.link(12)
    assert len(index._snapshot.segments) > 2
    truth = nearest(X, Q, K)
    assert overlap(index.search(Q, K, nprobe=1, beam=100).ids, truth) > 0.8
    assert overlap(index.search(Q, K).ids, truth) > 0.85


def test_every_vector_is_found_if_k_is_their_number(index):
    found = index.search(index.reconstruct([3]), N, beam=20).ids
    assert sorted(found[0].tolist()) == list(range(N))


def test_the_default_search_of_a_linked_index_has_its_recall(index, collection):
    Q = collection[1]
    full = index.search(Q, K, effort=1).ids
    assert overlap(index.search(Q, K, recall=0.95).ids, full) > 0.85
    with_graph, without = (index._state.search().searcher.limits(Probe(beam=beam), K) for beam in (None, 0))
    assert with_graph.beam > without.beam == 0


def test_the_curve_is_measured_without_the_queries_own_neighbors_and_stored(index, tmp_path):
    recall = index._snapshot.graph.recall
    assert recall[0, 0] < 1  # vectors that start at their own node would find nearly all
    assert recall[0, -1] >= 0.998
    index.save(tmp_path / "i")
    opened = logt.open(tmp_path / "i")
    np.testing.assert_array_equal(opened._snapshot.graph.recall, recall)
    Q = opened.reconstruct([5, 7])
    np.testing.assert_array_equal(opened.search(Q, K).ids, index.search(Q, K).ids)


def test_tune_measures_searches_with_the_graph(index, collection):
    tuned, Q = copy.copy(index), collection[1][:16]
    points = tuned.tune(Q)
    assert not np.array_equal(tuned._snapshot.graph.recall, index._snapshot.graph.recall)
    assert [p.recall for p in points] == pytest.approx([p.recall for p in tuned.tune(Q)])


def test_a_stored_graph_has_a_curve_or_none(index):
    graph = index._snapshot.graph
    assert type(graph).from_arrays({**graph.arrays, "measured": np.array([7])}).measured == 7
    with pytest.raises(ValueError, match="an impossible number of vectors"):
        type(graph).from_arrays({**graph.arrays, "measured": np.array([-1])})
    without = {**graph.arrays, "recall": np.empty((0, 0), np.float32)}
    assert not type(graph).from_arrays(without).recall.size
    with pytest.raises(ValueError, match="impossible"):
        type(graph).from_arrays({**without, "recall": np.full((2, 11), 2, np.float32)})


@cache
def linked_with_entries(L, bits):
    data = synthetic_collection(2000, 64, seed=1)
    return built(data.X, method=sketched(L=L, bits=bits, refine=bits is None), link=12), data.Q


@pytest.mark.parametrize(("L", "bits"), [(2, None), (4, 1), (6, None)])
def test_the_scores_of_a_walk_are_those_of_a_full_read(isa, L, bits):
    """A walk reads a copy of short codes, and the code itself of longer ones."""
    index, Q = linked_with_entries(L, bits)
    walked = index.search(Q, K, nprobe=1, beam=40)
    full = index.search(Q, 200, effort=1.0)
    common = 0
    for n in range(len(Q)):
        known = dict(zip(full.ids[n].tolist(), full.scores[n].tolist(), strict=True))
        for found, score in zip(walked.ids[n].tolist(), walked.scores[n].tolist(), strict=True):
            if found in known:
                common += 1
                assert score == known[found]
    assert common > 0.8 * walked.ids.size
    assert overlap(index.search(Q, K, effort=0.7).ids, full.ids[:, :K]) > 0.9


@pytest.mark.parametrize("metric", METRICS)
def test_new_vectors_are_read_besides_the_graph_until_they_are_many(metric, collection, monkeypatch):
    X, Q = collection
    index = built(X[:3400], metric=metric, link=12)
    monkeypatch.setattr("logt.engine.linking.MIN_LINKED", 1100)
    with unmeasured():
        index.add(X[3400:])  # more than a segment without lists holds
    assert index.report()["linked"] == 3400
    segments = index._snapshot.segments
    _, ids, counts = index._state.search().searcher.search(Q, K, FIRST_LIST._replace(beam=K))
    assert all(len(set(row)) == K for row in ids.tolist())  # also those in the list that was read
    assert (counts[:, 1] > 1100).all()
    order, vectors = np.concatenate([s.ids for s in segments]), [reference.list_vectors(s) for s in segments]
    for q, found in zip(Q, ids, strict=True):
        truth = [reference.list_scores(s, V, q) for s, V in zip(segments, vectors, strict=True)]
        best = order[np.argsort(-np.concatenate(truth))][: K // 2]
        assert set(best[best >= 3400]) <= set(found)
    index.add(X[:1])
    assert index.report()["linked"] == N + 1
    index.add(X[1:2])
    assert index.report()["linked"] == N + 1
    with unmeasured():
        index.compact()
    assert index.report()["linked"] == N + 2


def test_a_search_goes_further_where_vectors_were_removed(index, collection):
    X, Q = collection
    changed = copy.copy(index)
    changed.remove(np.arange(0, N, 2))
    before, after = (each._state.search().searcher for each in (index, changed))
    assert after.limits(Probe(effort=0.5), K).beam == 2 * before.limits(Probe(effort=0.5), K).beam
    assert after.limits(Probe(effort=0.5, beam=7), K).beam == 7
    truth = 2 * nearest(X[1::2], Q, K) + 1
    assert overlap(changed.search(Q, K, recall=0.95).ids, truth) > 0.9
