import os
import subprocess
import sys
import threading

import pytest

from logt._internal import threads as _threads
from logt._internal.threads import Workers, available_cores, split_range


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads):
    assert Workers(threads).map(lambda i: i * i, list(range(50))) == [i * i for i in range(50)]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_reaches_the_caller(threads):
    def fail(i):
        if i == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        Workers(threads).map(fail, list(range(10)))


def test_an_error_cancels_tasks_that_have_not_started():
    done = []

    def work(i):
        if i == 0:
            raise ValueError("nought")
        threading.Event().wait(0.02)
        done.append(i)

    with pytest.raises(ValueError, match="nought"):
        Workers(2).map(work, list(range(100)))
    assert len(done) < 5


def test_progress_is_reported_by_the_calling_thread_and_reaches_the_end():
    reported = []
    tell = Workers(3, lambda *news: reported.append((threading.current_thread(), *news)))
    tell.map(lambda i: i, list(range(30)), "work")
    assert {thread for thread, *_ in reported} == {threading.current_thread()}
    assert reported[-1][1:] == ("work", 30, 30)


BLAS = """
import threading
import numpy
from threadpoolctl import threadpool_info
from logt._internal.threads import Workers, single_threaded_blas

def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

before, seen = threads(), []
with single_threaded_blas():
    inner = threading.Thread(target=lambda: Workers(2).map(lambda _: seen.append(threads()), [1, 2]))
    inner.start()
    inner.join()
    assert threads() <= {1}, "the last one out lifts the limit, not the first"
assert all(number <= {1} for number in seen)
assert threads() == before
"""


def test_blas_runs_on_one_thread_inside_and_is_restored():
    subprocess.run([sys.executable, "-c", BLAS], check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "2"})


def in_child(call):
    """Return the exit status of a forked child: what the call returns."""
    child = os.fork()
    if not child:
        status = 99
        try:
            status = int(call())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_no_lock_and_no_limit_of_another_thread():
    """A thread of the parent may be inside at the moment of the fork, and does not exist in the child."""
    with _threads._blas_lock:
        assert in_child(lambda: _threads._blas_lock.acquire(timeout=5)) == 1
    with _threads.single_threaded_blas():
        assert in_child(lambda: _threads._blas_users) == 0
        assert in_child(lambda: Workers(2).map(lambda i: i, [4, 5]) == [4, 5]) == 1
    assert _threads._blas_users == 0


def test_no_thread_outlives_its_call():
    before = threading.active_count()
    Workers(4).map(lambda i: i, list(range(20)))
    assert threading.active_count() == before


def test_the_environment_can_lower_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert available_cores() >= 1


def test_split_range_covers_everything_once():
    assert [i for span in split_range(10, 4) for i in range(10)[span]] == list(range(10))
    assert split_range(0, 4) == []


HELD_AT_THE_END = """
import threading
import numpy
import logt

index = logt.Index(4)
index.add(numpy.eye(4))
found, waiting = index.search(numpy.ones(4)), threading.Event()


def hold(index):
    waiting.set()
    threading.Event().wait()


threading.Thread(target=hold, args=(index,), daemon=True).start()
waiting.wait()
"""


def test_a_program_ends_in_silence_while_a_thread_holds_an_index():
    done = subprocess.run([sys.executable, "-c", HELD_AT_THE_END], check=True, capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
