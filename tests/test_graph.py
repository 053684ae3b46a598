"""The neighbor graph: recall, forms, and how it follows the index to disk and through changes."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import logt
import logt.distributed
from logt._internal.threads import Workers
from logt.datasets.synthetic import synthetic_collection
from logt.graph import build as engine_graph
from logt.storage.backup import copy_index
from logt.storage.repair import repair


def exact(X, k):
    S = X @ X.T
    np.fill_diagonal(S, -2)
    return np.argsort(-S, axis=1)[:, :k]


@pytest.fixture(scope="module")
def collection():
    return synthetic_collection(5000, 64, seed=1).X


@pytest.fixture(scope="module")
def index(collection):
    index = logt.Index(64)
    index.add(collection)
    return index


def recall(graph, truth):
    k = truth.shape[1]
    return np.mean([np.isin(truth[i], graph.neighbors(i)[0][:k]).mean() for i in range(len(truth))])


def test_the_lists_of_the_graph_are_nearly_exact(index, collection):
    graph = index.graph(20)
    assert len(graph) == len(collection)
    assert np.diff(graph.starts).tolist() == [20] * len(graph)
    assert recall(graph, exact(collection, 20)) > 0.9
    ids, similarity = graph.neighbors(7)
    assert 7 not in ids
    assert (np.diff(similarity) <= 0).all()
    np.testing.assert_allclose(similarity, collection[ids] @ collection[7], atol=0.02)


@pytest.mark.parametrize("exhaustive", [4096, 100])
def test_the_graph_does_not_depend_on_the_number_of_threads(collection, exhaustive, monkeypatch):
    monkeypatch.setattr(engine_graph, "EXHAUSTIVE", exhaustive)
    monkeypatch.setattr(engine_graph, "_SETTLED", 0)
    index = logt.Index(64)
    index.add(np.concatenate([collection, np.tile(collection[:3], (50, 1))]))
    one, two = index.graph(10, threads=1), index.graph(10, threads=3)
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.similarity, two.similarity)


def test_vectors_that_occur_more_than_k_times_are_neighbors_of_each_other(collection):
    index = logt.Index(64)
    index.add(np.concatenate([collection[:300], np.tile(collection[:1], (100, 1))]))
    graph = index.graph(10)
    edges = {(i, int(j)) for i in range(len(graph)) for j in graph.neighbors(i)[0]}
    mutual = [sum((j, i) in edges for j in graph.neighbors(i)[0]) for i in range(300, 400)]
    assert min(mutual) >= 5


def test_small_collections_are_compared_exhaustively():
    X = synthetic_collection(600, 48, seed=2).X
    index = logt.Index(48)
    index.add(X)
    assert recall(index.graph(10), exact(X, 10)) > 0.95


def test_neighbors_of_neighbors_make_up_for_few_lists(index, collection, monkeypatch):
    truth = exact(collection, 20)
    monkeypatch.setattr(engine_graph, "EXHAUSTIVE", 100)
    monkeypatch.setattr(engine_graph, "_PROBE", 0.1)
    monkeypatch.setattr(engine_graph, "_JOINS", 0)
    before = recall(index.graph(20), truth)
    monkeypatch.setattr(engine_graph, "_JOINS", 3)
    assert recall(index.graph(20), truth) > max(before + 0.1, 0.9)


def test_segments_of_one_codec_are_compared_list_by_list(collection, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", collection)
    logt.distributed.build([tmp_path / "x.npy"], tmp_path / "i", segment_size=1250)
    index = logt.open(tmp_path / "i", mode="a")
    index.remove(np.arange(100, 300))
    monkeypatch.setattr(engine_graph, "EXHAUSTIVE", 100)
    segments = index._snapshot.segments
    vectors = engine_graph._Vectors.decode(index._snapshot.segments, 64, Workers(2))
    assert len(segments) == 4
    unit = np.full(len(collection), -1)  # of the list that each vector is in
    for segment in segments:
        unit[segment.ids[segment.row]] = np.repeat(np.arange(len(segment.starts) - 1), np.diff(segment.starts))
    for first, last in itertools.pairwise(vectors.starts):
        assert len(set(unit[vectors.ids[first:last]])) == 1
    assert len(vectors.starts) - 1 == len(set(unit[np.sort(vectors.ids)]))
    decoded = vectors.codes * vectors.scale[:, None]
    np.testing.assert_allclose(decoded, index.reconstruct(vectors.ids), atol=0.01)
    left = np.sort(vectors.ids)
    truth = left[exact(collection[left], 10)]
    assert recall(index.graph(10), truth) > 0.85


def test_batches_and_the_methods_of_the_paper_have_a_graph(monkeypatch):
    monkeypatch.setattr(engine_graph, "EXHAUSTIVE", 500)
    X = synthetic_collection(3000, 48, seed=3).X
    batches = logt.Index(48)
    for part in np.array_split(X, 4):
        batches.add(part)
    assert recall(batches.graph(10), exact(X, 10)) > 0.8
    paper = logt.Index(48, method=logt.methods.lo_gt(n=10))
    paper.add(X)
    assert recall(paper.graph(10), exact(X, 10)) > 0.5


def test_removed_vectors_are_not_in_the_graph(collection):
    index = logt.Index(64)
    index.add(collection[:2000])
    index.remove(np.arange(0, 2000, 3))
    graph = index.graph(5)
    assert graph.ids.tolist() == [i for i in range(2000) if i % 3]


def test_progress_is_reported_and_can_interrupt(index):
    seen = []
    index.graph(5, progress=lambda what, done, total: seen.append((what, done, total)))
    assert {"decoding", "linking"} <= {what for what, _, _ in seen}
    assert seen[-1][1] == seen[-1][2]

    def stop(what, done, total):
        raise KeyboardInterrupt

    before = index.report()
    with pytest.raises(KeyboardInterrupt):
        index.link(5, progress=stop)
    assert index.report() == before


def test_an_empty_index_has_an_empty_graph():
    index = logt.Index(8)
    assert len(index.graph()) == 0
    index.link()
    assert index.links is None


@pytest.mark.parametrize("k", [0, -1, 2.5, "many"])
def test_impossible_k_is_refused(index, k):
    with pytest.raises(logt.InvalidInputError, match="k must be"):
        index.graph(k)
    with pytest.raises(logt.InvalidInputError, match="k must be"):
        index.link(k)


# ------------------------------------------------------------------------------------------------------- forms


def test_scikit_learn_takes_the_distances_as_a_precomputed_graph(index, collection):
    cluster = pytest.importorskip("sklearn.cluster")
    matrix = index.graph(10).to_scipy(distance=True)
    assert matrix.shape == (len(collection), len(collection))
    assert matrix.data.min() >= 0
    labels = cluster.DBSCAN(eps=0.4, min_samples=3, metric="precomputed").fit_predict(matrix.maximum(matrix.T))
    assert labels.max() > 1


def test_networkx_gets_ids_and_similarities():
    pytest.importorskip("networkx")
    index = logt.Index(8)
    index.add(np.eye(8, dtype=np.float32)[:3] + 0.1, ids=["a", "b", "c"])
    graph = index.graph(1).to_networkx()
    assert set(graph.nodes) == {"a", "b", "c"}
    assert all("similarity" in data for *_, data in graph.edges(data=True))


def test_groups_are_connected_components():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 32)).astype(np.float32)
    X[10:14] = X[3] + 0.01 * rng.standard_normal((4, 32))
    X[30] = X[20]
    index = logt.Index(32)
    index.add(X, ids=[f"v{i}" for i in range(40)])
    groups = index.graph(10).groups(0.95)
    assert [sorted(group) for group in groups] == [sorted(["v3", "v10", "v11", "v12", "v13"]), ["v20", "v30"]]
    assert index.graph(10).groups(1.1) == []


# ---------------------------------------------------------------------------------------------------- with an index


@pytest.fixture
def linked(collection, tmp_path):
    index = logt.Index(64)
    index.add(collection[:1500])
    index.link(10)
    index.save(tmp_path / "index")
    return index, tmp_path / "index"


def test_the_stored_graph_is_that_of_the_index(linked, collection):
    index, path = linked
    opened, computed = logt.open(path), index.graph(10)
    assert opened.links is not None
    np.testing.assert_array_equal(opened.links.rows, computed.rows)
    np.testing.assert_allclose(opened.links.similarity, computed.similarity, atol=0.003)
    expected = index.search(collection[:5], 8, rerank="diffusion")
    np.testing.assert_array_equal(opened.search(collection[:5], 8, rerank="diffusion").ids, expected.ids)
    copy = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(copy.search(collection[:5], 8, rerank="diffusion").ids, expected.ids)


def test_at_most_250_bytes_a_vector_are_stored(collection, tmp_path):
    index = logt.Index(64)
    index.add(collection)
    index.link(50)
    index.save(tmp_path / "index")
    (file,) = (tmp_path / "index").glob("graph-*.safetensors")
    assert file.stat().st_size <= 250 * len(collection)
    assert index.report()["bytes by part"]["graph"] <= 250 * len(collection)


def test_changes_after_linking_are_saved_and_replayed(linked, collection):
    _, path = linked
    with logt.open(path, "a") as index:
        index.remove([1, 2])
        index.upsert(collection[4000:4001], ids=[5])
        index.add(collection[2000:2010])
        index.save()
        expected = index.search(collection[:20], 10, rerank="diffusion")
    reader = logt.open(path)
    assert reader.links is not None
    assert reader.report()["linked"] == 1508
    np.testing.assert_array_equal(reader.search(collection[:20], 10, rerank="diffusion").ids, expected.ids)
    with logt.open(path, "a") as index:
        index.compact()
        index.save()
    compacted = logt.open(path)
    assert compacted.report()["linked"] == 1508
    assert sorted(compacted.links.ids) == sorted(set(range(1510)) - {1, 2})
    assert not list(path.glob("unlinked-*"))


def test_removals_in_the_graph_are_written(linked, collection):
    _, path = linked
    with logt.open(path, "a") as index:
        index.remove(np.arange(100))
        index.link(10)
        index.remove([200])
        index.save()
    assert list(path.glob("unlinked-*"))
    assert logt.open(path).report()["linked"] == 1399


def test_unlink_drops_the_graph_and_its_file(linked):
    _, path = linked
    with logt.open(path, "a") as index:
        index.unlink()
        index.save()
    assert logt.open(path).links is None
    assert not list(path.glob("graph-*"))


def mutual(graph, first=30):
    """The pairs of ids that are among the first neighbors of each other."""
    pairs = {(int(a), int(b)) for row, a in enumerate(graph.ids) for b in graph.neighbors(row)[0][:first]}
    return {(a, b) for a, b in pairs if (b, a) in pairs}


def similar_sets(a, b):
    return len(a & b) / len(a | b)


def test_batches_that_are_added_are_linked_both_ways(collection):
    index = logt.Index(64)
    index.add(collection[:4000])
    index.link(20)
    for part in np.split(collection[4000:], [500, 501]):
        index.add(part)
    assert index.report()["linked"] == len(collection)
    computed = index.graph(20)
    assert similar_sets(mutual(index.links, 15), mutual(computed, 15)) > 0.9
    assert recall(index.links, exact(collection, 20)) > 0.85
    for row in range(0, 5000, 100):
        ids, similarity = index.links.neighbors(row)
        assert len(np.unique(ids)) == 20
        assert row not in ids
        assert (np.diff(similarity) <= 0).all()
        np.testing.assert_allclose(similarity, collection[ids] @ collection[row], atol=0.03)


def test_a_large_batch_and_a_merge_link_across(linked, collection):
    index, _ = linked
    other = logt.Index(64)
    other.add(collection[2000:4000], ids=np.arange(5000, 7000))
    index.merge_from(other)
    assert index.report()["linked"] == 3500
    assert similar_sets(mutual(index.links), mutual(index.graph(10))) == 1
    neighbors = index.links.neighbors(0)[0]
    assert (neighbors >= 5000).any() or (index.links.neighbors(3000)[0] < 5000).any()


def test_vectors_that_lost_their_neighbors_get_new_ones_when_compacted(collection):
    index = logt.Index(64)
    index.add(collection[:3000])
    index.link(10)
    removed = np.unique(index.links.neighbors(7)[0])
    index.remove(removed)
    assert len(index.links.neighbors(7)[0]) == 0
    index.compact()
    row = int(np.flatnonzero(index.links.ids == 7)[0])
    ids, _ = index.links.neighbors(row)
    assert len(ids) == 10
    assert not np.isin(ids, removed).any()


def test_an_index_that_grows_from_a_few_vectors_reaches_k_neighbors(collection):
    index = logt.Index(64)
    index.add(collection[:3])
    index.link(10)
    assert np.diff(index.links.starts).tolist() == [2, 2, 2]
    for row in range(3, 40):
        index.add(collection[row : row + 1])
    assert np.diff(index.links.starts).tolist() == [10] * 40


def test_other_metrics_keep_their_graph_until_linked_again(collection):
    index = logt.Index(64, metric="l2")
    index.add(collection[:1000])
    index.link(5)
    index.add(collection[1000:1010])
    assert index.report()["linked"] == 1000
    index.link(5)
    assert index.report()["linked"] == 1010


def test_string_ids_are_replaced_in_the_graph(collection):
    index = logt.Index(64)
    index.add(collection[:1000], ids=[f"v{i}" for i in range(1000)])
    index.link(10)
    index.upsert(collection[500:501], ids=["v3"])  # now equal to v500
    row = index.links.ids.tolist().index("v3")
    assert index.links.neighbors(row)[0][0] == "v500"
    assert len(index.links) == 1000
    assert not any("v3" in index.links.neighbors(r)[0] for r in range(0, 1000, 50) if r != 500)


def test_a_backup_holds_the_graph(linked, tmp_path):
    _, path = linked
    copy_index(path, tmp_path / "copy")
    np.testing.assert_array_equal(logt.open(tmp_path / "copy").links.rows, logt.open(path).links.rows)


@pytest.mark.parametrize("kind", ["graph", "unlinked"])
def test_a_damaged_graph_is_dropped_by_a_repair(linked, kind):
    _, path = linked
    with logt.open(path, "a") as index:
        index.remove([3])
        index.link(10)
        index.remove([4])
        index.save()
    (file,) = path.glob(f"{kind}-*.safetensors")
    file.write_bytes(b"no graph")
    with pytest.raises(logt.CorruptIndexError, match=file.name):
        logt.open(path)
    found = repair(path, logt.open)
    assert [loss.what for loss in found.losses] == ["the neighbor graph"]
    assert found.losses[0].vectors == 0
    repaired = logt.open(path)
    assert len(repaired) == 1498
    assert repaired.links is None


def test_a_repair_without_a_segment_drops_the_graph(linked, collection):
    _, path = linked
    with logt.open(path, "a") as index:
        index.add(np.asarray(collection[4000:4400]))
        index.merge_from(_other(collection))
        index.save()
    file = max(path.glob("segment-*.safetensors"), key=lambda f: f.stat().st_size)
    file.write_bytes(b"no segment")
    found = repair(path, logt.open)
    assert "the neighbor graph" in [loss.what for loss in found.losses]
    assert logt.open(path).links is None


def _other(collection):
    other = logt.Index(64)
    other.add(collection[2000:2200], ids=np.arange(8000, 8200))
    return other


def test_a_damaged_graph_is_named(linked):
    _, path = linked
    (file,) = path.glob("graph-*.safetensors")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(logt.CorruptIndexError, match=file.name):
        logt.open(path)


def test_a_reader_cannot_link(linked):
    _, path = linked
    with pytest.raises(logt.ReadOnlyError):
        logt.open(path).link()
