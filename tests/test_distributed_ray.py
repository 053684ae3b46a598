"""Builds and searches on a Ray cluster of two nodes on this machine: the bytes, ids and scores of one machine."""

import json
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from exact_index import assert_same, built, overlap
from faults import contents
from test_project import ROOT, blocks

import logt
import logt.distributed
from logt.distributed.tasks import run_task
from logt.errors import BusyError, InvalidInputError, MissingShardsError

ray = pytest.importorskip("ray", reason="needs Ray: pip install ray, which has no wheel for Python 3.14")
of_ray = pytest.mark.filterwarnings("ignore")

DIM = 16


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine."""
    from ray.cluster_utils import Cluster

    about = {"num_cpus": 1, "object_store_memory": 80 << 20}  # Ray starts a worker for each
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = Cluster(initialize_head=True, head_node_args={**about, "include_dashboard": False})
        nodes.add_node(**about)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vectors):
    """An index of five segments, with removals."""
    folder = tmp_path_factory.mktemp("sharded") / "index"
    index = built(vectors(9000, DIM), segment_size=2000, measure=True)
    index.remove(np.arange(0, 3000, 7))
    index.save(folder)
    return folder


@pytest.fixture(scope="module")
def here(folder):
    """The same index on one machine."""
    return logt.open(folder)


@pytest.fixture(scope="module")
def index(cluster, folder):
    with logt.distributed.open(str(folder), replicas=2, shards=2, seconds=20) as index:
        yield index


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pids_of(replicas):
    return ray.get([replica.actor.__ray_call__.remote(lambda _: os.getpid()) for replica in replicas])


def test_shards_find_the_recall_of_one_machine(index, here, vectors):
    Q = vectors(300, DIM, seed=3)
    full = here.search(Q, 10, effort=1).ids
    mine, whole = (overlap(found.search(Q, 10).ids, full) for found in (index, here))
    assert mine > whole - 0.02


@pytest.mark.parametrize("settings", [{"effort": 1.0}, {"nprobe": 2}, {"nprobe": 5, "expand": 3}])
def test_shards_give_the_ids_and_scores_of_one_machine(index, here, vectors, settings):
    Q = vectors(300, DIM, seed=3)
    assert_same(index.search(Q, 10, **settings), here.search(Q, 10, **settings))
    assert_same(index.search(Q[0], 3, **settings), here.search(Q[0], 3, **settings))
    assert len(index) == len(here)


def test_shards_give_all_results_of_a_range_and_of_a_large_k_and_are_described(index, here, vectors):
    Q = vectors(5, DIM, seed=4)
    for mine, other in zip(index.range_search(Q, 0.6), here.range_search(Q, 0.6), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert_same(index.search(Q, 10_000), here.search(Q, 10_000))
    ids = here.ids[[5, 4000, 8000]]
    np.testing.assert_array_equal(index.reconstruct(ids), here.reconstruct(ids))
    assert 1 in index
    assert 0 not in index
    assert "1" not in index
    report = index.info()
    assert report["vectors"] == sum(part["vectors"] for part in report["shards"]) == len(index)
    assert [(part["replicas"], len(part["nodes"])) for part in report["shards"]] == [(2, 2), (2, 2)]


def test_filters_work_in_shards_and_other_things_are_refused(index, here, vectors):
    Q = vectors(20, DIM, seed=5)
    some = here.ids[::50]
    mask = np.arange(len(here)) % 2 == 0
    for allowed in (some, mask, [int(some[0])], []):
        assert_same(index.search(Q, 5, filter=allowed), here.search(Q, 5, filter=allowed))
    for queries, settings, message in (
        (Q, {"filter": ["a"]}, "list of integers"),
        (Q, {"filter": "a"}, "list of integers"),
        (Q, {"filter": lambda ids: ids > 3}, "a function as a filter"),
        (Q, {"rerank": "diffusion"}, "no neighbor graph"),
        (np.full(DIM, np.nan), {}, "row 0 of Q"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            index.search(queries, 5, **settings)


def test_string_ids_and_the_graph_give_what_they_give_on_one_machine(cluster, tmp_path, vectors):
    here = built(vectors(3000, DIM), [f"photo {i}" for i in range(3000)], link=20, segment_size=1500)
    here.remove(["photo 3", "photo 4"])
    here.save(tmp_path / "index")
    Q, some = vectors(3000, DIM)[:6], [f"photo {i}" for i in range(0, 3000, 3)]
    with logt.distributed.open(str(tmp_path / "index"), replicas=1, shards=2, seconds=20) as index:
        assert index.linked
        assert index.search(Q[1], 1).ids[0] == "photo 1"
        assert index.reconstruct({"photo 1", "photo 2"}).shape == (2, DIM)
        assert "photo 1" in index
        assert "photo" not in index
        for rerank in (None, "diffusion", logt.Diffusion(), lambda query, ids, scores: [len(name) for name in ids]):
            for allowed in (None, some, []):
                mine = index.search(Q, 5, rerank=rerank, filter=allowed, beam=0)
                assert_same(mine, here.search(Q, 5, rerank=rerank, filter=allowed, beam=0))
        exact = here.search(Q, 5, effort=1.0).ids
        assert overlap(index.search(Q, 5, effort=0, beam=200).ids, exact) > 0.95  # each shard has a part of the graph
        assert overlap(index.search(Q, 5, recall=0.95).ids, exact) > 0.9
        with pytest.raises(InvalidInputError, match="with a filter of ids, not with a mask"):
            index.search(Q, 5, rerank="diffusion", filter=np.ones(len(here), bool))


def test_shards_find_the_items_of_one_machine(cluster, tmp_path, vectors):
    from logt.server.collection import SearchOptions
    from logt.server.shard_collection import ShardCollection

    X = vectors(3000, DIM)
    index = logt.Index(DIM, segment_size=1000)
    index.add(X, items=[f"video {row // 7}" for row in range(3000)])
    index.save(tmp_path / "index")
    expected = index.search(X[:5], 20, by="item", effort=1)
    with logt.distributed.open(str(tmp_path / "index"), replicas=1, shards=2, seconds=20) as shards:
        found = shards.search(X[:5], 20, by="item", effort=1)
        assert_same(found, expected)
        assert found.items.tolist() == expected.items.tolist()
        assert found.missing == ()
        collection = ShardCollection(shards, "index")
        hits = collection.search(X[0], 3, SearchOptions(by="item", effort=1))[0]
        assert [hit.item for hit in hits] == expected.items[0, :3].tolist()
        with pytest.raises(InvalidInputError, match="searched by item with vectors, and with wanted ids"):
            collection.search(X[0], 3, SearchOptions(by="item", unwanted=[1]))


def test_a_new_generation_is_loaded_without_dropping_a_search(cluster, tmp_path, vectors):
    X = vectors(3000, DIM)
    built(X[:2000], segment_size=1500).save(tmp_path / "index")
    errors, stop, seen = [], threading.Event(), set()
    with logt.distributed.open(str(tmp_path / "index"), replicas=1, shards=1, seconds=20) as index:
        before = index._actors

        def search_often():
            while not stop.is_set():
                try:
                    seen.add(int(index.search(X[2500], 1).ids[0]))
                except Exception as error:
                    errors.append(error)

        thread = threading.Thread(target=search_often)
        thread.start()
        assert not index.refresh()
        with logt.open(tmp_path / "index", mode="a") as changed:
            changed.add(X[2000:])
            changed.compact()
            changed.save()
        assert index.refresh()
        wait_for(lambda: 2500 in seen or errors)
        stop.set()
        thread.join()
        assert not errors
        assert len(index) == 3000
        assert index.generation == 2
        assert_same(index.search(X[:9], 5), logt.open(tmp_path / "index").search(X[:9], 5))
        wait_for(lambda: before._closed)  # the actors of the old state are stopped


def test_an_index_that_cannot_be_searched_in_shards_is_refused(tmp_path, vectors):
    built(vectors(100, DIM)).save(tmp_path / "logged")
    with logt.open(tmp_path / "logged", mode="a") as changed:
        changed.remove([3])
        changed.save()
    built(vectors(100, DIM), method=logt.methods.rnd(n=10, m=2, L=4)).save(tmp_path / "paper")
    for name, kind, message in (
        ("logged", InvalidInputError, "changes in its write-ahead log"),
        ("paper", InvalidInputError, "no inverted lists"),
        ("none", FileNotFoundError, "holds no index"),
    ):
        with pytest.raises(kind, match=message):
            logt.distributed.open(str(tmp_path / name))


def test_a_slow_replica_is_passed_over(index, here, vectors):
    Q = vectors(3, DIM, seed=8)
    slow = index._actors.shards[0][0]
    (pid,) = pids_of([slow])
    os.kill(pid, signal.SIGSTOP)
    index._actors._seconds = 2.0
    try:
        for _ in range(2):
            assert_same(index.search(Q, 5, nprobe=9), here.search(Q, 5, nprobe=9))
        assert slow.failures >= 1
    finally:
        os.kill(pid, signal.SIGCONT)
        index._actors._seconds = 20


def test_killed_actors_lose_no_search_and_are_replaced(index, here, vectors):
    """All actors of a node are killed during many searches: none is wrong or partial."""
    Q = vectors(25, DIM, seed=6)
    expected = here.search(Q, 10, nprobe=9)
    done, wrong, stop = [], [], threading.Event()

    def search_often():
        for number in range(10_000):
            if number >= 25 and stop.is_set():
                return
            found = index.search(Q, 10, nprobe=9)
            done.append(found)
            if not (found.ids == expected.ids).all() or not (found.scores == expected.scores).all() or found.missing:
                wrong.append(found)

    threads = [threading.Thread(target=search_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        node = index._actors.shards[0][0].node
        mine = [r for shard in index._actors.shards for r in shard if r.node == node]
        for pid in pids_of(mine):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: index._actors.replaced >= len(mine))
        wait_for(lambda: all(len(shard) == 2 for shard in index._actors.shards))
        assert all(shard[0].node != shard[1].node for shard in index._actors.shards)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(done) >= 100, "a search raised an error"
    assert not wrong


def test_a_search_waits_for_a_new_actor_and_names_a_shard_that_gets_none(cluster, folder, here, vectors):
    Q = vectors(3, DIM, seed=7)
    with logt.distributed.open(str(folder), replicas=1, shards=2, seconds=60) as index:
        os.kill(*pids_of(index._actors.shards[1]), signal.SIGKILL)
        assert_same(index.search(Q, 5), here.search(Q, 5))
        assert index._actors.replaced == 1
        index._actors._start_again = lambda shard: None  # no replacement
        index._actors._seconds = 0.5
        os.kill(*pids_of(index._actors.shards[1]), signal.SIGKILL)
        with pytest.raises(MissingShardsError, match="shard 1") as caught:
            index.search(Q, 5)
        assert caught.value.shards == (1,)
        found = index.search(Q, 5, allow_partial=True)
        assert found.missing == (1,)
        ends = np.cumsum([0, *index._state.outline.counts])
        known = np.concatenate([here.ids[ends[n] : ends[n + 1]] for n in index._state.parts[0]])
        assert np.isin(found.ids, known).all()


def test_the_service_searches_in_shards_reports_each_and_refuses_too_many_searches(index, here, vectors):
    from server_testing import API, error_message, open_client, result_ids

    from logt.server.shard_collection import ShardCollection

    class Kept(ShardCollection):
        def close(self):
            """The index is used by other tests."""

    Q = vectors(3, DIM, seed=11)
    with open_client(Kept(index, "shards"), read_only=True) as client:
        found = client.post(f"{API}/search", json={"vectors": Q.tolist(), "k": 4})
        assert result_ids(found) == here.search(Q, 4).ids.tolist()
        found = client.post(f"{API}/search/ids", json={"ids": [int(here.ids[5])], "k": 3})
        others = here.search(here.reconstruct(here.ids[5:6]), 4).ids[0]
        assert result_ids(found)[0] == [other for other in others if other != here.ids[5]][:3]
        assert client.get("/", params={"id": str(here.ids[5])}).status_code == 200
        assert client.get("/", params={"id": "0"}).status_code == 404
        assert client.get(f"{API}/info").json()["report"]["vectors"] == len(here)
        metrics = client.get(f"{API}/metrics").text
        assert 'logt_shard_replicas{shard="1"} 2.0' in metrics
        assert 'logt_shard_calls{shard="0"}' in metrics
        refused = client.post(f"{API}/vectors", json={"vectors": Q.tolist()})
        assert "read-only" in error_message(refused, 403, "read_only")
        missing = client.post(f"{API}/search/ids", json={"ids": [10**9], "k": 3})
        assert missing.status_code == 404
        slots = index._slots
        index._slots, index._seconds = threading.BoundedSemaphore(1), 0.05
        try:
            with index._slots:
                with pytest.raises(BusyError, match="too many searches"):
                    index.search(Q, 1)
                error_message(client.post(f"{API}/search", json={"vectors": Q.tolist()}), 503, "busy")
        finally:
            index._slots, index._seconds = slots, 20


# ------------------------------------------------------------------------------------------------------ builds


@of_ray
def test_a_build_on_ray_has_the_bytes_of_a_build_with_processes_whatever_is_killed(cluster, tmp_path, vectors):
    sources = [tmp_path / f"{number}.npy" for number in range(3)]
    for number, source in enumerate(sources):
        np.save(source, vectors(300, DIM, seed=number))

    def die_once(line):
        if json.loads(line)["kind"] == "encode" and not (mark := tmp_path / "died").exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_task(line)

    pool = logt.distributed.RayPool()
    pool._remote = ray.remote(die_once)
    done = logt.distributed.build(sources, tmp_path / "ray", pool=pool, segment_size=500, link=5)
    assert (done.segments, done.linked) == (2, 900)
    assert (tmp_path / "died").exists()
    logt.distributed.build(sources, tmp_path / "here", workers=1, segment_size=500, link=5)
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")


@of_ray
def test_the_command_builds_on_a_cluster_that_is_not_named(cluster, tmp_path, vectors, run_logt):
    np.save(tmp_path / "vectors.npy", vectors(300, DIM))
    options = ("--ray", "--link", 5, "--json")
    assert '"linked": 300' in run_logt("build", tmp_path / "vectors.npy", tmp_path / "index", *options)
    assert len(logt.open(tmp_path / "index")) == 300


@of_ray
def test_descriptors_of_photos_are_computed_on_the_cluster(cluster, tmp_path, small):
    Image = pytest.importorskip("PIL.Image")
    from logt.photos import Photos, update

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
        (tmp_path / name / "bad.png").write_bytes(bytes(100))
    there = update(tmp_path / "one", model=small, extract=logt.distributed.RayExtractor())
    here = update(tmp_path / "two", model=small)
    assert there == here
    assert there.added == 10
    assert [name for name, _ in there.failed] == ["bad.png"]
    one, two = Photos.open(tmp_path / "one").index, Photos.open(tmp_path / "two").index
    names = sorted(one.ids)
    np.testing.assert_array_equal(one.reconstruct(names), two.reconstruct(names))


@of_ray
def test_the_code_of_the_how_to_runs(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("vectors.npy", np.random.default_rng(0).standard_normal((500, 64)).astype(np.float32))
    names = {}
    for example in blocks(ROOT / "docs" / "how-to" / "cluster.md", "python"):
        exec(compile(example, "cluster.md", "exec"), names)
