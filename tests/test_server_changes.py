"""Changes to an index of vectors through the server, and by other processes while it runs."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from exact_index import built
from server_testing import API, error_message, open_client, raise_disk_full, result_ids, wait_until

import logt
from logt.server.collection import VectorCollection
from logt.server.settings import Limits


@pytest.fixture(scope="module")
def X(vectors):
    return vectors(200, 32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, X):
    folder = tmp_path_factory.mktemp("whole") / "index"
    built(X).save(folder)
    return folder


@pytest.fixture
def client(request, saved):
    """A client of a server with 200 vectors and integer ids, and with the settings that a test parametrizes."""
    with open_client(VectorCollection(saved), **getattr(request, "param", {})) as client:
        client.folder = saved
        yield client


refresh_often = pytest.mark.parametrize("client", [{"refresh_seconds": 0.02}], indirect=True)


@pytest.fixture
def pool():
    """Threads for requests that wait."""
    with ThreadPoolExecutor(20) as pool:
        yield pool


def test_added_vectors_are_found_and_saved(client, vectors):
    new = vectors(3, 32, seed=9)
    response = client.post(f"{API}/vectors", json={"vectors": new.tolist()})
    assert response.json() == {"ids": [200, 201, 202], "vectors": 203}
    found = result_ids(client.post(f"{API}/search", json={"vectors": new.tolist(), "k": 1}))
    assert found == [[200], [201], [202]]
    assert len(logt.open(client.folder)) == 203


def test_compacting_frees_the_space_of_removed_vectors(client):
    before = client.get(f"{API}/info").json()["report"]
    client.post(f"{API}/vectors/remove", json={"ids": list(range(0, 200, 2))})
    answer = client.post(f"{API}/compact").json()
    assert answer["vectors"] == 100
    assert answer["bytes"] < before["bytes"]
    report = logt.open(client.folder).report()
    assert (report["removed"], report["segments"]) == (0, 1)


def test_a_refused_change_changes_nothing(client, X):
    rows = X[:3].tolist()
    rows[1][0] = 1e39
    assert "row 1" in error_message(client.post(f"{API}/vectors", json={"vectors": rows}), 422, "invalid_input")
    for body in (
        {"vectors": [[1.0] * 31]},
        {"vectors": [[1.0] * 32], "ids": [-1]},
        {"vectors": X[:1].tolist(), "ids": [3]},
    ):
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
        message = error_message(client.post(f"{API}/vectors", json=body), 409, "locked")
        assert "another" in message
        assert str(client.folder.parent) not in message
    assert client.post(f"{API}/vectors", json=body).status_code == 200


@refresh_often
def test_what_another_process_saves_is_picked_up(client, X):
    with logt.open(client.folder, "a") as writer:
        writer.add(X)
        writer.save()
    wait_until(lambda: client.get(f"{API}/info").json()["vectors"] == 400)


@refresh_often
def test_the_folder_is_unlocked_when_changes_stop(client, X, monkeypatch):
    monkeypatch.setattr("logt.server.collection.UNLOCK_AFTER", 0.05)
    assert client.post(f"{API}/vectors", json={"vectors": X.tolist()}).status_code == 200

    def is_unlocked():
        try:
            logt.open(client.folder, "a").close()
        except logt.LockedError:
            return False
        return True

    wait_until(is_unlocked)


@refresh_often
def test_an_unreadable_index_is_reported_and_the_old_state_served(client, X, monkeypatch, caplog):
    manifest = client.folder / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(b"{}")
    wait_until(lambda: client.get(f"{API}/health").json()["status"] == "stale")
    trouble = client.get(f"{API}/health").json()["trouble"]  # needs no token, and reveals no path
    assert trouble == "the newest saved index cannot be read; see the server log"
    assert caplog.text.count(str(client.folder)) == 1
    found = result_ids(client.post(f"{API}/search", json={"vectors": X[:1].tolist(), "k": 5}))
    assert len(found[0]) == 5
    manifest.write_bytes(content)
    wait_until(lambda: client.get(f"{API}/health").json() == {"status": "ok", "trouble": None})
    monkeypatch.setattr(client.app_service.collection, "refresh", lambda: 1 / 0)  # any other error
    wait_until(lambda: client.get(f"{API}/health").json()["status"] == "stale")
    assert "division by zero" in caplog.text


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
            client.post(f"{API}/vectors", json={"vectors": vectors(20, 32, seed=50 + seed).tolist()})
    finally:
        done.set()
    assert sum(search.result() for search in searches) > 10


@pytest.fixture
def slow(monkeypatch):
    """Lets saves wait until `slow.go` is set; `slow.saves` counts them."""
    slow = SimpleNamespace(go=threading.Event(), started=threading.Event(), saves=0)
    save = logt.Index.save

    def wait_and_save(index):
        slow.saves += 1
        slow.started.set()
        slow.go.wait(30)
        save(index)

    monkeypatch.setattr("logt.Index.save", wait_and_save)
    return slow


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


@pytest.mark.parametrize(
    ("client", "allowed"),
    [({"limits": Limits(waiting_changes=2)}, 2), ({"limits": Limits(body_bytes=1000)}, 16)],  # 16 rows of 256 bytes
    indirect=["client"],
)
def test_changes_beyond_the_queue_are_refused(client, pool, X, slow, allowed):
    body = {"vectors": X[:1].round(3).tolist()}
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


@pytest.mark.parametrize("client", [{"limits": Limits(seconds=1.5)}], indirect=True)
def test_a_change_that_waits_too_long_is_not_made(client, X, slow):
    first = client.post(f"{API}/vectors", json={"vectors": X[:1].tolist()})
    assert first.status_code == 202  # it is being saved
    error_message(client.post(f"{API}/vectors", json={"vectors": X[1:2].tolist()}), 504, "timeout")
    change = client.get(first.headers["Location"]).json()
    assert (change["id"], change["state"]) == (first.json()["id"], "running")
    slow.go.set()
    wait_until(lambda: client.get(first.headers["Location"]).json()["state"] == "done")
    assert client.get(first.headers["Location"]).json()["ids"] == [200]
    error_message(client.get(f"{API}/changes/none"), 404, "not_found")
    assert client.get(f"{API}/info").json()["vectors"] == 201


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
    client.post(f"{API}/vectors/remove", json={"ids": [7]})
    response = client.post(f"{API}/vectors", json=refused, headers={"Idempotency-Key": "b"})
    assert response.json() == {"ids": [7], "vectors": 201}


def test_outcomes_are_remembered_up_to_a_number(client, vectors, monkeypatch):
    monkeypatch.setattr("logt.server.changes.MAX_REMEMBERED", 3)
    body = {"vectors": vectors(1, 32, seed=9).tolist()}
    for key in "abcdef":
        client.post(f"{API}/vectors", json=body, headers={"Idempotency-Key": key})
    queue = client.app_service.changes
    assert list(queue._keys) == ["c", "d", "e", "f"]
    assert len(queue._tickets) == 4
    assert client.post(f"{API}/vectors", json=body, headers={"Idempotency-Key": "f"}).json()["ids"] == [205]
