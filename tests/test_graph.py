"""The neighbor graph: recall, and how it follows the index to disk and through changes."""

import copy
import itertools
import pickle
import shutil

import numpy as np
import pytest
from exact_index import built, unmeasured

import logt
from logt._internal.threads import Workers
from logt.datasets.synthetic import synthetic_collection
from logt.graph import build
from logt.lists.inverted_lists import Probe
from logt.storage.backup import copy_index
from logt.storage.repair import repair

N = 3000


@pytest.fixture(scope="module", autouse=True)
def fast():
    """Graphs of more than 1000 vectors are computed list by list, and indexes do not measure their accuracy."""
    with pytest.MonkeyPatch.context() as patch, unmeasured():
        patch.setattr(build, "EXHAUSTIVE", 1000)
        yield


@pytest.fixture(scope="module")
def X():
    return synthetic_collection(N, 64, seed=1).X


@pytest.fixture(scope="module")
def index(X):
    """An index of X without a graph; no test changes it."""
    return built(X)


def exact(X, k):
    S = X @ X.T
    np.fill_diagonal(S, -2)
    return np.argsort(-S, axis=1)[:, :k]


def recall(graph, truth):
    k = truth.shape[1]
    return np.mean([np.isin(truth[i], graph.neighbors(i)[0][:k]).mean() for i in range(len(truth))])


def test_the_lists_of_the_graph_are_nearly_exact(index, X):
    graph = index.graph(20)
    assert len(graph) == N
    assert np.diff(graph.starts).tolist() == [20] * N
    assert recall(graph, exact(X, 20)) > 0.9
    ids, similarity = graph.neighbors(7)
    assert 7 not in ids
    assert (np.diff(similarity) <= 0).all()
    np.testing.assert_allclose(similarity, X[ids] @ X[7], atol=0.02)


@pytest.mark.parametrize("exhaustive", [4096, 100])
def test_the_graph_does_not_depend_on_the_number_of_threads(X, exhaustive, monkeypatch):
    monkeypatch.setattr(build, "EXHAUSTIVE", exhaustive)
    monkeypatch.setattr(build, "_SETTLED", 0)
    X = np.concatenate([X, np.tile(X[:3], (50, 1))])
    index = built(X)
    one, two = index.graph(10, threads=1), index.graph(10, threads=3)
    assert recall(one, exact(X, 10)) > 0.8
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.similarity, two.similarity)


def test_vectors_that_occur_more_than_k_times_are_neighbors_of_each_other(X):
    graph = built(np.concatenate([X[:300], np.tile(X[:1], (100, 1))])).graph(10)
    edges = {(i, int(j)) for i in range(len(graph)) for j in graph.neighbors(i)[0]}
    mutual = [sum((j, i) in edges for j in graph.neighbors(i)[0]) for i in range(300, 400)]
    assert min(mutual) >= 5


def test_neighbors_of_neighbors_make_up_for_few_lists(index, X, monkeypatch):
    truth = exact(X, 20)
    monkeypatch.setattr(build, "EXHAUSTIVE", 100)
    monkeypatch.setattr(build, "_PROBE", 0.1)
    monkeypatch.setattr(build, "_JOINS", 0)
    before = recall(index.graph(20), truth)
    monkeypatch.setattr(build, "_JOINS", 3)
    assert recall(index.graph(20), truth) > max(before + 0.1, 0.9)


def test_segments_of_one_codec_are_compared_list_by_list(X, monkeypatch):
    index = built(np.concatenate([X, X[:1400]]), segment_size=1100)
    index.remove([*range(100, 300), *range(N, N + 1400)])
    monkeypatch.setattr(build, "EXHAUSTIVE", 100)
    segments = index._snapshot.segments
    vectors = build._Vectors.decode(segments, 64, Workers(2))
    assert len(segments) == 3
    unit = np.full(N, -1)  # of the list that each vector is in
    for segment in segments:
        lists = np.repeat(np.arange(len(segment.starts) - 1), np.diff(segment.starts))
        ids = segment.ids[segment.row]
        unit[ids[ids < N]] = lists[ids < N]
    for first, last in itertools.pairwise(vectors.starts):
        assert len(set(unit[vectors.ids[first:last]])) == 1
    assert len(vectors.starts) - 1 == len(set(unit[np.sort(vectors.ids)]))
    decoded = vectors.codes * vectors.scale[:, None]
    np.testing.assert_allclose(decoded, index.reconstruct(vectors.ids), atol=0.01)
    left = np.sort(vectors.ids)
    graph = index.graph(10)
    assert graph.ids.tolist() == left.tolist()
    assert recall(graph, left[exact(X[left], 10)]) > 0.85


