"""Searches by text with real models: their mAP, and the time of a search.

    make text-bench DATA=photos MODELS="clip siglip"     # folders with an image encoder and a text encoder

DATA contains collection/ and texts.json: {"a red bus": ["collection/y.jpg", …], …}. A text without photos has no
right answer; its best results are printed. docs/how-to/models.md describes how to export a model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from logt.descriptors import Model
from logt.errors import InvalidInputError
from logt.evaluation import mean_average_precision
from logt.photos import Photos, update

SHOWN = 3
"""Results that are printed for a text without right answers."""


class TextQuality(NamedTuple):
    """mAP of the texts that have right answers, NaN if there are none; milliseconds of a search; its best photos."""

    map: float
    encode_and_search_ms: float
    best: Mapping[str, Sequence[str]]


def text_quality(data: Path, model: str | Path) -> TextQuality:
    """Index the collection with a model and search it by each text."""
    if not Model.load(model).has_text:
        raise InvalidInputError(f"{model} has no text encoder; docs/how-to/models.md describes how to export one")
    texts: dict[str, list[str]] = json.loads((data / "texts.json").read_text())
    names = sorted(f"collection/{path.name}" for path in (data / "collection").iterdir())
    with tempfile.TemporaryDirectory() as folder:
        update(data / "collection", folder, model=model)
        photos = Photos.open(folder)
        photos.search_text("warm-up", 1)
        rankings, times = [], []
        for text in texts:
            start = time.perf_counter()
            found = photos.search_text(text, len(names))
            times.append(time.perf_counter() - start)
            rankings.append([f"collection/{name}" for name, _ in found])
    judged = [(ranking, right) for ranking, right in zip(rankings, texts.values(), strict=True) if right]
    rows = [[names.index(name) for name in ranking] for ranking, _ in judged]
    positives = [[names.index(name) for name in right] for _, right in judged]
    quality = mean_average_precision(rows, positives) if judged else float("nan")
    best = {text: ranking[:SHOWN] for text, ranking in zip(texts, rankings, strict=True) if not texts[text]}
    return TextQuality(quality, 1000 * float(np.median(times)), best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with collection/ and texts.json")
    parser.add_argument("--models", nargs="*", default=[], help="folders of models with a text encoder")
    args = parser.parse_args()
    if not args.models:
        raise SystemExit('no model to measure: make text-bench DATA=photos MODELS="folder …"')
    print("| model | mAP | ms of a search |\n|---|---|---|")
    results = {model: text_quality(args.data, model) for model in args.models}
    for model, result in results.items():
        print(f"| {model} | {result.map:.2f} | {result.encode_and_search_ms:.1f} |")
    for model, result in results.items():
        for text, names in result.best.items():
            print(f"{model}: {text!r}: {', '.join(names)}")


if __name__ == "__main__":
    main()
