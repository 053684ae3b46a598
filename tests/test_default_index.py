"""The default index: accuracy, effort, growth, drift, compaction."""

import copy
from itertools import pairwise

import numpy as np
import pytest
from exact_index import METRICS, assert_same, built, nearest, overlap, unmeasured
from hypothesis import given, settings
from hypothesis import strategies as st

import logt
from logt import InvalidInputError
from logt.datasets import synthetic_collection
from logt.evaluation import mean_average_precision
from logt.methods import lo_gt, sketched

N = 3000


@pytest.fixture(scope="module")
def data():
    """Photos in which each query has near neighbors."""
    return synthetic_collection(N, 128, landmarks=40)


@pytest.fixture(scope="module")
def collection(data):
    """(X, Q, the default index of X); tests change copies of it."""
    return data.X, data.Q, built(data.X, measure=True)


def added(X, batches, metric="cosine"):
    """Return an index to which X was added in equal batches."""
    index = logt.Index(X.shape[1], metric=metric)
    with unmeasured():
        for batch in np.array_split(X, batches):
            index.add(batch)
    return index


def codecs(index):
    return {id(segment.codec) for segment in index._snapshot.segments}


def test_more_effort_finds_more(collection):
    X, Q, index = collection
    exact = nearest(X, Q)
    found = [overlap(index.search(Q, 10, effort=e).ids, exact) for e in (0, 0.25, 0.5, 0.75, 1)]
    assert found[0] < found[-1]
    assert all(b >= a - 0.02 for a, b in pairwise(found))
    assert found[2] > 0.75


def test_nprobe_sets_the_number_of_lists(collection):
    X, Q, index = collection
    exact, units = nearest(X, Q), index.report()["units"]
    few, more, every = (overlap(index.search(Q, 10, nprobe=n).ids, exact) for n in (2, 40, units))
    assert few < more
    assert every > overlap(index.search(Q, 10, effort=1).ids, exact) - 0.02
    assert (index.search(Q[0], 3, nprobe=2**63 - 1).ids == index.search(Q[0], 3, nprobe=10**6).ids).all()


def test_all_effort_is_a_search_through_the_reconstructions(collection):
    _, Q, index = collection
    scores, ids = index.search(Q, N, effort=1)
    R = index.reconstruct(np.arange(N))
    assert np.allclose(scores, np.take_along_axis(Q @ R.T, ids, axis=1), atol=5e-3)
    assert (np.sort(ids, axis=1) == np.arange(N)).all()


def test_k_of_all_vectors_returns_every_vector_at_any_effort(rng):
    """Those of lists and of small segments."""
    index = added(rng.standard_normal((2000, 6)), 1)
    for _ in range(13):
        index.add(rng.standard_normal((10, 6)))
    index.remove([5, 2005])
    assert index.report()["segments"] > 1
    for k in (2128, 3000):
        ids = index.search(np.ones((2, 6)), k, effort=0).ids
        assert (np.sort(ids[:, :2128], axis=1) == np.delete(np.arange(2130), [5, 2005])).all()
        assert (ids[:, 2128:] == -1).all()


def test_a_narrow_filter_loses_nothing(collection, rng):
    X, Q, index = collection
    few = np.sort(rng.choice(N, 30, replace=False))
    found = index.search(Q, 10, filter=few)
    assert (found.ids == index.search(Q, 10, filter=few, effort=1).ids).all()
    assert overlap(np.searchsorted(few, found.ids), nearest(X[few], Q)) > 0.8


def test_search_parameters_belong_to_their_methods(collection, vectors):
    _, Q, index = collection
    with pytest.raises(InvalidInputError, match="set effort or nprobe"):
        index.search(Q, 5, p=0.5)
    paper = built(vectors(200, 16), method=lo_gt(n=10, m=2, L=12))
    with pytest.raises(InvalidInputError, match="set effort, or p and R"):
        paper.search(vectors(1, 16), 5, nprobe=3)
    assert (paper.search(vectors(5, 16), 9, effort=1).ids == paper.search(vectors(5, 16), 9).ids).all()
    assert type(sketched(bits=np.int64(2)).bits) is int


def test_threads_change_nothing(collection):
    _, Q, index = collection
    assert_same(index.search(Q, 50, threads=2), index.search(Q, 50, threads=1))


@settings(max_examples=20, deadline=None)
@given(N=st.integers(1, 60), dim=st.integers(1, 40), metric=st.sampled_from(METRICS))
def test_small_collections_are_exact_enough(N, dim, metric):
    rng = np.random.default_rng(N * 100 + dim)
    X = rng.standard_normal((N, dim)).astype(np.float32) + 0.01
    index = built(X, method=sketched(bits=4), metric=metric)
    scores, ids = index.search(X, 1, effort=1)
    if metric == "l2":
        assert (scores[:, 0] <= 0.15 * np.square(X).sum(axis=1) + 1e-5).all()
    elif metric == "ip":
        best = (X @ X.T).max(axis=1)
        got = np.einsum("ij,ij->i", X, X[ids[:, 0]])
        assert (got >= best - 0.1 * np.linalg.norm(X, axis=1) * np.linalg.norm(X, axis=1).max() - 1e-5).all()
    else:
        assert (scores[:, 0] > 0.9).all()


