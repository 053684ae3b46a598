"""Searches that go along the neighbor graph: against a naive walk, with removals and several segments, calibrated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference

import logt
from logt import _kernels
from logt.datasets.synthetic import synthetic_collection
from logt.errors import InvalidInputError
from logt.lists.inverted_lists import Probe, RecallCurve, ScanLimits
from logt.lists.search import ListSearcher
from logt.methods import sketched

FAR = 1e30
K = 10


@pytest.fixture(scope="module")
def collection():
    data = synthetic_collection(5000, 64, seed=1)
    return data.X, data.Q


@pytest.fixture(scope="module")
def index(collection):
    index = logt.Index(64)
    index.add(collection[0])
    index.link(12)
    return index


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


def first_lists(segment, q, count):
    """Return the rows of the lists that a search reads first."""
    codec = segment.codec
    c = 2 * codec.memory_vectors @ codec.bands.rotate((q - codec.mean)[None])[0]
    best = np.argsort(-(codec.list_weight * c + codec.list_bias))[:count]
    return np.concatenate([segment.row[segment.starts[j] : segment.starts[j + 1]] for j in best]).tolist()


@pytest.mark.parametrize("wide", [False, True])
def test_a_walk_without_limit_finds_what_a_naive_one_reaches(index, collection, wide):
    (segment,) = index._snapshot.segments
    graph = index._snapshot.graph
    few = replace(graph, level=np.where(np.arange(12) < 2, graph.level, 0).astype(np.uint8))
    if wide:
        few = replace(few, high=few.high.astype(np.uint16))
    searcher = ListSearcher([segment], graph=few)
    limits = ScanLimits(1, 1, 0, FAR, FAR, FAR, 3 * K, 5000, everything=False)
    for q in collection[1][:8]:
        _, ids, counts = searcher.search(q[None], K, limits)
        start = first_lists(segment, q, counts[0, 0])
        best = searcher.search(q[None], 3 * K, limits._replace(beam=0))[1][0].tolist()
        rows = reached(few, best)
        assert len(start) < len(rows) < 5000  # the graph of two neighbors has several components
        assert counts[0, 1] == len(start) + len(rows) - len(best)  # each vector is read once by the walk
        truth = np.array(reference.list_scores(segment, q))
        wanted = rows[np.argsort(-truth[rows])[:K]]
        assert len(set(ids[0].tolist()) & set(wanted.tolist())) >= K - 1


def test_a_list_of_neighbors_ends_at_its_first_gap(index, collection):
    (segment,) = index._snapshot.segments
    graph = index._snapshot.graph
    limits = ScanLimits(1, 1, 0, FAR, FAR, FAR, 3 * K, 5000, everything=False)

    def search(wanted):
        lists = replace(graph, level=np.where(wanted, graph.level, 0).astype(np.uint8))
        return ListSearcher([segment], graph=lists).search(collection[1], K, limits)

    for a, b in zip(search(np.arange(12) != 2), search(np.arange(12) < 2), strict=True):
        np.testing.assert_array_equal(a, b)


def test_neighbors_are_left_out_by_their_codes(index, collection, isa):
    (segment,) = index._snapshot.segments
    searcher = ListSearcher([segment], graph=index._snapshot.graph)

    def search(walk_reach):
        _, ids, counts = searcher.search(
            collection[1], K, ScanLimits(1, 2, 0, FAR, FAR, walk_reach, 3 * K, 60, False)
        )
        return ids, counts[:, 2].mean()

    (all_ids, all_heads), (most_ids, fewer), (some_ids, fewest) = (search(reach) for reach in (FAR, 4.0, 2.0))
    assert fewest < fewer < all_heads
    assert recall(some_ids, all_ids) < 1
    assert recall(most_ids, all_ids) > 0.99


@pytest.fixture(scope="module")
def few_directions():
    """Vectors, queries and an index, where residuals deviate more than if all directions were the same."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12200, 24)) @ rng.normal(size=(24, 256)) + 0.3 * rng.normal(size=(12200, 256))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    index = logt.Index(256, metric="l2")
    index.add(X[200:])
    index.link(12)
    return X[200:], X[:200], index


