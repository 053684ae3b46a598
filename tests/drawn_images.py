"""Folders of small painted pictures, and what their index says of them."""

from __future__ import annotations

import numpy as np
from PIL import Image

from logt.descriptors import read_image
from logt.photos import Photos


def paint(path, seed=0):
    """A small picture of coloured squares; the seed says which."""
    path.parent.mkdir(parents=True, exist_ok=True)
    squares = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    Image.fromarray(squares.repeat(12, axis=0).repeat(12, axis=1)).save(path)


def painted_folder(folder):
    """A folder of five pictures whose names are not all plain."""
    for seed, name in enumerate(["a.png", "b.jpg", "trip/c.png", "trip/deep/ü – 写真.png", "x [red] <b>.png"]):
        paint(folder / name, seed)
    return folder


def counts(summary):
    return summary.added, summary.changed, summary.removed, summary.unchanged, len(summary.failed)


def names(path):
    return sorted(Photos.open(path).index.ids.tolist())


def best(photos, path):
    return photos.search(read_image(path), 1)[0]


def finds(photos, path):
    """Whether a picture of the folder finds itself."""
    name, score = best(photos, path)
    return name == path.name and score > 0.97
