"""What opening an index and refreshing it read: little, whatever was saved before."""

import os

import pytest
from exact_index import built

import logt
from logt.errors import CorruptIndexError
from logt.storage import changes
from logt.storage.repair import repair


@pytest.fixture
def path(tmp_path, vectors):
    """A saved index of 30 vectors."""
    built(vectors(30, 8)).save(tmp_path / "index")
    return tmp_path / "index"


def log_of(path):
    (log,) = path.glob("changes-*.log")
    return log


def test_long_strings_count_like_all_that_is_logged(path, vectors, monkeypatch):
    built(vectors(30, 8), ids=[f"v{n}" for n in range(30)]).save(path, overwrite=True)
    monkeypatch.setattr(changes, "MAX_LOG", 20_000)
    with logt.open(path, mode="a") as index:
        for n in range(8):
            index.add(vectors(1, 8, seed=n), ids=[f"{n}" + "ü" * 3000])
            index.save()
            assert sum(log.stat().st_size for log in path.glob("changes-*.log")) <= 20_000
            assert set(logt.open(path).ids) == set(index.ids)
        monkeypatch.setattr(changes, "MAX_PENDING", 5000)
        index.add(vectors(1, 8, seed=50), ids=["ü" * 3000])
        assert index._pending.changes is None


def test_a_refresh_reads_the_log_from_the_last_record_that_it_knows(path, vectors, monkeypatch):
    read, real = [], changes.read_bytes
    monkeypatch.setattr(changes, "read_bytes", lambda *given: read.append(real(*given)) or read[-1])
    with logt.open(path, mode="a") as index:
        reader, sizes = logt.open(path), [0]
        for seed in range(4):
            index.add(vectors(2, 8, seed=seed))
            index.save()
            sizes.append(log_of(path).stat().st_size)
            assert reader.refresh()
            assert len(read[-1]) == sizes[-1] - sizes[max(seed - 1, 0)]
        assert set(reader.ids.tolist()) == set(index.ids.tolist())


def test_a_log_that_is_larger_than_logt_writes_is_not_read_and_can_be_repaired(path, vectors):
    with logt.open(path, mode="a") as index:
        index.add(vectors(2, 8, seed=1))
        index.save()
    os.truncate(log_of(path), 1 << 30)
    with pytest.raises(CorruptIndexError, match="has more than"):
        logt.open(path)
    repair(path, logt.open)
    assert len(logt.open(path)) == 30
