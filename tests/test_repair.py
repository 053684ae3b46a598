"""Repair of damaged indexes: everything that can be read is kept, what is lost is reported, nothing is deleted."""

import errno
import itertools
import os
import shutil
from functools import partial

import numpy as np
import pytest
from exact_index import built
from faults import TORTURE, contents, damage, die_at, killed_in_child

import logt
from logt.errors import CorruptIndexError, LockedError
from logt.methods import lo_gt
from logt.storage import repair as repair_module
from logt.storage.files import array_file, describe_file
from logt.storage.locations import LocalLocation
from logt.storage.manifest import state_of
from logt.storage.repair import LOST_ID, examine, repair


def save_ten_segments(folder, vectors, method=None, ids=None):
    built(vectors(200, 8), ids=ids, method=method, segment_size=20).save(folder)
    return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, vectors):
    """Indexes of ten segments, by name."""
    folder = tmp_path_factory.mktemp("prepared")
    save_ten_segments(folder / "default", vectors)
    save_ten_segments(folder / "lo_gt", vectors, lo_gt(n=10, m=2, L=6))
    save_ten_segments(folder / "strings", vectors, ids=[f"v{i}" for i in range(200)])
    return folder


@pytest.fixture
def folder(prepared, tmp_path):
    return shutil.copytree(prepared / "default", tmp_path / "index")


@pytest.fixture
def with_strings(prepared, tmp_path):
    return shutil.copytree(prepared / "strings", tmp_path / "index")


def segment_files(folder):
    return [folder / entry["segment"] for entry in LocalLocation(folder).read_manifest()["segments"]]


@pytest.mark.parametrize("how", ["byte", "missing", "short"])
@pytest.mark.parametrize("kind", ["default", "lo_gt", "strings"])
def test_one_damaged_segment_of_ten_is_lost_and_nine_are_kept(prepared, tmp_path, kind, how):
    folder = shutil.copytree(prepared / kind, tmp_path / "index")
    file = segment_files(folder)[3]
    names = [f"v{i}" for i in range(200)] if kind == "strings" else list(range(200))
    lost, kept = names[60:80], names[:60] + names[80:]
    before = logt.open(folder).reconstruct(kept)
    if how == "byte":
        damage(file)
    else:
        start = file.read_bytes()[:300]
        file.unlink()
        if how == "short":
            file.write_bytes(start)
    with pytest.raises(CorruptIndexError):
        logt.open(folder)
    files = contents(folder)
    found = examine(folder)
    assert contents(folder) == files  # nothing changes without repair
    assert (found.kept, [loss.vectors for loss in found.losses]) == (180, [20])
    assert file.name in found.losses[0].reason
    assert found.losses[0].ids == (tuple(lost) if how == "byte" else ())
    repair(folder)
    after = logt.open(folder)
    assert set(after.ids.tolist()) == set(kept)
    assert np.array_equal(after.reconstruct(kept), before)
    assert after._snapshot.next_id == 200  # lost ids are not given again
    assert (found.aside / file.name).exists() == (how != "missing")
    assert not examine(folder).losses


