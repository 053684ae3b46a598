"""Backup, repair, verify and info of an index of photos."""

import json
import shutil

import pytest
from drawn_photos import counts, draw, finds_itself
from faults import contents, damage

from logt.errors import CorruptIndexError, InvalidInputError, LockedError
from logt.photos import Photos, update
from logt.photos.backup import copy_photo_index
from logt.photos.index_folder import IndexFolder
from logt.storage.lock import Lock


def damage_segment(album):
    damage(next((album / ".logt").glob("vectors-*/segment-*")))


def test_verify_and_info_read_an_index_of_photos_and_write_nothing(album, tmp_path, run_logt):
    before = contents(album / ".logt")
    for path in (album, album / ".logt"):
        assert "OK; 5 photos" in run_logt("verify", path)
    report = json.loads(run_logt("info", album, "--json"))
    assert (report["vectors"], report["photos"]) == (5, str(album))
    assert "sketched(bits=4)" in run_logt("info", album)
    run_logt("backup", album, tmp_path / "copy")
    assert contents(album / ".logt") == before
    for name in ("photos.json", "catalog.sqlite"):
        right = (album / ".logt" / name).read_bytes()
        (album / ".logt" / name).write_bytes(b"x" * 5000)
        assert f"{name} is damaged" in run_logt("verify", album, ok=False)
        (album / ".logt" / name).write_bytes(right)
    (album / ".logt" / "catalog.sqlite").write_bytes(b"")
    assert "catalog.sqlite is damaged" in run_logt("verify", album, ok=False)
    assert (album / ".logt" / "catalog.sqlite").read_bytes() == b""
    (album / ".logt" / "catalog.sqlite").write_bytes(right)
    damage_segment(album)
    assert "is damaged" in run_logt("verify", album, ok=False)
    with pytest.raises(CorruptIndexError, match="is damaged"):
        copy_photo_index(album / ".logt", tmp_path / "new" / "copy")
    assert not (tmp_path / "new").exists()


def test_a_backup_is_restored_in_the_place_of_a_newer_or_a_lost_index(album, tmp_path, run_logt):
    run_logt("backup", album, tmp_path / "copy")
    assert Photos.open(tmp_path / "copy").folder == album
    draw(album / "new.png", 77)
    update(album)
    reader, before = Photos.open(album), contents(album / ".logt")
    assert "--overwrite" in run_logt("restore", tmp_path / "copy", album / ".logt", ok=False)
    assert contents(album / ".logt") == before
    assert "5 photos" in run_logt("restore", tmp_path / "copy", album / ".logt", "--overwrite")
    assert "new.png" in reader.index
    reader.refresh()
    assert "new.png" not in reader.index
    assert finds_itself(reader, album / "a.png")
    assert counts(update(album)) == (1, 0, 0, 5, 0)
    shutil.rmtree(album / ".logt")
    album.rename(tmp_path / "moved")  # it belongs to the folder that it is in
    run_logt("restore", tmp_path / "copy", tmp_path / "moved" / ".logt")
    assert Photos.open(tmp_path / "moved").photo_path("a.png") == tmp_path / "moved" / "a.png"


def test_a_copy_during_an_update_can_be_searched_and_updated(album, tmp_path, monkeypatch):
    for seed in range(10):
        draw(album / f"{seed}.png", seed + 50)
    home, copy = album / ".logt", tmp_path / "copy"
    real = IndexFolder.write_whitening

    def copying(self, whitening):  # vectors are written, the manifest is not
        real(self, whitening)
        if self.path == home:
            copy_photo_index(home, copy)

    monkeypatch.setattr(IndexFolder, "write_whitening", copying)
    update(album)
    monkeypatch.undo()
    assert finds_itself(Photos.open(copy), album / "a.png")
    assert len(Photos.open(copy).index) == 5
    update(album, copy)
    assert len(Photos.open(copy).index) == 15


def test_other_folders_and_indexes_in_use_are_not_written_to(album, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("keep me")
    with pytest.raises(InvalidInputError, match="is not an index of photos"):
        copy_photo_index(album / ".logt", tmp_path / "full", overwrite=True)
    assert (tmp_path / "full" / "letter.txt").exists()
    with pytest.raises(InvalidInputError, match="the index itself"):
        copy_photo_index(album / ".logt", album / ".logt" / "copy")
    copy_photo_index(album / ".logt", tmp_path / "copy")
    with Lock(album / ".logt"), pytest.raises(LockedError):
        copy_photo_index(tmp_path / "copy", album / ".logt", overwrite=True)
    (tmp_path / "copy" / "catalog.sqlite").unlink()
    (tmp_path / "copy" / "catalog.sqlite").symlink_to(tmp_path / "victim")
    with pytest.raises(CorruptIndexError, match="not a regular file"):
        copy_photo_index(album / ".logt", tmp_path / "copy", overwrite=True)
    assert not (tmp_path / "victim").exists()


def test_what_a_killed_copy_left_blocks_neither_the_next_nor_a_run_with_another_model(album, network, tmp_path):
    copy = tmp_path / "copy"
    for use in (lambda: copy_photo_index(album / ".logt", copy), lambda: update(album, copy, model=network("other"))):
        copy_photo_index(album / ".logt", copy, overwrite=True)
        (copy / "photos.json").unlink()  # it is written last
        use()
        assert len(Photos.open(copy).index) == 5
        assert finds_itself(Photos.open(copy), album / "a.png")


def test_a_repaired_index_of_photos_reads_the_lost_ones_again(album, run_logt):
    damage_segment(album)
    before = contents(album / ".logt")
    assert "a.png" in run_logt("repair", album, ok=False)
    assert contents(album / ".logt") == before
    assert "logt images index" in run_logt("repair", album, "--yes")
    assert counts(update(album)) == (5, 0, 0, 0, 0)
    assert finds_itself(Photos.open(album), album / "a.png")
