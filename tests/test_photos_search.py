"""Searches in a folder of photos: paths, refresh, descriptors, near-duplicates."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from drawn_photos import best_match, draw, indexed_names
from PIL import Image

from logt.descriptors import ImageError, Model, read_image
from logt.errors import CorruptIndexError, InvalidInputError
from logt.index import Index
from logt.photos import Photos, duplicates, update
from logt.photos.manifest import PhotoManifest


def test_only_photos_of_the_index_and_of_the_folder_have_a_path(album, tmp_path):
    photos = Photos.open(album / ".logt")
    assert photos.photo_path("trip/c.png") == album / "trip" / "c.png"
    draw(tmp_path / "secret.png")
    for name in ("../secret.png", "/etc/passwd", "none.png", "", ".logt/photos.json"):
        with pytest.raises(InvalidInputError, match="there is no photo"):
            photos.photo_path(name)
    (album / "a.png").unlink()
    (album / "a.png").symlink_to(tmp_path / "secret.png")
    (album / "b.jpg").unlink()
    for name in ("a.png", "b.jpg"):
        with pytest.raises(InvalidInputError, match="no longer in the folder"):
            photos.photo_path(name)


def test_searches_work_while_photos_are_added(album):
    photos, wrong, done = Photos.open(album), [], threading.Event()

    def searching():
        image = read_image(album / "a.png")
        while not done.is_set():
            photos.refresh()
            if photos.search(image, 1)[0][0] != "a.png":
                wrong.append("a.png")

    with ThreadPoolExecutor() as pool:
        searches = pool.submit(searching)
        try:
            for seed in range(12):
                draw(album / f"{seed}.png", 200 + seed)
                if seed % 4 == 3:  # learns a new whitening
                    update(album)
        finally:
            done.set()
        searches.result()
    assert not wrong
    photos.refresh()
    assert len(photos.index) == 5 + 12
    assert not photos.refresh()
    draw(album / "new.png", 90)
    update(album)
    assert "new.png" not in photos.index
    assert photos.refresh()
    assert best_match(photos, album / "new.png")[0] == "new.png"


def test_paths_arrays_bytes_and_open_files_are_images(album):
    photos, path = Photos.open(str(album)), album / "a.png"
    assert photos.path == album / ".logt"
    pixels = np.asarray(read_image(path))
    expected = photos.search(read_image(path))
    assert expected[0][0] == "a.png"
    x = photos.descriptor(path)
    np.testing.assert_allclose(x @ x, 1, rtol=1e-5)
    np.testing.assert_allclose(x @ photos.index.reconstruct(["a.png"])[0], 1, atol=0.03)
    assert photos.descriptor(Image.open(path).convert("RGBA"), (0, 0, 24, 24)) @ x < 0.999
    for image in (path, str(path), pixels, path.read_bytes()):
        assert photos.search(image) == expected
    with open(path, "rb") as file:
        assert photos.search(file) == expected
    box = (0, 0, 30, 24)
    assert photos.search(path, 1, box) == photos.search(read_image(path), 1, box)
    for wrong, got in ((pixels / 255, "float64"), (pixels[:, :, 0], r"uint8 of \(48, 60\)"), (pixels[:0], "uint8")):
        with pytest.raises(InvalidInputError, match=f"must be uint8 of shape .*, got {got}"):
            photos.search(wrong)
    with pytest.raises(InvalidInputError, match=r"an image must be a PIL image, .* got list"):
        photos.search(pixels.tolist())
    with pytest.raises(ImageError, match="not an image"):
        photos.search(b"nothing")
    with pytest.raises(ImageError, match="file not found"):
        photos.search(album / "none.png")


def test_near_duplicates_are_grouped(tmp_path, small):
    for seed in range(12):
        draw(tmp_path / f"{seed:02}.png", seed)
    original = Image.open(tmp_path / "03.png")
    original.save(tmp_path / "copy.jpg", quality=90)
    original.resize((120, 96)).save(tmp_path / "larger.png")
    Image.open(tmp_path / "07.png").save(tmp_path / "seven.bmp")
    update(tmp_path, model=small)
    photos = Photos.open(tmp_path / ".logt")
    groups = duplicates(photos, progress=True)
    assert [group.names for group in groups] == [("03.png", "copy.jpg", "larger.png"), ("07.png", "seven.bmp")]
    assert all(0.85 <= group.score <= 1.01 for group in groups)
    for threshold in (0, 1.5, float("nan")):
        with pytest.raises(InvalidInputError, match="threshold"):
            duplicates(photos, threshold)


def test_a_region_is_cut_out_of_the_whole_image(album, tmp_path):
    photos, path, box = Photos.open(album), tmp_path / "large.jpg", (0.0, 0.0, 0.1, 0.1)
    with Image.open(album / "a.png") as image:
        image.resize((1200, 960), Image.Resampling.BICUBIC).save(path)
    whole, small = read_image(path), read_image(path, side=photos.side)
    assert whole.size != small.size  # a JPEG is decoded at a fraction of its size
    np.testing.assert_array_equal(photos.descriptor(path, box), photos.descriptor(whole, box))
    np.testing.assert_array_equal(photos.descriptor(path), photos.descriptor(small))


def test_a_refresh_loads_the_model_again_only_if_its_settings_have_changed(album, small):
    photos = Photos.open(album)
    model = photos._model
    update(album, model=small, relearn=True)
    photos.refresh()
    assert photos._model is model
    update(album, model=Model.load(small, side=96), relearn=True)
    assert photos.refresh()
    assert photos.side == 96
    assert best_match(photos, album / "a.png")[0] == "a.png"


@pytest.mark.parametrize("error", [FileNotFoundError, CorruptIndexError])
def test_a_refresh_that_a_writer_overtakes_reads_the_new_state(album, monkeypatch, error):
    def overtaken(index):
        raise error("removed")

    photos, read = Photos.open(album), PhotoManifest.read
    monkeypatch.setattr(Index, "refresh", overtaken)
    with pytest.raises(error, match="removed"):
        photos.refresh()  # there is no new state
    for seed in range(10):
        draw(album / f"{seed}.png", seed + 50)
    update(album)  # learns another whitening, and removes the vectors with the old one
    seen = iter([photos._state.manifest])
    monkeypatch.setattr(PhotoManifest, "read", lambda path: next(seen, None) or read(path))
    assert photos.refresh()
    assert len(photos.index) == 15


def test_without_a_catalog_only_the_names_of_photos_are_known(album):
    (album / ".logt" / "catalog.sqlite").unlink()
    details = Photos.open(album).details()
    assert sorted(photo.name for photo in details) == indexed_names(album)
    assert {tuple(photo)[1:] for photo in details} == {(0, 0, 0, 0, "")}
