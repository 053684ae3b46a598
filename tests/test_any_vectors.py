"""Vectors that no benchmark holds: offsets, norms of all sizes, no clusters; and changes during searches."""

import copy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from exact_index import METRICS, built, nearest, overlap

import logt
from logt import InvalidInputError, _index_base
from logt.methods import compact, lo_gt, rnd, sketched


def clustered(rng, N, dim):
    centres = rng.standard_normal((60, dim))
    return (centres[rng.integers(0, 60, N)] + 0.5 * rng.standard_normal((N, dim))).astype(np.float32)


def recall(index, X, Q, **settings):
    return overlap(index.search(Q, 10, **settings).ids, nearest(X, Q, 10, index.metric))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("offset", [3, 100])
def test_a_common_offset_costs_no_accuracy(rng, metric, offset):
    X, Q = (clustered(rng, count, 64) + np.float32(offset) for count in (2000, 50))
    assert recall(built(X, metric=metric), X, Q, effort=1) > 0.9


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dim", [1, 24])
@pytest.mark.parametrize("method", [sketched(), sketched(bits=1, refine=False)], ids=["default", "one bit"])
def test_equal_vectors_are_found_by_any_query(rng, metric, dim, method):
    index = built(np.ones((1200, dim), np.float32), metric=metric, method=method)  # nothing is left to encode
    Q = np.concatenate([np.eye(1, dim), np.ones((1, dim)), -np.ones((1, dim)), rng.standard_normal((9, dim))])
    assert (np.sort(index.search(Q, 1200, effort=1).ids) == np.arange(1200)).all()
    for q in Q:
        assert (np.sort(index.search(q, 1200, effort=1).ids) == np.arange(1200)).all()


@pytest.mark.parametrize(
    ("metric", "norms", "query_norm"),
    [
        ("l2", lambda rng: rng.uniform(0.2, 3, (4000, 1)), 0.05),  # by direction alone, wrong lists would be probed
        ("ip", lambda rng: rng.lognormal(0, 1, (4000, 1)), 1),
    ],
)
def test_vectors_of_all_norms_are_found(rng, metric, norms, query_norm):
    X = (clustered(rng, 4000, 32) * norms(rng)).astype(np.float32)
    Q = clustered(rng, 60, 32) * np.float32(query_norm)
    assert recall(built(X, metric=metric), X, Q, effort=0.3) > 0.85


two_methods = pytest.mark.parametrize(
    "method", [sketched(), compact(lo_gt(n=10, m=3, L=12))], ids=["default", "LO-GT in bytes"]
)


@two_methods
def test_under_cosine_the_smallest_numbers_are_vectors_like_others(method, rng):
    X = rng.standard_normal((300, 16)).astype(np.float32)
    index = built(X * np.float32(1e-42), method=method)
    found = index.search(X[:20] * np.float32(1e-42), 5)
    assert np.isfinite(found.scores).all()
    assert np.mean(found.ids[:, 0] == np.arange(20)) > 0.9
    index.add(np.eye(16))
    assert np.isfinite(index.search(np.eye(16), 3).scores).all()


@two_methods
@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("exponent", [-49, 56])  # norms of 2e-15 and of 2e17
def test_a_scale_that_is_a_power_of_two_changes_no_result(rng, metric, method, exponent):
    X = clustered(rng, 1300, 300) * np.linspace(1, 0.01, 300)
    X = (X / np.linalg.norm(X, axis=1).min()).astype(np.float32)
    Q, scale = X[1250:], np.float32(2.0**exponent)
    one, other = (built(X[:1250] * factor, metric=metric, method=method) for factor in (1, scale))
    for effort in (0.4, 1):
        found, expected = other.search(Q * scale, 20, effort=effort), one.search(Q, 20, effort=effort)
        assert (found.ids == expected.ids).all()
        assert (found.scores == expected.scores * scale * scale).all()
    assert recall(other, X[:1250] * scale, Q * scale, effort=1) > 0.5


@contextmanager
def repeated(*calls):
    """Repeat some calls, each in a thread of its own; what they raise is raised at the end."""
    stop = threading.Event()

    def repeat(call):
        while not stop.wait(1e-4):  # or other threads wait for these at each step
            call()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            running = [pool.submit(repeat, call) for call in calls]
            try:
                yield
            finally:
                stop.set()
            for future in running:
                future.result()
    finally:
        sys.setswitchinterval(interval)


