"""The service over real photos indexes: described by the model, followed by the page, added to by callers."""

from __future__ import annotations

import shutil

import pytest
from test_server import API, fault, ids_of, serving, until

from logt.errors import LockedError
from logt.photos import update
from logt.photos.synthetic_scenes import scene, view, write_scenes
from logt.server.photo_collection import open_collection
from logt.storage.lock import Lock


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(folder, names that show the scene of each query): an indexed collection."""
    folder = tmp_path_factory.mktemp("scenes")
    relevant = write_scenes(folder, 3, 3, 3)
    update(folder / "collection")
    return folder, relevant


@pytest.fixture
def folder(made, tmp_path):
    """A copy of the collection with its index, to be changed."""
    shutil.copytree(made[0] / "collection", tmp_path / "album")
    return tmp_path / "album"


def uploaded(client, image, tmp_path, **save):
    image.save(tmp_path / "sent.jpg", **save)
    return client.post(f"{API}/pictures", files={"photo": (tmp_path / "sent.jpg").read_bytes()})


@pytest.mark.parametrize("where", ["collection", "collection/.logt"])
def test_a_folder_of_photos_is_searched_by_photo(made, where):
    folder, relevant = made
    with serving(open_collection(folder / where)) as client:
        assert client.get(f"{API}/info").json()["pictures"] is True
        for query, names in relevant.items():
            files = {"photo": (folder / "queries" / query).read_bytes()}
            assert set(ids_of(client.post(f"{API}/search/image", files=files, data={"k": 3}))[0]) == set(names)
        name = names[0]
        whole = client.post(f"{API}/search/region", json={"id": name, "box": [0, 0, 1, 1], "k": 2})
        assert set(ids_of(whole)[0]) == set(names[1:])
        assert client.get(f"{API}/picture", params={"id": name}).headers["content-type"] == "image/jpeg"
        assert name in client.get("/", params={"id": names[1]}).text


def test_photos_that_are_indexed_meanwhile_appear(folder, tmp_path):
    with serving(open_collection(folder), refresh_seconds=0.05) as client:
        assert client.get(f"{API}/info").json()["vectors"] == 12
        view(scene(1), 7).save(folder / "new.jpg")
        update(folder)
        until(lambda: client.get(f"{API}/info").json()["vectors"] == 13)
        assert ids_of(client.post(f"{API}/search/ids", json={"ids": ["new.jpg"], "k": 3}))[0][0].startswith(
            "scene-01"
        )


def test_an_index_of_photos_follows_its_folder(folder):
    with serving(open_collection(folder)) as client:
        dim = client.get(f"{API}/info").json()["dim"]
        rows = {"vectors": [[1.0] * dim], "ids": ["x"]}
        assert "logt images index" in fault(client.post(f"{API}/vectors", json=rows), 409, "follows_folder")
        fault(client.post(f"{API}/vectors/remove", json={"ids": ["other-000.jpg"]}), 409, "follows_folder")
        fault(client.post(f"{API}/pictures", files={"photo": b"x"}), 403, "no_uploads")
        assert (folder / "other-000.jpg").exists()


def test_uploaded_photos_are_kept_apart_and_can_be_removed(folder, tmp_path):
    with serving(open_collection(folder, uploads=True)) as client:
        answer = uploaded(client, view(scene(2), 8), tmp_path)
        assert answer.json()["vectors"] == 13
        id = answer.json()["id"]  # noqa: A001
        assert id.startswith("uploads/")
        assert [path.name for path in (folder / "uploads").iterdir()] == [id.removeprefix("uploads/")]
        assert (folder / id).read_bytes() == (tmp_path / "sent.jpg").read_bytes()
        assert ids_of(client.post(f"{API}/search/ids", json={"ids": [id], "k": 1}))[0][0].startswith("scene-02")
        assert uploaded(client, view(scene(2), 8), tmp_path).json() == answer.json()
        fault(client.post(f"{API}/vectors/remove", json={"ids": [id, "other-000.jpg"]}), 409, "follows_folder")
        removed = client.post(f"{API}/vectors/remove", json={"ids": [id, "uploads/none.jpg"]})
        assert removed.json() == {"removed": 1, "vectors": 12}
        assert not (folder / id).exists()


def test_a_refused_upload_leaves_nothing(folder, tmp_path):
    with serving(open_collection(folder, uploads=True)) as client:
        fault(
            client.post(f"{API}/pictures", files={"photo": ("../../evil.jpg", b"no picture")}), 415, "not_a_picture"
        )
        with Lock(folder / ".logt"):
            fault(uploaded(client, view(scene(2), 8), tmp_path), 409, "locked")
        assert not list(folder.glob("uploads/*"))
        assert not list(tmp_path.glob("evil*"))
        (folder / "uploads").rmdir()
        (folder / "uploads").symlink_to(tmp_path)
        fault(uploaded(client, view(scene(2), 8), tmp_path), 409, "no_uploads")


def test_a_picture_that_became_a_link_out_of_the_folder_is_not_served(folder, tmp_path):
    view(scene(5), 5).save(tmp_path / "secret.jpg")
    (folder / "other-000.jpg").unlink()
    (folder / "other-000.jpg").symlink_to(tmp_path / "secret.jpg")
    with serving(open_collection(folder)) as client:
        fault(client.get(f"{API}/picture", params={"id": "other-000.jpg"}), 410, "gone")
        fault(client.post(f"{API}/search/region", json={"id": "other-000.jpg", "box": [0, 0, 1, 1]}), 410, "gone")


def test_another_writer_does_not_stop_searches(folder):
    with Lock(folder / ".logt"), serving(open_collection(folder), refresh_seconds=0.02) as client:
        with pytest.raises(LockedError):
            update(folder)
        assert len(ids_of(client.post(f"{API}/search/ids", json={"ids": ["other-000.jpg"], "k": 5}))[0]) == 5
