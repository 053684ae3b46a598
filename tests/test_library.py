"""The photos of an index in order: filters, groups by month and folder, and where matches end."""

import json
import os
import subprocess
import sys
import time
import zipfile
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from exact_index import built
from PIL import Image
from server_testing import API, error_message, open_album, open_client, wait_until
from synthetic_photos import write_photos

from logt.errors import InvalidInputError
from logt.photos import progress_file
from logt.photos.catalog import CatalogPhoto
from logt.photos.duplicates import DuplicateGroup
from logt.photos.progress_file import PROGRESS_FILE, published_progress, read_progress
from logt.server.caches import SizedCache
from logt.server.duplicate_groups import best_first
from logt.server.export import stream_zip
from logt.server.library import Background, Group, Library, PhotoFilter


def photo(name, taken="2020-01-01T00:00:00", size=1000, width=100, height=80):
    return CatalogPhoto(name, size, 0, width, height, taken)


LIBRARY = Library(
    [
        photo("b.jpg", "2021-05-02T10:00:00"),
        photo("Trip/a.JPG", "2021-05-30T23:59:59"),
        photo("Trip/deep/c.jpg", "2019-12-31T12:00:00"),
        photo("trip2/d.jpg", "2021-06-01T00:00:00"),
        photo("/mnt/other/e.jpg", "2018-01-01T00:00:00"),
    ]
)


def names(**condition):
    order = condition.pop("order", "date")
    return LIBRARY.names(LIBRARY.select(PhotoFilter(**condition), order))


def test_photos_are_ordered_by_date_or_by_folder():
    assert names() == ["trip2/d.jpg", "Trip/a.JPG", "b.jpg", "Trip/deep/c.jpg", "/mnt/other/e.jpg"]
    assert names(order="folder") == ["b.jpg", "/mnt/other/e.jpg", "Trip/a.JPG", "Trip/deep/c.jpg", "trip2/d.jpg"]


def test_filters_are_combined():
    assert names(name="A trip") == ["Trip/a.JPG"]
    assert names(folder="Trip") == ["Trip/a.JPG", "Trip/deep/c.jpg"]
    assert names(folder="/mnt/other") == ["/mnt/other/e.jpg"]
    assert names(first="2021-05", last="2021-05") == ["Trip/a.JPG", "b.jpg"]
    assert names(first="2021-05-02", last="2021-05-02") == ["b.jpg"]
    assert names(last="2019") == ["Trip/deep/c.jpg", "/mnt/other/e.jpg"]
    assert names(name="jpg", folder="Trip", first="2020") == ["Trip/a.JPG"]
    assert names(name="nothing") == []
    for wrong in ("2021-13", "May", "2021-02-31", "21"):
        with pytest.raises(InvalidInputError, match="YYYY"):
            PhotoFilter(first=wrong)


def test_groups_are_months_or_folders():
    everything = LIBRARY.select(PhotoFilter())
    assert [(group.label, group.count) for group in everything.groups] == [
        *(("2021-06", 1), ("2021-05", 2), ("2019-12", 1), ("2018-01", 1)),
    ]
    by_folder = LIBRARY.select(PhotoFilter(), "folder").groups
    assert [group.label for group in by_folder] == ["", "/mnt/other", "Trip", "Trip/deep", "trip2"]
    assert Group("Trip", 2) in LIBRARY.folders
    assert Library([]).select(PhotoFilter()).groups == ()


def test_a_photo_without_exif_date_has_the_date_of_its_file():
    moment = int(time.mktime((2022, 3, 4, 5, 6, 7, 0, 0, -1)) * 1e9)
    library = Library([CatalogPhoto("a.jpg", 1, moment, 0, 0, ""), CatalogPhoto("b.jpg", 1, 10**30, 0, 0, "")])
    assert library.date("a.jpg") == "2022-03-04T05:06:07"
    assert library.date("b.jpg")[:4] == "1970"


