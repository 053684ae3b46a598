"""Take the pictures of the web page in docs/images: `python -m scripts.take_screenshot [FOLDER]`. Needs Chromium.

It draws photos, indexes them, serves them, searches with one of them and opens the map.
"""

import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from benchmarks.serve import run_server

FOLDER = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1500, 900
SCALE = 0.6


def main(images: Path = FOLDER) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "demo"
        command = [sys.executable, "-m", "logt", "images", "demo", str(home), "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        photos = (home / "collection").rename(Path(folder) / "Photos")
        with run_server(photos) as (url, _):
            pictures = photograph(url, sorted((home / "queries").iterdir())[:2])
    for name, picture in pictures.items():
        file = images / f"{name}.png"
        picture.quantize(256).save(file, optimize=True)
        print(f"{file}: {file.stat().st_size:,} bytes")


def photograph(url: str, queries: list[Path]) -> dict[str, Image.Image]:
    """Return the page after a search with the last photo, and the map; the first photo loads the network."""
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
