"""Shards of a linked index: each searches with the edges between its vectors, and keeps to the recall."""

import numpy as np
import pytest
from exact_index import built, overlap

import logt
from logt.distributed.searching import ShardState, _measured, _Search
from logt.distributed.shard import Shard
from logt.lists.inverted_lists import Probe
from logt.metrics import check_queries
from logt.storage.shard_files import read_outline

DIM = 24


class Actors:
    """Shards in this process, called as those of a cluster."""

    def __init__(self, path, parts):
        state = read_outline(path).state
        self.shards = [Shard(str(path), state, part) for part in parts]
        loaded = [shard.load() for shard in self.shards]
        for shard in self.shards:
            shard.activate([sum(same[1:], same[0]) for same in zip(*loaded, strict=True)])

    def call(self, method, arguments, missing):
        return [getattr(shard, method)(*arguments(number)) for number, shard in enumerate(self.shards)]

    def call_first(self, method):
        return [getattr(shard, method)() for shard in self.shards]


def opened(path, parts):
    actors, outline = Actors(path, parts), read_outline(path)
    return ShardState(str(path), outline, parts, actors, _measured(actors))


def clustered(count, seed):
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).standard_normal((60, DIM))
    return (centers[rng.integers(0, 60, count)] + 0.6 * rng.standard_normal((count, DIM))).astype(np.float32)


def queries(count, seed):
    return check_queries(clustered(count, seed), "cosine", ignore=False)[0]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A linked index of four segments, with removals, and its folder."""
    index = built(clustered(8000, 1), link=20, segment_size=2000, measure=True)
    index.remove(np.arange(0, 8000, 9))
    path = tmp_path_factory.mktemp("linked") / "index"
    index.save(path)
    assert len(index._snapshot.segments) == 4
    return index, path


@pytest.fixture(scope="module")
def state(here):
    return opened(here[1], [[0], [1, 3], [2]])


again = state  # another state of the same shards


def test_a_shard_has_the_edges_between_its_vectors(here, state):
    index, graph = here[0], here[0].links
    neighbors = {int(i): graph.neighbors(row)[0].tolist() for row, i in enumerate(graph.ids)}
    for shard, part in zip(state.actors.shards, state.parts, strict=True):
        mine = np.sort(np.concatenate([(s := index._snapshot.segments[n]).ids[s.live] for n in part]))
        kept = shard._graph
        np.testing.assert_array_equal(kept.ids, mine)
        assert kept.removed is None
        for row in range(0, len(mine), 50):
            inside = [i for i in neighbors[int(mine[row])] if i in set(mine.tolist())]
            assert mine[kept.neighbors[row][: kept.counts[row]]].tolist() == inside


@pytest.mark.parametrize(("recall", "k"), [(0.8, 10), (0.95, 10), (0.95, 100)])
def test_shards_keep_the_recall_that_is_promised(here, state, again, recall, k):
    Q = queries(200, 2)
    exact = here[0].search(Q, k, effort=1.0).ids
    found = _Search(state).run(Q, k, Probe(recall=recall))
    assert overlap(found[1], exact) >= recall - 0.01
    for mine, other in zip(found, _Search(again).run(Q, k, Probe(recall=recall)), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_without_a_beam_or_with_a_filter_shards_give_the_results_of_one_machine(here, state):
    index = here[0]
    Q = queries(50, 3)
    some = index.ids[::3]
    few: dict[str, float] = {"nprobe": 4}  # the same for all shards, which stop by themselves otherwise
    for given, allowed in (
        ({**few, "beam": 0}, None),
        ({"effort": 1.0}, None),
        (few, some),
        ({**few, "beam": 9}, some),
    ):
        probe = index.method.limits(logt.SearchParams(**given))
        scores, ids = _Search(state, allowed).run(Q, 10, probe)
        expected = index.search(clustered(50, 3), 10, filter=allowed, **given)
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_array_equal(scores, expected.scores)


def test_a_beam_is_used_in_shards(here, state):
    Q = queries(100, 4)
    exact = here[0].search(Q, 10, effort=1.0).ids
    few, many = (overlap(_Search(state).run(Q, 10, Probe(0.0, beam=n))[1], exact) for n in (0, 200))
    assert many > few + 0.05


def test_a_shard_without_linked_vectors_reads_them_all(tmp_path):
    index = built(clustered(3000, 1), link=20, segment_size=1500)
    with logt.open(saved(index, tmp_path / "index"), mode="a") as changed:
        changed.add(clustered(500, 7))  # too few to be linked
        changed._pending.rewrite()
        changed.save()
        new = [n for n, s in enumerate(changed._snapshot.segments) if s.ids[-1] >= 3000]
        old = [n for n in range(len(changed._snapshot.segments)) if n not in new]
        state = opened(tmp_path / "index", [old, new])
        assert state.actors.shards[1]._graph is None
        Q = check_queries(changed.reconstruct(np.arange(3000, 3500)), "cosine", ignore=False)[0]
        found = _Search(state).run(Q, 1, Probe(0.0, beam=10))[1]
    np.testing.assert_array_equal(found[:, 0], np.arange(3000, 3500))


def test_where_an_index_was_tuned_with_queries_only_a_given_beam_uses_the_graph(tmp_path):
    index = built(clustered(3000, 1), link=20, segment_size=1500)
    index.tune(clustered(50, 5))
    state = opened(saved(index, tmp_path / "index"), [[0], [1]])
    assert state.curves == []
    Q = queries(50, 6)
    found = _Search(state).run(Q, 10, Probe(recall=0.9))
    assert overlap(found[1], index.search(clustered(50, 6), 10, recall=0.9, beam=0).ids) > 0.95  # each ends by itself


def saved(index, path):
    index.save(path)
    return path
