"""`LogtTransformer` as the neighbor search of scanpy, if it is installed; it is no test dependency."""

from __future__ import annotations

import numpy as np
import pytest

from logt.sklearn import LogtTransformer


@pytest.mark.filterwarnings("ignore")
def test_scanpy_takes_the_transformer():
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    X = np.random.default_rng(0).standard_normal((300, 20)).astype(np.float32)
    X[:150] += 4
    exact, found = anndata.AnnData(X), anndata.AnnData(X)
    scanpy.pp.neighbors(exact, n_neighbors=10, use_rep="X", transformer="sklearn")
    scanpy.pp.neighbors(found, n_neighbors=10, use_rep="X", transformer=LogtTransformer(n_neighbors=10))
    connected, expected = ((data.obsp["connectivities"] > 0).toarray() for data in (found, exact))
    assert not connected[:150, 150:].any()
    assert (connected & expected).sum() > 0.9 * expected.sum()
