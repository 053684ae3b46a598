from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import logt
from logt import CorruptIndexError, FormatVersionError, InvalidInputError
from logt.methods import compact, lo_gt, sketched, starred
from logt.storage import files


@pytest.fixture(params=[starred(compact(lo_gt(n=5, m=2, L=4))), sketched()], ids=["lo_gt", "sketched"])
def saved(request, vectors, tmp_path):
    index = logt.Index(8, method=request.param, metric="l2", segment_size=20)
    index.add(vectors(30, 8))
    index.save(tmp_path / "index")
    return tmp_path / "index"


def test_every_flipped_byte_is_noticed(saved):
    for path in sorted(saved.glob("*.*s*")):
        data = path.read_bytes()
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
            with pytest.raises((CorruptIndexError, FormatVersionError)):
                logt.open(saved)
        path.write_bytes(data)
    assert len(logt.open(saved)) == 30


def test_every_truncation_is_noticed(saved):
    for path in sorted(saved.glob("*.*s*")):
        data = path.read_bytes()
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(CorruptIndexError):
                logt.open(saved)
        path.write_bytes(data)


def test_a_missing_file_is_noticed(saved):
    next(saved.glob("segment-*")).unlink()
    with pytest.raises(CorruptIndexError, match="is missing"):
        logt.open(saved)


def test_a_newer_format_is_refused_by_name_and_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr("logt.storage.writing.FORMAT", 99)
    logt.Index(8).save(tmp_path / "index")
    monkeypatch.undo()
    for call in (logt.open, logt.Index(8).save):
        with pytest.raises(FormatVersionError, match="format 99"):
            call(tmp_path / "index")


def test_a_damaged_index_can_be_overwritten(saved):
    (saved / "manifest.json").write_text("{")
    logt.Index(8).save(saved)
    assert len(logt.open(saved)) == 0


def test_a_wrong_manifest_with_a_right_checksum_is_refused(saved):
    """Checksums guard against accidents; what is read is checked all the same before a kernel sees it."""
    text = json.loads((saved / "manifest.json").read_text())
    manifest = text["manifest"]
    a, b = manifest["segments"][0], manifest["segments"][1]
    lies = [
        {"settings": {"dim": 9}},
        {"settings": {"dim": -1}},
        {"settings": {"unknown": 1}},
        {"settings": {"next_id": 3}},
        {"settings": {"next_id": "x"}},
        {"settings": {"metric": "cosine"}},
        {"generation": "1"},
        {"generation": 1.5},
        {"method": {"stage": "Path"}},
        {"method": {"stage": "Random", "n": 5}},
        {"segments": [{**a, "model": a["segment"]}]},
        {"segments": [{**a, "segment": a["model"]}]},
        {"models": {a["model"]: "Float32Codebook", b["model"]: "Float32Codebook"}},
        {"models": {a["model"]: "os", b["model"]: "os"}},
        {"segments": [{**a, "segment": "../../etc/passwd"}]},
        {"segments": [b, {}]},
        {"segments": [a, a]},
        {"segments": [{**a, "removed": "none"}]},
        {"strings": [a["model"]]},
        {"strings": a["model"]},
        {"segments": 7},
        {"files": []},
        {"files": {"/etc/passwd": {"bytes": 1, "checksum": ""}}},
    ]
    for change in lies:
        wrong = dict(manifest)
        for key, value in change.items():
            wrong[key] = {**manifest[key], **value} if isinstance(value, dict) and key != "method" else value
        sign(saved, wrong)
        with pytest.raises(CorruptIndexError):
            logt.open(saved)


def test_codes_of_unknown_units_are_refused(vectors, tmp_path):
    index = logt.Index(8, method=lo_gt(n=5, m=2, L=4))
    index.add(vectors(30, 8))
    codes = index._snapshot.segments[0].codes
    codes.unit[3] = 60_000
    index.save(tmp_path / "index")
    with pytest.raises(CorruptIndexError, match="memory vector that does not exist"):
        logt.open(tmp_path / "index")


def test_a_folder_without_an_index_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no index"):
        logt.open(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError, match="holds no index"):
        logt.open(tmp_path / "file")


