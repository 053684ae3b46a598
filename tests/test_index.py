import numpy as np
import pytest
from exact_index import EXACT, METRICS, assert_same, built

import logt
from logt.engine import costs
from logt.methods import cascaded, compact, dictionary, gt, lo_gt, quantized, rnd, sketched, starred

SMALL = rnd(n=10, m=3, L=12)

METHODS = {
    "RND*": starred(SMALL),
    "RND order 0": rnd(n=10, m=3, L=None, order=0),
    "RND order 1": rnd(n=10, m=3, L=None),
    "LO-GT*": starred(lo_gt(n=10, m=3, L=12)),
    "LO-GT* cascade": cascaded(starred(lo_gt(n=10, m=3, L=12)), p=0.5, R=20),
    "LO-GT* bytes": compact(starred(lo_gt(n=10, m=3, L=12))),
    "LO-GT PQ": quantized(lo_gt(n=10, m=3, L=12), c=8),
    "LO-GT PQ, U from Y": quantized(lo_gt(n=10, m=3, L=12), c=8, fit="exact"),
    "sketched": sketched(),
    "sketched, 1 bit": sketched(bits=1, L=8),
    "dictionary": dictionary(L=8, epochs=2),
    "dictionary of a coreset": dictionary(L=3, coreset="sensitivity"),
    "GT": gt(n=10, m=3),
    "GT pinv": gt(n=10, m=3, inverse=True),
}


@pytest.fixture(scope="module", params=METHODS)
def method(request):
    if "PQ" in request.param:
        pytest.importorskip("faiss")
    return METHODS[request.param]


@pytest.fixture(scope="module")
def stored(method, vectors):
    """400 vectors in two segments, and their index."""
    return vectors(400, 32), built(vectors(400, 32), method=method, segment_size=200)


# ------------------------------------------------------------------------- one behavior suite for every method


def test_a_vector_ranks_above_unrelated_ones(stored, method):
    X, index = stored
    scores, ids = index.search(X[:50], 400)
    own = np.array([np.flatnonzero(ids[i] == i)[0] for i in range(50)])
    assert own.mean() < (100 if method in (METHODS["GT"], METHODS["GT pinv"]) else 60)
    assert (np.sort(ids, axis=1) == np.arange(400)).all()
    assert np.isfinite(scores).all()


def test_saving_and_opening_changes_nothing(stored, method, vectors, tmp_path):
    _, index = stored
    index.save(tmp_path / "index")
    opened = logt.open(tmp_path / "index")
    assert opened.method == method
    assert len(opened) == 400
    Q = vectors(5, 32, seed=1)
    assert_same(opened.search(Q, 20), index.search(Q, 20))
    assert dict(opened.report()) == dict(index.report())


def test_threads_and_runs_make_the_same_bytes(vectors, method, tmp_path):
    files = []
    for threads in (1, 3):
        built(vectors(1300, 16), measure=True, method=method, threads=threads, seed=3).save(tmp_path / str(threads))
        files.append({path.name: path.read_bytes() for path in (tmp_path / str(threads)).iterdir()})
    assert files[0] == files[1]


@pytest.mark.parametrize("N", [1, 2, 11])
def test_small_batches_work(vectors, method, N):
    made = built(vectors(N, 16), method=method)
    scores, ids = made.search(vectors(3, 16, seed=1), 5)
    real = min(N, 5)
    assert (np.sort(ids[:, :real], axis=1) >= 0).all()
    assert (ids[:, real:] == -1).all()
    assert np.isfinite(scores[:, :real]).all()


# --------------------------------------------------------------------------------------------- growing


def test_adding_changes_no_existing_segment(vectors):
    made = built(vectors(100, 32), method=SMALL)
    before = made._snapshot.segments
    made.add(vectors(100, 32, seed=1))
    assert made._snapshot.segments[: len(before)] == before
    assert len(made._snapshot.segments) == 2


def test_segments_share_the_least_number_read(vectors):
    """An index of several segments reads as many vectors as one of one segment, where units are too few to matter."""
    made = vectors(4400, 16)
    read = []
    for size in (None, 1100):
        index = built(made, segment_size=size)
        measured = sum(model.operations for model in costs.models(index._snapshot.segments))
        read.append(index.complexity(effort=0.2) * len(made) * 16 - measured)
    assert len(index._snapshot.segments) == 4
    assert read[1] == pytest.approx(read[0], rel=0.02)


@pytest.mark.parametrize(("size", "rows"), [(100, [83, 83, 84]), (None, [250])])
def test_a_large_batch_becomes_equal_segments(vectors, size, rows):
    made = built(vectors(250, 16), method=SMALL, segment_size=size)
    assert [len(s) for s in made._snapshot.segments] == rows


