"""String ids: returned, filtered, replaced, merged and saved."""

import numpy as np
import pytest
from exact_index import EXACT, built

import logt
from logt import InvalidInputError
from logt.engine.string_ids import Layer, StringIds


@pytest.fixture
def with_string_ids(vectors):
    names = [*(f"photo {i}.jpg" for i in range(9)), "Zürich \N{SNOWMAN}.png"]
    return built(vectors(10, 8), names, method=EXACT, segment_size=4)


def test_string_ids_are_returned(with_string_ids, vectors, tmp_path):
    scores, ids = with_string_ids.search(vectors(10, 8), 2)
    assert ids[:, 0].tolist() == with_string_ids.ids.tolist()
    assert ids[9, 0] == "Zürich \N{SNOWMAN}.png"
    assert with_string_ids.search(vectors(1, 8), 12).ids[0, 10:].tolist() == [None, None]
    assert scores.shape == (10, 2)
    with_string_ids.remove("photo 3.jpg")
    with_string_ids.save(tmp_path / "index")
    opened = logt.open(tmp_path / "index", mode="a")
    assert opened.ids.tolist() == with_string_ids.ids.tolist()
    assert "photo 3.jpg" not in opened
    assert "photo 4.jpg" in opened
    assert 4 not in opened
    assert opened.add(vectors(1, 8), ids=["photo 3.jpg"]).tolist() == ["photo 3.jpg"]


def test_string_ids_remove_filter_reconstruct_and_replace(with_string_ids, vectors):
    assert with_string_ids.remove(["photo 1.jpg", "nothing"]) == 1
    query = vectors(1, 8)[0]
    assert set(with_string_ids.search(query, 9, filter=["photo 1.jpg", "photo 2.jpg"]).ids) == {"photo 2.jpg", None}
    assert with_string_ids.remove(frozenset()) == 0
    assert with_string_ids.search(query, 2, filter=set()).ids.tolist() == [None, None]
    assert set(with_string_ids.search(query, 9, filter=[True] + 8 * [False]).ids) == {"photo 0.jpg", None}
    ends = with_string_ids.search(query, 9, filter=lambda ids: np.array([i.endswith(".png") for i in ids], bool)).ids
    assert set(ends) == {"Zürich \N{SNOWMAN}.png", None}
    X = vectors(2, 8, seed=9)
    with_string_ids.upsert(X, ["photo 2.jpg", "new"])
    assert len(with_string_ids) == 10
    assert np.allclose(with_string_ids.reconstruct(["new", "photo 2.jpg"]), X[::-1], atol=1e-2)
    with pytest.raises(InvalidInputError, match="'old' is not in the index"):
        with_string_ids.reconstruct(["old"])
    assert with_string_ids.range_search(X, 0.99).ids.tolist() == ["photo 2.jpg", "new"]


def test_string_ids_merge(with_string_ids, vectors):
    other = logt.Index(8, method=EXACT)
    X = vectors(3, 8, seed=9)
    other.add(X, ids=["a", "b", "c"])
    with_string_ids.merge_from(other)
    assert with_string_ids.search(X, 1).ids[:, 0].tolist() == ["a", "b", "c"]
    assert other.search(X, 1).ids[:, 0].tolist() == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match="'a' is in both"):
        with_string_ids.merge_from(other)
    numbered = built(X, method=EXACT)
    with pytest.raises(InvalidInputError, match="ids of one index are strings, of the other integers"):
        with_string_ids.merge_from(numbered)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["x", "x"], "'x' is given twice"),
        (["x", "photo 4.jpg"], "'photo 4.jpg' is already in the index"),
        (["x"], "1 ids are given, but there are 2"),
        ([1, 2], "ids of this index are strings"),
        (None, "ids of this index are strings"),
        (["x", 5], "ids of this index are strings"),
    ],
)
def test_invalid_string_ids_are_named(with_string_ids, vectors, ids, message):
    with pytest.raises(InvalidInputError, match=message):
        with_string_ids.add(vectors(2, 8), ids=ids)
    assert len(with_string_ids) == 10


def test_an_emptied_index_takes_ids_of_either_kind(with_string_ids, vectors, tmp_path):
    with_string_ids.remove(list(with_string_ids.ids))
    with_string_ids.save(tmp_path / "index")
    assert len(logt.open(tmp_path / "index")) == 0
    numbered = built(vectors(3, 8), method=EXACT)
    numbered.merge_from(with_string_ids)
    assert numbered.ids.tolist() == [0, 1, 2]
    with_string_ids.merge_from(numbered)
    assert with_string_ids.ids.tolist() == [0, 1, 2]
    assert with_string_ids.add(vectors(1, 8)).dtype == np.int64


def test_integer_and_string_ids_do_not_mix(vectors):
    index = built(vectors(3, 8), method=EXACT)
    with pytest.raises(InvalidInputError, match="ids of this index are integers"):
        index.add(vectors(1, 8), ids=["x"])


STRINGS = ["", "a", "a\0", "Zürich", "\N{SNOWMAN}\N{PARTY POPPER}", "\udc80", " ", "", "b" * 300]


@pytest.mark.parametrize("strings", [STRINGS, [s for s in STRINGS if s.isascii()], [], ["", ""]])
def test_layers_keep_strings(strings):
    ints = 3 * np.arange(len(strings)) + 5
    layer = Layer.from_arrays(Layer.of(strings, ints).arrays)
    assert layer.strings == strings
    assert [layer.at(np.array([row])) for row in range(len(strings))] == [[string] for string in strings]
    odd = np.arange(1, len(strings), 2)
    assert layer.take(odd).strings == strings[1::2]
    assert layer.take(odd).ints.tolist() == ints[odd].tolist()
    joined = Layer.join([layer, Layer.of(["é", "z"], np.array([100, 101]))])
    assert joined.strings == [*strings, "é", "z"]
    assert joined.ints.tolist() == [*ints.tolist(), 100, 101]
    backwards = Layer.from_arrays(Layer.of(strings[::-1], ints[::-1]).arrays)
    assert backwards.strings == strings
    assert StringIds((layer,)).to_strings(np.array([[5, 4]])).tolist() == [[strings[0] if strings else None, None]]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (b"\xc3\xa9", [1, 2]),  # cut within a character
        (b"\xe2\x98\x83", [2, 3]),
        (b"a\xff", [1, 2]),  # no UTF-8
        (b"\xc3", [1]),
        (b"abc", [1, 2]),
        (b"abc", [2, 1, 3]),
        (b"abc", [-1, 3]),
        (b"abc", [1, 4]),
        (b"abc", []),
    ],
)
def test_damaged_layers_are_refused(text, ends):
    ends = np.array(ends, np.int64)
    with pytest.raises(ValueError, match=r"string|utf-8"):
        Layer.from_arrays({"text": np.frombuffer(text, np.uint8), "ends": ends, "numbers": np.arange(len(ends))})
