"""What is checked when an index is opened: sizes and structure at once, the checksums of large files later."""

import gc
import threading
import time

import numpy as np
import pytest
from exact_index import assert_same
from faults import contents, damage, killed_in_child

import logt
from logt import _index_base
from logt.errors import CorruptIndexError
from logt.lists.codec import Codec
from logt.storage import verification


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vectors):
    index, folder = logt.Index(16), tmp_path_factory.mktemp("whole") / "index"
    index.add(vectors(1200, 16))
    index.save(folder)
    return folder


@pytest.fixture
def nothing_at_once(monkeypatch):
    """Leave every file to the background, where nothing runs until `finish`."""
    monkeypatch.setattr(_index_base, "AT_ONCE", 0)
    monkeypatch.setattr(verification.Verification, "start", lambda self: None)


def damaged_refinement(path):
    """Change a byte that no check of the structure can notice."""
    return damage(next(path.glob("refinement-*")), -200)


def test_small_files_are_checked_at_once_whatever_the_size_of_the_others(saved, monkeypatch):
    monkeypatch.setattr(verification.Verification, "start", lambda self: None)
    sizes = {kind: next(saved.glob(f"{kind}-*")).stat().st_size for kind in ("model", "segment", "refinement")}
    monkeypatch.setattr(_index_base, "AT_ONCE", sizes["model"] + sizes["segment"] - 1)
    index = logt.open(saved)
    waiting = {name.rsplit("/", 1)[-1].split("-")[0] for name in index._store.verification._waiting}
    assert "model" not in waiting
    assert waiting & {"segment", "refinement"}
    damage(next(saved.glob("model-*")), -200)
    with pytest.raises(CorruptIndexError, match="model-"):
        logt.open(saved)


def test_damage_in_large_files_is_found_after_the_index_is_open(saved, vectors, nothing_at_once):
    file = damaged_refinement(saved)
    index, before = logt.open(saved, "a"), contents(saved)
    assert len(index.search(vectors(2, 16), 3).ids) == 2
    index.remove([5])
    index.compact()
    with pytest.raises(CorruptIndexError, match=file.name):
        index.save()  # not before everything is checked
    for call in (
        lambda: index.search(vectors(2, 16), 3),
        lambda: index.range_search(vectors(1, 16), 0.5),
        lambda: index.reconstruct([1]),
        lambda: index.add(vectors(1, 16)),
        index.verify,
    ):
        with pytest.raises(CorruptIndexError, match=file.name):
            call()
    assert contents(saved) == before


def test_a_change_in_the_log_does_not_wait_for_the_check(saved, vectors, nothing_at_once, monkeypatch):
    index = logt.open(saved, "a")
    monkeypatch.setattr(verification.Verification, "finish", None)
    index.add(vectors(1, 16, seed=1))
    index.save()
    assert len(logt.open(saved)) == 1201


def test_the_background_check_ends_and_finds_damage(saved, monkeypatch):
    monkeypatch.setattr(_index_base, "AT_ONCE", 0)
    damaged_refinement(saved)
    index = logt.open(saved)
    with pytest.raises(CorruptIndexError):
        index.verify()
    for thread in threading.enumerate():
        if thread.name == "logt-verification":
            thread.join(10)
            assert not thread.is_alive()


def test_damage_is_found_without_a_call(saved, vectors, monkeypatch):
    monkeypatch.setattr(_index_base, "AT_ONCE", 0)
    damaged_refinement(saved)
    index, end = logt.open(saved), time.monotonic() + 20
    while index._store.verification.damage is None and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(CorruptIndexError):
        index.search(vectors(2, 16), 3)


def test_a_repaired_index_can_be_refreshed_to(saved, vectors, nothing_at_once):
    file = damaged_refinement(saved)
    reader = logt.open(saved)
    with pytest.raises(CorruptIndexError):
        reader.verify()
    damage(file, -200)  # flips it back
    with logt.open(saved, "a") as writer:
        writer.add(vectors(1, 16, seed=1))
        writer.save()
    assert reader.refresh()
    reader.verify()
    assert len(reader.search(vectors(2, 16), 3).ids) == 2


def test_a_check_stops_with_its_index(saved, nothing_at_once):
    index = logt.open(saved)
    check = index._store.verification
    del index
    gc.collect()
    damaged_refinement(saved)
    check.finish()  # checks nothing any more


def test_a_forked_child_checks_by_itself(saved, nothing_at_once):
    damaged_refinement(saved)
    index = logt.open(saved)

    def check():
        with pytest.raises(CorruptIndexError):
            index.verify()

    assert not killed_in_child(check)


def test_sizes_alone_are_checked_on_request(saved, vectors):
    damaged_refinement(saved)
    with pytest.raises(CorruptIndexError, match="checksum"):
        logt.open(saved)
    index = logt.open(saved, verify="sizes")
    index.verify()
    assert len(index.search(vectors(2, 16), 3).ids) == 2
    file = next(saved.glob("segment-*"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptIndexError, match="bytes"):
        logt.open(saved, verify="sizes")
    with pytest.raises(logt.InvalidInputError, match="verify must be"):
        logt.open(saved, verify="none")


def test_structure_is_checked_even_if_checksums_are_not(saved):
    file = next(saved.glob("segment-*"))
    for at in range(700, file.stat().st_size, 997):
        damage(file, at)
        for seed in range(2):
            try:
                index = logt.open(saved, verify="sizes")
            except CorruptIndexError:
                break
            index.search(np.random.default_rng(seed).standard_normal((3, 16)), 5, effort=1)
        damage(file, at)  # flips it back


def test_opening_encodes_trains_and_measures_nothing(saved, vectors, monkeypatch):
    """Whatever the history: what was computed is stored."""
    rng = np.random.default_rng(0)
    with logt.open(saved, "a") as index:
        for n, size in enumerate((1, 300, 700, 3000, 5, 1, 40)):
            index.add(vectors(size, 16, seed=n))
            index.remove(rng.choice(index.ids, 20, replace=False))
            index.save()
        Q = vectors(20, 16, seed=50)
        expected = index.search(Q, 10)
    for name in ("train", "encode"):
        monkeypatch.setattr(Codec, name, None)
    for name in ("calibrate", "calibrate_changed"):
        monkeypatch.setattr(f"logt.lists.method.{name}", None)
    assert_same(logt.open(saved).search(Q, 10), expected)


def test_a_verification_that_is_stopped_checks_nothing_more():
    data, about = np.zeros(8, np.uint8), {"bytes": 8, "checksum": "wrong"}
    checks = verification.Verification(at_once=7)
    checks.add("file", data, about)
    checks.stop()
    checks.finish()
    with pytest.raises(CorruptIndexError):
        checks.restarted().add("file", data[:7], about)
    later = checks.restarted()
    later.add("file", data, about)
    with pytest.raises(CorruptIndexError):
        later.finish()


def test_a_refresh_reads_only_new_files(saved, vectors, monkeypatch):
    reader = logt.open(saved)
    with logt.open(saved, "a") as index:
        index.add(vectors(300, 16, seed=1))
        index.tune()
        index.save()
    read, real = [], verification.Verification.add
    monkeypatch.setattr(
        verification.Verification, "add", lambda self, file, *rest: read.append(file) or real(self, file, *rest)
    )
    assert reader.refresh()
    assert {file.name.split("-")[0] for file in read} == {"model", "segment", "refinement"}
    assert len(read) == 3
    assert len(reader) == 1500
