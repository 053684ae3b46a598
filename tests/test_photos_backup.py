"""Backup, repair, verify and info of an index of photos."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing

import pytest
from drawn_images import counts, draw, draw_folder, finds_itself, indexed_names

from logt.cli.main import main
from logt.errors import CorruptIndexError, InvalidInputError, LockedError
from logt.photos import Photos, update
from logt.photos.backup import copy_photo_index
from logt.photos.index_folder import IndexFolder
from logt.storage.lock import Lock


@pytest.fixture
def folder(tmp_path, small):
    folder = draw_folder(tmp_path / "photos")
    update(folder, model=small)
    return folder


@pytest.fixture
def logt(monkeypatch, capsys):
    """run(*words) -> what the command prints to stdout and stderr."""

    def run(*words, ok=True):
        monkeypatch.setattr(sys, "argv", ["logt", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert (ended.value.code in (None, 0)) == ok, printed
        return printed.out + printed.err

    return run


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_verify_and_info_read_an_index_of_photos(folder, logt):
    for path in (folder, folder / ".logt"):
        assert "OK; 5 photos" in logt("verify", path)
    report = json.loads(logt("info", folder, "--json"))
    assert (report["vectors"], report["photos"]) == (5, str(folder))
    assert "sketched(bits=4)" in logt("info", folder)
    for name in ("photos.json", "catalogue.sqlite"):
        right = (folder / ".logt" / name).read_bytes()
        (folder / ".logt" / name).write_bytes(b"x" * 5000)
        assert f"{name} is damaged" in logt("verify", folder, ok=False)
        (folder / ".logt" / name).write_bytes(right)
    damage(next((folder / ".logt").glob("vectors-*/segment-*")))
    assert "is damaged" in logt("verify", folder, ok=False)


def test_verify_info_and_backup_write_nothing_to_the_index(folder, tmp_path, logt):
    with closing(sqlite3.connect(folder / ".logt" / "catalogue.sqlite")) as db:
        db.execute("DROP TABLE others")  # as in an index of an earlier version
        db.commit()
    before = contents(folder / ".logt")
    logt("verify", folder)
    logt("info", folder)
    logt("backup", folder, tmp_path / "copy")
    assert contents(folder / ".logt") == before
    assert counts(update(folder)) == (0, 0, 0, 5, 0)


def test_a_backup_is_restored_in_the_place_of_a_lost_index(folder, tmp_path, logt):
    logt("backup", folder, tmp_path / "copy")
    assert Photos.open(tmp_path / "copy").folder == folder
    assert finds_itself(Photos.open(tmp_path / "copy"), folder / "a.png")
    shutil.rmtree(folder / ".logt")
    assert "5 photos" in logt("restore", tmp_path / "copy", folder / ".logt")
    assert finds_itself(Photos.open(folder), folder / "a.png")
    assert counts(update(folder)) == (0, 0, 0, 5, 0)


def test_a_restored_index_belongs_to_the_folder_that_it_is_in(folder, tmp_path, logt):
    logt("backup", folder, tmp_path / "copy")
    shutil.rmtree(folder / ".logt")
    folder.rename(tmp_path / "moved")
    logt("restore", tmp_path / "copy", tmp_path / "moved" / ".logt")
    assert Photos.open(tmp_path / "moved").photo_path("a.png") == tmp_path / "moved" / "a.png"


def test_an_older_backup_replaces_an_index_only_with_overwrite(folder, tmp_path, logt):
    logt("backup", folder, tmp_path / "copy")
    draw(folder / "new.png", 77)
    update(folder)
    reader = Photos.open(folder)
    before = contents(folder / ".logt")
    assert "--overwrite" in logt("restore", tmp_path / "copy", folder / ".logt", ok=False)
    assert contents(folder / ".logt") == before
    logt("restore", tmp_path / "copy", folder / ".logt", "--overwrite")
    assert "new.png" in reader.index
    reader.refresh()
    assert "new.png" not in reader.index
    assert update(folder).added == 1
    assert "new.png" in indexed_names(folder)


def test_a_copy_during_an_update_can_be_searched_and_updated(tmp_path, small, monkeypatch):
    for seed in range(40):
        draw(tmp_path / "photos" / f"{seed}.png", seed)
    update(tmp_path / "photos", model=small)
    for seed in range(40, 80):
        draw(tmp_path / "photos" / f"{seed}.png", seed)
    home, number = tmp_path / "photos" / ".logt", 0
    real = IndexFolder.write_whitening

    def copying(self, whitening):  # vectors are written, the manifest is not
        nonlocal number
        real(self, whitening)
        if self.path == home:
            number += 1
            copy_photo_index(home, tmp_path / f"copy {number}")

    monkeypatch.setattr(IndexFolder, "write_whitening", copying)
    update(tmp_path / "photos")
    monkeypatch.undo()
    assert number == 1
    copy = tmp_path / "copy 1"
    assert all(finds_itself(Photos.open(copy), tmp_path / "photos" / f"{seed}.png") for seed in range(40))
    update(tmp_path / "photos", copy)
    assert len(Photos.open(copy).index) == 80


def test_other_folders_and_indexes_in_use_are_not_written_to(folder, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("keep me")
    with pytest.raises(InvalidInputError, match="is not an index of photos"):
        copy_photo_index(folder / ".logt", tmp_path / "full", overwrite=True)
    with pytest.raises(InvalidInputError, match="the index itself"):
        copy_photo_index(folder / ".logt", folder / ".logt" / "copy")
    copy_photo_index(folder / ".logt", tmp_path / "copy")
    with Lock(folder / ".logt"), pytest.raises(LockedError):
        copy_photo_index(tmp_path / "copy", folder / ".logt", overwrite=True)


def test_a_damaged_index_of_photos_is_not_copied(folder, tmp_path):
    damage(next((folder / ".logt").glob("vectors-*/segment-*")))
    with pytest.raises(CorruptIndexError, match="is damaged"):
        copy_photo_index(folder / ".logt", tmp_path / "new" / "copy")
    assert not (tmp_path / "new").exists()


def test_what_a_killed_copy_left_does_not_block_the_next(folder, tmp_path):
    copy_photo_index(folder / ".logt", tmp_path / "copy")
    (tmp_path / "copy" / "photos.json").unlink()  # it is written last
    copy_photo_index(folder / ".logt", tmp_path / "copy")
    assert len(Photos.open(tmp_path / "copy").index) == 5


def test_a_repaired_index_of_photos_reads_the_lost_ones_again(folder, logt):
    damage(next((folder / ".logt").glob("vectors-*/segment-*")))
    before = contents(folder / ".logt")
    printed = logt("repair", folder, ok=False)
    assert "a.png" in printed
    assert contents(folder / ".logt") == before
    assert "logt images index" in logt("repair", folder, "--yes")
    assert counts(update(folder)) == (5, 0, 0, 0, 0)
    assert finds_itself(Photos.open(folder), folder / "a.png")
