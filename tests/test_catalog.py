"""The catalog of an index of photos by itself."""

import sqlite3
from contextlib import closing

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
