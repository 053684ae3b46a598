"""What opening an index and refreshing it read: little, whatever was saved before."""

import os
import shutil

import numpy as np
import pytest
from exact_index import built
from faults import TORTURE

import logt
from logt.engine.string_ids import Layer
from logt.errors import CorruptIndexError
from logt.lists import repeating
from logt.lists.codec import Codec
from logt.storage import changes, files
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


def cost_of_opening(path, monkeypatch):
    """The bytes of the files that are opened and the changes that are repeated; computing codes is an error."""
    read, repeated = [], []
    real, repeat = files.open_regular, logt.Index._repeated
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_regular", lambda file: read.append(file.stat().st_size) or real(file))
        patch.setattr(logt.Index, "_repeated", lambda *given: repeated.append(len(given[2])) or repeat(*given))
        for name in ("train", "encode"):
            patch.setattr(Codec, name, None)
        for name in ("calibrate", "calibrate_changed"):
            patch.setattr(f"logt.lists.method.{name}", None)
        logt.open(path).verify()
    return sum(read), sum(repeated)


@pytest.mark.parametrize("seed", range(20 if TORTURE else 2))
def test_opening_after_any_history_reads_at_most_twice_what_it_reads_after_compact(tmp_path, monkeypatch, seed):
    """And a log of a limited size, of which it repeats a limited number of changes."""
    monkeypatch.setattr(changes, "MAX_LOG", 50_000)
    rng, path = np.random.default_rng(seed), tmp_path / "index"
    built(rng.standard_normal((1500, 16))).save(path)
    with logt.open(path, mode="a") as index:
        for step in range(30):
            kind = rng.choice(["add", "remove", "upsert"], p=[0.6, 0.2, 0.2])
            X = rng.standard_normal((min(int(rng.choice([1, 30, 400])), len(index) // 3), 16))
            some = rng.choice(index.ids, len(X), replace=False)
            if kind == "remove":
                index.remove(some)
            elif kind == "upsert":
                index.upsert(X, some)
            else:
                index.add(X)
            index.save()
            if step % 6 == 5:
                compacted = shutil.copytree(path, tmp_path / f"compacted{step}")
                with logt.open(compacted, mode="a") as other:
                    other.compact()
                    other.save()
                nbytes, repeated = cost_of_opening(path, monkeypatch)
                assert repeated <= changes.MAX_CHANGES
                assert nbytes <= 2 * cost_of_opening(compacted, monkeypatch)[0] + changes.MAX_LOG


def test_a_log_has_at_most_a_part_of_the_bytes_of_the_index(path, vectors, monkeypatch):
    monkeypatch.setattr(changes, "MIN_LOG", 1000)
    built(vectors(20_000, 16)).save(path, overwrite=True)
    stored = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    assert changes.MIN_LOG < (limit := stored // changes.LOG_SHARE) < changes.MAX_LOG
    sizes = []
    with logt.open(path, mode="a") as index:
        for seed in range(12):
            index.add(vectors(100, 16, seed=seed))
            index.save()
            sizes.append(sum(log.stat().st_size for log in path.glob("changes-*.log")))
    assert 0 < max(sizes) <= limit * 1.1  # files have been added
    assert 0 in sizes


def test_repeating_a_log_makes_each_segment_once_and_builds_no_table_of_strings(path, vectors, monkeypatch):
    names = [f"v{n}" for n in range(600)]
    built(vectors(600, 8), ids=names).save(path, overwrite=True)
    with logt.open(path, mode="a") as index:
        for n in range(changes.MAX_CHANGES // 4):
            index.add(vectors(2, 8, seed=n), ids=[f"new {n}", f"newer {n}"])
            index.save()
            index.upsert(vectors(2, 8, seed=n + 50), names[3 * n : 3 * n + 2])
            index.remove([f"new {n}"])
            index.save()
    made, real = [], repeating.merge_segments
    monkeypatch.setattr(repeating, "merge_segments", lambda *given: made.append(given) or real(*given))
    monkeypatch.setattr(Layer, "lookup", None)
    opened = logt.open(path)
    assert len(made) == len(opened._snapshot.segments) - 1  # and the first one is as it was
    assert set(opened.ids) == set(index.ids)
