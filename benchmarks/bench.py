"""Compare all systems: recall, mAP, time, bytes, build. `make bench`, or `make bench DATA=folder`.

Each system is built in a process of its own on all cores, saved, and searched on one thread. 200 vectors of the data
are held out: they are not indexed, and serve as queries that have no true match. Recall is the fraction of the exact
k nearest neighbors that are found, of these vectors and of the queries of the data. Settings take turns, in rounds.
Times are means of 128 single queries of both kinds, each with its median over the rounds, and medians of a query in a
batch of 64. mAP@1000 is that of lists of 1,000 results, a lower bound of the mAP of full rankings, which is given for
systems that can rank everything.

After an interruption, --resume keeps the systems that were measured on the same data. --together keeps all indexes in
memory and lets all systems take turns, setting by setting, which is better on a machine that has other work to do.
"""

import argparse
import itertools
import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import argument_parser, load, write_rows
from benchmarks.frontier import HELD_OUT, QUERIES, RAM, compare, interpolated, markdown
from benchmarks.interface import System
from benchmarks.plots import draw_figures
from benchmarks.systems import systems
from benchmarks.task import Task, make_task, save_task
from benchmarks.worker import BATCH, BATCHES, SINGLE, Worker, WorkerError
from logt._internal.threads import available_cores

