"""The server and a folder that changes: what is new, updates on request, and updates by itself."""

import shutil

import pytest
from drawn_photos import draw
from server_testing import API, error_message, open_client, run_server, wait_until

from logt.errors import CorruptIndexError
from logt.photos import Photos, extraction, update
from logt.photos.catalog import CATALOG_FILE, Catalog
from logt.photos.folder_scan import folder_news
from logt.server import photo_collection
from logt.server.app import create_app
from logt.server.photo_collection import PhotoCollection, open_collection
from logt.server.settings import Settings


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch):
    monkeypatch.setattr(photo_collection, "NEWS_SECONDS", 0.0)
    monkeypatch.setattr(photo_collection, "SCAN_SHARE", 0)


def news(client):
    return client.get(f"{API}/folder").json()


def test_new_and_lost_photos_are_counted_and_an_update_makes_them_known(album, caplog):
    with open_client(open_collection(album)) as client:
        assert news(client) == {"new": 0, "gone": 0}
        draw(album / "new.png", 50)
        (album / "broken.jpg").write_bytes(b"no image")
        (album / "notes.txt").write_text("no photo")
        (album / ".trash").mkdir()
        draw(album / ".trash" / "hidden.png", 51)
        (album / "a.png").unlink()
        assert news(client) == {"new": 2, "gone": 1}
        counts = {"added": 1, "changed": 0, "removed": 1, "moved": 0, "failed": 1, "vectors": 5}
        assert client.post(f"{API}/update").json() == counts
        assert news(client) == {"new": 0, "gone": 0}  # what could not be read is no news
        client.post(f"{API}/update")
    assert caplog.text.count("broken.jpg was not indexed: ") == 1


def test_there_is_no_news_without_a_catalog_and_none_is_created(album):
    catalog = album / ".logt" / CATALOG_FILE
    catalog.write_bytes(b"")
    with pytest.raises(CorruptIndexError, match="its tables are not those"):
        folder_news(catalog.parent)
    with pytest.raises(CorruptIndexError, match="its tables are not those"):
        Photos.open(album).details()
    assert catalog.read_bytes() == b""
    catalog.unlink()
    assert folder_news(catalog.parent) == (0, 0)
    assert not catalog.exists()


def test_the_folder_is_scanned_once_in_a_while(album, monkeypatch):
    monkeypatch.setattr(photo_collection, "NEWS_SECONDS", 3600.0)
    scans, real = [], photo_collection.folder_news
    monkeypatch.setattr(photo_collection, "folder_news", lambda path: scans.append(path) or real(path))
    with open_client(open_collection(album)) as client:
        assert news(client) == news(client) == {"new": 0, "gone": 0}
        assert len(scans) == 1
        client.post(f"{API}/update")
        news(client)
        assert len(scans) == 2


def test_an_update_is_refused_if_the_server_is_read_only_or_a_disk_may_be_missing(album):
    with open_client(open_collection(album), read_only=True) as client:
        error_message(client.post(f"{API}/update"), 403, "read_only")
    with open_client(open_collection(album)) as client:
        shutil.rmtree(album / "trip")
        for path in album.glob("[abx]*"):
            path.unlink()
        assert "is the disk mounted?" in error_message(client.post(f"{API}/update"), 422, "invalid_input")
        assert client.get(f"{API}/info").json()["vectors"] == 5


def test_a_watched_folder_is_followed_and_moved_photos_are_not_described_again(album, monkeypatch):
    pytest.importorskip("watchfiles")
    names, real = [], extraction.read_photo
    monkeypatch.setattr(extraction, "read_photo", lambda path, side: names.append(path.name) or real(path, side))
    draw(album / "before.png", 60)
    with open_client(open_collection(album), watch=True) as client:
        wait_until(lambda: "before.png" in client.app_service.collection.index)
        (album / "a.png").rename(album / "trip" / "moved.png")
        draw(album / "new.png", 61)
        index = client.app_service.photo_collection.photos
        wait_until(lambda: {"new.png", "trip/moved.png"} <= set(index.index.ids.tolist()))
        assert "a.png" not in index.index
        assert names == ["before.png", "new.png"]
        assert 'id="news"' not in client.get("/").text


def test_a_photo_that_comes_during_the_first_update_is_found(album, monkeypatch):
    pytest.importorskip("watchfiles")
    real = PhotoCollection.update_index

    def update_slowly(photos):
        summary = real(photos)
        if not (album / "meanwhile.png").exists():
            draw(album / "meanwhile.png", 62)
        return summary

    monkeypatch.setattr(PhotoCollection, "update_index", update_slowly)
    with open_client(open_collection(album), watch=True) as client:
        wait_until(lambda: "meanwhile.png" in client.app_service.collection.index)


def test_a_folder_that_is_not_there_is_an_error_that_names_no_path(album, tmp_path):
    update(album, tmp_path / "index")
    with open_client(open_collection(tmp_path / "index")) as client:
        album.rename(tmp_path / "elsewhere")
        for message in (
            error_message(client.get(f"{API}/folder"), 503, "no_folder"),
            error_message(client.post(f"{API}/update"), 422, "invalid_input"),
        ):
            assert str(tmp_path) not in message


def test_the_page_says_what_is_new_and_updates(album, new_page):
    with run_server(create_app(open_collection(album), Settings(refresh_seconds=0.05))) as url:
        draw(album / "new.png", 50)
        new_page.goto(url)
        new_page.wait_for_selector("#news:not([hidden])")
        assert "1 new or changed photo" in new_page.locator("#news").text_content()
        new_page.get_by_role("button", name="Update now").click()
        new_page.wait_for_selector('.card[data-id="new.png"]')
        new_page.locator("#news").wait_for(state="hidden")


def test_a_crafted_list_of_failed_files_is_reported(album):
    catalog = Catalog(album / ".logt")
    for value in ("[1]", '{"a": 1}', "[[", "9" * 5000):
        catalog._connection.execute("INSERT OR REPLACE INTO notes VALUES ('failed', ?)", (value,))
        catalog._connection.commit()
        with pytest.raises(CorruptIndexError, match="damaged"):
            catalog.failed()
    catalog.close()


def test_watching_is_for_photos_and_not_for_reading(album, run_logt):
    assert "cannot be combined" in run_logt("serve", album, "--watch", "--read-only", ok=False)
    vectors = next((album / ".logt").glob("vectors-*"))
    assert "--watch needs one" in run_logt("serve", vectors, "--watch", ok=False)
