"""An index by URL that is fetched in parts: the ids and scores of a local one, and few bytes."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import pickle
import threading

import numpy as np
import pytest
from counting_proxy import CountingProxy
from typer.testing import CliRunner

import logt
from logt import _kernels
from logt.cli.main import app
from logt.errors import CorruptIndexError
from logt.lists.search import ListSearcher
from logt.storage import sparse

DIM, ROWS = 128, 30_000
METHOD = logt.methods.sketched(units=64)


@pytest.fixture(scope="module")
def proxy(s3_server):
    proxy = CountingProxy(*s3_server)
    yield proxy
    proxy.close()


@pytest.fixture
def s3_address(proxy):
    return proxy.address


@pytest.fixture
def fine(monkeypatch):
    """Small blocks: a list is a small part of a file."""
    monkeypatch.setattr("logt.storage.partial.BLOCK", 1 << 14)
    monkeypatch.setattr("logt.storage.partial.FINE_BLOCK", 1 << 14)


@pytest.fixture(scope="module")
def made(vectors):
    index = logt.Index(DIM, method=METHOD, segment_size=15_000)
    index.add(vectors(ROWS, DIM))
    return index


@pytest.fixture(scope="module")
def changed(vectors):
    """Segments with removals, ids with gaps, and one without lists."""
    index = logt.Index(16, segment_size=1500)
    X = vectors(5000, 16)
    index.add(X[:4000], ids=np.arange(4000) * 3 + 5)
    index.add(X[4000:4100])
    index.remove(index.ids[::5])
    return index


def files(url):
    import s3fs

    store = s3fs.S3FileSystem()
    store.invalidate_cache()
    return store, sorted(name for name in store.ls(url.removeprefix("s3://"), refresh=True))


def size(url):
    store, names = files(url)
    return sum(store.info(name)["size"] for name in names)


def assert_same(mine, other):
    for one, two in zip(mine, other, strict=True):
        np.testing.assert_array_equal(one, two)


def space(folder):
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def test_opening_reads_less_than_one_percent_and_a_search_its_lists(bucket, made, vectors, proxy):
    url = f"{bucket}/index"
    made.save(url)
    whole = size(url)
    index, opened = proxy.count(lambda: logt.open(url))
    assert len(index) == ROWS
    assert opened < 0.01 * whole
    q = vectors(1, DIM, seed=1)
    found, searched = proxy.count(lambda: index.search(q, 5, nprobe=1))
    assert_same(found, made.search(q, 5, nprobe=1))
    assert searched < 0.5 * whole
    found, again = proxy.count(lambda: index.search(q, 5, nprobe=1))
    assert_same(found, made.search(q, 5, nprobe=1))
    assert again == 0
    _, all_of_it = proxy.count(lambda: logt.open(url, cache="all"))
    assert all_of_it > whole


@pytest.mark.parametrize("settings", [{}, {"effort": 0.0}, {"effort": 1.0}, {"nprobe": 2}, {"expand": 3}])
def test_searches_give_the_ids_and_scores_of_a_local_index(bucket, changed, vectors, settings, fine):
    changed.save(f"{bucket}/index")
    index, Q = logt.open(f"{bucket}/index"), vectors(300, 16, seed=3)
    assert_same(index.search(Q[0], 3, **settings), changed.search(Q[0], 3, **settings))
    assert_same(index.search(Q, 10, **settings), changed.search(Q, 10, **settings))
    assert index._contents.snapshot.stored


def test_filters_ids_and_reconstruction_are_those_of_a_local_index(bucket, changed, vectors, fine):
    changed.save(f"{bucket}/index")
    Q, some = vectors(5, 16, seed=4), changed.ids[::70]
    for allowed in (some, np.arange(len(changed)) % 2 == 0, lambda ids: ids % 7 == 1, [int(some[0])], []):
        index = logt.open(f"{bucket}/index")
        assert_same(index.search(Q, 5, filter=allowed), changed.search(Q, 5, filter=allowed))
    index = logt.open(f"{bucket}/index")
    assert some[3] in index
    assert 6 not in index
    np.testing.assert_array_equal(index.ids, changed.ids)
    np.testing.assert_array_equal(index.reconstruct(some), changed.reconstruct(some))
    assert index.report()["rho"] == changed.report()["rho"]
    assert index._contents.snapshot.stored


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_other_metrics_and_no_supplement(bucket, vectors, metric):
    index = logt.Index(16, metric=metric, method=logt.methods.sketched(refine=metric == "l2"))
    index.add(vectors(3000, 16) * np.linspace(0.5, 2, 3000, dtype=np.float32)[:, None])
    index.save(f"{bucket}/index")
    Q = vectors(40, 16, seed=5)
    assert_same(logt.open(f"{bucket}/index").search(Q, 7), index.search(Q, 7))


def test_string_ids_and_the_graph_are_read_when_they_are_used(bucket, vectors, proxy, fine):
    index = logt.Index(DIM, method=METHOD)
    index.add(vectors(6000, DIM), ids=[f"a photo with a long name {i}" for i in range(6000)])
    index.link(k=20)
    index.remove(["a photo with a long name 17"])
    index.save(f"{bucket}/index")
    part, opened = proxy.count(lambda: logt.open(f"{bucket}/index"))
    assert opened < 0.04 * size(f"{bucket}/index")
    assert part.report()["linked"] == 5999
    Q = vectors(5, DIM, seed=6)
    assert_same(part.search(Q, 4, rerank="diffusion"), index.search(Q, 4, rerank="diffusion", beam=0))
    assert part._contents.snapshot.stored
    assert "a photo with a long name 17" not in part
    assert "a photo with a long name 18" in part
    assert len(part.links) == 5999


def test_what_reads_everything_fetches_everything(bucket, changed, vectors, tmp_path):
    url = f"{bucket}/index"
    changed.save(url)
    Q = vectors(3, 16, seed=7)
    assert_same(logt.open(url).range_search(Q, 0.5), changed.range_search(Q, 0.5))
    points = logt.open(url).tune(vectors(9, 16, seed=17))
    assert [point.recall for point in points] == [p.recall for p in changed.tune(vectors(9, 16, seed=17))]
    assert_same(pickle.loads(pickle.dumps(logt.open(url))).search(Q, 5), changed.search(Q, 5))
    logt.open(url).save(tmp_path / "copy")
    assert_same(logt.open(tmp_path / "copy").search(Q, 5), changed.search(Q, 5))
    merged = logt.Index(16)
    merged.merge_from(logt.open(url))
    assert_same(merged.search(Q, 5), changed.search(Q, 5))
    reader = logt.open(url)
    reader.search(Q, 5)
    reader.lock()
    reader.add(vectors(3, 16, seed=8), ids=[1, 2, 3])
    reader.save()
    assert_same(logt.open(url).search(Q, 5), reader.search(Q, 5))


def test_a_reader_moves_on_to_a_new_generation(bucket, made, vectors, proxy):
    url = f"{bucket}/index"
    made.save(url)
    reader, Q = logt.open(url), vectors(4, DIM, seed=9)
    before = reader.search(Q, 5)
    with logt.open(url, mode="a") as writer:
        writer.remove(before.ids[:, 0])
        writer.add(Q[:2], ids=[10**6, 10**6 + 1])
        writer.save()
        assert_same(reader.search(Q, 5), before)
        moved, sent = proxy.count(reader.refresh)
        assert moved
        assert sent < 0.02 * size(url)
        assert_same(reader.search(Q, 5), writer.search(Q, 5))
        assert 10**6 in reader


def test_the_cache_stays_within_its_limit_and_searches_stay_right(bucket, made, vectors, tmp_path, monkeypatch, fine):
    made.save(f"{bucket}/index")
    Q = vectors(30, DIM, seed=10)
    expected = made.search(Q, 5, nprobe=1)
    index = logt.open(f"{bucket}/index")
    limit = size(f"{bucket}/index") // 4
    monkeypatch.setenv("LOGT_CACHE_GB", str(limit / 1e9))
    most, wrong = [], []

    def search_some(mine):
        for row in mine:
            found = index.search(Q[row], 5, nprobe=1)
            if (found.ids != expected.ids[row]).any() or (found.scores != expected.scores[row]).any():
                wrong.append(row)

    for row in range(12):
        search_some([row])
        most.append(space(tmp_path / "cache"))
    assert limit // 2 < max(most) < 1.2 * limit
    threads = [threading.Thread(target=search_some, args=(range(12 + n, 30, 3),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    found = index.search(Q, 5, nprobe=1)  # more than the limit at once
    assert_same(found, expected)


def test_a_search_is_repeated_if_another_one_fetches_its_supplement_meanwhile(bucket, made, vectors, monkeypatch):
    made.save(f"{bucket}/index")
    index, other, Q = logt.open(f"{bucket}/index"), logt.open(f"{bucket}/index"), vectors(3, DIM, seed=16)
    run, first = ListSearcher._search, []

    def run_and_search(searcher, *given, **named):
        found = run(searcher, *given, **named)
        if not first:
            first.append(found)
            other.search(Q, 5)
        return found

    monkeypatch.setattr(ListSearcher, "_search", run_and_search)
    assert_same(index.search(Q, 5), made.search(Q, 5))


def test_later_processes_use_what_is_in_the_cache(bucket, made, vectors, tmp_path, proxy):
    url, Q = f"{bucket}/index", vectors(3, DIM, seed=11)
    made.save(url)
    expected = logt.open(url).search(Q, 5)
    gc.collect()
    search = logt.open(url).search
    assert proxy.count(lambda: search(Q, 5))[1] == 0
    search = None
    gc.collect()
    for path in (tmp_path / "cache").glob("*-segment-*.65536"):  # as a crash of the machine might leave it
        with open(path, "r+b") as file:
            file.write(bytes(1 << 16) * 20)
    assert_same(logt.open(url).search(Q, 5), expected)
    gc.collect()
    with contextlib.ExitStack() as held:
        for path in (tmp_path / "cache").glob("*.65536"):  # by another process
            fcntl.flock(held.enter_context(open(path, "r+b")), fcntl.LOCK_EX)
        assert_same(logt.open(url).search(Q, 5), expected)


def test_truncated_changed_and_missing_files_are_reported(bucket, made, vectors):
    url, q = f"{bucket}/index", vectors(1, DIM, seed=12)
    made.save(url)
    store, names = files(url)
    name = next(name for name in names if "/segment-" in name)
    data = store.cat_file(name)
    index = logt.open(url)
    for other in (data[: len(data) // 2], data[:-1] + bytes([data[-1] ^ 1])):
        store.pipe_file(name, other)
        with pytest.raises(CorruptIndexError, match="was changed since it was opened"):
            index.search(q, 5, effort=1)
    store.pipe_file(name, data[:-100])
    with pytest.raises(CorruptIndexError, match=f"it has {len(data) - 100:,} bytes"):
        logt.open(url)
    store.rm_file(name)
    with pytest.raises(CorruptIndexError, match="was removed"):
        index.search(q, 5, effort=1)
    with pytest.raises(CorruptIndexError, match="is missing"):
        logt.open(url)
    store.pipe_file(name, data)
    assert_same(logt.open(url).search(q, 5, effort=1), made.search(q, 5, effort=1))


def test_values_that_cannot_be_used_are_refused_before_they_are_read(bucket, made, vectors):
    """The file was wrong before it was opened, with the right length: what a search relies on is checked."""
    url, q = f"{bucket}/index", vectors(1, DIM, seed=13)
    made.save(url)
    store, names = files(url)
    name = next(name for name in names if "/segment-" in name)
    data = store.cat_file(name)
    start = 8 + int.from_bytes(data[:8], "little")
    store.pipe_file(name, data[:start] + b"\xff" * (len(data) - start))
    with pytest.raises(CorruptIndexError):
        logt.open(url)
    first, last = (start + offset for offset in json.loads(data[8:start])["unit"]["data_offsets"])
    store.pipe_file(name, data[:first] + b"\xff" * (last - first) + data[last:])
    opened = logt.open(url)
    with pytest.raises(CorruptIndexError, match="a memory vector that does not exist"):
        opened.search(q, 5, effort=1)
    opened = logt.open(url)
    with pytest.raises(CorruptIndexError, match=r"memory vector that does not exist|checksum"):
        opened.range_search(q, 0.5)
    store.pipe_file(name, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptIndexError, match="checksum"):
        logt.open(url).range_search(q, 0.5)
    with pytest.raises(CorruptIndexError, match="checksum"):
        logt.open(url, cache="all")


def test_the_commands_take_urls(bucket, made, vectors, tmp_path, proxy):
    url, Q = f"{bucket}/index", vectors(2, DIM, seed=15)
    made.save(url)
    np.save(tmp_path / "queries.npy", Q)
    run = CliRunner()
    found = run.invoke(app, ["search", url, str(tmp_path / "queries.npy"), "-k", "3", "--json"])
    assert json.loads(found.output)["ids"] == made.search(Q, 3).ids.tolist()
    about = json.loads(run.invoke(app, ["info", url, "--json"]).output)
    assert (about["vectors"], about["bytes on disk"]) == (ROWS, size(url))
    logt.open(url, cache="all")
    done, sent = proxy.count(lambda: run.invoke(app, ["verify", url]))
    assert "OK" in done.output
    assert sent > size(url)  # what is in the cache is not what is checked
    store, names = files(url)
    data = store.cat_file(names[-1])
    store.pipe_file(names[-1], data[:-1] + bytes([data[-1] ^ 1]))
    assert isinstance(run.invoke(app, ["verify", url]).exception, CorruptIndexError)
    assert isinstance(run.invoke(app, ["serve", url]).exception, logt.InvalidInputError)


def test_the_lists_that_are_fetched_are_those_that_a_search_reads(changed, vectors):
    searcher = changed._snapshot.searcher()
    totals = ListSearcher(changed._snapshot.list_segments, totals=searcher.totals())
    for effort in (0.0, 0.3, 1.0):
        reading = logt.lists.inverted_lists.Probe(effort).reading(5, ranks=logt.lists.inverted_lists.Ranks())
        for q in vectors(20, 16, seed=14):
            read = np.zeros(sum(codec.units for codec in totals.codecs), np.uint8)
            totals._searcher.probed(q[None], totals.distances, _kernels.Reading(*reading), read)
            assert read.sum() == searcher.search(q[None], 5, reading)[2][0, 0]


def test_after_a_fork_nothing_is_dropped_that_a_child_may_read(bucket, made, vectors, tmp_path, monkeypatch, fine):
    made.save(f"{bucket}/index")
    Q = vectors(30, DIM, seed=10)
    before = logt.open(f"{bucket}/index")
    before.search(Q[0], 5, nprobe=1)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    monkeypatch.setenv("LOGT_CACHE_GB", str(size(f"{bucket}/index") / 10e9))
    files = [file for file in sparse._blocks.files.values() if file.path.parent == tmp_path / "cache"]
    here = [file.here.copy() for file in files]
    assert_same(before.search(Q, 5, nprobe=1), made.search(Q, 5, nprobe=1))
    assert all(file.forked and (file.here >= was).all() for file, was in zip(files, here, strict=True))
