"""Synthetic photos with a known ground truth: drawn scenes in several views, and others that appear once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """Draw a scene that the seed determines: sky, sun, hills, houses with windows, and trees."""
    from PIL import ImageDraw

    rng = np.random.default_rng(seed)
    image, ground = _draw_sky(rng)
    pen = ImageDraw.Draw(image)
    _draw_sun(pen, rng)
    for _ in range(int(rng.integers(1, 4))):
        _draw_hill(pen, rng)
    horizon = int(rng.integers(230, 290))
    pen.rectangle((0, horizon, _WIDTH, _HEIGHT), fill=ground)
    left = int(rng.integers(-20, 40))
    while left < _WIDTH - 40:
        left += _draw_house(pen, rng, left, horizon + int(rng.integers(0, 40)))
    for _ in range(int(rng.integers(2, 8))):
        _draw_tree(pen, rng, horizon)
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


def _random_color(rng: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.integers(low, high, 3).tolist())


def _draw_sky(rng: np.random.Generator) -> tuple[Image, tuple[int, ...]]:
    """Return an image of a sky with noise, and the color of the ground below it."""
    sky = rng.integers(60, 230, 3)
    ground = _random_color(rng, 40, 190)
    rows = np.linspace(0, 1, _HEIGHT)[:, None, None]
    gradient = (1 - rows) * sky + rows * np.clip(sky + rng.integers(-60, 90, 3), 0, 255)
    noise = rng.normal(0, 4, (_HEIGHT, _WIDTH, 3))
    return pillow().fromarray(np.clip(gradient + noise, 0, 255).astype(np.uint8)), ground


def _draw_sun(pen: Any, rng: np.random.Generator) -> None:
    x, y, r = (int(rng.integers(low, high)) for low, high in ((40, _WIDTH - 40), (30, 120), (14, 40)))
    pen.ellipse((x - r, y - r, x + r, y + r), fill=_random_color(rng, 180, 255))


def _draw_hill(pen: Any, rng: np.random.Generator) -> None:
    base, amplitude, phase = rng.integers(160, 250), rng.uniform(20, 70), rng.uniform(0, 6)
    outline = []
    for x in range(0, _WIDTH + 8, 8):
        wave = amplitude * math.sin(phase + x / rng.uniform(60, 64))
        ripple = amplitude * 0.4 * math.sin(3 * phase + x / 23)
        outline.append((x, base - wave - ripple))
    pen.polygon([(0, _HEIGHT), *outline, (_WIDTH, _HEIGHT)], fill=_random_color(rng, 30, 170))


def _draw_house(pen: Any, rng: np.random.Generator, left: int, bottom: int) -> int:
    """Draw a house with this lower left corner; return the distance to the next house."""
    width, height = int(rng.integers(50, 120)), int(rng.integers(60, 210))
    top = bottom - height
    pen.rectangle((left, top, left + width, bottom), fill=_random_color(rng, 50, 245), outline=(30, 30, 30))
    roof = rng.integers(3)
    if roof == 0:
        peak = (left + width / 2, top - rng.integers(20, 70))
        pen.polygon([(left - 6, top), peak, (left + width + 6, top)], fill=_random_color(rng, 40, 200))
    elif roof == 1:
        circle = (left, top - width / 2, left + width, top + width / 2)
        pen.pieslice(circle, 180, 360, fill=_random_color(rng, 40, 220))
    columns, floors = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    color, is_round = _random_color(rng, 20, 255), rng.random() < 0.35
    for i in range(columns):
        for j in range(floors):
            x, y = left + width * (i + 0.25) / columns, top + height * (j + 0.2) / floors
            window = (x, y, x + width * 0.5 / columns, y + height * 0.55 / floors)
            (pen.ellipse if is_round else pen.rectangle)(window, fill=color, outline=(20, 20, 20))
    return width + int(rng.integers(4, 40))


def _draw_tree(pen: Any, rng: np.random.Generator, horizon: int) -> None:
    x, bottom, r = rng.integers(0, _WIDTH), horizon + rng.integers(20, 70), rng.integers(14, 40)
    pen.rectangle((x - 4, bottom - 50, x + 4, bottom), fill=(90, 60, 40))
    pen.ellipse((x - r, bottom - 50 - r, x + r, bottom - 50 + r), fill=_random_color(rng, 20, 160))
