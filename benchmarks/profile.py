"""Show where the time of one query goes, and how far it is from the memory bandwidth. `make profile DATA=folder`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import logt
from benchmarks.data import load
from logt import _kernels
from logt._internal.threads import single_threaded_blas
from logt.lists.inverted_lists import Probe, Reading
from logt.lists.search import ListSearcher

K, REPEATS, BATCH = 100, 300, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", help="benchmark folder, see docs/how-to/reproduce.md; default: a synthetic collection"
    )
    args = parser.parse_args()
    data = load(args.data or None)
    index = logt.Index(data.X.shape[1], segment_size=None)
    index.add(data.X)
    print(f"{data.name}; one query, one thread, k = {K}; medians of {REPEATS}; {_kernels.instruction_set()}")
    with single_threaded_blas():
        bandwidth = read_bandwidth()
        for effort in (0.0, 0.25, 0.5, 0.75, 1.0):
            print_profile(index, data.Q, Probe(effort), bandwidth)
        block = np.ascontiguousarray(np.resize(data.Q, (BATCH, data.Q.shape[1])))
        one, two = (median_ms(lambda _, t=t: index.search(block, K, threads=t), 1, 60) / BATCH for t in (1, 2))
        print(f"\nbatch of {BATCH}: {one:.3f} ms per query on one thread, {two:.3f} on two (ratio {two / one:.2f})")


def print_profile(index: logt.Index, Q: np.ndarray, probe: Probe, bandwidth: float) -> None:
    """Print what a search reads, the time of its steps, and the time to read its bytes once."""
    (segment,) = index._snapshot.segments
    codec = segment.codec
    searcher = ListSearcher([segment])
    reading = probe.reading(K, ranks=searcher.ranks)
    lists, decoded, heads, tails = searcher.search(Q, K, reading)[2].mean(axis=0)
    one_list = Reading(0, 1, 0, 0, 0, 0, 0, everything=False)
    measure = median_ms(lambda q: searcher.search(Q[q : q + 1], 1, one_list), len(Q))
    scan = median_ms(lambda q: searcher.search(Q[q : q + 1], K, reading._replace(candidates=0)), len(Q))
    kernel = median_ms(lambda q: searcher.search(Q[q : q + 1], K, reading), len(Q))
    total = median_ms(lambda q: index.search(Q[q], K, effort=probe.effort, threads=1), len(Q))
    print(
        f"\neffort {probe.effort}: {lists:,.0f} of {codec.units} lists probed, {decoded:,.0f} codes decoded, "
        f"{heads:,.0f} first bits and {tails:,.0f} other bits read"
    )
    steps = {
        "rotate and measure": measure,
        "scan lists": max(0.0, scan - measure),  # a difference of medians, which noise can make negative
        "refine": max(0.0, kernel - scan),
        "checks, Python": max(0.0, total - kernel),
        "total": total,
    }
    for name, ms in steps.items():
        print(f"  {name:<22}{ms:8.3f} ms")
    head, tail = codec.bands.code_bytes
    touched = codec.book.nbytes + decoded * (codec.entries * 3 + 12) + heads * head + tails * tail
    floor = 1000 * touched / bandwidth
    rate = f"{touched / 2**20:.1f} MiB at {bandwidth / 2**30:.1f} GiB/s"
    print(f"  lower bound: {rate} = {floor:.3f} ms; the search takes {total / floor:.1f} times as long")


def median_ms(step: Callable[[int], object], queries: int, repeats: int = REPEATS) -> float:
    """Return the median time of step(query) in milliseconds."""
    times = []
    for turn in range(repeats):
        start = time.perf_counter()
        step(turn % queries)
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def read_bandwidth() -> float:
    """Return the bytes per second that one thread reads from memory, by a dot product of 512 MiB."""
    a = np.ones(2**26, np.float32)
    b = np.ones(2**26, np.float32)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return (a.nbytes + b.nbytes) / min(times)


if __name__ == "__main__":
    main()
