"""Rate of indexing photos, the mAP of searches in them, and the scores of altered copies.

    make images-bench                                  # the rate, on synthetic photos of 1 and 12 megapixels
    make images-bench DATA=photos MODELS="a.onnx …"    # also the mAP, on photos with a known ground truth

The included models are measured, and those of MODELS: ONNX files, or folders with a text encoder as well
(docs/how-to/models.md). DATA contains collection/, and either or both of

- queries/ and relevant.json: {"queries/x.jpg": ["collection/y.jpg", …], …};
- texts.json, for searches by text: {"a red bus": ["collection/y.jpg", …], …}. A text without photos has no right
  answer; its best results are printed.
"""

import argparse
import io
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL.Image import Image, Transpose

from logt._internal.threads import Workers, available_cores
from logt._internal.types import Floats
from logt.descriptors import Model, Whitening, read_image
from logt.descriptors.model_files import BUILT_IN
from logt.evaluation import mean_average_precision
from logt.photos import Photos, update
from logt.photos.synthetic_scenes import draw_scene

COPIES: dict[str, Callable[[Image], Image]] = {
    "JPEG, quality 30": lambda image: _compressed(image, 30),
    "enlarged twice": lambda image: image.resize((2 * image.width, 2 * image.height)),
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
    "brighter by a fifth": lambda image: image.point(lambda value: min(255, round(1.2 * value))),
    "cropped by a twentieth": lambda image: image.crop(
        (image.width // 40, image.height // 40, image.width - image.width // 40, image.height - image.height // 40)
    ),
    "mirrored": lambda image: image.transpose(Transpose.FLIP_LEFT_RIGHT),
    "gray": lambda image: image.convert("L").convert("RGB"),
}
"""Ways to alter a photo, as people and services do."""


def quality(data: Path, model: Model) -> dict[str, float]:
    """Return the mAP of exhaustive search with raw and with whitened descriptors, and of the index."""
    relevant = json.loads((data / "relevant.json").read_text())
    names = _collection(data)
    positives = [[names.index(name) for name in of_query] for of_query in relevant.values()]
    X, Q = (_descriptors(model, [data / name for name in photos]) for photos in (names, list(relevant)))
    whitening = Whitening.learn(X)
    with tempfile.TemporaryDirectory() as folder:
        update(data / "collection", folder, model=model)
        photos = Photos.open(folder)
        results = [photos.search(read_image(data / name), len(names)) for name in relevant]
    rankings = [[names.index(f"collection/{name}") for name, _ in result] for result in results]
    return {
        "raw": mean_average_precision(_rank(Q, X), positives),
        "whitened": mean_average_precision(_rank(whitening(Q), whitening(X)), positives),
        "mAP": mean_average_precision(rankings, positives),
    }


def copies(data: Path, model: Model, count: int) -> Iterator[tuple[str, str, Floats]]:
    """Return the scores of altered copies with their originals, and of different photos with each other.

    count: the number of photos that are altered. The whitening is that of the collection; scores of raw descriptors
    follow those of whitened ones, as (the name of the model and the kind, the pairs, their scores).
    """
    names = _collection(data)
    X = _descriptors(model, [data / name for name in names])
    chosen = range(0, len(names), max(1, len(names) // count))
    altered = {
        name: np.array(
            Workers(available_cores()).map(lambda row, f=alter: model(f(read_image(data / names[row]))), chosen)
        )
        for name, alter in COPIES.items()
    }
    relevant = json.loads((data / "relevant.json").read_text())
    same = {(names.index(a), names.index(b)) for group in relevant.values() for a in group for b in group if a < b}
    pairs = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    for kind, whitened in ((model.name, Whitening.learn(X)), (f"{model.name}, raw", lambda V: V)):
        V = whitened(X)
        yield kind, "different photos of one building", np.array([V[a] @ V[b] for a, b in pairs if (a, b) in same])
        yield kind, "other photos", np.array([V[a] @ V[b] for a, b in pairs if (a, b) not in same])
        for name, copy in altered.items():
            yield kind, name, (whitened(copy) * V[list(chosen)]).sum(axis=1)


def text_quality(data: Path, model: str) -> tuple[float, float, dict[str, list[str]]]:
    """Index the collection with a model and search it by each text.

    Return the mAP of the texts that have right answers, NaN if there are none; milliseconds of a search; and the
    best photos of the other texts.
    """
    texts: dict[str, list[str]] = json.loads((data / "texts.json").read_text())
    names, rankings, times = _collection(data), {}, []
    with tempfile.TemporaryDirectory() as folder:
        update(data / "collection", folder, model=model)
        photos = Photos.open(folder)
        photos.search_text("warm-up", 1)
        for text in texts:
            start = time.perf_counter()
            found = photos.search_text(text, len(names))
            times.append(time.perf_counter() - start)
            rankings[text] = [f"collection/{name}" for name, _ in found]
    judged = [text for text, right in texts.items() if right]
    rows, positives = ([[names.index(name) for name in of[text]] for text in judged] for of in (rankings, texts))
    quality = mean_average_precision(rows, positives) if judged else float("nan")
    best = {text: ranking[:3] for text, ranking in rankings.items() if not texts[text]}
    return quality, 1000 * float(np.median(times)), best


def _compressed(image: Image, quality: int) -> Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return read_image(file.getvalue())


def _collection(data: Path) -> list[str]:
    return sorted(f"collection/{path.name}" for path in (data / "collection").iterdir())


def _descriptors(model: Model, paths: Sequence[Path]) -> Floats:
    return np.array(Workers(available_cores()).map(lambda path: model(read_image(path)), paths))


def _rank(Q: Floats, X: Floats) -> np.ndarray:
    return np.argsort(-(Q @ X.T), axis=1, kind="stable")


def rate(model: Model, count: int, threads: int, megapixels: float) -> tuple[float, float]:
    """Return photos per second, from JPEG files to an index, and the CPU time of one photo in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        width = round(1000 * math.sqrt(megapixels * 4 / 3))
        scenes = [draw_scene(seed).resize((width, width * 3 // 4)) for seed in range(4)]
        for number in range(count):
            scenes[number % 4].save(Path(folder) / f"{number}.jpg", quality=90)
        start, cpu_start = time.perf_counter(), time.process_time()
        update(folder, model=model, workers=threads)
        return count / (time.perf_counter() - start), 1000 * (time.process_time() - cpu_start) / count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=lambda text: Path(text) if text else None, help="photos with a known ground truth"
    )
    parser.add_argument("--models", nargs="*", default=[], help="models to compare with the included ones")
    parser.add_argument("--count", type=int, default=64, help="photos to measure the rate on; 0 skips it")
    parser.add_argument("--megapixels", type=float, nargs="+", default=(1, 12), help="of these photos")
    parser.add_argument("--copies", type=int, default=40, help="photos whose altered copies are compared; 0 skips it")
    args = parser.parse_args(arguments)
    models = [Model.load(name) for name in (*BUILT_IN, *args.models)]
    if args.count:
        print_rates(models, args.count, args.megapixels)
    if args.data and (args.data / "relevant.json").exists():
        print_quality(args.data, models)
        if args.copies:
            print_copies(args.data, models, args.copies)
    if args.data and (args.data / "texts.json").exists():
        print_text_quality(args.data, [name for name in args.models if Model.load(name).has_text])


def print_rates(models: Sequence[Model], count: int, sizes: Sequence[float]) -> None:
    print("| model | JPEG files | threads | photos per second | CPU ms per photo |\n|---|---|---|---|---|")
    for megapixels in sizes:
        for threads in sorted({1, available_cores()}):
            for model in models:
                per_second, cpu_ms = rate(model, count, threads, megapixels)
                row = (model.name, f"{megapixels:g} megapixels", threads, f"{per_second:.1f}", f"{cpu_ms:.0f}")
                print(f"| {' | '.join(map(str, row))} |", flush=True)


def print_quality(data: Path, models: Sequence[Model]) -> None:
    print("\n| model | bytes | longer side | raw | whitened | index |\n|---|---|---|---|---|---|")
    for model in models:
        values = " | ".join(f"{value:.2f}" for value in quality(data, model).values())
        sides = ", ".join(f"{model.preprocessing.side * scale:.0f}" for scale in model.output.scales)
        print(f"| {model.name} | {model.path.stat().st_size:,} | {sides} | {values} |", flush=True)


def print_copies(data: Path, models: Sequence[Model], count: int) -> None:
    print("\n| model | pairs | count | lowest | 5 % | median | 95 % | highest |\n|---|---|---|---|---|---|---|---|")
    for model in models:
        for kind, name, scores in copies(data, model, count):
            values = " | ".join(f"{value:.2f}" for value in np.quantile(scores, [0, 0.05, 0.5, 0.95, 1]))
            print(f"| {kind} | {name} | {len(scores):,} | {values} |", flush=True)


def print_text_quality(data: Path, models: Sequence[str]) -> None:
    results = {model: text_quality(data, model) for model in models}
    print("\n| model | mAP by text | ms of a search |\n|---|---|---|")
    for model, (quality_by_text, milliseconds, _) in results.items():
        print(f"| {model} | {quality_by_text:.2f} | {milliseconds:.1f} |")
    for model, (_, _, best) in results.items():
        for text, names in best.items():
            print(f"{model}: {text!r}: {', '.join(names)}", flush=True)


if __name__ == "__main__":
    main()
