import copy
import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exact_index import built
from faults import FailingOs, contents, damage, die_at, every, killed_in_child

import logt
from logt import CorruptIndexError, FormatVersionError, InvalidInputError
from logt.distributed.build import _open_target
from logt.methods import compact, lo_gt, sketched, starred
from logt.storage import files, locations
from logt.storage.backup import copy_index

METHODS = {"lo_gt": starred(compact(lo_gt(n=5, m=2, L=4))), "sketched": sketched()}


@pytest.fixture(scope="module", params=METHODS)
def whole(request, vectors, tmp_path_factory):
    """A saved index of 30 vectors in two segments."""
    index = built(vectors(30, 8), method=METHODS[request.param], metric="l2", segment_size=20)
    folder = tmp_path_factory.mktemp(request.param) / "index"
    index.save(folder)
    return folder


def test_every_flipped_byte_is_noticed(saved):
    for path in sorted(saved.glob("*.*s*")):
        data = path.read_bytes()
        for at in every(len(data), 31):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
            with pytest.raises((CorruptIndexError, FormatVersionError)):
                logt.open(saved)
        path.write_bytes(data)
    assert len(logt.open(saved)) == 30


def test_invalid_input_for_a_target_removes_a_folder_that_is_new_and_no_other(saved, tmp_path):
    for target, remains in ((tmp_path / "new", False), (saved, True)):
        with pytest.raises(InvalidInputError, match="row 3"), _open_target(target, overwrite=True):
            raise InvalidInputError("row 3")
        assert target.exists() == remains
    with pytest.raises(InvalidInputError, match="is an index"), _open_target(saved, overwrite=False):
        pass
    assert len(logt.open(saved, "a")) == 30  # not locked any more


def test_a_writer_removes_what_a_killed_one_left_and_nothing_else(saved):
    (saved / ".manifest.json.7.tmp").touch()
    (saved / ".letter.7.tmp").touch()
    logt.open(saved, "a").close()
    assert [path.name for path in saved.glob(".*.tmp")] == [".letter.7.tmp"]


def test_every_truncation_is_noticed(saved):
    for path in sorted(saved.glob("*.*s*")):
        data = path.read_bytes()
        for length in every(len(data), 61):
            path.write_bytes(data[:length])
            with pytest.raises(CorruptIndexError):
                logt.open(saved)
        path.write_bytes(data)


@pytest.mark.parametrize("name", ["manifest.json", "segment"])
def test_a_missing_file_or_a_pipe_in_its_place_is_noticed(saved, name):
    path = next(saved.glob(f"{name}*"))
    path.unlink()
    with pytest.raises((CorruptIndexError, FileNotFoundError), match=r"is missing|has no manifest"):
        logt.open(saved)
    os.mkfifo(path)
    with pytest.raises(CorruptIndexError, match="not a regular file"):
        logt.open(saved)


def test_a_newer_format_is_refused_by_name_and_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr("logt.storage.writing.FORMAT", 99)
    logt.Index(8).save(tmp_path / "index")
    monkeypatch.undo()
    for call in (logt.open, logt.Index(8).save):
        with pytest.raises(FormatVersionError, match="format 99"):
            call(tmp_path / "index")


@pytest.mark.parametrize("damaged", ["manifest", "segment"])
def test_a_damaged_index_can_be_overwritten(saved, damaged):
    path = next(saved.glob(f"{damaged}*"))
    path.write_bytes(path.read_bytes()[::-1])
    built(np.eye(8)).save(saved, overwrite=True)
    assert len(logt.open(saved)) == 8


@pytest.mark.parametrize("lost", [True, False])
def test_a_damaged_index_is_overwritten_on_request_only(saved, lost):
    manifest = saved / "manifest.json"
    manifest.unlink() if lost else damage(manifest)
    before = contents(saved)
    with pytest.raises(InvalidInputError, match=r"another index; .* restore a backup"):
        built(np.eye(8)).save(saved)
    with pytest.raises(InvalidInputError, match="is an index"), _open_target(saved, overwrite=False):
        pass
    with pytest.raises(InvalidInputError, match="is an index"):
        copy_index(GOLDEN[0], saved)
    assert contents(saved) == before
    built(np.eye(8)).save(saved, overwrite=True)
    assert len(logt.open(saved)) == 8


