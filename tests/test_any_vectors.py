"""Vectors that no benchmark holds: offsets, norms of all sizes, no clusters, and odd arguments."""

from __future__ import annotations

import copy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import logt
from logt import InvalidInputError
from logt import _index_base as building
from logt._internal.params import MAX_K
from logt.methods import compact, lo_gt, rnd, sketched


def clustered(rng, N, dim):
    centres = rng.standard_normal((60, dim))
    return centres[rng.integers(0, 60, N)] + 0.5 * rng.standard_normal((N, dim))


def exact_neighbors(X, Q, metric, k=10):
    X, Q = X.astype(float), Q.astype(float)
    if metric == "l2":
        scores = 2 * Q @ X.T - np.square(X).sum(axis=1)
    else:
        scores = Q @ X.T if metric == "ip" else Q @ (X / np.linalg.norm(X, axis=1, keepdims=True)).T
    return np.argsort(-scores, axis=1)[:, :k]


def recall(index, X, Q, metric, **settings):
    found, exact = index.search(Q, 10, **settings).ids, exact_neighbors(X, Q, metric)
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)])


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("offset", [0, 3, 30, 100])
def test_a_common_offset_costs_no_accuracy(rng, metric, offset):
    X = (clustered(rng, 5000, 64) + offset).astype(np.float32)
    Q = (clustered(rng, 50, 64) + offset).astype(np.float32)
    index = logt.Index(64, metric=metric)
    index.add(X)
    assert recall(index, X, Q, metric, effort=1) > 0.9


def test_lists_are_probed_by_distance_under_l2(rng):
    """Queries near the origin: by direction alone, wrong lists would be probed."""
    X = (clustered(rng, 8000, 32) * rng.uniform(0.2, 3, (8000, 1))).astype(np.float32)
    Q = (0.1 * rng.standard_normal((60, 32))).astype(np.float32)
    index = logt.Index(32, metric="l2")
    index.add(X)
    assert recall(index, X, Q, "l2", effort=0.3) > 0.85


def test_norms_of_all_sizes_are_found_by_inner_product(rng):
    X = (clustered(rng, 8000, 32) * rng.lognormal(0, 1, (8000, 1))).astype(np.float32)
    Q = clustered(rng, 60, 32).astype(np.float32)
    index = logt.Index(32, metric="ip")
    index.add(X)
    assert recall(index, X, Q, "ip", effort=0.3) > 0.85


def test_vectors_next_to_zero_are_refused_or_right(rng):
    X = np.full((3, 8), 1e-42, np.float32)
    for metric in ("l2", "ip", "cosine"):
        index = logt.Index(8, metric=metric)
        index.add(np.concatenate([X, np.eye(8, dtype=np.float32)]))
        assert np.isfinite(index.search(np.eye(8), 3).scores).all()


def test_huge_k_is_refused_by_name(rng):
    index = logt.Index(4)
    index.add(np.eye(4))
    with pytest.raises(InvalidInputError, match="k must be at most"):
        index.search(np.ones(4), MAX_K + 1)


def test_a_list_of_numpy_booleans_is_a_mask(rng):
    index = logt.Index(4)
    index.add(np.eye(4))
    mask = [np.bool_(True), np.bool_(False), np.bool_(True), np.bool_(False)]
    assert set(index.search(np.ones(4), 2, filter=mask).ids.tolist()) == {0, 2}


def test_searches_during_refresh_see_one_state(tmp_path, rng):
    """A refresh to another method changes method and vectors at once."""
    first, second = logt.Index(8), logt.Index(8, method=logt.methods.rnd(n=5, m=2, L=4))
    for index in (first, second):
        index.add(rng.standard_normal((200, 8)))
    first.save(tmp_path / "index")
    reader = logt.open(tmp_path / "index")
    errors: list[BaseException] = []
    stop = threading.Event()

    def work(call):
        while not stop.is_set():
            try:
                call()
            except BaseException as error:
                errors.append(error)
                return
            stop.wait(1e-4)  # or the program that saves waits for both threads at each file

    q = rng.standard_normal(8)
    threads = [threading.Thread(target=work, args=[call]) for call in (lambda: reader.search(q, 3), reader.report)]
    for thread in threads:
        thread.start()
    for number in range(20):
        copy.copy(second if number % 2 == 0 else first).save(tmp_path / "index")  # as another program would
        reader.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("rerank", [None, "diffusion"])