def test_searches_during_refresh_see_one_state(tmp_path, rng):
    """A refresh to another method changes method and vectors at once."""
    first, second = (built(rng.standard_normal((200, 8)), method=method) for method in (None, rnd(n=5, m=2, L=4)))
    first.save(tmp_path / "index")
    reader, q = logt.open(tmp_path / "index"), rng.standard_normal(8)
    with repeated(lambda: reader.search(q, 3), reader.report):
        for number in range(10):
            copy.copy(second if number % 2 == 0 else first).save(tmp_path / "index", overwrite=True)
            reader.refresh()


def test_searches_run_while_vectors_are_added(rng):
    X = rng.standard_normal((300, 16))
    index, found = built(X[:100], method=rnd(n=10, m=3, L=12)), []
    with repeated(*2 * [lambda: found.append(index.search(X[:20], 10).ids)]):
        for part in np.split(X[100:], 4):
            index.add(part)
    assert all(((ids >= 0) & (ids < 300)).all() for ids in found)
    assert len(index) == 300


@pytest.mark.parametrize("rerank", [None, "diffusion"])
def test_a_search_reads_method_and_vectors_together(rng, rerank):
    """A refresh to another method may come between any two steps of a search."""
    first, second = (built(rng.standard_normal((50, 8)), method=method) for method in (None, rnd(n=5, m=2, L=4)))
    for index in (first, second):
        index.link(5)

    class Refreshed(logt.Index):
        reads = 0

        @property
        def _state(self):
            self.reads += 1
            return self._first if self.reads == 1 else self._second

        @_state.setter
        def _state(self, state):
            pass

    index = Refreshed(8)
    index._first, index._second = first._state, second._state
    index.reads = 0
    Q = rng.standard_normal((2, 8))
    found, expected = index.search(Q, 5, rerank=rerank), first.search(Q, 5, rerank=rerank)
    assert index.reads == 1
    assert found.ids.tolist() == expected.ids.tolist()


def test_reports_during_searches_with_any_p(rng):
    """Each p has a cached prefix of the codes, and a report counts the bytes of all of them."""
    index = built(rng.standard_normal((200, 8)), method=rnd(n=5, m=2, L=4))
    q, reports = rng.standard_normal(8), []
    with repeated(*2 * [lambda: reports.append(index.report()["bytes by part"]["prefixes"])]):
        for p in np.linspace(0.1, 0.9, 100):
            index.search(q, 3, p=p)
    assert max(reports) > 0


@pytest.mark.parametrize("method", [sketched(), rnd(n=5, m=2, L=4)], ids=["default", "RND"])
def test_more_rows_than_a_segment_can_have_are_refused(rng, monkeypatch, method):
    """Rows have numbers of 32 bits."""
    assert _index_base.MAX_ROWS == 2**31 - 1
    monkeypatch.setattr(_index_base, "MAX_ROWS", 100)
    index = logt.Index(8, method=method, segment_size=None)
    index.add(rng.standard_normal((100, 8)))
    with pytest.raises(InvalidInputError, match="at most 100 vectors: pass a segment_size; nothing was added"):
        index.add(rng.standard_normal((101, 8)))
    assert len(index) == 100
    split = logt.Index(8, method=method, segment_size=100)
    split.add(rng.standard_normal((250, 8)))
    assert len(split) == 250


def test_an_index_that_was_replaced_by_another_of_the_same_generation_is_noticed(tmp_path, rng):
    for name, count in (("old", 20), ("new", 30)):
        built(rng.standard_normal((count, 8))).save(tmp_path / name)
    reader = logt.open(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "away")
    (tmp_path / "new").rename(tmp_path / "old")
    assert reader.refresh()
    assert len(reader) == 30


@pytest.mark.parametrize(("metric", "first"), [("cosine", 600), ("l2", 2500)])
def test_small_batches_of_other_vectors_are_found_too(metric, first):
    """Each is too small to show that the codec does not fit; together they get one of their own."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2, 30, 64))

    def sample(kind, n):
        X = centres[kind, rng.integers(0, 30, n)] + 0.5 * rng.standard_normal((n, 64)) + 2 * kind
        return X.astype(np.float32)

    parts = [sample(0, first), *(sample(1, 60) for _ in range(18))]
    index = logt.Index(64, metric=metric)
    for part in parts:
        index.add(part)
    X, Q = np.concatenate(parts), sample(1, 100)
    assert recall(index, X, Q) >= 0.9
    assert recall(index, X, Q, recall=0.99) >= 0.95
    assert recall(index, X, Q, effort=1) >= 0.97
    assert len({id(segment.codec) for segment in index._snapshot.segments}) == 2
