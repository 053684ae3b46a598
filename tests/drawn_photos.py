"""Folders of small drawn photos, and queries to their index."""

import numpy as np
from PIL import Image

from logt.descriptors import read_image
from logt.photos import Photos


def draw(path, seed=0):
    """Write a small image of colored squares, which the seed determines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    squares = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    Image.fromarray(squares.repeat(12, axis=0).repeat(12, axis=1)).save(path)


def draw_folder(folder):
    """Write five photos, some with unusual names, to a folder and return it."""
    for seed, name in enumerate(["a.png", "b.jpg", "trip/c.png", "trip/deep/ü – 写真.png", "x [red] <b>.png"]):
        draw(folder / name, seed)
    return folder


def counts(summary):
    return summary.added, summary.changed, summary.removed, summary.unchanged, len(summary.failed)


def indexed_names(path):
    return sorted(Photos.open(path).index.ids.tolist())


def best_match(photos, path):
    return photos.search(read_image(path), 1)[0]


def finds_itself(photos, path):
    """Return whether the best match of a photo is the photo itself."""
    name, score = best_match(photos, path)
    return name == path.name and score > 0.97
