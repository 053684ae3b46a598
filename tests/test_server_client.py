"""The HTTP client and the command `logt serve`, against a server that listens on a real port."""

import asyncio
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from exact_index import built
from server_testing import TOKEN, open_album, raise_disk_full, run_server, wait_until
from synthetic_photos import draw_scene, encode_jpeg
from test_project import ROOT, blocks

import logt
from logt.cli.serve import serve
from logt.photos import update
from logt.server.app import create_app
from logt.server.client import (
    AsyncClient,
    Client,
    Hit,
    NotFoundError,
    ServiceBusyError,
    ServiceError,
    UnauthorizedError,
    _to_exception,
)
from logt.server.collection import VectorCollection
from logt.server.settings import Limits, Settings


@pytest.fixture(scope="module")
def server_url(tmp_path_factory, vectors):
    """The URL of a server with 100 vectors and a token."""
    folder = tmp_path_factory.mktemp("client") / "i"
    built(vectors(100, 16)).save(folder)
    with run_server(create_app(VectorCollection(folder), Settings(token=TOKEN, limits=Limits(k=50)))) as url:
        yield url


@pytest.fixture
def client(server_url):
    return Client(server_url, token=TOKEN)


def test_the_client_searches_adds_and_removes(client, vectors):
    X = vectors(100, 16)
    assert [hits[0].id for hits in client.search(X[:3], k=2)] == [0, 1, 2]
    assert isinstance(client.search(X[0])[0][0], Hit)
    assert 7 not in [hit.id for hit in client.search_id(np.int64(7), k=50)]
    new = vectors(2, 16, seed=5)
    assert client.add(new) == [100, 101]
    assert client.search(new, 1)[1][0].id == 101
    assert client.add(new[::-1], ids=np.array([100, 101]), replace=True) == [100, 101]
    assert client.search(new, 1)[1][0].id == 100
    assert client.add(new, idempotency_key="a key") == client.add(new, idempotency_key="a key") == [102, 103]
    assert client.remove([100, 101, 555]) == 2
    client.compact()
    assert client.info()["report"]["removed"] == 0
    assert client.remove(np.int64(102)) == client.remove(103) == 1
    assert client.info()["vectors"] == 100
    assert client.health() == {"status": "ok", "trouble": None}
    (pool,) = (client._pool.pools[key] for key in client._pool.pools.keys())  # noqa: SIM118
    assert pool.num_connections == 1


def test_searches_take_wanted_and_unwanted_ids_and_a_recall(client, vectors):
    X = vectors(100, 16)
    near = [hit.id for hit in client.search(X[0], k=6)[0]]
    for search, first in ((partial(client.search, X[0]), 0), (partial(client.search_id, 0), 1)):

        def ids(search=search, first=first, **options):
            hits = search(k=3, effort=1, **options)
            return [hit.id for hit in (hits[0] if first == 0 else hits)]

        assert ids(wanted=near[2:4]) == near[2:4]
        assert ids(wanted=[]) == []
        assert ids(unwanted=np.array(near[1:3])) == [*near[first:1], *near[3:6]][:3]
        assert ids(wanted=near[1:4], unwanted={near[1], 10**9}) == near[2:4]
    assert client.search(X[0], 1, recall=0.9)[0][0].id == 0
    for options, message in (
        ({"recall": 1.5}, "recall"),
        ({"recall": 0.5, "effort": 0.5}, "not two of them"),
        ({"wanted": ["a"]}, "integer"),
        ({"wanted": range(10_001)}, "wanted ids must be at most 10,000"),
        ({"unwanted": range(10_001)}, "unwanted ids must be at most 10,000"),
        ({"speed": 1}, "speed"),
    ):
        with pytest.raises(logt.InvalidInputError, match=message):
            client.search(X[0], 1, **options)
    with pytest.raises(logt.InvalidInputError, match=r"queries times \(k and the unwanted ids\) must be at most"):
        client.search(X.repeat(2, axis=0), 1, unwanted=range(10_000))


