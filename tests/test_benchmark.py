"""Benchmarks in each supported layout, written here and read back."""

import json

import numpy as np
import pytest

from logt import InvalidInputError
from logt.datasets import load_benchmark, synthetic_benchmark, synthetic_collection
from logt.datasets.benchmark import NEIGHBORS_PROTOCOL
from logt.datasets.ground_truth import ground_truth_from_json
from logt.datasets.mat_hdf5 import read_mat
from logt.evaluation import mean_average_precision

REVISITED = [{"easy": [0, 1], "hard": [2], "junk": [3]}, {"easy": [5], "hard": [], "junk": [6, 7]}]


@pytest.fixture
def data(rng):
    return rng.standard_normal((12, 6)), rng.standard_normal((2, 6))


def write_bin(path, matrix, kind="<f4"):
    path.write_bytes(np.array(matrix.shape, "<u4").tobytes() + np.asarray(matrix, kind).tobytes())


def write_mat_5(path, **arrays):
    pytest.importorskip("scipy.io").savemat(path, {name: matrix.T for name, matrix in arrays.items()})


def write_mat_73(path, **arrays):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, matrix in arrays.items():
            file[name] = matrix  # rows here are columns in MATLAB: HDF5 reverses the axes
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")


def check(benchmark, X, Q):
    for mine, theirs in ((benchmark.X, X), (benchmark.Q, Q)):
        assert mine.dtype == np.float32
        assert np.allclose(mine, theirs / np.linalg.norm(theirs, axis=1, keepdims=True), atol=1e-6)


def write_npy_files(folder, X, Q):
    np.save(folder / "vectors.npy", X)
    np.save(folder / "queries.npy", Q)


def write_mat_5_file(folder, X, Q):
    write_mat_5(folder / "features.mat", X=X, Q=Q)


def write_mat_73_files(folder, X, Q):
    write_mat_73(folder / "zz.mat", X=X[:9], Q=Q)
    write_mat_73(folder / "distractors.mat", X=X[9:])


@pytest.mark.parametrize("write", [write_npy_files, write_mat_5_file, write_mat_73_files])
def test_vectors_and_queries_with_the_revisited_ground_truth(tmp_path, data, write):
    write(tmp_path, *data)
    (tmp_path / "ground_truth.json").write_text(json.dumps({"queries": REVISITED}))
    benchmark = load_benchmark(tmp_path)
    check(benchmark, *data)
    truths = benchmark.truths
    assert list(truths) == ["medium", "easy", "hard"]
    assert [rows.tolist() for rows in truths["medium"].positives] == [[0, 1, 2], [5]]
    assert [rows.tolist() for rows in truths["easy"].junk] == [[3, 2], [6, 7]]
    assert [rows.tolist() for rows in truths["hard"].positives] == [[2], []]
    assert benchmark.main == "medium"


def test_mat_with_the_text_files_of_the_oxford_buildings(tmp_path, data):
    write_mat_5_file(tmp_path, *data)
    (tmp_path / "imlist.txt").write_text("\n".join(f"image_{i:02}.jpg" for i in range(10)))
    texts = tmp_path / "gt"
    texts.mkdir()
    for name, good, ok, junk in (("b_1", "image_04\n", "", "image_09\nnowhere\n"), ("a_1", "", "image_02\n", "")):
        (texts / f"{name}_query.txt").write_text("oxc1_image_01 1 2 3 4\n")
        for kind, lines in (("good", good), ("ok", ok), ("junk", junk)):
            (texts / f"{name}_{kind}.txt").write_text(lines)
    truth = load_benchmark(tmp_path).truths["original"]
    assert [rows.tolist() for rows in truth.positives] == [[2], [4]]
    assert [rows.tolist() for rows in truth.junk] == [[], [9]]
    (texts / "a_1_ok.txt").write_text("image_77\n")
    with pytest.raises(InvalidInputError, match="ground truth of a_1 contains image_77"):
        load_benchmark(tmp_path)
    (texts / "a_1_ok.txt").unlink()
    with pytest.raises(InvalidInputError, match=r"file not found: .*a_1_ok.txt"):
        load_benchmark(tmp_path)
    (tmp_path / "imlist.txt").unlink()
    with pytest.raises(InvalidInputError, match=r"needs imlist.txt"):
        load_benchmark(tmp_path)


