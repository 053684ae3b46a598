"""Show where the time of one query goes, and how far it is from the memory bandwidth. `make profile DATA=folder`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import logt
from benchmarks.data import load
from logt import _kernels
from logt._threads import single_threaded_blas
from logt.engine.search import View, _measure, _scan
from logt.engine.segment import Segment
from logt.stages.inverted_lists import Probe
from logt.stages.residual import rotate

K, REPEATS, BATCH = 100, 300, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="benchmark folder, see docs/reproduce.md; default: a synthetic collection")
    args = parser.parse_args()
    data = load(args.data or None)
    index = logt.Index(data.X.shape[1], segment_size=None)
    index.add(data.X)
    print(f"{data.name}; one query, one thread, k = {K}; medians of {REPEATS}; {_kernels.instruction_set()}")
    with single_threaded_blas():
        bandwidth = read_bandwidth()
        for effort in (0.2, 0.375, 0.6, 1.0):
            print_profile(index, data.Q, Probe(effort), bandwidth)
        block = np.ascontiguousarray(np.resize(data.Q, (BATCH, data.Q.shape[1])))
        one, two = (median_ms(lambda _, t=t: index.search(block, K, threads=t), 1, 60) / BATCH for t in (1, 2))
        print(f"\nbatch of {BATCH}: {one:.3f} ms per query on one thread, {two:.3f} on two (ratio {two / one:.2f})")


def print_profile(index: logt.Index, Q: np.ndarray, probe: Probe, bandwidth: float) -> None:
    """Print the time of each step of a search, and the time to read its bytes once."""
    (segment,) = index._snapshot.segments
    units = segment.codebook.shape[0]
    scanned = np.mean([len(scanned_positions(segment, c, probe)) for c in segment.codebook.measure(Q)])
    per_vector = segment.residuals.head.shape[1] + 12 + segment.codes.width * 3  # few tails are read
    touched = segment.codebook.nbytes + scanned * per_vector
    steps, total = step_times(index, Q, probe)
    print(f"\neffort {probe.effort}: {probe.units(units)} of {units} lists probed, {scanned:,.0f} vectors scanned")
    for name, ms in {**steps, "total": total}.items():
        print(f"  {name:<22}{ms:8.3f} ms")
    floor = 1000 * touched / bandwidth
    rate = f"{touched / 2**20:.1f} MiB at {bandwidth / 2**30:.1f} GiB/s"
    print(f"  lower bound: {rate} = {floor:.3f} ms; the search takes {total / floor:.1f} times as long")


def step_times(index: logt.Index, Q: np.ndarray, probe: Probe) -> tuple[dict[str, float], float]:
    """Return (milliseconds of each step, milliseconds of the whole search)."""
    (segment,) = index._snapshot.segments
    view = View.of_segment(segment, l2=False)
    C, Z = segment.codebook.measure(Q), rotate(Q)
    measure = median_ms(lambda q: _measure([view], Q[q : q + 1]), len(Q))
    rotation = median_ms(lambda q: rotate(Q[q : q + 1]), len(Q))
    top_1, top_k = (
        median_ms(lambda q, R=R: _scan(view, C[q : q + 1], Z[q : q + 1], 0, R, probe, 1.0), len(Q)) for R in (1, K)
    )
    total = median_ms(lambda q: index.search(Q[q], K, effort=probe.effort, threads=1), len(Q))
    steps = {"measure": measure, "rotate": rotation, "scan lists": top_1, "keep the best k": top_k - top_1}
    return {**steps, "checks, Python": total - sum(steps.values())}, total


def scanned_positions(segment: Segment, c: np.ndarray, probe: Probe) -> set[int]:
    """Return the positions in the probed lists, for a query with measurements c."""
    lists, positions = segment.lists, set()
    if probe.units(len(c)) >= len(c):
        return set(range(len(segment)))
    for rank, unit in enumerate(np.argsort(-c)):
        if rank >= probe.units(len(c)) and len(positions) >= probe.min_scanned:
            break
        positions.update(range(lists.starts[unit], lists.starts[unit + 1]))
        positions.update(lists.further[lists.offsets[unit] : lists.offsets[unit + 1]].tolist())
    return positions


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
