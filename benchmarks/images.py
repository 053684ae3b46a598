"""How many pictures a second are described, and how well they are found.

    make images-bench                                  # the rate, on made pictures of 12 megapixels
    make images-bench DATA=photos MODELS="a.onnx …"    # and the quality, on photos with a known answer

DATA holds collection/, queries/ and relevant.json: {"queries/x.jpg": ["collection/y.jpg", …], …}.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logt._threads import Workers, available_cores
from logt.descriptors import SCALES, DescriptorExtractor, Model, Whitening, read_image
from logt.evaluation import mean_average_precision
from logt.photos import Photos, update
from logt.photos.synthetic_scenes import draw_scene

CHOICES: dict[str, Sequence[float]] = {
    "1": (1.0,),
    "1, 1/√2, 1/2": SCALES,
    "√2, 1, 1/√2": (math.sqrt(2), 1.0, 1 / math.sqrt(2)),
}


def quality(data: Path, model: Model, scales: Sequence[float] = SCALES) -> dict[str, float]:
    """mAP of raw and of whitened descriptors, compared one by one, and of the index of the collection."""
    relevant = json.loads((data / "relevant.json").read_text())
    names = sorted(f"collection/{path.name}" for path in (data / "collection").iterdir())
    describe, workers = DescriptorExtractor(model, scales), Workers(available_cores())
    X, Q = (np.array(workers.map(lambda n: describe(read_image(data / n)), list(of))) for of in (names, relevant))
    whitening = Whitening.learn(X)
    positives = [[names.index(name) for name in of] for of in relevant.values()]

    def ranked(Q: Any, X: Any) -> float:
        return mean_average_precision(np.argsort(-(Q @ X.T), axis=1, kind="stable"), positives)

    with tempfile.TemporaryDirectory() as folder:
        update(data / "collection", folder, model=model, scales=scales)
        photos = Photos.open(folder)
        found = [photos.search(read_image(data / name), len(names)) for name in relevant]
    rankings = [[names.index(f"collection/{name}") for name, _ in row] for row in found]
    return {
        "raw": ranked(Q, X),
        "whitened": ranked(whitening(Q), whitening(X)),
        "mAP": mean_average_precision(rankings, positives),
    }


def rate(count: int, threads: int, megapixels: float) -> tuple[float, float]:
    """Pictures a second, from JPEG files to an index, and milliseconds of all processors for one."""
    with tempfile.TemporaryDirectory() as folder:
        width = round(1000 * math.sqrt(megapixels * 4 / 3))
        made = [draw_scene(seed).resize((width, width * 3 // 4)) for seed in range(4)]
        for number in range(count):
            made[number % 4].save(Path(folder) / f"{number}.jpg", quality=90)
        start, used = time.perf_counter(), time.process_time()
        update(folder, workers=threads)
        return count / (time.perf_counter() - start), 1000 * (time.process_time() - used) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=lambda text: Path(text) if text else None, help="photos with a known answer")
    parser.add_argument("--models", nargs="*", default=[], help="ONNX files beside the one inside")
    parser.add_argument("--count", type=int, default=64, help="pictures to measure the rate on; 0 leaves it out")
    given = parser.parse_args()
    if given.count:
        print("| JPEG files | threads | pictures a second | processor ms a picture |\n|---|---|---|---|")
        for megapixels in (1, 12):
            for threads in sorted({1, available_cores()}):
                each, used = rate(given.count, threads, megapixels)
                print(f"| {megapixels} megapixels | {threads} | {each:.1f} | {used:.0f} |", flush=True)
    if given.data:
        print("\n| model | bytes | scales | raw | whitened | index |\n|---|---|---|---|---|---|")
        for path in (None, *given.models):
            model = Model.load(path)
            for name, scales in CHOICES.items():
                row = quality(given.data, model, scales)
                size = model.path.stat().st_size
                values = " | ".join(f"{value:.2f}" for value in row.values())
                print(f"| {model.path.stem} | {size:,} | {name} | {values} |", flush=True)


if __name__ == "__main__":
    main()
