"""Measure builds with many workers, a large index, and searches in shards. `make scale`; no data is needed.

The vectors are generated block by block into files, by all workers, and never in memory at once. The default is the
large run, 10,000,000 x 512: 27 GB of disk. It needs no Ray. A run that was stopped is continued by the same command,
and scale.json is written after every step. `--scaling 0` and `--shards 0` leave out the parts with many builds and
with Ray.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import logt
import logt.distributed
from benchmarks.data import Note, Table, argument_parser
from benchmarks.memory import PeakMemory, own_memory
from benchmarks.synthetic_blocks import CLUSTERS, BlockFile, Model, exact_neighbors, plan_blocks, write_blocks
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
    parser.add_argument(
        "--scaling", type=int, default=100_000, help="vectors of the builds with 1, 2, 4 and 8 workers"
    )
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--link", type=int, default=0, help="neighbors per vector of a graph to compute")
    parser.add_argument("--folder", default="build/scale", help="folder for the vectors and the index")
    args = parser.parse_args(arguments)
    args.block = args.block or default_block(args.rows, args.workers)
    report = Report(Path(args.out) / "scale.json", vars(args))
    note = report.note
    folder, model = Path(args.folder), Model(args.d, args.clusters)
    name = f"{args.rows}-{args.d}-{args.block}-{args.clusters}"
    blocks = plan_blocks(folder / f"vectors-{name}", args.rows, args.block)
    generate(blocks, args, note)
    measure_build(blocks, folder / f"index-{name}", args, note)
    if args.link:
        measure_link(folder / f"index-{name}", args.link, note)
    measure_search(model, blocks, folder / f"index-{name}", args.workers, note)
    if args.scaling:
        measure_scaling(folder / "scaling", args.d, args.scaling, args.workers, note)
    if args.shards and importlib.util.find_spec("ray"):
        measure_shards(model, folder / f"index-{name}", args.shards, note)
    elif args.shards:
        print("Ray is not installed; shards are not measured")
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


def generate(blocks: list[BlockFile], args, note: Note) -> None:
    start = time.perf_counter()
    if write_blocks(blocks, args.d, args.workers, args.clusters):
        note("generate the vectors", time.perf_counter() - start, "s")


def measure_build(blocks: list[BlockFile], index: Path, args, note: Note) -> None:
    if (index / "manifest.json").exists():
        print(f"{index} is there; it is not built again")
    else:
        seen: dict[str, float] = {}
        paths, pool = [block.path for block in blocks], ProcessPool(args.workers)
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


def measure_search(model: Model, blocks: list[BlockFile], folder: Path, workers: int, note: Note) -> None:
    """Search for held-out vectors; the truth is computed block by block."""
    Q = model.draw(QUERIES, [1 << 30])
    start = time.perf_counter()
    truth = exact_neighbors(Q, K, blocks, workers)
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


@contextlib.contextmanager
def only_cores(count: int) -> Iterator[None]:
    """Let this process, and those that it starts, use so many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:count]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure_scaling(folder: Path, dim: int, vectors: int, most: int, note: Note) -> None:
    """Build with 1 to 8 workers of one core: the same vectors (strong scaling), as many per worker (weak scaling).

    most: workers at most.
    """
    for workers in [count for count in (1, 2, 4, 8) if count <= most]:
        for kind, count in (("strong", vectors), ("weak", vectors // 8 * workers)):
            shutil.rmtree(folder, ignore_errors=True)
            blocks = plan_blocks(folder / "vectors", count, max(1, vectors // 8))
            write_blocks(blocks, dim, min(8, available_cores()))
            sources = [block.path for block in blocks]
            with only_cores(workers), ProcessPool(workers) as pool:
                inspect = [{"kind": "inspect", "source": str(s)} for s in sources * workers]
                pool.run(inspect, lambda *_: None)  # all have started
                start = time.perf_counter()
                logt.distributed.build(sources, folder / "index", pool=pool, segment_size=vectors // 8)
                seconds = time.perf_counter() - start
            note(f"{kind} scaling: build {count:,} with {workers} workers", seconds, "s")
    shutil.rmtree(folder, ignore_errors=True)


def measure_shards(model: Model, folder: Path, shards: int, note: Note) -> None:
    """Compare a search in shards on Ray with one in this process, in turn."""
    here = logt.open(folder)
    with logt.distributed.open(str(folder), replicas=1, shards=shards, address="local") as index:
        for count in (1, 64):
            Q = model.draw(count, [1 << 31])
            times: dict[str, list[float]] = {"one process": [], "shards": []}
            for _ in range(100):
                for name, search in (("one process", here.search), ("shards", index.search)):
                    start = time.perf_counter()
                    search(Q, K)
                    times[name].append(time.perf_counter() - start)
            same = (here.search(Q, K).ids == index.search(Q, K).ids).all()
            for name, values in times.items():
                note(f"{count} queries, {name}", 1e3 * float(np.median(values)), "ms")
            note(f"{count} queries, shards: the same results", float(same), "")


if __name__ == "__main__":
    main()
