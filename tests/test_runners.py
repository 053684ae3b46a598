"""The module for VIBE and ann-benchmarks, called as their runners do. Neither is on the package index.

Both expand the grids of config.yml, and start a process in a container with the arguments as JSON. It reads an HDF5
file, builds one index, times each query for each setting, and stores the results.
"""

import importlib
import json
import re
import shutil
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from exact_index import nearest, unmeasured

import logt
from logt.evaluation import recall_at

h5py = pytest.importorskip("h5py")

FILES = Path(__file__).parent.parent / "benchmarks" / "runners"
RUNNERS = {  # the metrics of each, and what they are
    "vibe": {"euclidean": "l2", "cosine": "cosine", "ip": "ip", "normalized": "cosine"},
    "ann_benchmarks": {"euclidean": "l2", "angular": "cosine"},
}
BASE = """
class BaseANN:
    def done(self): ...
    def get_memory_usage(self): return 0.0
    def get_additional(self): return {}
    def __str__(self): return self.name
"""
COUNT = 10


@pytest.fixture(params=RUNNERS)
def runner(request, tmp_path, monkeypatch):
    """(package, the definition of logt): the files of the module where the runner has them."""
    package = request.param
    algorithms = tmp_path / package / "algorithms"
    (algorithms / "base").mkdir(parents=True)
    (algorithms / "base" / "module.py").write_text(BASE)
    shutil.copytree(FILES / package, algorithms / "logt")
    shutil.copy(FILES / "module.py", algorithms / "logt")
    monkeypatch.syspath_prepend(tmp_path)
    (definition,) = yaml.safe_load((algorithms / "logt" / "config.yml").read_text())["float"]["any"]
    yield package, definition
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture
def data(tmp_path, vectors):
    """Return a function that writes a file of ann-benchmarks: metric -> path."""

    def write(name, metric):
        scale = 1 if metric == "cosine" else np.random.default_rng(0).uniform(0.5, 2, (800, 1))
        X, Q = (vectors(800, 24) * scale).astype(np.float32), vectors(10, 24, seed=1)
        with h5py.File(tmp_path / f"{name}.hdf5", "w") as file:
            file.attrs.update(distance=name, dimension=24, point_type="float")
            file["train"], file["test"], file["neighbors"] = X, Q, nearest(X, Q, COUNT, metric)
            file["distances"] = np.zeros((10, COUNT))
        return tmp_path / f"{name}.hdf5"

    return write


def grid(arguments):
    """Expand {name: values} or [values]: every combination as positional arguments, in the order of the file."""
    lists = arguments.values() if isinstance(arguments, dict) else arguments
    return [list(one) for one in product(*(values if isinstance(values, list) else [values] for values in lists))]


def commands(definition, metric, group):
    """Return the arguments of each process of a group, as its command line has them: JSON."""
    base = [metric if argument == "@metric" else argument for argument in definition["base_args"]]
    some = definition["run_groups"][group]
    return [json.dumps([[*base, *build], grid(some["query_args"])]) for build in grid(some["args"])]


def construct(definition, build):
    module = importlib.import_module(f"{definition['module']}.module")
    return getattr(module, definition["constructor"])(*build)


def run(definition, command, path, *, batch=False):
    """Do what the process in the container does; return the stored neighbors by name of the algorithm."""
    build, settings = json.loads(command)
    algorithm = construct(definition, build)
    assert not any(hasattr(algorithm, name) for name in ("prepare_query", "prepare_batch_query", "query_verbose"))
    with h5py.File(path) as file:
        train, test = np.array(file["train"]), np.array(file["test"])
    before = train.copy()
    algorithm.get_memory_usage()
    algorithm.fit(train)
    stored = {}
    for arguments in settings:
        algorithm.set_query_arguments(*arguments)
        if batch:
            algorithm.batch_query(test, COUNT)
            found = algorithm.get_batch_results()
        else:
            found = [algorithm.query(vector, COUNT) for vector in test]
        assert all(len(set(ids)) == len(ids) <= COUNT and train[ids].shape[1] == 24 for ids in found)
        assert algorithm.get_additional() == {}
        stored[str(algorithm)] = np.array([[int(i) for i in ids] + [-1] * (COUNT - len(ids)) for ids in found])
    algorithm.done()
    assert len(stored) == len(settings)  # plots and result files tell settings apart by name
    assert np.array_equal(train, before)
    return stored


@pytest.mark.parametrize(("group", "least"), [("refined", 0.97), ("linked", 0.97), ("codes", 0.85)])
def test_each_group_and_metric_runs_as_the_runner_calls_it(runner, data, group, least):
    package, definition = runner
    for name, metric in RUNNERS[package].items():
        path = data(name, metric)
        true = h5py.File(path)["neighbors"][:]
        every = commands(definition, name, group)
        with unmeasured():
            stored = run(definition, every[-1], path)  # the most bits
        assert max(recall_at(COUNT, found, true) for found in stored.values()) > least
        if name == "euclidean":
            with unmeasured():
                together = run(definition, every[-1], path, batch=True)
            assert all(np.array_equal(together[name], found) for name, found in stored.items())


def test_fewer_results_than_requested_are_not_padded(runner, vectors):
    _, definition = runner
    algorithm = construct(definition, ["euclidean", 1, 2, True, False])
    algorithm.fit(vectors(800, 24))
    algorithm.set_query_arguments(1.0)
    assert len(algorithm.query(vectors(1, 24)[0], 1000)) == 800


def test_every_build_of_the_grid_is_a_method_of_the_version_that_is_installed(runner):
    package, definition = runner
    builds = [json.loads(one)[0] for group in definition["run_groups"] for one in commands(definition, "ip", group)]
    every = [construct(definition, build) for build in builds]
    for built in every:
        logt.methods.sketched(bits=built.bits, refine=built.refine)
    assert len(set(map(str, every))) == len(builds) == 8
    assert definition["module"] == f"{package}.algorithms.logt"
    image = FILES / package / ("image.def" if package == "vibe" else "Dockerfile")
    assert re.findall(r"logt-search==(\S+)", image.read_text()) == [logt.__version__]
    tag = definition["singularity_image" if package == "vibe" else "docker_tag"]
    assert tag == ("logt" if package == "vibe" else "ann-benchmarks-logt")
