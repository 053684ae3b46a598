"""The cache of files that are fetched from URLs."""

import os
import time

import numpy as np

from logt.storage import cache
from logt.storage.files import array_file, checksum


def test_the_cache_removes_only_its_own_files(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGT_CACHE_GB", "0")
    (tmp_path / "letters").mkdir()
    (tmp_path / "thesis.tex").write_text("a long work")
    mine = tmp_path / f"{'0' * 64}-segment-{'0' * 16}.safetensors"
    mine.write_bytes(b"cached")
    (tmp_path / f"{'1' * 64}-segment-{'0' * 16}.safetensors").symlink_to("gone")  # like one that is removed meanwhile
    cache.make_room(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} >= {"letters", "thesis.tex"}
    assert not mine.exists()


def test_the_cache_removes_the_files_that_were_used_longest_ago(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path))
    files = [array_file({"x": np.full(1000, number)}) for number in range(3)]
    monkeypatch.setenv("LOGT_CACHE_GB", f"{2.5 * len(files[0]) / 1e9:.9f}")
    fetched = []

    def read(number):
        time.sleep(0.02)  # clocks of file systems have steps
        data = files[number]
        about = {"bytes": len(data), "checksum": checksum(data)}
        name = f"segment-{'0' * 16}.safetensors"
        found = cache.read_cached(name, about, lambda: fetched.append(number) or data)
        assert (found["x"] == number).all()

    for number in (0, 1, 0, 2):
        read(number)
    assert fetched == [0, 1, 2]
    read(0)
    assert fetched == [0, 1, 2]  # it was used after 1, which made room for 2
    read(1)
    assert fetched == [0, 1, 2, 1]


def test_the_cache_removes_what_a_writer_left_long_ago(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGT_CACHE_GB", "0")
    for number, minutes in enumerate((55, 65)):
        left = tmp_path / f".{'0' * 64}-segment-{'0' * 16}.safetensors.{number}.tmp"
        left.write_bytes(b"so far")
        os.utime(left, (time.time() - 60 * minutes,) * 2)
    cache.make_room(tmp_path, 1)
    assert [path.name[-5:] for path in tmp_path.iterdir()] == ["0.tmp"]


def test_a_file_that_another_process_removes_from_the_cache_at_once_is_read_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "replace_file", lambda path, data: None)
    data = array_file({"x": np.arange(100)}, {"of": "metadata"})
    about = {"bytes": len(data), "checksum": checksum(data)}
    found = cache.read_cached(f"segment-{'0' * 16}.safetensors", about, lambda: data)
    assert found.keys() == {"x"}
    np.testing.assert_array_equal(found["x"], np.arange(100))


def test_the_cache_may_be_exactly_as_large_as_its_limit(tmp_path, monkeypatch):
    mine = tmp_path / f"{'0' * 64}-segment-{'0' * 16}.safetensors"
    mine.write_bytes(bytes(1000))
    monkeypatch.setenv("LOGT_CACHE_GB", "0.0000015")
    cache.make_room(tmp_path, 500)
    assert mine.exists()
    cache.make_room(tmp_path, 501)
    assert not mine.exists()


def test_the_cache_is_in_the_folder_for_caches_unless_another_is_given(tmp_path, monkeypatch):
    monkeypatch.delenv("LOGT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "logt"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache.cache_folder() == tmp_path / "caches" / "logt"
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path / "given"))
    assert cache.cache_folder() == tmp_path / "given"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGT_CACHE", "here")
    assert cache.cache_folder() == tmp_path / "here"  # also after another change of the folder
