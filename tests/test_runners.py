"""The modules for VIBE and ann-benchmarks, in a stand-in of their runners: the same files, calls and grids.

Neither runner is on the package index. Both import `<module>.module` from a folder of their algorithms, expand the
grids of config.yml to positional arguments in the order of the file, and then call what is called here.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml

import logt
from logt.evaluation import recall_at

FILES = Path(__file__).parent.parent / "benchmarks" / "runners"
RUNNERS = {
    "vibe": ["euclidean", "cosine", "ip", "normalized"],
    "ann_benchmarks": ["euclidean", "angular"],
}
BASE = """
class BaseANN:
    def __str__(self):
        return self.name
"""


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


def grid(arguments):
    """Expand {name: values} or [values]: every combination, in the order of the file."""
    lists = arguments.values() if isinstance(arguments, dict) else arguments
    return [list(one) for one in product(*lists)]


def algorithm(definition, metric, arguments):
    constructor = getattr(importlib.import_module(f"{definition['module']}.module"), definition["constructor"])
    base = [metric if argument == "@metric" else argument for argument in definition["base_args"]]
    return constructor(*base, *arguments)


def distances(X, q, metric):
    if metric == "euclidean":
        return np.linalg.norm(X - q, axis=1)
    products = X @ q
    return -products if metric == "ip" else -products / np.linalg.norm(X, axis=1)


def test_each_metric_and_the_whole_grid_of_queries(runner, vectors):
    package, metrics, definition = runner
    assert definition["module"] == f"{package}.algorithms.logt"
    group = definition["run_groups"]["refined"]
    settings = grid(group["query_args"])
    for metric in metrics:
        scale = np.random.default_rng(0).uniform(0.5, 2, (800, 1)) if metric in ("euclidean", "ip") else 1
        X, Q = (vectors(800, 24) * scale).astype(np.float32), vectors(10, 24, seed=1)
        exact = np.array([np.argsort(distances(X, q, metric))[:10] for q in Q])
        built = algorithm(definition, metric, grid(group["args"])[1])
        built.fit(X)
        for arguments in settings if metric == metrics[0] else settings[-1:]:
            built.set_query_arguments(*arguments)
            found = [built.query(q, 10) for q in Q]
            assert f"effort={arguments[0]}" in str(built)
        assert recall_at(10, np.array(found), exact) > 0.97
        built.batch_query(Q, 10)
        assert [ids.tolist() for ids in built.get_batch_results()] == [ids.tolist() for ids in found]
        assert len(built.query(Q[0], 1000)) == 800  # at most as many as there are, and no padding


def test_every_build_of_the_grid_is_a_method_of_the_version_that_is_installed(runner):
    package, metrics, definition = runner
    names = set()
    for group in definition["run_groups"].values():
        for arguments in grid(group["args"]):
            built = algorithm(definition, metrics[0], arguments)
            logt.methods.sketched(bits=built.bits, refine=built.refine)
            names.add(str(built))
    assert len(names) == 6
    image = FILES / package / ("image.def" if package == "vibe" else "Dockerfile")
    assert re.findall(r"logt-search==(\S+)", image.read_text()) == [logt.__version__]