def test_a_search_by_item_gives_items_with_their_best_vectors(tmp_path, vectors):
    X = vectors(100, 16)
    index = logt.Index(16)
    index.add(X, items=[f"video {row // 5}" for row in range(100)])
    index.save(tmp_path / "i")
    expected = index.search(X[:2], 20, by="item", effort=1)
    rows = [list(zip(*row, strict=True)) for row in zip(expected.ids, expected.scores, expected.items, strict=True)]
    with run_server(create_app(VectorCollection(tmp_path / "i"))) as url, Client(url) as client:
        found = client.search(X[:2], 20, by="item", effort=1)
        assert [[hit[:3] for hit in hits] for hits in found] == rows
        hit = found[0][0]
        assert hit == Hit(0, hit.score, "video 0")
        assert client.search(X[0], 1)[0][0].item is None
        (hits,) = client.search(X[0], 1, by="item", unwanted=[0])
        best = index.search(X[0], 1, by="item", filter=np.arange(1, 100))
        assert hits == [(best.ids[0], best.scores[0], best.items[0], None)]
        others = index.search(index.reconstruct([7])[0], 20, by="item", effort=1).items[1:].tolist()
        assert [hit.item for hit in client.search_id(7, 20, by="item", effort=1)] == others
    built(X).save(tmp_path / "plain")
    with run_server(create_app(VectorCollection(tmp_path / "plain"))) as url, Client(url) as client:
        for search in (client.search, lambda X, **options: client.search_id(0, **options)):
            with pytest.raises(logt.InvalidInputError, match="have no items"):
                search(X[0], by="item")


def test_the_asynchronous_client_has_the_methods_of_the_other(server_url, client, vectors):
    X = vectors(100, 16)

    async def use():
        async with AsyncClient(server_url, token=TOKEN, concurrency=4) as other:
            found = await asyncio.gather(*(other.search(x, 2, unwanted=[5]) for x in X[:20]))
            with pytest.raises(NotFoundError):
                await other.search_id(999)
            ids = await other.add(X[:2])
            assert await other.remove(ids) == 2
            (pool,) = (other._client._pool.pools[key] for key in other._client._pool.pools.keys())  # noqa: SIM118
            return found, pool.num_connections

    with ThreadPoolExecutor(1) as thread:  # which has no event loop
        found, connections = thread.submit(asyncio.run, use()).result()
    assert [rows for (rows,) in found] == [client.search(x, 2, unwanted=[5])[0] for x in X[:20]]
    assert connections <= 4
    methods = {name for name, value in vars(Client).items() if callable(value) and not name.startswith("_")}
    assert methods == {name for name, value in vars(AsyncClient).items() if callable(value) and name[0] != "_"}


def test_a_request_is_sent_again_if_the_server_has_closed_an_idle_connection():
    """An add has the same key both times, so that it is applied once."""
    requests = []

    def answer(listener):
        for response in (
            b"",
            b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ids":[7]}',
        ):
            with listener.accept()[0] as connection:
                requests.append(connection.recv(1 << 16).split(b"\r\n"))
                connection.sendall(response)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        assert Client(f"http://127.0.0.1:{listener.getsockname()[1]}").add([1.0, 2.0]) == [7]
        thread.join()
    first, second = ([line for line in lines if line.startswith(b"Idempotency-Key: ")] for lines in requests)
    assert first == second != []


@pytest.mark.parametrize(
    "response",
    [
        "301 Moved\r\nLocation: https://x/",
        "200 OK\r\nContent-Type: text/html",
        "200 OK\r\nContent-Type: application/json",
    ],
)
def test_a_response_of_another_server_is_a_service_error(response):
    def answer(listener):
        with listener.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(f"HTTP/1.1 {response}\r\nContent-Length: 6\r\n\r\n<html>".encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with pytest.raises(ServiceError, match="not from logt serve"):
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}").search([1.0, 2.0])
        thread.join()


@pytest.fixture(scope="module")
def photo_url(photo_album):
    """The URL of a server with photos."""
    with run_server(create_app(open_album(photo_album))) as url:
        yield url


@pytest.fixture
def query(tmp_path):
    """The file of another photo of scene 2."""
    (tmp_path / "query.jpg").write_bytes(encode_jpeg(draw_scene(2, 99)))
    return tmp_path / "query.jpg"


