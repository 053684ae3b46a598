"""The catalog of an index of photos by itself."""

import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from logt.descriptors.image_io import ImageDetails
from logt.errors import CorruptIndexError
from logt.photos import catalog
from logt.photos.catalog import CATALOG_FILE, Catalog, FileStamp


@pytest.fixture
def filled(tmp_path):
    """A catalog of 20 photos; the first value of the descriptor of photo i is i."""
    with closing(Catalog(tmp_path)) as filled:
        photos = ((f"{i}.jpg", FileStamp(1, 1), np.array([i, 1]), ImageDetails(4, 3, "")) for i in range(20))
        filled.record(list(photos))
        yield filled


def test_a_catalog_has_all_tables_or_none(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "_TABLES", {"photos": catalog._TABLES["photos"], "wrong": "CREATE TABLE"})
        with pytest.raises(CorruptIndexError):
            Catalog(tmp_path)
    with closing(Catalog(tmp_path)) as new:
        assert new.count() == 0


def test_a_sample_of_descriptors_has_none_twice(filled):
    for limit, count in ((15, 15), (20, 20), (30, 20)):
        first = filled.sample_descriptors(limit, np.random.default_rng(0))[:, 0]
        assert len(set(first.tolist())) == len(first) == count


def test_descriptors_are_kept_until_they_are_not_needed(filled):
    filled.mark_indexed("a", drop_descriptors=False)
    assert [names for names, _ in filled.unindexed("b", 20)] == [sorted(f"{i}.jpg" for i in range(20))]
    filled.mark_indexed("b", drop_descriptors=True)
    assert list(filled.unindexed("c", 20)) == []
    assert len(filled.indexed_names("b")) == filled.count() == 20


def test_photos_without_a_vector_come_in_batches(filled):
    batches = list(filled.unindexed("a", 8))
    assert [len(names) for names, _ in batches] == [8, 8, 4]
    found = {name: float(x[0]) for names, X in batches for name, x in zip(names, X, strict=True)}
    assert found == {f"{i}.jpg": i for i in range(20)}


def test_what_is_removed_or_forgotten_leaves_nothing(filled, monkeypatch):
    photo = ("a.jpg", FileStamp(1, 1), np.array([20, 1]), ImageDetails(4, 3, ""))
    filled.record([photo], contents={"a.jpg": b"content"})
    filled.remove(["0.jpg"])
    filled.remember(["a.jpg"], None, None)
    filled.forget_removed()
    assert filled.stamps().keys() == {f"{i}.jpg" for i in range(1, 20)}
    assert filled.stamps("removed").keys() == filled.contents().keys() == {"a.jpg"}
    monkeypatch.setattr(catalog, "REMOVED_SECONDS", -1)
    filled.forget_removed()
    assert filled.stamps("removed").keys() == filled.contents().keys() == set()


def test_removed_photos_are_kept_for_30_days(filled, monkeypatch):
    now = 2_000_000_000
    monkeypatch.setattr(catalog, "time", SimpleNamespace(time=lambda: now))
    filled.remember(["0.jpg"], None, None)
    now += 30 * 24 * 3600
    filled.remember(["1.jpg"], None, None)
    filled.forget_removed()
    assert filled.stamps("removed").keys() == {"0.jpg", "1.jpg"}
    now += 1
    filled.forget_removed()
    assert filled.stamps("removed").keys() == {"1.jpg"}


def test_the_last_50_000_removed_photos_are_kept(filled):
    now, count = int(time.time()), 50_002
    rows = ((f"{i}.jpg", 1, 1, 4, 3, "", b"00", None, now - i) for i in range(count))
    with filled._connection as db:
        db.executemany("INSERT INTO removed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    filled.forget_removed()
    assert filled.stamps("removed").keys() == {f"{i}.jpg" for i in range(50_000)}


def test_without_vectors_photos_without_a_descriptor_are_read_again(filled):
    photo = ("dropped.jpg", FileStamp(1, 1), np.array([20, 1]), ImageDetails(4, 3, ""))
    filled.record([photo], keep_descriptors=False)
    filled.mark_indexed("a", drop_descriptors=False)
    filled.forget_vectors()
    assert filled.indexed_names("a") == set()
    assert filled.stamps().keys() == {f"{i}.jpg" for i in range(20)}


def test_only_photos_that_are_remembered_are_taken_back(filled):
    filled.remember(["0.jpg", "1.jpg"], None, None)
    stamp = FileStamp(1, 2)
    files = {"new.jpg": ("unknown.jpg", stamp, b"a"), "0.jpg": ("0.jpg", stamp, b"b")}
    assert filled.take_back(files, None) == ({"0.jpg"}, {})
    assert filled.contents() == {"0.jpg": b"b"}
    assert filled.stamps()["0.jpg"] == stamp
    assert filled.count() == 19
    assert filled.stamps("removed").keys() == {"1.jpg"}  # others may come back later
    filled.remove(["0.jpg"])
    assert filled.contents() == {}


def test_a_photo_that_a_killed_run_remembered_is_remembered_again(filled):
    filled.remember([], None, None, ["0.jpg"])  # to copy it
    filled.remember(["0.jpg"], None, None)
    assert filled.stamps("removed").keys() == {"0.jpg"}
    assert "0.jpg" not in filled.stamps()


def test_nobody_else_changes_a_note_meanwhile(filled, tmp_path):
    def change(value):
        connected = sqlite3.connect(tmp_path / CATALOG_FILE, timeout=0)
        with closing(connected) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO notes VALUES ('apart', '[]')")
        return [value, "changed"]

    filled.change_note("apart", change)
    assert filled.read_note("apart", list) == [None, "changed"]
    filled.change_note("apart", change)
    assert filled.read_note("apart", list) == [[None, "changed"], "changed"]


def test_a_damaged_catalog_is_closed_again(tmp_path, monkeypatch):
    opened, connect = [], catalog._connect
    monkeypatch.setattr(catalog, "_connect", lambda path: opened.append(connect(path)) or opened[-1])
    (tmp_path / CATALOG_FILE).write_text("{}")
    with pytest.raises(CorruptIndexError, match="is damaged"):
        Catalog(tmp_path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_catalog_that_another_program_holds_is_not_called_damaged(filled, tmp_path):
    filled._connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(tmp_path / CATALOG_FILE)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match=r"cannot use .*: database is locked"):
            filled.count()
    assert filled.count() == 20


def test_a_check_reads_more_than_the_rows(filled, tmp_path):
    filled.check()
    with (tmp_path / CATALOG_FILE).open("r+b") as file:
        file.seek(36)  # the number of pages that are free
        file.write((5).to_bytes(4))
    with closing(sqlite3.connect(tmp_path / CATALOG_FILE)) as db:
        assert db.execute("SELECT count(*) FROM photos").fetchone() == (20,)
    with closing(Catalog(tmp_path)) as damaged, pytest.raises(CorruptIndexError, match="freelist"):
        damaged.check()


def test_an_empty_file_is_a_new_catalog_only_for_a_writer(tmp_path):
    file = tmp_path / CATALOG_FILE
    file.touch()
    with pytest.raises(CorruptIndexError):
        Catalog(tmp_path, create=False)
    assert file.read_bytes() == b""
    Catalog(tmp_path).close()
    Catalog(tmp_path, create=False).close()
