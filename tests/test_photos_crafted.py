"""Indexes of photos with a crafted catalog or progress: typed errors, no endless work, no changes elsewhere."""

import json
import os
import platform
import sqlite3
from contextlib import closing

import pytest
from drawn_photos import counts
from server_testing import API, open_client

from logt.errors import CorruptIndexError
from logt.photos import Photos, update
from logt.photos.catalog import CATALOG_FILE, CATALOG_FILES
from logt.photos.progress_file import PROGRESS_FILE, published_progress, read_progress
from logt.server.photo_collection import open_collection

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS name FROM c WHERE x < 0"


def change_catalog(album, sql):
    with closing(sqlite3.connect(album / ".logt" / CATALOG_FILE)) as db:
        db.executescript(sql)


def statuses(album):
    with open_client(open_collection(album)) as client:
        return {client.get(path).status_code for path in (f"{API}/info", f"{API}/photos", "/", "/?order=folder")}


@pytest.mark.parametrize(
    "sql",
    [
        f"ALTER TABLE photos RENAME TO p; CREATE VIEW photos AS {ENDLESS}",
        f"DROP TABLE others; CREATE VIEW others AS {ENDLESS}",
        f"CREATE TRIGGER photos AFTER DELETE ON photos BEGIN DELETE FROM notes WHERE name IN ({ENDLESS}); END",
        "DROP TABLE others; CREATE VIRTUAL TABLE others USING fts5(name, size, mtime_ns)",
        "ALTER TABLE photos RENAME COLUMN size TO s",
        "UPDATE photos SET name = x'ff' || name WHERE rowid = 1; UPDATE photos SET name = x'ff' WHERE rowid = 1",
        "UPDATE photos SET name = NULL WHERE rowid = 1",
        "CREATE INDEX i ON photos (size)",
        "DROP TABLE photos",
        "UPDATE photos SET width = '<b>'",
        "UPDATE photos SET height = x'ff'",
        "UPDATE photos SET width = 1.5",
        "UPDATE photos SET mtime_ns = 'x'",
        "UPDATE photos SET taken = CAST(x'ff' AS TEXT)",
    ],
)
def test_a_catalog_with_other_tables_or_types_is_damaged(album, sql):
    change_catalog(album, sql)
    with pytest.raises(CorruptIndexError, match=r"catalog\.sqlite is damaged: .*logt images index --rebuild"):
        open_collection(album)
    assert counts(update(album, rebuild=True)) == (5, 0, 0, 0, 0)
    assert statuses(album) == {200}


def test_a_date_that_is_none_is_left_out(album):
    wrong = ["'not a date'", "x'ff00'", "'99999999999-01-01'", "'2020-13-01T00:00:00'", "'2020-W01-1T00:00:00'"]
    for row, taken in enumerate(wrong, 1):
        change_catalog(album, f"UPDATE photos SET taken = {taken} WHERE rowid = {row}")
    assert statuses(album) == {200}
    assert {photo.taken for photo in Photos.open(album).details()} == {""}


def test_a_damaged_descriptor_is_a_typed_error(album):
    for descriptor in ("x'00'", "'text'"):
        change_catalog(album, f"UPDATE photos SET descriptor = {descriptor}, whitening = NULL WHERE rowid = 1")
        with pytest.raises(CorruptIndexError, match=r"descriptor in .* is damaged"):
            update(album)


@pytest.mark.parametrize("file", CATALOG_FILES)
def test_a_catalog_that_is_a_link_is_refused(album, tmp_path, file):
    (album / ".logt" / file).unlink(missing_ok=True)
    (album / ".logt" / file).symlink_to(tmp_path / "victim")
    for is_new in (True, False):
        with pytest.raises(CorruptIndexError, match="not a regular file"):
            update(album)
        assert not is_new or not (tmp_path / "victim").exists()
        (tmp_path / "victim").touch()
    assert (tmp_path / "victim").read_bytes() == b""


def test_a_journal_does_not_delete_the_file_that_it_names(album, tmp_path):
    """SQLite deletes the journal of several files that a crafted journal of one of them names."""
    (tmp_path / "victim").write_bytes(b"mine\0")
    name, magic = os.fsencode(tmp_path / "victim"), bytes.fromhex("d9d505f920a163d7")
    header = magic + (0).to_bytes(4) + bytes(4) + (1).to_bytes(4) + (512).to_bytes(4) + (4096).to_bytes(4)
    end = (1 << 18).to_bytes(4) + name + len(name).to_bytes(4) + sum(name).to_bytes(4) + magic
    (album / ".logt" / f"{CATALOG_FILE}-journal").write_bytes(header.ljust(512, b"\0") + end)
    for use in (open_collection, update):
        with pytest.raises(CorruptIndexError, match="names another file"):
            use(album)
    assert (tmp_path / "victim").exists()


def test_a_damaged_progress_is_no_progress(album):
    right = {"host": platform.node(), "pid": os.getpid(), "what": "indexing", "done": 1, "total": 2}
    wrong = [{"pid": 10**30}, {"pid": 1 << 31}, {"pid": "1"}, {"done": float("inf")}, {"done": 1 << 31}, {"done": -1}]
    wrong += [{"done": 10**3000}, {"total": 1.5}, {"what": ["x"]}]
    file = album / ".logt" / PROGRESS_FILE
    file.write_text(json.dumps(right))
    assert read_progress(file.parent) == ("indexing", 1, 2)
    for text in ("[" * 4000, "9" * 4000, *(json.dumps({**right, **values}) for values in wrong)):
        file.write_text(text)
        assert read_progress(file.parent) is None
    file.unlink()
    os.mkfifo(file)
    assert read_progress(file.parent) is None
    assert statuses(album) == {200}


def test_the_progress_is_not_written_through_a_link(album, tmp_path):
    (tmp_path / "victim").write_text("mine")
    (album / ".logt" / f".{PROGRESS_FILE}.tmp").symlink_to(tmp_path / "victim")
    with published_progress(album / ".logt", None) as report:
        report("indexing", 1, 2)
        assert read_progress(album / ".logt") == ("indexing", 1, 2)
    assert (tmp_path / "victim").read_text() == "mine"
