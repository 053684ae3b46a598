"""What VIBE and ann-benchmarks do with a module, call by call, for tests. Neither is on the package index.

Both expand the grids of config.yml, start a process in a container with the arguments as JSON, read an .hdf5 file
with "train", "test" and the attribute "distance", build once, and time single queries for each setting.
"""

import importlib
import json
from itertools import product

import numpy as np

BASE = """
class BaseANN:
    def done(self):
        pass

    def get_memory_usage(self):
        return 0.0

    def get_additional(self):
        return {}

    def __str__(self):
        return self.name
"""
"""The base class: what the runners call besides what a module defines."""


def grid(arguments):
    """Expand {name: values} or [values]: every combination as positional arguments, in the order of the file."""
    lists = arguments.values() if isinstance(arguments, dict) else arguments
    return [list(one) for one in product(*(values if isinstance(values, list) else [values] for values in lists))]


def construct(definition, metric, arguments):
    """Return an algorithm, as a container constructs it from JSON."""
    base = [metric if argument == "@metric" else argument for argument in definition["base_args"]]
    words = [json.dumps(argument) for argument in (*base, *arguments)]
    constructor = getattr(importlib.import_module(f"{definition['module']}.module"), definition["constructor"])
    return constructor(*map(json.loads, words))


def run_group(definition, group, file, count):
    """Yield (name, recall, candidates) of each setting of a group of the configuration, on an open .hdf5 file."""
    train, test = np.array(file["train"]), np.array(file["test"])
    exact = np.array(file["neighbors"])[:, :count]
    for arguments in grid(definition["run_groups"][group]["args"]):
        algorithm = construct(definition, file.attrs["distance"], arguments)
        assert not hasattr(algorithm, "supports_prepared_queries")
        before = algorithm.get_memory_usage()
        algorithm.fit(train)
        assert algorithm.get_memory_usage() >= before
        for setting in grid(definition["run_groups"][group]["query_args"]):
            algorithm.set_query_arguments(*json.loads(json.dumps(setting)))
            found = [algorithm.query(query, count) for query in test]
            assert all(train[candidates].shape[0] == len(set(map(int, candidates))) for candidates in found)
            hits = [len(np.intersect1d(*pair)) for pair in zip(found, exact, strict=True)]
            json.dumps({**algorithm.get_additional(), "name": str(algorithm)})
            yield str(algorithm), sum(hits) / exact.size, [len(candidates) for candidates in found]
        algorithm.done()
