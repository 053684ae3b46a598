"""What Python and notebooks expect of an index: copies, representations, lengths, progress, helpful errors."""

import copy
import pickle
import re

import numpy as np
import pytest
from exact_index import assert_same

import logt
from logt.distributed import DistributedIndex


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((500, 32)).astype(np.float32)


@pytest.fixture(scope="module", params=["integers", "strings", "opened", "paper"])
def index(request, X, tmp_path_factory):
    method = logt.methods.lo_gt(n=10, L=20) if request.param == "paper" else None
    index = logt.Index(32, method=method)
    index.add(X, ids=[f"photo {i}" for i in range(500)] if request.param == "strings" else None)
    if request.param != "opened":
        return index
    path = tmp_path_factory.mktemp("index")
    index.save(path)
    return logt.open(path, mode="r")


@pytest.mark.parametrize(
    "duplicate", [lambda index: pickle.loads(pickle.dumps(index)), copy.copy], ids=["pickle", "copy"]
)
def test_a_copy_finds_the_same_and_changes_alone(index, X, duplicate):
    copied = duplicate(index)
    assert index.search(X[0]).ids.shape == (10,)  # by default
    assert_same(copied.search(X[:20]), index.search(X[:20]))
    assert copied.remove(index.ids[:5]) == 5
    assert (len(copied), len(index)) == (495, 500)


def test_lengths_and_representations(X):
    index = logt.Index(32)
    index.add(X)
    assert len(index) == index.ntotal == 500
    assert repr(index) == "Index(dim=32, metric='cosine', ntotal=500)"
    html = index._repr_html_()
    assert html.startswith("<table>")
    assert "<tr><th>vectors</th><td>500</td></tr>" in html
    assert "&lt;script&gt;" in logt.Report({"path": "<script>"})._repr_html_()


def test_progress_is_a_bar_a_callback_or_nothing(X, capfd):
    calls = []
    index = logt.Index(32)
    index.add(X, progress=lambda *call: calls.append(call))
    index.upsert(X, index.ids, progress=False)
    assert capfd.readouterr() == ("", "")
    index.upsert(X, index.ids, progress=True)
    written = capfd.readouterr()
    assert written.out == ""
    assert calls[-1][0] in written.err
    for method in (index.graph, index.link):
        method(5, progress=True)
        assert "linking" in capfd.readouterr().err
    with pytest.raises(logt.InvalidInputError, match="progress must be True, False or a function"):
        index.add(X, progress="yes")
    assert len(index) == 500


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 4}, r"no parameter 'bits'; .*method=logt\.methods\.sketched\(bits=\.\.\.\)"),
        ({"n": 50}, r"no parameter 'n'; .*method=logt\.methods\.lo_gt\(n=\.\.\.\)"),
        ({"nlist": 50}, "Index has no parameter 'nlist'"),
    ],
)
def test_a_parameter_of_the_method_points_at_the_method(settings, message):
    with pytest.raises(TypeError, match=message):
        logt.Index(32, **settings)


@pytest.mark.parametrize(
    ("method", "example"),
    [
        (logt.methods.rnd, "rnd()"),
        ("LO-GT", "lo_gt()"),
        ("sketchd", "sketched()"),
        ("ivf", "sketched()"),
        (4, "sketched(bits=4)"),
        ({"bits": 4, "L": 2}, "sketched(bits=4, L=2)"),
        ({"bitz": 4}, "sketched()"),
        (True, "sketched()"),
    ],
)
def test_the_error_for_what_is_no_method_shows_the_method_that_was_meant(method, example):
    with pytest.raises(logt.InvalidInputError, match=re.escape(f"such as logt.methods.{example}, got {method!r}")):
        logt.Index(32, method=method)


def test_every_index_is_searchable(X):
    """They are subclasses, so mypy compares their methods with those of the protocol."""
    index = logt.Index(32)
    index.add(X)
    for other in (index, index.to("cpu")):
        assert (other.ntotal, other.generation) == (len(other), None)
    assert all(logt.Searchable in kind.__mro__ for kind in (logt.Index, logt.DeviceIndex, DistributedIndex))
