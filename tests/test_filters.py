"""Filters and range searches: which vectors can be found, and how much memory that takes."""

import tracemalloc

import numpy as np
import pytest
from exact_index import EXACT, METRICS, assert_same, built

from logt import InvalidInputError
from logt.group_testing import search as decode_search
from logt.lists import search as list_search
from logt.methods import cascaded, rnd


@pytest.fixture(params=METRICS)
def index(request, vectors):
    X = vectors(40, 8) * np.linspace(1, 3, 40, dtype=np.float32)[:, None]
    return built(X, method=EXACT, metric=request.param, segment_size=15)


@pytest.mark.parametrize("kind", ["ids", "mask", "function"])
def test_filters_of_every_kind_pass_the_same_vectors(index, vectors, kind):
    index.remove([8])
    even = {
        "ids": np.arange(0, 60, 2),
        "mask": index.ids % 2 == 0,
        "function": lambda ids: ids % 2 == 0,
    }[kind]
    Q = vectors(5, 8, seed=2)
    none = {"ids": [], "mask": np.zeros(39, bool), "function": lambda ids: np.zeros(len(ids), bool)}[kind]
    assert (index.search(Q, 3, filter=none).ids == -1).all()
    found = index.search(Q, 40, filter=even).ids
    assert set(found.ravel().tolist()) == set(range(0, 40, 2)) - {8} | {-1}
    every = index.search(Q, 40).ids
    for mine, whole in zip(found, every, strict=True):
        assert mine[mine >= 0].tolist() == [i for i in whole.tolist() if i >= 0 and i % 2 == 0]


def test_a_narrow_filter_is_decoded_in_full(vectors):
    X, Q = vectors(500, 32), vectors(6, 32, seed=1)
    made = built(X, method=cascaded(rnd(n=20, m=3, L=20), p=0.2, R=30))
    allowed = np.arange(0, 500, 20)
    assert (made.search(Q, 25, filter=allowed).ids == made.search(Q, 25, filter=allowed, p=1.0).ids).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.ones(5, bool), r"shape \(5,\), but there are 40"),
        (lambda ids: ids, "must return a mask"),
        (lambda ids: True, "must return a mask"),
        ([0.5], "integers"),
        ("text", "integers"),
    ],
)
def test_wrong_filters_are_named(index, wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        index.search(np.ones(8), 3, filter=wrong)


def test_range_search_finds_all_that_score_enough(index, vectors):
    index.remove([2])
    Q = vectors(20, 8, seed=2)
    scores, ids = index.search(Q, 39)
    threshold = float(np.median(scores))
    found = index.range_search(Q, threshold)
    assert found.limits.shape == (21,)
    for q in range(20):
        part = slice(found.limits[q], found.limits[q + 1])
        enough = scores[q] <= threshold if index.metric == "l2" else scores[q] >= threshold
        assert found.ids[part].tolist() == ids[q][enough].tolist()
        assert np.allclose(found.scores[part], scores[q][enough], atol=1e-6)
    assert len(index.range_search(np.empty((0, 8)), 0).ids) == 0


@pytest.fixture(scope="module", params=METRICS)
def listed(request, vectors):
    """3000 vectors in lists, without two."""
    made = built(vectors(3000, 16), metric=request.param, segment_size=1500)
    made.remove([300, 301])
    return made


@pytest.mark.parametrize(("kind", "share"), [("ids", 90), ("ids", 1), ("mask", 1), ("function", 90)])
def test_a_range_search_passes_a_wide_and_a_narrow_filter(listed, vectors, kind, share):
    """A narrow filter is searched row by row, a wide one list by list."""
    made, metric = listed, listed.metric
    allowed = {
        "ids": [i for i in range(4000) if i % 100 < share],
        "mask": made.ids % 100 < share,
        "function": lambda ids: ids % 100 < share,
    }[kind]
    everything = 1e9 if metric == "l2" else -1e9
    found = made.range_search(vectors(2, 16, seed=1), everything, filter=allowed)
    wanted = [i for i in range(3000) if i % 100 < share and i not in (300, 301)]
    for q in range(2):
        part = slice(found.limits[q], found.limits[q + 1])
        assert sorted(found.ids[part].tolist()) == wanted
    complete = made.range_search(vectors(2, 16, seed=1), everything)
    scores = dict(zip(complete.ids[: complete.limits[1]].tolist(), complete.scores, strict=False))
    first = slice(0, found.limits[1])
    assert found.scores[first].tolist() == [scores[i] for i in found.ids[first].tolist()]


@pytest.mark.parametrize("method", [None, rnd(n=10, m=2, L=8)], ids=["default", "RND"])
def test_a_range_search_holds_the_scores_of_one_block_at_a_time(vectors, monkeypatch, method):
    """The memory depends on the block and on the results, not on the number of vectors."""
    made = built(vectors(20_000, 16), method=method, segment_size=None)
    query = vectors(1, 16)
    expected = made.range_search(query, 0.5)
    for module in (list_search, decode_search):
        monkeypatch.setattr(module, "_BLOCK", 500)
    tracemalloc.start()
    found = made.range_search(query, 0.5, threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_same(found, expected)
    assert peak < 10 * 20_000 + 40 * len(found.ids)


@pytest.mark.parametrize("count", [300, 3000])  # without and with lists
def test_no_cosine_is_above_1(vectors, count):
    X = vectors(count, 64)
    made = built(X)
    best = [made.search(X[row], 1, effort=1).scores[0] for row in range(100)]
    assert 1 in best  # estimates above 1 are 1
    assert max(best) == 1
    assert made.search(X[:100], 1, effort=1).scores.max() == 1
    assert made.range_search(X[:100], 0.9).scores.max() == 1


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", None])
def test_columns_of_other_libraries_are_masks(index, library):
    mask = list(index.ids % 2 == 0)
    column = tuple(mask)
    if library:
        module = pytest.importorskip(library)
        column = module.array(mask) if library == "pyarrow" else module.Series(mask)
    found = index.search(np.ones(8), 40, filter=column).ids
    assert set(found.tolist()) == {*range(0, 40, 2), -1}


def test_a_mask_of_integers_is_refused(index):
    with pytest.raises(InvalidInputError, match="pass a mask of bool"):
        index.search(np.ones(index.dim), filter=(index.ids % 2).tolist())


def test_a_mask_with_missing_values_is_refused(index):
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(InvalidInputError, match="missing values"):
        index.search(np.ones(8), 3, filter=pyarrow.array([None] + 39 * [True]))
