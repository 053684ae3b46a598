"""The modules for VIBE and ann-benchmarks, in a stand-in of their runners: the same files, calls and grids."""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from exact_index import nearest
from runner_stand_in import BASE, construct, grid, run_group

import logt
from logt.evaluation import recall_at

FILES = Path(__file__).parent.parent / "benchmarks" / "runners"
RUNNERS = {  # the metrics of each, and what they are
    "vibe": {"euclidean": "l2", "cosine": "cosine", "ip": "ip", "normalized": "cosine"},
    "ann_benchmarks": {"euclidean": "l2", "angular": "cosine"},
}


@pytest.fixture(params=RUNNERS)
def runner(request, tmp_path, monkeypatch):
    """(package, its metrics, the definition of logt): the files of the module where the runner has them."""
    package = request.param
    algorithms = tmp_path / package / "algorithms"
    (algorithms / "base").mkdir(parents=True)
    (algorithms / "base" / "module.py").write_text(BASE)
    shutil.copytree(FILES / package, algorithms / "logt")
    shutil.copy(FILES / "module.py", algorithms / "logt")
    monkeypatch.syspath_prepend(tmp_path)
    (definition,) = yaml.safe_load((algorithms / "logt" / "config.yml").read_text())["float"]["any"]
    yield package, RUNNERS[package], definition
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def algorithms(definition, metric, group):
    """Return the constructed algorithms of a group of the configuration."""
    return [construct(definition, metric, arguments) for arguments in grid(definition["run_groups"][group]["args"])]


def test_each_metric_and_the_whole_grid_of_queries(runner, vectors):
    package, metrics, definition = runner
    assert definition["module"] == f"{package}.algorithms.logt"
    settings = grid(definition["run_groups"]["refined"]["query_args"])
    for name, metric in metrics.items():
        scale = 1 if metric == "cosine" else np.random.default_rng(0).uniform(0.5, 2, (800, 1))
        X, Q = (vectors(800, 24) * scale).astype(np.float32), vectors(10, 24, seed=1)
        built = algorithms(definition, name, "refined")[1]
        built.fit(X)
        for arguments in settings if name == "euclidean" else settings[-1:]:
            built.set_query_arguments(*arguments)
            found = [built.query(q, 10) for q in Q]
            assert f"effort={arguments[0]}" in str(built)
        assert recall_at(10, np.array(found), nearest(X, Q, 10, metric)) > 0.97
        built.batch_query(Q, 10)
        assert [ids.tolist() for ids in built.get_batch_results()] == [ids.tolist() for ids in found]
        assert len(built.query(Q[0], 1000)) == 800  # at most as many as there are, and no padding


@pytest.mark.parametrize("group", ["refined", "codes"])
def test_a_whole_run_on_a_small_file(runner, group, vectors, tmp_path):
    h5py = pytest.importorskip("h5py")
    _, metrics, definition = runner
    X, Q = vectors(400, 24), vectors(5, 24, seed=1)
    with h5py.File(tmp_path / "small.hdf5", "w") as file:
        file["train"], file["test"], file["neighbors"] = X, Q, nearest(X, Q, 10, "cosine")
        file.attrs.update(distance=next(name for name in metrics if metrics[name] == "cosine"), dimension=24)
        done = list(run_group(definition, group, file, 10))
    grids = definition["run_groups"][group]
    assert len({name for name, _, _ in done}) == len(grid(grids["args"])) * len(grid(grids["query_args"]))
    assert max(recall for _, recall, _ in done) > (0.98 if group == "refined" else 0.9)
    assert all(counts == [10] * 5 for name, _, counts in done if "effort=1.0" in name)


def test_every_build_of_the_grid_is_a_method_of_the_version_that_is_installed(runner):
    package, _, definition = runner
    every = [built for group in definition["run_groups"] for built in algorithms(definition, "euclidean", group)]
    for built in every:
        logt.methods.sketched(bits=built.bits, refine=built.refine)
    assert len(set(map(str, every))) == 6
    image = FILES / package / ("image.def" if package == "vibe" else "Dockerfile")
    assert re.findall(r"logt-search==(\S+)", image.read_text()) == [logt.__version__]
