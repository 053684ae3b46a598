"""The server with indexed folders of photos: updates of the folder, uploads."""

import json
import os
import shutil
import sys
import zipfile
from dataclasses import replace
from io import BytesIO

import pytest
from server_testing import API, error_message, open_client, result_ids, wait_until
from synthetic_photos import encode_jpeg

import logt
from logt.errors import InvalidInputError
from logt.photos import Photos, update
from logt.photos.manifest import PhotoManifest
from logt.photos.synthetic_scenes import draw_scene, draw_view, write_synthetic_photos
from logt.server.photo_collection import open_collection
from logt.storage import files
from logt.storage.lock import Lock


@pytest.fixture(scope="module")
def indexed_scenes(tmp_path_factory, small):
    """(folder, {query: photos of the same scene}); the photos are in folder/collection, with their index."""
    folder = tmp_path_factory.mktemp("scenes")
    relevant = write_synthetic_photos(folder, 3, 3, 3)
    update(folder / "collection", model=small)
    return folder, relevant


@pytest.fixture
def folder(indexed_scenes, tmp_path):
    """A copy of the photos with their index, which the test may change."""
    shutil.copytree(indexed_scenes[0] / "collection", tmp_path / "album")
    return tmp_path / "album"


@pytest.fixture
def client(folder):
    """A client of a server that allows uploads to the folder."""
    with open_client(open_collection(folder, allow_uploads=True), refresh_seconds=0.05) as client:
        yield client


SENT = encode_jpeg(draw_view(draw_scene(2), 8))


def upload(client):
    return client.post(f"{API}/photos", files={"photo": SENT})


def remove(client, *ids):
    return client.post(f"{API}/vectors/remove", json={"ids": ids})


@pytest.mark.parametrize("path", ["collection", "collection/.logt"])
def test_a_folder_of_photos_is_searched_by_photo(indexed_scenes, path):
    folder, relevant = indexed_scenes
    photos = Photos.open(folder / path)
    with open_client(open_collection(folder / path)) as client:
        assert client.get(f"{API}/info").json()["photos"] is True
        names = relevant["scene-01.jpg"]
        for query in (folder / "queries").iterdir():
            files = {"photo": query.read_bytes()}
            response = client.post(f"{API}/search/photo", files=files, data={"k": 3})
            assert result_ids(response) == [[name for name, _ in photos.search(query, 3)]]
        response = client.post(f"{API}/search/region", json={"id": names[0], "box": [0, 0, 1, 1], "k": 2})
        assert result_ids(response) == [[name for name, _ in photos.search(photos.photo_path(names[0]), 3)][1:]]
        assert client.get(f"{API}/photo", params={"id": names[0]}).headers["content-type"] == "image/jpeg"
        assert names[0] in client.get("/", params={"id": names[1]}).text


def test_photos_that_are_indexed_meanwhile_appear(client, folder):
    assert client.get(f"{API}/info").json()["vectors"] == 12
    shutil.copy(folder / "scene-01-view-0.jpg", folder / "new.jpg")
    update(folder)
    wait_until(lambda: client.get(f"{API}/info").json()["vectors"] == 13)
    found = result_ids(client.post(f"{API}/search/ids", json={"ids": ["new.jpg"], "k": 3}))
    assert found[0][0] == "scene-01-view-0.jpg"


def test_an_index_of_photos_follows_its_folder(folder):
    with open_client(open_collection(folder)) as client:
        dim = client.get(f"{API}/info").json()["dim"]
        body = {"vectors": [[1.0] * dim], "ids": ["x"]}
        message = error_message(client.post(f"{API}/vectors", json=body), 409, "follows_folder")
        assert "logt images index" in message
        response = client.post(f"{API}/vectors/remove", json={"ids": ["other-000.jpg"]})
        error_message(response, 409, "follows_folder")
        error_message(client.post(f"{API}/compact"), 409, "follows_folder")
        error_message(client.post(f"{API}/photos", files={"photo": b"x"}), 403, "no_uploads")
        assert (folder / "other-000.jpg").exists()


