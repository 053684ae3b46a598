"""Requests per second and latency of `logt serve`, under load from a second process. `make serve-bench`.

The service runs as users start it; the load comes from this process, over connections that are kept open, so both
share the cores. DATA=folder takes your own vectors, PHOTOS=folder your own photos instead of drawn ones.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

import logt
from benchmarks.data import load, write_rows
from logt.photos import Photos, update
from logt.photos.synthetic_scenes import write_synthetic_photos
from logt.server.client import multipart

Request = tuple[bytes, str]
"""A body and its content type."""

CONCURRENCIES = (1, 2, 4, 8, 16)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", help="folder with vectors.npy, queries.npy, ground_truth.json")
    words.add_argument("--photos", help="folder of photos")
    words.add_argument("--seconds", type=float, default=5.0, help="of load at each concurrency")
    words.add_argument("--out", default="build/bench", help="where serve.csv goes")
    given = words.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        data = load(given.data or None)
        index = logt.Index(data.X.shape[1])
        index.add(data.X)
        index.save(root / "vectors")
        with serving(root / "vectors") as url:
            asked = [as_json({"vectors": [q.tolist()], "k": 10}) for q in data.Q]
            rows += measured(f"vector ({data.name})", f"{url}api/v1/search", asked, given.seconds)
            asked = [as_json({"ids": [i], "k": 10}) for i in range(0, len(data.X), 997)]
            rows += measured("id", f"{url}api/v1/search/ids", asked, given.seconds)
        folder, queries = photos(root, given.photos)
        update(folder, root / "photos index")
        count = len(Photos.open(root / "photos index").index)
        with serving(root / "photos index") as url:
            asked = [multipart({"k": "10"}, "photo", query) for query in queries]
            rows += measured(f"image ({count:,} photos)", f"{url}api/v1/search/image", asked, given.seconds)
    print(f"written to {write_rows(rows, given.out, 'serve.csv')}")


def photos(root: Path, given: str | None) -> tuple[Path, list[bytes]]:
    """A folder of photos and some to search by, as bytes."""
    if given:
        files = sorted(path for path in Path(given).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        return Path(given), [path.read_bytes() for path in files[:20]]
    write_synthetic_photos(root / "made", 20, 4, 40)
    return root / "made" / "collection", [path.read_bytes() for path in sorted((root / "made" / "queries").iterdir())]


@contextmanager
def serving(index: Path) -> Iterator[str]:
    """The address of a service in a process of its own."""
    words = [sys.executable, "-m", "logt", "serve", str(index), "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        yield re.search(r"http://\S+", said)[0]
    finally:
        process.terminate()
        process.communicate()


def as_json(body: dict) -> Request:
    return json.dumps(body).encode(), "application/json"


def measured(what: str, url: str, asked: list[Request], seconds: float) -> list[dict]:
    """One row per concurrency: requests per second, and latency in milliseconds."""
    rows = []
    load_for(url, asked, 1, min(1.0, seconds))  # the first requests also load code
    for clients in CONCURRENCIES:
        times, elapsed = load_for(url, asked, clients, seconds)
        p50, p99 = (round(1000 * value, 2) for value in np.quantile(times, (0.5, 0.99)))
        row = {"search by": what, "clients": clients, "requests/s": round(len(times) / elapsed, 1)}
        rows.append(row | {"p50 ms": p50, "p99 ms": p99})
        print(*rows[-1].values(), sep="  ", flush=True)
    return rows


def load_for(url: str, asked: list[Request], clients: int, seconds: float) -> tuple[list[float], float]:
    """The times of all requests that so many clients made one after another, each on its own connection."""
    times: list[list[float]] = [[] for _ in range(clients)]
    parts = urlsplit(url)
    start = time.perf_counter()

    def client(number: int) -> None:
        connection = http.client.HTTPConnection(parts.netloc)
        turn = number
        while (begun := time.perf_counter()) - start < seconds:
            body, kind = asked[turn % len(asked)]
            connection.request("POST", parts.path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {content[:200]!r}")
            times[number].append(time.perf_counter() - begun)
            turn += clients
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [value for each in times for value in each], time.perf_counter() - start


if __name__ == "__main__":
    main()