@pytest.mark.parametrize(
    ("distance", "metric"), [("angular", "cosine"), ("normalized", "cosine"), ("euclidean", "l2"), (b"dot", "ip")]
)
def test_hdf5_of_ann_benchmarks_and_vibe(tmp_path, data, distance, metric):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "glove.hdf5"
    with h5py.File(path, "w") as file:
        file["train"], file["test"] = data
        file["neighbors"] = np.array([[1, 2], [3, 4]], np.int32)
        file.attrs["distance"] = distance
    for source in (path, tmp_path):
        benchmark = load_benchmark(source)
        assert benchmark.metric == metric
        assert [rows.tolist() for rows in benchmark.truths[NEIGHBORS_PROTOCOL].positives] == [[1, 2], [3, 4]]
    if metric == "cosine":
        check(benchmark, *data)
    else:
        assert np.allclose(benchmark.X, data[0])
    assert load_benchmark(path, metric=metric).metric == metric
    other = "cosine" if metric == "l2" else "l2"
    with pytest.raises(InvalidInputError, match=f"states the distance .*, but the metric {other} was requested"):
        load_benchmark(path, metric=other)
    with h5py.File(path, "a") as file:
        file.attrs["distance"] = "jaccard"
    with pytest.raises(InvalidInputError, match="unsupported distance 'jaccard'; supported: angular, cosine"):
        load_benchmark(path)


@pytest.mark.parametrize(
    ("metric", "suffix", "kind"),
    [("cosine", ".fbin", "<f4"), ("ip", ".fbin", "<f4"), ("l2", ".u8bin", "u1"), ("euclidean", ".u8bin", "u1")],
)
def test_binary_files_of_big_ann_benchmarks(tmp_path, data, metric, suffix, kind):
    X, Q = (np.abs(matrix * 50) + 1 for matrix in data)
    write_bin(tmp_path / f"base{suffix}", X, kind)
    write_bin(tmp_path / f"query{suffix}", Q, kind)
    benchmark = load_benchmark(tmp_path, metric=metric)
    assert benchmark.truths == {}
    with pytest.raises(InvalidInputError, match="has no ground truth"):
        _ = benchmark.main
    stored = X.astype(kind)
    if metric == "cosine":
        check(benchmark, stored, Q.astype(kind))
    else:
        assert benchmark.metric == {"ip": "ip"}.get(metric, "l2")
        assert (stored == benchmark.X).all()
    write_bin(tmp_path / "groundtruth.ibin", np.array([[1, 2], [3, 4]]), "<i4")
    for _ in range(2):
        truth = load_benchmark(tmp_path, metric=metric).truths[NEIGHBORS_PROTOCOL]
        assert [rows.tolist() for rows in truth.positives] == [[1, 2], [3, 4]]
        with open(tmp_path / "groundtruth.ibin", "ab") as file:
            file.write(np.ones(4, "<f4").tobytes())  # distances, as big-ann-benchmarks writes them
    with pytest.raises(InvalidInputError, match=r"groundtruth.ibin is damaged: its header states 2 neighbors of 2"):
        load_benchmark(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "no list of queries"),
        ('{"queries": []}', "no list of queries"),
        ('{"queries": [{"easy": []}]}', "the first has easy"),
        ('{"queries": [{"positives": "ab", "junk": []}]}', "not a list of row numbers"),
        ('{"queries": [{"positives": [1.5], "junk": []}]}', "not a list of integers"),
    ],
)
def test_invalid_json_ground_truth_is_refused(tmp_path, text, message):
    path = tmp_path / "ground_truth.json"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        ground_truth_from_json(path)


