"""Indexes drawn at random: what holds for any vectors, method, metric, removals and filter."""

import tempfile
from dataclasses import dataclass, replace

import numpy as np
from exact_index import METRICS, unmeasured
from faults import TORTURE
from hypothesis import given, settings
from hypothesis import strategies as st
from test_shards import assert_shards_give_the_whole

import logt
from logt._internal.validation import normalize_rows, row_norms
from logt.group_testing.quantize import Int8
from logt.lists.inverted_lists import Probe
from logt.lists.method import Sketched
from logt.lists.segment import ListSegment
from logt.methods import cascaded, compact, dictionary, gt, lo_gt, rnd, sketched, starred

PAPER = (
    *(gt(n=5, m=2), gt(n=5, m=2, inverse=True), rnd(n=10, m=2, L=12, order=0), lo_gt(n=10, m=3, L=None)),
    *(dictionary(n=5, L=4, epochs=1), compact(lo_gt(n=10, m=3, L=12)), lo_gt(n=1, m=1, L=4)),
    cascaded(starred(lo_gt(n=5, m=2, L=12), depth=20), p=0.5, R=20),
)
LISTS = tuple(sketched(bits=bits, L=L, refine=refine) for bits in (1, 4) for L in (1, 4) for refine in (False, True))


@dataclass
class Drawn:
    """An index, queries, and which ids a filter lets pass."""

    index: logt.Index
    Q: np.ndarray
    filter: np.ndarray | None

    @property
    def all_of_it(self):
        """How to search through everything that is kept, without a correction."""
        return {"effort": 1} if isinstance(self.index.method, Sketched) else {"p": 1.0, "correct": False}

    @property
    def allowed(self):
        return np.sort(self.index.ids if self.filter is None else self.filter)

    def search(self, Q, k=None):
        k = len(self.index) if k is None else k
        found = self.index.search(Q, k, filter=self.filter, **self.all_of_it)
        return found.scores[..., : len(self.allowed)], found.ids[..., : len(self.allowed)]


