"""What Python and notebooks expect of an index: copies, representations, lengths, progress, helpful errors."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import numpy as np
import pytest

import logt


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((500, 32)).astype(np.float32)


@pytest.fixture(params=["integers", "strings", "opened", "paper"])
def index(request, X, tmp_path):
    method = logt.methods.lo_gt(n=10, L=20) if request.param == "paper" else None
    index = logt.Index(32, method=method)
    index.add(X, ids=[f"photo {i}" for i in range(500)] if request.param == "strings" else None)
    if request.param != "opened":
        return index
    index.save(tmp_path / "index")
    return logt.open(tmp_path / "index", mode="r")


@pytest.mark.parametrize("duplicate", [lambda index: pickle.loads(pickle.dumps(index)), copy.deepcopy, copy.copy])
def test_a_copy_finds_the_same_and_changes_alone(index, X, duplicate):
    copied = duplicate(index)
    np.testing.assert_array_equal(copied.search(X[:20]).ids, index.search(X[:20]).ids)
    np.testing.assert_array_equal(copied.search(X[:20]).scores, index.search(X[:20]).scores)
    assert copied.remove(index.ids[:5]) == 5
    assert (len(copied), len(index)) == (495, 500)


def test_joblib_dumps_loads_and_runs_in_processes(index, X, tmp_path):
    joblib = pytest.importorskip("joblib")
    joblib.dump(index, tmp_path / "index.joblib")
    loaded = joblib.load(tmp_path / "index.joblib")
    expected = index.search(X[:4]).ids
    np.testing.assert_array_equal(loaded.search(X[:4]).ids, expected)
    parts = joblib.Parallel(n_jobs=2)(joblib.delayed(index.search)(q, threads=1) for q in X[:4])
    np.testing.assert_array_equal([part.ids for part in parts], expected)


def test_k_is_ten_by_default(index, X):
    assert index.search(X[0]).ids.shape == (10,)


def test_lengths_and_representations(X):
    index = logt.Index(32)
    index.add(X)
    assert len(index) == index.ntotal == 500
    assert repr(index) == "Index(dim=32, metric='cosine', ntotal=500)"
    html = index._repr_html_()
    assert html.startswith("<table>")
    assert "<tr><th>vectors</th><td>500</td></tr>" in html
    assert "<tr><th>vectors</th><td>0</td></tr>" in logt.Index(8)._repr_html_()


def test_values_are_escaped_in_notebooks():
    assert "&lt;script&gt;" in logt.Report({"path": "<script>"})._repr_html_()


def test_progress_is_a_bar_a_callback_or_nothing(X, capfd):
    calls = []
    logt.Index(32).add(X, progress=lambda *call: calls.append(call))
    assert calls
    logt.Index(32).add(X, progress=False)
    assert capfd.readouterr() == ("", "")
    index = logt.Index(32)
    index.add(X, progress=True)
    index.upsert(X[:3], [0, 1, 2], progress=True)
    written = capfd.readouterr()
    assert written.out == ""
    assert calls[-1][0] in written.err
    with pytest.raises(logt.InvalidInputError, match="progress must be True, False or a function"):
        index.add(X, progress="yes")
    assert len(index) == 500


def test_the_neighbor_graph_draws_bars_too(X, capfd):
    index = logt.Index(32)
    index.add(X)
    for method in (index.graph, index.link):
        method(5, progress=True)
        assert "linking" in capfd.readouterr().err


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
        ("rnd", "rnd()"),
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


def test_parameters_have_types():
    for function in (
        logt.Index.add,
        logt.Index.upsert,
        logt.Index.search,
        logt.Index.range_search,
        logt.Index.remove,
    ):
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.name == "self" or parameter.annotation not in ("Any", inspect.Parameter.empty), function
