"""Uploads to an indexed folder: what they read and write does not depend on the number of photos."""

import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from drawn_photos import counts
from server_testing import API, error_message, open_client, raise_disk_full, wait_until
from synthetic_photos import draw_scene, encode_jpeg

from logt.descriptors import Model
from logt.descriptors.image_io import ImageDetails
from logt.index import Index
from logt.photos import Photos, photo_vectors, update
from logt.photos.catalog import Catalog, file_stamp
from logt.photos.photo_writer import PhotoWriter
from logt.server.photo_collection import PhotoCollection, open_collection
from logt.storage.store import Store


class RandomDescriptors:
    """Stands in for the model when a folder is indexed: its files need not be photos."""

    block_size = 4096

    def __call__(self, manifest, index_path, paths):
        X = np.random.default_rng(0).standard_normal((len(paths), 16)).astype(np.float32)
        return [(x, ImageDetails(64, 48, "")) for x in X]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, small):
    """A folder of 20 photos and its index; `serve` copies them."""
    return index_photos(tmp_path_factory.mktemp("whole"), 20, small)


def index_photos(folder, count, model):
    for number in range(count):
        (folder / f"{number}.jpg").write_text(str(number))
    update(folder, model=model, extract=RandomDescriptors())
    return folder


@pytest.fixture
def serve(tmp_path, whole, small):
    """serve(count) -> a client of a server with so many photos, which allows uploads."""
    with ExitStack() as stack:

        def start(count=20):
            folder = tmp_path / f"{count} photos"
            if count == 20:
                shutil.copytree(whole, folder)
            else:
                folder.mkdir()
                index_photos(folder, count, small)
            client = stack.enter_context(open_client(open_collection(folder, allow_uploads=True), refresh_seconds=60))
            client.folder = folder
            return client

        yield start


def upload(client, number=0):
    return client.post(f"{API}/photos", files={"photo": encode_jpeg(draw_scene(number))})


def remove(client, photo_id):
    return client.post(f"{API}/vectors/remove", json={"ids": [photo_id]})


