"""Kill all actors of a node again and again while an index is searched in shards: 10,000 searches and their times.

    python -m benchmarks.failures --out build/bench

Starts a Ray cluster of three nodes on this machine. The vectors are synthetic. Times are those of the machine it runs
on, which has all nodes.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np

import logt
import logt.distributed
from benchmarks.data import argument_parser
from benchmarks.synthetic_blocks import Model

DIM, K = 128, 10


def main() -> None:
    parser = argument_parser(__doc__, "failures.json")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--searches", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5, help="how often all actors of a node are killed")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    model = Model(DIM)
    with tempfile.TemporaryDirectory() as folder:
        index = logt.Index(DIM, segment_size=args.rows // 6)
        index.add(model.draw(args.rows, [0]))
        index.save(folder)
        with three_nodes(), logt.distributed.open(folder, replicas=2, shards=3, seconds=10) as shards:
            for kills in (0, args.kills):
                found = Searches(shards, index, model.draw(200, [1])).run(args.searches, args.threads, kills)
                print(json.dumps(found, indent=1), flush=True)
                write(found, Path(args.out), f"kills: {kills}")


def three_nodes():
    """Start a cluster of three nodes, and connect to it."""
    from contextlib import contextmanager

    import ray
    from ray.cluster_utils import Cluster

    @contextmanager
    def running():
        about = {"num_cpus": 2, "object_store_memory": 80 << 20}
        nodes = Cluster(initialize_head=True, head_node_args={**about, "include_dashboard": False})
        for _ in range(2):
            nodes.add_node(**about)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
        try:
            yield
        finally:
            ray.shutdown()
            nodes.shutdown()

    return running()


class Searches:
    """Many searches of one query each, by some threads, compared with those of an index in memory."""

    def __init__(self, shards, index: logt.Index, Q):
        self._shards, self._Q = shards, Q
        self._expected = index.search(Q, K)
        self._lock = threading.Lock()
        self._seconds: list[float] = []
        self._wrong = self._partial = self._errors = 0

    def run(self, count: int, threads: int, kills: int) -> dict:
        """Return what was found, and the times; kill the actors of a node `kills` times meanwhile."""
        workers = [threading.Thread(target=self._search, args=(count // threads,)) for _ in range(threads)]
        start, replaced = time.perf_counter(), self._shards._actors.replaced
        for worker in workers:
            worker.start()
        for kill in range(kills):
            self._wait(lambda kill=kill: len(self._seconds) >= (kill + 0.5) * count / kills)
            self._kill_node()
            self._wait(lambda: all(len(shard) == 2 for shard in self._shards._actors.shards))
        for worker in workers:
            worker.join()
        seconds = np.array(self._seconds)
        times = {f"{q * 100:g} %": round(1e3 * float(np.quantile(seconds, q)), 2) for q in (0.5, 0.99, 0.999, 1)}
        return {
            "searches": len(seconds),
            "threads": threads,
            "actors killed": self._shards._actors.replaced - replaced,
            "wrong": self._wrong,
            "partial": self._partial,
            "errors": self._errors,
            "ms": times,
            "searches per second": round(len(seconds) / (time.perf_counter() - start), 1),
        }

    def _search(self, count: int) -> None:
        for number in range(count):
            row = number % len(self._Q)
            start = time.perf_counter()
            try:
                found = self._shards.search(self._Q[row], K)
            except Exception as error:
                print(f"error: {error!r}", flush=True)
                with self._lock:
                    self._errors += 1
                continue
            taken = time.perf_counter() - start
            same = (found.ids == self._expected.ids[row]).all() and (found.scores == self._expected.scores[row]).all()
            with self._lock:
                self._seconds.append(taken)
                self._wrong += not same
                self._partial += bool(found.missing)

    def _kill_node(self) -> None:
        """Kill all actors of the node of some replica."""
        import ray

        replicas = [replica for shard in self._shards._actors.shards for replica in shard]
        node = replicas[0].node
        pids = ray.get([replica.actor.ping.remote() for replica in replicas if replica.node == node])
        for about in pids:
            os.kill(about["pid"], signal.SIGKILL)
        self._wait(lambda: not any(r is replicas[0] for shard in self._shards._actors.shards for r in shard))

    @staticmethod
    def _wait(condition) -> None:
        while not condition():
            time.sleep(0.005)


def write(found: dict, folder: Path, name: str) -> None:
    """Add the result of a run to failures.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "failures.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
