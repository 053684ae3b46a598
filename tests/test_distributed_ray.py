"""Builds and searches on a Ray cluster of three nodes on this machine: the bytes, ids and scores of one machine."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import logt
import logt.distributed
from logt.distributed.staging import Staging
from logt.errors import BusyError, InvalidInputError, MissingShardsError

ray = pytest.importorskip("ray", reason="needs Ray: pip install ray, which has no wheel for Python 3.14")

from test_project import ROOT, blocks  # noqa: E402

DIM = 16


@pytest.fixture(scope="module")
def cluster():
    """Three nodes on this machine."""
    from ray.cluster_utils import Cluster

    memory = 80 << 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 2, "object_store_memory": memory, "include_dashboard": False},
        )
        for _ in range(2):
            nodes.add_node(num_cpus=2, object_store_memory=memory)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vectors):
    """An index of five segments, with removals."""
    folder = tmp_path_factory.mktemp("sharded") / "index"
    index = logt.Index(DIM, segment_size=2000)
    index.add(vectors(9000, DIM))
    index.remove(np.arange(0, 3000, 7))
    index.save(folder)
    return folder


@pytest.fixture(scope="module")
def index(cluster, folder):
    with logt.distributed.open(str(folder), replicas=2, shards=3, seconds=20) as index:
        yield index


def assert_same(mine, other):
    np.testing.assert_array_equal(mine.ids, other.ids)
    np.testing.assert_array_equal(mine.scores, other.scores)


@pytest.mark.filterwarnings("ignore")
def test_a_build_on_ray_has_the_bytes_of_a_build_with_processes(cluster, tmp_path, vectors):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", vectors(700, DIM, seed=number))
    sources = [tmp_path / f"{number}.npy" for number in range(3)]
    done = logt.distributed.build(sources, tmp_path / "ray", pool=logt.distributed.RayPool(), segment_size=1100)
    assert done.segments == 2
    logt.distributed.build(sources, tmp_path / "here", workers=1, segment_size=1100)
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "ray").iterdir())
    for name in names:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_the_command_builds_on_a_cluster_that_is_not_named(cluster, tmp_path, vectors):
    from typer.testing import CliRunner

    from logt.cli.main import app

    np.save(tmp_path / "vectors.npy", vectors(300, DIM))
    done = CliRunner().invoke(
        app, ["build", "--ray", str(tmp_path / "vectors.npy"), str(tmp_path / "index"), "--json"]
    )
    assert '"vectors": 300' in done.output
    assert len(logt.open(tmp_path / "index")) == 300


def running_tasks():
    """The workers of this cluster that run a task: descendants of this process with the name that Ray gives them."""
    parents, tasks = {}, []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::run_task"):
                tasks.append(pid)

    def is_mine(pid):
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in tasks if is_mine(pid)]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="this system has no /proc")
@pytest.mark.filterwarnings("ignore")
def test_killed_workers_of_ray_change_no_byte(cluster, tmp_path, vectors):
    np.save(tmp_path / "vectors.npy", vectors(9000, DIM))
    killed, stop = [], threading.Event()

    def kill_some():
        while len(killed) < 4 and not stop.is_set():
            for pid in running_tasks()[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.05)

    thread = threading.Thread(target=kill_some)
    thread.start()
    try:
        pool = logt.distributed.RayPool()
        logt.distributed.build(tmp_path / "vectors.npy", tmp_path / "ray", pool=pool, segment_size=1500)
    finally:
        stop.set()
        thread.join()
    assert killed
    logt.distributed.build(tmp_path / "vectors.npy", tmp_path / "here", workers=1, segment_size=1500)
    for path in (tmp_path / "here").iterdir():
        assert path.read_bytes() == (tmp_path / "ray" / path.name).read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_a_dataset_of_ray_is_built_from_its_blocks(cluster, tmp_path, vectors):
    import ray.data

    X = vectors(1200, DIM)
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.from_numpy([X[:500], X[500:700], X[700:]])
    done = logt.distributed.build(dataset, tmp_path / "index", workers=1)
    assert done.vectors == 1200
    index = logt.open(tmp_path / "index")
    assert np.isin(index.search(X[[0, 600, 1100]], 1).scores.round(2), [1.0]).all()
    assert [path.name for path in tmp_path.iterdir()] == ["index"]  # the files of the blocks are removed
    with pytest.raises(InvalidInputError, match="is an index"):
        logt.distributed.build(dataset, tmp_path / "index", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]  # none were written


@pytest.mark.filterwarnings("ignore")
def test_files_of_another_dataset_are_not_used(cluster, tmp_path, vectors):
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    first, second = (ray.data.from_numpy(vectors(300, DIM, seed=seed)) for seed in (1, 2))
    staging = Staging(first, tmp_path / "index")
    (name,) = staging.write()
    stamp = (tmp_path / "index.vectors" / Path(name).name).stat().st_mtime_ns
    assert staging.write() == [name]  # as a build that was killed left it
    assert (tmp_path / "index.vectors" / Path(name).name).stat().st_mtime_ns == stamp
    logt.distributed.build(second, tmp_path / "index", workers=1)
    found = logt.open(tmp_path / "index").search(vectors(300, DIM, seed=2)[:20], 1)
    assert (found.scores > 0.98).all()
    wrong = vectors(300, DIM)
    wrong[7] = np.nan
    with pytest.raises(InvalidInputError, match="row 7"):
        logt.distributed.build(ray.data.from_numpy(wrong), tmp_path / "other", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("settings", [{}, {"effort": 0.1}, {"effort": 1.0}, {"nprobe": 2}, {"expand": 3}])
def test_shards_give_the_ids_and_scores_of_one_machine(index, folder, vectors, settings):
    here, Q = logt.open(folder), vectors(300, DIM, seed=3)
    assert_same(index.search(Q, 10, **settings), here.search(Q, 10, **settings))
    assert_same(index.search(Q[0], 3, **settings), here.search(Q[0], 3, **settings))
    assert len(index) == len(here)


def test_shards_give_all_results_of_a_range_and_of_a_large_k(index, folder, vectors):
    here, Q = logt.open(folder), vectors(5, DIM, seed=4)
    for mine, other in zip(index.range_search(Q, 0.6), here.range_search(Q, 0.6), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert_same(index.search(Q, 10_000), here.search(Q, 10_000))
    ids = here.ids[[5, 4000, 8000]]
    np.testing.assert_array_equal(index.reconstruct(ids), here.reconstruct(ids))
    assert 1 in index
    assert 0 not in index
    assert "1" not in index


def test_filters_work_in_shards_and_other_things_are_refused(index, folder, vectors):
    here, Q = logt.open(folder), vectors(20, DIM, seed=5)
    some = here.ids[::50]
    mask = np.arange(len(here)) % 2 == 0
    for allowed in (some, mask, [int(some[0])], []):
        assert_same(index.search(Q, 5, filter=allowed), here.search(Q, 5, filter=allowed))
    for wrong in (["a"], "a"):
        with pytest.raises(InvalidInputError, match="list of integers"):
            index.search(Q, 5, filter=wrong)
    with pytest.raises(InvalidInputError, match="a function as a filter"):
        index.search(Q, 5, filter=lambda ids: ids > 3)
    with pytest.raises(InvalidInputError, match="no neighbor graph"):
        index.search(Q, 5, rerank="diffusion")
    with pytest.raises(InvalidInputError, match="row 0 of Q"):
        index.search(np.full(DIM, np.nan), 5)


def test_results_are_re_ranked_on_the_graph_as_on_one_machine(cluster, tmp_path, vectors):
    here = logt.Index(DIM, segment_size=1500)
    here.add(vectors(3000, DIM), ids=[f"photo {i}" for i in range(3000)])
    here.link(k=20)
    here.remove(["photo 3", "photo 4"])
    here.save(tmp_path / "index")
    Q, some = vectors(6, DIM, seed=12), [f"photo {i}" for i in range(0, 3000, 3)]
    with logt.distributed.open(str(tmp_path / "index"), replicas=1, shards=2, seconds=20) as index:
        assert index.linked
        assert_same(index.search(Q, 5, rerank="diffusion"), here.search(Q, 5, rerank="diffusion", beam=0))
        for allowed in (some, []):
            mine = index.search(Q, 5, rerank=logt.Diffusion(), filter=allowed)
            assert_same(mine, here.search(Q, 5, rerank=logt.Diffusion(), filter=allowed, beam=0))
        with pytest.raises(InvalidInputError, match="with a filter of ids, not with a mask"):
            index.search(Q, 5, rerank="diffusion", filter=np.ones(len(here), bool))
        with logt.open(tmp_path / "index", mode="a") as writer:
            writer.unlink()
            writer.save()
        assert index.refresh()
        with pytest.raises(InvalidInputError, match="no neighbor graph"):
            index.search(Q, 5, rerank="diffusion")


def test_replicas_are_on_different_nodes_and_described(index):
    report = index.info()
    assert report["vectors"] == len(index)
    assert [part["replicas"] for part in report["shards"]] == [2, 2, 2]
    assert all(len(part["nodes"]) == 2 for part in report["shards"])
    assert sum(part["vectors"] for part in report["shards"]) == len(index)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_killed_actors_lose_no_search_and_are_replaced(index, folder, vectors):
    """10,000 searches, in calls of 25, while all actors of a node are killed, twice: none is wrong or partial."""
    here, Q = logt.open(folder), vectors(25, DIM, seed=6)
    expected = here.search(Q, 10)
    seconds, wrong = [], []
    index.search(Q, 10)

    def search_often():
        done = 0
        while done < 100 or not stop.is_set():
            start = time.perf_counter()
            found = index.search(Q, 10)
            seconds.append(time.perf_counter() - start)
            done += 1
            if not (found.ids == expected.ids).all() or not (found.scores == expected.scores).all() or found.missing:
                wrong.append(found)

    stop = threading.Event()
    threads = [threading.Thread(target=search_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            node = index._actors.shards[0][0].node
            mine = [r for shard in index._actors.shards for r in shard if r.node == node]
            expected_count = index._actors.replaced + len(mine)
            for pid in [ray.get(replica.actor.ping.remote())["pid"] for replica in mine]:
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda count=expected_count: index._actors.replaced >= count)
            wait_for(lambda: all(len(shard) == 2 for shard in index._actors.shards))
            assert all(shard[0].node != shard[1].node for shard in index._actors.shards)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(seconds) >= 400, "a search raised an error"
    assert not wrong
    print(f"p99 {1e3 * np.quantile(seconds, 0.99):.0f} ms, most {1e3 * max(seconds):.0f} ms")


def test_a_shard_without_replicas_is_named(cluster, folder, vectors):
    with logt.distributed.open(str(folder), replicas=1, shards=2, seconds=20) as index:
        index._actors._start_again = lambda shard: None  # no replacement
        index._actors._seconds = 0.5
        os.kill(ray.get(index._actors.shards[1][0].actor.ping.remote())["pid"], signal.SIGKILL)
        Q = vectors(3, DIM, seed=7)
        with pytest.raises(MissingShardsError, match="shard 1") as caught:
            index.search(Q, 5)
        assert caught.value.shards == (1,)
        found = index.search(Q, 5, allow_partial=True)
        assert found.missing == (1,)
        segments = index._view.layout.shards[0]
        ends = np.cumsum([0, *index._view.outline.counts])
        known = np.concatenate([logt.open(folder).ids[ends[n] : ends[n + 1]] for n in segments])
        assert np.isin(found.ids, known).all()


def test_a_search_waits_for_an_actor_that_replaces_the_only_one(cluster, folder, vectors):
    with logt.distributed.open(str(folder), replicas=1, shards=2, seconds=60) as index:
        os.kill(ray.get(index._actors.shards[1][0].actor.ping.remote())["pid"], signal.SIGKILL)
        Q = vectors(3, DIM, seed=13)
        assert_same(index.search(Q, 5), logt.open(folder).search(Q, 5))
        assert index._actors.replaced == 1


def test_a_slow_replica_is_passed_over(cluster, folder, vectors):
    with logt.distributed.open(str(folder), replicas=2, shards=1, seconds=5.0) as index:
        (shard,) = index._actors.shards
        os.kill(ray.get(shard[0].actor.ping.remote())["pid"], signal.SIGSTOP)
        here, Q = logt.open(folder), vectors(3, DIM, seed=8)
        for _ in range(2):
            assert_same(index.search(Q, 5), here.search(Q, 5))
        assert shard[0].failures >= 1


def test_a_new_generation_is_loaded_without_dropping_a_search(cluster, tmp_path, vectors):
    X = vectors(5000, DIM)
    writer = logt.Index(DIM, segment_size=1500)
    writer.add(X[:4000])
    writer.save(tmp_path / "index")
    errors, stop, seen = [], threading.Event(), set()
    with logt.distributed.open(str(tmp_path / "index"), replicas=2, shards=2, seconds=20) as index:

        def search_often():
            while not stop.is_set():
                try:
                    found = index.search(X[4500], 1)
                    seen.add(int(found.ids[0]))
                except Exception as error:
                    errors.append(error)

        thread = threading.Thread(target=search_often)
        thread.start()
        assert not index.refresh()
        with logt.open(tmp_path / "index", mode="a") as changed:
            changed.add(X[4000:])
            changed.compact()
            changed.save()
        assert index.refresh()
        time.sleep(0.3)
        stop.set()
        thread.join()
        assert not errors
        assert 4500 in seen
        assert len(index) == 5000
        assert index.generation == 2
        assert_same(index.search(X[:9], 5), logt.open(tmp_path / "index").search(X[:9], 5))
        states = [ray.get(r.actor.ping.remote())["states"] for shard in index._actors.shards for r in shard]
        assert states == [[index._view.outline.state]] * 4  # the old state is dropped


def test_too_many_searches_are_refused(index, vectors):
    slots = index._slots
    index._slots, index._seconds = threading.BoundedSemaphore(1), 0.05
    try:
        with index._slots, pytest.raises(BusyError, match="too many searches"):
            index.search(vectors(1, DIM), 1)
    finally:
        index._slots, index._seconds = slots, 20


def test_an_index_that_cannot_be_searched_in_shards_is_refused(cluster, tmp_path, vectors):
    index = logt.Index(DIM)
    index.add(vectors(100, DIM))
    index.save(tmp_path / "logged")
    with logt.open(tmp_path / "logged", mode="a") as changed:
        changed.remove([3])
        changed.save()
    with pytest.raises(InvalidInputError, match="changes in its log"):
        logt.distributed.open(str(tmp_path / "logged"))
    paper = logt.Index(DIM, method=logt.methods.rnd(n=10, m=2, L=4))
    paper.add(vectors(100, DIM))
    paper.save(tmp_path / "paper")
    with pytest.raises(InvalidInputError, match="no inverted lists"):
        logt.distributed.open(str(tmp_path / "paper"))
    with pytest.raises(FileNotFoundError, match="holds no index"):
        logt.distributed.open(str(tmp_path / "none"))


def test_string_ids_are_returned_as_strings(cluster, tmp_path, vectors):
    index = logt.Index(DIM)
    index.add(vectors(1200, DIM), ids=[f"photo {i}" for i in range(1200)])
    index.save(tmp_path / "index")
    with logt.distributed.open(str(tmp_path / "index"), replicas=1) as shards:
        Q = vectors(1200, DIM)[:4]
        assert_same(shards.search(Q, 3), logt.open(tmp_path / "index").search(Q, 3))
        assert shards.search(Q[1], 1).ids[0] == "photo 1"
        assert shards.reconstruct({"photo 1", "photo 2"}).shape == (2, DIM)
        assert "photo 1" in shards
        assert "photo" not in shards
        assert_same(
            shards.search(Q, 3, filter=["photo 7", "photo 9"]),
            logt.open(tmp_path / "index").search(Q, 3, filter=["photo 7", "photo 9"]),
        )


def test_the_code_of_the_how_to_runs(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("vectors.npy", np.random.default_rng(0).standard_normal((500, 64)).astype(np.float32))
    names = {}
    for example in blocks(ROOT / "docs" / "how-to" / "cluster.md", "python"):
        exec(compile(example, "cluster.md", "exec"), names)


def test_the_service_searches_in_shards_and_reports_each(cluster, index, folder, vectors):
    from server_testing import API, error_message, open_client, result_ids

    from logt.server.shard_collection import ShardCollection

    class Kept(ShardCollection):
        def close(self):
            """The index is used by other tests."""

    here, Q = logt.open(folder), vectors(3, DIM, seed=11)
    with open_client(Kept(index, str(folder)), read_only=True) as client:
        found = client.post(f"{API}/search", json={"vectors": Q.tolist(), "k": 4})
        assert result_ids(found) == here.search(Q, 4).ids.tolist()
        found = client.post(f"{API}/search/ids", json={"ids": [int(here.ids[5])], "k": 3})
        assert (
            result_ids(found)[0]
            == [i for i in here.search(here.reconstruct(here.ids[5:6]), 4).ids[0] if i != here.ids[5]][:3]
        )
        assert client.get("/", params={"id": str(here.ids[5])}).status_code == 200
        assert client.get("/", params={"id": "0"}).status_code == 404
        assert client.get(f"{API}/info").json()["report"]["vectors"] == len(here)
        metrics = client.get(f"{API}/metrics").text
        assert 'logt_shard_replicas{shard="2"} 2.0' in metrics
        assert 'logt_shard_calls{shard="0"}' in metrics
        refused = client.post(f"{API}/vectors", json={"vectors": Q.tolist()})
        assert "read-only" in error_message(refused, 403, "read_only")
        missing = client.post(f"{API}/search/ids", json={"ids": [10**9], "k": 3})
        assert missing.status_code == 404
        slots = index._slots
        index._slots, index._seconds = threading.BoundedSemaphore(1), 0.05
        try:
            with index._slots:
                error_message(client.post(f"{API}/search", json={"vectors": Q.tolist()}), 503, "busy")
        finally:
            index._slots, index._seconds = slots, 20


def test_descriptors_of_photos_are_computed_on_the_cluster(cluster, tmp_path, small):
    Image = pytest.importorskip("PIL.Image")
    from logt.photos import Photos, update

    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(20):
            pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
        (tmp_path / name / "bad.png").write_bytes(rng.bytes(100))
    there = update(tmp_path / "one", model=small, extract=logt.distributed.RayExtractor())
    here = update(tmp_path / "two", model=small)
    assert there == here
    assert there.added == 20
    assert [name for name, _ in there.failed] == ["bad.png"]
    one, two = Photos.open(tmp_path / "one").index, Photos.open(tmp_path / "two").index
    names = sorted(one.ids)
    np.testing.assert_array_equal(one.reconstruct(names), two.reconstruct(names))
