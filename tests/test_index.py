from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logt
from logt import InvalidInputError
from logt.engine import costs
from logt.methods import cascaded, compact, gt, lo_gt, quantized, rnd, sketched, starred
from logt.stages.decoder import Sparse
from logt.stages.grouping import Random
from logt.stages.memory_vectors import Pinv
from logt.stages.quantize import Float32

SMALL = rnd(n=10, m=3, L=12)
EXACT = logt.Method(Random(4, 4), Pinv(), Float32(), Sparse(64, "free", weights="float32"))

METHODS = {
    "RND": rnd(n=10, m=3, L=12),
    "RND*": starred(rnd(n=10, m=3, L=12)),
    "RND order 0": rnd(n=10, m=3, L=None, order=0),
    "RND order 1": rnd(n=10, m=3, L=None),
    "LO-GT": lo_gt(n=10, m=3, L=12),
    "LO-GT*": starred(lo_gt(n=10, m=3, L=12)),
    "LO-GT* order 0": starred(lo_gt(n=10, m=3, L=None, order=0)),
    "LO-GT* cascade": cascaded(starred(lo_gt(n=10, m=3, L=12)), p=0.5, R=20),
    "LO-GT* bytes": compact(starred(lo_gt(n=10, m=3, L=12))),
    "LO-GT PQ": quantized(lo_gt(n=10, m=3, L=12), c=8),
    "LO-GT PQ, U from Y": quantized(lo_gt(n=10, m=3, L=12), c=8, fit="exact"),
    "sketched": sketched(),
    "sketched, 1 bit": sketched(bits=1, L=8),
    "GT": gt(n=10, m=3),
    "GT pinv": gt(n=10, m=3, inverse=True),
}


@pytest.fixture(params=METHODS)
def method(request):
    if "PQ" in request.param:
        pytest.importorskip("faiss")
    return METHODS[request.param]


@pytest.fixture
def index(vectors):
    """Nine dimensions, exact enough to know the results: 30 vectors with ids 100, 101, …"""
    made = logt.Index(8, method=EXACT, seed=1)
    made.add(vectors(30, 8), ids=np.arange(100, 130))
    return made


# ------------------------------------------------------------------------- one behaviour suite for every method


def test_a_vector_ranks_above_unrelated_ones(vectors, method):
    X = vectors(400, 64)
    made = logt.Index(64, method=method)
    made.add(X)
    scores, ids = made.search(X[:50], 400)
    own = np.array([np.flatnonzero(ids[i] == i)[0] for i in range(50)])
    assert own.mean() < (100 if "Transpose" in repr(method) or "Pinv()" in repr(method) else 60)
    assert (np.sort(ids, axis=1) == np.arange(400)).all()
    assert np.isfinite(scores).all()


def test_saving_and_opening_changes_nothing(vectors, method, tmp_path):
    X, Q = vectors(300, 32), vectors(5, 32, seed=1)
    made = logt.Index(32, method=method, segment_size=150)
    made.add(X)
    made.save(tmp_path / "index")
    opened = logt.open(tmp_path / "index")
    assert opened.method == method
    assert len(opened) == 300
    assert dict(opened.report()) == dict(made.report())
    for mine, theirs in zip(made.search(Q, 20), opened.search(Q, 20), strict=True):
        assert (mine == theirs).all()


