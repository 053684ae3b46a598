"""Ids and vectors from the columns of a file, into an index and out of it, with `logt build`, `add` and `export`."""

import json

import numpy as np
import pytest
from exact_index import built

import logt
from logt.datasets.vector_files import read_table

NAMES = [f"{number}.jpg" for number in range(40)]


@pytest.fixture
def X(vectors):
    return vectors(40, 8)


def write(path, X, names=NAMES, id_name="id"):
    """Write vectors and ids to a file of any kind of table."""
    if path.suffix == ".parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        lists = {key: pa.FixedSizeListArray.from_arrays(pa.array(A.ravel()), 8) for key, A in (("a", X), ("b", -X))}
        pq.write_table(pa.table({id_name: names, **lists}), path)
    elif path.suffix == ".npz":
        np.savez(path, a=X, b=-X, **{id_name: np.array(names)})
    elif path.suffix == ".h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["a"], file["b"], file[id_name] = X, -X, names
    else:
        lines = (f"{name}," + ",".join(map(repr, row)) for name, row in zip(names, X.tolist(), strict=True))
        path.write_text("\n".join([id_name + ",x,y,z,s,t,u,v,w", *lines]))


def h5py_file(path):
    return pytest.importorskip("h5py").File(path, "a")


TABLES = ["x.parquet", "x.npz", "x.h5", "x.csv"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("names", [NAMES, [3 * number for number in range(40)]], ids=["strings", "integers"])
def test_a_build_finds_the_ids_and_takes_the_column_that_is_named(tmp_path, X, name, names, run_logt, capsys):
    write(tmp_path / name, X, names)
    column = () if name == "x.csv" else ("--column", "b")
    run_logt("build", tmp_path / name, tmp_path / "i", *column, "--json")
    index = logt.open(tmp_path / "i")
    assert index.ids.tolist() == names
    expected = X if name == "x.csv" else -X
    assert index.search(expected[7], 1).ids[0] == names[7]
    np.testing.assert_allclose(logt.datasets.read_vectors(tmp_path / name, column=(column or [None])[-1]), expected)


@pytest.mark.parametrize("name", TABLES)
def test_ids_under_another_name_are_used_if_they_are_asked_for(tmp_path, X, name, run_logt):
    write(tmp_path / name, X, list(range(100, 140)), "photo")
    column = () if name == "x.csv" else ("--column", "a")
    run_logt("build", tmp_path / name, tmp_path / "i", "--ids", "photo", *column)
    assert logt.open(tmp_path / "i").ids.tolist() == list(range(100, 140))
    assert "has no 'none'; it has: " in run_logt(
        "add", tmp_path / "i", tmp_path / name, "--ids", "none", *column, ok=False
    )


def test_what_was_chosen_is_printed(tmp_path, X, monkeypatch, capsys):
    from logt.cli.vectors import build

    write(tmp_path / "x.npz", X)
    np.save(tmp_path / "x.npy", X)
    for file, options, expected in (
        ("x.npz", {"column": "a"}, "vectors: 40 × 8 from 'a'; ids: from 'id'"),
        ("x.npz", {"column": "a", "no_ids": True}, "vectors: 40 × 8 from 'a'; ids: row numbers"),
        ("x.npy", {}, "vectors: 40 × 8; ids: row numbers"),
    ):
        build([str(tmp_path / file)], str(tmp_path / "i"), overwrite=True, as_json=True, **options)
        assert expected in capsys.readouterr().err


def test_names_that_a_file_does_not_have_are_refused(tmp_path, X):
    for name in TABLES[:3]:
        write(tmp_path / name, X)
        with pytest.raises(logt.InvalidInputError, match="Choose one with --column"):
            read_table(tmp_path / name)
        for column, message in (("c", "has no 'c'; it has: "), ("id", "'id'; it holds")):
            with pytest.raises(logt.InvalidInputError, match=message):
                read_table(tmp_path / name, column)
        with pytest.raises(logt.InvalidInputError, match=r"'b' of .* cannot be ids"):
            read_table(tmp_path / name, "a", "b")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(logt.InvalidInputError, match="without names, so it has no 'id'"):
        read_table(tmp_path / "x.npy", None, "id")
    np.savez(tmp_path / "short.npz", X=X, id=np.arange(3))
    with pytest.raises(logt.InvalidInputError, match="40 vectors, but 3 ids in 'id'; choose others"):
        read_table(tmp_path / "short.npz")
    np.savez(tmp_path / "bytes.npz", X=X, id=np.array([b"\xff"] * 40))
    with pytest.raises(logt.InvalidInputError, match=r"'id' of .* holds no ids"):
        read_table(tmp_path / "bytes.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [("id,a\n1\n2,3\n", "1 vectors, but 2 ids"), ("id\n1\n", "holds no vectors"), ("a,id\n1\n", "is not a table")],
)
def test_a_csv_file_with_ids_but_without_numbers_is_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(logt.InvalidInputError, match=message):
        read_table(tmp_path / "x.csv")
    with pytest.raises(logt.InvalidInputError, match=r"all columns of a \.csv file are one vector"):
        read_table(tmp_path / "x.csv", "a")


def test_hdf5_names_may_be_inside_of_groups_but_not_behind_links(tmp_path, X):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["photos/global"], file["photos/names"] = X, NAMES
        file["other"] = h5py.ExternalLink("elsewhere.h5", "/")
    table = read_table(tmp_path / "x.h5", "photos/global", "photos/names")
    assert table.ids.tolist() == NAMES
    for wanted in ("other/x", "photos/names/x"):
        with pytest.raises(logt.InvalidInputError, match=r"is a link|has no 'x'"):
            read_table(tmp_path / "x.h5", wanted)


def test_strings_that_hdf5_does_not_find_end_in_an_error(tmp_path, X, monkeypatch):
    """In a damaged file, HDF5 may look for them forever, so a child process reads them."""
    write(tmp_path / "x.h5", X)
    monkeypatch.setattr("logt.datasets.mat_hdf5._CHILD_SECONDS", 0.0)
    monkeypatch.setattr("logt.datasets.mat_hdf5._STRINGS_PER_SECOND", 1e9)
    with pytest.raises(logt.InvalidInputError, match="the strings of 'id' cannot be read: took more than 0 s"):
        read_table(tmp_path / "x.h5", "a")
    with h5py_file(tmp_path / "x.h5") as file:
        del file["id"]
        file["id"] = np.array(NAMES, "S")  # these have a fixed length
    assert read_table(tmp_path / "x.h5", "a").ids.tolist() == NAMES


def test_add_replaces_or_refuses_known_ids_and_remove_takes_ids_and_files(tmp_path, X, run_logt):
    write(tmp_path / "x.npz", X)
    run_logt("build", tmp_path / "x.npz", tmp_path / "i", "--column", "a")
    more = ("add", tmp_path / "i", tmp_path / "x.npz", "--column", "b")
    assert "already in the index" in run_logt(*more, ok=False)
    assert json.loads(run_logt(*more, "--replace", "--json")) == {"added": 40, "vectors": 40}
    assert logt.open(tmp_path / "i").search(-X[3], 1).ids[0] == "3.jpg"
    (tmp_path / "ids.txt").write_text("5.jpg\n6.jpg\nunknown\n")
    words = ("remove", tmp_path / "i", "4.jpg", "--from", tmp_path / "ids.txt", "--json")
    assert json.loads(run_logt(*words)) == {"removed": 3, "vectors": 37}
    assert "no ids are given" in run_logt("remove", tmp_path / "i", ok=False)
    np.save(tmp_path / "x.npy", X)
    run_logt("build", tmp_path / "x.npy", tmp_path / "numbers")
    assert "are integers, got 'a'" in run_logt("remove", tmp_path / "numbers", "3", "a", ok=False)
    assert json.loads(run_logt("remove", tmp_path / "numbers", "3", "--json"))["removed"] == 1
    assert json.loads(run_logt("add", tmp_path / "numbers", tmp_path / "x.npy", "--json"))["vectors"] == 79


@pytest.mark.parametrize("names", [NAMES, None], ids=["strings", "integers"])
def test_an_exported_index_can_be_built_again(tmp_path, X, names, run_logt):
    pq, sparse = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("scipy.sparse")
    index = built(X, names)
    index.remove(index.ids[:5])
    index.save(tmp_path / "i")
    names = index.ids.tolist()
    out = {
        kind: tmp_path / kind for kind in ("ids.npy", "ids.txt", "v.npy", "v.parquet", "v.h5", "g.npz", "g.parquet")
    }
    for files in (("ids.npy", "v.npy", "g.npz"), ("ids.txt", "v.parquet", "g.parquet")):
        options = zip(("--ids", "--vectors", "--graph"), (out[file] for file in files), strict=True)
        run_logt("export", tmp_path / "i", *(word for pair in options for word in pair))
    assert np.load(out["ids.npy"]).tolist() == names
    assert out["ids.txt"].read_text().splitlines() == list(map(str, names))
    assert np.array_equal(np.load(out["v.npy"]), index.reconstruct(index.ids))
    graph = index.graph(50)
    assert (sparse.load_npz(out["g.npz"]) != graph.to_csr("similarity")).nnz == 0
    edges = pq.read_table(out["g.parquet"]).to_pylist()
    assert [edge["neighbor"] for edge in edges if edge["id"] == names[0]] == graph.neighbors(0)[0].tolist()
    run_logt("export", tmp_path / "i", "--vectors", out["v.h5"])
    for file in (out["v.parquet"], out["v.h5"]):
        run_logt("build", file, tmp_path / "again", "--overwrite")
        assert logt.open(tmp_path / "again").ids.tolist() == names


def test_an_export_writes_nothing_that_is_not_asked_for(tmp_path, X, run_logt):
    built(X, ["two\nlines", "\udc80", *NAMES[2:]]).save(tmp_path / "i")
    logt.Index(8).save(tmp_path / "empty")
    (tmp_path / "there.npy").touch()
    for words, message in (
        ((), "pass one or more of --ids"),
        (("--ids", tmp_path / "x.npy", "--vectors", tmp_path / "x.npy"), "a file of its own"),
        (("--graph", tmp_path / "x.npy"), r"unsupported file type '.npy'; supported: .npz, .parquet"),
        (("--ids", tmp_path / "there.npy"), "there.npy exists; choose another path, or pass --overwrite"),
        (("--ids", tmp_path / "x.txt"), "some ids have several lines"),
        (("--vectors", tmp_path / "x.parquet"), "cannot be written as UTF-8"),
    ):
        assert message in run_logt("export", tmp_path / "i", *words, ok=False)
    assert "holds no vectors" in run_logt("export", tmp_path / "empty", "--ids", tmp_path / "x.npy", ok=False)
    assert not (tmp_path / "x.npy").exists()


def test_info_prints_the_costs_of_the_paper_for_its_methods(tmp_path, run_logt):
    logt.Index(8).save(tmp_path / "i")
    assert "rho" not in run_logt("info", tmp_path / "i")
    assert json.loads(run_logt("info", tmp_path / "i", "--json"))["rho"] == 0
    logt.Index(8, method=logt.methods.lo_gt(n=4, m=2, L=4)).save(tmp_path / "j")
    assert "rho" in run_logt("info", tmp_path / "j")


def test_a_file_of_ids_that_is_no_text_is_refused(tmp_path, vectors, run_logt):
    built(vectors(20, 8)).save(tmp_path / "index")
    (tmp_path / "ids").write_bytes(b"1\n\xff\xfe")
    assert "is not a text file" in run_logt("remove", tmp_path / "index", "--from", tmp_path / "ids", ok=False)
    assert len(logt.open(tmp_path / "index")) == 20