def test_the_examples_of_the_documentation_run(query, photo_url, server_url, client, monkeypatch):
    """The first example needs an index of photos, the second an index of vectors."""
    photo_example, vector_example, async_example = blocks(ROOT / "docs" / "how-to" / "json-api.md", "python")
    monkeypatch.chdir(query.parent)
    names: dict[str, object] = {}
    exec(photo_example.replace("http://127.0.0.1:8000", photo_url), names)
    assert names["jpeg"].startswith(b"\xff\xd8")
    names["client"] = client
    exec(vector_example, names)
    assert [hits[0].id for hits in names["results"]] == names["ids"]
    monkeypatch.setenv("LOGT_TOKEN", TOKEN)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(exec, async_example.replace("http://127.0.0.1:8000", server_url), names).result()
    assert len(names["found"]) == 3


def test_the_client_searches_by_photo(photo_url, photo_album, query):
    client, ids = Client(photo_url), photo_album[2]
    for photo in (query, str(query), query.read_bytes(), io.BytesIO(query.read_bytes())):
        assert {hit.id for hit in client.search_photo(photo, k=3)} == set(ids[6:9])
    for box in ((0, 0, 1, 1), (0, 0, 240, 180)):
        assert {hit.id for hit in client.search_photo(query, 3, box=box)} == set(ids[6:9])
    assert client.photo(ids[0], "thumb").startswith(b"\xff\xd8")
    with pytest.raises(ServiceError, match="--allow-upload"):
        client.add_photo(query)
    with pytest.raises(ServiceError, match="follows its folder"):
        client.remove(ids[:1])


def test_errors_have_their_own_types(client, server_url, monkeypatch):
    with pytest.raises(logt.InvalidInputError, match="dimension 16"):
        client.search(np.ones(3))
    with pytest.raises(logt.InvalidInputError, match="50"):
        client.search(np.ones(16), k=51)
    with pytest.raises(NotFoundError, match="999") as caught:
        client.search_id(999)
    assert (caught.value.status, caught.value.code) == (404, "not_found")
    with pytest.raises(UnauthorizedError, match="token"):
        Client(server_url).info()
    monkeypatch.setenv("LOGT_TOKEN", TOKEN)
    assert Client(server_url).info()["dim"] == 16
    with pytest.raises(ServiceError, match="without photos"):
        client.search_photo(b"x")
    with pytest.raises(ServiceError, match="is logt serve running") as caught:
        Client("http://127.0.0.1:1", timeout=2).info()
    assert caught.value.status == 0
    with pytest.raises(logt.InvalidInputError, match="url must be"):
        Client("127.0.0.1:8000")
    assert isinstance(_to_exception(503, b'{"error": {"code": "busy", "message": "m"}}'), ServiceBusyError)
    assert isinstance(_to_exception(409, b'{"error": {"code": "locked", "message": "m"}}'), logt.LockedError)
    assert isinstance(_to_exception(403, b'{"error": {"code": "read_only", "message": "m"}}'), logt.ReadOnlyError)
    assert "not from logt serve" in str(_to_exception(502, b"<html>"))


def test_the_client_waits_for_a_change_that_takes_longer_than_the_limit(tmp_path, vectors, monkeypatch):
    logt.Index(16).save(tmp_path / "i")
    save, go = logt.Index.save, threading.Event()

    def save_later(index):
        go.wait(30)
        save(index)

    monkeypatch.setattr("logt.Index.save", save_later)
    with run_server(create_app(VectorCollection(tmp_path / "i"), Settings(limits=Limits(seconds=0.5)))) as url:
        with pytest.raises(ServiceBusyError, match="still running"):
            Client(url, timeout=1).add(vectors(1, 16))
        go.set()
        client = Client(url, timeout=20)
        wait_until(lambda: client.info()["vectors"] == 1)
        go.clear()
        threading.Timer(0.8, go.set).start()
        assert client.add(vectors(2, 16)) == [1, 2]
        go.clear()
        monkeypatch.setattr("logt.storage.store.Store.append", raise_disk_full)
        threading.Timer(0.8, go.set).start()
        with pytest.raises(ServiceError, match="log"):
            client.add(vectors(1, 16))


