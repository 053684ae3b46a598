"""Residual codes, the codec of the default index, and the compiled search against a naive one."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import reference
from exact_index import overlap
from hypothesis import given, settings
from hypothesis import strategies as st

from logt._internal.kmeans import kmeans
from logt._internal.threads import Workers
from logt.group_testing.grouping import KMeans
from logt.lists.codec import Codec, CodecSettings
from logt.lists.inverted_lists import CandidateDepths, Probe, ScanLimits, sort_into_lists
from logt.lists.residual import ERRORS, STEPS, Bands, signs
from logt.lists.search import ListSearcher
from logt.lists.segment import ListSegment, merge_segments

EVERYTHING = ScanLimits(
    lists=1, nprobe=0, least=0, code_reach=0, sign_reach=0, walk_reach=0, candidates=0, beam=0, everything=True
)
FAR = 1e6  # deviations: nothing is skipped


def one_band(dim, bits):
    return Bands(np.arange(dim, dtype=np.int32), np.array([dim]), np.array([bits]), np.ones(1, np.float32))


def uneven(N, dim, seed=0):
    """Vectors in clusters whose coordinates vary less and less."""
    rng, centres = np.random.default_rng(seed), np.random.default_rng(99).standard_normal((12, dim))
    V = centres[rng.integers(0, 12, N)] + rng.standard_normal((N, dim))
    return (V * 0.97 ** np.arange(dim)).astype(np.float32)


def trained(X, *, units=16, entries=4, bits=2, refine=True):
    return Codec.train(X, CodecSettings(units, entries, bits, refine), np.random.default_rng(0), normalized=False)


@cache
def uneven_segment(N, dim, *, distances=True, **settings):
    """A segment of `uneven(N, dim)`, and its vectors as the naive search decodes them."""
    X = uneven(N, dim)
    segment = ListSegment.build(trained(X, **settings), X, np.arange(N), distances=distances)
    return segment, reference.list_vectors(segment)


# -------------------------------------------------------------------------------------------------- rotation


@pytest.mark.parametrize("sizes", [[1], [2], [7], [16], [100], [1536], [8, 22]])
def test_each_band_is_rotated_by_itself(isa, rng, sizes):
    dim = sum(sizes)
    order = rng.permutation(dim).astype(np.int32)
    bands = Bands(order, np.array(sizes), np.full(len(sizes), 2), np.ones(len(sizes), np.float32))
    X = rng.standard_normal((5, dim), np.float32)
    Z = bands.rotate(X)
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        rows = slice(end - size, end)
        assert np.allclose(Z[:, rows], [reference.rotate(x[order[rows]], signs(dim)[:, rows]) for x in X], atol=1e-4)
    assert np.allclose(bands.rotate_back(Z), X, atol=1e-4)


# ----------------------------------------------------------------------------------------------------- codes


@given(st.integers(1, 300), st.integers(1, 8), st.integers(0, 4), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_packing_loses_nothing(dim, bits, rows, seed):
    rng = np.random.default_rng(seed)
    bands = Bands.allocate(rng.uniform(0, 1, dim) ** 4, bits, 10_000)
    per_dim = bands.per_dim(bands.bits)[: bands.coded]
    fields = rng.integers(0, 1 << per_dim, (rows, bands.coded)).astype(np.uint8)
    sign_bits, low_bits = bands.pack(fields)
    assert (sign_bits.shape[1], low_bits.shape[1]) == bands.code_bytes
    assert (bands.unpack(sign_bits, low_bits) == fields).all()
    assert (reference.unpack(sign_bits, low_bits, per_dim) == fields).all()


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
    even = Bands.allocate(np.ones(200), 2, 1000)
    assert (even.size.tolist(), even.bits.tolist(), even.order.tolist()) == ([200], [2], list(range(200)))


def test_a_vector_that_its_codes_capture_has_factor_zero():
    fields, factor = one_band(16, 2).quantize(np.zeros((1, 16), np.float32))
    assert factor.tolist() == [0]
    assert (one_band(16, 2).dequantize(fields, factor) == 0).all()


@pytest.mark.parametrize(("refine", "error"), [(False, 0.2), (True, 1e-3)])
def test_decoding_returns_the_vectors(refine, error):
    X = uneven(500, 96) + 3
    codec = trained(X, refine=refine)
    segment = ListSegment.build(codec, X, np.arange(500), distances=True)
    assert np.square(segment.reconstruct() - X).sum() < error * np.square(X - codec.mean).sum()


@pytest.mark.parametrize("rows", [1, 7, 3000])
def test_few_and_many_vectors_are_encoded_alike_with_the_nearest_memory_vector_first(rows):
    """A large batch computes all products of memory vectors once, a small one only those it needs."""
    X = uneven(3000, 40)
    codec = trained(X, units=64)
    some, all_ = codec.encode(X[:rows]), codec.encode(X)
    assert np.allclose(codec.decode(some), codec.decode(all_)[:rows], atol=1e-3)
    Z = codec.bands.rotate(X[:rows] - codec.mean)
    distances = np.square(Z[:, None] - codec.memory_vectors).sum(axis=2)
    assert np.allclose(distances[np.arange(rows), some.unit[:, 0]], distances.min(axis=1), rtol=1e-4)


# ---------------------------------------------------------------------------------------------------- search


@pytest.mark.parametrize(
    ("N", "dim", "bits", "distances", "refine"),
    [
        (90, 1, 1, True, True),
        (90, 7, 2, False, False),
        (90, 64, 8, True, False),
        (90, 200, 1, False, True),
        (90, 1100, 3, True, True),
        (1100, 40, 4, True, False),  # with lists
        (1100, 200, 2, False, True),
        (1100, 200, 2, True, True),
    ],
)
def test_search(isa, N, dim, bits, distances, refine):
    segment, V = uneven_segment(N, dim, bits=bits, distances=distances, refine=refine)
    Q, searcher = uneven(3, dim, seed=1), ListSearcher([segment])
    everything = searcher.search(Q, N, EVERYTHING)
    some = searcher.search(Q, 10, Probe(0.5).limits(10, depths=CandidateDepths()))
    for i, q in enumerate(Q):
        truth = reference.list_scores(segment, V, q)
        size = 2 * np.linalg.norm(q) * np.linalg.norm(uneven(N, dim), axis=1).max()
        error = (1e-3 if refine else 2e-2) * size  # queries have 8 bits, and 16 for refinement
        for scores, ids in ((scores[i], ids[i]) for scores, ids, _ in (everything, some)):
            assert np.allclose(scores, truth[ids], rtol=0, atol=error)
            assert (np.diff(scores) <= 0).all()
        assert np.allclose(some[0][i, 0], truth.max(), rtol=0, atol=error)
        assert sorted(everything[1][i].tolist()) == list(range(N))
        each, order = next(iter(searcher.all_scores(q)))
        assert np.allclose(each, truth[order], rtol=0, atol=error)


@cache
def several_segments(dim, bits):
    """Segments of two codecs, one without lists; an even spectrum: all dimensions are coded."""
    X = np.random.default_rng(0).standard_normal((3700, dim), np.float32)
    parts = np.split(np.arange(3700), [1200, 2300, 2500])
    codecs = [trained(X[parts[i]], bits=bits, units=40) for i in (0, 3)]
    pairs = zip((0, 1, 0, 0), (0, 3, 2, 1), strict=True)
    segments = [ListSegment.build(codecs[c], X[parts[p]], parts[p], distances=True) for c, p in pairs]
    assert [segment.flat for segment in segments] == [False, False, True, False]
    return segments


@pytest.mark.parametrize(
    ("dim", "bits", "share"),
    [(48, 1, None), (48, 4, 0.05), (300, 2, None), (300, 4, 0.7), (1100, 1, 0.7), (1100, 2, None)],
)
def test_a_batch_finds_the_same_as_its_queries_alone(isa, rng, dim, bits, share):
    """A batch is searched list by list, with matrix products where there are any; the scores are equal to the bit."""
    segments = several_segments(dim, bits)
    masks = None if share is None else [rng.random(len(segment)) < share for segment in segments]
    searcher = ListSearcher(segments, masks)
    Q = rng.standard_normal((70, dim), np.float32)
    for effort in (0.1, 0.6, 1.0):
        limits = Probe(effort).limits(10, depths=CandidateDepths())
        scores, ids, _ = searcher.search(Q, 10, limits)
        for i in range(0, 70, 7):
            alone = searcher.search(Q[i : i + 1], 10, limits)
            np.testing.assert_array_equal(alone[1][0], ids[i])
            np.testing.assert_array_equal(alone[0][0], scores[i])


@pytest.mark.parametrize("nprobe", [1, 3, 16])
def test_lists_are_probed_in_the_order_of_their_expected_scores(isa, nprobe):
    segment, V = uneven_segment(1500, 40)
    limits = ScanLimits(1, nprobe, 0, FAR, FAR, FAR, 60, 0, everything=False)
    for q in uneven(5, 40, seed=1):
        rows = reference.first_lists(segment, q, nprobe)
        _, ids, counts = ListSearcher([segment]).search(q[None], 10, limits)
        wanted = rows[np.argsort(-reference.list_scores(segment, V, q)[rows])[:10]]
        if len(rows) >= 60:
            assert counts[0, 0] == nprobe
            assert overlap(ids, [wanted]) >= 0.9


LIST_SCORES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "far from 0": lambda rng, n: 1e6 + rng.standard_normal(n),
    "long-tailed": lambda rng, n: np.exp(4 * rng.standard_normal(n)),
    "one above": lambda rng, n: np.where(np.arange(n) == n // 2, 1, 0),
    "one below": lambda rng, n: np.where(np.arange(n) == n // 2, -1, 0),
    "equal": lambda rng, n: np.zeros(n),
    "too large to square": lambda rng, n: 1e30 * rng.standard_normal(n),
    "infinite": lambda rng, n: rng.choice([-np.inf, 0, 1, np.inf], n),
    "no number": lambda rng, n: rng.choice([np.nan, 0, 1, 2], n),
}


@cache
def scored_segment(units):
    X = uneven(1100, 24)
    return ListSegment.build(trained(X, units=units), X, np.arange(1100), distances=True)


@pytest.mark.parametrize("units", [1, 15, 16, 100])
@pytest.mark.parametrize("kind", LIST_SCORES)
def test_the_best_lists_are_read_for_any_scores(isa, rng, units, kind):
    """A search for as many vectors as are in the best lists finds these; equal lists are read in their order."""
    segment = scored_segment(units)
    bias = LIST_SCORES[kind](rng, units).astype(np.float32)
    codec = replace(segment.codec, list_weight=np.zeros(units, np.float32), list_bias=bias)
    searcher = ListSearcher([replace(segment, codec=codec)])
    order = np.argsort(-np.nan_to_num(bias, nan=-np.inf, posinf=np.inf, neginf=-np.inf), kind="stable")
    for nprobe in {1, units // 20 + 1, units // 3 + 1, units - units // 10, units}:
        lists = [segment.row[segment.starts[j] : segment.starts[j + 1]] for j in order[:nprobe]]
        rows = np.sort(np.concatenate(lists))
        limits = ScanLimits(1, nprobe, 0, FAR, FAR, FAR, len(rows), 0, everything=False)
        _, ids, counts = searcher.search(uneven(1, 24, seed=1), len(rows), limits)
        assert np.sort(ids[0]).tolist() == rows.tolist()
        assert counts[0, 0] <= nprobe


def test_what_is_not_read_could_hardly_be_among_the_best(isa):
    X = uneven(4000, 200)
    segment = ListSegment.build(trained(X), X, np.arange(4000), distances=True)
    Q, searcher = uneven(50, 200, seed=1), ListSearcher([segment])
    careful = ScanLimits(1, 16, 0, 5.0, 4.0, 0.0, 0, 0, everything=False)
    _, some, counts = searcher.search(Q, 10, careful)
    _, every, all_counts = searcher.search(Q, 10, EVERYTHING)
    assert overlap(some, every) > 0.99
    assert (counts[:, 1] == 4000).all()
    assert (counts[:, 3] < all_counts[:, 3]).all()
    if isa != "amx":  # where matrix products read all sign bits
        assert (counts[:, 2] < all_counts[:, 2]).all()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_filtered_rows_are_never_found(isa, rng, share):
    segment, V = uneven_segment(1500, 40)
    Q = uneven(10, 40, seed=1)
    mask = rng.random(1500) < share
    for visible in (mask, np.flatnonzero(mask)):
        _, ids, _ = ListSearcher([segment], [visible]).search(Q, 20, EVERYTHING._replace(candidates=60))
        assert ids.shape[1] == min(20, mask.sum())
        for q, found in zip(Q, ids, strict=True):
            truth = np.where(mask, reference.list_scores(segment, V, q), -np.inf)
            assert mask[found].all()
            assert len(set(found.tolist()) & set(reference.best(truth, len(found)))) >= len(found) - 1


def test_merging_keeps_estimates():
    X = uneven(3000, 40)
    codec = trained(X)
    parts = [
        ListSegment.build(codec, X[part], np.arange(3000)[part], distances=True)
        for part in (slice(0, 100), slice(100, 1500), slice(1500, 3000))
    ]
    apart, joined = (ListSearcher(s).search(X[:5], 30, EVERYTHING) for s in (parts, [merge_segments(parts)]))
    assert (apart[1] == joined[1]).all()
    assert (apart[0] == joined[0]).all()


def test_equal_scores_are_sorted_by_id(isa):
    X = np.repeat(uneven(3, 24), 500, axis=0)
    segment = ListSegment.build(trained(X), X, np.arange(1500), distances=True)
    _, ids, _ = ListSearcher([segment]).search(X[:1], 500, EVERYTHING)
    assert ids[0].tolist() == list(range(500))


def test_no_vector_is_missing_from_the_lists(rng):
    unit = rng.integers(0, 9, 100)
    row, starts = sort_into_lists(unit, 9)
    assert sorted(row.tolist()) == list(range(100))
    for j in range(9):
        assert row[starts[j] : starts[j + 1]].tolist() == np.flatnonzero(unit == j).tolist()


# --------------------------------------------------------------------------------------------------- k-means


@pytest.mark.parametrize("spherical", [True, False])
def test_k_means_finds_clusters_that_are_there(rng, spherical):
    centres = rng.standard_normal((6, 40), np.float32)
    X = np.repeat(centres, 50, axis=0) + 0.1 * rng.standard_normal((300, 40), np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    label = kmeans(X, 24, rng, spherical=spherical)
    for unit in range(24):  # more units than clusters: no unit spans two
        assert len(set(np.flatnonzero(label == unit) // 50)) <= 1


@pytest.mark.parametrize("N", [1, 2, 5, 40])
def test_k_means_of_few_and_of_equal_vectors(rng, N):
    units = KMeans()(np.ones((N, 3), np.float32) / np.sqrt(3).astype(np.float32), rng)
    assert units.assignment.shape == (N, 1)
    assert units.assignment.max() < units.count <= N


def test_k_means_is_the_same_for_any_number_of_threads(vectors):
    one, two = (kmeans(vectors(2000, 16), 40, np.random.default_rng(0), Workers(t)) for t in (1, 2))
    assert (one == two).all()


def test_refinements_that_change_no_result_are_not_read():
    rng = np.random.default_rng(3)
    X = np.repeat(rng.standard_normal((60, 64)), 50, axis=0) + 0.3 * rng.standard_normal((3000, 64))
    codec = Codec.train(X.astype("f4"), CodecSettings(60, 4, 2, True), rng, normalized=False)
    segment = ListSegment.build(codec, X.astype("f4"), np.arange(3000), distances=True)
    searcher, Q = ListSearcher([segment]), (X[::50] + 0.1 * rng.standard_normal((60, 64))).astype("f4")
    depths = CandidateDepths(few=300, many=400)
    limits = Probe(0.5).limits(10, depths=depths)
    every = searcher.candidates(Q, limits)
    best = np.take_along_axis(every.ids, np.argsort(-every.scores, axis=1, kind="stable")[:, :10], axis=1)
    scores, found, _ = searcher.search(Q, 10, limits)
    assert overlap(found, best) > 0.998
    np.testing.assert_array_equal(scores[:, 0], every.scores.max(axis=1))
    for q in range(5):  # a refinement that would make the last candidate the first
        last = every.ids[q, np.argmin(every.keys[q])]
        for sign in (1, -1):
            scale = segment.refinement_scale.copy()
            scale[last] = sign * 1e9
            wrong = ListSearcher([replace(segment, refinement_scale=scale)])
            is_first = [
                wrong.search(Q[q : q + 1], 10, used)[1][0, 0] == last for used in (limits, limits._replace(results=0))
            ]
            assert not is_first[0]
            if is_first[1]:
                break
        assert is_first[1]
