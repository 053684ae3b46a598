"""All systems side by side: accuracy, time, bytes, build. `make bench`, or `make bench DATA=folder`.

Times are medians over interleaved rounds, on one thread (builds on two). mAP is that of lists cut at DEPTH, which is
a lower bound of the full ranking's, the same for all; for systems that can rank everything, that is given too.
"""

from __future__ import annotations

import argparse
import gc
import os
import threading
import time
from pathlib import Path

os.environ.setdefault("RAYON_NUM_THREADS", "1")

import numpy as np

from benchmarks.data import easy_ap, load, write_rows
from benchmarks.systems import systems
from logt._threads import single_threaded_blas
from logt.evaluation import recall_at

DEPTH, ROUNDS, BATCH, K = 1000, 7, 64, 100
IN_A_ROW = 10  # single queries one after the other, as a service gets them: the caches are those of the system


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", help="folder with vectors.npy, queries.npy, ground_truth.json")
    words.add_argument("--out", default="build/bench", help="where bench.csv and bench.md go")
    words.add_argument("--only", nargs="*", help="systems whose name contains one of these")
    given = words.parse_args()
    data = load(given.data or None)
    rows = measure(data, given.only)
    folder = write_rows(rows, given.out, "bench.csv")
    table = markdown(data.name, rows)
    (folder / "bench.md").write_text(table)
    plots(data.name, rows, folder)
    print("\n" + table)


def measure(data, only) -> list[dict]:
    exact = None
    searches = {}
    rows = []
    for system in systems():
        if only and system.name != "exhaustive float32" and not any(word in system.name for word in only):
            continue
        print(f"building {system.name}", flush=True)
        built, seconds, peak = watched(lambda build=system.system.build: build(data.X, threads=2))
        for setting, arguments in system.settings.items():
            name = f"{system.name}, {setting}" if setting else system.name
            searches[name] = lambda Q, k, search=built.search, arguments=arguments: search(Q, k, **arguments)
            with single_threaded_blas():
                ids = searches[name](data.Q, min(DEPTH, len(data.X) - 1))
            exact = ids if exact is None else exact
            full = None
            if system.name.startswith(("exhaustive", "logt", "LO-GT")):
                with single_threaded_blas():
                    full = searches[name](data.Q, len(data.X) - 1)
            rows.append(
                {
                    "system": name,
                    "family": system.name,
                    "full mAP": "" if full is None else round(data.mean_ap(full), 2),
                    "full mAP, easy": "" if full is None else round(easy_ap(data, full), 2),
                    f"mAP@{DEPTH}": round(data.mean_ap(ids), 2),
                    "recall@10": round(recall_at(10, ids, exact), 3),
                    "bytes per vector": round(built.nbytes / len(data.X)),
                    "build s": round(seconds, 1),
                    "build peak GiB": round(peak / 2**30, 2),
                }
            )
    alone, batch = times(searches, data.Q)
    base = rows[0]["system"]
    for row in rows:
        name = row["system"]
        row["ms, one query"] = round(alone[name], 3)
        row["ms, batch"] = round(batch[name], 3)
        row["one, of exhaustive"] = round(alone[name] / alone[base], 4)
        row["batch, of exhaustive"] = round(batch[name] / batch[base], 4)
    return rows


def times(searches, Q) -> tuple[dict, dict]:
    """(milliseconds of one query, milliseconds per query of a batch): medians over interleaved rounds."""
    alone = {name: [] for name in searches}
    batch = {name: [] for name in searches}
    block = np.ascontiguousarray(np.resize(Q, (BATCH, Q.shape[1])))
    with single_threaded_blas():
        for _ in range(ROUNDS):
            for name, search in searches.items():
                for q in range(IN_A_ROW):
                    alone[name].append(timed(search, block[q : q + 1]))
                batch[name].append(timed(search, block) / BATCH)
    return tuple({name: 1000 * float(np.median(t)) for name, t in kind.items()} for kind in (alone, batch))


def timed(search, Q) -> float:
    start = time.perf_counter()
    search(Q, K)
    return time.perf_counter() - start


def watched(call):
    """(result, seconds, bytes of memory at the peak above those at the start)"""
    gc.collect()
    start, peak, done = resident(), [0], threading.Event()

    def watch():
        while not done.wait(0.02):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.perf_counter()
    try:
        result = call()
    finally:
        seconds = time.perf_counter() - begun
        done.set()
        watcher.join()
    return result, seconds, max(0, peak[0] - start)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def plots(title: str, rows: list[dict], folder: Path) -> None:
    """mAP against time and against bytes, one line per system."""
    try:
        from matplotlib import pyplot
    except ImportError:
        print("no plots: matplotlib is not installed")
        return
    quality = f"mAP@{DEPTH}"
    for name, label in {"ms, one query": "ms per query, alone", "bytes per vector": "bytes per vector"}.items():
        figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
        groups: dict[str, list[dict]] = {}
        for row in rows:
            groups.setdefault(row["family"], []).append(row)
        for number, (system, points) in enumerate(groups.items()):
            points = sorted(points, key=lambda row: row[name])
            style = {"linewidth": 2.5} if system.startswith("logt") else {"linewidth": 1, "linestyle": "--"}
            style |= {
                "marker": "osD^v<>pP*Xh"[number % 12],
                "color": pyplot.get_cmap("tab20")(number * 2 % 20 + number // 10),
            }
            axes.plot([p[name] for p in points], [p[quality] for p in points], label=system, **style)
        axes.set(xscale="log", xlabel=label, ylabel=quality, title=title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(folder / f"map-{name.split(',')[0].split()[0]}.svg")
        figure.savefig(folder / f"map-{name.split(',')[0].split()[0]}.png", dpi=130)
        pyplot.close(figure)


def markdown(title: str, rows: list[dict]) -> str:
    rows = [{name: value for name, value in row.items() if name != "family"} for row in rows]
    head = f"{title}; {os.cpu_count()} cores; times on one thread, medians of {ROUNDS} rounds, k = {K}\n\n"
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
