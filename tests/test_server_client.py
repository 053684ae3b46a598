"""The HTTP client and the command `logt serve`, against a server that listens on a real port."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from server_testing import TOKEN, run_server, wait_until
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos
from test_project import ROOT, blocks

import logt
from logt.cli.serve import serve
from logt.photos import update
from logt.server.app import create_app
from logt.server.client import (
    Client,
    Hit,
    NotFoundError,
    ServiceBusyError,
    ServiceError,
    UnauthorizedError,
    _to_exception,
)
from logt.server.collection import VectorCollection
from logt.server.photo_collection import PhotoCollection
from logt.server.settings import Limits, Settings


@pytest.fixture(scope="module")
def server_url(tmp_path_factory, vectors):
    """The URL of a server with 100 vectors and a token."""
    folder = tmp_path_factory.mktemp("client") / "i"
    index = logt.Index(16)
    index.add(vectors(100, 16))
    index.save(folder)
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
    assert client.remove(np.int64(102)) == client.remove(103) == 1
    assert client.info()["vectors"] == 100
    assert client.health() == {"status": "ok", "trouble": None}


def test_the_examples_of_the_documentation_run(tmp_path, client, monkeypatch):
    """The first example needs an index of photos, the second an index of vectors."""
    photo_example, vector_example = blocks(ROOT / "docs" / "how-to" / "serve.md", "python")
    write_photos(tmp_path / "photos", tmp_path / "index", 4, 2)
    (tmp_path / "query.jpg").write_bytes(encode_jpeg(draw_scene(2, 99)))
    monkeypatch.chdir(tmp_path)
    with run_server(create_app(PhotoCollection(SyntheticPhotos(tmp_path / "photos", tmp_path / "index")))) as url:
        names: dict[str, object] = {}
        exec(photo_example.replace("http://127.0.0.1:8000", url), names)
    assert names["jpeg"].startswith(b"\xff\xd8")
    names["client"] = client
    exec(vector_example, names)
    assert [hits[0].id for hits in names["results"]] == names["ids"]


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
        client.search_image(b"x")
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
    settings = Settings(limits=Limits(seconds=1.0))
    with run_server(create_app(VectorCollection(tmp_path / "i"), settings)) as url:
        client = Client(url, timeout=5)
        client.search(np.ones(16))
        with pytest.raises(ServiceBusyError, match="still running"):
            Client(url, timeout=1.5).add(vectors(1, 16))
        threading.Timer(0.5, go.set).start()
        wait_until(lambda: client.info()["vectors"] == 1)
        go.clear()
        threading.Timer(1.8, go.set).start()
        assert client.add(vectors(2, 16)) == [1, 2]
        go.clear()
        monkeypatch.setattr("logt.storage.store.Store.append", raise_disk_full)
        threading.Timer(1.8, go.set).start()
        with pytest.raises(ServiceError, match="log"):
            client.add(vectors(1, 16))


def raise_disk_full(*_):
    raise OSError("no space left")


def test_the_client_searches_by_image(tmp_path):
    ids = write_photos(tmp_path / "photos", tmp_path / "index", 4, 2)
    (tmp_path / "query.jpg").write_bytes(encode_jpeg(draw_scene(2, 99)))
    with run_server(create_app(PhotoCollection(SyntheticPhotos(tmp_path / "photos", tmp_path / "index")))) as url:
        client = Client(url)
        for photo in (
            tmp_path / "query.jpg",
            str(tmp_path / "query.jpg"),
            encode_jpeg(draw_scene(2, 99)),
            io.BytesIO(encode_jpeg(draw_scene(2, 99))),
        ):
            assert {hit.id for hit in client.search_image(photo, k=2)} == set(ids[4:6])
        for box in ((0, 0, 1, 1), (0, 0, 240, 180)):
            assert {hit.id for hit in client.search_image(tmp_path / "query.jpg", 2, box=box)} == set(ids[4:6])
        assert client.picture(ids[0], "thumb").startswith(b"\xff\xd8")
        with pytest.raises(ServiceError, match="--allow-upload"):
            client.add_picture(tmp_path / "query.jpg")
        with pytest.raises(ServiceError, match="follows its folder"):
            client.remove(ids[:1])


@contextmanager
def run_command(*arguments, **env):
    """Run `logt serve` as a process: (URL, output); it is stopped as with Ctrl+C."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "logt", "serve", *map(str, arguments), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200", **env},
    )
    try:
        output = ""
        while "Press Ctrl+C" not in output:
            line = process.stderr.readline()
            assert line, output
            output += line
        yield re.search(r"http://\S+", output)[0], output
        process.send_signal(signal.SIGINT)
        last_output = process.communicate(timeout=20)[1]
        assert (process.returncode, last_output) == (0, "Stopped\n")
    finally:
        process.kill()
        process.communicate()


