"""Synthetic photos with a known ground truth, and a descriptor that needs no model: for tests of the server."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

import logt
from logt.descriptors.boxes import to_pixels
from logt.errors import InvalidInputError
from logt.photos.catalog import CatalogPhoto

ODD_NAMES = [
    "<img src=x onerror=alert(1)>.jpg",
    "\"' onload='alert(1)",
    "{{7*7}}.jpg",
    "a&b;#?%2e%2e.jpg",
    "ü \u202e.jpg",
    "..jpg",
]

GRID = 6
"""The descriptor is the mean colours of a GRID x GRID grid of cells."""


class SyntheticPhotos:
    """The interface of `logt.photos.Photos` with the colour descriptor."""

    side = 100
    has_text = False
    duplicate_score = 0.85

    def __init__(self, folder: Path, index: Path):
        self.folder, self.path, self.index = folder, index, logt.open(index)
        self.folders, self.for_photos, self.for_text = [folder], self, self

    def descriptor(self, image, box=None):
        return compute_descriptor(image if box is None else image.crop(tuple(map(round, to_pixels(box, image.size)))))

    def details(self):
        """One photo a day, from 2020-01-01 on, in the order of their names."""
        days = np.datetime64("2020-01-01") + np.arange(len(self.index))
        names = sorted(self.index.ids.tolist())
        return [
            CatalogPhoto(name, 1000 + number, 0, 240, 180, f"{day}T12:00:00")
            for number, (name, day) in enumerate(zip(names, days, strict=True))
        ]

    def photo_path(self, name):
        if name not in self.index:
            raise InvalidInputError(f"{name!r} is not in the index")
        if not (self.folder / name).is_file():
            raise InvalidInputError(f"the file of {name!r} is missing")
        return self.folder / name

    def refresh(self):
        return self.index.refresh()


def compute_descriptor(image):
    cells = np.asarray(image.convert("RGB").resize((GRID, GRID), Image.Resampling.BOX), np.float32).ravel()
    cells = cells - cells.mean() + 1e-3
    return cells / np.linalg.norm(cells)


def draw_scene(number, seed=0, size=(240, 180)):
    """Return a photo of a scene; another seed gives another photo of the same scene."""
    colours = np.random.default_rng(number).integers(0, 256, (GRID, GRID, 3), np.uint8)
    noise = np.random.default_rng([number, seed]).normal(0, 12, (GRID, GRID, 3))
    cells = Image.fromarray(np.clip(colours + noise, 0, 255).astype(np.uint8))
    return cells.resize(size, Image.Resampling.BICUBIC)


def draw_two_scenes(left, right):
    """Return a photo with one scene on the left and another on the right."""
    image = Image.new("RGB", (480, 180))
    image.paste(draw_scene(left, seed=99), (0, 0))
    image.paste(draw_scene(right, seed=99), (240, 0))
    return image


def encode_jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def jpeg_of_scans(width, height, scans):
    """Return a progressive JPEG with so many more scans than usual, all of them empty: 10 bytes each."""
    content = bytearray(encode_jpeg(draw_scene(0, size=(64, 48)), progressive=True))
    start = content.rfind(b"\xff\xda")
    frame = content.find(b"\xff\xc2")
    content[frame + 5 : frame + 9] = height.to_bytes(2) + width.to_bytes(2)
    return bytes(content[:start] + content[start : start + 10] * scans + content[start:])


def write_photos(folder, index, scenes=8, each=3, names="scene {number:02}/photo {seed}.jpg", *, also=(), link=0):
    """Write `each` photos of every scene to a folder, index them, and return their ids.

    also: ids of more photos, each of a scene of its own. link: the degree of the neighbor graph, 0 for none.
    """
    photos = [(names.format(number=n, seed=seed), draw_scene(n, seed)) for n in range(scenes) for seed in range(each)]
    photos += [(photo_id, draw_scene(1000 + number)) for number, photo_id in enumerate(also)]
    rows = []
    for photo_id, photo in photos:
        path = folder / photo_id
        path.parent.mkdir(parents=True, exist_ok=True)
        photo.save(path, "JPEG", quality=92)
        rows.append(compute_descriptor(Image.open(path)))
    photo_index = logt.Index(GRID * GRID * 3)
    photo_index.add(np.stack(rows), ids=[photo_id for photo_id, _ in photos])
    if link:
        photo_index.link(link)
    photo_index.save(index)
    return [photo_id for photo_id, _ in photos]