def test_uploaded_photos_are_stored_separately_and_can_be_removed(client, folder):
    response = upload(client)
    assert response.json()["vectors"] == 13
    photo_id = response.json()["id"]
    assert photo_id.startswith("uploads/")
    assert [path.name for path in (folder / "uploads").iterdir()] == [photo_id.removeprefix("uploads/")]
    assert (folder / photo_id).read_bytes() == SENT
    assert len(result_ids(client.post(f"{API}/search/ids", json={"ids": [photo_id], "k": 1}))[0]) == 1
    assert upload(client).json() == response.json()
    error_message(remove(client, photo_id, "other-000.jpg"), 409, "follows_folder")
    with Lock(folder / ".logt"):
        error_message(remove(client, photo_id), 409, "locked")
    assert (folder / photo_id).exists()
    assert remove(client, photo_id, photo_id, "uploads/none.jpg").json() == {"removed": 1, "vectors": 12}
    assert not list((folder / "uploads").iterdir())


def test_a_refused_upload_leaves_no_file(client, folder, tmp_path):
    response = client.post(f"{API}/photos", files={"photo": ("../../evil.jpg", b"not an image")})
    error_message(response, 415, "not_a_photo")
    with Lock(folder / ".logt"):
        error_message(upload(client), 409, "locked")
    assert not list(folder.glob("uploads/*"))
    assert not list(tmp_path.glob("evil*"))
    (folder / "uploads").rmdir()
    shutil.rmtree(folder / ".logt" / "uploads")
    (tmp_path / "elsewhere").mkdir()
    for link in (folder / "uploads", folder / ".logt" / "uploads"):
        link.symlink_to(tmp_path / "elsewhere")
        error_message(upload(client), 409, "no_uploads")
        link.unlink()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_photo_that_became_a_link_out_of_the_folder_is_not_served(folder, tmp_path):
    (tmp_path / "secret.jpg").write_bytes(SENT)
    (folder / "other-000.jpg").unlink()
    (folder / "other-000.jpg").symlink_to(tmp_path / "secret.jpg")
    with open_client(open_collection(folder)) as client:
        error_message(client.get(f"{API}/photo", params={"id": "other-000.jpg"}), 410, "gone")
        body = {"id": "other-000.jpg", "box": [0, 0, 1, 1]}
        error_message(client.post(f"{API}/search/region", json=body), 410, "gone")


def name_folders(index_path, **folders):
    """Change the folders that the index of photos names, as the one who gives it away could."""
    replace(PhotoManifest.read(index_path), **folders).write(index_path)


def name_file(index_path, name):
    """Add a file to the vectors of an index of photos."""
    with logt.open(next(index_path.glob("vectors-*")), "a") as index:
        index.add(index.reconstruct(["other-000.jpg"]), [name])
        index.save()


def export(client, *names):
    """The names and contents of the files in the zip file."""
    response = client.post(f"{API}/photos/zip", data={"ids": json.dumps(names)})
    archive = zipfile.ZipFile(BytesIO(response.content))
    return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("elsewhere", ["/", ".", "../.."])
def test_an_index_inside_a_folder_must_be_the_index_of_this_folder(folder, elsewhere):
    photos = Photos.open(folder)
    name_folders(folder / ".logt", folder=elsewhere)
    for open_it in (Photos.open, open_collection):
        with pytest.raises(InvalidInputError, match=r"is the index of .*, not of .*album; pass the path"):
            open_it(folder)
    with pytest.raises(InvalidInputError, match="is the index of"):
        photos.refresh()
    assert photos.folder == folder
    assert Photos.open(folder / ".logt").folder != folder  # the path of the index itself