def test_a_path_without_an_index_is_reported_and_nothing_is_created(tmp_path):
    (tmp_path / "file").write_text("x")
    for name in ("nowhere", "file"):
        for mode in ("r", "a"):
            with pytest.raises(FileNotFoundError, match="holds no index"):
                logt.open(tmp_path / name, mode)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_of_other_files_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InvalidInputError, match="not an index"):
        logt.Index(8).save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_other_files_are_neither_removed_nor_overwritten(saved, tmp_path):
    (saved / "notes.safetensors").write_text("mine")
    logt.Index(8).save(saved, overwrite=True)
    assert sorted(path.name for path in saved.iterdir()) == [".lock", "manifest.json", "notes.safetensors"]
    assert (saved / "notes.safetensors").read_text() == "mine"
    other = tmp_path / "webapp"
    other.mkdir()
    (other / "manifest.json").write_text('{"name": "app"}')
    (other / "model.safetensors").write_text("weights")
    with pytest.raises(InvalidInputError, match="not an index"):
        logt.Index(8).save(other)
    assert (other / "model.safetensors").read_text() == "weights"


def test_saving_again_writes_only_what_is_new(saved, vectors):
    before = {path.name: path.stat().st_mtime_ns for path in saved.glob("*.safetensors")}
    with logt.open(saved, mode="a") as index:
        index.add(vectors(5, 8, seed=3))
        index._pending.rewrite()  # so that they are in files, not in the log
        index.save(saved)
    after = {path.name: path.stat().st_mtime_ns for path in saved.glob("*.safetensors")}
    kept = [name for name in before if not name.startswith(("segment", "refinement"))]
    assert kept
    assert before.items() & after.items() >= {(name, before[name]) for name in kept}
    assert len(logt.open(saved)) == 35


