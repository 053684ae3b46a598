"""Rate of indexing photos, and the mAP of searches in them.

    make images-bench                                  # the rate, on synthetic photos of 1 and 12 megapixels
    make images-bench DATA=photos MODELS="a.onnx …"    # also the mAP, on photos with a known ground truth

DATA contains collection/, queries/ and relevant.json: {"queries/x.jpg": ["collection/y.jpg", …], …}.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from logt._threads import Workers, available_cores
from logt._types import Floats
from logt.descriptors import SCALES, DescriptorExtractor, Model, Whitening, read_image
from logt.evaluation import mean_average_precision
from logt.photos import Photos, update
from logt.photos.synthetic_scenes import draw_scene

SCALE_SETS: dict[str, Sequence[float]] = {
    "1": (1.0,),
    "1, 1/√2, 1/2": SCALES,
    "√2, 1, 1/√2": (math.sqrt(2), 1.0, 1 / math.sqrt(2)),
}


def quality(data: Path, model: Model, scales: Sequence[float] = SCALES) -> dict[str, float]:
    """Return the mAP of exhaustive search with raw and with whitened descriptors, and of the index."""
    relevant = json.loads((data / "relevant.json").read_text())
    names = sorted(f"collection/{path.name}" for path in (data / "collection").iterdir())
    positives = [[names.index(name) for name in of_query] for of_query in relevant.values()]
    extractor = DescriptorExtractor(model, scales)
    X, Q = (_descriptors(extractor, [data / name for name in photos]) for photos in (names, list(relevant)))
    whitening = Whitening.learn(X)
    with tempfile.TemporaryDirectory() as folder:
        update(data / "collection", folder, model=model, scales=scales)
        photos = Photos.open(folder)
        results = [photos.search(read_image(data / name), len(names)) for name in relevant]
    rankings = [[names.index(f"collection/{name}") for name, _ in result] for result in results]
    return {
        "raw": mean_average_precision(_rank(Q, X), positives),
        "whitened": mean_average_precision(_rank(whitening(Q), whitening(X)), positives),
        "mAP": mean_average_precision(rankings, positives),
    }


def _descriptors(extractor: DescriptorExtractor, paths: Sequence[Path]) -> Floats:
    return np.array(Workers(available_cores()).map(lambda path: extractor(read_image(path)), paths))


def _rank(Q: Floats, X: Floats) -> np.ndarray:
    return np.argsort(-(Q @ X.T), axis=1, kind="stable")


def rate(count: int, threads: int, megapixels: float) -> tuple[float, float]:
    """Return photos per second, from JPEG files to an index, and the CPU time of one photo in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        width = round(1000 * math.sqrt(megapixels * 4 / 3))
        scenes = [draw_scene(seed).resize((width, width * 3 // 4)) for seed in range(4)]
        for number in range(count):
            scenes[number % 4].save(Path(folder) / f"{number}.jpg", quality=90)
        start, cpu_start = time.perf_counter(), time.process_time()
        update(folder, workers=threads)
        return count / (time.perf_counter() - start), 1000 * (time.process_time() - cpu_start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=lambda text: Path(text) if text else None, help="photos with a known ground truth"
    )
    parser.add_argument("--models", nargs="*", default=[], help="ONNX files to compare with the included model")
    parser.add_argument("--count", type=int, default=64, help="photos to measure the rate on; 0 skips it")
    args = parser.parse_args()
    if args.count:
        print_rates(args.count)
    if args.data:
        print_quality(args.data, args.models)


def print_rates(count: int) -> None:
    print("| JPEG files | threads | photos per second | CPU ms per photo |\n|---|---|---|---|")
    for megapixels in (1, 12):
        for threads in sorted({1, available_cores()}):
            per_second, cpu_ms = rate(count, threads, megapixels)
            print(f"| {megapixels} megapixels | {threads} | {per_second:.1f} | {cpu_ms:.0f} |", flush=True)


def print_quality(data: Path, models: Sequence[str]) -> None:
    print("\n| model | bytes | scales | raw | whitened | index |\n|---|---|---|---|---|---|")
    for path in (None, *models):
        model = Model.load(path)
        size = model.path.stat().st_size
        for name, scales in SCALE_SETS.items():
            values = " | ".join(f"{value:.2f}" for value in quality(data, model, scales).values())
            print(f"| {model.path.stem} | {size:,} | {name} | {values} |", flush=True)


if __name__ == "__main__":
    main()
