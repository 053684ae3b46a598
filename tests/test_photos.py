"""A folder of photos and its index: changes of the folder are followed, and no other file is read."""

import errno
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from drawn_photos import best_match, counts, draw, finds_itself, indexed_names
from PIL import Image

from logt._internal.subprocess_worker import Child
from logt.descriptors import Model
from logt.errors import InvalidInputError
from logt.photos import Photos, extraction, folder_scan, indexer, photo_vectors, update
from logt.photos.manifest import MANIFEST_FILE, _stored_folder
from logt.photos.progress_file import published_progress

# ------------------------------------------------------------------------------------ changes of the folder


def test_new_changed_and_deleted_photos_are_synchronized(album):
    assert indexed_names(album) == ["a.png", "b.jpg", "trip/c.png", "trip/deep/ü – 写真.png", "x [red] <b>.png"]
    generation = Photos.open(album).index.generation
    assert counts(update(album)) == (0, 0, 0, 5, 0)
    assert not (album / ".logt" / "regions").exists()
    assert Photos.open(album).index.generation == generation
    draw(album / "new.png", 70)
    draw(album / "a.png", 71)
    os.utime(album / "a.png", ns=(1, 1))
    (album / "b.jpg").unlink()
    assert counts(update(album)) == (1, 1, 1, 3, 0)
    photos = Photos.open(album)
    assert sorted(photos.index.ids) == ["a.png", "new.png", "trip/c.png", "trip/deep/ü – 写真.png", "x [red] <b>.png"]
    for name in photos.index.ids:
        found, score = best_match(photos, photos.photo_path(name))
        assert found == name
        assert score > 0.98
    good = (album / "a.png").read_bytes()
    (album / "a.png").write_bytes(good[:50])
    assert counts(update(album)) == (0, 0, 1, 4, 1)
    (album / "a.png").write_bytes(good)
    assert counts(update(album)) == (1, 0, 0, 4, 0)


def test_the_index_of_a_folder_without_photos_cannot_be_opened(tmp_path, small):
    (tmp_path / "notes.txt").write_text("none here")
    done = update(tmp_path, model=small)
    assert (counts(done), done.others) == ((0, 0, 0, 0, 0), 1)
    with pytest.raises(InvalidInputError, match="contains no photos yet"):
        Photos.open(tmp_path / ".logt")
    with published_progress(tmp_path / ".logt", None) as report:
        report("indexing", 1200, 5000)
        with pytest.raises(InvalidInputError, match=r"is running \(indexing: 1,200 of 5,000\); try again later"):
            Photos.open(tmp_path / ".logt")
    draw(tmp_path / "first.png")
    assert counts(update(tmp_path)) == (1, 0, 0, 0, 0)
    assert [name for name, _ in Photos.open(tmp_path).search(tmp_path / "first.png", 10)] == ["first.png"]