def test_the_command_serves_until_stopped_and_warns_without_a_token(tmp_path, vectors):
    index = logt.Index(16)
    index.add(vectors(50, 16))
    index.save(tmp_path / "vectors [red]")
    with run_command(tmp_path / "vectors [red]", "--host", "0.0.0.0") as (url, output):
        assert "50 vectors from vectors [red]" in output
        assert "warning" in output
        assert "LOGT_TOKEN" in output
        assert "search, view and change" in output
        assert Client(url).info()["vectors"] == 50
    with run_command(tmp_path / "vectors [red]", "--host", "0.0.0.0", "--read-only") as (url, output):
        assert "can search and view this index" in output
        assert "--read-only" not in output
        assert Client(url).info()["read_only"] is True


def test_the_command_reads_the_token_from_the_environment(tmp_path):
    logt.Index(16).save(tmp_path / "i")
    with run_command(tmp_path / "i", LOGT_TOKEN=TOKEN) as (url, output):
        assert "warning" not in output
        assert url.startswith("http://127.0.0.1:")
        with pytest.raises(UnauthorizedError):
            Client(url).info()
        assert Client(url, token=TOKEN).info()["vectors"] == 0


def test_the_command_prints_the_folders_of_photos_that_are_not_the_given_one(tmp_path):
    folder, other = tmp_path / "photos", tmp_path / "more"
    for number, path in enumerate((folder / "a.png", folder / "b.png", other / "c.png")):
        path.parent.mkdir(exist_ok=True)
        draw_scene(number).save(path)
    for path, also, expected in (
        (folder, [], None),
        (folder / ".logt", [], f"'{folder}'"),
        (folder, [other], f"'{folder}', '{other}'"),
    ):
        update(folder, also=also)
        with run_command(path) as (url, output):
            assert Client(url).info()["pictures"]
            assert "The photos are in" not in output if expected is None else f"are in {expected}\n" in output


@pytest.mark.parametrize("works", [True, False])
def test_the_page_is_opened_without_the_token(tmp_path, monkeypatch, works):
    """Other users can see the command line of the browser."""
    logt.Index(16).save(tmp_path / "i")
    urls, printed = [], []

    class Server:
        started, should_exit = True, False

        def run(self, sockets):
            sockets[0].close()
            wait_until(lambda: urls and (works or "no browser" in printed[-1]))

    monkeypatch.setattr("webbrowser.open", lambda url: urls.append(url) or works)
    monkeypatch.setattr("logt.cli.serve._print", lambda text, **_: printed.append(text))
    monkeypatch.setattr(
        "logt.cli.serve._create_server", lambda *_: (Server(), socket.create_server(("127.0.0.1", 0)))
    )
    serve(index=str(tmp_path / "i"), token=TOKEN, open_browser=True)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", urls[0])
    assert (f"no browser can be started; open {urls[0]}" in printed) is not works


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"index": Path("none")}, "none holds no index: this path does not exist"),
        ({"host": "no.such.host.invalid"}, "is not an address"),
        ({"token": "short"}, "at least 12"),
        ({"allow_upload": True}, "not an index of photos; --allow-upload needs one"),
        ({"model": "lite"}, "not an index of photos; --model needs one"),
        ({"allow_upload": True, "read_only": True}, "cannot be combined"),
    ],
)
def test_invalid_arguments_of_the_command_are_errors(tmp_path, arguments, message):
    logt.Index(16).save(tmp_path / "i")
    with pytest.raises((logt.InvalidInputError, OSError), match=message):
        serve(**{"index": tmp_path / "i", "port": 0, **arguments})


def test_a_port_in_use_is_an_error(tmp_path):
    logt.Index(16).save(tmp_path / "i")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(logt.InvalidInputError, match="another --port"),
    ):
        serve(tmp_path / "i", port=taken.getsockname()[1])


def test_without_its_packages_the_command_names_the_extra(tmp_path, monkeypatch):
    logt.Index(16).save(tmp_path / "i")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(logt.MissingExtraError, match=r"pip install \"logt-search\[serve\]\""):
        serve(tmp_path / "i", port=0)
