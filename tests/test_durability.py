"""Many readers, one writer, and whatever may kill it: results always belong to a state that was saved."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from exact_index import built
from faults import TORTURE

import logt
from logt import InvalidInputError, LockedError, ReadOnlyError
from logt.methods import rnd, sketched
from logt.storage.lock import Lock

SMALL = sketched()


def grow(path, steps, seconds=3600.0):
    """A writer: each saved state holds 10 more vectors than the one before, and none of the removed."""
    end = time.time() + seconds
    with logt.open(path, mode="a") as index:
        for step in range(steps):
            if time.time() > end:
                break
            X = np.random.default_rng(len(index)).standard_normal((11, 6))
            index.remove(index.add(X)[-1:])
            if step % 10 == 9:
                index.compact()
            index.save()


@pytest.fixture
def path(tmp_path):
    logt.Index(6, method=SMALL).save(tmp_path / "index")
    return tmp_path / "index"


def test_one_writer_at_a_time(path):
    with logt.open(path, mode="a") as writer:
        for other in (lambda: logt.open(path, mode="a"), lambda: logt.Index(6).save(path)):
            with pytest.raises(LockedError, match="another"):
                other()
        assert len(logt.open(path)) == 0
        writer.save()
    logt.open(path, mode="a").close()


def test_a_reader_keeps_its_state_until_it_refreshes(path):
    grow(path, 1)
    reader = logt.open(path)
    before = reader.search(np.ones(6), 30)
    grow(path, 2)
    assert (reader.search(np.ones(6), 30).ids == before.ids).all()
    assert (len(reader), reader.generation) == (10, 2)
    assert reader.refresh()
    assert (len(reader), reader.generation) == (30, 4)
    assert not reader.refresh()


def test_only_the_writer_of_a_folder_saves_to_it(path, monkeypatch):
    writer, reader = logt.open(path, mode="a"), logt.open(path)
    writer.add(np.ones((3, 6)))
    writer.save()
    changes = (lambda: reader.add(np.eye(6)), lambda: reader.upsert(np.eye(6)[:1], [1]), lambda: reader.remove([1]))
    for call in (*changes, reader.compact, reader.link, reader.save, lambda: reader.save(path)):
        with pytest.raises(ReadOnlyError, match="mode='a'"):
            call()
    writer.close()
    with pytest.raises(ReadOnlyError):
        writer.save()
    assert len(logt.open(path)) == 3
    monkeypatch.chdir(path.parent)
    moved = logt.open("index", mode="a")
    monkeypatch.chdir("/")
    moved.save()
    moved.close()


def test_a_folder_that_became_another_kind_of_index_is_not_refreshed_to(path):
    reader = logt.open(path)
    logt.Index(6, metric="l2").save(path, overwrite=True)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="another kind"):
            reader.refresh()


def test_a_forked_child_does_not_write(path):
    index = logt.open(path, mode="a")
    child = os.fork()
    if child == 0:
        try:
            index.save()
        except ReadOnlyError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(LockedError):  # the child has not released the lock of its parent
        Lock(path)
    index.close()
    logt.open(path, mode="a").close()


def test_a_lock_that_is_closed_or_forgotten_is_free_and_keeps_no_file_open(tmp_path):
    lock = Lock(tmp_path)
    file = lock._file
    lock.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    lock = Lock(tmp_path)
    del lock
    Lock(tmp_path).close()


def test_a_forked_child_does_not_keep_the_lock_of_a_writer_that_died(path):
    code = (
        f"import logt, os, signal\nindex = logt.open({str(path)!r}, mode='a')\n"
        "if os.fork():\n    os._exit(0)\nprint(os.getpid(), flush=True)\nsignal.pause()\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    child = int(writer.stdout.readline())
    try:
        assert writer.wait(30) == 0
        os.kill(child, 0)  # it lives
        logt.open(path, mode="a").close()
    finally:
        os.kill(child, signal.SIGKILL)
        writer.stdout.close()


def test_readers_in_processes_see_only_saved_states(path):
    code = (
        "import logt, numpy as np, time\n"
        f"end = time.time() + {60 if TORTURE else 1.5}\nreader = logt.open({str(path)!r})\n"
        "while time.time() < end:\n"
        f"    again = logt.open({str(path)!r})\n"
        "    assert int(again.search(np.ones(6), 10**5).counts) == len(again)\n"
        "    reader.refresh()\n"
        "    count = int(reader.search(np.ones(6), 10**5).counts)\n"
        "    assert count == len(reader) and count % 10 == 0, count\n"
    )
    readers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4 if TORTURE else 2)]
    while any(reader.poll() is None for reader in readers):
        grow(path, 1)
    assert not any(reader.returncode for reader in readers)


@pytest.mark.parametrize("seed", range(200 if TORTURE else 2))
def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new_state(path, seed):
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=grow, args=(path, 10_000))
    writer.start()
    while len(logt.open(path)) == 0 and writer.is_alive():
        time.sleep(0.01)
    time.sleep(np.random.default_rng(seed).uniform(0, 0.1))
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    whole = logt.open(path)
    assert len(whole) % 10 == 0
    assert len(whole) > 0
    assert int(whole.search(np.ones(6), 10**5).counts) == len(whole)
    grow(path, 1)
    assert len(logt.open(path)) == len(whole) + 10
    assert not list(path.glob(".*.tmp"))


def test_a_search_works_after_a_fork(path):
    grow(path, 2)
    index = logt.open(path)
    expected = index.search(np.ones((40, 6)), 5).ids
    child = os.fork()
    if child == 0:
        same = (index.search(np.ones((40, 6)), 5, threads=2).ids == expected).all()
        os._exit(0 if same else 1)
    for _ in range(500):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the search of the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_search_runs_on_the_requested_number_of_threads(vectors):
    index = built(vectors(5000, 32), method=rnd(n=20, m=3, L=16))
    Q = vectors(3000, 32, seed=1)
    index.search(Q, 5, threads=1)
    before, most, done = threading.active_count(), [0], threading.Event()

    def watch():
        while not done.is_set():
            most[0] = max(most[0], threading.active_count())

    watcher = threading.Thread(target=watch)
    watcher.start()
    index.search(Q, 5, threads=2)
    done.set()
    watcher.join()
    assert before + 1 < most[0] <= before + 1 + 2


def test_a_long_mixed_load_does_not_grow():
    """Adds, removals and searches for a while; after compacting, memory is in proportion to the live vectors."""
    index = logt.Index(16)
    rng = np.random.default_rng(0)
    end = time.time() + 600
    sizes, resident = [], []
    while len(sizes) < 40 or (TORTURE and time.time() < end):
        for _ in range(5):
            index.add(rng.standard_normal((20, 16)))
            index.search(rng.standard_normal((3, 16)), 5)
        index.remove(rng.permutation(index.ids)[: max(0, len(index) - 200)])
        index.compact()
        assert len(index) == min(len(index), 200)
        sizes.append(index.report()["bytes"])
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert max(resident) <= max(resident[: len(resident) // 4]) + (32 << 20)
    assert max(sizes[len(sizes) // 2 :]) <= 1.5 * max(sizes[: len(sizes) // 2]) + 50_000


def bad_values():
    """What is neither vectors, nor ids, nor a number, nor anything else that a call takes."""
    for value in (np.nan, np.inf):
        X = np.eye(8)
        X[2, 3] = value
        yield X
    zero = np.eye(8)
    zero[2] = 0
    yield from (zero, np.ones((2, 7)), np.ones((2, 3, 8)), np.ones((2, 8), complex), np.full((1, 8), 1e300))
    yield from (
        np.array([[object()] * 8]),
        np.full((), np.nan),
        "text",
        [["a"] * 8],
        [[1], [1, 2]],
        {},
        [None] * 8,
        object(),
    )


CALLS = {
    "add": lambda index, X: index.add(X),
    "upsert": lambda index, X: index.upsert(X, [0, 1]),
    "search": lambda index, X: index.search(X, 3),
    "range_search": lambda index, X: index.range_search(X, 0.5),
    "ids": lambda index, X: index.add(np.eye(8), ids=X),
    "remove": lambda index, X: index.remove(X),
    "reconstruct": lambda index, X: index.reconstruct(X),
    "threshold": lambda index, X: index.range_search(np.ones(8), X),
    "compact": lambda index, X: index.compact(X),
    "merge_from": lambda index, X: index.merge_from(X),
    "method": lambda _, X: logt.Index(8, method=X),
    "segment_size": lambda _, X: logt.Index(8, segment_size=X),
    "dim": lambda _, X: logt.Index(X),
    **{
        name: lambda index, X, name=name: index.search(np.ones(8), **{"k": 3, "expand": 1, name: X})
        for name in ("k", "filter", "effort", "nprobe", "expand", "alpha")
    },
    **{name: lambda _, X, name=name: paper_index().search(np.ones(8), 3, **{name: X}) for name in ("p", "R")},
}


def paper_index():
    return built(np.eye(8), method=rnd(n=4, m=2, L=4))


@pytest.mark.parametrize("call", CALLS)
def test_bad_input_raises_a_typed_error_and_never_ends_in_a_signal(call):
    index = built(np.eye(8), ids=np.arange(8))
    for X in bad_values():
        with pytest.raises(logt.InvalidInputError):
            CALLS[call](index, X)
        assert len(index) == 8
