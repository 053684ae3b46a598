"""Indexes of photos with a crafted catalog or progress: typed errors, no endless work, no changes elsewhere."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
from contextlib import closing

import pytest
from drawn_images import counts, draw_folder
from server_testing import API, open_client

from logt.errors import CorruptIndexError
from logt.photos import update
from logt.photos.catalog import CATALOG_FILE
from logt.photos.progress_file import PROGRESS_FILE, published_progress, read_progress
from logt.server.photo_collection import open_collection

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS name FROM c WHERE x < 0"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory, small):
    folder = draw_folder(tmp_path_factory.mktemp("crafted") / "photos")
    update(folder, model=small)
    return folder


@pytest.fixture
def folder(indexed, tmp_path):
    return shutil.copytree(indexed, tmp_path / "photos")


def change_catalog(folder, sql):
    with closing(sqlite3.connect(folder / ".logt" / CATALOG_FILE)) as db:
        db.executescript(sql)


def statuses(folder):
    with open_client(open_collection(folder)) as client:
        return {client.get(path).status_code for path in (f"{API}/info", f"{API}/photos", "/", "/?order=folder")}


@pytest.mark.parametrize(
    "sql",
    [
        f"ALTER TABLE pictures RENAME TO p; CREATE VIEW pictures AS {ENDLESS}",
        f"DROP TABLE details; CREATE VIEW details AS {ENDLESS}",
        f"CREATE TRIGGER t AFTER DELETE ON pictures BEGIN DELETE FROM notes WHERE note IN ({ENDLESS}); END",
        "DROP TABLE others; CREATE VIRTUAL TABLE others USING fts5(name, bytes, changed)",
        "ALTER TABLE pictures RENAME COLUMN bytes TO b",
        "UPDATE pictures SET name = x'ff' || name WHERE rowid = 1; UPDATE pictures SET name = x'ff' WHERE rowid = 1",
        "UPDATE pictures SET name = NULL WHERE rowid = 1",
        "CREATE INDEX i ON pictures (bytes)",
    ],
)
def test_a_catalog_with_anything_but_its_tables_is_damaged(folder, sql):
    change_catalog(folder, sql)
    for use in (open_collection, update):
        with pytest.raises(CorruptIndexError, match=r"catalogue\.sqlite is damaged: "):
            use(folder)
    assert counts(update(folder, rebuild=True)) == (5, 0, 0, 0, 0)
    assert statuses(folder) == {200}


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE details SET width = '<b>'",
        "UPDATE details SET height = x'ff'",
        "UPDATE details SET width = 1.5",
        "UPDATE pictures SET changed = 'x'",
        "UPDATE pictures SET bytes = x'00'",
        "UPDATE details SET taken = CAST(x'ff' AS TEXT)",
        "DROP TABLE pictures",
    ],
)
def test_values_of_the_wrong_type_are_damage(folder, sql):
    change_catalog(folder, sql)
    with pytest.raises(CorruptIndexError, match=r"catalogue\.sqlite is damaged: .*logt images index --rebuild"):
        open_collection(folder)
    update(folder, rebuild=True)
    assert statuses(folder) == {200}


@pytest.mark.parametrize(
    "taken", ["'not a date'", "7", "x'ff00'", "'99999999999-01-01'", "'2020-13-01T00:00:00'", "'2020-W01-1T00:00:00'"]
)
def test_a_date_that_is_none_is_left_out(folder, taken):
    change_catalog(folder, f"UPDATE details SET taken = {taken}")
    assert statuses(folder) == {200}
    assert counts(update(folder)) == (0, 0, 0, 5, 0)


@pytest.mark.parametrize("raw", ["x'00'", "'text'"])
def test_a_damaged_descriptor_is_a_typed_error(folder, raw):
    change_catalog(folder, f"UPDATE pictures SET raw = {raw}, vectors = NULL WHERE rowid = 1")
    with pytest.raises(CorruptIndexError, match=r"descriptor in .* is damaged"):
        update(folder)


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_catalog_that_is_a_link_is_refused(folder, tmp_path, suffix, exists):
    file, victim = folder / ".logt" / f"{CATALOG_FILE}{suffix}", tmp_path / "victim"
    if exists:
        victim.write_bytes(b"")
    file.unlink(missing_ok=True)
    file.symlink_to(victim)
    with pytest.raises(CorruptIndexError, match="not a regular file"):
        update(folder)
    assert victim.exists() is exists
    assert not exists or victim.read_bytes() == b""


def test_a_journal_does_not_delete_the_file_that_it_names(folder, tmp_path):
    """SQLite deletes the journal of several files that a crafted journal of one of them names."""
    (tmp_path / "victim").write_bytes(b"mine\0")
    name, magic = os.fsencode(tmp_path / "victim"), bytes.fromhex("d9d505f920a163d7")
    header = magic + (0).to_bytes(4) + bytes(4) + (1).to_bytes(4) + (512).to_bytes(4) + (4096).to_bytes(4)
    end = (1 << 18).to_bytes(4) + name + len(name).to_bytes(4) + sum(name).to_bytes(4) + magic
    (folder / ".logt" / f"{CATALOG_FILE}-journal").write_bytes(header.ljust(512, b"\0") + end)
    for use in (open_collection, update):
        with pytest.raises(CorruptIndexError, match="names another file"):
            use(folder)
    assert (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    "values",
    [
        {"pid": 10**30},
        {"pid": 1 << 31},
        {"pid": "1"},
        {"done": float("inf")},
        {"done": 10**3000},
        {"total": 1.5},
        {"what": ["x"]},
        "[" * 4000,
        "9" * 4000,
    ],
)
def test_a_damaged_progress_is_no_progress(folder, values):
    right = {"host": platform.node(), "pid": os.getpid(), "what": "indexing", "done": 1, "total": 2}
    file = folder / ".logt" / PROGRESS_FILE
    file.write_text(json.dumps(right))
    assert read_progress(file.parent) == ("indexing", 1, 2)
    file.write_text(values if isinstance(values, str) else json.dumps({**right, **values}))
    assert read_progress(file.parent) is None
    assert statuses(folder) == {200}


def test_a_pipe_in_the_place_of_the_progress_is_no_progress(folder):
    os.mkfifo(folder / ".logt" / PROGRESS_FILE)
    assert read_progress(folder / ".logt") is None
    assert statuses(folder) == {200}


def test_the_progress_is_not_written_through_a_link(folder, tmp_path):
    (tmp_path / "victim").write_text("mine")
    (folder / ".logt" / f".{PROGRESS_FILE}.tmp").symlink_to(tmp_path / "victim")
    with published_progress(folder / ".logt", None) as report:
        report("indexing", 1, 2)
        assert read_progress(folder / ".logt") == ("indexing", 1, 2)
    assert (tmp_path / "victim").read_text() == "mine"
