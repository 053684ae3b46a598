"""Build, link and search on a GPU, next to exhaustive search and cuVS. `make gpu-bench`; no data is needed.

The vectors are structured clusters (benchmarks/clusters.py), drawn on the device: float16, in its memory or in that
of the host. New vectors of the same distribution are the queries. Each time is the median of several runs, with the
queries in host memory and the results back there, after one run that is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import logt
from benchmarks.clusters import DIRECTIONS, SUBSPACE, StructuredClusters
from benchmarks.data import argument_parser, write_rows
from benchmarks.gpu_rivals import searches
from logt._internal.types import Floats
from logt.datasets.benchmark import load_benchmark
from logt.evaluation import GroundTruth, evaluate
from logt.gpu.device import Device

BATCHES = (1, 64, 10_000)
QUERIES = 1000  # vectors of a collection of --data
RECALLS = (0.95, 0.99)
BLOCK = 1 << 16  # vectors that are drawn together
WARM = 200_000  # vectors of a first index
PARTS = ("warm", "exhaustive", "cuvs", "0.95", "0.99", "filters", "cpu")


class DeviceClusters:
    """StructuredClusters, drawn on a device; rows are read block by block, as often as they are needed.

    There is no copy of all of them, so that they may be more than fit into memory.
    """

    dtype = np.dtype(np.float16)

    def __init__(self, model: StructuredClusters, rows: int, device: Device, number: int = 0):
        self.shape, self.number, self.device = (rows, model.dim), number, device
        self.centers, self.directions = device.put(model.centers), device.put(model.directions)
        self.subspaces, self.shares = device.put(model.subspaces), device.put(model.shares[:-1])
        self._last: tuple[int, Any] = -1, None  # blocks are read in parts

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Any) -> Any:
        """Return rows: a slice on the device, some of them on the host."""
        if isinstance(rows, slice):
            first, last, _ = rows.indices(len(self))
            blocks = range(first // BLOCK, -(-last // BLOCK))
            parts = [self._block(b)[max(first - b * BLOCK, 0) : last - b * BLOCK] for b in blocks]
            return parts[0] if len(parts) == 1 else self.device.xp.concatenate(parts)
        out = np.empty((len(rows), self.shape[1]), np.float16)
        block = np.asarray(rows) // BLOCK
        for b in np.unique(block):
            mine = np.flatnonzero(block == b)
            out[mine] = self.device.get(self._block(int(b))[self.device.put(rows[mine] - b * BLOCK)])
        return out

    def _block(self, number: int) -> Any:
        if self._last[0] != number:
            self._last = number, self._draw(number)
        return self._last[1]

    def _draw(self, number: int) -> Any:
        xp = self.device.xp
        rng = xp.random.default_rng(1_000_000 * self.number + number)
        cluster = xp.searchsorted(self.shares, rng.random(BLOCK))
        along = xp.zeros((BLOCK, DIRECTIONS), np.float32)
        values = rng.standard_normal((BLOCK, SUBSPACE), dtype=np.float32)
        along[xp.arange(BLOCK)[:, None], self.subspaces[cluster]] = values
        X = rng.standard_normal((BLOCK, self.shape[1]), dtype=np.float32) * np.float32(0.25 * self.shape[1] ** -0.5)
        X += np.float32(0.16) * (along @ self.directions)
        X += self.centers[cluster]
        X /= xp.sqrt(xp.square(X).sum(axis=1, keepdims=True))
        return X.astype(np.float16)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "gpu.csv")
    parser.add_argument("--rows", type=int, default=10_000_000, help="vectors (default: 10,000,000)")
    parser.add_argument("--d", type=int, default=512, help="dimensions (default: 512)")
    parser.add_argument("--queries", type=int, default=10_000, help="queries (default: 10,000)")
    parser.add_argument("--device", default="cuda", help="device (default: cuda)")
    parser.add_argument(
        "--place", nargs="*", default=["device", "host"], help="where vectors to add are: device, host, drawn"
    )
    parser.add_argument("--link", type=int, default=0, help="neighbors per vector of a graph (default: none)")
    parser.add_argument(
        "--skip", nargs="*", default=[], choices=PARTS, help="parts to leave out: " + ", ".join(PARTS)
    )
    parser.add_argument("--diffuse", type=int, default=0, help="vectors of 1536 dimensions to diffuse on")
    parser.add_argument("--data", default="", help="a folder of real vectors, compared with the CPU")
    parser.add_argument("--clusters", type=int, default=20_000, help="centers of the vectors (default: 20,000)")
    parser.add_argument("--verbose", action="store_true", help="print when each step of a build starts")
    parser.add_argument("--limit", type=float, default=20, help="seconds for the runs of one search, at most")
    args = parser.parse_args(arguments)
    device, rows = Device(args.device), []
    if args.data:
        rows += compare_with_cpu(args.data, args.device, args.limit)
    else:
        model = StructuredClusters(args.d, args.clusters)
        source = DeviceClusters(model, args.rows, device)
        Q = device.get(DeviceClusters(model, args.queries, device, number=1)[:]).astype(np.float32)
        rows += synthetic(source, Q, device, args)
    if args.diffuse:
        rows += diffusion(args.diffuse, device, args.limit)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write_rows([{name: row.get(name, "") for name in columns} for row in rows], args.out, "gpu.csv")


def synthetic(source: DeviceClusters, Q: Floats, device: Device, args: Any) -> list[dict[str, Any]]:
    """Return the rows of the table of a synthetic collection."""
    rows: list[dict[str, Any]] = []

    def show(**row: Any) -> None:
        rows.append({"vectors": len(source), "d": source.shape[1], "clusters": args.clusters, **row})
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)

    some = Q[:1000]
    truth, _ = exhaustive(source, some, device)
    if "warm" not in args.skip:  # kernels are compiled at their first use
        start = time.perf_counter()
        first = logt.Index(source.shape[1], device=args.device)
        first.add(source[:WARM])
        first.to(args.device).search(some, 10)
        show(what=f"build and search of {WARM}, with compilation", s=seconds_since(start))
    index: Any = None
    for place in args.place:
        index = None
        X = source if place == "drawn" else source[:] if place == "device" else device.get(source[:])
        device.release()
        start = time.perf_counter()
        index = logt.Index(source.shape[1], device=args.device)
        index.add(X, progress=Steps() if args.verbose else None)
        show(what=f"build, vectors in {place} memory" if place != "drawn" else "build", s=seconds_since(start))
        if place == "device" and "exhaustive" not in args.skip:
            show(what="exhaustive, float16", **times(lambda q, X=X: exhaustive_of(X, q, device), Q, args.limit))
        if place == "device" and "cuvs" not in args.skip:
            cuvs(X, Q, truth, device, args.limit, show)
        del X
        device.release()
    start = time.perf_counter()
    there = index.to(args.device)
    show(what="copy to the device", s=seconds_since(start), GB=round(there.report()["device bytes"] / 1e9, 2))
    start = time.perf_counter()
    there.tune()
    show(what="measuring recall by effort on the device", s=seconds_since(start))
    for recall in RECALLS:
        if str(recall) in args.skip:
            continue
        asked, found = asked_for(there, some, truth, recall)
        show(
            what=f"search, recall {recall}",
            asked=asked,
            recall=found,
            **times(lambda q, r=asked: there.search(q, 10, recall=r), Q, args.limit),
        )
    if "filters" not in args.skip:
        filters(there, Q, truth, device, args.limit, show)
    if args.link:
        del there
        device.release()
        start = time.perf_counter()
        index.link(args.link)
        show(what=f"link, k = {args.link}", s=seconds_since(start))
    if "cpu" not in args.skip:
        on_cpu(index, some, truth, args.limit, show, linked=bool(args.link))
    return rows


def cuvs(X: Any, Q: Floats, truth: Any, device: Device, limit: float, show: Callable[..., None]) -> None:
    """Show the first setting of each system of cuVS that reaches a recall, or the last one if none does.

    GB: of the index and of the vectors, with which the candidates are compared.
    """
    free = device.free_bytes
    for system, seconds, settings in searches(X, 10, device):
        show(what=f"build, {system}", s=seconds, GB=round((free - device.free_bytes + X.nbytes) / 1e9, 2))
        wanted = list(RECALLS)
        for setting, search in settings:
            found = recall_of(search(Q[:1000]), truth)
            if wanted and found >= wanted[0]:
                wanted = [recall for recall in wanted if recall > found]
                show(what=f"{system}, {setting}", recall=found, **times(search, Q, limit / 2))
            if not wanted:
                break
        else:
            show(what=f"{system}, {setting}", recall=found, **times(search, Q, limit / 2))


def on_cpu(
    index: logt.Index, Q: Floats, truth: Any, limit: float, show: Callable[..., None], *, linked: bool
) -> None:
    """Show searches of the same index on one thread of the CPU, with its lists and, if linked, its graph."""
    ways: list[tuple[str, int | None]] = [("lists", 0), ("linked", None)]
    for name, beam in ways[: 1 + linked]:
        for recall in (0.95, 0.98):
            asked, found = asked_for(index, Q, truth, recall, beam=beam)
            spent: list[float] = []
            for q in Q[: len(Q) // 2]:
                start = time.perf_counter()
                index.search(q, 10, recall=asked, beam=beam)
                spent.append(time.perf_counter() - start)
                if sum(spent) > limit:
                    break
            ms = {"ms, 1": round(1e3 * float(np.mean(spent)), 4)}
            show(what=f"{name} on the CPU, recall {recall}", asked=asked, recall=found, **ms)


def filters(index: Any, Q: Floats, truth: Any, device: Device, limit: float, show: Callable[..., None]) -> None:
    """Show searches at the recall that is measured for 0.95 without a filter, and with filters of two widths."""
    asked, _ = asked_for(index, Q[:1000], truth, 0.95)
    show(what="no filter", asked=asked, **times(lambda q: index.search(q, 10, recall=asked), Q, limit))
    for share in (0.5, 0.01):
        mask = np.random.default_rng(0).random(len(index)) < share
        there = device.put(mask)
        start = time.perf_counter()
        prepared = index.prepare(mask)
        device.synchronize()
        show(what=f"prepare a filter, {share}", s=round(time.perf_counter() - start, 5))
        for name, rule in (("prepared", prepared), ("tensor on the device", there), ("array", mask)):
            spent = times(lambda q, rule=rule: index.search(q, 10, recall=asked, filter=rule), Q, limit / 2)
            show(what=f"filter, {share}, {name}", asked=asked, **spent)


def diffusion(count: int, device: Device, limit: float) -> list[dict[str, Any]]:
    """Return the times of diffusions of 1,000 queries on synthetic vectors, and how they agree with the CPU's."""
    model = StructuredClusters(1536, max(count // 20, 1))
    X, Q = DeviceClusters(model, count, device)[:], DeviceClusters(model, 1000, device, number=1)[:]
    queries, index = device.get(Q).astype(np.float32), logt.Index(1536, device=device.name)
    index.add(X)
    index.link(50)
    there, rows = index.to(device.name), []
    for name, searched, some in (("device", there, queries), ("CPU", index, queries[:100])):
        for rerank in (None, "diffusion"):
            searched.search(some, 100, rerank=rerank)
            spent: list[float] = []
            while len(spent) < 10 and sum(spent) < limit / 10:
                start = time.perf_counter()
                searched.search(some, 100, rerank=rerank)
                spent.append(time.perf_counter() - start)
            rows.append({"what": f"search, rerank={rerank}, {name}", "vectors": count, "d": 1536})
            rows[-1][f"ms, {len(some)}"] = round(1e3 * float(np.median(spent)), 2)
            print(rows[-1], flush=True)
    same, full = queries[:100], {"effort": 1.0, "rerank": "diffusion"}
    theirs, mine = (searched.search(same, 100, **full) for searched in (index, there))
    shared = np.mean([np.isin(a, b).mean() for a, b in zip(mine.ids, theirs.ids, strict=True)])
    rows.append({"what": "diffusion, the same ids at effort 1", "vectors": count, "recall": round(float(shared), 4)})
    rows[-1]["largest difference of scores"] = float(np.abs(mine.scores - theirs.scores).max())
    print(rows[-1], flush=True)
    return rows


class Steps:
    """A progress callback that prints when each step starts and ends."""

    def __init__(self) -> None:
        self.start, self.last = time.perf_counter(), ""

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self.last or done == total:
            print(f"  {time.perf_counter() - self.start:8.2f} s  {what} {done}/{total}", flush=True)
        self.last = what


def asked_for(index: Any, Q: Floats, truth: Any, wanted: float, **settings: Any) -> tuple[float, float]:
    """Return (the recall to ask for, the recall found): the least that finds what is wanted."""
    for asked in (0.8, 0.85, 0.9, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995):
        found = recall_of(index.search(Q, 10, recall=asked, **settings).ids, truth)
        if found >= wanted:
            break
    return asked, found


def recall_of(ids: Any, truth: Any) -> float:
    hits = (ids[:, :, None] == truth[:, None, :10]).sum()
    return round(float(hits) / truth[:, :10].size, 4)


def exhaustive(source: DeviceClusters, Q: Floats, device: Device) -> tuple[Any, Any]:
    """Return (ids, scores) of the 10 nearest of all vectors, which are read block by block."""
    xp, q = device.xp, device.put(Q)
    ids, scores = xp.zeros((len(Q), 0), np.int64), xp.zeros((len(Q), 0), np.float32)
    for start in range(0, len(source), BLOCK):
        products = q @ source[start : start + BLOCK].astype(np.float32).T
        best = _best(device, products)
        ids = xp.concatenate([ids, best + start], axis=1)
        scores = xp.concatenate([scores, xp.take_along_axis(products, best, axis=1)], axis=1)
        kept = _best(device, scores)
        ids, scores = xp.take_along_axis(ids, kept, axis=1), xp.take_along_axis(scores, kept, axis=1)
    return device.get(ids), device.get(scores)


def exhaustive_of(X: Any, Q: Floats, device: Device) -> Any:
    """Return the ids of the 10 nearest rows of X, in device memory, by products of float16."""
    xp, found = device.xp, []
    q = device.put(Q.astype(np.float16))
    for start in range(0, len(q), 64):
        products = q[start : start + 64] @ X.T
        found.append(_best(device, products.astype(np.float32)))
    return device.get(xp.concatenate(found))


def _best(device: Device, scores: Any) -> Any:
    first = device.xp.arange(len(scores), dtype=np.int64) * scores.shape[1]
    scores = device.xp.ascontiguousarray(scores)
    return (
        device.kernels.best(scores.ravel(), first, first + scores.shape[1], min(10, scores.shape[1])) - first[:, None]
    )


def times(search: Callable[[Floats], Any], Q: Floats, limit: float) -> dict[str, float]:
    """Return the milliseconds of searches for one query, for 64, and for all."""
    result = {}
    for size in BATCHES:
        size = min(size, len(Q))
        search(Q[:size])
        spent: list[float] = []
        while len(spent) < 30 and sum(spent) < limit / 3:
            at = len(spent) * size % max(1, len(Q) - size + 1)
            start = time.perf_counter()
            search(Q[at : at + size])
            spent.append(time.perf_counter() - start)
        result[f"ms, {size}"] = round(1e3 * float(np.median(spent)), 3)
    return result


def compare_with_cpu(path: str, device: str, limit: float) -> list[dict[str, Any]]:
    """Return recall, mAP and time by the recall that is asked for, of one index on the CPU and on the device."""
    data, rows = load_benchmark(path), []
    truth = next(iter(data.truths.values()))
    chosen = np.random.default_rng(0).choice(len(data.X), min(QUERIES, len(data.X)), replace=False)
    Q = data.X[np.sort(chosen)]
    index = logt.Index(Q.shape[1])
    index.add(data.X)
    index.link(50)
    there = index.to(device)
    exact = index.search(Q, 11, effort=1.0).ids
    for asked in (0.8, 0.9, 0.95, 0.98, 0.99, 1.0):
        row: dict[str, Any] = {"asked": asked}
        for name, searched in (("CPU", index), ("device", there)):
            settings: Any = {"recall": asked, "beam": 0}
            start = time.perf_counter()
            found = searched.search(Q, 11, **settings).ids
            row[f"{name}: ms, {len(Q)}"] = round(1e3 * (time.perf_counter() - start), 2)
            row[f"{name}: recall"] = recall_of(found, exact)
            ranked = searched.search(data.Q, 1000, **settings).ids
            row[f"{name}: mAP"] = mean_ap(ranked, truth)
        rows.append(row)
        print(row, flush=True)
    for name, searched in (("CPU", index), ("device", there)):
        searched.search(Q[:4], 100, rerank="diffusion")
        start = time.perf_counter()
        searched.search(Q, 100, rerank="diffusion")
        spent = time.perf_counter() - start
        ranked = searched.search(data.Q, 1000, rerank="diffusion").ids
        rows.append({"what": f"diffusion, {name}", f"ms, {len(Q)}": round(1e3 * spent, 1)})
        rows[-1]["mAP"] = mean_ap(ranked, truth)
        print(rows[-1], flush=True)
    return rows


def mean_ap(ranked: Any, truth: GroundTruth) -> float:
    return round(evaluate(ranked, truth, ks=()).mean_ap, 2)


def seconds_since(start: float) -> float:
    return round(time.perf_counter() - start, 2)


if __name__ == "__main__":
    main()