def test_the_best_of_near_duplicates_comes_first():
    library = Library(
        [
            *(photo("small.jpg", width=50), photo("light.jpg", size=900), photo("copy of x.jpg"), photo("x.jpg")),
            *(photo("old.jpg", "2019-01-01T00:00:00"), photo("x.png", "", size=9000)),
        ]
    )
    group = DuplicateGroup(
        0.9, ("copy of x.jpg", "light.jpg", "old.jpg", "small.jpg", "unknown.jpg", "x.jpg", "x.png")
    )
    expected = ("old.jpg", "x.jpg", "copy of x.jpg", "light.jpg", "x.png", "small.jpg", "unknown.jpg")
    assert best_first(group, library).names == expected


def test_the_limit_separates_related_vectors_from_unrelated_ones(rng):
    X = rng.standard_normal((2000, 128)).astype(np.float32)
    X[1] = X[0] + 0.6 * X[1]
    index = built(X)
    limit = Background(index).limit(X[0])
    scores = index.search(X[0], 10, effort=1).scores
    assert scores[1] > limit > scores[5]
    assert 3 < limit * np.sqrt(128) < 4.2  # a normal distribution: 3.5 deviations for one of 4,000
    few = built(X[:10, :8])
    assert Background(few).limit(X[0, :8]) is None


