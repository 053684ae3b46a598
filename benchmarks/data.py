"""What is measured on: a folder with vectors.npy, queries.npy and ground_truth.json, or a made collection."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from logt.datasets import photo_collection
from logt.evaluation import mean_average_precision


@dataclass(frozen=True)
class Data:
    name: str
    X: np.ndarray
    Q: np.ndarray
    positives: list
    junk: list
    easy: list
    hard: list

    def mean_ap(self, ids) -> float:
        return mean_average_precision(ids, self.positives, self.junk)

    def easy_ap(self, ids) -> float:
        """Only the easy positives count, the hard ones are ignored; queries without any are left out."""
        used = [q for q, easy in enumerate(self.easy) if len(easy)]
        junk = [[*self.junk[q], *self.hard[q]] for q in used]
        return mean_average_precision(ids[used], [self.easy[q] for q in used], junk)


def load(folder: str | None, made: int = 30_000) -> Data:
    """With a folder, the Medium setup of its revisited ground truth: easy and hard are positive, junk is ignored."""
    if folder is None:
        collection = photo_collection(made, 512, landmarks=64)
        name = f"made collection, {made:,} × 512"
        none = [()] * len(collection.Q)
        return Data(name, collection.X, collection.Q, collection.positives, none, collection.positives, none)
    X, Q = (_unit(np.load(Path(folder) / name)) for name in ("vectors.npy", "queries.npy"))
    truth = json.loads((Path(folder) / "ground_truth.json").read_text())["queries"]
    name = f"{Path(folder).name}, {len(X):,} × {X.shape[1]}"
    easy, hard, junk = ([t[kind] for t in truth] for kind in ("easy", "hard", "junk"))
    return Data(name, X, Q, [e + h for e, h in zip(easy, hard, strict=True)], junk, easy, hard)


def write_rows(rows: list[dict], folder: str, name: str) -> Path:
    """Write a table as CSV, and say into which folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with open(path / name, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def _unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
