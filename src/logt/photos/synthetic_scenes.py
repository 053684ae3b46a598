"""Made pictures with a known answer: drawn scenes in several views, among others that are seen once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logt.descriptors.image_io import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDTH, _HEIGHT = 480, 360


def write_scenes(folder: Path, scenes: int, views: int, others: int) -> dict[str, list[str]]:
    """Write JPEG files below `folder`: for each query, in queries/, the names in collection/ that show its scene."""
    relevant: dict[str, list[str]] = {}
    for part in ("collection", "queries"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for number in range(scenes):
        drawn = scene(number)
        names = [f"scene-{number:02}-view-{v}.jpg" for v in range(views)]
        for v, name in enumerate(names):
            view(drawn, 100 * number + v).save(folder / "collection" / name, quality=88)
        query = f"scene-{number:02}.jpg"
        view(drawn, 100 * number + 99).save(folder / "queries" / query, quality=88)
        relevant[query] = names
    for number in range(others):
        drawn = view(scene(10_000 + number), number)
        drawn.save(folder / "collection" / f"other-{number:03}.jpg", quality=88)
    return relevant


def scene(seed: int) -> Image:
    """A town or a shore by day or evening: sky, a sun, hills, houses with windows, trees, all by the seed."""
    from PIL import ImageDraw

    rng = np.random.default_rng(seed)
    sky = rng.integers(60, 230, 3)
    ground = rng.integers(40, 190, 3)
    rows = np.linspace(0, 1, _HEIGHT)[:, None, None]
    base = (1 - rows) * sky + rows * np.clip(sky + rng.integers(-60, 90, 3), 0, 255)
    noise = rng.normal(0, 4, (_HEIGHT, _WIDTH, 3))
    picture: Image = pillow().fromarray(np.clip(base + noise, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    x, y, r = (int(rng.integers(low, high)) for low, high in ((40, _WIDTH - 40), (30, 120), (14, 40)))
    pen.ellipse((x - r, y - r, x + r, y + r), fill=_colour(rng, 180, 255))
    for _ in range(int(rng.integers(1, 4))):
        _hill(pen, rng)
    horizon = int(rng.integers(230, 290))
    pen.rectangle((0, horizon, _WIDTH, _HEIGHT), fill=tuple(ground.tolist()))
    left = int(rng.integers(-20, 40))
    while left < _WIDTH - 40:
        left += _house(pen, rng, left, horizon + int(rng.integers(0, 40)))
    for _ in range(int(rng.integers(2, 8))):
        _tree(pen, rng, horizon)
    return picture


def view(picture: Image, seed: int) -> Image:
    """Another photo of it: turned a little, cut, brightened and coloured."""
    from PIL import ImageEnhance

    rng = np.random.default_rng([seed, 1])
    turned = picture.rotate(float(rng.uniform(-7, 7)), pillow().Resampling.BICUBIC)
    width = _WIDTH * rng.uniform(0.6, 0.85)
    height = width * _HEIGHT / _WIDTH
    left, top = rng.uniform(20, _WIDTH - width - 20), rng.uniform(20, max(21, _HEIGHT - height - 20))
    cut = turned.resize((_WIDTH, _HEIGHT), pillow().Resampling.BICUBIC, box=(left, top, left + width, top + height))
    bright = ImageEnhance.Brightness(cut).enhance(float(rng.uniform(0.65, 1.35)))
    return ImageEnhance.Color(bright).enhance(float(rng.uniform(0.6, 1.4)))


def _colour(rng: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.integers(low, high, 3).tolist())


def _hill(pen: Any, rng: np.random.Generator) -> None:
    base, reach, phase = rng.integers(160, 250), rng.uniform(20, 70), rng.uniform(0, 6)
    ridge = [
        (x, base - reach * math.sin(phase + x / rng.uniform(60, 64)) - reach * 0.4 * math.sin(3 * phase + x / 23))
        for x in range(0, _WIDTH + 8, 8)
    ]
    pen.polygon([(0, _HEIGHT), *ridge, (_WIDTH, _HEIGHT)], fill=_colour(rng, 30, 170))


def _house(pen: Any, rng: np.random.Generator, left: int, foot: int) -> int:
    """A house whose lower left corner is given; says how far it is to the next."""
    width, height = int(rng.integers(50, 120)), int(rng.integers(60, 210))
    top = foot - height
    pen.rectangle((left, top, left + width, foot), fill=_colour(rng, 50, 245), outline=(30, 30, 30))
    shape = rng.integers(3)
    if shape == 0:
        peak = (left + width / 2, top - rng.integers(20, 70))
        pen.polygon([(left - 6, top), peak, (left + width + 6, top)], fill=_colour(rng, 40, 200))
    elif shape == 1:
        pen.pieslice((left, top - width / 2, left + width, top + width / 2), 180, 360, fill=_colour(rng, 40, 220))
    columns, floors = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    pane, round_panes = _colour(rng, 20, 255), rng.random() < 0.35
    for i in range(columns):
        for j in range(floors):
            x, y = left + width * (i + 0.25) / columns, top + height * (j + 0.2) / floors
            box = (x, y, x + width * 0.5 / columns, y + height * 0.55 / floors)
            (pen.ellipse if round_panes else pen.rectangle)(box, fill=pane, outline=(20, 20, 20))
    return width + int(rng.integers(4, 40))


def _tree(pen: Any, rng: np.random.Generator, horizon: int) -> None:
    x, foot, r = rng.integers(0, _WIDTH), horizon + rng.integers(20, 70), rng.integers(14, 40)
    pen.rectangle((x - 4, foot - 50, x + 4, foot), fill=(90, 60, 40))
    pen.ellipse((x - r, foot - 50 - r, x + r, foot - 50 + r), fill=_colour(rng, 20, 160))
