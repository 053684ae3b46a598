"""Changes to an index of vectors through the server, and by other processes while it runs."""

from __future__ import annotations

import threading

import pytest
from server_testing import API, error_message, open_client, result_ids, wait_until

import logt
from logt.server.collection import VectorCollection


@pytest.fixture
def X(vectors):
    return vectors(200, 32)


@pytest.fixture
def client(tmp_path, X):
    """A client of a server with 200 vectors and integer ids."""
    index = logt.Index(32)
    index.add(X)
    index.save(tmp_path / "index")
    with open_client(VectorCollection(tmp_path / "index")) as client:
        client.folder = tmp_path / "index"
        yield client


def test_added_vectors_are_found_and_saved(client, vectors):
    new = vectors(3, 32, seed=9)
    response = client.post(f"{API}/vectors", json={"vectors": new.tolist()})
    assert response.json() == {"ids": [200, 201, 202], "vectors": 203}
    found = result_ids(client.post(f"{API}/search", json={"vectors": new.tolist(), "k": 1}))
    assert found == [[200], [201], [202]]
    assert len(logt.open(client.folder)) == 203
    body = {"vectors": new.tolist(), "ids": [1, 2, 3]}
    assert "already" in error_message(client.post(f"{API}/vectors", json=body), 422, "invalid_input")
    response = client.post(f"{API}/vectors", json=body | {"replace": True})
    assert response.json() == {"ids": [1, 2, 3], "vectors": 203}


def test_removed_vectors_are_not_found(client, X):
    response = client.post(f"{API}/vectors/remove", json={"ids": [4, 5, 999]})
    assert response.json() == {"removed": 2, "vectors": 198}
    found = result_ids(client.post(f"{API}/search", json={"vectors": X[4:6].tolist(), "k": 198}))
    assert not {4, 5} & set(found[0] + found[1])
    error_message(client.post(f"{API}/search/ids", json={"ids": [4]}), 404, "not_found")
    assert len(logt.open(client.folder)) == 198


def test_a_refused_change_changes_nothing(client, X):
    rows = X[:3].tolist()
    rows[1][0] = 1e39
    assert "row 1" in error_message(client.post(f"{API}/vectors", json={"vectors": rows}), 422, "invalid_input")
    for body in ({"vectors": [[1.0] * 31]}, {"vectors": [[1.0] * 32], "ids": [-1]}):
        error_message(client.post(f"{API}/vectors", json=body), 422, "invalid_input")
    assert client.get(f"{API}/info").json()["vectors"] == 200


def test_a_failed_save_serves_the_old_state(client, X, monkeypatch):
    def raise_disk_full(*_):
        raise OSError("no space left")

    body = {"vectors": X[:2].tolist()}
    monkeypatch.setattr("logt.storage.store.Store.write", raise_disk_full)
    monkeypatch.setattr("logt.storage.store.Store.append", raise_disk_full)
    assert "log" in error_message(client.post(f"{API}/vectors", json=body), 500, "internal")
    monkeypatch.undo()
    assert client.get(f"{API}/info").json()["vectors"] == 200
    assert client.post(f"{API}/vectors", json=body).json()["vectors"] == 202


def test_many_small_adds_are_merged_into_few_segments(client, vectors):
    for seed in range(9):
        response = client.post(f"{API}/vectors", json={"vectors": vectors(1, 32, seed=1000 + seed).tolist()})
    assert response.json()["vectors"] == 209
    assert client.get(f"{API}/info").json()["report"]["segments"] <= 3


def test_a_change_fails_while_another_process_writes(client, X):
    body = {"vectors": X[:1].tolist()}
    with logt.open(client.folder, "a"):
        assert "another" in error_message(client.post(f"{API}/vectors", json=body), 409, "locked")
    assert client.post(f"{API}/vectors", json=body).status_code == 200


def test_what_another_process_saves_is_picked_up(tmp_path, X):
    logt.Index(32).save(tmp_path / "i")
    with open_client(VectorCollection(tmp_path / "i"), refresh_seconds=0.02) as client:
        assert client.get(f"{API}/info").json()["vectors"] == 0
        with logt.open(tmp_path / "i", "a") as writer:
            writer.add(X)
            writer.save()
        wait_until(lambda: client.get(f"{API}/info").json()["vectors"] == 200)


def test_the_folder_is_unlocked_when_changes_stop(tmp_path, X, monkeypatch):
    monkeypatch.setattr("logt.server.collection.UNLOCK_AFTER", 0.05)
    logt.Index(32).save(tmp_path / "i")
    with open_client(VectorCollection(tmp_path / "i"), refresh_seconds=0.02) as client:
        assert client.post(f"{API}/vectors", json={"vectors": X.tolist()}).status_code == 200

        def is_unlocked():
            try:
                logt.open(tmp_path / "i", "a").close()
            except logt.LockedError:
                return False
            return True

        wait_until(is_unlocked)


def test_an_unreadable_index_is_reported_and_the_old_state_served(tmp_path, X):
    index = logt.Index(32)
    index.add(X)
    index.save(tmp_path / "i")
    manifest = tmp_path / "i" / "manifest.json"
    content = manifest.read_bytes()
    with open_client(VectorCollection(tmp_path / "i"), refresh_seconds=0.02) as client:
        manifest.write_bytes(b"{}")
        wait_until(lambda: client.get(f"{API}/health").json()["status"] == "stale")
        found = result_ids(client.post(f"{API}/search", json={"vectors": X[:1].tolist(), "k": 5}))
        assert len(found[0]) == 5
        manifest.write_bytes(content)
        wait_until(lambda: client.get(f"{API}/health").json() == {"status": "ok", "trouble": None})


def test_searches_go_on_while_vectors_are_added(client, X, vectors):
    done, wrong, searches = threading.Event(), [], []

    def search():
        while not done.is_set():
            response = client.post(f"{API}/search", json={"vectors": X[:3].tolist(), "k": 1})
            if response.status_code != 200 or result_ids(response) != [[0], [1], [2]]:
                wrong.append(response.text)
            searches.append(1)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for seed in range(15):
            added = client.post(f"{API}/vectors", json={"vectors": vectors(20, 32, seed=50 + seed).tolist()})
            assert added.json()["vectors"] == 200 + 20 * (seed + 1)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(searches) > 10
