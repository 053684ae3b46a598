"""Measure the recall that searches find for the recall that was asked for, for many kinds of queries. `make recall`.

Recall is compared with a full read (effort 1) of the same index, with and without the neighbor graph. The indexes are
built with default settings. Rows that say "tuned" search with `like=`, after `tune` with other queries of the kind.
Filters pass random vectors, or those in one direction. "share below" is the fraction of queries that find 0.2 less
than asked for.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import logt
from benchmarks.clusters import Clusters, StructuredClusters
from benchmarks.data import argument_parser, load, write_rows
from benchmarks.query_kinds import KINDS
from logt._internal.types import Array, Floats
from logt.reproduce.plots import legend, saved_figure

DIM = 256
ROUNDS = 3  # of which the median time is taken
TUNED = "as text to images"  # queries that the index is also tuned with
SAMPLE = 1000  # queries that it is tuned with


@dataclass(frozen=True)
class Collection:
    """Vectors, vectors like them that are not in the index, more of these to tune with, and its queries, if any."""

    name: str
    X: Floats
    held: Floats
    more: Floats
    metric: str
    Q: Floats | None = None

    @property
    def kinds(self) -> Mapping[str, Floats]:
        """Queries by kind."""
        kinds = {name: kind(self.X, self.held, np.random.default_rng(9)) for name, kind in KINDS.items()}
        return kinds if self.Q is None else {"its own queries": self.Q, **kinds}

    @property
    def sample(self) -> Floats:
        """Queries to tune with."""
        return KINDS[TUNED](self.X, self.more, np.random.default_rng(9))

    @property
    def filters(self) -> Mapping[str, Array]:
        """Masks over all vectors: some at random, and those that are furthest in the direction of one of them."""
        rng, along = np.random.default_rng(3), self.X @ self.X[0]
        random = {f"{share:.0%} at random": rng.random(len(self.X)) < share for share in (0.01, 0.1, 0.5)}
        return random | {f"{s:.0%} in one direction": along > np.quantile(along, 1 - s) for s in (0.1, 0.5)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "recall.csv", data=True)
    parser.add_argument("--rows", type=int, default=30_000, help="vectors of each synthetic collection")
    parser.add_argument("--queries", type=int, default=300, help="of each kind")
    parser.add_argument("--recall", type=float, nargs="+", default=[0.95], help="recall to ask for")
    parser.add_argument("-k", type=int, nargs="+", default=[10], help="results")
    parser.add_argument("--plot", action="store_true", help="draw recall.svg (with the extra reproduce)")
    args = parser.parse_args(arguments)
    rows: list[dict] = []
    for collection in collections(args.rows, args.queries, args.data):
        index = logt.Index(collection.X.shape[1], metric=collection.metric)  # type: ignore[arg-type]
        index.add(collection.X)
        index.link()
        for k in args.k:
            for kind, Q in collection.kinds.items():
                rows += measure(index, Q, k, args.recall, {"collection": collection.name, "queries": kind})
            for name, mask in collection.filters.items():
                what = {"collection": collection.name, "queries": f"like the collection, {name}"}
                rows += measure(index, collection.held, k, args.recall, what, filter=mask)
            index.tune(collection.sample, name=TUNED)
            what = {"collection": collection.name, "queries": f"{TUNED}, tuned"}
            rows += measure(index, collection.kinds[TUNED], k, args.recall, what, like=TUNED)
    write_rows(rows, args.out, "recall.csv")
    if args.plot:
        first = [row for row in rows if (row["asked"], row["k"]) == (args.recall[0], args.k[0])]
        draw(first, Path(args.out) / "recall")


def collections(rows: int, held: int, data: str | None) -> Iterator[Collection]:
    """Yield synthetic collections, and the one at a path."""
    rng = np.random.default_rng(5)
    few, count = max(rows // 60, 10), rows + held + SAMPLE

    def synthetic(name: str, X: Floats, metric: str = "cosine") -> Collection:
        return Collection(name, X[:rows], X[rows : rows + held], X[rows + held :], metric)

    def scales(deviation: float) -> Floats:
        return rng.lognormal(0, deviation, (count, 1)).astype(np.float32)

    clusters = Clusters(DIM, few).draw(count, [1])
    yield synthetic("clusters", clusters)
    structured = StructuredClusters(DIM, 4 * few).draw(count, [1])
    yield synthetic("structured clusters", structured)
    yield synthetic("varied norms, ip", clusters * scales(0.4), "ip")
    yield synthetic("far from the origin, l2", structured * scales(0.2) + np.float32(0.3), "l2")
    if data:
        benchmark = load(data)
        X = benchmark.X[rng.permutation(len(benchmark.X))]
        parts = X[held + SAMPLE :], X[:held], X[held : held + SAMPLE]
        yield Collection(benchmark.name, *parts, benchmark.metric, benchmark.Q)


def measure(
    index: logt.Index,
    Q: Floats,
    k: int,
    asked: Sequence[float],
    what: dict,
    filter: Array | None = None,
    like: str | None = None,
) -> Iterator[dict]:
    """Yield a row for lists and one for the linked index, for each recall that is asked for; with a filter, one."""
    full = index.search(Q, k, effort=1, filter=filter).ids
    for recall in asked:
        for name, beam in (("lists", 0), ("linked", None))[: 1 if filter is not None else 2]:
            params = logt.SearchParams(recall=recall, beam=beam, like=like)
            times = []
            for _ in range(ROUNDS):
                start = time.thread_time()
                if filter is None:
                    ids = [index.search(q, k, params=params).ids for q in Q]
                else:  # as a batch: what is timed is the search, not the preparation of a filter
                    ids = list(index.search(Q, k, params=params, filter=filter, threads=1).ids)
                times.append(1e3 * (time.thread_time() - start) / len(Q))
            found = np.array([len(np.intersect1d(a, b)) / len(b) for a, b in zip(ids, full, strict=True)])
            row = {
                **what,
                "index": name,
                "k": k,
                "asked": recall,
                "found": round(float(found.mean()), 3),
                "5th percentile": round(float(np.quantile(found, 0.05)), 2),
                "share below": round(float((found < recall - 0.2).mean()), 3),
                "ms": round(float(np.median(times)), 4),
            }
            print(*row.values(), sep="  ", flush=True)
            yield row


def draw(rows: list[dict], path: Path) -> None:
    """Draw the mean and the 5th percentile of each kind of query."""
    names = list(dict.fromkeys(row["collection"] for row in rows))
    lowest = min(0.5, *(row["5th percentile"] for row in rows))
    with saved_figure(path, (11, 2.2 + 2.1 * len(names))) as figure:
        axes: Any = figure.subplots(len(names), 1, squeeze=False)[:, 0]
        for part, name in zip(axes, names, strict=True):
            mine = [row for row in rows if row["collection"] == name]
            kinds = list(dict.fromkeys(row["queries"] for row in mine))
            for offset, index, marker in ((-0.1, "lists", "o"), (0.1, "linked", "s")):
                shown = [row for row in mine if row["index"] == index]
                at = [kinds.index(row["queries"]) + offset for row in shown]  # filters have no row for linked
                part.vlines(at, [r["5th percentile"] for r in shown], [r["found"] for r in shown], color="0.7")
                part.plot(at, [row["found"] for row in shown], marker, label=index, clip_on=False)
            part.axhline(mine[0]["asked"], color="0.5", linestyle=":", label="asked for")
            part.set(title=name, ylabel="recall", ylim=(lowest, 1))
            part.set_xticks(np.arange(len(kinds)), kinds, rotation=20, ha="right", fontsize=7)
        legend(figure)


if __name__ == "__main__":
    main()
