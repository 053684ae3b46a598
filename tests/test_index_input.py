"""The input of an index: what is accepted, what is refused, and how."""

from functools import partial

import numpy as np
import pytest
from exact_index import EXACT, METRICS, assert_same, built

import logt
from logt import InvalidInputError
from logt._internal.params import MAX_K
from logt.group_testing.dictionary import DictionaryLearning
from logt.group_testing.grouping import KMeans, Orthogonal
from logt.lists.inverted_lists import Probe
from logt.methods import lo_gt, sketched, starred


@pytest.fixture(scope="module")
def index(vectors):
    """30 vectors with ids 100, 101, …, exact enough to know the results; no test may change it."""
    made = built(vectors(30, 8), np.arange(100, 130), method=EXACT, seed=1)
    yield made
    assert len(made) == 30


@pytest.mark.parametrize(
    "given",
    [
        lambda X: X.astype(np.float64),
        lambda X: X.astype(np.float16),
        lambda X: X.tolist(),
        lambda X: np.asfortranarray(X),
        lambda X: np.repeat(X, 2, axis=0)[::2],
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X[::-1].copy()[::-1],
    ],
    ids=["float64", "float16", "list", "fortran", "rows strided", "columns strided", "reversed"],
)
@pytest.mark.parametrize("method", [EXACT, None], ids=["exact", "default"])
def test_arrays_of_any_type_and_order_are_accepted(vectors, given, method):
    X = vectors(30, 8)
    plain, other = logt.Index(8, method=method), logt.Index(8, method=method)
    plain.add(X)
    other.add(given(X))
    for made, Q in ((other, X), (plain, given(X))):
        assert (made.search(Q, 1).ids[:, 0] == np.arange(30)).all()
    assert np.allclose(other.search(X, 3).scores, plain.search(X, 3).scores, atol=2e-3)


@pytest.mark.parametrize("method", [None, lo_gt(n=10, m=3, L=12)], ids=["default", "LO-GT"])
@pytest.mark.parametrize("metric", METRICS)
def test_float64_is_encoded_as_float32_wherever_it_is_kept(rng, tmp_path, metric, method):
    X = rng.standard_normal((300, 16))

    def grown(index, rows):
        index.add(rows[290:])
        return index

    fresh = grown(built(X[:290], metric=metric, method=method), X)
    single = grown(built(X[:290].astype(np.float32), metric=metric, method=method), X.astype(np.float32))
    built(X[:290], metric=metric, method=method).save(tmp_path / "index")
    with logt.open(tmp_path / "index", mode="a") as logged:
        grown(logged, X).save()
    for other in (logt.open(tmp_path / "index"), single):
        assert_same(other.search(X, 300, effort=1), fresh.search(X, 300, effort=1))


def test_results_unpack_and_have_the_usual_types_and_shapes(index, vectors):
    found = index.search(vectors(2, 8), 5)
    scores, ids = found
    assert (scores.dtype, ids.dtype) == (np.float32, np.int64)
    assert found.scores is scores
    assert found.ids is ids
    assert index.search(vectors(1, 8), np.int32(2)).ids.shape == (1, 2)
    scores, ids = index.search(vectors(30, 8)[4], 3)
    assert scores.shape == ids.shape == (3,)
    assert ids[0] == 104


@pytest.mark.parametrize(("metric", "worst"), [("cosine", -np.inf), ("l2", np.inf)])
def test_results_beyond_the_number_of_vectors_are_padding(vectors, metric, worst):
    made = built(vectors(30, 8), method=EXACT, metric=metric)
    found = made.search(vectors(2, 8), 40)
    assert found.ids.shape == (2, 40)
    assert (found.ids[:, 30:] == -1).all()
    assert (found.scores[:, 30:] == worst).all()
    assert found.counts.tolist() == [30, 30]


