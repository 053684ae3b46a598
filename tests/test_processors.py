"""Other processors: what the results and the bytes of an index have to do with instruction sets and BLAS.

Sums of floats depend on the width of vectors, on fused operations and on BLAS. Two instruction sets and two kinds of
BLAS of one machine stand for two machines.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exact_index import METRICS, built, overlap

import logt
from logt import _kernels
from logt.methods import compact, lo_gt, sketched

METHODS = {
    "default": sketched(),
    "LO-GT": lo_gt(n=10, m=3, L=20),
    "bytes": compact(lo_gt(n=10, m=3, L=20)),
}
OLDEST_BLAS = {"x86_64": "Nehalem", "aarch64": "ARMV8"}.get(platform.machine(), "")  # as OpenBLAS names them


def collection():
    """Return (vectors, queries) that are the same everywhere."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 40))[rng.integers(0, 30, 1300)] + 0.5 * rng.standard_normal((1300, 40))
    return X[:1250].astype(np.float32), X[1250:].astype(np.float32)


def agree(found, expected):
    """Whether scores are equal but for rounding, and so are ids, but for vectors of about equal scores."""
    size = np.abs(expected.scores).max()
    gaps = np.abs(np.diff(expected.scores, axis=-1, append=np.nan, prepend=np.nan))
    apart = np.minimum(gaps[..., 1:], gaps[..., :-1]) > 1e-4 * size  # the ends are not: NaN
    close = np.abs(found.scores - expected.scores) <= 1e-5 * size
    return close.all() and (found.ids == expected.ids)[apart].all()


def same(found, expected):
    return (found.scores == expected.scores).all() and (found.ids == expected.ids).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", METHODS)
def test_searches_agree_on_every_instruction_set(isa, name, metric):
    """Those of the default index to the bit: lists.cpp sums alike everywhere, and without fused operations."""
    X, Q = collection()
    index = built(X, method=METHODS[name], metric=metric)
    for queries in (Q, Q[0]):
        found = index.search(queries, 10)
        _kernels.use_instruction_set("baseline")
        expected = index.search(queries, 10)
        _kernels.use_instruction_set(isa)
        assert same(found, expected) if name == "default" else agree(found, expected)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder of indexes, and what was found in them, by the oldest instruction set and BLAS."""
    folder = tmp_path_factory.mktemp("elsewhere")
    environment = {**os.environ, "OPENBLAS_CORETYPE": OLDEST_BLAS, "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, __file__, folder], env=environment, check=True)
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_an_index_of_another_processor_has_the_results_that_it_has_there(elsewhere, name):
    X, Q = collection()
    stored = np.load(elsewhere / f"{name}.npz")
    there = logt.SearchResult(stored["scores"], stored["ids"])
    found = logt.open(elsewhere / name).search(Q, 10)
    assert same(found, there) if name == "default" else agree(found, there)
    own = built(X, method=METHODS[name]).search(Q, 10)  # other bytes, perhaps
    assert overlap(own.ids, there.ids) > 0.9


if __name__ == "__main__":
    _kernels.use_instruction_set("baseline")
    for name, method in METHODS.items():
        X, Q = collection()
        index = built(X, method=method)
        index.save(Path(sys.argv[1]) / name)
        found = index.search(Q, 10)
        np.savez(Path(sys.argv[1]) / f"{name}.npz", scores=found.scores, ids=found.ids)
