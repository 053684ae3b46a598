"""Shards of one index: merging what they find gives the ids and scores of a search of the whole."""

import os

import numpy as np
import pytest
from exact_index import built

from logt.distributed.replicas import Replicas
from logt.lists.calibration import _overlap
from logt.lists.inverted_lists import Probe
from logt.lists.search import ListSearcher
from logt.lists.shards import ListTotals, merge_candidates, split_by_bytes


@pytest.fixture(scope="module")
def segments(vectors):
    """Segments of two codecs, with lists and without, some with removals."""
    index = built(vectors(4500, 24), segment_size=1600, measure=True)
    index.merge_from(built(vectors(3000, 24, seed=1), np.arange(10_000, 13_000), segment_size=1600, measure=True))
    index.add(vectors(300, 24, seed=2))
    index.remove(np.arange(0, 4000, 3))
    found = index._snapshot.segments
    assert len(found) >= 5
    assert len({id(segment.codec) for segment in found}) == 2
    assert 1 <= sum(segment.flat for segment in found) <= len(found) - 4
    assert any(segment.removed is not None for segment in found)
    return found


def assert_shards_give_the_whole(segments, shards, Q, k, probe, masks=None):
    """Compare the merged results of shards with those of all segments together."""
    codecs = ListSearcher(segments).codecs
    whole = ListSearcher(segments, masks)
    parts = [
        ([segments[i] for i in shard], None if masks is None else [masks[i] for i in shard], codecs)
        for shard in shards
    ]
    each = [ListSearcher(*part).totals() for part in parts]
    totals = [sum(same[1:], same[0]) for same in zip(*each, strict=True)]
    limits = probe.limits(k, depths=whole.depths, curves=whole.curves)
    limits = limits._replace(candidates=max(k, limits.candidates))
    found = [ListSearcher(*part, totals).candidates(Q, limits) for part in parts]
    expected = whole.search(Q, k, limits)
    for mine, all_of_it in zip(merge_candidates(found, limits.candidates, k), expected[:2], strict=True):
        np.testing.assert_array_equal(mine, all_of_it)


@pytest.mark.parametrize(
    ("probe", "k"), [(Probe(1.0), 10), (Probe(1.0), 200), (Probe(nprobe=1), 10), (Probe(nprobe=3), 200)]
)
def test_merged_shards_give_the_ids_and_scores_of_the_whole(segments, vectors, probe, k):
    Q = vectors(70, 24, seed=9)
    for shards in ([[i] for i in range(len(segments))], [[0, 2], [1], list(range(3, len(segments)))]):
        assert_shards_give_the_whole(segments, shards, Q, k, probe)


@pytest.mark.parametrize("fraction", [0.02, 0.5])
def test_merged_shards_obey_a_filter_as_the_whole(segments, vectors, fraction):
    rng = np.random.default_rng(3)
    masks = [(rng.random(len(s)) < fraction) & s.live for s in segments]
    shards = [[i] for i in range(len(segments))]
    assert_shards_give_the_whole(segments, shards, vectors(30, 24, seed=4), 10, Probe(0.4), masks)


def test_totals_are_those_of_all_segments(segments):
    for segment in segments:
        (total,) = ListSearcher([segment]).totals()
        assert total.visible.sum() + total.scanned == segment.count
    empty = ListTotals.empty(segments[0].codec)
    assert (empty + empty).rows.sum() == 0


def test_shards_fit_the_budget_and_are_balanced():
    sizes = [5, 9, 3, 7, 1, 1]
    shards = split_by_bytes(sizes, 14)
    assert sorted(i for shard in shards for i in shard) == list(range(6))
    loads = [sum(sizes[i] for i in shard) for shard in shards]
    assert max(loads) <= 14
    assert len(shards) == 2
    assert split_by_bytes([20, 1], 14) == [[0], [1]]  # one segment is never split
    assert split_by_bytes(sizes, 1000) == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(("same_process", "connected"), [(False, True), (True, False)])
def test_a_fork_and_a_lost_connection_leave_the_actors_alone(monkeypatch, same_process, connected):
    """A call of Ray would start another cluster, and wait for it."""

    class Ray:
        is_initialized = staticmethod(lambda: connected)

    replicas = object.__new__(Replicas)
    replicas._ray, replicas._pid = Ray, os.getpid() if same_process else os.getppid()
    replicas.close()
    assert not hasattr(replicas, "_closed")


def test_the_recall_of_some_queries_is_that_of_sets_of_ids():
    rng = np.random.default_rng(0)
    for _ in range(50):
        k, width = int(rng.integers(1, 12)), int(rng.integers(1, 15))
        full = np.stack([np.append(rng.permutation(30)[:width], np.full(3, -1)) for _ in range(6)])
        found = np.stack([rng.permutation(30)[: k + 1] for _ in range(6)])
        own = np.where(rng.random(6) < 0.5, rng.integers(0, 30, 6), -1)
        shares = []
        for nearest, ids, mine in zip(full, found, own, strict=True):
            wanted = [i for i in nearest if i not in (mine, -1)][:k]
            shares.append(len(set(wanted) & set([i for i in ids if i != mine][:k])) / max(len(wanted), 1))
        kinds = [np.array(shares)[kind] for kind in (own >= 0, own < 0) if kind.any()]
        assert np.isclose(_overlap(found, full, own, k), min(kind.mean() for kind in kinds))
