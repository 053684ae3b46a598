"""Build, link and search on a GPU, next to exhaustive search and cuVS. `make gpu-bench`; no data is needed.

The vectors are structured clusters (benchmarks/clusters.py), drawn on the device: float16, in its memory or in that
of the host. New vectors of the same distribution are the queries. Times of searches are medians of several runs, with
the queries in host memory and the results back there, after one run that is not counted.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

import logt
from benchmarks.clusters import StructuredClusters
from benchmarks.data import argument_parser, median_ms, seconds, write_rows
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
        self._model = model.on(device)
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
            X = self._model.draw(BLOCK, 1_000_000 * self.number + number)
            self._last = number, X.astype(np.float16)
        return self._last[1]


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
    parser.add_argument("--limit", type=float, default=20, help="seconds for the runs of one search, at most")
    args = parser.parse_args(arguments)
    table = Table()
    if args.data:
        compare_with_cpu(args.data, args.device, table)
    else:
        measure(Device(args.device), args, table)
    if args.diffuse:
        diffusion(args.diffuse, Device(args.device), args.limit, table)
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    write_rows([{name: row.get(name, "") for name in columns} for row in table.rows], args.out, "gpu.csv")


class Table:
    """Rows that are printed at once. common: what all rows have."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.common: dict[str, Any] = {}

    def note(self, what: str, **values: Any) -> None:
        self.rows.append({**self.common, "what": what, **values})
        print(what, *(f"{name} {value}" for name, value in values.items()), sep=", ", flush=True)


def measure(device: Device, args: Any, table: Table) -> None:
    """Measure builds of a synthetic collection, searches in it, and its link."""
    model = StructuredClusters(args.d, args.clusters)
    source = DeviceClusters(model, args.rows, device)
    Q = device.get(DeviceClusters(model, args.queries, device, number=1)[:]).astype(np.float32)
    table.common = {"vectors": len(source), "d": args.d, "clusters": args.clusters}
    some = Q[:1000]
    truth = exhaustive(source, some, device)
    index: Any = logt.Index(args.d, device=args.device)
    if "warm" not in args.skip:  # kernels are compiled at their first use
        start = time.perf_counter()
        index.add(source[:WARM])
        index.to(args.device).search(some, 10)
        table.note(f"build and search of {WARM}, with compilation", s=seconds_since(start))
    for place in args.place:
        X = source if place == "drawn" else source[:] if place == "device" else device.get(source[:])
        index = logt.Index(args.d, device=args.device)
        device.release()
        start = time.perf_counter()
        index.add(X)
        name = "build" if place == "drawn" else f"build, vectors in {place} memory"
        table.note(name, s=seconds_since(start))
        if place == "device" and "exhaustive" not in args.skip:
            table.note("exhaustive, float16", **times(lambda q, X=X: exhaustive_of(X, q, device), Q, args.limit))
        if place == "device" and "cuvs" not in args.skip:
            cuvs(X, Q, truth, device, args.limit, table)
        del X
        device.release()
    start = time.perf_counter()
    there = index.to(args.device)
    size = there.report()["device bytes"]
    table.note("copy to the device", s=seconds_since(start), GB=round(size / 1e9, 2))
    start = time.perf_counter()
    there.tune()
    table.note("measuring recall by effort on the device", s=seconds_since(start))
    for recall in (recall for recall in RECALLS if str(recall) not in args.skip):
        asked, found = asked_for(there, some, truth, recall)
        spent = times(lambda q, r=asked: there.search(q, 10, recall=r), Q, args.limit)
        table.note(f"search, recall {recall}", asked=asked, recall=found, **spent)
    if "filters" not in args.skip:
        filters(there, Q, truth, device, args.limit, table)
    if args.link:
        del there
        device.release()
        start = time.perf_counter()
        index.link(args.link)
        table.note(f"link, k = {args.link}", s=seconds_since(start))
    if "cpu" not in args.skip:
        on_cpu(index, some, truth, args.limit, table)


