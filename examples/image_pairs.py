"""From a folder of images to the pairs that hloc and COLMAP match: python examples/image_pairs.py [FOLDER PAIRS.txt]

Structure from motion matches local features of pairs of images. With the most similar images only, that is 20 pairs
per image in place of all. Without arguments, it draws five views of each of four scenes. The next steps, with hloc or
COLMAP, are in docs/how-to/image-pairs.md. Needs pip install "logt-search[images]".
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image


def draw_views(folder: Path) -> None:
    """Write views of scenes: different crops of the same coloured blocks."""
    for scene in range(4):
        rng = np.random.default_rng(scene)
        blocks = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize((480, 360))
        for view in range(5):
            left, top = rng.integers(0, 40, 2)
            blocks.crop((left, top, left + 420, top + 300)).save(folder / f"scene{scene}-{view}.jpg")


def main(folder: Path, pairs: Path, per_image: int = 20) -> None:
    for words in (["images", "index", folder], ["pairs", folder, pairs, "--per-image", per_image]):
        subprocess.run([sys.executable, "-m", "logt", *map(str, words)], check=True)
    lines = [line.split() for line in pairs.read_text().splitlines()]
    for first, second in lines[:5]:
        print(first, second)
    same = sum(first[:6] == second[:6] for first, second in lines)
    print(f"{same / len(lines):.0%} of the pairs have names that start alike")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*map(Path, sys.argv[1:]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            images = Path(temporary) / "images"
            images.mkdir()
            draw_views(images)
            main(images, Path(temporary) / "pairs.txt", per_image=4)