def written_bytes():
    return int(Path("/proc/self/io").read_text().split("wchar:")[1].split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_upload_and_its_removal_neither_open_the_index_nor_scan_the_folder_nor_write_more(serve, monkeypatch):
    written, calls = [], []
    read_store, scandir = Index._from_store.__func__, os.scandir

    def opened(*arguments):
        calls.append("an index was opened")
        return read_store(*arguments)

    def scanned(*arguments):
        if ".logt" not in str(arguments):  # the index itself has few files
            calls.append(f"{arguments} was scanned")
        return scandir(*arguments)

    for count in (100, 1000):
        client = serve(count)
        upload(client)  # starts the decoder, and makes the folder
        with monkeypatch.context() as patch:
            patch.setattr(Index, "_from_store", classmethod(opened))
            patch.setattr(os, "scandir", scanned)
            patch.setattr(Catalog, "stamps", lambda *_: calls.append("all photos were listed"))
            before = written_bytes()
            photo_id = upload(client, 1).json()["id"]
            assert remove(client, photo_id).json() == {"removed": 1, "vectors": count + 1}
            written.append(written_bytes() - before)
        assert calls == []
    assert written[1] < 1.5 * written[0]


def test_an_index_with_uploads_can_be_compacted(serve):
    client = serve()
    photo_id = upload(client).json()["id"]
    remove(client, photo_id)
    assert client.post(f"{API}/compact").json()["vectors"] == 20
    assert client.get(f"{API}/info").json()["report"]["removed"] == 0


def test_uploads_that_wait_are_indexed_together(serve, monkeypatch):
    sizes, go, add = [], threading.Event(), PhotoWriter.add

    def wait_and_add(writer, photos, model):
        sizes.append(len(photos))
        go.wait(30)
        return add(writer, photos, model)

    monkeypatch.setattr(PhotoWriter, "add", wait_and_add)
    client = serve()
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(upload, client, 0)
        wait_until(lambda: sizes)
        others = [pool.submit(upload, client, number) for number in (1, 2, 3, 3)]
        wait_until(lambda: len(client.app_service.changes._waiting) == 4)
        go.set()
        ids = [request.result().json()["id"] for request in (first, *others)]
    assert sizes == [1, 3]
    assert len(set(ids)) == 4
    assert len(Photos.open(client.folder).index) == 24


def test_an_upload_leaves_what_indexing_the_folder_would(serve, small):
    client = serve()
    photo_id = upload(client).json()["id"]
    photos = Photos.open(client.folder)
    vector = photos.index.reconstruct([photo_id])
    details = next(photo for photo in photos.details() if photo.name == photo_id)
    assert counts(update(client.folder)) == (0, 0, 0, 21, 0)
    (client.folder / photo_id).touch()
    assert counts(update(client.folder, model=Model.load(small))) == (0, 1, 0, 20, 0)
    photos = Photos.open(client.folder)
    np.testing.assert_allclose(photos.index.reconstruct([photo_id]), vector, atol=1e-3)
    again = next(photo for photo in photos.details() if photo.name == photo_id)
    assert again._replace(mtime_ns=0) == details._replace(mtime_ns=0)


def test_an_upload_that_cannot_be_saved_leaves_neither_a_file_nor_a_row_and_can_be_repeated(serve, monkeypatch):
    client = serve()
    with monkeypatch.context() as patch:
        patch.setattr("logt.storage.changes.append_to_file", raise_disk_full)
        error_message(upload(client), 500, "internal")
    assert not [path for path in client.folder.glob("uploads/*") if path.is_file()]
    with closing(Catalog(client.folder / ".logt")) as catalog:
        assert catalog.count() == 20
    assert upload(client).json()["vectors"] == 21
    assert len(Photos.open(client.folder).index) == 21


def test_an_upload_that_was_killed_before_its_vector_was_saved_is_indexed_by_the_next_run(serve):
    client = serve()
    path = client.folder / "uploads" / "a.jpg"
    path.parent.mkdir()
    path.write_bytes(encode_jpeg(draw_scene(0)))
    checksum = client.app_service.collection.photos._state.whitening.checksum
    with closing(Catalog(client.folder / ".logt")) as catalog:
        row = ("uploads/a.jpg", file_stamp(path), np.ones(16, np.float32), ImageDetails(1, 1, ""))
        catalog.record([row], checksum)
    assert counts(update(client.folder)) == (1, 0, 0, 20, 0)
    assert "uploads/a.jpg" in Photos.open(client.folder).index


def test_photos_that_were_indexed_meanwhile_stay(serve):
    client = serve()
    upload(client, 0)
    (client.folder / "new.jpg").write_bytes(encode_jpeg(draw_scene(7)))
    (client.folder / "3.jpg").unlink()
    update(client.folder)
    assert upload(client, 1).json()["vectors"] == 22
    assert "new.jpg" in Photos.open(client.folder).index
    assert "3.jpg" not in Photos.open(client.folder).index


def test_the_whitening_is_learned_again_after_the_response(serve):
    client = serve(8)
    photos = client.app_service.collection.photos
    for number in range(2):
        assert upload(client, number).json()["vectors"] == 9 + number
    wait_until(lambda: photos._state.whitening.count == 10)
    assert upload(client, 5).json()["vectors"] == 11


def test_a_log_that_is_almost_full_is_written_as_files_after_the_response(serve, monkeypatch):
    monkeypatch.setattr("logt.photos.photo_writer._MUCH_LOGGED", 3)
    calls, real, write = [], PhotoCollection.tidy, Store.write
    monkeypatch.setattr(PhotoCollection, "tidy", lambda *given: (calls.append("tidy"), real(*given)))
    monkeypatch.setattr(Store, "write", lambda *given: (calls.append("write"), write(*given)))
    client = serve()
    for number in range(4):
        assert upload(client, number).json()["vectors"] == 21 + number
    wait_until(lambda: calls.count("tidy") == 4)
    client.app_service.changes.close()
    assert calls == ["tidy", "tidy", "tidy", "write", "tidy"]
    assert len(Photos.open(client.folder).index) == 24


def test_an_upload_during_an_interrupted_relearning_completes_it(tmp_path, small, network):
    other = network("other", channels=24, about='{"side": 64}')
    for number in range(5):
        draw_scene(number).save(tmp_path / f"{number}.png")
    update(tmp_path, model=small)

    def stop(*_):
        raise KeyboardInterrupt

    with open_client(open_collection(tmp_path, allow_uploads=True)) as client:
        with pytest.raises(KeyboardInterrupt):
            update(tmp_path, model=other, relearn=True, progress=stop, workers=1)
        assert upload(client, 9).json()["vectors"] == 6
        assert client.get(f"{API}/info").json()["dim"] == 24


def test_after_a_final_whitening_no_descriptor_is_kept(serve, monkeypatch):
    monkeypatch.setattr(photo_vectors, "FINAL_COUNT", 10)
    client = serve(30)
    upload(client)
    with closing(Catalog(client.folder / ".logt")) as catalog:
        assert catalog._connection.execute("SELECT count(descriptor) FROM photos").fetchone() == (0,)
