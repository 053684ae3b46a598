"""Compare all systems: accuracy, time, bytes, build. `make bench`, or `make bench DATA=folder`.

Times are medians over interleaved rounds, on one thread (builds on two). mAP@DEPTH is that of lists with DEPTH
results, a lower bound of the mAP of full rankings; full mAP is given for systems that can rank everything.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("RAYON_NUM_THREADS", "1")

import numpy as np

from benchmarks.data import argument_parser, easy_ap, load, write_rows
from benchmarks.systems import SystemSettings, systems
from logt._threads import single_threaded_blas
from logt.datasets import Benchmark
from logt.evaluation import recall_at

DEPTH, ROUNDS, BATCH, K = 1000, 7, 64, 100
SINGLE_QUERIES = 10  # in a row, as a service gets them, so that the caches hold this system's data

Search = Callable[[np.ndarray, int], np.ndarray]


def main() -> None:
    parser = argument_parser(__doc__, "bench.csv, bench.md and figures")
    parser.add_argument("--only", nargs="*", help="only systems whose name contains one of these words")
    args = parser.parse_args()
    data = load(args.data or None)
    selected = [
        system
        for system in systems()
        if not args.only or system.name == "exhaustive float32" or any(word in system.name for word in args.only)
    ]
    rows = measure(data, selected)
    folder = write_rows(rows, args.out, "bench.csv")
    table = markdown_table(data.name, rows)
    (folder / "bench.md").write_text(table)
    draw_figures(data.name, rows, folder)
    print("\n" + table)


# ---------------------------------------------------------------------------------------------- measurement


def measure(data: Benchmark, selected: list[SystemSettings]) -> list[dict]:
    """Return one row per system and setting; the first system is exhaustive search."""
    searches: dict[str, Search] = {}
    rows = []
    exact = None
    for system in selected:
        print(f"building {system.name}", flush=True)
        built, seconds, peak = measure_build(lambda build=system.system.build: build(data.X, threads=2))
        print(f"  {seconds:.1f} s", flush=True)
        full = None
        for setting, arguments in system.settings.items():
            name = f"{system.name}, {setting}" if setting else system.name
            searches[name] = lambda Q, k, search=built.search, arguments=arguments: search(Q, k, **arguments)
            with single_threaded_blas():
                ids = searches[name](data.Q, min(DEPTH, len(data.X) - 1))
            exact = ids if exact is None else exact
            if full is None or not system.name.startswith("logt"):  # complete rankings of logt read everything
                full = full_ranking_columns(data, system.name, searches[name])
            rows.append(
                {
                    "system": name,
                    "family": system.name,
                    **full,
                    f"mAP@{DEPTH}": round(data.mean_ap(ids), 2),
                    "recall@10": round(recall_at(10, ids, exact), 3),
                    "bytes per vector": round(built.nbytes / len(data.X)),
                    "build s": round(seconds, 1),
                    "build peak GiB": round(peak / 2**30, 2),
                }
            )
    return add_times(rows, searches, data.Q)


def full_ranking_columns(data: Benchmark, system: str, search: Search) -> dict:
    """Return the mAP of full rankings, empty for systems that return short lists."""
    if not system.startswith(("exhaustive", "logt", "LO-GT")):
        return {"full mAP": "", "full mAP, easy": ""}
    with single_threaded_blas():
        ids = search(data.Q, len(data.X) - 1)
    return {"full mAP": round(data.mean_ap(ids), 2), "full mAP, easy": round(easy_ap(data, ids), 2)}


def add_times(rows: list[dict], searches: dict[str, Search], Q: np.ndarray) -> list[dict]:
    """Return the rows with the times of their searches, and the ratios to the first row, exhaustive search."""
    single, batch = measure_times(searches, Q)
    exhaustive = rows[0]["system"]
    return [
        {
            **row,
            "ms, one query": round(single[row["system"]], 3),
            "ms, batch": round(batch[row["system"]], 3),
            "one query / exhaustive": round(single[row["system"]] / single[exhaustive], 4),
            "batch / exhaustive": round(batch[row["system"]] / batch[exhaustive], 4),
        }
        for row in rows
    ]


def measure_times(searches: dict[str, Search], Q: np.ndarray) -> tuple[dict[str, float], ...]:
    """Return (milliseconds of one query, milliseconds per query of a batch): medians over interleaved rounds."""
    single: dict[str, list[float]] = {name: [] for name in searches}
    batch: dict[str, list[float]] = {name: [] for name in searches}
    block = np.ascontiguousarray(np.resize(Q, (BATCH, Q.shape[1])))
    with single_threaded_blas():
        for _ in range(ROUNDS):
            for name, search in searches.items():
                single[name] += [search_seconds(search, block[q : q + 1]) for q in range(SINGLE_QUERIES)]
                batch[name].append(search_seconds(search, block) / BATCH)
    return tuple({name: 1000 * float(np.median(t)) for name, t in kind.items()} for kind in (single, batch))


def search_seconds(search: Search, Q: np.ndarray) -> float:
    start = time.perf_counter()
    search(Q, K)
    return time.perf_counter() - start


def measure_build(build: Callable):
    """Return (result of build(), seconds, peak memory in bytes above that at the start)."""
    gc.collect()
    start, peak, done = resident_bytes(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    try:
        result = build()
    finally:
        seconds = time.perf_counter() - begin
        done.set()
        watcher.join()
    return result, seconds, max(0, peak[0] - start)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --------------------------------------------------------------------------------------------------- output


def draw_figures(title: str, rows: list[dict], folder: Path) -> None:
    """Draw mAP over time and over bytes, with one line per system."""
    try:
        from matplotlib import pyplot
    except ImportError:
        print("no figures: matplotlib is not installed")
        return
    columns = {
        "ms, one query": ("map-ms", "ms per query, single queries"),
        "bytes per vector": ("map-bytes", "bytes per vector"),
    }
    for column, (file, label) in columns.items():
        figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
        draw_systems(axes, rows, column, pyplot.get_cmap("tab20"))
        axes.set(xscale="log", xlabel=label, ylabel=f"mAP@{DEPTH}", title=title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(folder / f"{file}.svg")
        figure.savefig(folder / f"{file}.png", dpi=130)
        pyplot.close(figure)


def draw_systems(axes, rows: list[dict], column: str, colors: Callable) -> None:
    systems: dict[str, list[dict]] = {}
    for row in rows:
        systems.setdefault(row["family"], []).append(row)
    for number, (system, points) in enumerate(systems.items()):
        points = sorted(points, key=lambda row: row[column])
        style = {"linewidth": 2.5} if system.startswith("logt") else {"linewidth": 1, "linestyle": "--"}
        style |= {"marker": "osD^v<>pP*Xh"[number % 12], "color": colors(number * 2 % 20 + number // 10)}
        axes.plot([p[column] for p in points], [p[f"mAP@{DEPTH}"] for p in points], label=system, **style)


def markdown_table(title: str, rows: list[dict]) -> str:
    rows = [{name: value for name, value in row.items() if name != "family"} for row in rows]
    head = f"{title}; {os.cpu_count()} cores; times on one thread, medians of {ROUNDS} rounds, k = {K}\n\n"
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