def heads_and_ids(index, Q, walk_reach, nprobe=0):
    (segment,) = index._snapshot.segments
    searcher = ListSearcher([segment], graph=index._snapshot.graph)
    limits = ScanLimits(0.3, nprobe, 0, FAR, FAR, walk_reach, 3 * K, 20, False)
    _, ids, counts = searcher.search(Q, K, limits)
    return counts[:, 2], ids


def test_residuals_of_few_directions_are_not_left_out(few_directions, isa):
    _, Q, index = few_directions
    (all_heads, all_ids), (heads, ids) = (heads_and_ids(index, Q, reach) for reach in (FAR, 4.0))
    assert heads.mean() < 0.9 * all_heads.mean()
    assert recall(ids, all_ids) > 0.99


@pytest.mark.parametrize("norm", [1e-12, 1e14])
def test_what_a_walk_leaves_out_does_not_depend_on_the_norm(few_directions, norm):
    X, Q, index = few_directions
    scaled = logt.Index(256, metric="l2")
    scaled.add(X * np.float32(norm))
    scaled.link(12)
    heads, ids = heads_and_ids(index, Q, 4.0)
    scaled_heads, scaled_ids = heads_and_ids(scaled, Q * np.float32(norm), 4.0)
    truth = np.argsort(-(Q @ X.T), axis=1)[:, :K]
    assert abs(scaled_heads.mean() / heads.mean() - 1) < 0.05
    assert abs(recall(scaled_ids, truth) - recall(ids, truth)) < 0.02


def test_instruction_sets_leave_out_the_same(few_directions):
    _, Q, index = few_directions
    before, found = _kernels.instruction_set(), []
    for name in _kernels.instruction_sets():
        _kernels.use_instruction_set(name)
        found.append(heads_and_ids(index, Q, 4.0))
    _kernels.use_instruction_set(before)
    for heads, ids in found[1:]:
        np.testing.assert_array_equal(heads, found[0][0])
        np.testing.assert_array_equal(ids, found[0][1])


def test_few_vectors_are_not_enough_to_measure_deviations(rng):
    """Lists of a few vectors: all neighbors are read."""
    index = logt.Index(64)
    index.add(rng.normal(size=(1100, 64)).astype(np.float32))
    index.link(12)
    Q = rng.normal(size=(50, 64)).astype(np.float32)
    Q /= np.linalg.norm(Q, axis=1, keepdims=True)
    (heads, _), (all_heads, _) = (heads_and_ids(index, Q, reach, nprobe=1) for reach in (0.5, FAR))
    (segment,) = index._snapshot.segments
    lengths = np.diff(segment.starts)
    assert np.sort(lengths)[-1] < 32
    np.testing.assert_array_equal(heads, all_heads)


def test_the_fewer_candidates_per_result_the_less_is_left_out():
    def reaches(k, **probe):
        limits = Probe(effort=0.7, **probe).limits(k, depths=None, linked=True)
        return np.array([limits.code_reach, limits.sign_reach, limits.walk_reach])

    assert (reaches(10) < reaches(100)).all()
    assert (reaches(100) < reaches(1000)).all()
    assert (reaches(1000) < reaches(10, beam=10)).all()
    np.testing.assert_array_equal(reaches(10, beam=10), reaches(10, beam=1))
    np.testing.assert_allclose(reaches(1), reaches(10), atol=0.01)  # never less than for 10


def test_one_bit_per_dimension_is_enough_to_walk(collection):
    X, Q = collection
    index = logt.Index(64, method=sketched(bits=1, refine=False))
    index.add(X)
    index.link(12)
    truth = index.search(Q, K, effort=1).ids
    assert recall(index.search(Q, K, effort=0.7).ids, truth) > 0.9


def recall(found, truth):
    return np.mean([len(set(a[:K]) & set(b[:K])) / K for a, b in zip(found.tolist(), truth.tolist(), strict=True)])


