"""What is flushed to disk before a save returns, and in which order."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import logt

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
    index = logt.Index(8)
    index.add(vectors(30, 8))
    return index


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
