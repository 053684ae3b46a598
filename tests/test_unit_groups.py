"""Groups of units: searches that compare a query with the groups first, against naive ones."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import reference
from exact_index import unmeasured

import logt
from logt.lists.codec import Codec
from logt.lists.inverted_lists import CandidateDepths, Probe, ScanLimits
from logt.lists.search import ListSearcher
from logt.lists.unit_groups import MIN_GROUPED, group_units
from logt.methods import sketched

FAR = 1e6  # deviations: nothing is skipped
N, DIM, UNITS = 4000, 512, 3000  # so many units that comparing a query with all of them would take longer


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    near = rng.standard_normal((40, DIM), np.float32)[rng.integers(0, 40, N + 20)]
    return near + 0.8 * rng.standard_normal((N + 20, DIM), np.float32)


@pytest.fixture(scope="module")
def index(vectors):
    with unmeasured():
        index = logt.Index(DIM, method=sketched(units=UNITS), metric="l2")
        index.add(vectors[:N])
        index.link(12)
    return index


def first(nprobe, candidates=30, beam=0):
    return ScanLimits(0, nprobe, 0, FAR, FAR, FAR, candidates, beam, everything=False)


def test_each_unit_is_in_one_group(segment):
    starts = segment.codec.group_starts
    assert starts[0] == 0
    assert starts[-1] == segment.codec.units == UNITS
    assert (np.diff(starts) > 0).all()
    assert 80 < segment.codec.groups <= 110


def test_units_of_one_group_are_near_each_other(vectors):
    order, starts = group_units(vectors[:1000])
    V = vectors[order]
    within = np.mean([np.var(V[a:b], axis=0).sum() for a, b in itertools.pairwise(starts)])
    assert sorted(order) == list(range(1000))
    assert within < 0.7 * np.var(V, axis=0).sum()


def test_few_units_have_no_groups(vectors):
    order, starts = group_units(vectors[: MIN_GROUPED - 1])
    assert order.tolist() == list(range(MIN_GROUPED - 1))
    assert starts.tolist() == [0]


@pytest.mark.parametrize("nprobe", [1, 3])
def test_the_best_lists_of_the_best_groups_are_read_first(isa, segment, vectors, nprobe):
    assert reference.near_units(segment.codec, nprobe)
    for q in vectors[N : N + 5]:
        rows = np.sort(reference.first_lists(segment, q, nprobe))
        _, ids, counts = ListSearcher([segment]).search(q[None], len(rows), first(nprobe, len(rows)))
        assert np.sort(ids[0]).tolist() == rows.tolist()
        assert counts[0, 0] <= nprobe


def test_after_the_best_groups_all_other_lists_are_read(isa, segment, vectors):
    _, ids, _ = ListSearcher([segment]).search(vectors[N:], N, first(1, N))
    assert (np.sort(ids, axis=1) == np.arange(N)).all()


@pytest.mark.parametrize("beam", [0, 20])
def test_scores_do_not_depend_on_which_units_were_compared(isa, index, segment, decoded, vectors, beam):
    """Products that a code needs are computed then; a batch may have computed all of them."""
    searcher = ListSearcher([segment], graph=index._snapshot.graph)
    scores, ids, counts = searcher.search(vectors[N:], 10, first(2, beam=beam))
    for i, q in enumerate(vectors[N:]):
        alone = searcher.search(q[None], 10, first(2, beam=beam))
        for of_batch, of_one in zip((scores, ids, counts), alone, strict=True):
            np.testing.assert_array_equal(of_batch[i], of_one[0])
        found = ids[i][ids[i] >= 0]
        np.testing.assert_allclose(
            scores[i][: len(found)], reference.list_scores(segment, decoded, q)[found], rtol=1e-3
        )


def test_narrow_filters_and_small_segments_compute_what_they_need(isa, segment, decoded, vectors):
    chosen = np.arange(0, N, 100)
    scores, ids, _ = ListSearcher([segment], [chosen]).search(vectors[N:], 10, first(1))
    for i, q in enumerate(vectors[N:]):
        exact = reference.list_scores(segment, decoded, q)[chosen]
        np.testing.assert_allclose(scores[i], np.sort(exact)[::-1][:10], rtol=1e-3)
        assert np.isin(ids[i], chosen).all()


def test_groups_find_nearly_what_all_units_find(segment, vectors):
    whole = replace(
        segment.codec,
        **{name: getattr(segment.codec, name)[:UNITS] for name in ("book", "book_scale", "list_weight", "list_bias")},
        group_starts=np.zeros(1, np.int64),
    )
    limits = Probe(0.3).limits(10, depths=CandidateDepths())
    grouped, every = (
        ListSearcher([replace(segment, codec=codec)]).search(vectors[N:], 10, limits)[1]
        for codec in (segment.codec, whole)
    )
    assert np.mean([len(set(a) & set(b)) for a, b in zip(grouped.tolist(), every.tolist(), strict=True)]) > 9


@pytest.mark.parametrize("starts", [[], [1], [0, 5], [0, 9, 9, UNITS], [0, 9, 5, UNITS], [0, UNITS, UNITS + 1]])
def test_impossible_groups_are_refused(segment, starts):
    arrays = {**segment.codec.arrays, "group_starts": np.array(starts, np.int64)}
    with pytest.raises(ValueError, match=r"groups|memory vectors"):
        Codec.from_arrays(arrays)