CHANGES = {
    "add": (errno.ENOSPC, lambda index: index.add(np.eye(8)[:5])),
    "remove": (errno.EIO, lambda index: index.remove([3, 25])),
    "compact": (errno.ENOSPC, lambda index: (index.remove(range(0, 30, 2)), index.compact())),
    "upsert": (errno.EIO, lambda index: index.upsert(np.eye(8)[:2], [4, 99])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_failed_save_keeps_the_old_index(saved, tmp_path, monkeypatch, change):
    """The n-th open, write, fsync or rename fails, for every n: the old or the new state opens, and can be saved."""
    error, make = CHANGES[change]
    for n in itertools.count():
        folder = shutil.copytree(saved, tmp_path / f"{n}")
        with logt.open(folder, mode="a") as index:
            make(index)
            failing = FailingOs(n, error)
            with monkeypatch.context() as patch:
                patch.setattr(files, "os", failing)
                if failing_save(index):
                    assert failing.failed
            left = logt.open(folder)
            assert sorted(left.ids.tolist()) in (list(range(30)), sorted(index.ids.tolist()))
            assert left.search(np.ones(8), 99).counts == len(left)
            index.save()
            assert sorted(logt.open(folder).ids.tolist()) == sorted(index.ids.tolist())
            assert not list(folder.glob(".*.tmp"))
        if not failing.failed:
            assert n > 5
            break


def test_a_first_save_that_failed_can_be_repeated(tmp_path, vectors, monkeypatch):
    index = built(vectors(30, 8), method=lo_gt(n=5, m=2, L=4))
    failures = 0
    for n in range(100):
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", FailingOs(n, errno.ENOSPC))
            if not failing_save(index, tmp_path / "index"):
                break
            failures += 1
    assert failures > 5
    assert len(logt.open(tmp_path / "index")) == 30


def test_a_first_save_that_was_killed_can_be_repeated_by_another_index(tmp_path, vectors):
    index = built(vectors(30, 8), method=lo_gt(n=5, m=2, L=4))
    for n in itertools.count():
        path = tmp_path / f"{n}"
        killed_in_child(lambda path=path, n=n: (die_at(n), index.save(path)))
        if (path / "manifest.json").exists():
            break
        copy.copy(index).save(path)
        assert len(logt.open(path)) == 30
        assert not (path / ".unfinished").exists()
    assert n > 5


def failing_save(index, path=None):
    try:
        index.save(path)
    except OSError:
        return True
    return False


GOLDEN = sorted(path.with_suffix("") for path in (Path(__file__).parent / "golden").glob("format-*/*.json"))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_indexes_of_this_format_stay_readable(golden):
    """Written once by make_golden.py; every later version reads them and gives the same results."""
    index = logt.open(golden)
    expected = json.loads(golden.with_suffix(".json").read_text())
    scores, ids = index.search(np.array(expected["queries"]), 10)
    assert ids.tolist() == expected["ids"]
    assert np.allclose(scores, expected["scores"], atol=1e-5)
    assert repr(index.method) == expected["method"]


def test_an_opened_index_writes_only_what_has_changed(saved, vectors, monkeypatch):
    with logt.open(saved, "a") as writer:
        writer.remove([1])
        writer._pending.rewrite()  # the removal is in a file
        writer.save()
    written, real = [], locations.LocalLocation.write
    monkeypatch.setattr(
        locations.LocalLocation, "write", lambda self, name, data: written.append(name) or real(self, name, data)
    )
    with logt.open(saved, "a") as writer:
        writer.add(vectors(20, 8, seed=3))
        writer._pending.rewrite()
        writer.save()
    kinds = [name.split("-")[0] for name in written if name != "manifest.json"]
    assert sorted(set(kinds)) == sorted(kinds)  # one segment, with at most one model and one refinement
    assert "removed" not in kinds


def test_a_lock_that_could_not_be_taken_over_is_free(saved, monkeypatch):
    reader = logt.open(saved)
    monkeypatch.setattr(logt.Index, "refresh", None)
    with pytest.raises(TypeError):
        reader.lock()
    monkeypatch.undo()
    logt.open(saved, "a").close()


def test_an_index_open_for_reading_can_be_locked_and_is_not_read_again(saved, vectors, monkeypatch):
    X, names = vectors(70, 8, seed=1), [path.name for path in saved.iterdir()]
    reader = logt.open(saved)
    with logt.open(saved, "a") as writer:
        writer.add(X[:10])
        writer.save()
        with pytest.raises(logt.LockedError):
            reader.lock()
        assert len(reader) == 30
    read, real = [], files.open_regular
    monkeypatch.setattr(files, "open_regular", lambda path: read.append(path.name) or real(path))
    reader.lock()
    assert len(reader) == 40
    assert not set(read) & set(names) - {"manifest.json"}  # the files of new segments at most
    reader.add(X[10:20])
    reader.save()
    with pytest.raises(logt.LockedError):
        logt.open(saved, "a")
    reader.close()
    reader.lock()
    reader.add(X[20:])
    reader.save()
    reader.close()
    monkeypatch.undo()
    assert len(logt.open(saved)) == 100
    assert np.array_equal(logt.open(saved).search(X, 5).ids, reader.search(X, 5).ids)


def test_changes_that_were_not_saved_are_lost_when_an_index_is_locked_again(saved, vectors):
    with pytest.raises(logt.InvalidInputError, match="opened from a folder"):
        logt.Index(8).lock()
    index = logt.open(saved, "a")
    for change in (lambda: index.add(vectors(5, 8, seed=1)), index.compact):
        change()
        index.close()
        index.lock()
        assert len(index) == 30
    index.lock()
    index.remove([3])
    index.save()
    assert len(logt.open(saved)) == 29
    index.close()


def test_without_file_locks_an_index_is_read_and_a_writer_gets_a_clear_error():
    folder = str(GOLDEN[0])
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "import logt\n"
        f"assert len(logt.open({folder!r})) == 47\n"
        f"logt.open({folder!r}, mode='a')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this system has no file locks; indexes can only be read here" in done.stderr.splitlines()[-1]
