"""The neighbor graph of an index whose vectors are replaced or learned again, or that another process changes."""

from __future__ import annotations

import numpy as np
import pytest
from test_graph import exact

import logt
from logt.datasets.synthetic import synthetic_collection
from logt.lists.inverted_lists import Probe


@pytest.fixture(scope="module")
def collection():
    return synthetic_collection(5000, 64, seed=1).X


def test_a_graph_of_too_many_neighbors_is_refused(collection):
    index = logt.Index(64)
    index.add(collection[:5])
    with pytest.raises(logt.InvalidInputError, match="k must be at most 1,000"):
        index.link(10**9)
    assert index.links is None


def test_an_upsert_of_all_vectors_keeps_the_graph(collection):
    index = logt.Index(64)
    names = [f"n{i}" for i in range(300)]
    index.add(collection[:300], ids=names)
    index.link(10)
    index.upsert(collection[300:600], ids=names)
    assert index.report()["linked"] == 300
    assert index.links.neighbors(0)[0].shape == (10,)
    assert len(index.search(collection[300], 5, rerank="diffusion").ids) == 5


@pytest.mark.parametrize("given", [False, True])
def test_relearning_frees_what_was_removed_and_links_again(collection, given):
    index = logt.Index(64)
    index.add(collection[:2000], ids=[f"image {i:05d}" for i in range(2000)])
    index.link(10)
    index.remove([f"image {i:05d}" for i in range(0, 2000, 2)])
    before = index.report()["bytes by part"]
    if given:
        index.compact(collection[1:2000:2])
    else:
        index.compact(relearn=True)
    after = index.report()
    assert after["bytes by part"]["string ids"] < 0.6 * before["string ids"]
    assert after["bytes by part"]["graph"] < 0.7 * before["graph"]
    assert after["linked"] == 1000
    graph = index.links
    assert graph.ids[7] == "image 00015"
    truth = exact(collection[1:2000:2], 10)
    assert np.mean([np.isin(a, b) for a, b in zip(graph.rows.reshape(1000, 10), truth, strict=True)]) > 0.75


def test_a_reader_finds_vectors_of_the_log_besides_the_graph(collection, tmp_path):
    index = logt.Index(64)
    index.add(collection[:3800])
    index.link(12)
    index.save(tmp_path / "index")
    with logt.open(tmp_path / "index", "a") as writer:
        for part in (slice(3800, 4400), slice(4400, 5000)):
            writer.add(collection[part])
            writer.save()
    assert list((tmp_path / "index").glob("changes-*.log"))
    reader = logt.open(tmp_path / "index")
    assert reader.report()["linked"] == 3800
    searcher = reader._state.search().searcher
    assert searcher.graph is not None
    found = reader.search(collection[3800:], 1, effort=0.0)
    assert (found.ids[:, 0] == np.arange(3800, 5000)).mean() > 0.99
    counts = searcher.search(collection[:50], 10, searcher.limits(Probe(), 10))[2]
    assert (counts[:, 1] > 1200).all()