def test_file_systems_without_links_are_no_reason_to_delete_a_file(prepared, tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise PermissionError

    monkeypatch.setattr(os, "link", no_links)
    test_one_damaged_segment_of_ten_is_lost_and_nine_are_kept(prepared, tmp_path, "default", "byte")


@pytest.fixture(scope="module")
def of_all_kinds(tmp_path_factory, vectors):
    """An index with a file of each kind."""
    folder, names = tmp_path_factory.mktemp("kinds") / "index", [f"v{i}" for i in range(60)]
    index = logt.Index(8, segment_size=30)
    index.add(vectors(60, 8), names, items=names)
    index.link(5)
    index.remove(names[:5])
    index.save(folder)
    return folder


KINDS = ("graph", "items", "model", "refinement", "removed", "segment", "strings")


@pytest.mark.parametrize("how", ["missing", "a folder", "other arrays", "no arrays"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_any_kind_may_be_missing_or_hold_something_else(of_all_kinds, tmp_path, kind, how):
    folder = shutil.copytree(of_all_kinds, tmp_path / "index")
    location = LocalLocation(folder)
    file = min(folder.glob(f"{kind}-*"))
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how != "missing":
        file.write_bytes(array_file({"other": np.zeros(3, np.int8)}) if how == "other arrays" else bytes(100))
        manifest = location.read_manifest()
        manifest["files"][file.name] = describe_file(file)
        location.write_manifest({**manifest, "state": state_of(manifest)})
    with pytest.raises(CorruptIndexError):
        logt.open(folder)
    found = repair(folder, logt.open)
    lost = {loss.what for loss in found.losses}
    assert "the neighbor graph" in lost or kind in ("items", "refinement", "strings")
    assert found.kept == len(logt.open(folder))
    assert found.kept >= 55 or kind in ("model", "segment") or how == "other arrays"
    assert not file.exists()
    assert (found.aside / file.name).exists() == (how != "missing")


@pytest.mark.parametrize("kind", ["graph", "items"])
def test_items_of_logged_vectors_are_kept_unless_the_others_have_lost_theirs(of_all_kinds, tmp_path, vectors, kind):
    folder = shutil.copytree(of_all_kinds, tmp_path / "index")
    with logt.open(folder, "a") as opened:
        opened.add(vectors(2, 8, seed=3), ["new", "newer"], items=["v7", "another"])
        opened.save()
    damage(min(folder.glob(f"{kind}-*")))
    repair(folder)
    after = logt.open(folder)
    assert len(after) == 57
    assert after.items is None if kind == "items" else after.items.tolist()[-2:] == ["v7", "another"]


def test_the_ids_of_a_lost_segment_are_those_that_were_not_removed(of_all_kinds, tmp_path):
    folder = shutil.copytree(of_all_kinds, tmp_path / "index")
    present, lost = set(logt.open(folder).ids), damage(segment_files(folder)[0]).name
    (loss,) = (loss for loss in repair(folder).losses if lost in loss.reason)
    assert loss.vectors == len(loss.ids)
    assert set(loss.ids) == present - set(logt.open(folder).ids)


def test_an_index_that_is_not_damaged_is_left_as_it_is(folder, vectors):
    before = contents(folder)
    assert not examine(folder).losses
    assert not repair(folder).losses
    assert contents(folder) == before


def test_vectors_whose_string_ids_are_lost_are_kept_under_new_ids(with_strings, vectors):
    folder = with_strings
    before = logt.open(folder)
    damage(next(folder.glob("strings-*")))
    found = repair(folder)
    assert (found.kept, found.losses[0].what, found.losses[0].vectors) == (200, "200 string ids", 0)
    assert f"kept as {LOST_ID}NUMBER" in found.losses[0].reason
    after = logt.open(folder)
    assert set(after.ids) == {f"{LOST_ID}{i}" for i in range(200)}
    assert np.array_equal(after.reconstruct([f"{LOST_ID}7"]), before.reconstruct(["v7"]))
    with logt.open(folder, "a") as opened:
        opened.upsert(vectors(1, 8, seed=5), ids=[f"{LOST_ID}7"])
        opened.save()
    assert len(logt.open(folder)) == 200


def test_lost_removals_never_bring_back_an_older_version_of_a_vector(tmp_path, vectors):
    X = vectors(60, 8)
    built(X[:40], ids=[f"v{i}" for i in range(40)]).save(tmp_path / "index")
    with logt.open(tmp_path / "index", "a") as opened:
        opened.upsert(X[40:45], ids=[f"v{i}" for i in range(5)])
        opened.remove(["v9"])
        opened._pending.rewrite()  # so that the removals are in a file, not in the log
        opened.save()
    damage(next((tmp_path / "index").glob("removed-*")))
    found = repair(tmp_path / "index")
    assert "found again" in found.losses[0].reason
    after = logt.open(tmp_path / "index")
    assert sorted(after.ids) == sorted(f"v{i}" for i in range(40))  # v9 is back, and is reported
    assert np.allclose(after.search(X[40:45], 1).scores, 1, atol=0.1)


def test_of_segments_that_all_lost_their_removals_the_newest_vector_is_kept(tmp_path, vectors):
    X, folder = vectors(30, 8), tmp_path / "index"
    index = built(X[:20], method=lo_gt(n=5, m=2, L=4))
    index.upsert(X[20:25], range(5))
    index.upsert(X[25:28], range(3))
    index.save(folder)
    expected = logt.open(folder).reconstruct(range(20))
    assert len([damage(path) for path in folder.glob("removed-*")]) == 2
    repair(folder)
    assert sorted(logt.open(folder).ids.tolist()) == list(range(20))
    assert np.array_equal(logt.open(folder).reconstruct(range(20)), expected)


def test_a_damaged_log_keeps_what_is_before_the_damage(folder, vectors):
    ends = []
    with logt.open(folder, "a") as opened:
        for seed in range(3):
            opened.add(vectors(4, 8, seed=seed + 1))
            opened.save()
            ends.append(next(folder.glob("changes-*")).stat().st_size)
    log = damage(next(folder.glob("changes-*")), ends[0] + 100).read_bytes()
    with pytest.raises(CorruptIndexError):
        logt.open(folder)
    found = repair(folder)
    assert log in contents(found.aside).values()
    assert f"{ends[2] - ends[0]:,} bytes of the write-ahead log" in found.losses[0].what
    assert found.losses[0].vectors is None  # nobody knows
    assert len(logt.open(folder)) == 204


def test_a_log_is_kept_when_a_segment_is_lost(folder, vectors):
    with logt.open(folder, "a") as opened:
        opened.remove([5, 25])  # 25 is in the segment that will be lost
        opened.add(vectors(4, 8, seed=1))
        opened.save()
    reader = logt.open(folder)
    damage(segment_files(folder)[1])
    repair(folder)
    assert len(logt.open(folder)) == 200 - 20 - 1 + 4
    assert reader.refresh()
    assert len(reader) == 183


def test_a_lost_codec_loses_the_segments_that_need_it(folder, vectors):
    entries = LocalLocation(folder).read_manifest()["segments"]
    damage(folder / entries[0]["model"])
    lost = sum(entry["vectors"] for entry in entries if entry["model"] == entries[0]["model"])
    found = repair(folder)
    assert sum(loss.vectors for loss in found.losses) == lost
    assert sum(len(loss.ids) for loss in found.losses) == lost
    assert len(logt.open(folder)) == 200 - lost


def test_a_damaged_manifest_cannot_be_repaired(folder, vectors):
    (folder / "manifest.json").write_text("{")
    before = contents(folder)
    with pytest.raises(CorruptIndexError, match="nothing can be repaired"):
        examine(folder)
    with pytest.raises(CorruptIndexError):
        repair(folder)
    assert contents(folder) == before
    with pytest.raises(FileNotFoundError, match="holds no index"):
        repair(folder / "nowhere")


def test_a_manifest_that_is_not_one_of_logt_cannot_be_repaired(folder):
    manifest = LocalLocation(folder).read_manifest()
    LocalLocation(folder).write_manifest({**manifest, "segments": [{}]})
    with pytest.raises(CorruptIndexError, match="do not fit together"):
        examine(folder)


def test_a_repair_whose_result_cannot_be_opened_is_undone(folder, vectors):
    damage(segment_files(folder)[0])
    before = contents(folder)

    def check(path):
        raise CorruptIndexError(f"{path} cannot be opened")

    with pytest.raises(CorruptIndexError, match="cannot be opened"):
        repair(folder, check)
    assert contents(folder) == before


def test_a_repair_that_is_written_wrong_is_undone(with_strings, monkeypatch):
    def wrong(location, name, data):
        write(location, name, data[:-1] if name.startswith("strings") else data)

    damage(next(with_strings.glob("strings-*")))
    before, write = contents(with_strings), LocalLocation.write
    monkeypatch.setattr(LocalLocation, "write", wrong)
    with pytest.raises(CorruptIndexError):
        repair(with_strings)
    assert before.items() <= contents(with_strings).items()


@pytest.mark.parametrize("undone", [False, True])
def test_a_repair_of_an_index_that_was_restored_keeps_what_the_one_before_has_kept(folder, tmp_path, undone):
    """The backup is copied over it, and what is damaged then has the names of files that were moved before."""
    shutil.copytree(folder, tmp_path / "backup")
    damage(segment_files(folder)[3])
    first = contents(repair(folder).aside)
    shutil.copytree(tmp_path / "backup", folder, dirs_exist_ok=True)
    damage(next(folder.glob("model-*")))  # every segment is left out
    before = set(contents(folder).values())
    if undone:
        with pytest.raises(RuntimeError):
            repair(folder, check=fail)
    else:
        assert contents(repair(folder).aside) != first
    assert before <= set(contents(folder).values())


def fail(path):
    raise RuntimeError


def test_an_index_that_is_being_written_is_not_repaired(folder, vectors):
    with logt.open(folder, "a"), pytest.raises(LockedError):
        repair(folder)


def test_a_bad_sector_is_reported_and_other_errors_of_the_disk_are_raised(folder, vectors, monkeypatch):
    bad = segment_files(folder)[2].name
    real = repair_module.describe_file

    def failing(code):
        def describe(path):
            if path.name == bad:
                raise OSError(code, os.strerror(code))
            return real(path)

        return describe

    monkeypatch.setattr(repair_module, "describe_file", failing(errno.EIO))
    assert "the disk cannot read it" in examine(folder).losses[0].reason
    monkeypatch.setattr(repair_module, "describe_file", failing(errno.EACCES))
    with pytest.raises(PermissionError):
        examine(folder)


def test_random_damage_is_repaired_and_no_id_occurs_twice(tmp_path, vectors):
    rng, X = np.random.default_rng(0), vectors(200, 8)
    built(X[:100], ids=[f"v{i}" for i in range(100)], segment_size=40).save(tmp_path / "index")
    with logt.open(tmp_path / "index", "a") as opened:
        opened.upsert(X[100:130], ids=[f"v{i}" for i in range(10, 40)])
        opened._pending.rewrite()  # so that removals are in files
        opened.save()
        opened.upsert(X[150:155], ids=[f"v{i}" for i in range(5)])
        opened.save()
    for _ in range(100 if TORTURE else 12):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "index", copy)
        files = sorted(path for path in copy.iterdir() if path.name not in ("manifest.json", ".lock"))
        for file in rng.choice(files, rng.integers(1, 4), replace=False):
            data = bytearray(file.read_bytes())
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
            file.write_bytes(data[: rng.integers(len(data))] if rng.random() < 0.3 else data)
        repair(copy, logt.open)
        repaired = logt.open(copy)
        assert len(set(repaired.ids.tolist())) == len(repaired)
        assert not examine(copy).losses


def test_a_damaged_refinement_costs_accuracy_only(tmp_path, vectors):
    X = vectors(400, 32)
    built(X, link=10).save(tmp_path / "index")
    (refinement,) = (tmp_path / "index").glob("refinement-*")
    damage(refinement)
    found = repair(tmp_path / "index")
    assert [loss.what for loss in found.losses] == ["the refinement of segment 1"]
    assert found.kept == 400
    after = logt.open(tmp_path / "index")
    assert after.report()["linked"] == 400
    scores, ids = after.search(X, 1)
    assert (ids[:, 0] == np.arange(400)).mean() > 0.99
    assert np.abs(scores[:, 0] - 1).max() < 0.2
    assert (found.aside / refinement.name).exists()


def test_a_save_after_a_repair_removes_nothing_of_the_index_before(tmp_path, vectors):
    built(vectors(100, 8), link=5).save(tmp_path / "index")
    before = {path.name for path in (tmp_path / "index").glob("*.safetensors")}
    damage(next((tmp_path / "index").glob("model-*")))
    found = repair(tmp_path / "index")
    assert not found.kept
    with logt.open(tmp_path / "index", "a") as opened:
        opened.add(vectors(100, 8, seed=2))
        opened.compact()
        opened.save()
    assert before <= {path.name for path in found.aside.iterdir()}


def test_a_repair_announces_what_it_keeps_of_the_log(tmp_path, vectors):
    path = tmp_path / "index"
    built(vectors(30, 8)).save(path)
    with logt.open(path, mode="a") as writer:
        writer.add(vectors(7, 8, seed=1))
        writer.remove([3])
        writer.save()
    assert examine(path).kept == len(logt.open(path)) == 36
    (log,) = path.glob("changes-*.log")
    log.write_bytes(log.read_bytes() + bytes(100))
    found = examine(path)
    (loss,) = found.losses
    assert (loss.what, loss.vectors) == ("the last 100 bytes of the write-ahead log", 0)
    assert loss.reason == "of a save that did not finish"
    assert repair(path, logt.open).kept == found.kept == len(logt.open(path)) == 36


@pytest.mark.parametrize("kind", [int, str])
def test_additions_whose_codec_is_lost_are_named(tmp_path, vectors, kind):
    path, ids = tmp_path / "index", tuple(map(kind, range(32)))
    built(vectors(30, 8), ids=list(ids[:30])).save(path)
    with logt.open(path, mode="a") as writer:
        writer.add(vectors(2, 8, seed=1), ids=list(ids[30:]))
        writer.save()
    damage(next(path.glob("model-*")))
    lost = repair(path, logt.open).losses
    assert [(loss.what, loss.vectors, loss.ids) for loss in lost] == [
        ("segment 1", 30, ids[:30]),
        ("an addition in the write-ahead log", 2, ids[30:]),
    ]
    assert len(logt.open(path)) == 0


def test_a_repair_that_is_killed_at_any_step_deletes_nothing_nor_does_the_next_save(prepared, tmp_path, vectors):
    damage(segment_files(shutil.copytree(prepared / "default", tmp_path / "damaged"))[3])
    before = set(contents(tmp_path / "damaged").values())

    def die(n):
        die_at(n)
        repair(folder, logt.open)

    for n in itertools.count():
        folder = shutil.copytree(tmp_path / "damaged", tmp_path / str(n))
        if not killed_in_child(partial(die, n)):
            break
        repair(folder, logt.open)
        with logt.open(folder, "a") as opened:
            opened.add(vectors(3, 8, seed=2), ids=[900, 901, 902])
            opened.compact()
            opened.save()
        assert before <= set(contents(folder).values()), n
    assert n > 10
