"""Synthetic photos with a known ground truth: drawn scenes in several views, and others that appear once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from logt.descriptors.image_io import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDTH, _HEIGHT = 480, 360
_JPEG_QUALITY = 88


def write_synthetic_photos(folder: Path, scenes: int, views: int, others: int) -> dict[str, list[str]]:
    """Write JPEG files to collection/ and queries/ in a folder; return the relevant photos of each query.

    folder: the folder to write to.
    scenes: the number of scenes, each with one query.
    views: the number of photos of each scene in the collection.
    others: the number of photos of other scenes in the collection.
    """
    relevant: dict[str, list[str]] = {}
    for part in ("collection", "queries"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for number in range(scenes):
        scene = draw_scene(number)
        names = [f"scene-{number:02}-view-{v}.jpg" for v in range(views)]
        for v, name in enumerate(names):
            draw_view(scene, 100 * number + v).save(folder / "collection" / name, quality=_JPEG_QUALITY)
        query = f"scene-{number:02}.jpg"
        draw_view(scene, 100 * number + 99).save(folder / "queries" / query, quality=_JPEG_QUALITY)
        relevant[query] = names
    for number in range(others):
        image = draw_view(draw_scene(10_000 + number), number)
        image.save(folder / "collection" / f"other-{number:03}.jpg", quality=_JPEG_QUALITY)
    return relevant


def draw_scene(seed: int) -> Image:
    """Draw a scene that the seed determines: a sky, and houses with roofs and windows."""
    from PIL import ImageDraw

    rng = np.random.default_rng(seed)
    rows = np.linspace(0, 1, _HEIGHT)[:, None, None]
    sky = (1 - rows) * rng.integers(60, 230, 3) + rows * rng.integers(60, 230, 3)
    noise = rng.normal(0, 4, (_HEIGHT, _WIDTH, 3))
    image: Image = pillow().fromarray(np.clip(sky + noise, 0, 255).astype(np.uint8))
    pen, left = ImageDraw.Draw(image), int(rng.integers(-20, 40))
    while left < _WIDTH - 40:
        width, top, bottom = (int(rng.integers(*ends)) for ends in ((50, 120), (60, 220), (260, 330)))
        wall, roof, window = (tuple(rng.integers(20, 255, 3).tolist()) for _ in range(3))
        pen.rectangle((left, top, left + width, bottom), fill=wall, outline=(30, 30, 30))
        peak = (left + width / 2, top - int(rng.integers(0, 70)))
        pen.polygon([(left - 6, top), peak, (left + width + 6, top)], fill=roof)
        columns, floors = (int(count) for count in rng.integers(2, 6, 2))
        draw_window = pen.ellipse if rng.random() < 0.35 else pen.rectangle
        for i in range(columns):
            for j in range(floors):
                x, y = left + width * (i + 0.25) / columns, top + (bottom - top) * (j + 0.2) / floors
                draw_window((x, y, x + width / 2 / columns, y + (bottom - top) / 2 / floors), fill=window)
        left += width + int(rng.integers(4, 40))
    return image


def draw_view(scene: Image, seed: int) -> Image:
    """Return another photo of a scene: slightly rotated, cropped, with another brightness and saturation."""
    from PIL import ImageEnhance

    rng = np.random.default_rng([seed, 1])
    rotated = scene.rotate(float(rng.uniform(-7, 7)), pillow().Resampling.BICUBIC)
    width = _WIDTH * rng.uniform(0.6, 0.85)
    height = width * _HEIGHT / _WIDTH
    left, top = rng.uniform(20, _WIDTH - width - 20), rng.uniform(20, max(21, _HEIGHT - height - 20))
    box = (left, top, left + width, top + height)
    cropped = rotated.resize((_WIDTH, _HEIGHT), pillow().Resampling.BICUBIC, box=box)
    brightened = ImageEnhance.Brightness(cropped).enhance(float(rng.uniform(0.65, 1.35)))
    return ImageEnhance.Color(brightened).enhance(float(rng.uniform(0.6, 1.4)))
