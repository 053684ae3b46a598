"""The files that hold arrays: safetensors, with aligned arrays."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest
from exact_index import built
from safetensors.numpy import load

import logt
from logt._internal import memory
from logt.storage import store
from logt.storage.files import ALIGNMENT, array_file, parse_arrays


def test_array_files_are_safetensors_and_aligned(tmp_path, rng):
    """Arrays of whole cache lines start at a multiple of one, and all items at a multiple of their size."""
    arrays = {
        "ids": np.arange(7, dtype=np.int64),
        "row": np.arange(7, dtype=np.uint32),
        "unit": np.arange(21, dtype=np.uint16).reshape(3, 7),
        "weight": rng.integers(-9, 9, (4, 7), dtype=np.int8),
        "scale": rng.standard_normal(7, np.float32),
        "empty": np.empty((0, 64), np.uint8),
        "head": rng.integers(0, 256, (7, 192), dtype=np.uint8),
        "tail": rng.integers(0, 256, (7, 128), dtype=np.uint8)[:, ::-1],  # not contiguous
    }
    data = array_file(arrays, {"kind": "segment"})
    (tmp_path / "file").write_bytes(data)
    mapped = np.memmap(tmp_path / "file", np.uint8, "r")
    read, metadata = parse_arrays(mapped)
    assert dict(metadata) == {"kind": "segment"}
    assert b"__metadata__" not in array_file(arrays)
    assert (8 + int.from_bytes(data[:8], "little")) % ALIGNMENT == 0
    for name, array in arrays.items():
        for copy in (read[name], load(data)[name]):
            assert copy.dtype == array.dtype
            np.testing.assert_array_equal(copy, array)
        assert read[name].ctypes.data % array.itemsize == 0
    assert read["head"].ctypes.data % ALIGNMENT == read["tail"].ctypes.data % ALIGNMENT == 0


def large_pages(folder):
    """Return which kinds of files of an index are to be mapped in large pages."""
    kinds, kind = {}, None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-", line):
            name = re.search(rf"{folder}/(\w+)-[0-9a-f]{{16}}\.safetensors", line)
            kind = name and name[1]
        elif kind and line.startswith("VmFlags:"):
            kinds[kind] = "hg" in line.split()
    return kinds


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a system without large pages")
def test_what_searches_read_is_mapped_in_large_pages(tmp_path, rng, monkeypatch):
    index = built(rng.standard_normal((300, 64), np.float32), link=8)
    for name in ("small", "large"):
        index.save(tmp_path / name)
    opened = logt.open(tmp_path / "small")
    assert large_pages(tmp_path / "small").items() >= {"segment": True, "graph": True, "refinement": False}.items()
    monkeypatch.setattr(store, "memory_bytes", lambda: 10_000)
    opened = logt.open(tmp_path / "large")
    kinds = large_pages(tmp_path / "large")
    assert len(kinds) > 2
    assert not any(kinds.values())
    assert len(opened.search(rng.standard_normal((1, 64), np.float32), 5).ids[0]) == 5


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages")
def test_a_system_may_refuse_large_pages(tmp_path, rng, monkeypatch):
    built(rng.standard_normal((300, 64), np.float32)).save(tmp_path / "index")
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9999)  # an advice that no system knows
    assert len(logt.open(tmp_path / "index")) == 300


def test_the_memory_of_a_container_is_its_limit(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMITS", (limit, tmp_path / "missing"))
    whole = memory.memory_bytes()
    assert whole is None or whole > 1 << 20
    limit.write_text("max\n")
    assert memory.memory_bytes() == whole
    limit.write_text("65536\n")
    assert memory.memory_bytes() == 65536
