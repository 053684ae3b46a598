"""Residual codes, the codec of the default index, and the compiled search against a naive one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from logt import InvalidInputError
from logt._internal.threads import Workers
from logt.group_testing.kmeans import KMeans
from logt.lists.codec import Codec, CodecSettings
from logt.lists.inverted_lists import CandidateDepths, Probe, ScanLimits, sort_into_lists
from logt.lists.residual import ERRORS, STEPS, Bands, signs
from logt.lists.search import ListSearcher
from logt.lists.segment import ListSegment, merge_segments
from logt.methods import sketched, starred

EVERYTHING = ScanLimits(
    lists=1, nprobe=0, least=0, code_reach=0, sign_reach=0, walk_reach=0, candidates=0, beam=0, everything=True
)
FAR = 1e6  # deviations: nothing is skipped


def one_band(dim, bits):
    return Bands(np.arange(dim, dtype=np.int32), np.array([dim]), np.array([bits]), np.ones(1, np.float32))


def uneven(rng, N, dim, decay=0.97):
    """Vectors in clusters whose coordinates vary less and less."""
    centres = rng.standard_normal((12, dim))
    return ((centres[rng.integers(0, 12, N)] + rng.standard_normal((N, dim))) * decay ** np.arange(dim)).astype("f4")


def segment_of(X, rng, *, bits=2, refine=True, distances=True, entries=4, units=16):
    codec = Codec.train(X, CodecSettings(min(units, len(X)), entries, bits, refine), rng, normalized=False)
    return ListSegment.build(codec, X, np.arange(len(X), dtype=np.int64), distances=distances)


# -------------------------------------------------------------------------------------------------- rotation


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 16, 33, 100, 128, 1536])
def test_rotation(isa, rng, dim):
    X = rng.standard_normal((5, dim), np.float32)
    bands = one_band(dim, 2)
    Z = bands.rotate(X)
    assert np.allclose(Z, [reference.rotate(x, signs(dim)) for x in X], atol=1e-4)
    assert np.allclose(bands.rotate_back(Z), X, atol=1e-4)
    assert np.allclose(Z @ Z.T, X @ X.T, rtol=1e-4, atol=1e-3)


def test_each_band_is_rotated_by_itself(isa, rng):
    order = rng.permutation(30).astype(np.int32)
    bands = Bands(order, np.array([8, 22]), np.array([3, 1]), np.ones(2, np.float32))
    X = rng.standard_normal((4, 30), np.float32)
    Z = bands.rotate(X)
    for rows in (slice(0, 8), slice(8, 30)):
        part = [reference.rotate(x[order[rows]], signs(30)[:, rows]) for x in X]
        assert np.allclose(Z[:, rows], part, atol=1e-5)
    assert np.allclose(bands.rotate_back(Z), X, atol=1e-5)


# ----------------------------------------------------------------------------------------------------- codes


@given(st.integers(1, 300), st.integers(1, 8), st.integers(0, 4), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_packing_loses_nothing(dim, bits, rows, seed):
    rng = np.random.default_rng(seed)
    bands = Bands.allocate(rng.uniform(0, 1, dim) ** 4, bits, 10_000)
    per_dim = bands.per_dim(bands.bits)[: bands.coded]
    fields = rng.integers(0, 1 << per_dim, (rows, bands.coded)).astype(np.uint8)
    sign_bits, low_bits = bands.pack(fields)
    assert (sign_bits.shape[1], low_bits.shape[1]) == bands.code_bytes
    assert (bands.unpack(sign_bits, low_bits) == fields).all()
    assert [reference.unpack(h, t, per_dim) for h, t in zip(sign_bits, low_bits, strict=True)] == fields.tolist()


@pytest.mark.parametrize("bits", range(1, 9))
def test_the_error_is_that_of_the_optimal_quantizer_of_a_normal_variable(rng, bits):
    Z = rng.standard_normal((200, 1024), np.float32)
    bands = one_band(1024, bits)
    fields, factor = bands.quantize(Z)
    error = np.square(Z - bands.dequantize(fields, factor)).sum() / np.square(Z).sum()
    assert error == pytest.approx(2 - 2 * np.sqrt(1 - ERRORS[bits]), rel=0.05)  # at the norm of the residual
    assert STEPS[bits] < STEPS[bits - 1] or bits == 1


def test_dimensions_that_vary_more_get_more_bits():
    bands = Bands.allocate(np.repeat([1.0, 1e-2, 1e-6, 1e-2], 64), 2, 100_000)
    assert (np.diff(bands.bits) < 0).all()
    assert set(bands.order[:64].tolist()) == set(range(64))
    assert bands.bits[-1] == 0
    assert (bands.size * bands.bits).sum() <= 2 * 256


def test_even_variances_make_one_band():
    bands = Bands.allocate(np.ones(200), 2, 1000)
    assert bands.size.tolist() == [200]
    assert bands.bits.tolist() == [2]
    assert (bands.order == np.arange(200)).all()


def test_a_vector_that_its_codes_capture_has_factor_zero():
    fields, factor = one_band(16, 2).quantize(np.zeros((1, 16), np.float32))
    assert factor.tolist() == [0]
    assert (one_band(16, 2).dequantize(fields, factor) == 0).all()


@pytest.mark.parametrize(("refine", "error"), [(False, 0.2), (True, 1e-3)])
def test_decoding_returns_the_vectors(rng, refine, error):
    X = uneven(rng, 500, 96) + 3
    segment = segment_of(X, rng, refine=refine)
    V = X - segment.codec.mean
    assert np.square(segment.reconstruct() - X).sum() < error * np.square(V).sum()


def test_the_first_entry_is_the_nearest_memory_vector(rng):
    X = uneven(rng, 600, 40)
    codec = Codec.train(X, CodecSettings(16, 3, 2, True), rng, normalized=False)
    codes = codec.encode(X)
    Z = codec.bands.rotate(X - codec.mean)
    distances = np.square(Z[:, None] - codec.memory_vectors).sum(axis=2)
    assert np.allclose(distances[np.arange(600), codes.unit[:, 0]], distances.min(axis=1), rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 7, 3000])
def test_few_and_many_vectors_are_encoded_alike(rng, rows):
    """A large batch computes all products of memory vectors once, a small one only those it needs."""
    X = uneven(rng, 3000, 40)
    codec = Codec.train(X, CodecSettings(64, 4, 2, True), rng, normalized=False)
    some, all_ = codec.encode(X[:rows]), codec.encode(X)
    assert np.allclose(codec.decode(some), codec.decode(all_)[:rows], atol=1e-3)


# ---------------------------------------------------------------------------------------------------- search


@pytest.mark.parametrize(
    ("dim", "bits", "N"),
    [(1, 1, 90), (7, 2, 90), (64, 8, 90), (200, 1, 90), (1100, 3, 90), (40, 4, 1100), (200, 2, 1100)],  # 1100: lists
)
@pytest.mark.parametrize("distances", [False, True])
@pytest.mark.parametrize("refine", [False, True])
def test_search(isa, rng, dim, bits, N, distances, refine):
    X = uneven(rng, N, dim)
    segment = segment_of(X, rng, bits=bits, refine=refine, distances=distances)
    Q = uneven(rng, 3, dim)
    kept = ListSearcher([segment])
    found = kept.search(Q, N, EVERYTHING)
    for q, scores, ids in zip(Q, *found[:2], strict=True):
        truth = np.array(reference.list_scores(segment, q))
        size = 2 * np.linalg.norm(q) * np.linalg.norm(X, axis=1).max()
        error = (1e-3 if refine else 2e-2) * size  # queries have 8 bits, and 16 for refinement
        assert np.allclose(scores, truth[ids], rtol=0, atol=error)
        assert (np.diff(scores) <= 0).all()
        assert sorted(ids.tolist()) == list(range(N))
        each, order = next(iter(kept.all_scores(q)))
        assert np.allclose(each, truth[order], rtol=0, atol=error)


def test_search_agrees_between_instruction_sets(isa, rng):
    X = uneven(rng, 2000, 300)
    segment = segment_of(X, rng)
    Q = uneven(rng, 20, 300)
    scores, _, _ = ListSearcher([segment]).search(Q, 10, Probe(0.5).limits(10, depths=CandidateDepths()))
    truth = np.array([reference.list_scores(segment, q) for q in Q[:3]])
    assert np.allclose(scores[:3, 0], truth.max(axis=1), rtol=1e-2)


@pytest.mark.parametrize("dim", [48, 300, 1100])
@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("filtered", [None, "wide", "narrow"])
def test_a_batch_finds_the_same_as_its_queries_alone(isa, rng, dim, bits, filtered):
    """A batch is searched list by list, with matrix products where there are any; the scores are equal to the bit."""
    X = rng.standard_normal((4300, dim), np.float32)  # an even spectrum: all dimensions are coded
    parts = np.split(np.arange(4300, dtype=np.int64), [1500, 2700, 3000])
    first = segment_of(X[parts[0]], rng, bits=bits, units=40)
    more, few = (ListSegment.build(first.codec, X[ids], ids, distances=True) for ids in parts[1:3])
    other = replace(segment_of(X[parts[3]], rng, bits=bits, units=40), ids=parts[3])
    segments = [first, other, few, more]
    assert [segment.flat for segment in segments] == [False, False, True, False]
    share = {None: 1, "wide": 0.7, "narrow": 0.05}[filtered]
    masks = None if filtered is None else [rng.random(len(segment)) < share for segment in segments]
    searcher = ListSearcher(segments, masks)
    Q = rng.standard_normal((70, dim), np.float32)
    for effort in (0.1, 0.6, 1.0):
        limits = Probe(effort).limits(10, depths=CandidateDepths())
        scores, ids, _ = searcher.search(Q, 10, limits)
        for q, its_scores, its_ids in zip(Q[::3], scores[::3], ids[::3], strict=True):
            alone = searcher.search(q[None], 10, limits)
            np.testing.assert_array_equal(alone[1][0], its_ids)
            np.testing.assert_array_equal(alone[0][0], its_scores)


@pytest.mark.parametrize("nprobe", [1, 3, 16])
def test_lists_are_probed_in_the_order_of_their_expected_scores(isa, rng, nprobe):
    X = uneven(rng, 2000, 48)
    segment = segment_of(X, rng)
    codec = segment.codec
    limits = ScanLimits(1, nprobe, 0, FAR, FAR, FAR, 60, 0, everything=False)
    for q in uneven(rng, 5, 48):
        c = 2 * codec.memory_vectors @ codec.bands.rotate((q - codec.mean)[None])[0]
        best = np.argsort(-(codec.list_weight * c + codec.list_bias))[:nprobe]
        rows = np.concatenate([segment.row[segment.starts[j] : segment.starts[j + 1]] for j in best])
        _, ids, counts = ListSearcher([segment]).search(q[None], 10, limits)
        truth = np.array(reference.list_scores(segment, q))
        wanted = rows[np.argsort(-truth[rows])[:10]]
        if len(rows) >= 60:
            assert counts[0, 0] == nprobe
            assert len(set(ids[0].tolist()) & set(wanted.tolist())) >= 9


LIST_SCORES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "far from 0": lambda rng, n: 1e6 + rng.standard_normal(n),
    "a long low_bits": lambda rng, n: np.exp(4 * rng.standard_normal(n)),
    "one above": lambda rng, n: np.where(np.arange(n) == n // 2, 1, 0),
    "one below": lambda rng, n: np.where(np.arange(n) == n // 2, -1, 0),
    "equal": lambda rng, n: np.zeros(n),
    "too large to square": lambda rng, n: 1e30 * rng.standard_normal(n),
    "infinite": lambda rng, n: rng.choice([-np.inf, 0, 1, np.inf], n),
    "no number": lambda rng, n: rng.choice([np.nan, 0, 1, 2], n),
}


def test_what_is_not_read_could_hardly_be_among_the_best(isa, rng):
    X = uneven(rng, 4000, 200)
    segment = segment_of(X, rng)
    Q = uneven(rng, 50, 200)
    kept = ListSearcher([segment])
    careful = ScanLimits(1, 16, 0, 5.0, 4.0, 0.0, 0, 0, everything=False)
    _, some, counts = kept.search(Q, 10, careful)
    _, every, all_counts = kept.search(Q, 10, EVERYTHING)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(some.tolist(), every.tolist(), strict=True)]) > 0.99
    assert (counts[:, 1] == 4000).all()
    assert (counts[:, 3] < all_counts[:, 3]).all()
    if isa != "amx":  # where matrix products read all heads
        assert (counts[:, 2] < all_counts[:, 2]).all()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_filtered_rows_are_never_found(isa, rng, share):
    X = uneven(rng, 3000, 40)
    segment = segment_of(X, rng)
    Q = uneven(rng, 10, 40)
    mask = rng.random(3000) < share
    for given_ in (mask, np.flatnonzero(mask)):
        kept = ListSearcher([segment], [given_])
        _, ids, _ = kept.search(Q, 20, EVERYTHING._replace(candidates=60))
        assert ids.shape[1] == min(20, mask.sum())
        for q, found in zip(Q, ids, strict=True):
            truth = np.where(mask, reference.list_scores(segment, q), -np.inf)
            assert set(found.tolist()) <= set(np.flatnonzero(mask).tolist())
            assert len(set(found.tolist()) & set(reference.best(truth, len(found)))) >= len(found) - 1


def test_merging_keeps_estimates(rng):
    X = uneven(rng, 3000, 40)
    whole = segment_of(X, rng)
    codec = whole.codec
    parts = [
        ListSegment.build(codec, X[part], np.arange(3000)[part], distances=True)
        for part in (slice(0, 100), slice(100, 1500), slice(1500, 3000))
    ]
    merged = merge_segments(parts)
    Q = uneven(rng, 5, 40)
    apart = ListSearcher(parts).search(Q, 30, EVERYTHING)
    joined = ListSearcher([merged]).search(Q, 30, EVERYTHING)
    assert (apart[1] == joined[1]).all()
    assert (apart[0] == joined[0]).all()


def test_equal_scores_are_sorted_by_id(isa, rng):
    X = np.repeat(uneven(rng, 3, 24), 1000, axis=0)
    segment = segment_of(X, rng)
    _, ids, _ = ListSearcher([segment]).search(X[:1], 1000, EVERYTHING)
    assert ids[0].tolist() == list(range(1000))


def test_no_vector_is_missing_from_the_lists(rng):
    unit = rng.integers(0, 9, 100)
    row, starts = sort_into_lists(unit, 9)
    assert sorted(row.tolist()) == list(range(100))
    for j in range(9):
        assert row[starts[j] : starts[j + 1]].tolist() == np.flatnonzero(unit == j).tolist()


# --------------------------------------------------------------------------------------------------- k-means


def test_k_means_finds_clusters_that_are_there(rng):
    centres = rng.standard_normal((6, 40), np.float32)
    X = np.repeat(centres, 50, axis=0) + 0.1 * rng.standard_normal((300, 40), np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    units = KMeans(24)(X, rng)
    for unit in range(24):  # more units than clusters: no unit spans two
        assert len({row // 50 for row in units.rows(unit).tolist()}) <= 1


@pytest.mark.parametrize("N", [1, 2, 5, 40])
def test_k_means_of_few_and_of_equal_vectors(rng, N):
    units = KMeans()(np.ones((N, 3), np.float32) / np.sqrt(3).astype(np.float32), rng)
    assert units.assignment.shape == (N, 1)
    assert units.assignment.max() < units.count <= N


def test_k_means_is_the_same_for_any_number_of_threads(vectors):
    X = vectors(3000, 16)
    one, two = (KMeans(50)(X, np.random.default_rng(0), Workers(t)).assignment for t in (1, 2))
    assert (one == two).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Probe(effort=1.5),
        lambda: Probe(effort=-0.1),
        lambda: Probe(nprobe=0),
        lambda: sketched(bits=9),
        lambda: sketched(units=0),
        lambda: KMeans(rounds=0),
        lambda: KMeans(n=0.5),
        lambda: starred(sketched()),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        wrong()