def test_threads_and_runs_make_the_same_bytes(vectors, method, tmp_path):
    X = vectors(700, 32)
    for name, threads in {"a": 1, "b": 2, "c": 4, "d": 1}.items():
        made = logt.Index(32, method=method, segment_size=300, threads=threads, seed=3)
        made.add(X)
        made.save(tmp_path / name)
    files = {name: {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in "abcd"}
    assert files["a"] == files["b"] == files["c"] == files["d"]


@pytest.mark.parametrize("N", [1, 2, 9, 11])
def test_small_batches_work(vectors, method, N):
    made = logt.Index(16, method=method)
    if "PQ" in repr(method) and N == 1:
        pytest.importorskip("faiss")
    made.add(vectors(N, 16))
    scores, ids = made.search(vectors(3, 16, seed=1), 5)
    real = min(N, 5)
    assert (np.sort(ids[:, :real], axis=1) >= 0).all()
    assert (ids[:, real:] == -1).all()
    assert np.isfinite(scores[:, :real]).all()


# --------------------------------------------------------------------------------------------- growing


def test_adding_changes_no_existing_segment(vectors):
    made = logt.Index(32, method=SMALL)
    made.add(vectors(100, 32))
    before = made._snapshot.segments
    made.add(vectors(100, 32, seed=1))
    assert made._snapshot.segments[: len(before)] == before
    assert len(made._snapshot.segments) == 2


def test_segments_share_the_least_number_read(vectors):
    """An index of several segments reads as many vectors as one of one segment, where units are too few to matter."""
    whole, parts = (logt.Index(64, segment_size=size) for size in (None, 2000))
    made = vectors(8000, 64)
    read = []
    for index in (whole, parts):
        index.add(made)
        measured = sum(costs._measured(model) for model in costs.models(index._snapshot.segments))
        read.append(index.complexity(effort=0.2) * len(made) * 64 - measured)
    assert len(parts._snapshot.segments) == 4
    assert read[1] == pytest.approx(read[0], rel=0.02)


def test_a_large_batch_becomes_equal_segments(vectors):
    made = logt.Index(16, method=SMALL, segment_size=100)
    made.add(vectors(250, 16))
    assert [len(s) for s in made._snapshot.segments] == [83, 83, 84]
    whole = logt.Index(16, method=SMALL, segment_size=None)
    whole.add(vectors(250, 16))
    assert len(whole._snapshot.segments) == 1


def test_ids_are_the_next_free_numbers(vectors):
    made = logt.Index(16, method=SMALL)
    assert made.add(vectors(3, 16)).tolist() == [0, 1, 2]
    assert made.add(vectors(2, 16), ids=[50, 10]).tolist() == [50, 10]
    assert made.add(vectors(2, 16)).tolist() == [51, 52]


def test_given_ids_are_returned_in_any_order(vectors):
    X, ids = vectors(40, 8), np.random.default_rng(0).permutation(1000)[:40]
    made = logt.Index(8, method=EXACT)
    made.add(X, ids=ids)
    assert (made.search(X, 1).ids[:, 0] == ids).all()


def test_equal_scores_are_ordered_by_id(vectors):
    X = vectors(1, 8).repeat(20, axis=0)
    made = logt.Index(8, method=gt(n=20, m=1))
    made.add(X[:10], ids=np.arange(10)[::-1] * 2)
    made.add(X[:10], ids=np.arange(10) * 2 + 1)
    assert made.search(X[0], 12).ids.tolist() == list(range(12))


def test_adding_no_vectors_changes_nothing():
    made = logt.Index(4, method=SMALL)
    for empty in ([], np.empty((0, 4)), np.empty((0,))):
        assert len(made.add(empty)) == 0
    assert len(made) == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 25), min_size=1, max_size=5), st.integers(1, 12), st.integers(1, 30))
def test_any_batches_find_every_vector(vectors, sizes, segment_size, k):
    made = logt.Index(6, method=starred(rnd(n=3, m=2, L=5)), segment_size=segment_size)
    for seed, size in enumerate(sizes):
        made.add(vectors(size, 6, seed) if size else np.empty((0, 6)))
    ids = made.search(vectors(2, 6, 99), k).ids
    for row in ids:
        real = row[row >= 0]
        assert len(real) == min(k, sum(sizes)) == len(set(real.tolist()))
    everything = made.search(vectors(1, 6, 99), max(1, sum(sizes))).ids
    assert set(everything.ravel().tolist()) - {-1} == set(range(sum(sizes)))


# --------------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_metrics_equal_their_definitions(metric):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((60, 8)) * rng.uniform(0.2, 5, (60, 1))).astype(np.float32)
    Q = (3 * rng.standard_normal((10, 8))).astype(np.float32)
    X[7] = X[7] if metric == "cosine" else 0
    made = logt.Index(8, method=EXACT, metric=metric)
    made.add(X)
    lengths = np.linalg.norm(X, axis=1) * np.linalg.norm(Q, axis=1)[:, None]
    truth = {
        "cosine": Q @ X.T / np.maximum(lengths, 1e-9),
        "ip": Q @ X.T,
        "l2": np.square(Q[:, None] - X[None]).sum(axis=2),
    }[metric]
    order = np.argsort(truth if metric == "l2" else -truth, axis=1, kind="stable")
    scores, ids = made.search(Q, 60)
    assert np.allclose(scores, np.take_along_axis(truth, ids, axis=1), atol=2e-3 * np.abs(truth).max())
    assert (ids[:, :5] == order[:, :5]).mean() > 0.95
    assert (np.diff(scores, axis=1) * (1 if metric == "l2" else -1) >= -1e-5).all()


@pytest.mark.parametrize(("name", "metric"), [("dot", "ip"), ("angular", "cosine"), ("euclidean", "l2")])
def test_other_names_of_metrics(name, metric):
    assert logt.Index(4, metric=name).metric == metric


# ------------------------------------------------------- conventions: what is accepted, what is refused, and how


