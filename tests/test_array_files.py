"""The files that hold arrays: safetensors, with aligned arrays."""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load

from logt.storage.files import ALIGNMENT, array_file, header_bytes, parse_arrays


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
    assert (8 + header_bytes(data[:8])) % ALIGNMENT == 0
    for name, array in arrays.items():
        for copy in (read[name], load(data)[name]):
            assert copy.dtype == array.dtype
            np.testing.assert_array_equal(copy, array)
        assert read[name].ctypes.data % array.itemsize == 0
    assert read["head"].ctypes.data % ALIGNMENT == read["tail"].ctypes.data % ALIGNMENT == 0