def test_the_graph_finds_what_the_lists_miss(index, collection):
    X, Q = collection
    truth = np.argsort(-(Q @ X.T), axis=1)[:, :K]
    without, some, more = (recall(index.search(Q, K, nprobe=1, beam=beam).ids, truth) for beam in (0, K, 10 * K))
    assert without < some < more
    assert more > 0.8


def test_without_a_beam_the_graph_has_no_part(index, collection):
    X, Q = collection
    plain = logt.Index(64)
    plain.add(X)
    for settings in ({"effort": 0.3}, {"nprobe": 2}, {"recall": 0.9}, {}):
        a, b = index.search(Q, K, beam=0, **settings), plain.search(Q, K, **settings)
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.scores, b.scores)


def test_a_full_read_is_the_same_with_a_graph(index, collection):
    a, b = (index.search(collection[1], K, effort=1, **how) for how in ({}, {"beam": 0}))
    np.testing.assert_array_equal(a.ids, b.ids)


def test_removed_and_filtered_vectors_are_not_found(collection):
    X, Q = collection
    index = logt.Index(64)
    index.add(X)
    index.link(12)
    best = index.search(Q, 3).ids
    index.remove(np.unique(best))
    found = index.search(Q, K, nprobe=1, beam=40).ids
    assert not np.isin(found, best).any()
    allowed = np.arange(1, 5000, 2)
    odd = index.search(Q, K, filter=allowed[~np.isin(allowed, best)]).ids
    assert (odd[odd >= 0] % 2 == 1).all()


def test_segments_and_codecs_are_walked_through_together(collection):
    X, Q = collection
    index = logt.Index(64, segment_size=1500)
    for part in (X[:2500], X[2500:4900], X[4900:]):
        index.add(part)
    index.link(12)
    assert len(index._snapshot.segments) > 2
    truth = np.argsort(-(Q @ X.T), axis=1)[:, :K]
    assert recall(index.search(Q, K, nprobe=1, beam=100).ids, truth) > 0.8
    assert recall(index.search(Q, K).ids, truth) > 0.85


def test_every_vector_is_found_if_k_is_their_number(index):
    found = index.search(index.reconstruct([3]), 5000, beam=20).ids
    assert sorted(found[0].tolist()) == list(range(5000))


def test_the_curve_is_measured_without_the_queries_own_neighbors(index):
    curve = RecallCurve(index._snapshot.graph.recall)
    assert curve is not None
    assert curve.recall[0, 0] < 1  # vectors that start at their own node would find nearly all
    assert curve.recall[0, -1] == 1


def test_the_default_search_of_a_linked_index_has_its_recall(index, collection):
    Q = collection[1]
    full = index.search(Q, K, effort=1).ids
    assert recall(index.search(Q, K, recall=0.95).ids, full) > 0.85
    read = [index._state.search().searcher.limits(Probe(beam=beam), K) for beam in (None, 0)]
    assert read[0].lists < read[1].lists


def test_the_curve_is_stored_with_the_graph(index, tmp_path):
    index.save(tmp_path / "i")
    opened = logt.open(tmp_path / "i")
    a, b = RecallCurve(opened._snapshot.graph.recall), RecallCurve(index._snapshot.graph.recall)
    assert a is not None
    assert b is not None
    np.testing.assert_array_equal(a.recall, b.recall)
    Q = opened.reconstruct([5, 7])
    np.testing.assert_array_equal(opened.search(Q, K).ids, index.search(Q, K).ids)


def test_tune_measures_searches_with_the_graph(collection):
    X, Q = collection
    index = logt.Index(64)
    index.add(X[:3000])
    index.link(8)
    before = index._snapshot.graph.recall
    points = index.tune(Q)
    after = index._snapshot.graph.recall
    assert not np.array_equal(before, after)
    assert [p.recall for p in points] == pytest.approx([p.recall for p in index.tune(Q)])


def test_a_graph_without_a_curve_is_read(index):
    links = index._snapshot.graph
    arrays = {**links.arrays, "recall": np.empty((0, 0), np.float32)}
    assert type(links).from_arrays(arrays).recall.size == 0
    with pytest.raises(ValueError, match="impossible"):
        type(links).from_arrays({**arrays, "recall": np.full((2, 11), 2, np.float32)})


