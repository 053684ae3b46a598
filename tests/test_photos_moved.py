"""Photos that were moved, touched or copied are recognized by content: they are not described again."""

import hashlib
import os
import shutil

import pytest
from drawn_photos import counts, draw, finds_itself, indexed_names

from logt._internal.threads import Workers
from logt.index import Index
from logt.photos import Photos, content, photo_vectors, update
from logt.photos.catalog import file_stamp
from logt.photos.folder_scan import folder_news, scan_folders

COUNT = 30


@pytest.fixture(scope="module", params=[False, True], ids=["descriptors", "vectors"])
def indexed_photos(request, tmp_path_factory, small):
    """A linked folder whose catalog has descriptors, or has dropped them after a final whitening."""
    folder = tmp_path_factory.mktemp("whole") / "photos"
    for seed in range(COUNT):
        draw(folder / f"{seed}.png", seed)
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setattr(photo_vectors, "FINAL_COUNT", 20)
        update(folder, model=small)
        with Index.open(next((folder / ".logt").glob("vectors-*")), "a") as index:
            index.link(5)
            index.save()
        yield folder


def linked(folder):
    return Photos.open(folder).index.report()["linked"]


def test_touched_photos_and_a_copy_of_the_folder_change_nothing_but_their_times(album, described, tmp_path):
    generation = Photos.open(album).index.generation
    for path in album.glob("*.png"):
        os.utime(path, (1, 1))
    assert folder_news(album / ".logt") == (COUNT, 0)
    assert counts(update(album)) == (0, 0, 0, COUNT, 0)
    assert folder_news(album / ".logt") == (0, 0)
    shutil.copytree(album, tmp_path / "copy", copy_function=shutil.copyfile)
    assert counts(update(tmp_path / "copy")) == (0, 0, 0, COUNT, 0)
    assert Photos.open(tmp_path / "copy").index.generation == generation
    assert linked(tmp_path / "copy") == COUNT
    assert described == []


def test_a_moved_folder_is_neither_lost_nor_described_and_keeps_the_graph(album, described):
    (album / "trip").mkdir()
    for seed in range(COUNT):
        (album / f"{seed}.png").rename(album / "trip" / f"{seed}.png")
    summary = update(album)  # no --yes: nothing is gone
    assert (summary.moved, *counts(summary)) == (COUNT, 0, 0, 0, 0, 0)
    assert described == []
    assert linked(album) == COUNT
    assert indexed_names(album) == sorted(f"trip/{seed}.png" for seed in range(COUNT))
    assert Photos.open(album).search(album / "trip" / "7.png", 1)[0][0] == "trip/7.png"
    (album / "trip").rename(album / "journey")  # again
    summary = update(album)
    assert (summary.moved, described) == (COUNT, [])


def test_a_copy_has_the_vector_of_its_source_and_a_name_that_changed_hands_another_one(album, described):
    shutil.copy(album / "1.png", album / "copy.png")
    (album / "2.png").rename(album / "old 2.png")
    shutil.copy(album / "3.png", album / "2.png")
    summary = update(album)
    assert (summary.moved, *counts(summary)) == (0, 2, 1, 0, COUNT - 1, 0)
    assert described == []
    photos = Photos.open(album)
    assert {name for name, _ in photos.search(album / "1.png", 2)} == {"1.png", "copy.png"}
    assert {name for name, _ in photos.search(album / "3.png", 2)} == {"3.png", "2.png"}
    assert finds_itself(photos, album / "old 2.png")


def test_a_photo_that_replaces_another_is_a_change_and_a_removal(album, described):
    (album / "3.png").rename(album / "2.png")
    summary = update(album)
    assert (summary.moved, *counts(summary)) == (0, 0, 1, 1, COUNT - 2, 0)
    assert described == []
    assert finds_itself(Photos.open(album), album / "2.png")


def test_a_file_of_the_same_size_and_other_bytes_is_described(album, described):
    data = bytearray((album / "1.png").read_bytes())
    (album / "1.png").write_bytes(data[:-1] + b"\0")  # of the checksum of the last chunk
    update(album)
    assert described == ["1.png"]


def test_a_photo_that_cannot_be_read_any_more_is_no_source(album, described):
    data = (album / "4.png").read_bytes()
    (album / "4.png").write_bytes(b"broken")
    update(album)
    (album / "new.png").write_bytes(data)
    update(album)
    assert described == ["4.png", "4.png", "new.png"]  # a broken photo is tried again


def test_only_new_files_of_the_size_of_a_known_photo_are_read(album, monkeypatch):
    read, real = [], content.read_contents
    monkeypatch.setattr(content, "read_contents", lambda names, *rest: read.extend(names) or real(names, *rest))
    os.utime(album / "1.png", (1, 1))
    draw(album / "new.png", COUNT + 1)
    with (album / "new.png").open("ab") as stream:
        stream.write(bytes(100_000))
    update(album)
    assert read == ["1.png"]


def test_files_that_are_gone_or_changed_since_the_scan_have_no_content(tmp_path):
    for name in ("same", "changed"):
        (tmp_path / name).write_text(name)
    stamps = {name: file_stamp(tmp_path / "same") for name in ("gone", "changed", "same")}
    found = content.read_contents(list(stamps), stamps, tmp_path, Workers())
    assert found == {"same": hashlib.blake2b(b"same", digest_size=16).digest()}


def test_a_photo_folder_that_is_gone_is_an_error_and_not_empty(tmp_path):
    with pytest.raises(FileNotFoundError):
        scan_folders([tmp_path / "gone"], tmp_path / "index")
