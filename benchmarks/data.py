"""What is measured on: a folder of a layout that docs/how-to/reproduce.md names, or a made collection."""

from __future__ import annotations

import csv
from pathlib import Path

from logt.datasets import Benchmark, load_benchmark, made_benchmark


def load(folder: str | None, made: int = 30_000) -> Benchmark:
    """The folder's benchmark; without a folder, a made one."""
    return made_benchmark(made) if folder is None else load_benchmark(folder)


def easy_ap(data: Benchmark, ids) -> float:
    """mAP of the Easy setup, or of all there is where nothing is said of easy and hard."""
    return data.mean_ap(ids, "easy" if "easy" in data.truths else None)


def write_rows(rows: list[dict], folder: str, name: str) -> Path:
    """Write a table as CSV, and say into which folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with open(path / name, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path
