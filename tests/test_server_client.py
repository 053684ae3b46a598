"""The client and the command, each against a service that really listens."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from synthetic_photos import MadePhotos, make_photos, running, scene
from test_project import ROOT, blocks
from test_server import jpeg

import logt
from logt.cli.serve import serve
from logt.server.app import create
from logt.server.client import BusyError, Client, Hit, NotFoundError, ServiceError, UnauthorizedError, _error
from logt.server.collection import Vectors
from logt.server.photo_collection import Album
from logt.server.settings import Limits, Settings

TOKEN = "a token of some length"


@pytest.fixture(scope="module")
def service(tmp_path_factory, vectors):
    """The address of a service over 100 vectors, with a token."""
    folder = tmp_path_factory.mktemp("client") / "i"
    index = logt.Index(16)
    index.add(vectors(100, 16))
    index.save(folder)
    with running(create(Vectors(folder), Settings(token=TOKEN, limits=Limits(k=50)))) as url:
        yield url


@pytest.fixture
def client(service):
    return Client(service, token=TOKEN)


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
    assert client.remove([100, 101, 555]) == 2
    assert client.info()["vectors"] == 100
    assert client.health() == {"status": "ok", "trouble": None}


def test_the_examples_of_the_document_run(tmp_path, client, service, monkeypatch):
    """The first over photos, the second over vectors."""
    photos, over_vectors = blocks(ROOT / "docs" / "how-to" / "serve.md", "python")
    make_photos(tmp_path / "photos", tmp_path / "index", 4, 2)
    (tmp_path / "query.jpg").write_bytes(jpeg(scene(2, 99)))
    monkeypatch.chdir(tmp_path)
    with running(create(Album(MadePhotos(tmp_path / "photos", tmp_path / "index")))) as url:
        names: dict[str, object] = {}
        exec(photos.replace("http://127.0.0.1:8000", url), names)
    assert names["jpeg"].startswith(b"\xff\xd8")
    names["client"] = client
    exec(over_vectors, names)
    assert [hits[0].id for hits in names["results"]] == names["ids"]


def test_errors_of_the_service_are_typed(client, service, monkeypatch):
    with pytest.raises(logt.InvalidInputError, match="dimension 16"):
        client.search(np.ones(3))
    with pytest.raises(logt.InvalidInputError, match="50"):
        client.search(np.ones(16), k=51)
    with pytest.raises(NotFoundError, match="999") as caught:
        client.search_id(999)
    assert (caught.value.status, caught.value.code) == (404, "not_found")
    with pytest.raises(UnauthorizedError, match="token"):
        Client(service).info()
    monkeypatch.setenv("LOGT_TOKEN", TOKEN)
    assert Client(service).info()["dim"] == 16
    with pytest.raises(ServiceError, match="without pictures"):
        client.search_image(b"x")
    with pytest.raises(ServiceError, match="is logt serve running") as caught:
        Client("http://127.0.0.1:1", timeout=2).info()
    assert caught.value.status == 0
    with pytest.raises(logt.InvalidInputError, match="url must be"):
        Client("127.0.0.1:8000")
    assert isinstance(_error(503, b'{"error": {"code": "busy", "message": "m"}}'), BusyError)
    assert isinstance(_error(409, b'{"error": {"code": "locked", "message": "m"}}'), logt.LockedError)
    assert isinstance(_error(403, b'{"error": {"code": "read_only", "message": "m"}}'), logt.ReadOnlyError)
    assert "not an answer of logt" in str(_error(502, b"<html>"))


def test_the_client_searches_by_image(tmp_path):
    ids = make_photos(tmp_path / "photos", tmp_path / "index", 4, 2)
    (tmp_path / "query.jpg").write_bytes(jpeg(scene(2, 99)))
    with running(create(Album(MadePhotos(tmp_path / "photos", tmp_path / "index")))) as url:
        client = Client(url)
        for photo in (
            tmp_path / "query.jpg",
            str(tmp_path / "query.jpg"),
            jpeg(scene(2, 99)),
            io.BytesIO(jpeg(scene(2, 99))),
        ):
            assert {hit.id for hit in client.search_image(photo, k=2)} == set(ids[4:6])
        assert {hit.id for hit in client.search_image(tmp_path / "query.jpg", 2, box=(0, 0, 1, 1))} == set(ids[4:6])
        assert client.picture(ids[0], "thumb").startswith(b"\xff\xd8")
        with pytest.raises(ServiceError, match="--allow-upload"):
            client.add_picture(tmp_path / "query.jpg")
        with pytest.raises(ServiceError, match="follows its folder"):
            client.remove(ids[:1])


@contextmanager
def started(*words, **env):
    """`logt serve` in a process of its own: (its address, what it said); it is stopped as by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "logt", "serve", *map(str, words), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200", **env},
    )
    try:
        said = ""
        while "Ctrl-C stops" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield re.search(r"http://\S+", said)[0], said
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=20)[1]
        assert (process.returncode, rest) == (0, "stopped\n")
    finally:
        process.kill()
        process.communicate()


def test_the_command_serves_until_it_is_stopped_and_warns_of_an_open_door(tmp_path, vectors):
    index = logt.Index(16)
    index.add(vectors(50, 16))
    index.save(tmp_path / "vectors [red]")
    with started(tmp_path / "vectors [red]", "--host", "0.0.0.0") as (url, said):
        assert "50 vectors of vectors [red]" in said
        assert "warning" in said
        assert "LOGT_TOKEN" in said
        assert Client(url).info()["vectors"] == 50


def test_the_command_takes_its_token_from_the_environment(tmp_path):
    logt.Index(16).save(tmp_path / "i")
    with started(tmp_path / "i", LOGT_TOKEN=TOKEN) as (url, said):
        assert "warning" not in said
        assert url.startswith("http://127.0.0.1:")
        with pytest.raises(UnauthorizedError):
            Client(url).info()
        assert Client(url, token=TOKEN).info()["vectors"] == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"index": Path("none")}, "none holds no index"),
        ({"host": "no.such.host.invalid"}, "is no address"),
        ({"token": "short"}, "at least 12"),
        ({"allow_upload": True}, "no index of photos"),
        ({"allow_upload": True, "read_only": True}, "exclude each other"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(tmp_path, given, message):
    logt.Index(16).save(tmp_path / "i")
    with pytest.raises((logt.InvalidInputError, OSError), match=message):
        serve(**{"index": tmp_path / "i", "port": 0, **given})


def test_a_taken_port_is_refused_by_name(tmp_path):
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
