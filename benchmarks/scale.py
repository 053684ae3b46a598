"""Measure builds with many workers, a large index, and searches in shards. `make scale`; no data is needed.

The vectors are generated block by block into files, and never in memory at once. `--vectors 10000000`, the default,
is the large run: 27 GB of disk, and hours on two cores; it resumes if it was stopped. `--scaling 0` and `--shards 0`
leave out the parts with many builds and with Ray.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import logt
import logt.distributed
from benchmarks.data import argument_parser, write_rows
from logt._threads import single_threaded_blas
from logt._types import Floats, Ids
from logt.distributed import ProcessPool
from logt.stages.codec import Codec
from logt.stages.inverted_lists import Probe

CLUSTERS, RANK, QUERIES, K = 20_000, 64, 100, 10
CHUNK = 50_000

Note = Callable[[str, float, str], None]


def main() -> None:
    parser = argument_parser(__doc__, "scale.csv")
    parser.add_argument("--vectors", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--block", type=int, default=1_000_000, help="vectors of a source and of a segment")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scaling", type=int, default=100_000, help="vectors of the builds with 1 to 8 workers")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--folder", default="build/scale", help="folder for the vectors and the index")
    args = parser.parse_args()
    rows: list[dict] = []

    def note(what: str, value: float, unit: str) -> None:
        rows.append({"what": what, "value": round(value, 3), "unit": unit})
        print(f"{what:<64}{value:14.3f} {unit}", flush=True)
        write_rows(rows, args.out, "scale.csv")

    folder = Path(args.folder)
    model = Model(args.dim)
    sources = generate(model, folder / f"vectors-{args.vectors}-{args.dim}", args.vectors, args.block, note)
    index = folder / f"index-{args.vectors}-{args.dim}"
    measure_build(sources, index, args, note)
    measure_search(model, sources, index, note)
    measure_parts(args.dim, index, model, note)
    if args.scaling:
        measure_scaling(folder / "scaling", model, args.scaling, note)
    if args.shards:
        measure_shards(model, index, args.shards, note)


class Model:
    """Vectors around random centers, which are mixtures of a few directions; the spectrum falls."""

    def __init__(self, dim: int):
        rng = np.random.default_rng(0)
        self.dim = dim
        basis = (
            rng.standard_normal((RANK, dim), np.float32) * (np.arange(RANK, dtype=np.float32) + 4)[:, None] ** -0.5
        )
        self.centers = rng.standard_normal((CLUSTERS, RANK), np.float32) @ basis

    def draw(self, count: int, seed: list[int]) -> Floats:
        """Return `count` vectors of norm 1."""
        rng = np.random.default_rng(seed)
        X = self.centers[rng.integers(0, CLUSTERS, count)]
        X += rng.standard_normal((count, self.dim), np.float32) * np.float32(0.7 * np.abs(self.centers).mean())
        return X / np.linalg.norm(X, axis=1, keepdims=True)


def generate(model: Model, folder: Path, vectors: int, block: int, note: Note) -> list[Path]:
    """Write the vectors, a block per file; files of an earlier run are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    paths = []
    for number in range(-(-vectors // block)):
        path = folder / f"{number:05d}.npy"
        paths.append(path)
        if path.exists():
            continue
        rows = min(block, vectors - number * block)
        unfinished = path.with_suffix(".part")
        file = np.lib.format.open_memmap(unfinished, "w+", np.float32, (rows, model.dim))
        for first in range(0, rows, CHUNK):
            part = model.draw(min(CHUNK, rows - first), [number, first])
            file[first : first + len(part)] = part
        file.flush()
        del file
        unfinished.rename(path)
    note("generate the vectors", time.perf_counter() - start, "s")
    return paths


def measure_build(sources: list[Path], index: Path, args, note: Note) -> None:
    if (index / "manifest.json").exists():
        print(f"{index} is there; it is not built again")
    else:
        start, seen = time.perf_counter(), {}

        def progress(what: str, done: int, total: int) -> None:
            seen.setdefault(what, time.perf_counter())
            print(f"  {what} {done:,}/{total:,} at {time.perf_counter() - start:,.0f} s", flush=True)

        done = logt.distributed.build(
            sources, index, workers=args.workers, segment_size=args.block, progress=progress
        )
        end = time.perf_counter()
        note(f"build {done.vectors:,} x {args.dim} with {args.workers} workers", end - start, "s")
        note("of that, sampling and learning", seen["encoding"] - seen["sampling"], "s")
        note("of that, encoding", seen["measuring recall"] - seen["encoding"], "s")
        note("segments that an earlier run had finished", done.resumed, "")
        note("bytes that the driver received", done.driver_bytes, "bytes")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        note("peak memory of a worker, mapped files included", peak / 1e9, "GB")
    size = sum(path.stat().st_size for path in index.iterdir())
    note("index on disk", size / 1e9, "GB")


def measure_search(model: Model, sources: list[Path], folder: Path, note: Note) -> None:
    """Search for held-out vectors; the truth is computed block by block."""
    Q = model.draw(QUERIES, [1 << 30])
    truth = exact_neighbors(Q, sources)
    start = time.perf_counter()
    index = logt.open(folder)
    note("open, every byte checked", time.perf_counter() - start, "s")
    report = index.report()
    note("bytes per vector in memory", report["bytes per vector"], "bytes")
    for name, settings in (("default", {}), ("effort 0.3", {"effort": 0.3}), ("effort 0.7", {"effort": 0.7})):
        index.search(Q, K, **settings)
        times = []
        for q in Q:
            start = time.perf_counter()
            index.search(q, K, threads=1, **settings)
            times.append(time.perf_counter() - start)
        found = index.search(Q, K, **settings).ids
        note(f"recall of the 10 nearest, {name}", recall(found, truth), "")
        note(f"one query on one thread, {name}", 1e3 * float(np.median(times)), "ms")


def exact_neighbors(Q: Floats, sources: list[Path]) -> Ids:
    """Return the K nearest vectors of each query, by reading all sources once."""
    best = np.full((len(Q), 0), 0, np.float32)
    ids = np.full((len(Q), 0), 0, np.int64)
    first = 0
    for source in sources:
        X = np.load(source, mmap_mode="r")
        for start in range(0, len(X), CHUNK):
            scores = Q @ np.asarray(X[start : start + CHUNK]).T
            top = np.argpartition(-scores, min(K, scores.shape[1] - 1), axis=1)[:, :K]
            best = np.concatenate([best, np.take_along_axis(scores, top, axis=1)], axis=1)
            ids = np.concatenate([ids, top + first + start], axis=1)
            keep = np.argsort(-best, axis=1)[:, :K]
            best, ids = np.take_along_axis(best, keep, axis=1), np.take_along_axis(ids, keep, axis=1)
        first += len(X)
    return ids


def recall(found: Ids, truth: Ids) -> float:
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(found.tolist(), truth.tolist(), strict=True)]))


