"""Compare all systems as a collection grows: time at equal recall, bytes, build. `make growth`; no data is needed.

The vectors are structured clusters (benchmarks/clusters.py) of 10⁵ and 10⁶ × 512, in files that a later run uses
again. 500 vectors of the same distribution that are not indexed are the queries. All systems are measured in turn on
each size, as by `make bench` with --together; the settings that are timed are those whose recall is near the targets.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench import add_run_options, machine, measure, select
from benchmarks.clusters import StructuredClusters, write_vectors
from benchmarks.data import argument_parser, write_rows
from benchmarks.frontier import HELD_OUT, RAM, TIMES, interpolated, markdown
from benchmarks.task import Queries, Task, with_neighbors

QUERIES = 500
RECALLS = (0.95, 0.98)
TARGETS = [(HELD_OUT, recall) for recall in RECALLS]
COLUMNS = {f"{kind}, {HELD_OUT} {recall:.2f}": f"ms, {kind}, {recall:.2f}" for kind in TIMES for recall in RECALLS}
COLUMNS |= {RAM: "bytes per vector", "build s": "build s"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "growth.csv")
    add_run_options(parser)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100_000, 1_000_000], metavar="N", help="vectors")
    parser.add_argument("--d", type=int, default=512, help="dimensions (default: 512)")
    parser.add_argument("--dtype", default="float32", choices=("float16", "float32"), help="of the files of vectors")
    parser.add_argument("--folder", default="build/growth", help="folder for the vectors")
    args = parser.parse_args(arguments)
    args.together = True
    chosen = select(args.only)
    model = StructuredClusters(args.d)
    tables = {}
    for size in sorted(args.sizes):
        folder = Path(args.folder) / f"{size}-{args.d}-{args.dtype}"
        write_vectors(model, folder / "vectors.npy", size, dtype=args.dtype)
        rows = measure(make_task(model, folder / "vectors.npy", args.k), chosen, args, folder, near_targets)
        tables[size] = {row["system"]: row for row in interpolated(rows, TARGETS)}
    table = growth([system.name for system in chosen], tables)
    write_rows(table, args.out, "growth.csv")
    print(f"\n# Structured clusters × {args.d}, k = {args.k}; {machine()}\n\n{markdown(table)}")


def make_task(model: StructuredClusters, file: Path, k: int) -> Task:
    """Return the task on the vectors of a file, which are not read into memory; its queries are new vectors."""
    X = np.load(file, mmap_mode="r")
    held = with_neighbors(model.draw(QUERIES, [1 << 30]), X, "cosine", k)
    none = Queries(held.Q[:0], held.kth[:0])
    return Task(f"structured clusters, {len(X):,} × {model.dim}", X, "cosine", k, none, held, file=file)


def near_targets(rows: list[dict]) -> list[dict]:
    """Return the settings with a recall between the targets, or next to them: others would take most of the time."""
    recalls = [row[HELD_OUT] for row in rows]
    low = max((recall for recall in recalls if recall < RECALLS[0]), default=0.0)
    high = min((recall for recall in recalls if recall >= RECALLS[-1]), default=1.0)
    return [row for row in rows if low - 0.02 <= row[HELD_OUT] <= high + 0.01]


def growth(names: Sequence[str], tables: dict[int, dict[str, dict]]) -> list[dict]:
    """Return a row for each system: every measure at each size, and its factor from the size before."""
    table = []
    for name in names:
        row: dict[str, Any] = {"system": name}
        for column, title in COLUMNS.items():
            before: Any = None
            for size, rows in tables.items():
                value = rows[name][column] if name in rows else ""
                row[f"{title}, {size:,}"] = value
                if before is not None:
                    row[f"{title}, × to {size:,}"] = round(value / before, 2) if value and before else ""
                before = value
        table.append(row)
    return table


if __name__ == "__main__":
    main()
