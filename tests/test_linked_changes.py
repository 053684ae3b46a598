"""Changes of an index with a neighbor graph: they cost what they change, and new vectors join the graph in turn."""

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from exact_index import METRICS, assert_same, built, nearest, overlap, unmeasured

import logt
from logt._internal.recall_curve import RecallCurve
from logt.datasets.synthetic import synthetic_collection
from logt.engine import linking
from logt.engine.snapshot import Snapshot
from logt.lists.graph_nodes import SegmentNodes

N, K = 3000, 10


@pytest.fixture(scope="module")
def collection():
    """Vectors with norms from 0.7 to 1.3, and queries."""
    data = synthetic_collection(4000, 32, seed=1)
    norms = np.random.default_rng(0).uniform(0.7, 1.3, (4000, 1))
    return (data.X * norms).astype(np.float32), data.Q


@pytest.fixture(scope="module", params=METRICS)
def linked(request, collection):
    return built(collection[0][:N], metric=request.param, link=12)


@pytest.fixture
def index(linked):
    return copy.copy(linked)


def single_changes(index, X):
    """Make one change of each kind after the other, eight times, and yield after each."""
    for n in range(8):
        yield index.add(X[N + n][None], [N + n])
        yield index.remove([7 * n])
        yield index.upsert(X[N + 100 + n][None], [1000 + 7 * n])
        yield index.remove([N + n - 1])
        yield index.merge_from(built(X[N + 200 + n][None], [10_000 + n], metric=index.metric))


def test_an_opened_index_has_the_graph_that_vectors_have_joined(collection, tmp_path):
    X, Q = collection
    built(X[:N], link=12).save(tmp_path / "index")
    with logt.open(tmp_path / "index", mode="a") as writer:
        for part in (X[N : N + 600], X[N + 600 : N + 603], X[N + 603 :], X[:1]):  # the third one fills up MIN_LINKED
            writer.add(part)
            writer.save()
            opened = logt.open(tmp_path / "index")
            assert_same(opened.search(Q, K), writer.search(Q, K))
            assert opened._snapshot.graph.count == writer._snapshot.graph.count


def test_a_change_of_one_vector_computes_nothing_for_the_others(index, collection, monkeypatch):
    X, Q = collection
    index.search(Q, K)
    read, find = [], SegmentNodes.find
    monkeypatch.setattr(
        SegmentNodes, "find", lambda segment, graph: read.append(len(segment)) or find(segment, graph)
    )
    monkeypatch.setattr(linking.Linker, "_linked", None)  # would be called
    before = index._snapshot.graph
    nodes = before.computed["nodes"].compiled
    for _ in single_changes(index, X):
        index.search(Q[0], K)
    graph = index._snapshot.graph
    assert (graph.low is before.low, graph.level is before.level) == (True, True)
    assert graph.computed["nodes"].compiled is nodes
    assert sum(read) <= 100


def test_given_ids_are_looked_up_and_not_compared_with_all(index, collection, monkeypatch):
    X, other = collection[0], built(collection[0][:1], [50_000], metric=index.metric)
    monkeypatch.setattr(Snapshot, "ids", None)  # would be called, of either snapshot
    index.add(X[N][None], [2**40])
    index.upsert(X[N][None], [5])
    with pytest.raises(logt.InvalidInputError, match="id 5 is already in the index"):
        index.add(X[N][None], [5])
    monkeypatch.undo()
    index.merge_from(other)
    with pytest.raises(logt.InvalidInputError, match="id 50000 is in both"):
        index.merge_from(other)


def test_what_is_kept_from_earlier_snapshots_changes_no_result(index, collection, tmp_path, monkeypatch):
    """A copy and an opened index compute everything again."""
    X, Q = collection
    monkeypatch.setattr(linking, "MIN_LINKED", 6)
    for step, _ in enumerate(single_changes(index, X)):
        found = index.search(Q, K, nprobe=1, beam=20)
        if step % 11 == 0:
            index.save(tmp_path / "index")
            for other in (pickle.loads(pickle.dumps(index)), logt.open(tmp_path / "index")):
                assert_same(other.search(Q, K, nprobe=1, beam=20), found)
        assert set(np.unique(found.ids)) <= set(index.ids)
    assert index._snapshot.graph.ids[-1] > N  # some have joined


def test_an_older_snapshot_is_searched_as_before(index, collection):
    X, Q = collection
    before, state = index.search(Q, K), index._state
    for _ in single_changes(index, X):
        index.search(Q[0], K)
    index.link(12)
    vars(state).pop("_unfiltered")  # is computed again
    vars(state).pop("_prepared", None)
    again = copy.copy(index)
    again._state = state
    np.testing.assert_array_equal(again.search(Q, K).ids, before.ids)


