"""Index a folder of photos and search it: python examples/photos.py [FOLDER PHOTO]

Without a folder, it draws some photos: three views of each of four scenes. Needs pip install "logt-search[images]".
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from logt.photos import Photos, update


def draw_photos(folder: Path) -> None:
    """Write views of scenes: different crops of the same coloured blocks."""
    for scene in range(4):
        rng = np.random.default_rng(scene)
        blocks = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize(
            (480, 360), Image.Resampling.BICUBIC
        )
        for view in range(3):
            left, top = rng.integers(0, 40, 2)
            blocks.crop((left, top, left + 420, top + 300)).save(folder / f"scene-{scene}-view-{view}.jpg")


def main(folder: Path, query: Path) -> None:
    summary = update(folder)  # call it again when the folder has changed
    print(
        f"{summary.added} added, {summary.changed} changed, {summary.removed} removed, {len(summary.failed)} failed"
    )
    photos = Photos.open(folder / ".logt")
    for name, score in photos.search(Image.open(query), k=4):
        print(f"{score:6.3f}  {name}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*map(Path, sys.argv[1:]))
    else:
        with tempfile.TemporaryDirectory() as drawn:
            draw_photos(Path(drawn))
            main(Path(drawn), Path(drawn) / "scene-2-view-0.jpg")
