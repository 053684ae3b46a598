"""Measure builds with many workers, and searches in a large index. `make scale`; no data is needed.

The vectors are generated block by block into files, and never in memory at once. The default is the
large run, 10,000,000 x 512: 27 GB of disk. A run that was stopped is continued by the same command, and scale.json is
written after every step.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import logt
import logt.distributed
from benchmarks.data import Note, Table, argument_parser
from benchmarks.memory import PeakMemory, own_memory
from benchmarks.synthetic_blocks import CLUSTERS, Model, exact_neighbors, write_blocks
from logt._internal.threads import available_cores
from logt.distributed import ProcessPool
from logt.evaluation import recall_at

QUERIES, K = 200, 10
SEGMENT = 1_000_000  # vectors of a segment, at most


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "scale.json")
    parser.add_argument("--rows", type=int, default=10_000_000, help="vectors")
    parser.add_argument("--d", type=int, default=512, help="dimensions")
    parser.add_argument("--clusters", type=int, default=CLUSTERS, help="around which the vectors are; few are hard")
    parser.add_argument("--block", type=int, help="vectors of a file and of a segment; default: as fits the workers")
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--link", type=int, default=0, help="neighbors per vector of a graph to compute")
    parser.add_argument("--folder", default="build/scale", help="folder for the vectors and the index")
    args = parser.parse_args(arguments)
    args.block = args.block or default_block(args.rows, args.workers)
    report = Report(Path(args.out) / "scale.json", vars(args))
    note = report.note
    folder, model = Path(args.folder), Model(args.d, args.clusters)
    name = f"{args.rows}-{args.d}-{args.block}-{args.clusters}"
    start = time.perf_counter()
    paths = write_blocks(model, folder / f"vectors-{name}", args.rows, args.block)
    note("generate the vectors that were not there", time.perf_counter() - start, "s")
    measure_build(paths, folder / f"index-{name}", args, note)
    if args.link:
        measure_link(folder / f"index-{name}", args.link, note)
    measure_search(model, paths, folder / f"index-{name}", note)
    report.write(finished=True)


def default_block(rows: int, workers: int) -> int:
    """Return the vectors of a block, at most SEGMENT: so many that all workers have the same number of blocks."""
    return -(-rows // (workers * -(-rows // (workers * SEGMENT))))


class Report(Table):
    """A table that is written as JSON after each row; rows of a run with the same parameters are kept."""

    def __init__(self, path: Path, parameters: dict):
        super().__init__()
        self._path = path
        machine = {"cores": available_cores(), "architecture": platform.machine(), "logt": logt.__version__}
        self._about = {"machine": machine, "parameters": parameters}
        if path.exists():
            old = json.loads(path.read_text())
            if {name: old[name] for name in self._about} == self._about:
                self.rows = old["measurements"]

    def note(self, what: str, value: float, unit: str) -> None:
        self.rows = [row for row in self.rows if row["what"] != what]
        super().note(what, value, unit)
        self.write(finished=False)

    def write(self, *, finished: bool) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self._about, "finished": finished, "measurements": self.rows}, indent=1)
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(text + "\n")
        unfinished.rename(self._path)


def measure_build(paths: list[Path], index: Path, args, note: Note) -> None:
    if (index / "manifest.json").exists():
        print(f"{index} is there; it is not built again")
    else:
        seen: dict[str, float] = {}
        pool = ProcessPool(args.workers)
        start = time.perf_counter()
        with pool, PeakMemory(lambda: pool.pids) as workers, PeakMemory(lambda: [os.getpid()]) as driver:
            done = logt.distributed.build(
                paths,
                index,
                pool=pool,
                segment_size=args.block,
                progress=lambda step, *_: seen.setdefault(step, time.perf_counter()),
            )
        end = time.perf_counter()
        note(f"build {args.rows:,} x {args.d} with {args.workers} workers", end - start, "s, in this run")
        for (step, began), ended in zip(seen.items(), [*list(seen.values())[1:], end], strict=True):
            note(f"of that, {step}", ended - began, "s, in this run")
        note("segments", done.segments, "")
        note("segments that an earlier run had finished", done.resumed, "")
        note("bytes that the driver received", done.driver_bytes, "bytes")
        note("peak memory of a worker", workers.own / 1e9, "GB")
        note("peak memory of a worker, mapped files included", workers.mapped / 1e9, "GB")
        note("peak memory of the driver", driver.own / 1e9, "GB")
    size = sum(path.stat().st_size for path in index.iterdir())
    note("index on disk", size / 1e9, "GB")
    note("index on disk, per vector", size / args.rows, "bytes")


def measure_search(model: Model, paths: list[Path], folder: Path, note: Note) -> None:
    """Search for held-out vectors; the truth is computed block by block."""
    Q = model.draw(QUERIES, [1 << 30])
    start = time.perf_counter()
    truth = exact_neighbors(Q, K, paths)
    note("exact neighbors of the queries, all vectors read", time.perf_counter() - start, "s")
    start = time.perf_counter()
    index = logt.open(folder)
    note("open, every byte checked", time.perf_counter() - start, "s")
    report = index.report()
    note("bytes per vector in memory", report["bytes per vector"], "bytes")
    settings = {f"effort {effort}": {"effort": effort} for effort in (0.1, 0.3, 0.5, 0.7)}
    for name, used in {"default": {}, **settings}.items():
        found = index.search(Q, K, **used).ids
        note(f"recall of the {K} nearest, {name}", recall_at(K, found, truth), "")
        times = []
        for q in Q:
            start = time.perf_counter()
            index.search(q, K, threads=1, **used)
            times.append(time.perf_counter() - start)
        note(f"one query on one thread, {name}, median", 1e3 * float(np.median(times)), "ms")
        note(f"one query on one thread, {name}, 99 %", 1e3 * float(np.quantile(times, 0.99)), "ms")
        start = time.perf_counter()
        index.search(Q, K, **used)
        note(f"{QUERIES} queries together, {name}", 1e3 * (time.perf_counter() - start) / QUERIES, "ms per query")


def measure_link(folder: Path, k: int, note: Note) -> None:
    """Compute the neighbor graph, which is not saved: time, memory beyond that of the index, bytes."""
    index = logt.open(folder, mode="a")
    before = own_memory()
    start = time.perf_counter()
    with PeakMemory(lambda: [os.getpid()]) as during:
        index.link(k)
    note(f"link, k = {k}", time.perf_counter() - start, "s")
    note("peak memory beyond that of the index", (during.own - before) / 2**30, "GiB")
    note("graph, per vector", index.report()["bytes by part"]["graph"] / len(index), "bytes")


if __name__ == "__main__":
    main()