@pytest.mark.parametrize("most", [100, 10_000])
def test_vectors_that_are_added_one_by_one_are_found_and_linked(index, collection, most, monkeypatch):
    (X, Q), new = collection, 250
    monkeypatch.setattr(linking, "MIN_LINKED", most)
    times, linked = [], linking.Linker._linked
    monkeypatch.setattr(linking.Linker, "_linked", lambda *given: times.append(1) or linked(*given))
    with unmeasured():
        for row in X[N : N + new]:
            index.add(row[None])
    assert len(times) == new // (most + 1)
    assert index.report()["linked"] == N + len(times) * (most + 1)
    truth = nearest(X[: N + new], Q, K, index.metric)
    fresh = copy.copy(index)
    fresh.link(12)
    accuracy = [overlap(each.search(Q, K, nprobe=4, beam=40).ids, truth) for each in (index, fresh)]
    assert accuracy[0] > accuracy[1] - 0.05
    links = index.links
    assert len(links) == N + new
    unit = X[: N + new] / np.linalg.norm(X[: N + new], axis=1, keepdims=True)
    rows = np.arange(N, N + new)
    wanted = np.argsort(-unit[rows] @ unit.T, axis=1)[:, 1:13]
    assert overlap([links.neighbors(row)[0] for row in rows], wanted) > 0.8
    ids, similarity = links.neighbors(N)
    np.testing.assert_allclose(similarity, unit[ids] @ unit[N], atol=0.03)


def test_the_recall_of_the_graph_is_measured_again_when_it_has_grown_by_a_quarter_or_lost_a_fifth(
    collection, tmp_path, monkeypatch
):
    X, measured_with = collection[0], []
    monkeypatch.setattr(linking, "MIN_LINKED", 50)
    monkeypatch.setattr("logt.lists.method.calibrate", lambda segments, *_, **__: segments)
    monkeypatch.setattr("logt.lists.method.calibrate_changed", lambda segments, *_: segments)

    def measure(segments, graph, *_):
        measured_with.append(graph.count)
        return dataclasses.replace(graph, recall=np.full((3, len(RecallCurve.EFFORTS)), 0.5, np.float32))

    monkeypatch.setattr("logt.lists.method.calibrate_graph", measure)
    index = logt.Index(32)
    index.add(X[:1100])
    index.link(12)
    index.save(tmp_path / "index")
    index = logt.open(tmp_path / "index", mode="a")
    for start in range(1100, 1600, 20):
        index.add(X[start : start + 20])
    assert measured_with == [1100, 1400]  # after 60 new ones each time
    index.remove(np.arange(250))
    index.compact()
    assert measured_with[2:] == []
    index.remove(np.arange(250, 600))
    index.compact()
    assert measured_with[2:] == [1000]
    index.link(12)
    assert measured_with[3:] == [1000]


def test_a_vector_that_is_replaced_leaves_no_neighbor_behind(index, collection):
    X = collection[0]
    before = set(index.links.neighbors(3)[0])
    index.remove([8])
    index.upsert(X[500][None], [3])
    links = index.links
    assert links.neighbors(3)[0][0] == 500
    assert 3 in links.neighbors(links.ids.tolist().index(500))[0]
    for row in before - {8, 500}:
        at = links.ids.tolist().index(row)
        assert (3 in links.neighbors(at)[0]) == (row in links.neighbors(3)[0])
    lengths = np.diff(links.starts)
    assert lengths.max() == 12
    assert lengths.min() > 0


def test_ids_between_those_of_the_graph_join_in_order(collection):
    X = collection[0]
    index = built(X[:1500], np.arange(0, 3000, 2), link=12)
    index.remove([0, 40])
    index.add(X[1500:1530], np.arange(1, 60, 2))
    links = index.links
    assert links.ids.tolist() == sorted(index.ids.tolist())
    unit = X[:1530] / np.linalg.norm(X[:1530], axis=1, keepdims=True)
    number = dict(zip([*range(0, 3000, 2), *range(1, 60, 2)], range(1530), strict=True))
    for row in range(0, 1528, 50):
        ids, similarity = links.neighbors(row)
        mine = unit[[number[int(i)] for i in ids]] @ unit[number[int(links.ids[row])]]
        np.testing.assert_allclose(similarity, mine, atol=0.03)


def test_readers_search_while_vectors_join_the_graph(index, collection, monkeypatch):
    X, Q = collection
    monkeypatch.setattr(linking, "MIN_LINKED", 6)
    stop: list[bool] = []

    def read():
        found = []
        while not stop or not found:
            found.append(index.search(Q[:4], K).ids)
        return found

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in single_changes(index, X):
                pass
        finally:
            stop.append(True)
    for reader in readers:
        assert all((ids >= 0).all() for ids in reader.result())
    assert index._snapshot.graph.ids[-1] > N
