"""Compare two HTTP fronts of an index in shards: `logt serve --ray`, and a deployment of Ray Serve.

    pip install "ray[serve]"
    python -m benchmarks.fronts

Both search the same index in as many shards, on a Ray cluster on this machine. The deployment does no more than to
parse the JSON of a request, search, and return JSON: it has none of the checks and limits of `logt serve`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import logt
import logt.distributed
from benchmarks.data import argument_parser, write_rows
from benchmarks.serve import encode_json, measure
from benchmarks.synthetic_blocks import Model

DIM, SHARDS = 128, 2


def main() -> None:
    parser = argument_parser(__doc__, "fronts.csv")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of the load at each concurrency")
    parser.add_argument("--turns", type=int, default=2, help="how often each front is measured, in turn")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    ray = logt.distributed.connect("local")
    model = Model(DIM)
    requests = [encode_json({"vectors": [q.tolist()], "k": 10}) for q in model.draw(500, [1])]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        index = logt.Index(DIM, segment_size=args.rows // SHARDS)
        index.add(model.draw(args.rows, [0]))
        index.save(folder)
        for _ in range(args.turns):
            for name, front in (("logt serve", our_front), ("Ray Serve", ray_front)):
                with front(ray, Path(folder)) as url:
                    rows += measure(name, url, requests, args.seconds)
    print(f"written to {write_rows(rows, args.out, 'fronts.csv')}")


@contextmanager
def our_front(ray, folder: Path) -> Iterator[str]:
    """The URL of `logt serve` in a process of its own, on the cluster of this one."""
    words = [sys.executable, "-m", "logt", "serve", str(folder), "--port", "0", "--ray", "--replicas", "1"]
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    process = subprocess.Popen([*words, "--shards", str(SHARDS)], stderr=subprocess.PIPE, text=True, env=environment)
    try:
        for line in process.stderr:
            if found := re.search(r"Serving .* (http://\S+)", line):
                yield f"{found[1]}api/v1/search"
                break
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def ray_front(ray, folder: Path) -> Iterator[str]:
    """The URL of a deployment of Ray Serve."""
    from ray import serve

    @serve.deployment(max_ongoing_requests=64, ray_actor_options={"num_cpus": 0})
    class Front:
        def __init__(self, path: str):
            self._index = logt.distributed.open(path, replicas=1, shards=SHARDS)

        async def __call__(self, request):
            import asyncio

            body = await request.json()
            Q = np.array(body["vectors"], np.float32)
            found = await asyncio.to_thread(self._index.search, Q, body["k"])
            return {"ids": found.ids.tolist(), "scores": found.scores.tolist()}

        def __del__(self):
            self._index.close()

    serve.start(http_options={"port": 8123})
    serve.run(Front.bind(str(folder)), name="front", route_prefix="/")
    try:
        yield "http://127.0.0.1:8123/"
    finally:
        serve.delete("front")


if __name__ == "__main__":
    main()