def test_a_folder_of_other_files_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InvalidInputError, match="not an index"):
        logt.Index(8).save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_first_save_that_failed_can_be_repeated(tmp_path, vectors, monkeypatch):
    index = logt.Index(8, method=lo_gt(n=5, m=2, L=4))
    index.add(vectors(30, 8))
    failures = 0
    for n in range(100):
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", FailingOs(n, errno.ENOSPC))
            try:
                index.save(tmp_path / "index")
                break
            except OSError:
                failures += 1
    assert failures > 5
    assert len(logt.open(tmp_path / "index")) == 30


def test_other_files_are_neither_removed_nor_overwritten(saved, tmp_path):
    (saved / "notes.safetensors").write_text("mine")
    logt.Index(8).save(saved)
    assert (saved / "notes.safetensors").read_text() == "mine"
    other = tmp_path / "webapp"
    other.mkdir()
    (other / "manifest.json").write_text('{"name": "app"}')
    (other / "model.safetensors").write_text("weights")
    with pytest.raises(InvalidInputError, match="not an index"):
        logt.Index(8).save(other)
    assert (other / "model.safetensors").read_text() == "weights"


def test_opening_a_missing_path_creates_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        logt.open(tmp_path / "typo", mode="a")
    assert not (tmp_path / "typo").exists()


def test_saving_again_writes_only_what_is_new(saved, vectors):
    index = logt.open(saved, mode="a")
    before = {path.name: path.stat().st_mtime_ns for path in saved.glob("*.safetensors")}
    index.add(vectors(5, 8, seed=3))
    index.save(saved)
    after = {path.name: path.stat().st_mtime_ns for path in saved.glob("*.safetensors")}
    assert before.items() <= after.items()
    assert len(logt.open(saved)) == 35


def test_saving_another_index_removes_the_files_of_the_old_one(saved, vectors):
    logt.Index(8).save(saved)
    assert sorted(path.name for path in saved.iterdir()) == [".lock", "manifest.json"]


class FailingOs:
    """The module os, whose n-th call that touches the disk fails."""

    def __init__(self, n, error):
        self.left, self.error, self.failed = n, error, False

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("open", "write", "fsync", "replace"):
            return real

        def call(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                self.failed = True
                raise OSError(self.error, os.strerror(self.error))
            return real(*args, **kwargs)

        return call


CHANGES = {
    "add": lambda index: index.add(np.eye(8)[:5]),
    "remove": lambda index: index.remove([3, 25]),
    "compact": lambda index: (index.remove(range(0, 30, 2)), index.compact()),
    "upsert": lambda index: index.upsert(np.eye(8)[:2], [4, 99]),
}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("change", CHANGES)
def test_a_failed_save_keeps_the_old_index(saved, monkeypatch, change, error):
    """The n-th open, write, fsync or rename fails, for every n: the old or the new state opens, and can be saved."""
    whole = {path.name: path.read_bytes() for path in saved.iterdir()}
    for n in itertools.count():
        for path in saved.iterdir():
            path.unlink()
        for name, data in whole.items():
            (saved / name).write_bytes(data)
        with logt.open(saved, mode="a") as index:
            CHANGES[change](index)
            failing = FailingOs(n, error)
            with monkeypatch.context() as patch:
                patch.setattr(files, "os", failing)
                if failing_save(index):
                    assert failing.failed
            left = logt.open(saved)
            assert sorted(left.ids.tolist()) in (list(range(30)), sorted(index.ids.tolist()))
            assert left.search(np.ones(8), 99).counts == len(left)
            index.save()
            assert sorted(logt.open(saved).ids.tolist()) == sorted(index.ids.tolist())
            assert not list(saved.glob(".*.tmp"))
        if not failing.failed:
            assert n > 5
            break


def failing_save(index):
    try:
        index.save()
    except OSError:
        return True
    return False


def test_opening_reads_no_pickle(saved):
    np.save(saved / "memory-evil.safetensors", np.array([object()]), allow_pickle=True)
    assert len(logt.open(saved)) == 30


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


def test_a_segment_of_another_method_is_refused(vectors, tmp_path):
    index = logt.Index(8)
    index.add(vectors(30, 8))
    index.save(tmp_path / "index")
    logt.Index(8, method=lo_gt()).save(tmp_path / "other")
    manifest, other = (
        json.loads((tmp_path / n / "manifest.json").read_text())["manifest"] for n in ("index", "other")
    )
    sign(tmp_path / "index", {**manifest, "method": other["method"]})
    with pytest.raises(CorruptIndexError, match="does not fit the method"):
        logt.open(tmp_path / "index")


def test_a_segment_without_its_refinement_is_refused(vectors, tmp_path):
    index = logt.Index(8)
    index.add(vectors(30, 8))
    index.save(tmp_path / "index")
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())["manifest"]
    del manifest["segments"][0]["refinement"]
    sign(tmp_path / "index", manifest)
    with pytest.raises(CorruptIndexError, match="refinement"):
        logt.open(tmp_path / "index")


