"""Searches in a folder of photos: paths, refresh, descriptors, near-duplicates, reports."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from drawn_images import best_match, draw, draw_folder
from PIL import Image

from logt.descriptors import ImageError, Model, read_image
from logt.errors import InvalidInputError
from logt.photos import Photos, duplicates, update
from logt.photos.html_report import ReportPhoto, render_report
from logt.photos.synthetic_scenes import draw_scene, write_synthetic_photos


@pytest.fixture
def folder(tmp_path):
    return draw_folder(tmp_path / "photos")


def test_only_photos_of_the_index_and_of_the_folder_have_a_path(folder, small, tmp_path):
    update(folder, model=small)
    photos = Photos.open(folder / ".logt")
    assert photos.photo_path("trip/c.png") == folder / "trip" / "c.png"
    draw(tmp_path / "secret.png")
    for name in ("../secret.png", "/etc/passwd", "none.png", "", ".logt/photos.json"):
        with pytest.raises(InvalidInputError, match="there is no photo"):
            photos.photo_path(name)
    (folder / "a.png").unlink()
    (folder / "a.png").symlink_to(tmp_path / "secret.png")
    (folder / "b.jpg").unlink()
    for name in ("a.png", "b.jpg"):
        with pytest.raises(InvalidInputError, match="no longer in the folder"):
            photos.photo_path(name)


def test_a_reader_sees_new_photos_after_refresh(folder, small):
    update(folder, model=small)
    photos = Photos.open(folder / ".logt")
    assert not photos.refresh()
    draw(folder / "new.png", 90)
    update(folder)
    assert "new.png" not in photos.index
    assert photos.refresh()
    assert best_match(photos, folder / "new.png")[0] == "new.png"
    for seed in range(10):
        draw(folder / f"more-{seed}.png", 100 + seed)
    update(folder)  # learns a new whitening
    assert photos.refresh()
    assert best_match(photos, folder / "more-3.png")[0] == "more-3.png"


def test_searches_work_while_photos_are_added(folder, small):
    update(folder, model=small)
    photos, wrong, done = Photos.open(folder / ".logt"), [], threading.Event()

    def searching():
        image = read_image(folder / "a.png")
        while not done.is_set():
            photos.refresh()
            if photos.search(image, 1)[0][0] != "a.png":
                wrong.append("a.png")

    thread = threading.Thread(target=searching)
    thread.start()
    try:
        for seed in range(6):
            for more in range(3):
                draw(folder / f"{seed}-{more}.png", 200 + 3 * seed + more)
            update(folder)
    finally:
        done.set()
        thread.join()
    assert not wrong
    photos.refresh()
    assert len(photos.index) == 5 + 18


def test_descriptors_are_whitened_and_have_norm_one(folder, small):
    update(folder, model=small)
    photos = Photos.open(folder / ".logt")
    x = photos.descriptor(read_image(folder / "a.png"))
    assert x.dtype == np.float32
    np.testing.assert_allclose(x @ x, 1, rtol=1e-5)
    np.testing.assert_allclose(x @ photos.index.reconstruct(["a.png"])[0], 1, atol=0.03)
    part = photos.descriptor(Image.open(folder / "a.png").convert("RGBA"), (0, 0, 24, 24))
    assert part @ x < 0.999


def test_a_folder_and_the_path_of_a_photo_are_accepted_as_in_the_commands(folder, small):
    update(folder, model=small)
    photos = Photos.open(str(folder))
    assert photos.path == folder / ".logt"
    assert photos.search(str(folder / "b.jpg"))[0][0] == "b.jpg"
    assert photos.search(folder / "a.png", 1, (0, 0, 30, 24)) == photos.search(
        read_image(folder / "a.png"), 1, (0, 0, 30, 24)
    )
    assert np.array_equal(photos.descriptor(folder / "a.png"), photos.descriptor(read_image(folder / "a.png")))
    with pytest.raises(ImageError, match="file not found"):
        photos.search(folder / "none.png")


def test_arrays_bytes_and_open_files_are_images(folder, small):
    update(folder, model=small)
    photos, path = Photos.open(folder), folder / "a.png"
    expected = photos.search(read_image(path))
    assert photos.search(np.asarray(read_image(path))) == photos.search(path.read_bytes()) == expected
    with open(path, "rb") as file:
        assert photos.search(file) == expected
    pixels = np.asarray(read_image(path))
    for wrong, got in ((pixels / 255, "float64"), (pixels[:, :, 0], r"uint8 of \(48, 60\)"), (pixels[:0], "uint8")):
        with pytest.raises(InvalidInputError, match=f"must be uint8 of shape .*, got {got}"):
            photos.search(wrong)
    with pytest.raises(InvalidInputError, match=r"an image must be a PIL image, .* got list"):
        photos.search(pixels.tolist())
    with pytest.raises(ImageError, match="not an image"):
        photos.search(b"nothing")


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
    assert duplicates(photos, 1.0) == [] or len(duplicates(photos, 1.0)) <= 2
    for threshold in (0, 1.5, float("nan")):
        with pytest.raises(InvalidInputError, match="threshold"):
            duplicates(photos, threshold)


# --------------------------------------------------------------------------------------- reports and scenes


def test_names_are_escaped_in_the_report():
    name = "<script>alert(1)</script>\" onerror='x' &amp; \ud800.jpg"
    text = render_report(name, name, [(ReportPhoto(name, Image.new("RGB", (9, 9))), [ReportPhoto(name, None, 0.5)])])
    text.encode()
    assert "<script" not in text
    assert "'x'" not in text
    assert text.count("data:image/jpeg;base64,") == 1
    assert "http" not in text.replace("http-equiv", "")


def test_scenes_are_deterministic_and_their_views_are_found(tmp_path):
    np.testing.assert_array_equal(np.asarray(draw_scene(3)), np.asarray(draw_scene(3)))
    relevant = write_synthetic_photos(tmp_path, scenes=3, views=2, others=4)
    assert update(tmp_path / "collection").added == 10
    photos = Photos.open(tmp_path / "collection" / ".logt")
    for query, views in relevant.items():
        found = photos.search(read_image(tmp_path / "queries" / query), 2)
        assert {name for name, _ in found} == set(views)


def test_relevant_photos_of_a_real_collection_are_found():
    given = os.environ.get("LOGT_PHOTOS")
    if not given:
        pytest.skip("needs photos: set LOGT_PHOTOS to a folder with collection/, queries/ and relevant.json")
    from benchmarks.images import quality

    assert quality(Path(given), Model.load("lite"))["mAP"] > 60
    assert quality(Path(given), Model.load("dinov2"))["mAP"] > 75