@pytest.mark.parametrize("beam", [-1, 1.5, "10"])
def test_wrong_beams_are_named(index, beam):
    with pytest.raises(InvalidInputError, match="beam"):
        index.search(index.reconstruct([0]), K, beam=beam)


def test_methods_without_lists_have_no_beam():
    index = logt.Index(16, method=logt.methods.lo_gt(n=5, L=8))
    index.add(np.eye(16, dtype=np.float32).repeat(4, axis=0))
    with pytest.raises(InvalidInputError, match="beam"):
        index.search(np.ones(16, np.float32), 3, beam=5)


@pytest.mark.parametrize("L", [2, 4, 6])
def test_the_scores_of_a_walk_are_those_of_a_full_read(isa, collection, L):
    """A walk reads a copy of short codes, and the code itself of longer ones."""
    X, Q = collection
    index = logt.Index(64, method=sketched(L=L))
    index.add(X[:3000])
    index.link(12)
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


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_vectors_that_are_not_in_the_graph_are_read_with_it(metric, collection, monkeypatch):
    """Under l2 and ip, a few new vectors do not join the graph."""
    X, Q = collection
    index = logt.Index(64, metric=metric)
    index.add(X[:3900])
    index.link(12)
    index.add(X[3900:])  # more than a segment without lists holds
    assert index.report()["linked"] == 3900
    searcher = index._state.search().searcher
    limits = ScanLimits(1, 1, 0, FAR, FAR, FAR, 3 * K, K, everything=False)
    _, ids, counts = searcher.search(Q, K, limits)
    assert all(len(set(row)) == K for row in ids.tolist())  # also those in the list that was read
    assert (counts[:, 1] > 1100).all()
    for q, found in zip(Q, ids, strict=True):
        truth = np.concatenate([reference.list_scores(s, q) for s in index._snapshot.segments])
        order = np.concatenate([s.ids for s in index._snapshot.segments])
        best = order[np.argsort(-truth)]
        assert set(best[: K // 2][best[: K // 2] >= 3900]) <= set(found)
    few = ListSearcher(index._snapshot.segments, graph=index._snapshot.graph)
    assert few.graph is not None
    monkeypatch.setattr("logt.lists.search.MOST_UNLINKED", 1099)
    many = ListSearcher(index._snapshot.segments, graph=index._snapshot.graph)
    assert many.graph is None
    assert not many.graph_bytes


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_an_index_without_cosine_links_many_new_vectors_and_compacts(metric, collection):
    X, _ = collection
    index = logt.Index(64, metric=metric)
    index.add(X[:3000])
    index.link(12)
    index.add(X[3000:4500])
    assert index.report()["linked"] == 4500
    index.add(X[4500:])
    assert index.report()["linked"] == 4500
    index.compact()
    assert index.report()["linked"] == 5000


def test_a_search_for_a_recall_keeps_the_beam_of_the_method():
    for settings in ({"recall": 0.9}, {"effort": 0.5}, {"nprobe": 3}, {}):
        assert sketched().limits(logt.SearchParams(**settings)).beam is None
        assert sketched().limits(logt.SearchParams(**settings, beam=7)).beam == 7


def test_a_search_goes_further_where_vectors_were_removed(collection):
    X, Q = collection
    index = logt.Index(64)
    index.add(X)
    index.link(12)
    before = index._state.search().searcher.limits(Probe(effort=0.5), K)
    index.remove(np.arange(0, 5000, 2))
    searcher = index._state.search().searcher
    assert searcher.limits(Probe(effort=0.5), K).beam == 2 * before.beam
    assert searcher.limits(Probe(effort=0.5, beam=7), K).beam == 7
    truth = 2 * np.argsort(-(Q @ X[1::2].T), axis=1)[:, :K] + 1
    assert recall(index.search(Q, K, recall=0.95).ids, truth) > 0.9
