"""Many readers, one writer, and whatever may kill it: an answer always belongs to a state that was saved."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import logt
from logt import LockedError
from logt.methods import rnd

SMALL = rnd(n=5, m=2, L=4)


def grow(path, steps):
    """A writer: each saved state holds 10 more vectors than the one before, and none of the removed."""
    with logt.open(path, mode="a") as index:
        for _ in range(steps):
            X = np.random.default_rng(len(index)).standard_normal((11, 6))
            index.remove(index.add(X)[-1:])
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


def test_the_lock_of_a_killed_writer_is_free(path):
    code = f"import logt, time; i = logt.open({str(path)!r}, mode='a'); print('held', flush=True); time.sleep(60)"
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "held\n"
    with pytest.raises(LockedError):
        logt.open(path, mode="a")
    writer.kill()
    writer.wait()
    writer.stdout.close()
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


def test_readers_in_threads_see_only_saved_states(path):
    writer = threading.Thread(target=grow, args=(path, 15))
    wrong = []

    def look():
        reader = logt.open(path)
        while writer.is_alive():
            reader.refresh()
            counts = reader.search(np.ones((2, 6)), 500).counts.tolist()
            if counts[0] != counts[1] or counts[0] % 10:
                wrong.append(counts)

    writer.start()
    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for thread in (writer, *readers):
        thread.join()
    assert not wrong
    assert len(logt.open(path)) == 150


def test_readers_in_processes_see_only_saved_states(path):
    code = (
        "import logt, numpy as np, sys, time\n"
        f"end = time.time() + 4\nreader = logt.open({str(path)!r})\n"
        "while time.time() < end:\n"
        f"    reader = logt.open({str(path)!r})\n"
        "    count = int(reader.search(np.ones(6), 1000).counts)\n"
        "    assert count == len(reader) and count % 10 == 0, count\n"
    )
    readers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    while any(reader.poll() is None for reader in readers):
        grow(path, 1)
    assert [reader.returncode for reader in readers] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(6))
def test_a_writer_killed_at_any_moment_leaves_a_whole_index(path, seed):
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=grow, args=(path, 10_000))
    writer.start()
    deadline = time.time() + 20
    while len(logt.open(path)) == 0 and time.time() < deadline:
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