@st.composite
def drawn(draw, methods):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    metric, method = draw(st.sampled_from(METRICS)), draw(st.sampled_from(methods))
    N, dim = draw(st.sampled_from([1, 7, 120, 1100])), draw(st.sampled_from([1, 3, 17, 64]))
    X = rng.standard_normal((8, dim))[rng.integers(0, 8, N)]
    X += draw(st.sampled_from([0, 0.3, 3])) * rng.standard_normal((N, dim)) + draw(st.sampled_from([0, 10]))
    X *= rng.lognormal(0, draw(st.sampled_from([0, 1])), (N, 1))
    if draw(st.booleans()):
        X[rng.integers(0, N, N // 2)] = X[rng.integers(0, N, N // 2)]  # duplicates
    X[rng.random(N) < draw(st.sampled_from([0, 0.2]))] = metric == "cosine"  # zeros, where they are allowed
    X *= draw(st.sampled_from([1e-9, 1, 1e9]))
    X = X.astype(np.float32)
    X[row_norms(X) == 0] = metric == "cosine"
    Q = X[rng.integers(0, N, draw(st.sampled_from([1, 3, 20])))] * np.float32(draw(st.sampled_from([0.5, 1])))
    size = draw(st.sampled_from([None, 500]))
    index, other = (logt.Index(dim, method=method, metric=metric, segment_size=size) for _ in range(2))
    with unmeasured():
        for part in np.array_split(np.arange(N), draw(st.sampled_from([1, 3]))):
            draw(st.sampled_from([index, other])).add(X[part], part)
        index.merge_from(other)
    if N > 1 and draw(st.booleans()):
        index.remove(rng.choice(N, N // 3, replace=False))
    part = draw(st.sampled_from([None, 0.05, 0.6]))
    chosen = None if part is None else rng.choice(index.ids, max(1, int(part * len(index))), replace=False)
    return Drawn(index, Q, chosen)


def exact_scores(index, Q):
    """Return the scores of all vectors (queries, ids) in float64, from what is kept: codes, and norms under l2."""
    metric, scores = index.metric, {}
    Q = normalize_rows(Q, row_norms(Q)).astype(float) if metric == "cosine" else Q.astype(float)
    for segment in index._snapshot.segments:
        rows, lists = np.flatnonzero(segment.live), isinstance(segment, ListSegment)
        X, mean = segment.reconstruct(rows).astype(float), segment.codec.mean.astype(float) if lists else 0
        values = Q @ X.T
        if metric == "l2" or (lists and metric == "cosine"):
            squares = -segment.bias[segment.position[rows]] if lists else np.square(segment.norms[rows].astype(float))
            values = np.square(Q - mean).sum(axis=1)[:, None] - 2 * (Q - mean) @ (X - mean).T + squares
            values = np.maximum(values, 0) if metric == "l2" else 1 - np.maximum(values, 0) / 2
        scores |= dict(zip(segment.ids[rows].tolist(), values.T, strict=True))
    return scores


def scale_of(index, Q):
    """Return what errors of the scores of each query are relative to: by the largest norm of a vector."""
    largest, norms = row_norms(index.reconstruct(index.ids)).max(initial=0), row_norms(Q)[:, None]
    return {"cosine": 1 + 0 * norms, "ip": largest * norms, "l2": (largest + norms) ** 2}[index.metric]


def tolerance(method):
    """Return the error of scores: queries are rounded to bytes, twice with a refinement, or not at all.

    In the last case it is that of a float32 sum, whose terms may be 1e4 times larger than it: memory vectors that are
    nearly dependent have large weights.
    """
    if isinstance(method, Sketched):
        return 1e-3 if method.refine else 0.03
    return 0.03 if isinstance(method.quantize, Int8) else 5e-3


def with_many(methods):
    def decorate(test):
        return settings(max_examples=1000 if TORTURE else 12, deadline=None)(given(drawn(methods))(test))

    return decorate


def check_everything_is_found_with_the_scores_of_what_is_kept(drawn):
    scores, ids = drawn.search(drawn.Q)
    assert (np.sort(ids, axis=1) == drawn.allowed).all()
    exact = exact_scores(drawn.index, drawn.Q)
    expected = np.array([[exact[found][q] for found in row] for q, row in enumerate(ids.tolist())])
    assert (np.abs(scores - expected) <= tolerance(drawn.index.method) * scale_of(drawn.index, drawn.Q)).all()


def check_a_range_has_the_results_of_a_search_for_one_query(drawn):
    q = drawn.Q[0]
    scores, ids = drawn.search(q)
    for threshold in {scores[0].item(), scores[len(scores) // 2].item(), scores[-1].item()}:
        found = drawn.index.range_search(q, threshold, filter=drawn.filter)
        inside = scores <= threshold if drawn.index.metric == "l2" else scores >= threshold
        assert (found.scores == scores[inside]).all()
        expected = dict(zip(ids[inside].tolist(), scores[inside], strict=True))
        assert dict(zip(found.ids.tolist(), found.scores, strict=True)) == expected  # a search orders by more digits


def check_an_opened_index_has_the_same_results(drawn):
    with tempfile.TemporaryDirectory() as folder:
        drawn.index.save(f"{folder}/index")
        opened = replace(drawn, index=logt.open(f"{folder}/index"))
        for found, expected in zip(opened.search(drawn.Q), drawn.search(drawn.Q), strict=True):
            assert (found == expected).all()


@with_many(PAPER)
def test_the_methods_of_the_paper(drawn):
    check_everything_is_found_with_the_scores_of_what_is_kept(drawn)
    check_a_range_has_the_results_of_a_search_for_one_query(drawn)
    check_an_opened_index_has_the_same_results(drawn)
    scores, ids = drawn.search(drawn.Q)
    for k in {1, len(drawn.allowed) // 2 or 1}:
        assert (drawn.search(drawn.Q, k)[1] == ids[:, :k]).all()
    one = drawn.search(drawn.Q[0])[0]  # batches are summed in another order
    assert (np.abs(one - scores[0]) <= tolerance(drawn.index.method) * scale_of(drawn.index, drawn.Q)[0]).all()


@with_many(LISTS)
def test_the_default_index(drawn):
    check_everything_is_found_with_the_scores_of_what_is_kept(drawn)
    check_a_range_has_the_results_of_a_search_for_one_query(drawn)
    check_an_opened_index_has_the_same_results(drawn)
    scores, ids = drawn.search(drawn.Q)
    for q, query in enumerate(drawn.Q):  # to the bit
        one = drawn.search(query)
        assert (one[0] == scores[q]).all()
        assert (one[1] == ids[q]).all()
    segments, k = drawn.index._snapshot.segments, min(10, len(drawn.index))
    Q = normalize_rows(drawn.Q, row_norms(drawn.Q)) if drawn.index.metric == "cosine" else drawn.Q
    for probe in (Probe(nprobe=2), Probe(1.0)):  # these re-rank all candidates
        assert_shards_give_the_whole(segments, [[i] for i in range(len(segments))], Q, k, probe)
    with unmeasured():
        drawn.index.compact()
    assert (drawn.search(drawn.Q)[0] == scores).all()
