"""What the benchmarks share: the data, the command line and the CSV files."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from logt.datasets import Benchmark, load_benchmark, synthetic_benchmark


def argument_parser(description: str, output: str) -> argparse.ArgumentParser:
    """Return a parser with the options --data and --out."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--data", help="folder or .hdf5 file, see docs/how-to/reproduce.md; default: a synthetic collection"
    )
    parser.add_argument("--out", default="build/bench", help=f"folder for {output}")
    return parser


def load(path: str | None, size: int = 30_000, metric: str | None = None) -> Benchmark:
    """Return the benchmark in a folder or file; without a path, a synthetic one of `size` vectors.

    metric: for files that do not state it.
    """
    return synthetic_benchmark(size) if path is None else load_benchmark(path, metric=metric)


def write_rows(rows: list[dict], folder: str, name: str) -> Path:
    """Write a table as CSV; return the folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with open(path / name, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path
