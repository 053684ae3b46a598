"""Named embeddings in a folder, which the backend of FiftyOne is made of, against distances computed directly."""

import numpy as np
import pytest

from logt import InvalidInputError
from logt.integrations.embedding_folder import METRICS, EmbeddingFolder
from logt.methods import sketched

NORMS = pytest.mark.parametrize("folder", ["cosine", "euclidean"], indirect=True)  # not larger for longer vectors
NAMES = [f"v{number}" for number in range(120)]


@pytest.fixture
def X():
    """60 random vectors, each with a copy that differs a little."""
    rng = np.random.default_rng(3)
    first = rng.normal(size=(60, 16))
    return np.concatenate([first, first + 0.02 * rng.normal(size=first.shape)]).astype(np.float32)


def rows(near):
    return [NAMES.index(name) for name in near.names]


def all_distances(X, Q, distance):
    if distance == "euclidean":
        return np.linalg.norm(Q[:, None] - X[None], axis=2)
    if distance == "dotproduct":
        return -Q @ X.T
    return 1 - (Q / np.linalg.norm(Q, axis=1)[:, None]) @ (X / np.linalg.norm(X, axis=1)[:, None]).T


@pytest.fixture(params=sorted(METRICS))
def folder(request, X, tmp_path):
    folder = EmbeddingFolder(tmp_path / "all" / "index", request.param, sketched(bits=8, effort=1.0))
    folder.upsert(X, NAMES)
    return folder


def test_distances_are_those_of_the_metric(folder, X):
    D = all_distances(X, X[:5], folder.distance)
    for near, exact in zip(folder.search(X[:5], 7), D, strict=True):
        assert exact[rows(near)] == pytest.approx(near.distances, abs=0.05)
        assert exact[rows(near)] == pytest.approx(np.sort(exact)[:7], abs=0.05)
    (near,) = folder.search(X[:1], 3, farthest=True)
    assert D[0][rows(near)] == pytest.approx(np.sort(D[0])[::-1][:3], abs=0.05)
    (near,) = folder.search(X[:1])
    assert sorted(rows(near)) == list(range(120))


def test_a_search_among_rows_returns_only_those(folder, X):
    among = np.array([3, 50, 63, 7])
    (near,) = folder.search(X[3:4], 10, among=among)
    assert sorted(rows(near)) == [3, 7, 50, 63]
    assert set(rows(near)[:2]) == {3, 63} or folder.distance == "dotproduct"


@NORMS
def test_each_row_has_its_copy_as_neighbor_and_not_itself(folder):
    for among in (None, np.arange(119, -1, -1)):
        others = folder.others(lambda Q, among=among: folder.search(Q, 2, among=among), among=among)
        for row, near in zip(range(120) if among is None else among, others, strict=True):
            assert rows(near) == [(row + 60) % 120]


@NORMS
def test_rows_within_a_distance_are_the_copies(folder):
    distance = {"cosine": 0.02, "euclidean": 0.5}[folder.distance]
    others = folder.others(lambda Q: folder.within(Q, distance))
    assert list(map(rows, others)) == [[(row + 60) % 120] for row in range(120)]
    assert folder.unique(distance) == NAMES[:60]
    assert folder.unique(1e6) == NAMES[:1]
    assert folder.unique(-1.0) == NAMES  # nothing is so near, not even the same
    assert folder.unique(distance, among=np.arange(119, -1, -1)) == NAMES[:59:-1]


def test_another_reader_sees_the_changes_after_refresh(folder, X):
    reader = EmbeddingFolder(folder.path, folder.distance)
    folder.upsert(X[:1], ["new"])
    folder.remove(["v5", "v6"])
    assert len(reader.names) == 120
    reader.refresh()
    assert len(reader.names) == 119
    assert "new" in reader
    assert "v5" not in reader
    reader.upsert(X[:1], ["from the reader"])  # the lock is free
    folder.refresh()
    assert "from the reader" in folder
    folder.delete()
    assert not folder.path.exists()
    assert folder.names == []


def test_an_empty_folder_finds_nothing_and_is_not_created_and_has_a_known_distance(tmp_path, X):
    folder = EmbeddingFolder(tmp_path / "none", "cosine")
    assert rows(folder.search(X[:2], 3)[1]) == rows(folder.within(X[:2], 0.5)[0]) == []
    assert list(folder.others(lambda Q: folder.search(Q, 3))) == []
    assert folder.unique(0.1) == []
    with pytest.raises(InvalidInputError, match="holds no embeddings"):
        folder.remove(["x"])
    assert not (tmp_path / "none").exists()
    with pytest.raises(InvalidInputError, match="euclidean"):
        EmbeddingFolder(tmp_path, "manhattan")