def cuvs(X: Any, Q: Floats, truth: Any, device: Device, limit: float, table: Table) -> None:
    """Measure the first setting of each system of cuVS that reaches a recall, or the last one if none does.

    GB: of the index and of the vectors, with which the candidates are compared.
    """
    free = device.free_bytes
    for system, duration, settings in searches(X, 10, device):
        table.note(f"build, {system}", s=duration, GB=round((free - device.free_bytes + X.nbytes) / 1e9, 2))
        wanted = list(RECALLS)
        for setting, search in settings:
            found = recall_of(search(Q[:1000]), truth)
            if wanted and found >= wanted[0]:
                wanted = [recall for recall in wanted if recall > found]
                table.note(f"{system}, {setting}", recall=found, **times(search, Q, limit / 2))
            if not wanted:
                break
        else:
            table.note(f"{system}, {setting}", recall=found, **times(search, Q, limit / 2))


def on_cpu(index: logt.Index, Q: Floats, truth: Any, limit: float, table: Table) -> None:
    """Measure searches of the same index on one thread of the CPU, with its lists and, if it is linked, its graph."""
    ways: dict[str, int | None] = {"lists": 0} | ({"linked": None} if index.report()["linked"] else {})
    for name, beam in ways.items():
        for recall in (0.95, 0.98):
            asked, found = asked_for(index, Q, truth, recall, beam=beam)
            search, queries = partial(index.search, k=10, recall=asked, beam=beam), iter(Q)
            ms = median_ms(lambda s=search, q=queries: s(next(q)), len(Q) // 2, limit=limit)
            table.note(f"{name} on the CPU, recall {recall}", asked=asked, recall=found, **{"ms, 1": ms})


def filters(index: Any, Q: Floats, truth: Any, device: Device, limit: float, table: Table) -> None:
    """Measure searches at the recall that is measured for 0.95 without a filter, and with filters of two widths."""
    asked, _ = asked_for(index, Q[:1000], truth, 0.95)
    table.note("no filter", asked=asked, **times(lambda q: index.search(q, 10, recall=asked), Q, limit))
    for share in (0.5, 0.01):
        mask = np.random.default_rng(0).random(len(index)) < share
        start = time.perf_counter()
        prepared = index.prepare(mask)
        device.synchronize()
        table.note(f"prepare a filter, {share}", s=seconds_since(start, 5))
        for name, rule in (("prepared", prepared), ("tensor on the device", device.put(mask)), ("array", mask)):
            spent = times(lambda q, rule=rule: index.search(q, 10, recall=asked, filter=rule), Q, limit / 2)
            table.note(f"filter, {share}, {name}", asked=asked, **spent)


def diffusion(count: int, device: Device, limit: float, table: Table) -> None:
    """Measure diffusions of 1,000 queries on synthetic vectors, and how they agree with the CPU's."""
    model = StructuredClusters(1536, max(count // 20, 1))
    X, Q = DeviceClusters(model, count, device)[:], DeviceClusters(model, 1000, device, number=1)[:]
    queries, index = device.get(Q).astype(np.float32), logt.Index(1536, device=device.name)
    index.add(X)
    index.link(50)
    there, few = index.to(device.name), queries[:100]
    table.common = {"vectors": count, "d": 1536}
    for name, searched, some in (("device", there, queries), ("CPU", index, few)):
        for rerank in (None, "diffusion"):
            ms = median_ms(partial(searched.search, some, 100, rerank=rerank), 10, limit=limit / 10)
            table.note(f"search, rerank={rerank}, {name}", **{f"ms, {len(some)}": ms})
    theirs, mine = (searched.search(few, 100, effort=1.0, rerank="diffusion") for searched in (index, there))
    shared = np.mean([np.isin(a, b).mean() for a, b in zip(mine.ids, theirs.ids, strict=True)])
    difference = {"largest difference of scores": float(np.abs(mine.scores - theirs.scores).max())}
    table.note("diffusion, the same ids at effort 1", recall=round(float(shared), 4), **difference)


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


def exhaustive(source: DeviceClusters, Q: Floats, device: Device) -> Any:
    """Return the ids of the 10 nearest of all vectors, which are read block by block."""
    xp, q = device.xp, device.put(Q)
    ids, scores = xp.zeros((len(Q), 0), np.int64), xp.zeros((len(Q), 0), np.float32)
    for start in range(0, len(source), BLOCK):
        products = q @ source[start : start + BLOCK].astype(np.float32).T
        best = _best(device, products)
        ids = xp.concatenate([ids, best + start], axis=1)
        scores = xp.concatenate([scores, xp.take_along_axis(products, best, axis=1)], axis=1)
        kept = _best(device, scores)
        ids, scores = xp.take_along_axis(ids, kept, axis=1), xp.take_along_axis(scores, kept, axis=1)
    return device.get(ids)


def exhaustive_of(X: Any, Q: Floats, device: Device) -> Any:
    """Return the ids of the 10 nearest rows of X, in device memory, by products of float16."""
    q = device.put(Q.astype(np.float16))
    parts = (q[start : start + 64] @ X.T for start in range(0, len(q), 64))
    return device.get(device.xp.concatenate([_best(device, products.astype(np.float32)) for products in parts]))


def _best(device: Device, scores: Any) -> Any:
    """Return the columns of the 10 largest scores of each row."""
    first = device.xp.arange(len(scores), dtype=np.int64) * scores.shape[1]
    flat = device.xp.ascontiguousarray(scores).ravel()
    return device.kernels.best(flat, first, first + scores.shape[1], min(10, scores.shape[1])) - first[:, None]


def times(search: Callable[[Floats], Any], Q: Floats, limit: float) -> dict[str, float]:
    """Return the milliseconds of searches for one query, for 64, and for all."""
    result = {}
    for size in (min(size, len(Q)) for size in BATCHES):
        batches = cycle(Q[start : start + size] for start in range(0, len(Q) - size + 1, size))
        result[f"ms, {size}"] = median_ms(lambda batches=batches: search(next(batches)), 30, limit=limit / 3)
    return result


def compare_with_cpu(path: str, device: str, table: Table) -> None:
    """Measure recall, mAP and time by the recall that is asked for, of one index on the CPU and on the device."""
    data = load_benchmark(path)
    truth = next(iter(data.truths.values()))
    chosen = np.random.default_rng(0).choice(len(data.X), min(QUERIES, len(data.X)), replace=False)
    Q = data.X[np.sort(chosen)]
    index = logt.Index(Q.shape[1])
    index.add(data.X)
    index.link(50)
    both: dict[str, Any] = {"CPU": index, "device": index.to(device)}
    exact = index.search(Q, 11, effort=1.0).ids
    for asked in (0.8, 0.9, 0.95, 0.98, 0.99, 1.0):
        row: dict[str, Any] = {}
        for name, searched in both.items():
            search = partial(searched.search, recall=asked, beam=0)
            row[f"{name}: ms, {len(Q)}"] = round(1e3 * seconds(partial(search, Q, 11)), 2)
            row[f"{name}: recall"] = recall_of(search(Q, 11).ids, exact)
            row[f"{name}: mAP"] = mean_ap(search(data.Q, 1000), truth)
        table.note(f"recall {asked} asked", asked=asked, **row)
    for name, searched in both.items():
        search = partial(searched.search, rerank="diffusion")
        search(Q[:4], 100)
        spent = {f"ms, {len(Q)}": round(1e3 * seconds(partial(search, Q, 100)), 1)}
        table.note(f"diffusion, {name}", **spent, mAP=mean_ap(search(data.Q, 1000), truth))


def seconds_since(start: float, digits: int = 2) -> float:
    return round(time.perf_counter() - start, digits)


def mean_ap(found: logt.SearchResult, truth: GroundTruth) -> float:
    return round(evaluate(found.ids, truth, ks=()).mean_ap, 2)


if __name__ == "__main__":
    main()