@pytest.mark.parametrize(
    "given",
    [
        lambda X: X.astype(np.float64),
        lambda X: X.astype(np.float16),
        lambda X: X.tolist(),
        lambda X: np.asfortranarray(X),
        lambda X: np.repeat(X, 2, axis=0)[::2],
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X[::-1][::-1],
    ],
    ids=["float64", "float16", "list", "fortran", "rows strided", "columns strided", "reversed"],
)
def test_arrays_of_any_type_and_order_are_accepted(vectors, given):
    X = vectors(30, 8)
    plain, other = logt.Index(8, method=EXACT), logt.Index(8, method=EXACT)
    plain.add(X)
    other.add(given(X))
    for made, Q in ((other, X), (plain, given(X))):
        assert (made.search(Q, 1).ids[:, 0] == np.arange(30)).all()
    assert np.allclose(other.search(X, 3).scores, plain.search(X, 3).scores, atol=2e-3)


def test_a_single_query_returns_one_dimensional_results(index, vectors):
    scores, ids = index.search(vectors(30, 8)[4], 3)
    assert scores.shape == ids.shape == (3,)
    assert ids[0] == 104


def test_results_beyond_the_number_of_vectors_are_padding(index, vectors):
    for metric, worst in (("cosine", -np.inf), ("l2", np.inf)):
        made = logt.Index(8, method=EXACT, metric=metric)
        made.add(vectors(30, 8))
        found = made.search(vectors(2, 8), 40)
        assert found.ids.shape == (2, 40)
        assert (found.ids[:, 30:] == -1).all()
        assert (found.scores[:, 30:] == worst).all()
        assert found.counts.tolist() == [30, 30]


def test_no_queries_and_no_vectors(index):
    assert index.search(np.empty((0, 8)), 5).ids.shape == (0, 5)
    assert index.search([], 5).ids.shape == (0, 5)
    empty = logt.Index(8).search(np.ones((2, 8)), 5)
    assert (empty.ids == -1).all()
    assert (empty.scores == -np.inf).all()


def test_results_unpack_and_have_the_usual_types(index, vectors):
    found = index.search(vectors(2, 8), 5)
    scores, ids = found
    assert (scores.dtype, ids.dtype) == (np.float32, np.int64)
    assert found.scores is scores
    assert found.ids is ids


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", None, True])
def test_k_must_be_a_positive_integer(index, vectors, k):
    with pytest.raises(InvalidInputError, match="k must be"):
        index.search(vectors(1, 8), k)


def test_k_may_be_a_numpy_integer(index, vectors):
    assert index.search(vectors(1, 8), np.int32(2)).ids.shape == (1, 2)


BAD = {
    "NaN": (lambda X: X.__setitem__((3, 5), np.nan), r"row 3 of \w holds nan at column 5"),
    "infinity": (lambda X: X.__setitem__((3, 5), -np.inf), r"row 3 of \w holds -inf at column 5"),
    "zero": (lambda X: X.__setitem__(3, 0), r"row 3 of \w is all zeros"),
    "too long": (lambda X: X.__setitem__((3, 5), 3e20), r"row 3 of \w has norm 3e\+20"),
    "beyond float32": (lambda X: X.__setitem__((3, 5), 1e300), r"row 3 of \w holds 1e\+300 at column 5"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_rows_are_named_and_nothing_is_added(index, vectors, bad):
    spoil, message = BAD[bad]
    X = vectors(6, 8).astype(np.float64)
    spoil(X)
    with pytest.raises(InvalidInputError, match=message):
        index.add(X)
    assert len(index) == 30
    with pytest.raises(InvalidInputError, match=message):
        index.search(X, 3)
    found = index.search(X, 3, on_invalid="ignore")
    assert (found.ids[3] == -1).all()
    assert (found.scores[3] == -np.inf).all()
    fine = [0, 1, 2, 4, 5]
    assert (found.ids[fine] == index.search(X[fine], 3).ids).all()


def test_a_zero_vector_has_an_inner_product(vectors):
    X = vectors(30, 8)
    X[3] = 0
    for metric in ("ip", "l2"):
        made = logt.Index(8, method=EXACT, metric=metric)
        made.add(X)
        scores, ids = made.search(np.zeros(8), 30)
        assert scores[list(ids).index(3)] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 7), (3, 9), (7,), (2, 3, 8), (1, 1, 8), ()])
def test_a_wrong_dimension_names_both_shapes(index, shape):
    for call in (index.add, lambda X: index.search(X, 3)):
        with pytest.raises(InvalidInputError, match=r"shape \(.*dimension 8"):
            call(np.ones(shape))
    assert len(index) == 30


