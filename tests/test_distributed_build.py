"""Builds with many workers: the same bytes for any number of them, whatever is killed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from exact_index import built, nearest, overlap
from faults import contents

import logt
import logt.distributed
from logt.distributed.blocks import split_sources
from logt.distributed.pools import ProcessPool
from logt.errors import InvalidInputError, WorkerError

DIM, N, SIZE = 16, 3240, 1100


@pytest.fixture(scope="module")
def pool():
    with ProcessPool(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def sources(tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("sources")
    X = vectors(N, DIM)
    for name, part in (("a", X[:1000]), ("b", X[1000:1100]), ("c", X[1100:])):
        np.save(folder / f"{name}.npy", part)
    return [folder / "a.npy", folder / "b.npy", folder / "c.npy"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory, sources):
    """The index that one worker builds."""
    out = tmp_path_factory.mktemp("reference") / "index"
    done = logt.distributed.build(sources, out, workers=1, segment_size=SIZE)
    assert (done.vectors, done.segments, done.resumed) == (N, 3, 0)
    return out


def test_blocks_are_equal_and_cover_all_sources_in_order():
    blocks = split_sources([("a", 5), ("b", 0), ("c", 1), ("d", 6)], 5)
    assert [block.rows for block in blocks] == [4, 4, 4]
    assert [block.first for block in blocks] == [0, 4, 8]
    assert blocks[1].pieces == (("a", 4, 5), ("c", 0, 1), ("d", 0, 2))


def test_the_bytes_do_not_depend_on_the_number_of_workers_or_on_those_that_are_killed(sources, reference, tmp_path):
    killed = []
    with ProcessPool(2) as pool:

        def kill_one(what, done, total):
            if what in ("sampling", "encoding") and len(killed) < 4 and pool.pids:
                killed.append(pool.pids[len(killed) % len(pool.pids)])
                os.kill(killed[-1], signal.SIGKILL)

        logt.distributed.build(sources, tmp_path / "index", pool=pool, segment_size=SIZE, progress=kill_one)
    assert len(killed) == 4
    assert contents(tmp_path / "index") == contents(reference)
    assert not [name for name in contents(reference) if name.startswith(("build-", "sample-"))]


def test_the_index_finds_what_an_index_in_memory_finds(sources, reference, vectors):
    index = logt.open(reference)
    X = np.concatenate([np.load(source) for source in sources])
    Q = vectors(50, DIM, seed=5)
    assert overlap(index.search(Q, 10).ids, nearest(X, Q)) > 0.8
    assert index.search(X[3100], 1).ids[0] == 3100
    assert index.generation == 1


def stop_build(sources, out, pool):
    """Start a build, and stop it when a segment is encoded."""

    def stop(what, done, total):
        if what == "encoding" and done >= SIZE:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        logt.distributed.build(sources, out, pool=pool, segment_size=SIZE, progress=stop)


def test_a_build_that_was_stopped_ends_its_workers_and_resumes(sources, reference, tmp_path, pool):
    stop_build(sources, tmp_path / "index", pool)
    assert not pool.pids
    with pytest.raises(FileNotFoundError, match="holds no index"):
        logt.open(tmp_path / "index")
    done = logt.distributed.build(sources, tmp_path / "index", pool=pool, segment_size=SIZE)
    assert done.resumed >= 1
    assert contents(tmp_path / "index") == contents(reference)


def test_damaged_records_of_a_stopped_build_are_not_used(sources, reference, tmp_path, pool):
    stop_build(sources, tmp_path / "index", pool)
    plan, *records = sorted((tmp_path / "index").glob("build-*.json"), key=lambda path: "plan" not in path.name)
    text = records[0].read_text()
    at = text.index('"checksum": "') + len('"checksum": "')
    records[0].write_text(f"{text[:at]}{int(text[at], 16) ^ 1:x}{text[at + 1 :]}")
    for record, damage in zip((plan, *records[1:]), ("[]", "{}"), strict=False):
        record.write_text(damage)
    logt.distributed.build(sources, tmp_path / "index", pool=pool, segment_size=SIZE)
    assert contents(tmp_path / "index") == contents(reference)


def test_a_killed_driver_leaves_the_old_index_and_resumes(sources, reference, tmp_path, pool):
    logt.Index(DIM).save(tmp_path / "index")
    options = ["--workers", "1", "--segment-size", str(SIZE), "--overwrite"]
    command = [sys.executable, "-m", "logt", "build", *sources, tmp_path / "index", *options]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "index").glob("build-*-00000000.json")) and time.monotonic() < deadline:
        assert driver.poll() is None or list((tmp_path / "index").glob("segment-*"))
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    old = logt.open(tmp_path / "index")
    if len(old) == 0:  # the usual case; on a fast machine the build may have ended
        done = logt.distributed.build(sources, tmp_path / "index", pool=pool, segment_size=SIZE, overwrite=True)
        assert done.resumed >= 1
    index = logt.open(tmp_path / "index")
    assert len(index) == N
    assert index.generation == 2
    np.testing.assert_array_equal(index.ids, logt.open(reference).ids)


@pytest.fixture(scope="module")
def linked(tmp_path_factory, sources):
    """The index with a neighbor graph that one worker builds."""
    out = tmp_path_factory.mktemp("linked") / "index"
    assert logt.distributed.build(sources, out, workers=1, segment_size=SIZE, link=10).linked == N
    return out


def test_the_graph_does_not_depend_on_the_workers_or_on_a_stop_and_has_most_neighbors(
    sources, linked, tmp_path, pool
):
    def stop(what, done, total):
        if what == "linking" and done == 1:
            raise KeyboardInterrupt

    settings = {"pool": pool, "segment_size": SIZE, "link": 10}
    with pytest.raises(KeyboardInterrupt):
        logt.distributed.build(sources, tmp_path / "index", **settings, progress=stop)
    started = []
    logt.distributed.build(sources, tmp_path / "index", **settings, progress=lambda *about: started.append(about))
    assert max((total for what, _, total in started if what == "linking"), default=0) < 3  # regions
    assert contents(tmp_path / "index") == contents(linked)
    assert not [name for name in contents(linked) if name.startswith(("build-", "links-"))]
    index = logt.open(linked)
    mine, all_of_it = index.links, index.graph(10)
    assert overlap(mine.rows.reshape(-1, 10), all_of_it.rows.reshape(-1, 10)) > 0.7  # without any clusters
    assert len(np.unique(np.append(mine.rows // SIZE, -1))) == 4  # also across segments
    assert index._snapshot.graph.recall.size


def test_more_segments_than_lists_are_linked(vectors, tmp_path, pool):
    np.save(tmp_path / "x.npy", vectors(30, DIM))
    done = logt.distributed.build(tmp_path / "x.npy", tmp_path / "index", pool=pool, segment_size=1, link=40)
    assert (done.segments, done.linked) == (30, 30)
    graph = logt.open(tmp_path / "index").links
    assert 0 < len(graph.rows) <= 30 * 29
    np.save(tmp_path / "x.npy", vectors(1, DIM))
    assert logt.distributed.build(tmp_path / "x.npy", tmp_path / "one", pool=pool, link=40).linked == 0


def test_the_graph_of_one_segment_is_that_of_link(sources, tmp_path, pool):
    logt.distributed.build(sources, tmp_path / "index", pool=pool, link=10)
    before = contents(tmp_path / "index")
    with logt.open(tmp_path / "index", mode="a") as index:
        index.link(10)
        index.save()
    assert logt.open(tmp_path / "index").generation == 2
    graphs = [{n: b for n, b in some.items() if n[:6] == "graph-"} for some in (before, contents(tmp_path / "index"))]
    assert graphs[0] == graphs[1] != {}


def test_sources_may_be_of_different_types(sources, reference, tmp_path, pool):
    h5py, pa = pytest.importorskip("h5py"), pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    X = np.concatenate([np.load(source) for source in sources])
    column = pa.FixedSizeListArray.from_arrays(pa.array(X[:1500].ravel()), DIM)
    pq.write_table(pa.table({"vector": column}), tmp_path / "1.parquet", row_group_size=700)
    with h5py.File(tmp_path / "2.h5", "w") as file:
        file["vectors"] = X[1500:2500]
    with open(tmp_path / "3.fbin", "wb") as file:
        np.array([N - 2500, DIM], "<u4").tofile(file)
        X[2500:].tofile(file)
    files = [tmp_path / name for name in ("1.parquet", "2.h5", "3.fbin")]
    logt.distributed.build(files, tmp_path / "index", pool=pool, segment_size=SIZE)
    assert contents(tmp_path / "index") == contents(reference)


def test_methods_of_the_paper_give_the_segments_of_an_index_in_memory(sources, tmp_path, pool):
    method = logt.methods.compact(logt.methods.lo_gt(n=10, m=2, L=8))
    logt.distributed.build(sources, tmp_path / "index", method=method, pool=pool, segment_size=SIZE)
    X = np.concatenate([np.load(source) for source in sources])
    built(X, method=method, segment_size=SIZE).save(tmp_path / "other")
    mine, others = contents(tmp_path / "index"), contents(tmp_path / "other")
    assert {n: mine[n] for n in mine if "segment-" in n} == {n: others[n] for n in others if "segment-" in n}


def test_what_the_driver_receives_does_not_grow_with_the_vectors(tmp_path, vectors, pool):
    received = []
    for rows in (300, 1200):
        np.save(tmp_path / f"{rows}.npy", vectors(rows, DIM))
        done = logt.distributed.build(
            tmp_path / f"{rows}.npy", tmp_path / f"index {rows}", pool=pool, segment_size=rows // 2
        )
        received.append(done.driver_bytes)
    assert received[1] < received[0] + 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.__setitem__((7, 3), np.nan), "row 7 of .*bad.npy.* holds nan at column 3"),
        (lambda X: X.__setitem__(9, 0), "row 9 of .*bad.npy.* is all zeros"),
    ],
)
def test_a_bad_row_is_named_and_leaves_nothing(sources, tmp_path, pool, change, message):
    X = np.load(sources[0])
    change(X)
    np.save(tmp_path / "bad.npy", X)
    with pytest.raises(InvalidInputError, match=message):
        logt.distributed.build([sources[0], tmp_path / "bad.npy"], tmp_path / "index", pool=pool)
    assert not (tmp_path / "index").exists()


def test_unusable_arguments_are_refused(sources, reference, tmp_path, pool):
    np.save(tmp_path / "other.npy", np.ones((5, DIM + 1), np.float32))
    for given, message in (
        ([], "no sources"),
        ([tmp_path / "x.txt"], "unsupported file type '.txt'"),
        ([sources[0], tmp_path / "other.npy"], f"has {DIM + 1} dimensions"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            logt.distributed.build(given, tmp_path / "index", pool=pool)
    for settings, message in (
        ({"link": 0}, "link must be >= 1"),
        ({"link": 2000}, "link must be at most 1,000"),
        ({"link": 5, "method": logt.methods.lo_gt(n=10)}, "call Index.link"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            logt.distributed.build(sources, tmp_path / "index", pool=pool, **settings)
    with pytest.raises(InvalidInputError, match="is an index"):
        logt.distributed.build(sources, reference, pool=pool)
    with pytest.raises(OSError, match=r"none\.npy"):
        logt.distributed.build(tmp_path / "none.npy", tmp_path / "index", pool=pool)


def test_a_task_that_always_kills_its_worker_ends_with_an_error(monkeypatch):
    monkeypatch.setattr("sys.executable", "false")
    with ProcessPool(1) as pool, pytest.raises(WorkerError, match="died 4 times"):
        pool.run([{"kind": "inspect", "source": "x.npy"}], lambda *_: None)
