"""Which lists a search reads, by its best list and its worst result; and how the margins for that are measured."""

import copy
from dataclasses import replace
from functools import partial

import exact_index
import numpy as np
import pytest

from logt._internal.threads import SERIAL
from logt.lists.calibration import read_all
from logt.lists.inverted_lists import MARGINS, Probe
from logt.lists.margins import ListGaps, best_margins, list_scores, near_results
from logt.lists.measured import NEVER
from logt.lists.sampling import sample_queries
from logt.lists.search import ListSearcher

built = partial(exact_index.built, measure=True)
K = 10
MANY, CHANGES = 4, 0.02  # as in readers.hpp


@pytest.fixture(scope="module", params=["cosine", "ip", "l2"])
def index(request):
    rng = np.random.default_rng(7)
    centers = rng.standard_normal((80, 48), np.float32)
    X = centers[rng.integers(0, 80, 6000)] + 0.8 * rng.standard_normal((6000, 48), np.float32)
    return built(X, metric=request.param)


@pytest.fixture(scope="module")
def queries(index):
    """Vectors of the collection, means of some, and directions at random."""
    Q, own = sample_queries(index._snapshot.segments, 30, np.random.default_rng(1))
    others = np.random.default_rng(2).standard_normal((30, 48), np.float32)
    if index.metric == "cosine":
        others /= np.linalg.norm(others, axis=1, keepdims=True)
    return np.concatenate([Q, others]), np.concatenate([own, np.full(30, -1)])


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("exponent", [-50, 50])  # of 2, so that norms are between 1e-15 and 1e18
def test_a_scale_that_is_a_power_of_two_changes_neither_margins_nor_results(rng, metric, exponent):
    X = rng.standard_normal((1300, 24), np.float32) * rng.uniform(1, 3, (1300, 1)).astype(np.float32)
    (one, Q), (other, scaled) = (
        (built(np.ldexp(X, by), metric=metric), np.ldexp(X[:50] + np.float32(0.5), by)) for by in (0, exponent)
    )
    expected, found = (index._snapshot.segments[0].codec.measured for index in (one, other))
    np.testing.assert_array_equal(found.margins, expected.margins)
    assert (found.near, found.depths) == (expected.near, expected.depths)
    assert (other.search(scaled, K).ids == one.search(Q, K).ids).all()


def lists_read(index, q, limits):
    """Return how many lists a query reads: the reference implementation of readers.hpp, for one segment."""
    (segment,) = index._snapshot.segments
    codec, margins = segment.codec, segment.codec.measured.margins
    (scores,), ((offset,),), ((deviation,),) = list_scores(codec, q[None], distances=index.metric != "ip")
    everything = ListSearcher([segment]).candidates(
        q[None], Probe(1.0).limits(K, depths=None)._replace(candidates=6000)
    )
    (keys,), (ids,) = everything.keys, everything.ids
    order = np.argsort(-scores, kind="stable")
    rank = np.argsort(order)
    of = rank[np.searchsorted(segment.starts, segment.position[np.searchsorted(segment.ids, ids)], "right") - 1]
    grid = np.linspace(0, 1, MARGINS)
    margin = np.interp(limits.lists, grid, margins[0]) * deviation
    near = np.interp(limits.further, grid, margins[0]) * deviation
    below = np.interp(limits.further, grid, margins[1]) * deviation
    units, ranked = len(scores), scores[order]
    until, before = np.count_nonzero(ranked >= ranked[0] - margin), np.array([], int)
    while True:
        sizes = np.cumsum(np.diff(segment.starts)[order])
        while sizes[until - 1] < max(limits.least, limits.candidates) and until < units:
            until += 1
        best = np.argsort(np.where(of < until, -keys, np.inf), kind="stable")[:K]
        changed = len(np.setdiff1d(best, before)) > CHANGES * K
        if until == units or (until > MANY * units**limits.further and not changed):
            return until
        twice = min(units, 2 * until + 1)
        close = np.count_nonzero(ranked >= ranked[0] - near)
        most = min(max(close, twice), np.count_nonzero(ranked >= keys[best[-1]] - offset - below))
        if changed:
            most = max(most, min(close, twice))
        if most <= until:
            return until
        until, before = most, best


@pytest.mark.parametrize("effort", [0.02, 0.2, 0.5])
def test_a_search_reads_the_lists_of_the_reference_implementation(index, queries, effort):
    far = {"code_reach": 1e3, "sign_reach": 1e3}  # nothing is left out of lists that are read
    searcher = ListSearcher(index._snapshot.segments)
    limits = Probe(effort).limits(K, depths=searcher.depths)._replace(**far)
    found = [searcher.search(q[None], K, limits)[2][0, 0] for q in queries[0]]
    expected = [lists_read(index, q, limits) for q in queries[0]]
    close = np.isclose(found, expected, rtol=0.05, atol=1)  # kernels round queries
    assert close.mean() > 0.9
    assert len(set(found)) > 3  # each query reads as many as it needs


