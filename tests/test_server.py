"""The service as a program uses it: search, add, remove, pictures, limits, the client."""

from __future__ import annotations

import io
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from synthetic_photos import MadePhotos, make_photos, scene

import logt
from logt.server.app import create
from logt.server.collection import VectorCollection
from logt.server.photo_collection import PhotoCollection, open_collection
from logt.server.settings import Limits, Settings

API = "/api/v1"


def jpeg(image, **given):
    out = io.BytesIO()
    image.save(out, "JPEG", **given)
    return out.getvalue()


@contextmanager
def serving(collection, **given):
    app = create(collection, Settings(**given))
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """(folder of photos, index of them, ids)."""
    root = tmp_path_factory.mktemp("album")
    return root / "photos", root / "vectors", make_photos(root / "photos", root / "vectors")


@pytest.fixture
def photos(album):
    folder, index, _ = album
    with serving(PhotoCollection(MadePhotos(folder, index))) as client:
        yield client


@pytest.fixture
def X(vectors):
    return vectors(200, 32)


@pytest.fixture
def plain(tmp_path, X):
    """A service over an index of vectors with numbers for ids."""
    index = logt.Index(32)
    index.add(X)
    index.save(tmp_path / "index")
    with serving(VectorCollection(tmp_path / "index")) as client:
        client.folder = tmp_path / "index"
        yield client


def fault(answer, status, code):
    assert answer.status_code == status, answer.text
    told = answer.json()["error"]
    assert told["code"] == code
    return told["message"]


def ids_of(answer):
    assert answer.status_code == 200, answer.text
    return [[hit["id"] for hit in hits] for hits in answer.json()["results"]]


def test_a_search_by_vector_answers_as_the_index_does(plain, X):
    index = logt.open(plain.folder)
    expected = index.search(X[:5], 7)
    answer = plain.post(f"{API}/search", json={"vectors": X[:5].tolist(), "k": 7})
    assert ids_of(answer) == expected.ids.tolist()
    assert [[hit["score"] for hit in hits] for hits in answer.json()["results"]] == expected.scores.tolist()


def test_a_search_by_id_leaves_out_the_vector_itself(plain, photos, album):
    found = ids_of(plain.post(f"{API}/search/ids", json={"ids": [3, 5], "k": 199}))
    assert [len(row) for row in found] == [199, 199]
    assert 3 not in found[0]
    assert 5 not in found[1]
    ids = album[2]
    assert set(ids_of(photos.post(f"{API}/search/ids", json={"ids": [ids[4]], "k": 2}))[0]) == {ids[3], ids[5]}


def test_fewer_vectors_than_k_are_all_there_is(plain, X):
    assert len(ids_of(plain.post(f"{API}/search", json={"vectors": X[:1].tolist(), "k": 1000}))[0]) == 200


def test_a_search_by_image_finds_the_other_photos_of_the_scene(photos, album):
    for number in range(8):
        files = {"photo": ("query.jpg", jpeg(scene(number, seed=99)))}
        found = ids_of(photos.post(f"{API}/search/image", files=files, data={"k": 3}))
        assert set(found[0]) == set(album[2][3 * number : 3 * number + 3])


def test_a_region_of_a_picture_finds_what_it_shows(photos, album):
    both = Image.new("RGB", (480, 180))
    both.paste(scene(1, 99), (0, 0))
    both.paste(scene(2, 99), (240, 0))
    for box, number in (("0,0,0.5,1", 1), ("0.5,0,1,1", 2)):
        answer = photos.post(f"{API}/search/image", files={"photo": jpeg(both)}, data={"k": 3, "box": box})
        assert set(ids_of(answer)[0]) == set(album[2][3 * number : 3 * number + 3])


def test_a_region_of_a_picture_of_the_index(photos, album):
    ids = album[2]
    asked = {"id": ids[0], "box": [0, 0, 1, 1], "k": 2}
    assert set(ids_of(photos.post(f"{API}/search/region", json=asked))[0]) == set(ids[1:3])
    assert fault(photos.post(f"{API}/search/region", json=asked | {"id": "none.jpg"}), 404, "not_found")


@pytest.mark.parametrize(
    "box", ["0,0,1", "a,b,c,d", "0.5,0,0.5,1", "0,0,2,1", "nan,0,1,1", "-0.1,0,1,1", "0,0,1,1,1"]
)
def test_a_bad_box_is_refused_by_name(photos, box):
    answer = photos.post(f"{API}/search/image", files={"photo": jpeg(scene(0))}, data={"box": box})
    assert "left < right" in fault(answer, 422, "bad_box")


