from dataclasses import replace

import numpy as np
import pytest
import reference

from logt._internal.threads import Workers
from logt.datasets import synthetic_collection
from logt.evaluation import mean_average_precision
from logt.group_testing.cascade import Cascade, Prefix, prefix_lengths
from logt.group_testing.correction import Suppress
from logt.group_testing.decoder import Sparse
from logt.group_testing.grouping import Random
from logt.group_testing.memory_vectors import Pinv
from logt.group_testing.method import GroupTesting
from logt.group_testing.quantize import Float32
from logt.group_testing.search import DecodeSearch, Limits, MaskedSegment
from logt.group_testing.segment import CodedSegment as Segment
from logt.methods import cascaded, lo_gt, quantized, rnd, starred


def built(X, method, first=0, seed=0):
    return method.build(X, np.arange(first, first + len(X)), np.random.default_rng(seed))


def search(segments, Q, k, cascade=None, correct=None, *workers):
    views = [MaskedSegment.of_segment(segment, l2=False) for segment in segments]
    return DecodeSearch(views, "cosine").search(Q, k, Limits(cascade, correct), *workers)


def estimates(segment: Segment, Q):
    return Q @ segment.codes.reconstruct(segment.codebook.decode()).T


@pytest.mark.parametrize(("nq", "k"), [(1, 10), (3, 400), (16, 1), (37, 10), (37, 400)])
def test_a_full_decode_ranks_by_the_estimate(vectors, nq, k):
    X, Q = vectors(400, 48), vectors(nq, 48, seed=1)
    segment = built(X, lo_gt(n=20, m=3, L=20))
    scores, ids = search([segment], Q, k)
    expected = estimates(segment, Q)
    for q in range(nq):
        assert ids[q].tolist() == reference.best(expected[q], k) or np.allclose(
            expected[q][ids[q]], np.sort(expected[q])[::-1][:k], atol=1e-5
        )
        assert np.allclose(scores[q], expected[q][ids[q]], atol=1e-5)


def test_top_k_of_the_whole_is_the_merge_of_the_segments(vectors):
    """One list over three segments equals ranking all their estimates at once, with cascade and correction."""
    X, Q = vectors(900, 48), vectors(20, 48, seed=1)
    method = rnd(n=20, m=3, L=24)
    segments = [built(X[a : a + 300], starred(method), first=a, seed=a) for a in (0, 300, 600)]
    whole = np.concatenate([estimates(s, Q) for s in segments], axis=1)
    scores, ids = search(segments, Q, 900)
    for q in range(20):
        assert np.allclose(scores[q], np.sort(whole[q])[::-1], atol=1e-5)
        assert np.allclose(whole[q][ids[q]], scores[q], atol=1e-5)
    order = np.argsort(-whole, axis=1, kind="stable")
    units = [
        {(number, int(u)) for u in of}
        for number, s in enumerate(segments)
        for of in s.units.assignment  # type: ignore[union-attr]
    ]
    corrected = search(segments, Q, 900, correct=Suppress(50))[1]
    for q in range(20):
        expected = order[q][reference.suppress([units[i] for i in order[q]], 50)]
        assert (corrected[q] == expected).mean() > 0.99


def test_cascade_refines_the_best_of_the_prefix(vectors):
    X, Q = vectors(500, 48), vectors(18, 48, seed=1)
    segment = built(X, rnd(n=20, m=3, L=30))
    lengths = prefix_lengths(segment.codes, 0.5)
    unit, weight = segment.codes.matrices()
    C = segment.codebook.measure(Q)
    rough = [reference.estimates(unit, weight, segment.codes.scale, np.zeros(500), lengths, c) for c in C]
    full = estimates(segment, Q)
    for k in (10, 60, 500):
        scores, ids = search([segment], Q, k, Cascade(0.5, 60))
        for q in range(18):
            shortlist = reference.best(rough[q], 60)
            refined = sorted(shortlist, key=lambda i: -full[q][i])
            rest = [i for i in reference.best(rough[q], 500) if i not in set(shortlist)]
            expected = (refined + rest)[:k]
            assert np.mean(ids[q] == expected) > 0.98
            assert np.allclose(scores[q][:60], full[q][ids[q][:60]], atol=1e-4)


@pytest.mark.parametrize("nq", [1, 16])
def test_a_short_prefix_finds_only_what_is_there(vectors, nq):
    segment = built(vectors(500, 48), rnd(n=20, m=3, L=30)).remove(np.arange(0, 500, 2))
    assert Prefix.of(segment.codes, 0.2).row.size, "short enough for the copy that one query reads"
    _, ids = search([segment], vectors(nq, 48, seed=1), 500, Cascade(0.2, 100))
    assert all(sorted(row) == list(range(1, 500, 2)) for row in ids.tolist())


def test_unit_norm_estimates_are_cosines_of_the_reconstructions(vectors):
    X = vectors(300, 48)
    method = GroupTesting(Random(20, 3), Pinv(), Float32(), Sparse(10, weights="float32"), unit_norm=True)
    segment = built(X, method)
    reconstructed = segment.codes.reconstruct(segment.codebook.decode())
    assert np.allclose(np.linalg.norm(reconstructed, axis=1), 1, atol=1e-5)
    assert (search([segment], X[:50], 1)[0] <= 1 + 1e-5).all()


def test_shared_memory_vectors_are_measured_once(vectors):
    X, Q = vectors(200, 32), vectors(3, 32, seed=1)
    first = built(X, rnd(n=20, m=2, L=10))
    calls = []

    class Counting:
        arrays, shape, decode, nbytes = first.codebook.arrays, first.codebook.shape, first.codebook.decode, 0

        def measure(self, Q):
            calls.append(len(Q))
            return first.codebook.measure(Q)

    codebook = Counting()
    segments = [Segment.create(codebook, first.codes, np.arange(a, a + 200)) for a in (0, 200)]
    search(segments, Q, 5)
    assert calls == [3]


def test_results_do_not_depend_on_threads(vectors):
    X, Q = vectors(500, 48), vectors(70, 48, seed=1)
    segment = built(X, starred(cascaded(lo_gt(n=20, m=3, L=20), R=100)))
    found = [search([segment], Q, 20, Cascade(0.5, 100), Suppress(), Workers(t)) for t in (1, 3)]
    for one, other in zip(*found, strict=True):
        assert (one == other).all()


def test_correction_keeps_the_true_positives_of_orthogonal_units_and_not_of_random_ones():
    """Section 4: the correction drops positives that share a unit; orthogonal units separate them."""
    collection = synthetic_collection(2000, 128, landmarks=20, views=30, view_similarity=(0.7, 0.9))

    def loss(method):
        segment = built(collection.X, starred(method))
        plain, corrected = (search([segment], collection.Q, 3000, correct=c)[1] for c in (None, Suppress()))
        return np.subtract(*(mean_average_precision(ids, collection.positives) for ids in (plain, corrected)))

    assert loss(rnd(n=50, m=4, L=100)) > 5
    assert loss(lo_gt(n=50, m=4, L=100)) < 1


def test_the_decoder_is_fitted_to_what_is_stored(vectors):
    pytest.importorskip("faiss")
    X = vectors(2000, 64)
    errors = []
    for fit in ("stored", "exact"):
        segment = built(
            X, replace(quantized(rnd(n=20, m=3, L=30), c=4, fit=fit), decode=Sparse(None, weights="float32"))
        )
        errors.append(np.square(X - segment.codes.reconstruct(segment.codebook.decode())).sum(axis=1).mean())
    assert errors[0] < errors[1]