def test_files_with_right_checksums_and_wrong_bytes_are_refused_or_harmless(saved):
    """Random damage, with new checksums: what passes the checks must still be searchable without a crash."""
    rng = np.random.default_rng(0)
    manifest = json.loads((saved / "manifest.json").read_text())["manifest"]
    original = {path: path.read_bytes() for path in saved.glob("*.safetensors")}
    refused = 0
    for _ in range(400):
        path = sorted(original)[rng.integers(len(original))]
        data = bytearray(original[path])
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(data)
        manifest["files"][path.name] = {"bytes": len(data), "checksum": files.checksum(bytes(data))}
        sign(saved, manifest)
        try:
            logt.open(saved).search(np.ones((3, 8)), 5)
        except CorruptIndexError:
            refused += 1
        path.write_bytes(original[path])
        manifest["files"][path.name] = {"bytes": len(data), "checksum": files.checksum(original[path])}
    assert refused > 20


def sign(folder, manifest):
    body = json.dumps(manifest, indent=1, sort_keys=True)
    whole = {"manifest": manifest, "checksum": files.checksum(body.encode())}
    (folder / "manifest.json").write_text(json.dumps(whole, indent=1))


def test_an_index_open_for_reading_can_be_locked_and_is_not_read_again(tmp_path, vectors, monkeypatch):
    X = vectors(100, 16)
    index = logt.Index(16)
    index.add(X[:50])
    index.save(tmp_path / "i")
    reader = logt.open(tmp_path / "i")
    with logt.open(tmp_path / "i", "a") as writer:
        writer.add(X[50:60])
        writer.save()
        with pytest.raises(logt.LockedError):
            reader.lock()
        assert len(reader) == 50
    monkeypatch.setattr("logt.storage.locations.read_array_file", None)
    reader.lock()
    assert len(reader) == 60
    reader.add(X[60:70])
    reader.save()
    with pytest.raises(logt.LockedError):
        logt.open(tmp_path / "i", "a")
    reader.close()
    reader.lock()
    reader.add(X[70:])
    reader.save()
    reader.close()
    monkeypatch.undo()
    assert len(logt.open(tmp_path / "i")) == 100
    assert np.array_equal(logt.open(tmp_path / "i").search(X, 5).ids, reader.search(X, 5).ids)


def test_changes_that_were_not_saved_are_lost_when_an_index_is_locked_again(tmp_path, vectors):
    index = logt.Index(16)
    index.add(vectors(50, 16))
    index.save(tmp_path / "i")
    with pytest.raises(logt.InvalidInputError, match="opened from a folder"):
        index.lock()
    index = logt.open(tmp_path / "i", "a")
    for change in (lambda: index.add(vectors(5, 16, seed=1)), index.compact):
        change()
        index.close()
        index.lock()
        assert len(index) == 50
    index.lock()
    index.remove([3])
    index.save()
    assert len(logt.open(tmp_path / "i")) == 49
    index.close()


def test_without_file_locks_an_index_is_read_and_a_writer_gets_a_clear_error(saved):
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "import logt\n"
        f"assert len(logt.open({str(saved)!r})) == 30\n"
        f"logt.open({str(saved)!r}, mode='a')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this system has no file locks; indexes can only be read here" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["manifest.json", "segment"])
def test_a_pipe_in_the_place_of_a_file_is_refused(saved, name):
    path = next(saved.glob(f"{name}*"))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorruptIndexError):
        logt.open(saved)


def test_a_deeply_nested_manifest_is_refused(saved):
    (saved / "manifest.json").write_text('{"manifest":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(CorruptIndexError):
        logt.open(saved)