@pytest.mark.parametrize("X", [[[1, 2], [3]], "text", [["a"] * 8], np.ones((2, 8), complex), [None] * 8, object()])
def test_input_that_is_not_a_matrix_of_numbers_is_refused(index, X):
    for call in (index.add, lambda X: index.search(X, 3)):
        with pytest.raises(InvalidInputError):
            call(X)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2, 2], "id 2 is given twice"),
        ([1, 2, 110], "id 110 is already in the index"),
        ([1, 2, -1], "got -1"),
        ([1, 2], r"shape \(2,\), but there are 3"),
        ([1.0, 2.0, 3.0], r"integers .* got dtype float64"),
        (["a", "b", "c"], "integers"),
        ([[1], [2], [3]], r"shape \(3, 1\)"),
        (np.array([1, 2, 2**63], np.uint64), "got 9223372036854775808"),
    ],
)
def test_invalid_ids_are_named(index, vectors, ids, message):
    with pytest.raises(InvalidInputError, match=message):
        index.add(vectors(3, 8), ids=ids)
    assert len(index) == 30


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": 2.5}, "dim"),
        ({"metric": "manhattan"}, "metric"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads"),
        ({"segment_size": 0}, "segment_size"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        logt.Index(**{"dim": 8, **wrong})


@pytest.mark.parametrize("wrong", [{"p": 0}, {"p": 1.5}, {"R": 0}, {"threads": 0}, {"on_invalid": "guess"}])
def test_wrong_search_arguments_are_named(index, vectors, wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        index.search(vectors(1, 8), 3, **wrong)


# --------------------------------------------------------------------------------- reports, progress, interrupts


def test_report_counts_what_the_paper_counts_and_true_bytes(vectors):
    X = vectors(1000, 64)
    made = logt.Index(64, method=starred(lo_gt(n=50, m=4, L=20)))
    made.add(X)
    report = made.report()
    assert (report["vectors"], report["dim"], report["units"], report["segments"]) == (1000, 64, 80, 1)
    assert report["rho"] == pytest.approx((80 * 64 + 1000 * 20) / (64 * 1000))
    assert report["bytes"] == 80 * 64 * 4 + 1000 * (20 * (2 + 4) + 4) + 1000 * 4 * 2 + 1000 * 8
    assert "1,000" in str(report)


def test_the_pseudo_inverse_reports_the_dense_cost():
    """Table 1: ρ = M/N + M/d."""
    X = np.random.default_rng(0).standard_normal((1000, 32)).astype(np.float32)
    made = logt.Index(32, method=gt(n=50, m=4, inverse=True))
    made.add(X)
    assert made.report()["rho"] == pytest.approx(80 / 1000 + 80 / 32)


def test_an_empty_index_reports(tmp_path):
    assert logt.Index(8).report()["vectors"] == 0
    logt.Index(8).save(tmp_path / "index")
    assert len(logt.open(tmp_path / "index")) == 0


def test_progress_is_reported_to_the_end(vectors):
    reported = []
    logt.Index(16, method=lo_gt(n=10, m=2, L=8)).add(vectors(500, 16), progress=lambda *step: reported.append(step))
    for what in ("grouping", "memory vectors", "decoder"):
        steps = [(done, total) for name, done, total in reported if name == what]
        assert steps[-1][0] == steps[-1][1]
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupted_add_changes_nothing(vectors, error, threads):
    made = logt.Index(16, method=SMALL, threads=threads)
    made.add(vectors(100, 16))

    def interrupt(what, done, total):
        if what == "decoder" and done >= 2:
            raise error

    with pytest.raises(error):
        made.add(vectors(1000, 16), progress=interrupt)
    assert len(made) == 100
    assert made.add(vectors(5, 16))[0] == 100


def test_searches_run_while_vectors_are_added(vectors):
    X = vectors(300, 16)
    made = logt.Index(16, method=SMALL, threads=1)
    made.add(X[:100])
    wrong = []

    def look():
        for _ in range(20):
            ids = made.search(X[:20], 10).ids
            if not ((ids >= 0) & (ids < 300)).all():
                wrong.append(ids)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for part in (X[100:200], X[200:]):
        made.add(part)
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(made) == 300


def test_a_parameter_of_the_method_names_where_it_belongs():
    with pytest.raises(TypeError, match=r"no parameter 'bits'.*logt.methods.sketched\(bits=\.\.\.\)"):
        logt.Index(8, bits=4)
    for method in ("sketched", logt.methods.sketched):
        with pytest.raises(InvalidInputError, match=r"logt.methods.sketched"):
            logt.Index(8, method=method)