def test_expansion_finds_the_views_that_a_query_misses(collection, data):
    _, Q, index = collection
    plain, expanded = (mean_average_precision(index.search(Q, N, expand=n).ids, data.positives) for n in (0, 5))
    assert expanded > plain
    for nothing in (logt.Index(128).search(Q[0], 3, expand=2), index.search(Q[0], 3, expand=2, filter=[])):
        assert nothing.ids.tolist() == [-1, -1, -1]


# ------------------------------------------------------------------------------------------------------ streams


def test_later_batches_are_encoded_with_the_codec_of_the_first(collection):
    X, Q, whole = collection
    index = added(X, 4)
    assert len(codecs(index)) <= 2
    exact = nearest(X, Q)
    assert overlap(index.search(Q, 10).ids, exact) > overlap(whole.search(Q, 10).ids, exact) - 0.1


def test_drift_trains_a_new_codec():
    def cluster(seed):
        r = np.random.default_rng(seed)
        return r.standard_normal((20, 64))[r.integers(0, 20, 800)] + 0.3 * r.standard_normal((800, 64))

    noise = np.random.default_rng(7).standard_normal((800, 64))  # no structure at all, but always the same
    index = logt.Index(64)
    with unmeasured():
        for seed in (0, 0, 1, 0, 1):
            index.add(cluster(seed))
        assert len(codecs(index)) == 2
        for _ in range(3):
            index.add(noise)
    assert len(codecs(index)) == 3


def test_small_batches_use_the_existing_codec(collection, rng):
    index = copy.copy(collection[2])
    for _ in range(5):
        index.add(rng.standard_normal((3, 128)))
    assert len(codecs(index)) == 1


def test_compact_merges_segments_and_changes_no_result(collection, tmp_path):
    X, Q, _ = collection
    index = added(3 * X[:2000], 8, "ip")
    index.remove(range(100, 300))
    before = index.search(Q, 50, effort=1)
    index.compact()
    assert index.report()["segments"] == len(codecs(index)) < 8
    assert index.report()["removed"] == 0
    assert_same(index.search(Q, 50, effort=1), before)
    index.save(tmp_path / "index")
    assert (logt.open(tmp_path / "index").search(Q, 50).ids == index.search(Q, 50).ids).all()


def test_relearning_builds_one_segment_from_many(collection):
    X, Q, whole = collection
    index = added(X, 10)
    index.remove([7])
    with pytest.raises(InvalidInputError, match=f"holds {N - 1} vectors, but {N} were given"):
        index.compact(X)
    exact = nearest(X, Q)
    for vectors, loss in ((None, 0.1), (np.delete(X, 7, axis=0), 0.06)):
        index.compact(vectors, relearn=True)
        assert index.report()["segments"] == 1
        assert index.report()["units"] == whole.report()["units"]
        assert 7 not in index
        assert overlap(index.search(Q, 10).ids, exact) > overlap(whole.search(Q, 10).ids, exact) - loss


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_relearning_keeps_norms(rng, bits):
    X = rng.standard_normal((300, 64)) * rng.uniform(1, 9, (300, 1))
    index = built(X, method=sketched(bits=bits), metric="l2")
    for _ in range(3):
        index.compact(relearn=True)
    norms = np.linalg.norm(index.reconstruct(np.arange(300)), axis=1)
    assert np.allclose(norms, np.linalg.norm(X, axis=1), rtol=1e-2)


# ---------------------------------------------------------------------------------------------- unusual input


def test_smoothing_moves_views_of_one_object_together(rng):
    things = rng.standard_normal((20, 64))
    X = np.repeat(things, 6, axis=0) + 0.8 * rng.standard_normal((120, 64))
    S = logt.smoothed(X, n=5)
    assert S.dtype == np.float32
    assert np.allclose(np.linalg.norm(S, axis=1), 1, atol=1e-5)
    V = X / np.linalg.norm(X, axis=1, keepdims=True)
    same = np.repeat(np.arange(20), 6)[:, None] == np.repeat(np.arange(20), 6)
    assert (S @ S.T)[same].mean() > (V @ V.T)[same].mean() + 0.1
    assert logt.smoothed(X[:1]).shape == (1, 64)
    with pytest.raises(InvalidInputError, match="row 3"):
        logt.smoothed(np.where(np.arange(120)[:, None] == 3, np.nan, X))
    for wrong in ([[1, 2], [3]], [], 7):
        with pytest.raises(InvalidInputError, match="X"):
            logt.smoothed(wrong)


def test_negative_exponents_are_refused():
    for call in (
        lambda: logt.Index(8).search(np.ones(8), 3, expand=2, alpha=-1),
        lambda: logt.smoothed(np.eye(3), alpha=-1),
    ):
        with pytest.raises(InvalidInputError, match="alpha must be at least 0"):
            call()


@pytest.mark.parametrize("dim", [32, 96])
def test_every_vector_finds_itself_where_there_are_no_clusters(rng, dim):
    """Units are chosen by similarity, not by its size: one that points away from a vector would never be probed."""
    X = rng.standard_normal((5000, 16)) @ rng.standard_normal((16, dim)) + rng.standard_normal((5000, dim))
    index = built(X, measure=True)
    assert (index.search(X[:1000], 1).ids[:, 0] == np.arange(1000)).mean() > 0.99