def test_no_queries_and_no_vectors(index):
    for none in ([], np.empty((0, 8)), np.empty(0)):
        assert index.search(none, 5).ids.shape == (0, 5)
        assert len(logt.Index(8).add(none)) == 0
    empty = logt.Index(8).search(np.ones((2, 8)), 5)
    assert (empty.ids == -1).all()
    assert (empty.scores == -np.inf).all()


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", None, True, MAX_K + 1])
def test_k_must_be_a_positive_integer(index, vectors, k):
    with pytest.raises(InvalidInputError, match="k must be"):
        index.search(vectors(1, 8), k)


BAD = {
    "NaN": ((3, 5), np.nan, r"row 3 of \w holds nan at column 5"),
    "infinity": ((3, 5), -np.inf, r"row 3 of \w holds -inf at column 5"),
    "zero": (3, 0, r"row 3 of \w is all zeros"),
    "zero as float32": (3, 1e-60, r"row 3 of \w is all zeros"),
    "too long": ((3, 5), 3e20, r"row 3 of \w has norm 3e\+20"),
    "beyond float32": ((3, 5), 1e300, r"row 3 of \w holds 1e\+300 at column 5, which is too large for float32"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_rows_are_named_and_nothing_is_added(index, vectors, bad):
    place, value, message = BAD[bad]
    X = vectors(6, 8).astype(np.float64)
    X[place] = value
    for call in (index.add, index.search):
        with pytest.raises(InvalidInputError, match=message):
            call(X)
    found = index.search(X, 3, on_invalid="ignore")
    assert (found.ids[3] == -1).all()
    assert (found.scores[3] == -np.inf).all()
    fine = [0, 1, 2, 4, 5]
    assert (found.ids[fine] == index.search(X[fine], 3).ids).all()


@pytest.mark.parametrize("method", [EXACT, None], ids=["exact", "default"])
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_norms_whose_products_underflow_are_refused_unless_they_are_0(vectors, metric, method):
    X = vectors(30, 8)
    X[3], X[5] = 0, X[5] * 1e-14
    index, tiny = built(X, metric=metric, method=method), X * np.float32(1e-16)
    for _ in range(2):  # a search that was prepared refuses it too
        index.search(X[0], 3)
        for call in (index.add, index.search, lambda rows: index.search(rows[0], 3)):
            with pytest.raises(
                InvalidInputError, match=r"row 0 of \w has norm .*e-16, above 0 and below 1e-15: scale"
            ):
                call(tiny)
    assert len(index) == 30
    assert (index.search(tiny, 3, on_invalid="ignore").ids >= 0).any(axis=1).tolist() == [i == 3 for i in range(30)]


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_a_zero_vector_has_an_inner_product(vectors, metric):
    X = vectors(30, 8)
    X[3] = 0
    made = built(X, method=EXACT, metric=metric)
    scores, ids = made.search(np.zeros(8), 30)
    assert scores[list(ids).index(3)] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 7), (3, 9), (7,), (2, 3, 8), (1, 1, 8), ()])
def test_a_wrong_dimension_names_both_shapes(index, shape):
    for call in (index.add, index.search):
        with pytest.raises(InvalidInputError, match=r"shape \(.*dimension 8"):
            call(np.ones(shape))


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


WRONG = [
    *((partial(logt.Index, 8), wrong) for wrong in ({"metric": "manhattan"}, {"seed": -1}, {"threads": 0})),
    *((partial(logt.Index, 8), {"segment_size": 0}), (logt.Index, {"dim": 0}), (logt.Index, {"dim": 2.5})),
    *((logt.SearchParams, wrong) for wrong in ({"p": 0}, {"p": 1.5}, {"R": 0}, {"recall": 0}, {"recall": "much"})),
    *((logt.SearchParams, wrong) for wrong in ({"recall": 0.9, "effort": 0.5}, {"beam": -1}, {"beam": 1.5})),
    *((Probe, wrong) for wrong in ({"effort": 1.5}, {"effort": -0.1}, {"nprobe": 0})),
    *((sketched, wrong) for wrong in ({"bits": 9}, {"units": 0}, {"recall": 1.5})),
    *((Orthogonal, wrong) for wrong in ({"n": 0}, {"m": 0}, {"k": 0}, {"n": 2.5}, {"criterion": "most"})),
    *((KMeans, {"rounds": 0}), (KMeans, {"n": 0.5})),
    *((DictionaryLearning, wrong) for wrong in ({"L": 0}, {"coreset": "large"}, {"part": 0.0})),
    *((logt.Diffusion, wrong) for wrong in ({"alpha": 1}, {"alpha": -0.1}, {"alpha": float("nan")})),
    *((logt.Diffusion, wrong) for wrong in ({"candidates": 0}, {"hops": -1}, {"nodes": 0})),
]