def test_batches_and_the_methods_of_the_paper_have_a_graph(X):
    batches = logt.Index(64)
    for part in np.array_split(X[:2000], 4):
        batches.add(part)
    assert recall(batches.graph(10), exact(X[:2000], 10)) > 0.8
    paper = built(X[:2000], method=logt.methods.lo_gt(n=10, L=60))
    assert recall(paper.graph(10), exact(X[:2000], 10)) > 0.5


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
    assert index.graph().groups(0.9) == []
    index.link()
    assert index.links is None


@pytest.mark.parametrize("k", [0, -1, 2.5, "many"])
def test_impossible_k_is_refused(index, k):
    for call in (index.graph, index.link):
        with pytest.raises(logt.InvalidInputError, match="k must be"):
            call(k)
    with pytest.raises(logt.InvalidInputError, match="k must be at most 3,000"):
        index.link(10**9)


# ---------------------------------------------------------------------------------------------------- with an index


@pytest.fixture(scope="module")
def saved(X, tmp_path_factory):
    """(index, path) of 1500 vectors and their graph, on disk; no test changes them."""
    index, path = built(X[:1500], link=10), tmp_path_factory.mktemp("graph") / "index"
    index.save(path)
    return index, path


@pytest.fixture
def linked(saved, tmp_path):
    """A copy of them."""
    return copy.copy(saved[0]), shutil.copytree(saved[1], tmp_path / "index")


def test_the_stored_graph_is_that_of_the_index(saved, X, tmp_path):
    index, path = saved
    opened, computed = logt.open(path), index.graph(10)
    assert opened.links is not None
    np.testing.assert_array_equal(opened.links.rows, computed.rows)
    np.testing.assert_allclose(opened.links.similarity, computed.similarity, atol=0.003)
    copy_index(path, tmp_path / "copy")
    expected = index.search(X[:5], 8, rerank="diffusion").ids
    for other in (opened, pickle.loads(pickle.dumps(index)), logt.open(tmp_path / "copy")):
        np.testing.assert_array_equal(other.search(X[:5], 8, rerank="diffusion").ids, expected)


def test_at_most_250_bytes_a_vector_are_stored(X, tmp_path):
    index = built(X[:1500], link=50)
    index.save(tmp_path / "index")
    (file,) = (tmp_path / "index").glob("graph-*.safetensors")
    assert file.stat().st_size <= 250 * 1500
    assert index.report()["bytes by part"]["graph"] <= 250 * 1500


def test_changes_after_linking_are_saved_and_replayed(linked, X):
    _, path = linked
    with logt.open(path, "a") as index:
        index.remove([1, 2])
        index.upsert(X[2900:2901], ids=[5])
        index.add(X[2000:2010])
        index.save()
        expected = index.search(X[:20], 10, rerank="diffusion")
    reader = logt.open(path)
    assert reader.links is not None
    assert reader.report()["linked"] == 1508
    np.testing.assert_array_equal(reader.search(X[:20], 10, rerank="diffusion").ids, expected.ids)
    with logt.open(path, "a") as index:
        index.compact()
        index.save()
    compacted = logt.open(path)
    assert compacted.report()["linked"] == 1508
    assert sorted(compacted.links.ids) == sorted(set(range(1510)) - {1, 2})
    assert not list(path.glob("unlinked-*"))


def test_removals_in_the_graph_are_written_and_unlink_drops_its_files(linked):
    _, path = linked
    with logt.open(path, "a") as index:
        index.remove(np.arange(100))
        index.link(10)
        index.remove([200])
        index.save()
        assert list(path.glob("unlinked-*"))
        assert logt.open(path).report()["linked"] == 1399
        index.unlink()
        index.save()
    assert logt.open(path).links is None
    assert not list(path.glob("graph-*"))


def test_a_reader_finds_vectors_of_the_log_besides_the_graph(linked, X):
    _, path = linked
    with logt.open(path, "a") as writer:
        for part in (slice(1500, 1700), slice(1700, 1900)):
            writer.add(X[part])
            writer.save()
    assert list(path.glob("changes-*.log"))
    reader = logt.open(path)
    assert reader.report()["linked"] == 1500
    searcher = reader._state.search().searcher
    assert searcher.graph is not None
    found = reader.search(X[1500:1900], 1, effort=0.0)
    assert (found.ids[:, 0] == np.arange(1500, 1900)).mean() > 0.99
    counts = searcher.search(X[:50], 10, searcher.limits(Probe(), 10))[2]
    assert (counts[:, 1] > 400).all()


def mutual(graph, first=30):
    """The pairs of ids that are among the first neighbors of each other."""
    pairs = {(int(a), int(b)) for row, a in enumerate(graph.ids) for b in graph.neighbors(row)[0][:first]}
    return {(a, b) for a, b in pairs if (b, a) in pairs}


def similar_sets(a, b):
    return len(a & b) / len(a | b)


