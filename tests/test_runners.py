"""The modules for VIBE and ann-benchmarks, called as their runners do. Neither is on the package index.

Both expand the grids of config.yml, start a process in a container with the arguments as JSON, build once for each
combination, and time single queries for each setting.
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
from exact_index import nearest

import logt
from logt.evaluation import recall_at

FILES = Path(__file__).parent.parent / "benchmarks" / "runners"
RUNNERS = {  # the metrics of each, and what they are
    "vibe": {"euclidean": "l2", "cosine": "cosine", "ip": "ip", "normalized": "cosine"},
    "ann_benchmarks": {"euclidean": "l2", "angular": "cosine"},
}
BASE = "class BaseANN:\n    def __str__(self):\n        return self.name\n"


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
    """Expand {name: values} or [values]: every combination as positional arguments, in the order of the file."""
    lists = arguments.values() if isinstance(arguments, dict) else arguments
    return [list(one) for one in product(*(values if isinstance(values, list) else [values] for values in lists))]


def algorithms(definition, metric, group):
    """Return the algorithms of a group of the configuration, as a container constructs them from JSON."""
    constructor = getattr(importlib.import_module(f"{definition['module']}.module"), definition["constructor"])
    base = [metric if argument == "@metric" else argument for argument in definition["base_args"]]
    every = grid(definition["run_groups"][group]["args"])
    return [constructor(*json.loads(json.dumps([*base, *arguments]))) for arguments in every]


def test_each_metric_and_the_whole_grid_of_builds_and_queries(runner, vectors):
    package, metrics, definition = runner
    assert definition["module"] == f"{package}.algorithms.logt"
    for name, metric in metrics.items():
        scale = 1 if metric == "cosine" else np.random.default_rng(0).uniform(0.5, 2, (800, 1))
        X, Q = (vectors(800, 24) * scale).astype(np.float32), vectors(10, 24, seed=1)
        for group, least in (("refined", 0.97), ("codes", 0.85)):
            settings = grid(definition["run_groups"][group]["query_args"])
            best = 0
            for built in algorithms(definition, name, group)[0 if name == "euclidean" else -1 :]:
                built.fit(X)
                for arguments in settings if name == "euclidean" else settings[-1:]:
                    built.set_query_arguments(*arguments)
                    found = [built.query(q, 10) for q in Q]
                    assert f"effort={arguments[0]}" in str(built)
                    assert all(len(set(ids.tolist())) == len(ids) for ids in found)
                best = max(best, recall_at(10, np.array(found), nearest(X, Q, 10, metric)))
            assert best > least
        built.batch_query(Q, 10)
        assert [ids.tolist() for ids in built.get_batch_results()] == [ids.tolist() for ids in found]
        assert len(built.query(Q[0], 1000)) == 800  # at most as many as there are, and no padding


def test_every_build_of_the_grid_is_a_method_of_the_version_that_is_installed(runner):
    package, _, definition = runner
    every = [built for group in definition["run_groups"] for built in algorithms(definition, "euclidean", group)]
    for built in every:
        logt.methods.sketched(bits=built.bits, refine=built.refine)
    assert len(set(map(str, every))) == 6
    image = FILES / package / ("image.def" if package == "vibe" else "Dockerfile")
    assert re.findall(r"logt-search==(\S+)", image.read_text()) == [logt.__version__]
