from __future__ import annotations

import numpy as np
import pytest

from logt import InvalidInputError
from logt.datasets import read_vectors, synthetic_collection
from logt.evaluation import mean_average_precision


def vecs(X):
    head = np.full((len(X), 1), X.shape[1], "<i4").view(np.uint8)
    return np.concatenate([head, np.ascontiguousarray(X).view(np.uint8)], axis=1).tobytes()


def binary(X):
    return np.array(X.shape, "<u4").tobytes() + X.tobytes()


@pytest.mark.parametrize(
    ("suffix", "dtype", "write"),
    [
        (".fvecs", np.float32, vecs),
        (".bvecs", np.uint8, vecs),
        (".fbin", np.float32, binary),
        (".u8bin", np.uint8, binary),
        (".i8bin", np.int8, binary),
    ],
)
def test_vector_files_are_read_as_they_were_written(tmp_path, rng, suffix, dtype, write):
    X = (100 * rng.random((17, 6))).astype(dtype)
    path = tmp_path / f"x{suffix}"
    path.write_bytes(write(X))
    read = read_vectors(path)
    assert read.dtype == dtype
    assert (read == X).all()
    for damaged in (path.read_bytes()[:-1], path.read_bytes()[:3], b"", b"\xff" * 64):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInputError, match="damaged"):
            read_vectors(path)


def test_npy_is_memory_mapped(tmp_path, rng):
    X = rng.random((10, 4))
    np.save(tmp_path / "x.npy", X)
    read = read_vectors(tmp_path / "x.npy")
    assert isinstance(read, np.memmap)
    assert (read == X).all()


def test_an_invalid_npy_file_is_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(tmp_path / "flat.npy", np.ones(5))
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").write_text("")
    for name in ("objects", "flat", "text", "empty"):
        with pytest.raises(InvalidInputError, match=name):
            read_vectors(tmp_path / f"{name}.npy")


def test_the_error_names_a_row_of_another_dimension(tmp_path, rng):
    X = rng.random((5, 3)).astype(np.float32)
    data = bytearray(vecs(X))
    data[2 * 16 : 2 * 16 + 4] = (7).to_bytes(4, "little")
    (tmp_path / "x.fvecs").write_bytes(data)
    with pytest.raises(InvalidInputError, match="row 2 has dimension 7, row 0 has 3"):
        read_vectors(tmp_path / "x.fvecs")


def test_unsupported_and_missing_files_are_reported(tmp_path):
    (tmp_path / "x.txt").write_text("1,2")
    with pytest.raises(InvalidInputError, match=r"unsupported file type '\.txt'; supported: \.npy, \.fvecs"):
        read_vectors(tmp_path / "x.txt")
    with pytest.raises(FileNotFoundError, match="file not found"):
        read_vectors(tmp_path / "none.npy")


def test_the_synthetic_collection_has_the_ground_truth_it_states():
    collection = synthetic_collection(2000, 128, landmarks=10, views=15)
    assert collection.X.shape == (2000, 128)
    assert collection.Q.shape == (10, 128)
    assert np.allclose(np.linalg.norm(collection.X, axis=1), 1, atol=1e-5)
    assert [len(p) for p in collection.positives] == [15] * 10
    assert len(np.unique(np.concatenate(collection.positives))) == 150
    ranking = np.argsort(-(collection.Q @ collection.X.T), axis=1)
    assert 40 < mean_average_precision(ranking, collection.positives) < 99


def test_the_same_seed_gives_the_same_collection():
    assert (synthetic_collection(500, 16).X == synthetic_collection(500, 16).X).all()
    assert (synthetic_collection(500, 16).X != synthetic_collection(500, 16, seed=1).X).any()