def test_the_command_serves_until_it_is_stopped(tmp_path):
    logt.Index(16).save(tmp_path / "vectors [red]")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "logt", "serve", tmp_path / "vectors [red]", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200", "LOGT_TOKEN": TOKEN},
    )
    try:
        output = ""
        while "Press Ctrl+C" not in output:
            line = process.stderr.readline()
            assert line, output
            output += line
        assert "0 vectors from vectors [red]" in output
        assert "warning" not in output
        url = re.search(r"http://127.0.0.1:\S+", output)[0]
        with pytest.raises(UnauthorizedError):
            Client(url).info()
        assert Client(url, token=TOKEN).info()["vectors"] == 0
        process.send_signal(signal.SIGINT)
        last_output = process.communicate(timeout=20)[1]
        assert (process.returncode, last_output) == (0, "Stopped\n")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def printed(monkeypatch):
    """What the command prints; it serves nothing, and ends when it has printed the last line that is expected."""
    lines = []

    def run(_, sockets):
        sockets[0].close()
        wait_until(lambda: not any(thread.name == "logt-open" for thread in threading.enumerate()))

    monkeypatch.setattr("logt.cli.serve.say", lambda text, *_: lines.append(text))
    monkeypatch.setattr("uvicorn.Server.run", run)
    return lines


def test_without_a_token_the_command_warns_if_other_machines_can_connect(tmp_path, printed):
    logt.Index(16).save(tmp_path / "i")
    serve(index=str(tmp_path / "i"), host="0.0.0.0", port=0)
    assert "can search, view and change this index. Set LOGT_TOKEN" in printed[0]


def test_the_command_prints_the_folders_of_photos_that_are_not_the_given_one(tmp_path, printed, small):
    folder, other = tmp_path / "photos", tmp_path / "more"
    for number, path in enumerate((folder / "a.png", folder / "b.png", other / "c.png")):
        path.parent.mkdir(exist_ok=True)
        draw_scene(number).save(path)
    for path, also, expected in (
        (folder, [], []),
        (folder / ".logt", [], [f"The photos are in '{folder}'"]),
        (folder, [other], [f"The photos are in '{folder}', '{other}'"]),
    ):
        update(folder, model=small, also=also)
        printed.clear()
        serve(index=str(path), port=0)
        assert [line for line in printed if "The photos are in" in line] == expected


@pytest.mark.parametrize("works", [True, False])
def test_the_page_is_opened_without_the_token(tmp_path, monkeypatch, printed, works):
    """Other users can see the command line of the browser."""
    logt.Index(16).save(tmp_path / "i")
    urls = []
    monkeypatch.setattr("webbrowser.open", lambda url: urls.append(url) or works)
    serve(index=str(tmp_path / "i"), token=TOKEN, open_browser=True, port=0)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", urls[0])
    assert (f"no browser can be started; open {urls[0]}" in printed) is not works


def test_invalid_arguments_of_the_command_are_errors(tmp_path):
    logt.Index(16).save(tmp_path / "i")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for arguments, message in (
            ({"index": Path("none")}, "none holds no index: this path does not exist"),
            ({"host": "no.such.host.invalid"}, "is not an address"),
            ({"port": taken.getsockname()[1]}, "another --port"),
            ({"token": "short"}, "at least 12"),
            ({"seconds": float("nan")}, "seconds must be finite"),
            ({"allow_upload": True}, "not an index of photos; --allow-upload needs one"),
            ({"model": "lite"}, "not an index of photos; --model needs one"),
            ({"allow_upload": True, "read_only": True}, "cannot be combined"),
        ):
            with pytest.raises((logt.InvalidInputError, OSError), match=message):
                serve(**{"index": tmp_path / "i", "port": 0, **arguments})


def test_without_its_packages_the_command_names_the_extra(tmp_path, monkeypatch):
    logt.Index(16).save(tmp_path / "i")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(logt.MissingExtraError, match=r"pip install 'logt-search\[serve\]'"):
        serve(tmp_path / "i", port=0)
    monkeypatch.setitem(sys.modules, "urllib3", None)
    monkeypatch.delitem(sys.modules, "logt.server.client")
    with pytest.raises(logt.MissingExtraError, match=r"pip install 'logt-search\[serve\]'"):
        import_module("logt.server.client")
