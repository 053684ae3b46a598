"""Measure small changes: adds, removals, saves, filters, range searches. `make updates`; no data is needed.

Each time is a median; "ratio" compares with the state before the changes, measured in turn.
"""

import copy
import itertools
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

import logt
from benchmarks.data import Note, Table, argument_parser, median_ms, seconds, write_rows
from benchmarks.serve import run_server
from logt.server.client import Client

DIM, K = 256, 10


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "updates.csv")
    parser.add_argument("--rows", type=int, default=100_000, help="vectors of the index that is changed")
    args = parser.parse_args(arguments)
    N, table = args.rows, Table()
    note = table.note
    X = clustered_vectors(N + N // 100 + 600)
    index = logt.Index(DIM)
    index.add(X[:N])
    measure_shares(index, X, note)
    linked, not_linked = copy.copy(index), copy.copy(index)
    linked.link()
    measure_changes(linked, X, "linked", note)
    measure_changes(not_linked, X, "not linked", note)
    new = iter(X[N:])
    plain = query_ms(index, X)
    note("one query, nothing changed", plain, "ms")
    note("add one vector", median_ms(lambda: index.add(next(new)[None]), 20), "ms")
    note("one query after 20 adds", query_ms(index, X) / plain, "ratio")
    index.remove([5])
    note("one query after one removal", query_ms(index, X) / plain, "ratio")
    for _ in range(N // 100):
        index.add(next(new)[None])
    note(f"one query after {N // 100:,} adds", query_ms(index, X) / plain, "ratio")
    note(f"segments after {N // 100:,} adds", index.report()["segments"], "")
    measure_saves(index, new, note)
    measure_service(index, new, note)
    measure_strings(X, 2 * N, note)
    measure_filter(10 * N, note)
    write_rows(table.rows, args.out, "updates.csv")


def measure_changes(index: logt.Index, X: np.ndarray, name: str, note: Note) -> None:
    """Measure changes of an index of the first vectors of X; the others are new."""
    N = len(index)
    count, new, ids = N // 100, iter(X[N:]), iter(range(N))
    before = query_ms(index, X)
    note(f"one query, {name}", before, "ms")
    note(f"remove one vector, {name}", median_ms(lambda: index.remove([next(ids)]), 50), "ms")
    note(f"replace one vector, {name}", median_ms(lambda: index.upsert(next(new)[None], [next(ids)]), 50), "ms")
    mean = seconds(lambda: [index.add(next(new)[None]) for _ in range(count)]) / count
    note(f"add one vector, mean of {count:,}, {name}", 1e3 * mean, "ms")
    note(f"one query after {count:,} adds, {name}", query_ms(index, X) / before, "ratio")
    note(f"compact, {name}", seconds(index.compact), "s")


def measure_saves(index: logt.Index, new: Iterator[np.ndarray], note: Note) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        index.save(path)
        with logt.open(path, "a") as stored:
            note("save after one add", median_ms(stored.save, 10, lambda: stored.add(next(new)[None])), "ms")
            log = sum(file.stat().st_size for file in path.glob("*.log"))
            note("bytes written per save of one add", log / 11, "bytes")


def measure_service(index: logt.Index, new: Iterator[np.ndarray], note: Note) -> None:
    """Measure adds over HTTP, each on disk when the response arrives: one client, then eight at a time."""
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        with run_server(Path(folder) / "index") as (url, _):
            client = Client(url)
            note("durable add of one vector over HTTP", median_ms(lambda: client.add(next(new)), 100), "ms")
            rows = [next(new) for _ in range(400)]
            with ThreadPoolExecutor(8) as pool:
                duration = seconds(lambda: list(pool.map(client.add, rows)))
            note("durable adds over HTTP, 8 clients", len(rows) / duration, "per second")


def measure_strings(X: np.ndarray, count: int, note: Note) -> None:
    index = logt.Index(32)
    index.add(np.resize(X[:, :32], (count, 32)), ids=[f"photos/{i:07}.jpg" for i in range(count)])
    names = (f"new {number}" for number in range(100))
    milliseconds = median_ms(lambda: index.add(X[:1, :32], ids=[next(names)]), 20)
    note(f"add one vector, {count:,} string ids", milliseconds, "ms")


def measure_shares(index: logt.Index, X: np.ndarray, note: Note) -> None:
    """Measure filters that pass a share of the vectors, at random: one query, and each of 64."""
    rng, filters = np.random.default_rng(1), {"no filter": None}
    for share in (0.5, 0.1, 0.01):
        mask = rng.random(len(index)) < share
        filters[f"a mask that passes {share:.0%}"] = mask
        filters[f"a prepared filter that passes {share:.0%}"] = index.prepare(mask)
    for what, given in filters.items():
        search, Q = partial(index.search, k=K, filter=given, threads=1), X[:64]
        queries = itertools.cycle(Q)
        note(f"one query, {what}", median_ms(partial(_search_next, search, queries), len(Q)), "ms")
        note(f"each of 64 queries, {what}", median_ms(partial(search, Q), 9) / len(Q), "ms")


def _search_next(search: Callable[[np.ndarray], object], queries: Iterator[np.ndarray]) -> None:
    search(next(queries))


def measure_filter(count: int, note: Note) -> None:
    rng = np.random.default_rng(2)
    index = logt.Index(16)
    index.add(rng.standard_normal((count, 16)).astype(np.float32))
    chosen, q = rng.choice(count, 100, replace=False), rng.standard_normal(16)
    what = f"filter by 100 ids among {count:,}"
    note(what, median_ms(lambda: index.search(q, K, filter=chosen, threads=1), 30), "ms")
    tracemalloc.start()
    found = index.range_search(q, 0.9, threads=1)
    peak = tracemalloc.get_traced_memory()[1] - 12 * len(found.ids)
    tracemalloc.stop()
    note(f"memory of a range search among {count:,}, without its results", peak / 1e6, "MB")


def clustered_vectors(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((500, DIM)).astype(np.float32)
    return centres[rng.integers(0, 500, count)] + rng.standard_normal((count, DIM), np.float32)


def query_ms(index: logt.Index, X: np.ndarray) -> float:
    queries = iter(np.tile(X[:300], (2, 1)))
    return median_ms(lambda: index.search(next(queries), K, threads=1), 300)


if __name__ == "__main__":
    main()
