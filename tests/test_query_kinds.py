"""What each query took, and kinds of queries: `tune(Q, name=...)` and `search(..., like=...)`."""

import copy
import json
import pickle

import numpy as np
import pytest
from exact_index import overlap, unmeasured

import logt
from logt.errors import InvalidInputError
from logt.lists.inverted_lists import efforts_of_lists
from logt.lists.measured import measured_from_arrays, measured_to_arrays


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(3)
    centers = rng.standard_normal((150, 32))
    return (centers[rng.integers(0, 150, 8000)] + 0.4 * rng.standard_normal((8000, 32))).astype(np.float32)


@pytest.fixture(scope="module")
def texts(vectors):
    """Queries that are not like the collection: another mean, and more noise."""
    rng = np.random.default_rng(4)
    return (vectors[:300] + rng.standard_normal(32) + rng.standard_normal((300, 32))).astype(np.float32)


@pytest.fixture(scope="module")
def queries(vectors):
    """Five like the collection, and five directions at random."""
    return np.concatenate([vectors[:5], np.random.default_rng(4).standard_normal((5, 32))]).astype(np.float32)


@pytest.fixture(scope="module")
def built(vectors):
    index = logt.Index(32)
    index.add(vectors)
    return index


@pytest.fixture
def index(built):
    return copy.copy(built)


@pytest.fixture(scope="module")
def linked(built):
    """The same index with a graph; tests change copies of it."""
    index = copy.copy(built)
    with unmeasured():
        index.link(10)
    return index


# ------------------------------------------------------------------------------------------------- what a query took


def test_queries_unlike_the_collection_take_more(index, queries):
    result = index.search(queries)
    assert result.effort.shape == (10,)
    assert result.effort[5:].min() > result.effort[:5].max()
    scores, ids = result  # still a pair
    assert scores is result.scores
    assert ids is result.ids


def test_the_effort_is_that_of_the_lists_that_were_read(index, queries):
    assert (index.search(queries, effort=1).effort == 1).all()
    lists = index.report()["units"]
    np.testing.assert_allclose(index.search(queries, nprobe=7).effort, (np.log(7) / np.log(lists)) ** 1.5, atol=0.002)
    efforts = [index.search(queries, effort=effort).effort.mean() for effort in (0.0, 0.2, 0.5, 0.8)]
    assert efforts == sorted(efforts)


def test_one_query_has_numbers_and_a_kept_search_has_the_same(index, queries):
    for query in (queries[0], queries[9]):
        first, again, batch = index.search(query), index.search(query), index.search(query[None])
        assert np.ndim(first.effort) == 0
        assert first.effort == again.effort == batch.effort[0]
        assert batch.effort.shape == index.search(query[None]).effort.shape == (1,)
    again = pickle.loads(pickle.dumps(first))
    assert again.effort == first.effort


def test_queries_that_are_not_valid_took_nothing(index, queries):
    queries = queries.copy()
    queries[1] = np.nan
    result = index.search(queries, on_invalid="ignore")
    assert result.effort[1] == 0
    np.testing.assert_array_equal(np.delete(result.effort, 1), index.search(np.delete(queries, 1, axis=0)).effort)


def test_what_is_not_in_lists_is_read_whole(index, vectors, queries):
    assert (index.search(queries, filter=np.arange(50)).effort == 1).all()  # row by row
    small = logt.Index(32)
    small.add(vectors[:100])
    assert small.search(queries[0]).effort == 1


def test_other_methods_tell_no_effort_and_have_no_kinds(vectors, queries):
    index = logt.Index(32, method=logt.methods.lo_gt())
    index.add(vectors[:200])
    result = index.search(queries)
    assert result.effort is None
    with pytest.raises(InvalidInputError, match="inverted lists"):
        index.search(queries, like="text")