def test_without_margins_or_further_rounds_all_queries_read_as_many_lists(index, queries):
    searcher = ListSearcher(index._snapshot.segments)
    limits = Probe(0.4).limits(K, depths=searcher.depths)._replace(least=0, candidates=0)
    units = index._snapshot.segments[0].codec.units
    *_, counts = searcher.search(queries[0], K, limits._replace(results=0))
    assert (counts[:, 0] == np.ceil(units**limits.lists)).all()


def gaps_of(index, queries):
    Q, own = queries
    found = read_all(ListSearcher(index._snapshot.segments), Q, own, SERIAL)
    return ListGaps.measure(index._snapshot.segments, Q, found, K)


def test_gaps_are_those_of_the_lists_and_the_results(index, queries):
    Q, own = queries
    (segment,) = index._snapshot.segments
    gaps, found = gaps_of(index, queries), read_all(ListSearcher([segment]), Q, own, SERIAL)
    scores, offset, deviation = list_scores(segment.codec, Q, distances=index.metric != "ip")
    for q in (0, 40, 70):
        best = np.argsort(-found.scores[q], kind="stable")[:K]
        assert own[q] not in found.ids[q, best]
        units = np.searchsorted(segment.starts, segment.position[found.ids[q, best]], "right") - 1
        expected = (scores[q].max() - scores[q, units]) / deviation[q]
        np.testing.assert_allclose(gaps.results[q], expected, atol=1e-4)
        worst = np.sort(found.keys[q])[-K]
        np.testing.assert_allclose(gaps.worst[q], (scores[q].max() - worst + offset[q]) / deviation[q], atol=1e-3)
        np.testing.assert_allclose(gaps.lists[q], np.sort((scores[q].max() - scores[q]) / deviation[q]), atol=1e-4)


def test_margins_find_the_most_for_the_lists_that_are_allowed(index, queries):
    """Compared with pairs of margins that are tried one by one."""
    gaps, own = gaps_of(index, queries), queries[1] >= 0
    units = gaps.lists.shape[1]
    margins = best_margins(gaps, own)
    assert margins.shape == (2, MARGINS)
    assert (np.diff(margins) >= 0).all()

    def finds(margin, below):
        found = (gaps.results <= margin) | (gaps.results - gaps.worst <= below)
        return min(found[own].mean(), found[~own].mean())

    def reads(margin, below):
        read = (gaps.lists <= np.maximum(margin, below + gaps.worst)).sum(axis=1)
        return np.maximum(read, 1)[own].mean()

    margin, below = (
        np.quantile(values[own], np.linspace(0, 1, 200)) for values in (gaps.lists, gaps.lists - gaps.worst)
    )
    for column in (4, 6, 9):
        most = units ** (column / (MARGINS - 1))
        pairs = [(m, b) for m in margin[:60:2] for b in below[:60:2] if reads(m, b) <= most]
        assert reads(*margins[:, column]) <= 1.03 * most
        assert finds(*margins[:, column]) >= max(finds(*pair) for pair in pairs) - 0.03
    assert finds(*margins[:, -1]) == 1


def test_few_queries_unlike_the_collection_have_results_that_are_near(index, queries):
    gaps, own = gaps_of(index, queries), queries[1] >= 0
    near = near_results(gaps, own)
    score = gaps.scores[:, 0]
    assert (score[~own] > near).mean() <= 0.05
    assert near == pytest.approx(max(np.quantile(score[own], 0.2), np.quantile(score[~own], 0.95)), rel=0.1)
    assert near_results(gaps.of(own), own[own]) == pytest.approx(np.quantile(score[own], 0.2), rel=0.1)
    fewer = replace(gaps, scores=np.full_like(gaps.scores, -np.inf))  # than K results
    assert near_results(fewer, own) == NEVER


def test_with_a_graph_queries_whose_results_are_near_read_fewer_lists(index, queries):
    Q = queries[0]
    linked = copy.copy(index)
    linked.link()
    (segment,), graph = linked._snapshot.segments, linked._snapshot.graph
    kept = gaps_of(index, queries).scores[:, 0]

    def lists(near):
        codec = replace(segment.codec, measured=segment.codec.measured._replace(near=near))
        searcher = ListSearcher([replace(segment, codec=codec)], graph=graph)
        limits = searcher.limits(Probe(recall=0.97), K)
        assert limits.lists < limits.further
        return searcher.search(Q, K, limits)[2][:, 0]

    fewest, most = lists(-NEVER), lists(NEVER)
    near = float(np.median(kept))
    found = lists(near)
    assert (found >= fewest).all()
    far = kept < near - 0.1  # in a full read, so in any
    assert (found[far] == most[far]).all()
    assert found[~far].sum() < most[~far].sum()


def test_means_are_queries_without_an_id(index):
    segments = index._snapshot.segments
    Q, own = sample_queries(segments, 100, np.random.default_rng(0))
    assert Q.shape == (200, 48)
    assert (own[:100] >= 0).all()
    assert (own[100:] == -1).all()
    np.testing.assert_allclose(Q[:100], segments[0].reconstruct(np.searchsorted(segments[0].ids, own[:100])))
    if index.metric == "cosine":
        np.testing.assert_allclose(np.linalg.norm(Q[100:], axis=1), 1, atol=1e-5)
    else:
        assert np.square(Q[100:]).sum() < 0.8 * np.square(Q[:100]).sum()  # means are nearer to the mean