def test_files_that_are_not_photos_are_listed_and_the_others_indexed(album, tmp_path):
    (album / "text.jpg").write_text("not an image")
    (album / "empty.png").touch()
    data = (album / "b.jpg").read_bytes()
    (album / "half.jpg").write_bytes(data[: len(data) // 2])
    os.mkfifo(album / "pipe.jpg")
    (album / ".hidden.png").write_bytes(b"x")
    (album / "trip" / "loop").symlink_to(album)
    (album / "self").symlink_to("self")
    (album / "gone").symlink_to("gone.png")
    draw(tmp_path / "elsewhere" / "out.png")
    (album / "out.png").symlink_to(tmp_path / "elsewhere" / "out.png")
    (album / "outside").symlink_to(tmp_path / "elsewhere")
    (album / "again.png").symlink_to("a.png")
    done = update(album)
    assert counts(done) == (0, 0, 0, 5, 8)
    reasons = dict(done.failed)
    assert sorted(reasons) == ["empty.png", "gone", "half.jpg", "out.png", "outside", "pipe.jpg", "self", "text.jpg"]
    assert "not an image" in reasons["text.jpg"]
    assert "broken link" in reasons["self"]
    assert "broken link" in reasons["gone"]
    assert "outside the folder" in reasons["out.png"]
    assert "neither a file" in reasons["pipe.jpg"]


def test_videos_and_other_files_are_counted_and_read_once(album, monkeypatch):
    others = ["clip.mp4", "trip/IMG_1.MOV", "a.png.xmp", "notes.txt", "no suffix"]
    for name in others:
        (album / name).write_bytes(b"\0\0\0\x18ftypisom" + b"not an image" * 50)
    (album / "photo without suffix").write_bytes((album / "a.png").read_bytes())
    done = update(album)
    assert (done.added, done.failed, done.others) == (1, [], 5)
    read = []
    real = extraction.read_photo
    monkeypatch.setattr(extraction, "read_photo", lambda path, side: read.append(path.name) or real(path, side))
    assert (update(album).others, read) == (5, [])
    (album / "notes.txt").write_text("a longer note")
    (album / "clip.mp4").unlink()
    (album / "no suffix").write_bytes((album / "b.jpg").read_bytes())
    done = update(album)
    assert (done.added, done.failed, done.others, sorted(read)) == (1, [], 3, ["notes.txt"])
    (album / "no suffix").write_bytes(b"no longer an image")
    done = update(album)
    assert (done.removed, done.others) == (1, 4)
    assert "no suffix" not in indexed_names(album)


def test_raw_files_of_cameras_are_indexed_if_they_decode_and_counted_otherwise(album, monkeypatch):
    Image.open(album / "a.png").save(album / "good.dng", format="TIFF")
    Image.open(album / "a.png").save(album / "IMG_1.CR2", format="TIFF", compression="tiff_lzw")
    content = (album / "IMG_1.CR2").read_bytes()
    (album / "IMG_1.CR2").write_bytes(content[: len(content) // 2] + bytes(len(content) // 2))
    (album / "b.raf").write_bytes(b"FUJIFILMCCD-RAW 0201")
    (album / "c.jpg").write_bytes(b"no image")
    done = update(album)
    assert (done.added, done.others, [name for name, _ in done.failed]) == (1, 2, ["c.jpg"])
    assert "good.dng" in indexed_names(album)
    assert [name for name, _ in update(album).failed] == ["c.jpg"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # a file that cannot be read is tried again
    (album / "b.raf").write_bytes(b"FUJIFILMCCD-RAW 0202")
    assert [name for name, _ in update(album).failed] == ["b.raf", "c.jpg"]


def test_sizes_and_dates_are_recorded(album):
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = "2021:07:30 18:05:09"
    Image.open(album / "b.jpg").save(album / "dated.jpg", exif=exif)
    update(album)
    details = {photo.name: photo[3:] for photo in Photos.open(album).details()}
    assert details["dated.jpg"] == (60, 48, "2021-07-30T18:05:09")
    assert details["a.png"] == (60, 48, "")


def test_a_photo_that_ends_the_decoder_is_listed_and_the_others_are_indexed(album, monkeypatch):
    real = Child.ask

    def killed(child, request, *rest):
        if b"a.png" in request:
            child.kill()
        return real(child, request, *rest)

    monkeypatch.setattr(Child, "ask", killed)
    done = update(album, relearn=True)
    assert done.failed == [("a.png", "decoding it takes too much memory or time")]
    assert done.added == 4


def test_names_that_are_not_utf8_are_listed(album):
    try:
        Path(os.fsdecode(os.fsencode(album) + b"/caf\xe9.png")).write_bytes((album / "a.png").read_bytes())
    except OSError:
        pytest.skip("this file system accepts only UTF-8 names")
    done = update(album)
    assert [reason for _, reason in done.failed] == ["the file name is not valid UTF-8; rename the file"]
    json.dumps(done.failed, ensure_ascii=False).encode()


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "Permission denied"), OSError("Permission denied")])
def test_a_file_whose_size_and_time_cannot_be_read_is_listed(album, monkeypatch, error):
    def scan(path):
        entries = list(scandir(path))
        return nullcontext([Locked(entry) if entry.name == "a.png" else entry for entry in entries])

    class Locked:
        def __init__(self, entry):
            self.name, self.path = entry.name, entry.path

        def stat(self, **_):
            raise error

    scandir = os.scandir
    with monkeypatch.context() as patch:
        patch.setattr(folder_scan.os, "scandir", scan)
        found = folder_scan.scan_folders([album], album / ".logt")
    assert found.failed == [("a.png", "Permission denied")]
    assert len(found.files) == 4


def test_several_folders_in_one_index(album, tmp_path):
    other, third = tmp_path / "other photos", tmp_path / "third"
    for seed in range(4):
        draw(other / "sub" / f"{seed}.png", seed + 50)
        draw(third / f"{seed}.png", seed + 80)
    assert counts(update(album, also=[other, third])) == (8, 0, 0, 5, 0)
    assert counts(update(album)) == (0, 0, 0, 13, 0)  # they are remembered
    photos = Photos.open(album)
    assert photos.folders == [album, other, third]
    name = str(other / "sub" / "2.png")
    assert photos.search(other / "sub" / "2.png", 1)[0][0] == name
    assert photos.photo_path(name) == other / "sub" / "2.png"
    (other / "sub" / "2.png").unlink()
    third.rename(tmp_path / "not mounted")
    done = update(album)
    assert (done.removed, done.failed) == (1, [(f"{third}/", "the folder cannot be read: No such file or directory")])
    assert len(indexed_names(album)) == 12
    (tmp_path / "not mounted").rename(third)
    assert counts(update(album, relearn=True)) == (12, 0, 0, 0, 0)
    assert counts(update(album, also=[other])) == (0, 0, 4, 8, 0)
    assert counts(update(album, also=[])) == (0, 0, 3, 5, 0)


def test_the_folder_of_an_index_is_relative_only_if_they_move_together():
    assert _stored_folder(Path("/photos"), Path("/photos/.logt")) == ".."
    assert _stored_folder(Path("/photos"), Path("/indexes/photos")) == "/photos"


def test_folders_that_overlap_or_do_not_exist_are_refused(album, tmp_path):
    for wrong, message in ((album / "trip", "overlap"), (tmp_path, "overlap"), (tmp_path / "none", "not a folder")):
        with pytest.raises(InvalidInputError, match=message):
            update(album, also=[wrong])
    assert Photos.open(album).folders == [album]


def test_a_folder_that_is_suddenly_empty_keeps_its_index(album):
    for path in album.iterdir():
        if path.name != ".logt":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InvalidInputError, match="is the disk mounted"):
        update(album)
    assert len(indexed_names(album / ".logt")) == 5


def test_an_index_outside_the_folder_and_a_folder_that_is_moved(album, small, tmp_path):
    apart = tmp_path / "new folder" / "apart"
    update(album, apart, model=small)
    album.rename(tmp_path / "moved")
    assert Photos.open(tmp_path / "moved" / ".logt").folder == tmp_path / "moved"
    assert counts(update(tmp_path / "moved", apart)) == (0, 0, 0, 5, 0)
    assert Photos.open(apart).photo_path("a.png") == tmp_path / "moved" / "a.png"
    draw(tmp_path / "other" / "a.png")
    with pytest.raises(InvalidInputError, match="is the index of"):
        update(tmp_path / "other", apart)
    for added in (1, 0):  # an index inside the folder is not scanned
        assert update(tmp_path / "other", tmp_path / "other" / "index", model=small).added == added


# ------------------------------------------------------------------------------------- whitening and models


def test_a_whitening_from_few_photos_is_learned_again_and_one_from_many_is_final(tmp_path, small, monkeypatch):
    monkeypatch.setattr(photo_vectors, "FINAL_COUNT", 8)
    learned = []
    for count in (4, 5, 7, 9, 30):
        for seed in range(count):
            if not (tmp_path / f"{seed}.png").exists():
                draw(tmp_path / f"{seed}.png", seed)
        update(tmp_path, model=small)
        photos = Photos.open(tmp_path / ".logt")
        learned.append(photos._state.whitening.count)
        assert len(photos.index) == count
        assert all(finds_itself(photos, tmp_path / f"{seed}.png") for seed in range(count))
    assert learned == [4, 5, 7, 9, 9]
    assert len([p for p in (tmp_path / ".logt").iterdir() if p.name.startswith(("vectors-", "whitening-"))]) == 2


def test_the_neighbor_graph_stays_when_photos_are_added_and_the_whitening_is_learned_again(album, run_logt):
    assert "5 vectors linked" in run_logt("link", album, "-k", "4")
    for count in (1, 10):  # of 5 photos, 10 more change the whitening
        for seed in range(count):
            draw(album / f"{count}-{seed}.png", 300 + 10 * count + seed)
        update(album)
        index = Photos.open(album).index
        assert len(index.links) == len(index)
    assert index.links.neighbors(0)[0].shape == (4,)


def test_photos_of_a_long_run_are_searchable_before_its_end(tmp_path, small, monkeypatch):
    monkeypatch.setattr(photo_vectors, "FINAL_COUNT", 10)
    monkeypatch.setattr(indexer, "_BLOCK_SIZE", 5)
    for seed in range(40):
        draw(tmp_path / f"{seed}.png", seed)
    seen = []

    def watch(what, done, total):
        if what == "indexing" and done in (5, 15, 25, 40):
            manifest = tmp_path / ".logt" / MANIFEST_FILE
            searchable = manifest.exists() and json.loads(manifest.read_text())["whitening"]
            seen.append(len(Photos.open(tmp_path / ".logt").index) if searchable else 0)

    update(tmp_path, model=small, progress=watch, workers=2)
    assert seen == [0, 10, 20, 30]
    assert len(indexed_names(tmp_path / ".logt")) == 40


def test_relearning_indexes_everything_again_with_another_model(album, small, network):
    other = network("wider", channels=24, about='{"side": 64}')
    with pytest.raises(InvalidInputError, match="is a different model; pass the original one, or relearn"):
        update(album, model=other)
    with pytest.raises(InvalidInputError, match="relearn to change"):
        update(album, model=Model.load(small, side=96))
    photos = Photos.open(album)
    assert update(album, model=other, relearn=True).failed == []
    assert photos.refresh()
    assert photos.index.dim == 24
    assert best_match(photos, album / "a.png")[0] == "a.png"
    assert counts(update(album)) == (0, 0, 0, 5, 0)
    other.write_bytes(network("changed", channels=12, about='{"side": 64}').read_bytes())
    with pytest.raises(InvalidInputError, match="is a different model"):
        update(album)
    update(album, relearn=True)
    assert Photos.open(album).index.dim == 12


def test_an_interrupted_relearning_resumes_with_its_own_model(album, network):
    other = network("another", channels=24, about='{"side": 64}')

    def stop(what, done, total):
        if done == 3:
            raise KeyboardInterrupt

    for again in ({}, {"relearn": True, "model": other}):
        with pytest.raises(KeyboardInterrupt):
            update(album, model=other, relearn=True, progress=stop, workers=1)
        assert Photos.open(album / ".logt").index.dim == (16 if not again else 24)
        update(album, **again)
        photos = Photos.open(album / ".logt")
        assert photos.index.dim == 24
        assert finds_itself(photos, album / "a.png")
