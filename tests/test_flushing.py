"""What is flushed to disk before a save returns, in which order, and what a kill at each of these steps leaves."""

import errno
import itertools
import os
import shutil
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from exact_index import built
from faults import TORTURE, die_at, killed_in_child

import logt
from logt.storage.files import append_to_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def events(monkeypatch):
    """("flush", path) of each fsync, ("rename", path) of each file that got its name."""
    seen: list[tuple[str, Path]] = []
    fsync, replace = os.fsync, os.replace

    def flush(file):
        seen.append(("flush", Path(os.readlink(f"/proc/self/fd/{file}"))))
        fsync(file)

    def rename(source, target):
        seen.append(("rename", Path(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    return seen


def made(vectors):
    return built(vectors(30, 8))


def test_the_first_save_flushes_the_parents_of_a_new_folder(tmp_path, vectors, events):
    path = tmp_path / "new" / "deep" / "index"
    made(vectors).save(path)
    flushed = [where for what, where in events if what == "flush"]
    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "deep", path} <= set(flushed)
    first_file = next(n for n, where in enumerate(flushed) if where.parent == path)
    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "deep"} <= set(flushed[:first_file])


def test_files_are_flushed_before_the_manifest_that_names_them_gets_its_name(tmp_path, vectors, events):
    path = tmp_path / "index"
    made(vectors).save(path)
    names = [where.name for what, where in events if what == "rename"]
    assert names[-1] == "manifest.json"
    assert len(names) >= 3
    for n, (what, where) in enumerate(events):
        if what == "rename":
            before, after = events[n - 1], events[n + 1]
            assert before[0] == "flush"
            assert before[1].name.startswith(f".{where.name}.")
            assert after == ("flush", path)


def test_a_record_of_the_log_is_flushed_and_so_is_the_folder_of_a_new_log(tmp_path, vectors, events):
    path = tmp_path / "index"
    made(vectors).save(path)
    with logt.open(path, mode="a") as index:
        for expected in (2, 1):
            events.clear()
            index.add(vectors(1, 8))
            index.save()
            (log,) = path.glob("changes-*.log")
            assert events == [("flush", log), ("flush", path)][:expected]


def test_names_that_a_failed_or_killed_save_did_not_flush_are_flushed_by_the_next_one(
    tmp_path, vectors, events, monkeypatch
):
    path = tmp_path / "new" / "index"
    path.mkdir(parents=True)  # as by a save that was killed after that
    made(vectors).save(path)
    assert {tmp_path / "new", path} <= {where for _, where in events}
    with logt.open(path, mode="a") as index, monkeypatch.context() as patch:
        index.add(vectors(1, 8))
        patch.setattr("logt.storage.files.flush_folder", raise_error)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            index.save()
        assert len(logt.open(path)) == 30  # what raised an error is not saved
        patch.undo()
        events.clear()
        index.save()
        assert [where for _, where in events] == [*path.glob("changes-*.log"), path]
    events.clear()
    with logt.open(path, mode="a"):  # its writer could have been killed before it flushed the folder
        assert ("flush", path) in events


def raise_error(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def files_of_macos(monkeypatch, code):
    """Let F_FULLFSYNC be there and fail with this errno, or succeed for 0; return the calls of it."""
    calls = []

    def control(file, command):
        calls.append(command)
        if code:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr("logt.storage.files.fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=control))
    return calls


def test_macos_flushes_the_drive_and_a_file_system_without_that_is_flushed_by_fsync(tmp_path, events, monkeypatch):
    path = tmp_path / "file"
    for code, fsynced in (
        (0, []),
        (errno.ENOTSUP, ["file", path.parent.name]),
        (errno.EINVAL, ["file", path.parent.name]),
    ):
        calls = files_of_macos(monkeypatch, code)
        events.clear()
        append_to_file(path, 0, b"data")
        path.unlink()
        assert calls == [51, 51]  # of the file and of its folder
        assert [where.name for _, where in events] == fsynced


def test_an_error_of_the_drive_is_not_a_missing_flush(tmp_path, events, monkeypatch):
    files_of_macos(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        append_to_file(tmp_path / "file", 0, b"data")
    assert not events
    assert (tmp_path / "file").read_bytes() == b""


CHANGES = {
    "add": lambda index: index.add(np.eye(8)[:5]),
    "add and remove": lambda index: (index.add(np.eye(8)[:5]), index.remove([3, 25])),
    "compact": lambda index: (index.remove(range(0, 30, 2)), index.compact()),
    "link": lambda index: index.link(4),
}


@pytest.mark.parametrize(
    ("change", "logged"),
    [*((change, False) for change in CHANGES), *((change, True) for change in (CHANGES if TORTURE else ["add"]))],
)
def test_a_writer_killed_at_every_step_leaves_the_old_or_the_new_state(tmp_path, vectors, change, logged):
    """The n-th write, flush, rename or removal never happens, for every n; a long save is sampled."""
    whole = tmp_path / "whole"
    made(vectors).save(whole)
    if logged:
        with logt.open(whole, mode="a") as index:
            index.add(vectors(1, 8, seed=5))
            index.save()
    old = state_of(logt.open(whole))
    for n in itertools.chain(range(6), itertools.count(6, 1 if TORTURE else 4)):
        path = shutil.copytree(whole, tmp_path / f"{n}")
        killed = killed_in_child(lambda path=path, n=n: save_until_killed(path, CHANGES[change], n))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* of a save that did not finish")
            left = logt.open(path, mode="a")
        with left:
            if state_of(left) == old:
                CHANGES[change](left)
            new = state_of(left)
            left.add(np.eye(8)[:1], ids=[1000])
            left.save()
        opened = logt.open(path)
        assert state_of(opened) == (new[0] + [1000], new[1])
        assert not list(path.glob(".*.tmp"))
        if not killed:
            assert n >= 3
            break


def state_of(index):
    return sorted(index.ids.tolist()), index.report()["linked"] > 0


def save_until_killed(path, change, n):
    with logt.open(path, mode="a") as index:
        change(index)
        die_at(n)
        index.save()
