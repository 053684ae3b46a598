"""Measure builds with many workers, and searches in a large index. `make scale`; no data is needed.

The vectors are generated block by block into files, and never in memory at once. The default is the
large run, 10,000,000 x 512: 27 GB of disk. The same command continues a run that was
stopped: files that are there are kept.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import logt
import logt.distributed
from benchmarks.clusters import Clusters, Model, write_vectors
from benchmarks.data import Note, Table, argument_parser, seconds, write_rows
from benchmarks.memory import PeakMemory
from benchmarks.task import nearest
from logt._internal.threads import available_cores
from logt._internal.types import Floats, Ids
from logt.distributed import ProcessPool
from logt.evaluation import recall_at

QUERIES, K = 200, 10
SEGMENT = 1_000_000  # vectors of a segment, at most


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "scale.csv")
    parser.add_argument("--rows", type=int, default=10_000_000, help="vectors")
    parser.add_argument("--d", type=int, default=512, help="dimensions")
    parser.add_argument("--clusters", type=int, default=20_000, help="around which the vectors are; few are hard")
    parser.add_argument("--block", type=int, help="vectors of a file and of a segment; default: as fits the workers")
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--link", type=int, help="neighbors per vector of a graph that the workers compute too")
    parser.add_argument("--shards", type=int, help="also search in so many shards on Ray, with one replica of each")
    parser.add_argument("--folder", default="build/scale", help="folder for the vectors and the index")
    args = parser.parse_args(arguments)
    args.block = args.block or default_block(args.rows, args.workers)
    table = Table()
    note = table.note
    folder, model = Path(args.folder), Clusters(args.d, args.clusters)
    name = f"{args.rows}-{args.d}-{args.block}-{args.clusters}"
    paths = write_blocks(model, folder / f"vectors-{name}", args.rows, args.block)
    index = folder / f"index-{name}{f'-{args.link}' if args.link else ''}"
    measure_build(paths, index, args, note)
    Q = model.draw(QUERIES, [1 << 30])
    truth = exact_neighbors(Q, K, paths, args.block)
    measure_search(Q, truth, index, note)
    if args.shards:
        measure_shards(Q, truth, index, args.shards, note)
    write_rows(table.rows, args.out, "scale.csv")


def default_block(rows: int, workers: int) -> int:
    """Return the vectors of a block, at most SEGMENT: so many that all workers have the same number of blocks."""
    return -(-rows // (workers * -(-rows // (workers * SEGMENT))))


def write_blocks(model: Model, folder: Path, rows: int, block: int) -> list[Path]:
    """Write `rows` vectors to files of at most `block` each, those that are not there yet; return their paths."""
    paths = [folder / f"{number:05d}.npy" for number in range(-(-rows // block))]
    for number, path in enumerate(paths):
        write_vectors(model, path, min(block, rows - number * block), number=number)
    return paths


def exact_neighbors(Q: Floats, k: int, paths: Sequence[Path], block: int) -> Ids:
    """Return the ids of the k nearest vectors of each query by exact products; every file is read once."""
    parts = [nearest(Q, np.load(path, mmap_mode="r"), "ip", k) for path in paths]
    scores = np.concatenate([scores for scores, _ in parts], axis=1)
    ids = np.concatenate([rows + number * block for number, (_, rows) in enumerate(parts)], axis=1)
    return np.take_along_axis(ids, np.argsort(-scores, axis=1, kind="stable")[:, :k], axis=1)


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
                link=args.link,
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


def measure_search(Q: Floats, truth: Ids, folder: Path, note: Note) -> None:
    note("open, every byte checked", seconds(lambda: logt.open(folder)), "s")
    index = logt.open(folder)
    report = index.report()
    note("bytes per vector in memory", report["bytes per vector"], "bytes")
    note("graph, per vector", report["bytes by part"]["graph"] / len(index), "bytes")
    for name, used in {"default": {}, **{f"effort {e}": {"effort": e} for e in (0.1, 0.3, 0.5, 0.7)}}.items():
        measure_queries(index, Q, truth, name, used, note)
        together = seconds(lambda used=used: index.search(Q, K, **used))
        note(f"{QUERIES} queries together, {name}", 1e3 * together / QUERIES, "ms per query")


def measure_shards(Q: Floats, truth: Ids, folder: Path, shards: int, note: Note) -> None:
    """Search in shards: with the neighbor graph, if there is one, and without."""
    opened: list[logt.distributed.DistributedIndex] = []
    duration = seconds(lambda: opened.append(logt.distributed.open(str(folder), 1, shards=shards)))
    note(f"open in {shards} shards", duration, "s")
    with opened[0] as sharded:
        for name, used in {"default": {}, "without a graph": {"beam": 0}}.items():
            measure_queries(sharded, Q, truth, f"{name}, in shards", used, note)


def measure_queries(searched, Q: Floats, truth: Ids, name: str, used: dict, note: Note) -> None:
    """Measure the recall and the time of searches for one query on one thread."""
    note(f"recall of the {K} nearest, {name}", recall_at(K, searched.search(Q, K, **used).ids, truth), "")
    times = [seconds(lambda q=q: searched.search(q, K, threads=1, **used)) for q in Q]
    note(f"one query, {name}, median", 1e3 * float(np.median(times)), "ms")
    note(f"one query, {name}, 99 %", 1e3 * float(np.quantile(times, 0.99)), "ms")


if __name__ == "__main__":
    main()