def test_a_search_reads_method_and_vectors_together(rng, rerank):
    """A refresh to another method may come between any two steps of a search."""
    first, second = logt.Index(8), logt.Index(8, method=rnd(n=5, m=2, L=4))
    for index in (first, second):
        index.add(rng.standard_normal((50, 8)))
        index.link(5)

    class Refreshed(logt.Index):
        reads = 0

        @property
        def _state(self):
            self.reads += 1
            return self._first if self.reads == 1 else self._second

        @_state.setter
        def _state(self, contents):
            pass

    index = Refreshed(8)
    index._first, index._second = first._state, second._state
    index.reads = 0
    q = rng.standard_normal(8)
    found, expected = index.search(q, 5, rerank=rerank), first.search(q, 5, rerank=rerank)
    assert index.reads == 1
    assert found.ids.tolist() == expected.ids.tolist()


def test_reports_during_searches_with_any_p(rng):
    """Each p has a cached prefix of the codes, and a report counts the bytes of all of them."""
    index = logt.Index(8, method=rnd(n=5, m=2, L=4))
    index.add(rng.standard_normal((200, 8)))
    q, done, reports = rng.standard_normal(8), threading.Event(), []

    def look():
        while not done.is_set():
            reports.append(index.report()["bytes by part"]["prefixes"])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool:
            looking = [pool.submit(look) for _ in range(2)]
            pool.submit(lambda: [index.search(q, 3, p=p) for p in np.linspace(0.1, 0.9, 300)]).result()
            done.set()
            for future in looking:
                future.result()
    finally:
        done.set()
        sys.setswitchinterval(interval)
    assert max(reports) > 0


def test_more_rows_than_a_segment_can_have_are_refused(rng, monkeypatch):
    """Rows have numbers of 32 bits."""
    assert building.MAX_ROWS == 2**31 - 1
    monkeypatch.setattr(building, "MAX_ROWS", 100)
    for method in (sketched(), rnd(n=5, m=2, L=4)):
        index = logt.Index(8, method=method, segment_size=None)
        index.add(rng.standard_normal((100, 8)))
        with pytest.raises(InvalidInputError, match="at most 100 vectors: pass a segment_size; nothing was added"):
            index.add(rng.standard_normal((101, 8)))
        assert len(index) == 100
        split = logt.Index(8, method=method, segment_size=100)
        split.add(rng.standard_normal((250, 8)))
        assert len(split) == 250


def test_an_index_that_was_replaced_by_another_of_the_same_generation_is_noticed(tmp_path, rng):
    for name in ("old", "new"):
        index = logt.Index(8)
        index.add(rng.standard_normal((20 if name == "old" else 30, 8)))
        index.save(tmp_path / name)
    reader = logt.open(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "away")
    (tmp_path / "new").rename(tmp_path / "old")
    assert reader.refresh()
    assert len(reader) == 30


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("method", [sketched(), compact(lo_gt(n=10, m=3, L=12))], ids=["default", "LO-GT in bytes"])
def test_the_smallest_numbers_are_vectors_like_others(metric, method, rng):
    X = rng.standard_normal((300, 16)).astype(np.float32)
    index = logt.Index(16, metric=metric, method=method)
    index.add(X * np.float32(1e-42))
    found = index.search(X[:20] * np.float32(1e-42), 5)
    assert np.isfinite(found.scores).all()
    assert (found.ids >= 0).all()
    if metric == "cosine":
        assert np.mean(found.ids[:, 0] == np.arange(20)) > 0.9


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("first", [600, 2500])
def test_small_batches_of_other_vectors_are_found_too(metric, first):
    """Each is too small to show that the codec does not fit; together they get one of their own."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2, 30, 64))

    def sample(kind, n):
        X = centres[kind, rng.integers(0, 30, n)] + 0.5 * rng.standard_normal((n, 64)) + 2 * kind
        return X.astype(np.float32)

    parts = [sample(0, first), *(sample(1, 40) for _ in range(40))]
    index = logt.Index(64, metric=metric)
    for part in parts:
        index.add(part)
    X, Q = np.concatenate(parts), sample(1, 100)
    assert recall(index, X, Q, metric) >= 0.9
    assert recall(index, X, Q, metric, recall=0.99) >= 0.95
    assert recall(index, X, Q, metric, effort=1) >= 0.97
    assert len({id(segment.codec) for segment in index._snapshot.segments}) == 2