@pytest.mark.parametrize(("call", "wrong"), WRONG)
def test_wrong_parameters_are_named(call, wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        call(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(({"threads": 0}, "threads"), ({"on_invalid": "guess"}, "on_invalid"), ({"beam": "10"}, "beam")),
        *(({name: 0.9}, "methods with inverted lists") for name in ("recall",)),
        *(({name: 3}, "methods with inverted lists") for name in ("nprobe", "beam")),
    ],
)
def test_wrong_search_arguments_are_named(index, vectors, wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        index.search(vectors(1, 8), 3, **wrong)


def test_the_default_method_has_no_correction():
    with pytest.raises(InvalidInputError, match="methods of the paper"):
        starred(sketched())


def test_threads_are_checked_before_an_index_is_read(tmp_path):
    with pytest.raises(InvalidInputError, match="threads"):
        logt.open(tmp_path / "none", threads=0)


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_expansion_and_diffusion_are_for_cosine(vectors, metric):
    index = built(vectors(50, 8), metric=metric)
    for settings in ({"expand": 3}, {"rerank": "diffusion"}):
        with pytest.raises(logt.InvalidInputError, match="works under cosine"):
            index.search(vectors(1, 8), 5, **settings)


def test_an_attribute_that_an_index_does_not_have_is_refused(vectors):
    index = built(vectors(50, 8))
    with pytest.raises(AttributeError, match=r"no attribute 'nprobe'; settings .* search\(Q, nprobe=8\)"):
        index.nprobe = 8
    with pytest.raises(AttributeError, match=r"no attribute 'efSearch'; settings .* search\(Q, effort=0.5\)"):
        index.efSearch = 64
    assert not hasattr(index, "nprobe")


def test_messages_show_large_values_in_short(vectors):
    index = built(vectors(50, 8))
    for k in (np.arange(1000), list(range(10**5)), "9" * 1000, np.ones((30, 30))):
        with pytest.raises(InvalidInputError, match=r"^k must be an integer, got ") as error:
            index.search(vectors(1, 8), k)
        assert len(str(error.value)) < 160
        assert "\n" not in str(error.value)
    with pytest.raises(InvalidInputError, match=r"dim must be an integer, got \[0, 1, 2, 3, 4, 5, ...\]"):
        logt.Index(list(range(5000)))
    with pytest.raises(InvalidInputError, match=r"got 2\.5$"):
        index.search(vectors(1, 8), 2.5)


def test_ids_of_both_types_are_refused(vectors):
    X = vectors(2, 8)
    integers, strings = built(X), built(X, ["a", "b"])
    for call in (logt.Index(8).add, integers.add):
        with pytest.raises(InvalidInputError, match=r"all integers or all strings, got both: 'a' and 1; map"):
            call(X, ids=["a", 1])
    with pytest.raises(InvalidInputError, match=r"all integers or all strings, got both: 'a' and 1; map"):
        integers.search(X, filter=("a", 1))
    with pytest.raises(InvalidInputError, match=r"ids of this index are strings, got \['a', 1\]"):
        strings.remove(["a", 1])


def test_a_file_that_is_opened_as_an_index_names_the_command(tmp_path):
    (tmp_path / "x.faiss").write_bytes(b"IxF2")
    with pytest.raises(FileNotFoundError, match=r"holds no index: it is a file.*`logt convert .*x\.faiss INDEX`"):
        logt.open(tmp_path / "x.faiss")
