"""Filters that are prepared once for several searches, and which vectors a filter searches completely."""

import numpy as np
import pytest
from exact_index import METRICS, assert_same, built

import logt
from logt import InvalidInputError
from logt.lists.visible import COMPLETE, VisibleRows
from logt.methods import rnd

N = 3000
WIDEST = int(COMPLETE * N**0.5)  # of filters that are searched completely


@pytest.fixture(scope="module", params=METRICS)
def index(request, vectors):
    made = built(vectors(N, 16), metric=request.param)
    made.remove([300, 301])
    return made


@pytest.mark.parametrize("count", [40, WIDEST, N - 100])
@pytest.mark.parametrize("kind", ["ids", "mask", "function"])
def test_a_prepared_filter_finds_what_the_filter_finds(index, vectors, kind, count):
    given = {"ids": np.arange(count), "mask": index.ids < count, "function": lambda ids: ids < count}[kind]
    prepared, Q = index.prepare(given), vectors(20, 16, seed=1)
    assert len(prepared) == np.count_nonzero(index.ids < count)
    assert_same(index.search(Q, 50, filter=prepared), index.search(Q, 50, filter=given))
    for q in Q[:3]:  # the second search of one query is repeated in one call
        assert_same(index.search(q, 5, filter=prepared), index.search(q, 5, filter=given))
    worst = 40 if index.metric == "l2" else 0.1
    assert_same(index.range_search(Q, worst, filter=prepared), index.range_search(Q, worst, filter=given))


def test_a_filter_is_searched_completely_up_to_a_number_of_vectors(index, vectors):
    """Each of the vectors is read, whatever the effort; the results are those of a full read."""
    Q = vectors(50, 16, seed=1)
    few, more = np.arange(WIDEST), np.arange(WIDEST + 400)
    found = index.search(Q, 10, filter=few, effort=0)
    assert (found.effort == 1).all()
    assert (found.ids == index.search(Q, 10, filter=few, effort=1).ids).mean() > 0.99
    assert (index.search(Q, 10, filter=more, effort=0).effort < 0.5).all()


@pytest.mark.parametrize("count", [100, N - 300])
def test_a_filtered_search_agrees_with_the_scores_of_all_vectors(index, vectors, count):
    """Codes that are copied, and codes behind a mask, give the scores of a range search without a filter."""
    passing, Q = np.random.default_rng(0).choice(N, count, replace=False), vectors(5, 16, seed=2)
    everything = 1e9 if index.metric == "l2" else -1e9
    limits, scores, ids = index.range_search(Q, everything)
    found = index.search(Q, 10, filter=passing, effort=1)
    for q in range(len(Q)):
        part = slice(limits[q], limits[q + 1])
        inside = np.isin(ids[part], passing)
        assert found.ids[q].tolist() == ids[part][inside][:10].tolist()
        assert np.allclose(found.scores[q], scores[part][inside][:10], atol=1e-5)


def test_a_prepared_filter_keeps_a_copy_and_belongs_to_one_state(index, vectors):
    Q, mask = vectors(4, 16, seed=1), np.arange(N - 2) < 100
    prepared = index.prepare(mask)
    before = index.search(Q, 5, filter=prepared)
    mask[:] = False
    assert_same(index.search(Q, 5, filter=prepared), before)
    assert repr(prepared) == "PreparedFilter(100 of 2,998 vectors)"
    other = built(vectors(50, 16), metric=index.metric)
    for call in (other.search, other.range_search):
        with pytest.raises(InvalidInputError, match="prepare it again"):
            call(Q[0], 5, filter=prepared)
    mine = other.prepare([1, 2])
    assert other.search(Q[0], 1, filter=mine).ids[0] in (1, 2)
    other.add(vectors(1, 16))
    with pytest.raises(InvalidInputError, match="prepare it again"):
        other.search(Q[0], 1, filter=mine)
    with pytest.raises(InvalidInputError, match="got None"):
        other.prepare(None)


def test_prepared_filters_of_string_ids_items_and_diffusion(vectors):
    X = vectors(60, 8)
    made = logt.Index(8)
    made.add(X, ids=[f"photo {i}" for i in range(60)], items=[f"series {i // 3}" for i in range(60)])
    made.link(5)
    given = [f"photo {i}" for i in range(0, 60, 2)]
    prepared = made.prepare(given)
    for settings in ({}, {"by": "item"}, {"rerank": "diffusion"}):
        found, expected = (made.search(X[0], 5, filter=f, **settings) for f in (prepared, given))
        assert found.ids.tolist() == expected.ids.tolist()
        assert set(found.ids.tolist()) <= {*given, None}


def test_methods_of_the_paper_prepare_filters(vectors):
    X, Q = vectors(200, 16), vectors(3, 16, seed=1)
    made = built(X, method=rnd(n=10, m=2, L=8))
    assert_same(made.search(Q, 5, filter=made.prepare(range(50))), made.search(Q, 5, filter=range(50)))


def test_ids_are_found_whether_they_are_consecutive_or_not(vectors):
    X = vectors(30, 8)
    for ids in (np.arange(5, 35), np.arange(5, 65, 2), np.arange(30) + (1 << 62)):
        made = built(X, ids)
        made.remove(ids[3:4])
        (segment,) = made._state.snapshot.segments
        asked = np.concatenate([ids, ids - 1, ids + 1, [-(1 << 63), -1, 0, (1 << 63) - 1]])
        rows, here = segment.locate(asked)
        live = dict(zip(ids.tolist(), range(30), strict=True))
        del live[int(ids[3])]
        assert here.tolist() == [i in live for i in asked.tolist()]
        assert rows[here].tolist() == [live[i] for i in asked.tolist() if i in live]
        assert len(VisibleRows.of(segment, None).row) == 30