def test_inconsistent_folders_and_pickles_are_refused(tmp_path, data):
    with pytest.raises(FileNotFoundError, match="folder not found"):
        load_benchmark(tmp_path / "none")
    with pytest.raises(InvalidInputError, match="unsupported benchmark layout; supported: vectors and queries"):
        load_benchmark(tmp_path)
    X, Q = data
    np.save(tmp_path / "vectors.npy", X)
    truth = {"queries": [{"positives": [1], "junk": []}] * 2}
    (tmp_path / "ground_truth.json").write_text(json.dumps(truth))
    with pytest.raises(InvalidInputError, match="must contain one file queries"):
        load_benchmark(tmp_path)
    for queries, message in (
        (Q[:, :4], "vectors have dimension 6, queries 4"),
        (Q[:1], "1 queries, but the ground truth"),
        (Q * [[1], [0]], "row 1 of the queries of .* is all zeros"),
        (Q * [[1], [np.nan]], "row 1 of the queries"),
        (Q[:0], "the matrix has no rows"),
    ):
        np.save(tmp_path / "queries.npy", queries)
        with pytest.raises(InvalidInputError, match=message):
            load_benchmark(tmp_path)
    np.save(tmp_path / "queries.npy", Q)
    truth["queries"][1] = {"positives": [12], "junk": []}
    (tmp_path / "ground_truth.json").write_text(json.dumps(truth))
    with pytest.raises(InvalidInputError, match="refers to row 12, but there are 12 vectors"):
        load_benchmark(tmp_path)
    with pytest.raises(InvalidInputError, match="metric must be one of"):
        load_benchmark(tmp_path, metric="manhattan")
    (tmp_path / "ground_truth.json").rename(tmp_path / "gnd_roxford5k.pkl")
    with pytest.raises(InvalidInputError, match=r"gnd_roxford5k\.pkl is not a pickle of plain data"):
        load_benchmark(tmp_path)
    (tmp_path / "gnd_rparis6k.pkl").touch()
    with pytest.raises(InvalidInputError, match=r"several ground truths: gnd_roxford5k\.pkl, gnd_rparis6k\.pkl"):
        load_benchmark(tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_mat_files_of_every_type_are_read(tmp_path, kind, compressed):
    X = np.arange(1, 16).reshape(5, 3).astype(kind)
    others = {"a": {"X": 1}, "b": "text", "c": np.array([[1, "x"]], object), "long_name_of_a_variable": 1 + 2j}
    file = tmp_path / "a.mat"
    pytest.importorskip("scipy.io").savemat(
        file, {**others, "X": X.T, "d": [], "Q": X[:0].T}, do_compression=compressed
    )
    found = read_mat(file)
    assert sorted(found) == ["Q", "X"]
    assert found["X"].dtype == X.dtype
    assert found["Q"].shape == (0, 3)
    np.testing.assert_array_equal(found["X"], X)


def test_mat_files_of_other_values_are_refused(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    for value in (np.eye(2) * 1j, "text", {"a": 1}, np.array([[1, "x"]], object)):
        scipy_io.savemat(tmp_path / "a.mat", {"X": value})
        with pytest.raises(InvalidInputError, match="not a full matrix of real numbers"):
            read_mat(tmp_path / "a.mat")
    scipy_io.savemat(tmp_path / "a.mat", {"X": np.eye(2)}, format="4")
    with pytest.raises(InvalidInputError, match="no header of MATLAB 5"):
        read_mat(tmp_path / "a.mat")


def test_all_mat_files_need_x_and_exactly_one_q(tmp_path, data):
    write_mat_5(tmp_path / "a.mat", X=data[0])
    with pytest.raises(InvalidInputError, match="exactly one of them Q"):
        load_benchmark(tmp_path)
    (tmp_path / "a.mat").write_bytes(b"no MATLAB")
    with pytest.raises(InvalidInputError, match=r"cannot be read as a \.mat file"):
        load_benchmark(tmp_path)


def test_the_fingerprint_depends_on_the_data_only():
    one, same, other = synthetic_benchmark(200, 8), synthetic_benchmark(200, 8), synthetic_benchmark(200, 8, seed=1)
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_the_synthetic_collection_has_the_ground_truth_it_states():
    collection = synthetic_collection(2000, 128, landmarks=10, views=15)
    assert collection.X.shape == (2000, 128)
    assert collection.Q.shape == (10, 128)
    assert np.allclose(np.linalg.norm(collection.X, axis=1), 1, atol=1e-5)
    assert [len(p) for p in collection.positives] == [15] * 10
    assert len(np.unique(np.concatenate(collection.positives))) == 150
    ranking = np.argsort(-(collection.Q @ collection.X.T), axis=1)
    assert 40 < mean_average_precision(ranking, collection.positives) < 99
