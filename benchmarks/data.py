"""What the benchmarks share: the data, the command line and the tables."""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from logt.datasets import Benchmark, load_benchmark, synthetic_benchmark

Note = Callable[[str, float, str], None]
"""Called with what was measured, the value and its unit."""


def argument_parser(description: str | None, output: str, *, data: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the option --out, and --data if a benchmark uses data of its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        where = "folder or .hdf5 file, see docs/how-to/reproduce.md; default: a synthetic collection"
        parser.add_argument("--data", help=where)
    parser.add_argument("--out", default="build/bench", help=f"folder for {output}")
    return parser


def load(path: str | None, metric: str | None = None) -> Benchmark:
    """Return the benchmark in a folder or file, a synthetic one without a path. metric: if files do not state it."""
    return load_benchmark(path, metric=metric) if path else synthetic_benchmark(30_000)


def seconds(step: Callable[[], object]) -> float:
    """Return the time of a step."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def median_ms(
    step: Callable[[], object], repeats: int, before: Callable[[], object] = lambda: None, limit: float = np.inf
) -> float:
    """Return the median time of a step in milliseconds, after one that does not count; `before` is not timed.

    limit: seconds after which there are no more repeats.
    """
    before()
    step()
    times: list[float] = []
    while len(times) < repeats and sum(times) < limit:
        before()
        times.append(seconds(step))
    return round(1e3 * float(np.median(times)), 4)


class Table:
    """What was measured, in rows of (what, value, unit) that are printed at once."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def note(self, what: str, value: float, unit: str) -> None:
        print(f"{what:<64}{value:16,.3f} {unit}", flush=True)
        self.rows.append({"what": what, "value": round(float(value), 4), "unit": unit})


def write_rows(rows: list[dict], folder: str, name: str) -> None:
    """Write a table as CSV."""
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"written to {path}")
