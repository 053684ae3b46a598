"""Repeating a log: the index is as its writer left it, whatever was changed."""

import itertools

import numpy as np
import pytest
from exact_index import assert_same, unmeasured
from faults import TORTURE

import logt
from logt.storage import changes


@pytest.mark.parametrize("seed", range(4))
def test_a_log_is_repeated_as_it_was_written(vectors, tmp_path, seed):
    rng = np.random.default_rng(seed)
    saved = logt.Index(16)
    saved.add(vectors(2000, 16))
    saved.save(tmp_path / "index")
    with logt.open(tmp_path / "index", mode="a") as index:
        for step in range(changes.MAX_CHANGES):
            if rng.random() < 0.3:
                index.remove(rng.choice(index.ids, rng.integers(1, 200), replace=False))
            else:
                index.add(vectors(int(rng.choice([1, 7, 150, 600])), 16, seed=step))
            index.save()
            if step % 3 == 2:
                opened = logt.open(tmp_path / "index")
                sizes, live = ([s.count for s in i._snapshot.segments] for i in (opened, index))
                assert sizes == live  # as after the merges of the writer
                Q = vectors(5, 16, seed=99)
                assert_same(opened.search(Q, 20), index.search(Q, 20))
    assert list((tmp_path / "index").glob("changes-*.log"))


@pytest.mark.parametrize("seed", range(40 if TORTURE else 6))
@pytest.mark.parametrize("kind", ["strings", "items", "both", "linked"])
def test_a_log_of_any_changes_is_repeated_as_it_was_made(tmp_path, seed, kind):
    rng, path, names = np.random.default_rng(seed), tmp_path / "index", kind in ("strings", "both")
    numbers = itertools.count()

    def fresh(count):
        new = list(itertools.islice(numbers, count))
        return [f"ä{n}" for n in new] if names else new

    def items(ids):
        return {"items": [f"item {len(str(n))}{rng.integers(5)}" for n in ids]} if kind in ("items", "both") else {}

    index = logt.Index(8)
    with unmeasured():
        index.add(rng.standard_normal((40, 8)), ids := fresh(40), **items(ids))
        if kind == "linked":
            index.link(3)
    index.save(path)
    with logt.open(path, mode="a") as index, unmeasured():
        for _ in range(12):
            for _ in range(rng.integers(1, 4)):
                some = rng.choice(index.ids, min(len(index), int(rng.choice([1, 5, 100]))), replace=False).tolist()
                if rng.random() < 0.4 and some:
                    index.remove(some)
                else:
                    ids = [*some[: rng.integers(0, 3)], *fresh(int(rng.integers(1, 4)))]
                    index.upsert(rng.standard_normal((len(ids), 8)), ids, **items(ids))
            index.save()
            assert_equal(logt.open(path), index)


def assert_equal(opened, index):
    assert opened.ids.tolist() == index.ids.tolist()
    assert (None if opened.items is None else opened.items.tolist()) == (
        None if index.items is None else index.items.tolist()
    )
    assert opened._snapshot.next_id == index._snapshot.next_id
    assert [s.count for s in opened._snapshot.segments] == [s.count for s in index._snapshot.segments]
    graphs = [i._snapshot.graph for i in (opened, index)]
    linked = [None if graph is None else graph.ids[graph.live].tolist() for graph in graphs]
    assert linked[0] == linked[1]
    if len(index):
        assert np.array_equal(opened.reconstruct(opened.ids), index.reconstruct(index.ids))
