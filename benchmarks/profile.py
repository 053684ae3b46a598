"""Where the time of one query goes, and how far it is from the memory bandwidth. `make profile DATA=folder`."""

from __future__ import annotations

import argparse
import time

import numpy as np

import logt
from benchmarks.data import load
from logt import _kernels
from logt._threads import single_threaded_blas
from logt.engine.decode_search import View, _measured, _scan
from logt.stages.inverted_lists import Probe
from logt.stages.residual import rotated

K, REPEATS, BATCH = 100, 300, 64


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", help="folder with vectors.npy, queries.npy, ground_truth.json")
    given = words.parse_args()
    data = load(given.data or None)
    index = logt.Index(data.X.shape[1], segment_size=None)
    index.add(data.X)
    (segment,) = index._snapshot.segments
    view, memory, Q = View.of_segment(segment, l2=False), segment.codebook, data.Q
    print(f"{data.name}; one query, one thread, k = {K}; medians of {REPEATS}; {_kernels.instruction_set()}")
    with single_threaded_blas():
        bandwidth = read_bandwidth()
        for effort in (0.2, 0.375, 0.6, 1.0):
            show(index, view, memory, Q, Probe(effort), bandwidth)
        block = np.ascontiguousarray(np.resize(Q, (BATCH, Q.shape[1])))
        one, two = (median(lambda _, t=t: index.search(block, K, threads=t), 1, 60) / BATCH for t in (1, 2))
        print(f"\nbatch of {BATCH}: {one:.3f} ms per query on one thread, {two:.3f} on two ({two / one:.2f} of it)")


def show(index, view, memory, Q, read, bandwidth) -> None:
    segment = view.segment
    C, Z = memory.measure(Q), rotated(Q)
    rows = np.mean([len(seen(segment, c, read)) for c in C])
    per_row = segment.sketches.head.shape[1] + 12 + segment.codes.width * 3  # few tails are read
    touched = memory.nbytes + rows * per_row
    steps = {
        "measure": lambda q: _measured([view], Q[q : q + 1]),
        "rotate": lambda q: rotated(Q[q : q + 1]),
        "scan": lambda q: _scan(view, C[q : q + 1], Z[q : q + 1], 0, 1, read),
        "scan and keep k": lambda q: _scan(view, C[q : q + 1], Z[q : q + 1], 0, K, read),
        "all of it": lambda q: index.search(Q[q], K, effort=read.effort, threads=1),
    }
    taken = {name: median(step, len(Q)) for name, step in steps.items()}
    whole = taken["all of it"]
    floor = 1000 * touched / bandwidth
    parts = {
        "measure": taken["measure"],
        "rotate": taken["rotate"],
        "open, decode, sketch": taken["scan"],
        "top-k": taken["scan and keep k"] - taken["scan"],
    }
    parts["checks, Python"] = whole - sum(parts.values())
    print(
        f"\neffort {read.effort}: {read.opened(memory.shape[0])} of {memory.shape[0]} units, {rows:,.0f} vectors read"
    )
    for name, ms in parts.items():
        print(f"  {name:<22}{ms:8.3f} ms")
    print(f"  {'all of it':<22}{whole:8.3f} ms")
    rate = f"{touched / 2**20:.1f} MiB at {bandwidth / 2**30:.1f} GiB/s"
    print(f"  floor: {rate} = {floor:.3f} ms; {whole / floor:.1f} × it")


def seen(segment, c, read) -> set[int]:
    """The places of the opened units."""
    lists, found = segment.lists, set()
    if read.opened(len(c)) >= len(c):
        return set(range(len(segment)))
    for turn, unit in enumerate(np.argsort(-c)):
        if turn >= read.opened(len(c)) and len(found) >= read.least:
            break
        found.update(range(lists.starts[unit], lists.starts[unit + 1]))
        found.update(lists.further[lists.offsets[unit] : lists.offsets[unit + 1]].tolist())
    return found


def median(step, queries, repeats=REPEATS) -> float:
    """Milliseconds."""
    times = []
    for turn in range(repeats):
        start = time.perf_counter()
        step(turn % queries)
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def read_bandwidth() -> float:
    """Bytes per second that one thread reads from memory: a dot product of 512 MiB."""
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
