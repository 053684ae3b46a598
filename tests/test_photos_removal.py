"""Photos that are gone: a disk may not be mounted, and they may come back."""

import shutil
from contextlib import closing

import pytest
from drawn_photos import counts, draw, indexed_names
from faults import contents

from logt.errors import InvalidInputError
from logt.photos import Photos, catalog, photo_vectors, update
from logt.photos.catalog import Catalog
from logt.photos.removal_check import check_removals


@pytest.fixture(scope="module")
def indexed_photos(tmp_path_factory, small):
    """60 photos: 40 in the folder, and 10 in each of two subfolders of a subfolder."""
    folder = tmp_path_factory.mktemp("trips") / "photos"
    for seed in range(60):
        place = "" if seed < 40 else f"disk/{seed // 10}/"
        draw(folder / f"{place}{seed}.png", seed)
    update(folder, model=small)
    return folder


def empty(folder):
    """Leave an empty folder, as an unmounted disk does."""
    shutil.move(folder, folder.parent.parent / "elsewhere")
    folder.mkdir()


def remount(folder):
    folder.rmdir()
    shutil.move(folder.parent.parent / "elsewhere", folder)


@pytest.mark.parametrize("options", [{}, {"relearn": True}])
def test_photos_of_a_folder_that_is_suddenly_empty_stay(album, options):
    empty(album / "disk")
    before = contents(album / ".logt")
    with pytest.raises(InvalidInputError, match=r"/disk contains no photos, but its index has 20: .*--yes"):
        update(album, **options)
    assert contents(album / ".logt") == before
    (album / "disk" / "readme.txt").write_text("mount a disk here")
    with pytest.raises(InvalidInputError, match="/disk contains no photos"):
        update(album, **options)
    assert len(indexed_names(album)) == 60


def test_one_folder_of_several_is_named(album):
    shutil.rmtree(album / "disk" / "4")
    with pytest.raises(InvalidInputError, match=r"/disk/4 contains no photos, but its index has 10: is the disk"):
        update(album)
    draw(album / "disk" / "4" / "new.png", 100)  # not an empty disk, but many photos are gone
    with pytest.raises(InvalidInputError, match="10 of the 60 photos of the index are no longer in"):
        update(album)
    assert counts(update(album, yes=True)) == (1, 0, 10, 50, 0)


@pytest.mark.parametrize(("gone", "is_refused"), [(5, False), (6, False), (7, True)])
def test_a_tenth_of_the_photos_may_be_removed_at_once(album, gone, is_refused):
    for seed in range(gone):
        (album / f"{seed}.png").unlink()
    if is_refused:
        with pytest.raises(InvalidInputError, match=f"{gone} of the 60 photos"):
            update(album)
    else:
        assert counts(update(album)) == (0, 0, gone, 60 - gone, 0)


def test_a_few_photos_may_always_be_removed(tmp_path):
    names = [f"{number}.png" for number in range(8)]
    check_removals(names[:5], names[5:], 8, [tmp_path])
    check_removals([f"disk/{name}" for name in names[:5]], names, 100, [tmp_path])
    with pytest.raises(InvalidInputError, match="6 of the 8"):
        check_removals(names[:6], names[6:], 8, [tmp_path])
    with pytest.raises(InvalidInputError, match="contains no photos, but its index has 1"):
        check_removals(names[:1], [], 1, [tmp_path])


def test_another_folder_that_is_empty_is_named_and_one_that_is_left_out_is_removed(album, tmp_path):
    other = tmp_path / "other"
    for seed in range(3):
        draw(other / f"{seed}.png", 200 + seed)
    update(album, also=[other])
    empty(other)
    with pytest.raises(InvalidInputError, match=rf"{other} contains no photos, but its index has 3"):
        update(album)
    assert counts(update(album, also=[])) == (0, 0, 3, 60, 0)


def test_the_command_line_removes_them_with_yes(album, run_logt):
    shutil.rmtree(album / "disk")
    assert "is the disk mounted? Nothing was changed." in run_logt("images", "index", album, ok=False)
    assert "20 removed" in run_logt("images", "index", album, "--yes")


@pytest.mark.parametrize("final", [False, True])
def test_photos_that_come_back_are_not_described_again(album, small, described, monkeypatch, final):
    if final:  # the catalog has no descriptors, only the index has vectors
        monkeypatch.setattr(photo_vectors, "FINAL_COUNT", 20)
        update(album, relearn=True)
    known = Photos.open(album)
    name = "disk/5/55.png"
    ranking = [found for found, _ in known.search(album / name, 5)]
    empty(album / "disk")
    assert counts(update(album, yes=True)) == (0, 0, 20, 40, 0)
    assert len(indexed_names(album)) == 40
    remount(album / "disk")
    draw(album / "disk" / "5" / "56.png", 300)  # it has changed
    described.clear()
    assert counts(update(album)) == (20, 0, 0, 40, 0)
    assert described == ["56.png"]
    photos = Photos.open(album)
    assert len(photos.index) == 60
    assert [found for found, _ in photos.search(album / name, 5)][:1] == ranking[:1] == [name]
    assert len({photo.width for photo in photos.details()}) == 1
    with closing(Catalog(album / ".logt")) as opened:
        assert not opened.stamps("removed")
    assert counts(update(album)) == (0, 0, 0, 60, 0)


def test_removed_photos_are_kept_for_a_limited_time_and_number(album, described, monkeypatch):
    def kept():
        with closing(Catalog(album / ".logt")) as opened:
            return len(opened.stamps("removed"))

    monkeypatch.setattr(catalog, "MAX_REMOVED", 3)
    for seed in range(5):
        (album / f"{seed}.png").unlink()
    update(album)
    assert kept() == 3
    monkeypatch.setattr(catalog, "REMOVED_SECONDS", -1)
    (album / "5.png").unlink()
    update(album)
    assert kept() == 0


def test_a_run_that_removes_many_photos_compacts_the_vectors(album):
    for seed in range(20):
        (album / f"{seed}.png").unlink()
    update(album, yes=True)
    assert Photos.open(album).index.report()["removed"] == 0


def test_another_model_describes_photos_that_come_back(album, network, described):
    (album / "0.png").rename(album.parent / "0.png")
    update(album)
    update(album, model=network("other", channels=24, about='{"side": 64}'), relearn=True)
    (album.parent / "0.png").rename(album / "0.png")
    described.clear()
    assert counts(update(album)) == (1, 0, 0, 59, 0)
    assert described == ["0.png"]


def test_descriptors_of_a_copy_that_was_killed_are_not_used_with_another_model(album, network, described):
    (album / ".logt" / "photos.json").unlink()
    update(album, model=network("other", channels=24, about='{"side": 64}'))
    assert len(described) == 60