DEPTH = 1000
RECALLS = {"queries": QUERIES, "held": HELD_OUT}  # columns, by set of queries
Timed = Callable[[list[dict]], list[dict]]


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse_arguments(arguments)
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = select(args.only)
    task = make_task(load(args.data, args.metric), k=args.k, rows=args.rows, queries=args.queries)
    rows = measure(task, chosen, args, folder)
    draw_figures(write_report(task, rows, folder), rows, folder)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__, "bench.csv, frontier.csv, bench.md and figures", data=True)
    add_run_options(parser)
    parser.add_argument("--metric", help="cosine, ip or l2, if the files do not state it (default: cosine)")
    parser.add_argument("--rows", type=int, help="the first vectors of the data only")
    parser.add_argument("--queries", type=int, default=1000, help="at most so many queries of the data")
    parser.add_argument("--together", action="store_true", help="measure the times of all systems in turn")
    return parser.parse_args(arguments)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is measured, and how."""
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="systems of these names, or whose names contain these words"
    )
    parser.add_argument("--k", type=int, default=10, help="results per search (default: 10)")
    parser.add_argument(
        "--threads", type=int, default=available_cores(), help="threads of builds (default: all cores)"
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of timed searches (default: 7)")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for a build before it is given up")
    parser.add_argument("--resume", action="store_true", help="keep what was measured before on the same data")


def select(words: Sequence[str] | None) -> list[System]:
    """Return the systems that were requested and can be used; report which ones cannot, and what to install."""
    chosen, missing = [], {}
    names = {system.name for system in systems()}
    for system in systems():
        if words and not any(word == system.name if word in names else word in system.name for word in words):
            continue
        reason = system.missing()
        if reason:
            missing.setdefault((system.package, reason), []).append(system.name)
        else:
            chosen.append(system)
    for (_, reason), names in missing.items():
        print(f"SKIPPED {', '.join(names)}: {reason}", flush=True)
    if not chosen:
        raise SystemExit(f"no system to measure; there are: {', '.join(system.name for system in systems())}")
    return chosen


def measure(
    task: Task, chosen: Sequence[System], args: argparse.Namespace, folder: Path, timed: Timed = list
) -> list[dict]:
    """Return the rows of the systems on a task, which are also stored in the folder, one file per system.

    timed: returns those rows of a system whose times are measured.
    """
    print(f"{task.name}, {task.metric}; {machine()}; {len(task.queries.Q)} queries, {len(task.held.Q)} held out")
    how = {"single": SINGLE, "batches": BATCHES, "together": args.together}
    key = {"data": task.fingerprint(), "rounds": args.rounds, "threads": args.threads, **how}
    points = Points(folder / "points", key)
    todo = [system for system in chosen if not (args.resume and points.read(system))]
    with tempfile.TemporaryDirectory(prefix="task-", dir=folder) as shared:
        save_task(task, Path(shared))
        for group in [todo] if args.together else [[system] for system in todo]:
            for system, rows in Run(task, Path(shared), args, timed).measure(group):
                points.write(system, rows)
    rows = [row for system in chosen for row in points.read(system)]
    if not rows:
        raise SystemExit("nothing was measured")
    return rows


class Points:
    """The rows of each system in a folder, with the key of the run that measured them."""

    def __init__(self, folder: Path, key: dict[str, Any]):
        self._folder, self._key = folder, key

    def _path(self, system: System) -> Path:
        return self._folder / (re.sub(r"\W+", "-", system.name) + ".json")

    def read(self, system: System) -> list[dict]:
        """Return the stored rows of this data and version; none if there are none."""
        try:
            stored = json.loads(self._path(system).read_text())
        except FileNotFoundError:
            return []
        return stored["rows"] if stored["key"] == {**self._key, "version": system.version()} else []

    def write(self, system: System, rows: list[dict]) -> None:
        self._folder.mkdir(exist_ok=True)
        key = {**self._key, "version": system.version()}
        self._path(system).write_text(json.dumps({"key": key, "rows": rows}, indent=1))


class Run:
    """Builds and measures systems, each in its own process."""

    def __init__(self, task: Task, folder: Path, args: argparse.Namespace, timed: Timed):
        self._task, self._folder, self._args, self._timed = task, folder, args, timed

    def measure(self, group: Sequence[System]) -> Iterator[tuple[System, list[dict]]]:
        """Return the rows of each system that could be built; the times of a group are measured in turn."""
        workers: dict[str, Worker] = {}
        rows: dict[str, list[dict]] = {}
        try:
            for system in group:
                workers[system.name] = Worker(system, self._folder, self._task.metric, self._args.threads)
                built = self._attempt(system, self._build, workers[system.name], system)
                if built:
                    rows[system.name] = self._timed(built)
            times: dict[str, list[list[dict]]] = {name: [[] for _ in of] for name, of in rows.items()}
            most = max(map(len, rows.values()), default=0)
            for number, place in itertools.product(range(self._args.rounds), range(most)):
                for system in [system for system in group if place < len(rows.get(system.name, ()))]:
                    setting = rows[system.name][place]["setting"]
                    measured = self._attempt(system, self._time, workers[system.name], setting, number)
                    if measured is None:
                        del rows[system.name]
                    else:
                        times[system.name][place].append(measured)
        finally:
            for worker in workers.values():
                worker.stop()
            for index in self._folder.glob("index-*"):
                shutil.rmtree(index)
        for system in group:
            if system.name in rows:
                pairs = zip(rows[system.name], times[system.name], strict=True)
                yield system, [row | median_times(rounds) for row, rounds in pairs]

    def _attempt(self, system: System, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except WorkerError as error:
            print(f"SKIPPED {system.name}: {error}", flush=True)
            return None

    def _build(self, worker: Worker, system: System) -> list[dict]:
        task = self._task
        print(f"{system.name}: ", end="", flush=True)
        built = worker.call("build", limit=self._args.limit)
        print(f"{system.version()}, built in {built['seconds']:.1f} s", end="", flush=True)
        start = time.perf_counter()
        shared = {
            RAM: round(built["ram"] / len(task.X)),
            "bytes on disk": round(built["disk"] / len(task.X)),
            "build s": round(built["seconds"], 1),
            "build peak GiB": round(built["peak"] / 2**30, 2),
        }
        rows = []
        full: dict[str, Any] = {}
        for setting in system.settings:
            found = {which: worker.call("search", which, setting, task.k) for which in task.sets()}
            if not full or system.full_ranking == "each":
                full = self._full_ranking(worker, system, setting)
            rows.append(
                {
                    "library": system.package,
                    "version": built["version"],
                    "system": system.name,
                    "setting": setting or "default",
                    **{RECALLS[which]: round(task.recall(found[which], of), 4) for which, of in task.sets().items()},
                    **self._mean_ap(worker, setting),
                    **full,
                    **shared,
                }
            )
        print(f", searched in {time.perf_counter() - start:.1f} s", flush=True)
        return rows

    def _mean_ap(self, worker: Worker, setting: str) -> dict[str, Any]:
        if not self._task.truths:
            return {}
        ids = worker.call("search", "queries", setting, min(DEPTH, len(self._task.X)))
        return {f"mAP@{DEPTH}": round(self._task.mean_ap(ids, next(iter(self._task.truths))), 2)}

    def _full_ranking(self, worker: Worker, system: System, setting: str) -> dict[str, Any]:
        """Return the mAP of full rankings, by protocol; empty for systems that return short lists."""
        columns = {protocol: f"full mAP, {protocol}" for protocol in self._task.truths}
        if system.full_ranking == "no":
            return dict.fromkeys(columns.values(), "")
        ids = worker.call("search", "queries", setting, len(self._task.X)) if columns else np.empty(0)
        return {column: round(self._task.mean_ap(ids, protocol), 2) for protocol, column in columns.items()}

    def _time(self, worker: Worker, setting: str, number: int) -> dict:
        return worker.call("measure", "" if setting == "default" else setting, self._task.k, number)


def median_times(rounds: list[dict]) -> dict[str, float]:
    """Return the times of single queries and of batches, and the cores that a batch used.

    Of single queries, the mean: some take longer than others, which a median would hide. The time of each is its
    median over the rounds, so that what else the machine does counts little.
    """
    measured = min(len(one["single"]) for one in rounds)
    single = np.median([one["single"][:measured] for one in rounds], axis=0)
    batch = [seconds for one in rounds for seconds in one["batch"]]
    return {
        "ms, one query": round(1000 * float(np.mean(single)), 4),
        "ms, batch": round(1000 * float(np.median(batch)), 4),
        "cores used": round(float(np.median([one["cores"] for one in rounds])), 2),
    }


def write_report(task: Task, rows: list[dict], folder: Path) -> str:
    """Write the rows, the times at equal recall and the comparison; print the last two and return their title."""
    table = interpolated(rows)
    compared = compare(table)
    write_rows(rows, str(folder), "bench.csv")
    write_rows(table, str(folder), "frontier.csv")
    title = f"{task.name}, {task.metric}, k = {task.k}; {machine()}"
    parts = [
        f"# {title}",
        f"Times on one thread; a batch has {BATCH} queries. Bytes are per vector.",
        "## The default index next to the fastest other library, at equal recall",
        markdown(compared),
        "## Milliseconds at equal recall, interpolated",
        markdown(table),
    ]
    (folder / "bench.md").write_text("\n\n".join([*parts, "## All settings", markdown(rows)]))
    print("\n" + "\n\n".join(parts))
    for row in rows:
        if row["cores used"] > 1.3:
            print(f"NOTE: {row['system']}, {row['setting']} used {row['cores used']} cores")
    return title


def machine() -> str:
    """Return the processor and the number of its cores."""
    about = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", about.read_text()) if about.exists() else None
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
