"""Changes to an index of vectors through the server, and by other processes while it runs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from server_testing import API, error_message, open_client, result_ids, wait_until

import logt
from logt.server.collection import VectorCollection
from logt.server.settings import Limits


@pytest.fixture(scope="module")
def X(vectors):
    return vectors(200, 32)


@pytest.fixture
def open_vectors(tmp_path, X):
    """open_vectors(**settings) -> a client of a server with 200 vectors and integer ids."""
    index = logt.Index(32)
    index.add(X)
    index.save(tmp_path / "index")
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(open_client(VectorCollection(tmp_path / "index"), **settings))


@pytest.fixture
def client(open_vectors, tmp_path):
    client = open_vectors()
    client.folder = tmp_path / "index"
    return client


@pytest.fixture
def pool():
    """Threads for requests that wait."""
    with ThreadPoolExecutor(20) as pool:
        yield pool


def raise_disk_full(*_):
    raise OSError("no space left")


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


def test_a_failed_save_serves_the_old_state(client, vectors, monkeypatch):
    body = {"vectors": vectors(1, 32, seed=9).tolist()}
    monkeypatch.setattr("logt.storage.store.Store.write", raise_disk_full)
    monkeypatch.setattr("logt.storage.store.Store.append", raise_disk_full)
    assert "log" in error_message(client.post(f"{API}/vectors", json=body), 500, "internal")
    assert result_ids(client.post(f"{API}/search", json={**body, "k": 1})) != [[200]]
    monkeypatch.undo()
    assert client.get(f"{API}/info").json()["vectors"] == 200
    assert client.post(f"{API}/vectors", json=body).json() == {"ids": [200], "vectors": 201}


def test_a_change_fails_while_another_process_writes(client, X):
    body = {"vectors": X[:1].tolist()}
    with logt.open(client.folder, "a"):
        assert "another" in error_message(client.post(f"{API}/vectors", json=body), 409, "locked")
    assert client.post(f"{API}/vectors", json=body).status_code == 200


def test_what_another_process_saves_is_picked_up(open_vectors, tmp_path, X):
    client = open_vectors(refresh_seconds=0.02)
    with logt.open(tmp_path / "index", "a") as writer:
        writer.add(X)
        writer.save()
    wait_until(lambda: client.get(f"{API}/info").json()["vectors"] == 400)


def test_the_folder_is_unlocked_when_changes_stop(open_vectors, tmp_path, X, monkeypatch):
    monkeypatch.setattr("logt.server.collection.UNLOCK_AFTER", 0.05)
    client = open_vectors(refresh_seconds=0.02)
    assert client.post(f"{API}/vectors", json={"vectors": X.tolist()}).status_code == 200

    def is_unlocked():
        try:
            logt.open(tmp_path / "index", "a").close()
        except logt.LockedError:
            return False
        return True

    wait_until(is_unlocked)


def test_an_unreadable_index_is_reported_and_the_old_state_served(open_vectors, tmp_path, X, monkeypatch):
    client, manifest = open_vectors(refresh_seconds=0.02), tmp_path / "index" / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(b"{}")
    wait_until(lambda: client.get(f"{API}/health").json()["status"] == "stale")
    found = result_ids(client.post(f"{API}/search", json={"vectors": X[:1].tolist(), "k": 5}))
    assert len(found[0]) == 5
    manifest.write_bytes(content)
    wait_until(lambda: client.get(f"{API}/health").json() == {"status": "ok", "trouble": None})
    monkeypatch.setattr(client.app_service.collection, "refresh", lambda: 1 / 0)  # any other error
    wait_until(lambda: client.get(f"{API}/health").json()["trouble"] == "division by zero")
    monkeypatch.undo()
    wait_until(lambda: client.get(f"{API}/health").json()["status"] == "ok")


def test_searches_go_on_while_vectors_are_added(client, pool, X, vectors):
    done = threading.Event()

    def search():
        count = 0
        while not done.is_set():
            response = client.post(f"{API}/search", json={"vectors": X[:3].tolist(), "k": 1})
            assert result_ids(response) == [[0], [1], [2]]
            count += 1
        return count

    searches = [pool.submit(search) for _ in range(3)]
    try:
        for seed in range(15):
            added = client.post(f"{API}/vectors", json={"vectors": vectors(20, 32, seed=50 + seed).tolist()})
            assert added.json()["vectors"] == 200 + 20 * (seed + 1)
    finally:
        done.set()
    assert sum(search.result() for search in searches) > 10


class SlowSave:
    """Lets saves wait until `go` is set; `saves` counts them."""

    def __init__(self, monkeypatch):
        self.go, self.started, self.saves = threading.Event(), threading.Event(), 0
        save = logt.Index.save

        def wait_and_save(index, *arguments):
            self.saves += 1
            self.started.set()
            self.go.wait(30)
            save(index, *arguments)

        monkeypatch.setattr("logt.Index.save", wait_and_save)


@pytest.fixture
def slow(monkeypatch):
    return SlowSave(monkeypatch)


def test_a_search_sees_saved_vectors_only(client, pool, vectors, slow):
    new = vectors(1, 32, seed=9)
    added = pool.submit(client.post, f"{API}/vectors", json={"vectors": new.tolist()})
    slow.started.wait(30)
    query = {"vectors": new.tolist(), "k": 1}
    assert result_ids(client.post(f"{API}/search", json=query)) != [[200]]
    assert client.get(f"{API}/info").json()["vectors"] == 200
    error_message(client.post(f"{API}/search/ids", json={"ids": [200]}), 404, "not_found")
    slow.go.set()
    assert added.result().json() == {"ids": [200], "vectors": 201}
    assert result_ids(client.post(f"{API}/search", json=query)) == [[200]]


def test_changes_that_wait_are_saved_together(client, pool, vectors, slow):
    def add(seed, **more):
        body = {"vectors": vectors(1, 32, seed=seed).tolist(), **more}
        return pool.submit(client.post, f"{API}/vectors", json=body)

    requests = [add(1)]
    slow.started.wait(30)
    requests += [add(seed) for seed in range(2, 8)]
    requests.append(add(9, ids=[3]))  # exists
    requests.append(pool.submit(client.post, f"{API}/vectors/remove", json={"ids": [5]}))
    wait_until(lambda: len(client.app_service.changes._waiting) == 8)
    slow.go.set()
    responses = [request.result() for request in requests]
    assert sorted(response.status_code for response in responses) == [200] * 8 + [422]
    assert slow.saves == 2
    assert sorted(response.json()["ids"] for response in responses[:7]) == [[n] for n in range(200, 207)]
    assert len(logt.open(client.folder)) == 200 + 7 - 1


@pytest.mark.parametrize("limits", [Limits(waiting_changes=2), Limits(body_bytes=1000)], ids=["number", "bytes"])
def test_changes_beyond_the_queue_are_refused(open_vectors, pool, X, slow, limits):
    client = open_vectors(limits=limits)
    body = {"vectors": X[:1].round(3).tolist()}
    allowed = 2 if limits.waiting_changes == 2 else 16  # 16 rows of 256 bytes have 4096
    requests = []
    for count in range(allowed + 1):
        requests.append(pool.submit(client.post, f"{API}/vectors", json=body))
        slow.started.wait(30)
        wait_until(lambda count=count: len(client.app_service.changes._waiting) == count)
    refused = client.post(f"{API}/vectors", json=body)
    error_message(refused, 503, "busy")
    assert refused.headers["Retry-After"]
    slow.go.set()
    assert all(request.result().status_code == 200 for request in requests)
    assert client.get(f"{API}/info").json()["vectors"] == 200 + allowed + 1


def test_a_change_that_waits_too_long_is_not_made(open_vectors, X, slow):
    client = open_vectors(limits=Limits(seconds=1.5))
    first = client.post(f"{API}/vectors", json={"vectors": X[:1].tolist()})
    assert first.status_code == 202  # it is being saved
    error_message(client.post(f"{API}/vectors", json={"vectors": X[1:2].tolist()}), 504, "timeout")
    change = client.get(first.headers["Location"]).json()
    assert (change["id"], change["state"]) == (first.json()["id"], "running")
    slow.go.set()
    wait_until(lambda: client.get(first.headers["Location"]).json()["state"] == "done")
    assert client.get(first.headers["Location"]).json()["ids"] == [200]
    assert client.get(f"{API}/info").json()["vectors"] == 201


def test_a_change_that_fails_after_the_time_limit_is_reported_as_failed(open_vectors, X, slow, monkeypatch):
    client = open_vectors(limits=Limits(seconds=1.5))
    change = client.post(f"{API}/vectors", json={"vectors": X[:1].tolist()}).json()
    monkeypatch.setattr("logt.storage.store.Store.append", raise_disk_full)
    slow.go.set()
    wait_until(lambda: client.get(f"{API}/changes/{change['id']}").json()["state"] == "failed")
    assert client.get(f"{API}/changes/{change['id']}").json()["error"]["code"] == "internal"
    error_message(client.get(f"{API}/changes/none"), 404, "not_found")


def test_a_request_with_the_same_key_is_applied_once(client, pool, vectors, slow):
    body, headers = {"vectors": vectors(1, 32, seed=9).tolist()}, {"Idempotency-Key": "order 66"}
    requests = [pool.submit(client.post, f"{API}/vectors", json=body, headers=headers) for _ in range(3)]
    slow.started.wait(30)
    slow.go.set()
    assert [request.result().json()["ids"] for request in requests] == [[200]] * 3
    again = client.post(f"{API}/vectors", json=body, headers=headers)
    assert again.json() == {"ids": [200], "vectors": 201}
    other = {"vectors": vectors(1, 32, seed=10).tolist()}
    error_message(client.post(f"{API}/vectors", json=other, headers=headers), 422, "key_reused")
    refused = {"vectors": body["vectors"], "ids": [7]}
    for _ in range(2):  # a request that changed nothing may be sent again
        response = client.post(f"{API}/vectors", json=refused, headers={"Idempotency-Key": "b"})
        error_message(response, 422, "invalid_input")


def test_outcomes_are_remembered_up_to_a_number(client, vectors, monkeypatch):
    monkeypatch.setattr("logt.server.changes.MAX_REMEMBERED", 3)
    body = {"vectors": vectors(1, 32, seed=9).tolist()}
    for key in "abcdef":
        client.post(f"{API}/vectors", json=body, headers={"Idempotency-Key": key})
    queue = client.app_service.changes
    assert list(queue._keys) == ["c", "d", "e", "f"]
    assert len(queue._tickets) == 4
    assert client.post(f"{API}/vectors", json=body, headers={"Idempotency-Key": "f"}).json()["ids"] == [205]