def test_pictures_are_upright_small_and_without_metadata(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter
    exif[0x010E] = "where I live"
    make_photos(tmp_path / "photos", tmp_path / "index", 1, 1, "a.jpg")
    scene(0, size=(1200, 600)).save(tmp_path / "photos" / "a.jpg", exif=exif)
    with serving(PhotoCollection(MadePhotos(tmp_path / "photos", tmp_path / "index"))) as client:
        thumb = client.get(f"{API}/picture", params={"id": "a.jpg"})
        assert thumb.headers["content-type"] == "image/jpeg"
        image = Image.open(io.BytesIO(thumb.content))
        assert image.size == (240, 480)
        assert not image.getexif()
        assert b"where I live" not in thumb.content
        large = client.get(f"{API}/picture", params={"id": "a.jpg", "size": "large"})
        assert Image.open(io.BytesIO(large.content)).size == (600, 1200)
        again = client.get(f"{API}/picture", params={"id": "a.jpg"}, headers={"If-None-Match": thumb.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        scene(1, size=(100, 100)).save(tmp_path / "photos" / "a.jpg")
        changed = client.get(
            f"{API}/picture", params={"id": "a.jpg"}, headers={"If-None-Match": thumb.headers["etag"]}
        )
        assert Image.open(io.BytesIO(changed.content)).size == (100, 100)
        (tmp_path / "photos" / "a.jpg").unlink()
        fault(client.get(f"{API}/picture", params={"id": "a.jpg"}), 410, "gone")


def test_the_thumbnails_kept_stay_within_their_bytes(album):
    folder, index, ids = album
    limits = Limits(cache_bytes=20_000)
    with serving(PhotoCollection(MadePhotos(folder, index)), limits=limits) as client:
        sizes = [len(client.get(f"{API}/picture", params={"id": id}).content) for id in ids]  # noqa: A001
        assert sum(sizes) > 20_000
        kept = next(line for line in client.get(f"{API}/metrics").text.splitlines() if line.startswith("logt_thumb"))
        assert 0 < float(kept.split()[1]) <= 20_000


def test_added_vectors_are_found_and_saved(plain, vectors):
    new = vectors(3, 32, seed=9)
    answer = plain.post(f"{API}/vectors", json={"vectors": new.tolist()})
    assert answer.json() == {"ids": [200, 201, 202], "vectors": 203}
    assert ids_of(plain.post(f"{API}/search", json={"vectors": new.tolist(), "k": 1})) == [[200], [201], [202]]
    assert len(logt.open(plain.folder)) == 203
    assert "already" in fault(
        plain.post(f"{API}/vectors", json={"vectors": new.tolist(), "ids": [1, 2, 3]}), 422, "invalid_input"
    )
    answer = plain.post(f"{API}/vectors", json={"vectors": new.tolist(), "ids": [1, 2, 3], "replace": True})
    assert answer.json() == {"ids": [1, 2, 3], "vectors": 203}


def test_removed_vectors_are_not_found(plain, X):
    assert plain.post(f"{API}/vectors/remove", json={"ids": [4, 5, 999]}).json() == {"removed": 2, "vectors": 198}
    found = ids_of(plain.post(f"{API}/search", json={"vectors": X[4:6].tolist(), "k": 198}))
    assert not {4, 5} & set(found[0] + found[1])
    fault(plain.post(f"{API}/search/ids", json={"ids": [4]}), 404, "not_found")
    assert len(logt.open(plain.folder)) == 198


def test_a_refused_change_changes_nothing(plain, X):
    rows = X[:3].tolist()
    rows[1][0] = 1e39
    assert "row 1" in fault(plain.post(f"{API}/vectors", json={"vectors": rows}), 422, "invalid_input")
    fault(plain.post(f"{API}/vectors", json={"vectors": [[1.0] * 31]}), 422, "invalid_input")
    fault(plain.post(f"{API}/vectors", json={"vectors": [[1.0] * 32], "ids": [-1]}), 422, "invalid_input")
    assert plain.get(f"{API}/info").json()["vectors"] == 200


def test_a_failed_save_serves_the_old_state(plain, X, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("logt.storage.format.write", full)
    assert "log" in fault(plain.post(f"{API}/vectors", json={"vectors": X[:2].tolist()}), 500, "internal")
    monkeypatch.undo()
    assert plain.get(f"{API}/info").json()["vectors"] == 200
    assert plain.post(f"{API}/vectors", json={"vectors": X[:2].tolist()}).json()["vectors"] == 202


def test_many_small_adds_are_joined(plain, vectors, monkeypatch):
    monkeypatch.setattr("logt.server.collection.JOIN_AFTER", 4)
    for seed in range(9):
        answer = plain.post(f"{API}/vectors", json={"vectors": vectors(1, 32, seed=1000 + seed).tolist()})
    assert answer.json()["vectors"] == 209
    assert plain.get(f"{API}/info").json()["report"]["segments"] == 2


def test_another_writer_is_waited_for_by_name(plain, X):
    with logt.open(plain.folder, "a"):
        assert "another" in fault(plain.post(f"{API}/vectors", json={"vectors": X[:1].tolist()}), 409, "locked")
    assert plain.post(f"{API}/vectors", json={"vectors": X[:1].tolist()}).status_code == 200


def until(true, seconds=20.0):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_what_another_process_saves_is_picked_up(tmp_path, X):
    logt.Index(32).save(tmp_path / "i")
    with serving(VectorCollection(tmp_path / "i"), refresh_seconds=0.02) as client:
        assert client.get(f"{API}/info").json()["vectors"] == 0
        with logt.open(tmp_path / "i", "a") as writer:
            writer.add(X)
            writer.save()
        until(lambda: client.get(f"{API}/info").json()["vectors"] == 200)


def test_the_folder_is_free_for_others_once_changes_stop(tmp_path, X, monkeypatch):
    monkeypatch.setattr("logt.server.collection.QUIET", 0.05)
    logt.Index(32).save(tmp_path / "i")
    with serving(VectorCollection(tmp_path / "i"), refresh_seconds=0.02) as client:
        assert client.post(f"{API}/vectors", json={"vectors": X.tolist()}).status_code == 200

        def free():
            try:
                logt.open(tmp_path / "i", "a").close()
            except logt.LockedError:
                return False
            return True

        until(free)


def test_a_state_that_cannot_be_read_is_told_and_the_old_one_served(tmp_path, X):
    index = logt.Index(32)
    index.add(X)
    index.save(tmp_path / "i")
    manifest = tmp_path / "i" / "manifest.json"
    whole = manifest.read_bytes()
    with serving(VectorCollection(tmp_path / "i"), refresh_seconds=0.02) as client:
        manifest.write_bytes(b"{}")
        until(lambda: client.get(f"{API}/health").json()["status"] == "stale")
        assert len(ids_of(client.post(f"{API}/search", json={"vectors": X[:1].tolist(), "k": 5}))[0]) == 5
        manifest.write_bytes(whole)
        until(lambda: client.get(f"{API}/health").json() == {"status": "ok", "trouble": None})


def test_searches_go_on_while_vectors_are_added(plain, X, vectors):
    done, wrong, searches = threading.Event(), [], []

    def search():
        while not done.is_set():
            answer = plain.post(f"{API}/search", json={"vectors": X[:3].tolist(), "k": 1})
            if answer.status_code != 200 or ids_of(answer) != [[0], [1], [2]]:
                wrong.append(answer.text)
            searches.append(1)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for seed in range(15):
            added = plain.post(f"{API}/vectors", json={"vectors": vectors(20, 32, seed=50 + seed).tolist()})
            assert added.json()["vectors"] == 200 + 20 * (seed + 1)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(searches) > 10


def test_an_index_without_pictures_says_so(plain):
    fault(plain.post(f"{API}/search/image", files={"photo": jpeg(scene(0))}), 409, "no_pictures")
    fault(plain.get(f"{API}/picture", params={"id": "a.jpg"}), 409, "no_pictures")
    assert plain.get(f"{API}/info").json()["pictures"] is False


def test_metrics_count_requests_and_their_times(plain, X):
    for _ in range(3):
        plain.post(f"{API}/search", json={"vectors": X[:1].tolist()})
    plain.get("/nowhere%0A%22")
    lines = plain.get(f"{API}/metrics").text.splitlines()
    assert 'logt_requests_total{method="POST",route="/api/v1/search",status="200"} 3.0' in lines
    assert 'logt_request_seconds_count{route="/api/v1/search"} 3.0' in lines
    assert 'logt_request_seconds_bucket{le="+Inf",route="/api/v1/search"} 3.0' in lines
    assert "logt_vectors 200.0" in lines
    counts = [float(line.split()[-1]) for line in lines if "bucket{" in line and 'route="/api/v1/search"' in line]
    assert counts == sorted(counts)


def test_the_reference_page_shows_every_operation(plain):
    page = plain.get("/docs").text
    for path in plain.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "http://" not in page.replace("http://127.0.0.1:8000", "")
    assert "https://" not in page


def test_the_page_asks_for_no_more_than_the_limit(album):
    folder, index, ids = album
    with serving(PhotoCollection(MadePhotos(folder, index)), limits=Limits(k=5)) as client:
        page = client.get("/", params={"id": ids[0]})
        assert page.status_code == 200
        assert page.text.count('class="card"') == 5


def test_opened_takes_both_kinds_of_folder(tmp_path, X):
    logt.Index(8).save(tmp_path / "plain")
    assert not open_collection(tmp_path / "plain").pictures
    with pytest.raises(OSError, match="holds no index"):
        open_collection(tmp_path / "none")


def test_limits_are_checked_when_they_are_set():
    with pytest.raises(logt.InvalidInputError, match="seconds"):
        Limits(seconds=0)
    with pytest.raises(logt.InvalidInputError, match="k must be"):
        replace(Limits(), k=0)
    with pytest.raises(logt.InvalidInputError, match="12"):
        Settings(token="short")


def test_json_of_odd_ids_is_plain_ascii(tmp_path, X):
    index = logt.Index(32)
    names = [f"ü{i}\u2028<b>\"'" for i in range(200)]
    index.add(X, ids=names)
    index.save(tmp_path / "i")
    with serving(VectorCollection(tmp_path / "i")) as client:
        answer = client.post(f"{API}/search/ids", json={"ids": [names[7]], "k": 200})
        assert answer.content.isascii()
        assert set(ids_of(answer)[0]) == set(names) - {names[7]}
        assert np.isfinite([hit["score"] for hit in json.loads(answer.content)["results"][0]]).all()
