"""Take the pictures of the web page in docs/images. Needs Chromium and scikit-image, whose photos are public domain.

`python -m scripts.take_screenshot [FOLDER]` makes several views of each photo, indexes and serves them, searches with
one and opens the map.
"""

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance
from playwright.sync_api import sync_playwright

from benchmarks.serve import run_server
from logt.photos import update

FOLDER = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1500, 900
SCALE = 0.6


PHOTOS = [
    "chelsea", "astronaut", "brick", "camera", "coffee", "coins", "grass", "gravel", "hubble_deep_field", "moon",
    "motorcycle_left", "rocket",
]  # fmt: skip
VIEWS = 9  # of each photo


def main(images: Path = FOLDER) -> None:
    from skimage import data

    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "Photos"
        photos.mkdir()
        rng = np.random.default_rng(2)
        for name in PHOTOS:
            (original,) = Path(data.__file__).parent.glob(f"{name}.*g")
            for n in range(VIEWS):
                view(Image.open(original).convert("RGB"), rng).save(photos / f"{name.split('_')[0]}-{n + 1}.jpg")
        queries = [(photos / f"{name}-1.jpg").rename(Path(folder) / f"{name}.jpg") for name in ("coffee", "chelsea")]
        update(photos)
        with run_server(photos) as (url, _):
            pictures = photograph(url, queries)
    for name, picture in pictures.items():
        file = images / f"{name}.png"
        picture.quantize(256).save(file, optimize=True)
        print(f"{file}: {file.stat().st_size:,} bytes")


def view(photo: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return a part of a photo, in other light."""
    share = rng.uniform(0.45, 0.95)
    width, height = round(photo.width * share), round(photo.height * share * rng.uniform(0.8, 1))
    left, top = rng.integers(0, photo.width - width + 1), rng.integers(0, photo.height - height + 1)
    part = photo.crop((left, top, left + width, top + height))
    part = ImageEnhance.Brightness(part).enhance(rng.uniform(0.7, 1.2))
    return ImageEnhance.Color(part).enhance(rng.uniform(0.6, 1.2))


def photograph(url: str, queries: list[Path]) -> dict[str, Image.Image]:
    """Return the page after a search with the last photo, and the map; the first photo loads the model."""
    with sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(url)
        for query in queries:
            page.set_input_files("input[type=file]", str(query))
            page.wait_for_timeout(5000)  # the photos fade in
        pictures = {"page": page.screenshot()}
        page.goto(f"{url}map")
        page.wait_for_selector("#map", timeout=60_000)  # the map is computed in the background
        page.wait_for_timeout(5000)
        pictures["map"] = page.screenshot()
        browser.close()
    return {name: reduced(content) for name, content in pictures.items()}


def reduced(content: bytes) -> Image.Image:
    size = round(WIDTH * SCALE), round(HEIGHT * SCALE)
    return Image.open(BytesIO(content)).convert("RGB").resize(size, Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