def test_files_that_are_not_named_as_photos_are_never_sent_as_they_are(folder, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "id_rsa").write_text("PRIVATE KEY")
    (folder / "notes.txt").write_text("notes")
    photo = (folder / "other-000.jpg").read_bytes()
    (folder / "no suffix").write_bytes(photo)
    (tmp_path / "home" / "mine.JPG").write_bytes(photo)
    (folder / "link.jpg").symlink_to(folder / "notes.txt")
    outside = [f"{tmp_path}/home/id_rsa", f"{tmp_path}/home/mine.JPG"]
    for name in ("notes.txt", "link.jpg", "no suffix", *outside):
        name_file(folder / ".logt", name)
    name_folders(folder / ".logt", more_folders=[f"{tmp_path}/home"])
    with open_client(open_collection(folder), originals=True) as client:
        files = export(client, "other-000.jpg", "notes.txt", "link.jpg", "no suffix", *outside)
        names = [name.lstrip("/") for name in outside]
        assert sorted(files) == sorted(["other-000.jpg", "no suffix.jpg", names[1], "missing.txt"])
        assert files["missing.txt"].decode().split("\n") == ["notes.txt", "link.jpg", names[0], ""]
        assert files["other-000.jpg"] == files[names[1]] == photo
        assert files["no suffix.jpg"].startswith(b"\xff\xd8")


def test_an_upload_that_the_disk_has_no_room_for_leaves_no_file_and_a_retry_succeeds(client, folder, monkeypatch):
    write_all = files.write_all

    def fill_the_disk(file, data):
        write_all(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_all", fill_the_disk)
    error_message(upload(client), 500, "internal")
    assert not [path for path in folder.glob("uploads/*") if path.is_file()]
    monkeypatch.undo()
    photo_id = upload(client).json()["id"]
    assert (folder / photo_id).read_bytes() == SENT
    assert client.get(f"{API}/info").json()["vectors"] == 13


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_uploads_and_their_folders_are_flushed_to_disk(client, folder, monkeypatch):
    flushed = []
    fsync = os.fsync
    monkeypatch.setattr("os.fsync", lambda file: (flushed.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    name = upload(client).json()["id"].removeprefix("uploads/")
    assert any(name in path and path.startswith(str(folder / "uploads")) for path in flushed)
    assert {str(folder / "uploads"), str(folder)} <= set(flushed)


def test_an_uploaded_file_that_was_not_indexed_is_indexed_by_a_retry(client, folder, tmp_path):
    photo_id = upload(client).json()["id"]
    (folder / photo_id).rename(tmp_path / "kept")
    update(folder)
    (tmp_path / "kept").rename(folder / photo_id)
    wait_until(lambda: client.get(f"{API}/info").json()["vectors"] == 12)
    assert upload(client).json() == {"id": photo_id, "vectors": 13}


def test_photos_of_the_owner_in_the_upload_folder_are_never_deleted(client, folder):
    (folder / "uploads").mkdir()
    shutil.copy(folder / "other-000.jpg", folder / "uploads" / "mine.jpg")
    photo_id = upload(client).json()["id"]
    update(folder)
    wait_until(lambda: client.get(f"{API}/info").json()["vectors"] == 14)
    for ids in (["uploads/mine.jpg"], [photo_id, "uploads/mine.jpg"]):
        error_message(remove(client, *ids), 409, "follows_folder")
    shutil.copy(folder / "other-000.jpg", folder / photo_id)  # the owner put another photo in its place
    error_message(remove(client, photo_id), 409, "follows_folder")
    assert (folder / "uploads" / "mine.jpg").exists()
    assert (folder / photo_id).exists()


def test_a_removal_that_was_killed_is_undone_or_finished(client, folder):
    file = folder / upload(client).json()["id"]
    aside = file.with_name(f".{file.name}.removed")
    file.rename(aside)
    open_collection(folder, allow_uploads=True)
    assert file.exists()
    file.rename(aside)
    (folder / ".logt" / "uploads" / file.name).unlink()
    open_collection(folder, allow_uploads=True)
    assert not list((folder / "uploads").iterdir())