@pytest.mark.parametrize("linked", [False, True])
def test_efforts_of_lists_invert_the_lists_of_an_effort(linked):
    efforts = efforts_of_lists([1000], linked=linked)
    assert efforts[0] == efforts[1] == 0
    assert efforts[1000] == 1
    assert (np.diff(efforts) >= 0).all()
    effort = 0.6
    lists = 1000 ** (0.8 * effort + 0.2 * effort**8 if linked else effort ** (2 / 3))
    assert abs(efforts[round(lists)] - effort) < 0.005
    np.testing.assert_allclose(efforts_of_lists([1000, 1000], linked=linked)[::2], efforts, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize("kind", ["built", "linked"])
def test_a_kind_is_used_by_its_name_only(request, vectors, texts, kind):
    index = copy.copy(request.getfixturevalue(kind))
    usual, unlike = index.search(vectors[:50]), index.search(texts[200:])
    assert unlike.effort.mean() > usual.effort.mean() + 0.1
    points = index.tune(texts[:200], name="text")
    assert points[-1].recall == 1
    np.testing.assert_array_equal(index.search(vectors[:50]).ids, usual.ids)
    np.testing.assert_array_equal(index.search(texts[200:]).effort, unlike.effort)
    found = index.search(texts[200:], like="text")
    assert found.effort.mean() < unlike.effort.mean()
    full = index.search(texts[200:], effort=1).ids
    assert overlap(index.search(texts[200:], like="text", recall=0.9).ids, full) > 0.85
    one = index.search(texts[250], like="text")
    np.testing.assert_array_equal(one.ids, index.search(texts[250], like="text").ids)  # prepared
    np.testing.assert_array_equal(one.ids, found.ids[50])


def test_kinds_are_saved_and_outlive_changes(index, texts, tmp_path):
    index.tune(texts[:100], name="text")
    index.tune(texts[100:200] * 2 - 1, name="schräg")
    index.save(tmp_path / "i")
    opened = logt.open(tmp_path / "i")
    for name in ("text", "schräg"):
        np.testing.assert_array_equal(
            opened.search(texts[200:], like=name).effort, index.search(texts[200:], like=name).effort
        )
    index.add(texts[:10])
    index.remove([0, 1, 2])
    index.compact()
    assert index.search(texts[0], like="text").ids[0] == 8000


def test_a_graph_with_other_neighbors_is_not_used_for_a_recall(linked, texts):
    index = copy.copy(linked)
    index.tune(texts[:100], name="text")
    with unmeasured():
        index.link(20)
    lists_only = index.search(texts[200:], like="text", beam=0)
    np.testing.assert_array_equal(index.search(texts[200:], like="text").ids, lists_only.ids)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 101, 7])
def test_names_are_short_lines_of_text(index, texts, name):
    with pytest.raises(InvalidInputError, match="name must be a name"):
        index.tune(texts, name=name)
    with pytest.raises(InvalidInputError, match="like must be a name"):
        index.search(texts, like=name)


def test_an_unknown_kind_is_refused_with_the_known_ones(index, texts):
    with pytest.raises(InvalidInputError, match=r"Known kinds: none"):
        index.search(texts[0], like="text")
    index.tune(texts[:100], name="text")
    with pytest.raises(InvalidInputError, match=r"index.tune\(Q, name='txt'\).*Known kinds: 'text'"):
        index.search(texts[0], like="txt")
    with pytest.raises(InvalidInputError, match="pass queries"):
        index.tune(name="text")
    with pytest.raises(InvalidInputError, match="omit like"):
        index.to("cpu").search(texts[0], like="text")
    assert len(logt.Index(32).search(texts[0], like="text").ids) == 10  # nothing is there to be unlike


def test_impossible_kinds_are_refused(index, texts):
    for name in "ab":
        index.tune(texts[:50], name=name)
    codec = index._snapshot.segments[0].codec
    arrays = measured_to_arrays(codec.measured, codec.kinds)
    usual, again = measured_from_arrays(arrays)
    assert (usual.vectors, list(again)) == (codec.measured.vectors, ["a", "b"])
    np.testing.assert_array_equal(again["b"].curve.recall, codec.kinds["b"].curve.recall)
    assert again["b"].linked is None
    np.testing.assert_array_equal(again["b"].margins, codec.kinds["b"].margins)
    assert not (again["b"].margins == usual.margins).all()
    for change in (
        {"kinds": np.frombuffer(b"a\na", np.uint8)},
        {"kinds": np.frombuffer(b"\xff\na", np.uint8)},
        {"measured_margins": np.ones((4, 17), np.float32)},
        {"measured_margins": np.linspace(1, 0, 102, dtype=np.float32).reshape(6, 17)},
        {"measured_margins": np.full((6, 17), -2, np.float32)},
        {"measured_depths": np.ones((2, 3), np.float32)},
        {"measured_depths": np.full((3, 3), np.nan, np.float32)},
        {"measured_counts": np.full((3, 2), -1)},
        {"measured_counts": np.full((3, 2), 1 << 24)},
        {"measured_recall": np.full((18, 12), 2, np.float32)},
        {"measured_recall": np.zeros((17, 12), np.float32)},
    ):
        with pytest.raises(ValueError, match=r"measured|curve|depths|decode|NaN"):
            measured_from_arrays({**arrays, **change})


def test_the_commands(index, texts, tmp_path, run_logt):
    index.save(tmp_path / "i")
    np.save(tmp_path / "q.npy", texts[:50])
    files = tmp_path / "i", tmp_path / "q.npy"
    run_logt("tune", *files, "--name", "text")
    found = json.loads(run_logt("search", *files, "--like", "text", "--json"))
    assert found["ids"] == logt.open(files[0]).search(texts[:50], like="text").ids.tolist()
