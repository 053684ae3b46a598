"""Kinds of queries: `tune(Q, name=...)` and `search(..., like=...)`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import logt
from logt.cli.main import app
from logt.errors import InvalidInputError
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


@pytest.fixture
def index(vectors):
    index = logt.Index(32)
    index.add(vectors)
    return index


def recall(index, Q, **settings):
    found, full = index.search(Q, **settings).ids, index.search(Q, effort=1).ids
    return np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(found, full, strict=True)])


@pytest.mark.parametrize("linked", [False, True])
def test_a_kind_is_used_by_its_name_only(index, vectors, texts, linked):
    if linked:
        index.link(10)
    usual, unlike = index.search(vectors[:50]), index.search(texts[200:])
    assert unlike.unlike.mean() > 1
    points = index.tune(texts[:200], name="text")
    assert points[-1].recall == 1
    np.testing.assert_array_equal(index.search(vectors[:50]).ids, usual.ids)
    np.testing.assert_array_equal(index.search(texts[200:]).effort, unlike.effort)
    found = index.search(texts[200:], like="text")
    assert found.unlike.mean() < 0.5  # most are like the queries it was tuned with
    assert found.effort.mean() < unlike.effort.mean()
    assert recall(index, texts[200:], like="text", recall=0.9) > 0.85
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


def test_a_graph_with_other_neighbors_is_not_used_for_a_recall(index, texts):
    index.link(10)
    index.tune(texts[:100], name="text")
    index.link(20)
    lists_only = index.search(texts[200:], like="text", beam=0)
    np.testing.assert_array_equal(index.search(texts[200:], like="text").ids, lists_only.ids)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 101, 7])
def test_names_are_short_lines_of_text(index, texts, name):
    with pytest.raises(InvalidInputError, match="name must be a name"):
        index.tune(texts, name=name)
    with pytest.raises(InvalidInputError, match="like must be a name"):
        index.search(texts, like=name)


def test_an_unknown_kind_is_refused_with_the_known_ones(index, texts, vectors):
    with pytest.raises(InvalidInputError, match=r"Known kinds: none"):
        index.search(texts[0], like="text")
    index.tune(texts[:100], name="text")
    with pytest.raises(InvalidInputError, match=r"index.tune\(Q, name='txt'\).*Known kinds: 'text'"):
        index.search(texts[0], like="txt")
    with pytest.raises(InvalidInputError, match="pass queries"):
        index.tune(name="text")
    with pytest.raises(InvalidInputError, match="omit like"):
        index.to("cpu").search(texts[0], like="text")
    paper = logt.Index(32, method=logt.methods.lo_gt())
    paper.add(vectors[:200])
    with pytest.raises(InvalidInputError, match="inverted lists"):
        paper.search(texts[0], like="text")
    assert len(logt.Index(32).search(texts[0], like="text").ids) == 10  # nothing is there to be unlike


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": np.frombuffer(b"a\na", np.uint8)},
        {"kinds": np.frombuffer(b"\xff\na", np.uint8)},
        {"measured_bounds": np.ones((2, 7), np.float32)},
        {"measured_bounds": np.full((3, 7), np.nan, np.float32)},
        {"measured_counts": np.full((3, 2), -1)},
        {"measured_counts": np.full((3, 2), 1 << 24)},
        {"measured_recall": np.full((18, 12), 2, np.float32)},
        {"measured_recall": np.zeros((17, 12), np.float32)},
    ],
)
def test_impossible_kinds_are_refused(index, texts, change):
    for name in "ab":
        index.tune(texts[:50], name=name)
    codec = index._snapshot.segments[0].codec
    arrays = measured_to_arrays(codec.measured, codec.kinds)
    usual, again = measured_from_arrays(arrays)
    assert (usual.vectors, list(again)) == (codec.measured.vectors, ["a", "b"])
    np.testing.assert_array_equal(again["b"].curve.recall, codec.kinds["b"].curve.recall)
    assert again["b"].linked is None
    with pytest.raises(ValueError, match=r"measured|curve|depths|decode|NaN"):
        measured_from_arrays({**arrays, **change})


def test_the_commands(index, texts, tmp_path):
    index.save(tmp_path / "i")
    np.save(tmp_path / "q.npy", texts[:50])
    files = str(tmp_path / "i"), str(tmp_path / "q.npy")
    runner = CliRunner()
    assert runner.invoke(app, ["tune", *files, "--name", "text"]).exit_code == 0
    done = runner.invoke(app, ["search", *files, "--like", "text", "--json"])
    assert json.loads(done.stdout)["ids"] == logt.open(files[0]).search(texts[:50], like="text").ids.tolist()
