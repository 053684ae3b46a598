"""Photos in the trash: who may move them there, what is moved, and that no file is ever lost."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from drawn_photos import draw, indexed_names
from faults import contents
from server_testing import API, TOKEN, error_message, open_client, raise_disk_full, run_server

from logt.graph.neighbor_graph import NeighborGraph
from logt.photos import extraction, trash, update
from logt.photos.duplicates import duplicate_groups, duplicates, keep_apart, read_apart
from logt.photos.photo_index import Photos
from logt.server.app import create_app
from logt.server.photo_collection import open_collection
from logt.server.settings import Settings
from logt.storage.lock import Lock

duplicates_module = sys.modules["logt.photos.duplicates"]
HERE = "127.0.0.1"
NAMES = ["a.png", "trip/c.png"]


def open_changing(album, address=HERE, **settings):
    return open_client(open_collection(album, allow_changes=True), address, changes=True, **settings)


def move(client, *names, **options):
    return client.post(f"{API}/photos/trash", json={"ids": names or NAMES}, **options)


def restore(client, batch):
    return client.post(f"{API}/photos/restore", json={"batch": batch})


def photo_files(folder):
    return {name: content for name, content in contents(folder).items() if not name.startswith(".logt/")}


def test_photos_go_to_the_trash_and_back_with_every_byte_and_are_not_described_again(album, monkeypatch):
    before = photo_files(album)
    monkeypatch.setattr(Path, "rename", raise_disk_full)  # a rename could replace a file
    with open_changing(album) as client:
        answer = move(client).json()
        assert answer["vectors"] == 3
        assert [name for name in photo_files(album) if name not in before] == [
            f".trash/{answer['batch']}/{name}" for name in NAMES
        ]
        assert client.post(f"{API}/update").json()["added"] == 0  # the trash is never indexed
        monkeypatch.setattr(extraction, "read_photo", raise_disk_full)  # nothing is described
        assert restore(client, answer["batch"]).json() == {"restored": 2, "failed": 0, "vectors": 5}
    assert photo_files(album) == before
    assert not list((album / ".trash").iterdir())


def test_a_photo_whose_place_is_taken_stays_in_the_trash(album):
    with open_changing(album) as client:
        batch = move(client).json()["batch"]
        draw(album / "a.png", 70)
        new = (album / "a.png").read_bytes()
        assert restore(client, batch).json() == {"restored": 1, "failed": 1, "vectors": 5}
    assert (album / "a.png").read_bytes() == new
    assert (album / ".trash" / batch / "a.png").exists()


def test_a_file_in_the_place_of_a_folder_holds_up_no_other_photo(album):
    (album / "trip" / "day").mkdir()
    draw(album / "trip" / "day" / "d.png", 71)
    update(album)
    with open_changing(album) as client:
        batch = move(client, "a.png", "trip/day/d.png").json()["batch"]
        shutil.rmtree(album / "trip")
        (album / "trip").write_text("a file")
        restore(client, batch)
    assert (album / "a.png").exists()
    assert (album / ".trash" / batch / "trip" / "day" / "d.png").exists()


def test_photos_of_several_folders_go_to_the_trash_of_their_folder(album, tmp_path):
    other = tmp_path / "other"
    draw(other / "sub" / "b.png", 72)
    update(album, also=[other])
    batch = trash.move_to_trash(Photos.open(album), ["a.png", str(other / "sub" / "b.png"), "a.png"])
    assert (album / ".trash" / batch / "a.png").exists()
    assert (other / ".trash" / batch / "sub" / "b.png").exists()
    assert trash.restore([album, other], batch) == (2, [])
    assert (other / "sub" / "b.png").exists()


def test_photos_are_moved_all_or_none_and_only_if_the_index_can_be_changed(album, monkeypatch):
    before = photo_files(album)
    with open_changing(album) as client:
        error_message(move(client, "a.png", "none.png"), 422, "invalid_input")
        with Lock(album / ".logt"):
            error_message(move(client), 409, "locked")
        real, moves = trash._move, iter([True, False])
        monkeypatch.setattr(trash, "_move", lambda *paths: real(*paths) if next(moves, True) else raise_disk_full())
        assert move(client).status_code == 500
        assert client.get(f"{API}/info").json()["vectors"] == 5
    assert photo_files(album) == before


def test_file_systems_without_links_are_no_reason_to_replace_a_file(album, monkeypatch):
    def no_links(*_, **__):
        raise PermissionError

    monkeypatch.setattr(os, "link", no_links)
    test_a_photo_whose_place_is_taken_stays_in_the_trash(album)


def test_links_and_names_that_lead_elsewhere_are_refused(album, tmp_path):
    with open_changing(album) as client:
        for batch in ("..", "../..", "", "2026-11-18 10.00.00 ../../"):
            error_message(restore(client, batch), 422, "invalid_input")
        (album / "trip").rename(album / "elsewhere")
        (album / "trip").symlink_to(album / "elsewhere")
        error_message(move(client, "trip/c.png"), 422, "invalid_input")
        (album / ".trash").symlink_to(tmp_path)
        assert "symbolic link" in error_message(move(client, "a.png"), 422, "invalid_input")
    assert (album / "elsewhere" / "c.png").exists()


def test_photos_are_moved_only_if_allowed_from_this_machine_or_with_the_token(album):
    before = photo_files(album)
    with open_client(open_collection(album), HERE) as client:
        error_message(move(client), 403, "no_changes")
        assert 'id="trash"' not in client.get("/duplicates").text
    with open_changing(album, read_only=True) as client:
        error_message(move(client), 403, "no_changes")
    with open_changing(album, "192.0.2.1") as client:
        error_message(move(client), 403, "no_changes")
        error_message(restore(client, "2026-11-18 10.00.00 abcdef"), 403, "no_changes")
    with open_changing(album, hosts=("photos.example",)) as client:
        for headers in (
            *({"X-Forwarded-For": HERE}, {"Forwarded": f"for={HERE}"}, {"Host": "photos.example"}),
            *({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}),
        ):
            assert move(client, headers=headers).status_code == 403, headers
        error_message(move(client, headers={"Host": "evil.example"}), 421, "unknown_host")
        form = client.post(f"{API}/photos/trash", data={"ids": NAMES})  # what a form of another site could send
        error_message(form, 422, "invalid_input")
    assert photo_files(album) == before
    with open_changing(album, "192.0.2.1", token=TOKEN) as client:
        error_message(move(client), 401, "unauthorized")
        assert move(client, headers={"Authorization": f"Bearer {TOKEN}"}).json()["vectors"] == 3


def test_photos_that_are_no_duplicates_are_remembered(album):
    for number in (1, 2):
        shutil.copy(album / "a.png", album / f"copy {number}.png")
    update(album)
    assert [group.names for group in duplicates(Photos.open(album), 0.97)] == [("a.png", "copy 1.png", "copy 2.png")]
    keep_apart(Photos.open(album).path, ["a.png", "copy 1.png"])
    assert len(duplicates(Photos.open(album), 0.97)) == 1  # the second copy connects them
    with open_client(open_collection(album)) as client:
        body = {"ids": ["a.png", "copy 1.png", "copy 2.png"]}
        assert client.post(f"{API}/duplicates/dismiss", json=body).status_code == 204
        error_message(client.post(f"{API}/duplicates/dismiss", json={"ids": ["none"]}), 404, "not_found")
    assert duplicates(Photos.open(album), 0.97) == []


def test_photos_that_are_no_duplicates_stay_connected_to_others():
    names, rows = np.array(["a", "b", "c", "d"]), np.array([[1], [2], [1], [2]], np.int32)
    graph = NeighborGraph.from_neighbors(names, rows, np.ones((4, 1), np.float32))
    groups = duplicate_groups(graph, 0.9, [{"b", "c"}, {"gone"}])
    assert [group.names for group in groups] == [("a", "b"), ("c", "d")]
    assert [group.names for group in duplicate_groups(graph, 0.9, [])] == [("a", "b", "c", "d")]  # still in the graph


def test_decisions_about_duplicates_at_the_same_moment_are_all_kept_once_and_are_limited(album, monkeypatch):
    index = Photos.open(album).path
    groups = [["a.png", f"copy {number}.png"] for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda group: keep_apart(index, group), [*groups, *groups]))
    assert sorted(map(sorted, read_apart(index))) == sorted(groups)
    monkeypatch.setattr(duplicates_module, "MAX_APART_NAMES", 5)
    keep_apart(index, ["x", "y", "z"])
    assert len(read_apart(index)) == 2
    assert read_apart(index)[-1] == {"x", "y", "z"}
    monkeypatch.setattr(duplicates_module, "MAX_APART_NAMES", 2)
    keep_apart(index, ["u", "v", "w"])
    assert read_apart(index) == [{"u", "v", "w"}]  # the last one is kept, however large


def test_duplicates_are_compared_moved_to_the_trash_and_restored_on_the_page(album, new_page):
    shutil.copy(album / "a.png", album / "copy.png")
    draw(album / "small.png", 1)
    shutil.copy(album / "small.png", album / "small copy.png")
    update(album)
    collection = open_collection(album, allow_changes=True)
    with run_server(create_app(collection, Settings(changes=True, refresh_seconds=0.05))) as url:
        new_page.goto(f"{url}/duplicates")
        new_page.wait_for_selector(".group")
        groups = new_page.locator(".group").count()
        new_page.get_by_role("button", name="Same picture").click()
        new_page.wait_for_function(
            "() => location.search.includes('threshold=0.9') && document.querySelector('.group')"
        )
        new_page.wait_for_load_state("networkidle")  # the groups of the new threshold replace the others
        new_page.get_by_role("button", name="Compare").first.click()
        sides = "figures => figures.map((figure) => figure.querySelector('img').alt)"
        best, other = new_page.locator("#compare figure").evaluate_all(sides)
        new_page.keyboard.press("x")
        assert new_page.locator("#compare figure").evaluate_all(sides) == [other, best]
        new_page.keyboard.press("Space")
        new_page.keyboard.press("Escape")
        marked = new_page.locator(".group .card.selected").count()
        assert new_page.locator(f'.card[data-id="{other}"].selected').count() == 0
        new_page.get_by_role("button", name="Move to trash").click()
        assert f"Move {marked} photo" in new_page.locator("#confirm").text_content()
        new_page.get_by_role("button", name="Cancel").click()
        assert len(collection.index) == len(indexed_names(album))
        new_page.get_by_role("button", name="Move to trash").click()
        new_page.locator("#confirm").get_by_role("button", name="Move to trash").click()
        new_page.get_by_role("button", name="Undo").wait_for()
        assert len(collection.index) == len(indexed_names(album)) == 8 - marked
        new_page.get_by_role("button", name="Undo").click()
        new_page.wait_for_function(f"n => document.querySelectorAll('.group').length === {groups}")
        new_page.get_by_role("button", name="Not duplicates").first.click()
        new_page.wait_for_function(f"n => document.querySelectorAll('.group').length === {groups - 1}")
        new_page.reload()
        assert new_page.locator(".group").count() == groups - 1