def test_cached_values_are_dropped_after_a_time_and_by_size(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("logt.server.caches.time.monotonic", lambda: now[0])
    cache = SizedCache(100, seconds=60)
    cache.put("a", "first", 60)
    assert cache.get("a") == "first"
    cache.put("b", "second", 60)
    assert (cache.get("a"), cache.get("b"), cache.nbytes) == (None, "second", 60)
    now[0] += 61
    assert cache.get("b") is None


# ------------------------------------------------------------------------------------------------ over HTTP


@pytest.fixture
def photos(tmp_path):
    """Photos that a test may change."""
    write_photos(tmp_path / "p", tmp_path / "i", 3, 3)
    return open_album((tmp_path / "p", tmp_path / "i"))


def test_the_api_lists_photos_with_a_filter(photo_client):
    params = {"from": "2020-01-06", "to": "2020-01-09", "limit": 2}
    found = photo_client.get(f"{API}/photos", params=params).json()
    assert (found["total"], len(found["photos"])) == (4, 2)
    newest = {"id": "scene 01/photo 1.jpg", "date": "2020-01-09T12:00:00", "width": 240, "height": 180}
    assert found["photos"][0] == newest | {"bytes": 1008}
    assert found["groups"] == [{"label": "2020-01", "count": 4}]
    message = error_message(photo_client.get(f"{API}/photos", params={"from": "soon"}), 422, "invalid_input")
    assert "YYYY" in message
    page = photo_client.get("/", params={"id": "scene 00/photo 0.jpg", "name": "nothing"}).text
    assert "No other photo matches the filter" in page


def test_duplicates_are_found_in_the_background(photo_client):
    wait_until(lambda: photo_client.get(f"{API}/duplicates").json()["groups"] is not None)
    groups = photo_client.get(f"{API}/duplicates").json()["groups"]
    assert sorted(group["ids"][0] for group in groups) == [f"scene {n:02}/photo 2.jpg" for n in range(8)]
    assert "8 groups." in photo_client.get("/duplicates").text
    wait_until(lambda: photo_client.get(f"{API}/duplicates", params={"threshold": 1}).json()["groups"] == [])


@pytest.mark.parametrize("originals", [False, True])
def test_photos_are_exported_as_a_zip_file(photos, originals):
    ids = ["scene 00/photo 0.jpg", "scene 01/photo 1.jpg"]
    with open_client(photos, originals=originals) as client:
        response = client.post(f"{API}/photos/zip", data={"ids": json.dumps(ids)})
        archive = zipfile.ZipFile(BytesIO(response.content))
        assert archive.namelist() == ids
        assert archive.testzip() is None
        original = photos.photo_path(ids[0]).read_bytes()
        assert (archive.read(ids[0]) == original) is originals
        assert Image.open(BytesIO(archive.read(ids[0]))).size == (240, 180)
        os.utime(photos.photo_path(ids[0]), (0, 0))  # before the first year of a zip file
        photos.photo_path(ids[1]).unlink()
        response = client.post(f"{API}/photos/zip", data={"ids": json.dumps(ids)})
        archive = zipfile.ZipFile(BytesIO(response.content))
        assert archive.namelist() == [ids[0], "missing.txt"]
        assert archive.read("missing.txt").decode() == f"{ids[1]}\n"
        for wrong in ("[]", "x", '{"a": 1}', "[1]", json.dumps(["a"] * 1001)):
            error_message(client.post(f"{API}/photos/zip", data={"ids": wrong}), 422, "invalid_input")
        error_message(client.post(f"{API}/photos/zip", data={"ids": '["none"]'}), 404, "not_found")


def test_photos_of_the_same_name_but_for_its_suffix_are_all_in_the_zip_file(tmp_path):
    ids = ["a/photo.png", "a/photo.jpg", "a/photo.JPG", "a/photo.png.jpg", "b/photo.webp"]
    photos = [(photo_id, tmp_path / f"{number}.jpg") for number, photo_id in enumerate(ids)]
    for photo_id, path in photos:
        path.write_bytes(photo_id.encode())
    names = ["a/photo.png.jpg", "a/photo.jpg", "a/photo (2).JPG", "a/photo.png (2).jpg", "b/photo.webp.jpg"]
    for originals, expected in ((False, names), (True, [*ids[:2], "a/photo (2).JPG", *ids[3:]])):
        archive = zipfile.ZipFile(BytesIO(b"".join(stream_zip(photos, Path.read_bytes, originals=originals))))
        assert archive.namelist() == expected
        assert [archive.read(name).decode() for name in expected] == ids


def test_an_uploaded_query_is_searched_by_its_url(photo_client, photo_album):
    content = (photo_album[0] / "scene 02/photo 0.jpg").read_bytes()
    response = photo_client.post("/", files={"photo": ("mine.jpg", content)}, follow_redirects=False)
    assert response.status_code == 303
    url = response.headers["location"]
    for page in (photo_client.get(url).text, photo_client.get(f"{url}&box=0,0,0.5,0.5").text):
        assert "mine.jpg" in page
        assert "described in" in page
        assert 'data-id="scene 02/photo 0.jpg"' in page
    jpeg = photo_client.get(f"/query/{url.split('=')[1]}")
    assert Image.open(BytesIO(jpeg.content)).size == (240, 180)
    assert photo_client.get("/?photo=guess").status_code == 404


# ------------------------------------------------------------------------------------- progress of indexing


def test_the_progress_of_a_killed_run_is_ignored(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from logt.photos.progress_file import published_progress\n"
        "with published_progress(Path(sys.argv[1]), None) as report: report('indexing', 1, 2); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / PROGRESS_FILE).exists()
    assert read_progress(tmp_path) is None
    values = {"what": "indexing", "done": 1, "total": 2, "host": "another machine", "pid": 1}
    (tmp_path / PROGRESS_FILE).write_text(json.dumps(values))
    assert read_progress(tmp_path) == ("indexing", 1, 2)
    os.utime(tmp_path / PROGRESS_FILE, (1, 1))
    assert read_progress(tmp_path) is None


def test_the_progress_is_written_from_time_to_time_and_removed_at_the_end(tmp_path, monkeypatch):
    now, reports = [100.0], []
    monkeypatch.setattr(progress_file, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    with published_progress(tmp_path, lambda *values: reports.append(values)) as report:
        for done, expected in ((0, 0), (1, 0), (2, 2)):
            report("indexing", done, 3)
            assert read_progress(tmp_path) == ("indexing", expected, 3)
            now[0] += progress_file._SECONDS / 2
    assert reports == [("indexing", done, 3) for done in range(3)]
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_reports_leaves_the_progress_of_another_one(tmp_path):
    (tmp_path / PROGRESS_FILE).write_text("of another run")
    with published_progress(tmp_path, None):
        pass
    assert (tmp_path / PROGRESS_FILE).exists()


def test_a_progress_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    with published_progress(tmp_path / "file", None) as report:
        report("indexing", 1, 2)
    assert read_progress(tmp_path / "file") is None


def test_the_progress_of_another_user_is_read(tmp_path, monkeypatch):
    def kill(pid, number):
        assert number == 0
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    with published_progress(tmp_path, None) as report:
        report("indexing", 1, 2)
        assert read_progress(tmp_path) == ("indexing", 1, 2)