def measure_parts(dim: int, folder: Path, model: Model, note: Note) -> None:
    """Measure what docs/scale.md computes larger collections from, in time of one core; waiting does not count."""
    rng = np.random.default_rng(0)
    X = model.draw(1024, [3])
    method = logt.methods.sketched()
    for units in (2000, 12_649, 40_000):
        Y = rng.standard_normal((units, dim), np.float32)
        Y /= np.linalg.norm(Y, axis=1, keepdims=True)
        codec = Codec.from_memory_vectors(
            Y, X, np.zeros(dim, np.float32), method.decode, method.residual, unit_norm=True
        )
        with single_threaded_blas():
            seconds = cpu_seconds(lambda codec=codec: codec.encode(X, method.decode))
            products = cpu_seconds(lambda Y=Y: X @ Y.T)
        note(f"encode a vector, {units:,} units", 1e3 * seconds / len(X), "core ms")
        note(f"compare vectors with {units:,} units", 2 * dim * units * len(X) / products / 1e9, "GFlop per core s")
    searcher = logt.open(folder)._snapshot.searcher()
    Q = model.draw(QUERIES, [4])
    for effort in (0.3, 0.5, 0.7):
        reading = Probe(effort).reading(K, refine=True)
        counts = searcher.search(Q, K, reading)[2]
        seconds = cpu_seconds(lambda reading=reading: searcher.search(Q, K, reading))
        note(f"one query, effort {effort}", 1e3 * seconds / len(Q), "core ms")
        note(f"codes that it decodes, effort {effort}", counts[:, 1].mean(), "")


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the time of this process for a call, the least of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def measure_scaling(folder: Path, model: Model, vectors: int, note: Note) -> None:
    """Build with 1 to 8 workers: the same vectors (strong scaling), and as many per worker (weak scaling)."""
    for workers in (1, 2, 4, 8):
        for kind, count in (("strong", vectors), ("weak", vectors // 8 * workers)):
            shutil.rmtree(folder, ignore_errors=True)
            sources = generate(model, folder / "vectors", count, max(1, vectors // 8), lambda *_: None)
            with ProcessPool(workers) as pool:
                pool.run(
                    [{"kind": "inspect", "source": str(s)} for s in sources * workers], lambda *_: None
                )  # started
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