def test_ids_are_given_in_any_order_or_the_next_free_numbers(vectors):
    X = vectors(7, 8)
    made = logt.Index(8, method=EXACT)
    assert made.add(X[:3]).tolist() == [0, 1, 2]
    assert made.add(X[3:5], ids=[50, 10]).tolist() == [50, 10]
    assert made.add(X[5:]).tolist() == [51, 52]
    assert made.search(X, 1).ids[:, 0].tolist() == [0, 1, 2, 50, 10, 51, 52]


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_scores_of_plus_and_minus_zero_are_equal(rng, metric):
    """Both are scores of the vector 0, and the best k are the first k of all."""
    X = rng.standard_normal((400, 8))
    X[rng.random(400) < 0.5] = 0
    index, Q = built(X, metric=metric, method=gt(n=5, m=4, inverse=True), segment_size=100), X[:20]
    everything = index.search(Q, 400).ids
    for k in range(1, 400, 13):
        assert (index.search(Q, k).ids == everything[:, :k]).all()


def test_equal_scores_are_ordered_by_id(vectors):
    X = vectors(1, 8).repeat(20, axis=0)
    made = built(X[:10], np.arange(10)[::-1] * 2, method=gt(n=20, m=1))
    made.add(X[:10], ids=np.arange(10) * 2 + 1)
    assert made.search(X[0], 12).ids.tolist() == list(range(12))


# --------------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_equal_their_definitions(metric):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((60, 8)) * rng.uniform(0.2, 5, (60, 1))).astype(np.float32)
    Q = (3 * rng.standard_normal((10, 8))).astype(np.float32)
    X[7] = X[7] if metric == "cosine" else 0
    made = built(X, method=EXACT, metric=metric)
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


# --------------------------------------------------------------------------------- reports, progress, interrupts


def test_report_counts_what_the_paper_counts_and_true_bytes(vectors):
    made = built(vectors(1000, 64), method=starred(lo_gt(n=50, m=4, L=20)))
    report = made.report()
    assert (report["vectors"], report["dim"], report["units"], report["segments"]) == (1000, 64, 80, 1)
    assert report["rho"] == pytest.approx((80 * 64 + 1000 * 20) / (64 * 1000))
    assert report["bytes"] == 80 * 64 * 4 + 1000 * (20 * (2 + 4) + 4) + 1000 * 4 * 2 + 1000 * 8
    assert "1,000" in str(report)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (None, "sketched()"),
        (sketched(bits=4), "sketched(bits=4)"),
        (sketched(refine=False, effort=0.5), "sketched(refine=False, effort=0.5)"),
        (starred(rnd()), "Random, Pinv, Float32, Sparse, Suppress"),
    ],
)
def test_an_empty_index_reports_its_method_in_a_few_words(method, text):
    report = logt.Index(8, method=method).report()
    assert (report["method"], report["vectors"]) == (text, 0)


def test_progress_is_reported_to_the_end(vectors):
    reported = []
    logt.Index(16, method=lo_gt(n=10, m=2, L=8)).add(vectors(500, 16), progress=lambda *step: reported.append(step))
    for what in ("grouping", "memory vectors", "decoder"):
        steps = [(done, total) for name, done, total in reported if name == what]
        assert steps[-1][0] == steps[-1][1]
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)


@pytest.mark.parametrize(("error", "threads"), [(KeyboardInterrupt, 1), (MemoryError, 2)])
def test_an_interrupted_add_changes_nothing(vectors, error, threads):
    made = built(vectors(100, 16), method=SMALL, threads=threads)

    def interrupt(what, done, total):
        if what == "decoder" and done >= 2:
            raise error

    with pytest.raises(error):
        made.add(vectors(1000, 16), progress=interrupt)
    assert len(made) == 100
    assert made.add(vectors(5, 16))[0] == 100


def test_a_search_may_leave_the_correction_out(vectors):
    X = vectors(300, 24)
    plain, corrected = (logt.Index(24, method=method) for method in (lo_gt(n=10, m=2), starred(lo_gt(n=10, m=2))))
    for index in (plain, corrected):
        index.add(X)
    expected = plain.search(X[:10], 30).ids
    assert (corrected.search(X[:10], 30, correct=False).ids == expected).all()
    assert (corrected.search(X[:10], 30).ids != expected).any()


def test_removals_and_compact_leave_the_pseudo_inverse_as_it_is(vectors):
    X = vectors(200, 24)
    index = built(X, method=gt(n=10, m=2, inverse=True))
    before = dict(zip(*(row.tolist() for row in index.search(X[0], 200)[::-1]), strict=True))
    assert np.allclose(index.reconstruct(list(before)) @ X[0], list(before.values()), atol=1e-3)
    index.remove(range(50))
    index.compact()
    scores, ids = index.search(X[0], 150)
    assert scores.tolist() == [before[i] for i in ids.tolist()]
