"""Vectors from files and streams, as they were written, damaged, and with links to other files."""

import gc
import io
import re
import sys
import zipfile

import numpy as np
import pytest

from logt import InvalidInputError, MissingExtraError
from logt.datasets import load_benchmark, read_vectors
from logt.datasets.mat_hdf5 import read_mat
from logt.datasets.row_files import read_rows, rows_shape
from logt.datasets.vector_files import read_stream


@pytest.fixture
def X(rng):
    return rng.standard_normal((7, 3)).astype(np.float32)


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
def test_binary_files_are_read_as_they_were_written(tmp_path, rng, suffix, dtype, write):
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


def test_the_error_names_a_row_of_another_dimension(tmp_path, X):
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


def save_npy(X):
    content = io.BytesIO()
    np.save(content, X, allow_pickle=True)
    return content.getvalue()


def write_parquet_vectors(path, X):
    pa = pytest.importorskip("pyarrow")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    pytest.importorskip("pyarrow.parquet").write_table(
        pa.table({"name": [f"photo {i}" for i in range(len(X))], "vector": vectors}), path
    )


def write_parquet_numbers(path, X):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({f"x{column}": X[:, column] for column in range(X.shape[1])})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


def write_hdf5(path, **datasets):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file.update(datasets)


WRITERS = [
    ("x.csv", lambda path, X: np.savetxt(path, X, delimiter=",")),
    ("x.csv", lambda path, X: np.savetxt(path, X, delimiter=",", header="a,b,c", comments="")),
    ("x.npz", lambda path, X: np.savez(path, X=X, names=np.array(["a", "b"]))),
    ("x.parquet", write_parquet_vectors),
    ("x.parquet", write_parquet_numbers),
    ("x.h5", lambda path, X: write_hdf5(path, vectors=X)),
    ("x.hdf5", lambda path, X: write_hdf5(path, train=X, test=X[:2])),
    ("x.npy", lambda path, X: np.save(path, X)),
]


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_files_and_streams_are_read_as_they_were_written(tmp_path, X, name, write):
    write(tmp_path / name, X)
    read = read_vectors(tmp_path / name)
    np.testing.assert_allclose(read, X, rtol=1e-6)
    assert isinstance(read, np.memmap) == name.endswith(".npy")
    with open(tmp_path / name, "rb") as stream:
        np.testing.assert_allclose(read_stream(stream).vectors, X, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", "x.csv holds no vectors"),
        ("x.csv", b"a,b,c\n", "x.csv holds no vectors"),
        ("x.csv", b"1,2\n3\n", "x.csv is not a table of numbers"),
        ("x.csv", b"1,2\n3,x\n", "x.csv is not a table of numbers"),
        ("x.npz", b"PK nothing", "x.npz is not a .npz file"),
        ("x.parquet", b"PAR1 nothing", "x.parquet is not a Parquet file"),
        ("x.h5", b"\x89HDF\r\n nothing", "x.h5 cannot be read as an HDF5 file"),
        ("x.npy", b"\x93NUMPY", "x.npy is not a .npy file of numbers"),
        ("x.csv", b"name,a,b\np,1,2\n", "at row 0, column 1; --ids COLUMN reads a column as ids"),
        ("x.npy", save_npy(np.array([{}])), "x.npy is not a .npy file of numbers"),
        ("x.npy", save_npy(np.ones(5)), "x.npy has shape (5,), expected (rows, dimensions)"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, name, content, message):
    if name.endswith(("parquet", "h5")):
        pytest.importorskip("pyarrow" if name.endswith("parquet") else "h5py")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        read_vectors(tmp_path / name)
    with pytest.raises(InvalidInputError, match=re.escape(message.replace(name, "the standard input"))):
        read_stream(io.BytesIO(content))


def test_a_npy_file_without_its_end_is_refused(tmp_path, X):
    (tmp_path / "x.npy").write_bytes(save_npy(X)[:-4])
    with pytest.raises(InvalidInputError, match=r"x\.npy is not a \.npy file of numbers: its end is missing"):
        read_vectors(tmp_path / "x.npy")


def test_the_error_lists_what_a_file_holds(tmp_path, X):
    np.savez(tmp_path / "two.npz", X=X, Q=X[:2])
    with pytest.raises(InvalidInputError, match=re.escape("one 2-D array; it holds: X (7, 3), Q (2, 3)")):
        read_vectors(tmp_path / "two.npz")
    write_hdf5(tmp_path / "two.h5", X=X, Q=X[:2])
    with pytest.raises(InvalidInputError, match=re.escape("or one called train; it holds: Q (2, 3), X (7, 3)")):
        read_vectors(tmp_path / "two.h5")
    write_hdf5(tmp_path / "groups.h5", **{"photos/global": X, "photos/local": X[:2], "names": X[0]})
    with pytest.raises(
        InvalidInputError, match=re.escape("holds: photos/global (7, 3), photos/local (2, 3). Choose")
    ):
        read_vectors(tmp_path / "groups.h5")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"name": ["a"], "size": [1.0]}), tmp_path / "words.parquet")
    with pytest.raises(InvalidInputError, match=re.escape("it holds: name (string), size (double)")):
        read_vectors(tmp_path / "words.parquet")