def test_batches_that_are_added_are_linked_both_ways(X):
    index = built(X[:2400], link=20)
    for part in np.split(X[2400:], [300, 301]):
        index.add(part)
    assert index.report()["linked"] == 2400
    links = index.links
    assert index.report()["linked"] == N
    assert similar_sets(mutual(links, 15), mutual(index.graph(20), 15)) > 0.9
    assert recall(links, exact(X, 20)) > 0.85
    for row in range(0, N, 100):
        ids, similarity = links.neighbors(row)
        assert len(np.unique(ids)) == 20
        assert row not in ids
        assert (np.diff(similarity) <= 0).all()
        np.testing.assert_allclose(similarity, X[ids] @ X[row], atol=0.03)


def test_a_large_batch_and_a_merge_link_across(linked, X):
    index, _ = linked
    index.merge_from(built(X[1500:], np.arange(5000, 6500)))
    assert index.report()["linked"] == N
    links = index.links
    assert similar_sets(mutual(links), mutual(index.graph(10))) == 1
    assert (links.neighbors(0)[0] >= 5000).any() or (links.neighbors(2500)[0] < 5000).any()


def test_vectors_that_lost_their_neighbors_get_new_ones_when_compacted(linked):
    index, _ = linked
    removed = np.unique(index.links.neighbors(7)[0])
    index.remove(removed)
    assert len(index.links.neighbors(int(np.flatnonzero(index.links.ids == 7)[0]))[0]) == 0
    index.compact()
    ids, _ = index.links.neighbors(int(np.flatnonzero(index.links.ids == 7)[0]))
    assert len(ids) == 10
    assert not np.isin(ids, removed).any()


def test_an_index_that_grows_from_a_few_vectors_reaches_k_neighbors(X):
    index = built(X[:3], link=10)
    assert np.diff(index.links.starts).tolist() == [2, 2, 2]
    for row in range(3, 40):
        index.add(X[row : row + 1])
    assert np.diff(index.links.starts).tolist() == [10] * 40


def test_string_ids_are_replaced_in_the_graph(X):
    names = [f"v{i}" for i in range(600)]
    index = built(X[:600], names, link=10)
    index.upsert(X[500:501], ids=["v3"])  # now equal to v500
    row = index.links.ids.tolist().index("v3")
    assert index.links.neighbors(row)[0][0] == "v500"
    assert len(index.links) == 600
    assert not any("v3" in index.links.neighbors(r)[0] for r in range(0, 600, 50) if r != 500)
    index.upsert(X[600:1200], ids=names)  # all of them
    assert index.report()["linked"] == 600
    assert index.links.neighbors(0)[0].shape == (10,)
    assert len(index.search(X[600], 5, rerank="diffusion").ids) == 5


@pytest.mark.parametrize("given", [False, True])
def test_relearning_frees_what_was_removed_and_links_again(X, given):
    names = [f"image {i:05d}" for i in range(2000)]
    index = built(X[:2000], names, link=10)
    index.remove(names[::2])
    before = index.report()["bytes by part"]
    index.compact(X[1:2000:2] if given else None, relearn=True)
    after = index.report()
    assert after["bytes by part"]["string ids"] < 0.6 * before["string ids"]
    assert after["bytes by part"]["graph"] < 0.7 * before["graph"]
    assert after["linked"] == 1000
    graph = index.links
    assert graph.ids[7] == "image 00015"
    truth = exact(X[1:2000:2], 10)
    assert np.mean([np.isin(a, b) for a, b in zip(graph.rows.reshape(1000, 10), truth, strict=True)]) > 0.75


@pytest.mark.parametrize("kind", ["graph", "unlinked"])
def test_a_damaged_graph_is_named_and_dropped_by_a_repair(linked, kind):
    _, path = linked
    with logt.open(path, "a") as index:
        index.remove([3])
        index.link(10)
        index.remove([4])
        index.save()
    (file,) = path.glob(f"{kind}-*.safetensors")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(logt.CorruptIndexError, match=file.name):
        logt.open(path)
    found = repair(path, logt.open)
    assert [loss.what for loss in found.losses] == ["the neighbor graph"]
    assert found.losses[0].vectors == 0
    repaired = logt.open(path)
    assert len(repaired) == 1498
    assert repaired.links is None


def test_a_repair_without_a_segment_drops_the_graph(linked, X):
    _, path = linked
    with logt.open(path, "a") as index:
        index.add(np.asarray(X[2000:2400]))
        index.merge_from(built(X[2400:2600], np.arange(8000, 8200)))
        index.save()
    file = max(path.glob("segment-*.safetensors"), key=lambda f: f.stat().st_size)
    file.write_bytes(b"no segment")
    found = repair(path, logt.open)
    assert "the neighbor graph" in [loss.what for loss in found.losses]
    assert logt.open(path).links is None