@pytest.mark.parametrize(("name", "package"), [("x.parquet", "pyarrow"), ("x.h5", "h5py")])
def test_without_a_package_the_error_names_the_extra(tmp_path, monkeypatch, name, package):
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{name} needs {package}: pip install 'logt-search\[data\]'"):
        read_vectors(tmp_path / name)


def test_a_text_file_with_the_name_of_an_array_is_refused(tmp_path):
    (tmp_path / "x.npy").write_text("1 2 3\n4 5 6")
    with pytest.raises(InvalidInputError, match=r"x\.npy is not a \.npy file of numbers: it begins with b'1 2 3\\n'"):
        read_vectors(tmp_path / "x.npy")


@pytest.mark.parametrize("shape", [(-5, 16), (2**40, 512), (2**70, 16), (True, 16)])
def test_a_npy_file_of_an_impossible_shape_is_refused(tmp_path, shape):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": shape})
    content.write(bytes(320))
    (tmp_path / "x.npy").write_bytes(content.getvalue())
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.write(tmp_path / "x.npy", "x.npy")
    for name in ("x.npy", "x.npz"):
        with pytest.raises(InvalidInputError, match=r"is not a \.np. file of numbers"):
            read_vectors(tmp_path / name)
    with pytest.raises(InvalidInputError, match=r"is not a \.npy file of numbers"):
        read_stream(io.BytesIO(content.getvalue()))


def test_a_damaged_parquet_file_is_refused_when_its_rows_are_counted(tmp_path, X):
    write_parquet_numbers(tmp_path / "x.parquet", X)
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(content[:-60] + b"\xff" * 52 + content[-8:])
    with pytest.raises(InvalidInputError, match="is not a Parquet file"):
        rows_shape(str(tmp_path / "x.parquet"))
    with pytest.raises(FileNotFoundError):
        rows_shape(str(tmp_path / "none.parquet"))


def test_a_parquet_file_without_rows_has_none_and_one_with_fewer_than_it_states_is_refused(tmp_path, X):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "x.parquet")
    for kind in (pa.list_(pa.float32()), pa.list_(pa.float32(), X.shape[1])):
        table = pa.table({"vectors": pa.array(list(X), kind)})
        pq.write_table(table[:0], path)
        assert rows_shape(path)[0] == 0
        assert read_rows(path, 0, 0).shape == rows_shape(path)
        pq.write_table(table, path, row_group_size=2)
        np.testing.assert_array_equal(read_rows(path, 1, len(X)), X[1:])
        with pytest.raises(InvalidInputError, match="fewer rows than it states"):
            read_rows(path, 1, len(X) + 1)


def external_link(h5py, file, other):
    file["train"] = h5py.ExternalLink(other, "train")


def soft_link(h5py, file, other):
    file["data"] = np.zeros((4, 3), np.float32)
    file["train"] = h5py.SoftLink("/data")


def virtual_dataset(h5py, file, other):
    layout = h5py.VirtualLayout((7, 3), np.float32)
    layout[:] = h5py.VirtualSource(other, "train", (7, 3))
    file.create_virtual_dataset("train", layout)


def external_storage(h5py, file, other):
    file.create_dataset("train", (7, 3), np.float32, external=[(other, 0, h5py.h5f.UNLIMITED)])


def impossible_size(h5py, file, other):
    file.create_dataset("train", (2**40, 512), np.float32, chunks=(1, 512))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (external_link, "'train' is a link"),
        (soft_link, "'train' is a link"),
        (virtual_dataset, "the data of 'train' is in other files"),
        (external_storage, "the data of 'train' is in other files"),
        (impossible_size, "cannot be read as an HDF5 file: Unable to allocate"),
    ],
)
def test_an_hdf5_file_is_read_without_other_files(tmp_path, X, write, message):
    h5py = pytest.importorskip("h5py")
    write_hdf5(tmp_path / "other.h5", train=X)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        write(h5py, file, str(tmp_path / "other.h5"))
        file["test"], file["neighbors"] = X[:2], np.zeros((2, 1), np.int32)
    for read in (read_vectors, load_benchmark):
        with pytest.raises(InvalidInputError, match=message):
            read(tmp_path / "x.h5")
    if write is not impossible_size:  # its shape is read, and later some of its rows
        with pytest.raises(InvalidInputError, match=message):
            rows_shape(str(tmp_path / "x.h5"))
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        file["X"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "train")
    with pytest.raises(InvalidInputError, match="'X' is a link"):
        read_mat(tmp_path / "x.mat")


@pytest.mark.filterwarnings("error")
def test_other_files_in_an_npz_file_are_no_arrays(tmp_path, X):
    np.savez(tmp_path / "X.npz", X=X)
    with zipfile.ZipFile(tmp_path / "X.npz", "a") as file:
        file.writestr("readme.txt", "no array")
    assert (read_vectors(tmp_path / "X.npz") == X).all()


def test_a_damaged_npz_file_is_closed(tmp_path, recwarn):
    np.savez(tmp_path / "X.npz", X=np.ones((3, 4)))
    data = (tmp_path / "X.npz").read_bytes()
    for name, content in (("cut.npz", data[: len(data) // 2]), ("whole.npy", data), ("cut.npy", data[:40])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInputError, match="npz"):
            read_vectors(tmp_path / name)
        gc.collect()
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]
