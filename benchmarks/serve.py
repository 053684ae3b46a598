"""Throughput and latency of `logt serve`, with clients in a second process. `make serve-bench`.

The server runs as a user would start it. The clients run in this process, over persistent connections, and share the
cores with the server. DATA=folder uses your own vectors, PHOTOS=folder your own photos instead of synthetic ones.
--device cuda serves the vectors from a GPU, which gathers searches, and no photos.
"""

import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from urllib3.filepost import encode_multipart_formdata

import logt
from benchmarks.data import argument_parser, load, write_rows
from logt.photos import Photos, update
from logt.photos.synthetic_scenes import write_synthetic_photos

Request = tuple[bytes, str]
"""A body and its content type."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__, "serve.csv", data=True)
    parser.add_argument("--photos", help="folder of photos")
    parser.add_argument("--device", help="serve vectors from a device")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of the load at each concurrency")
    parser.add_argument("--clients", type=int, nargs="+", default=(1, 2, 4, 8, 16), help="clients at the same time")
    args = parser.parse_args(arguments)
    load_at = {"clients": args.clients, "seconds": args.seconds}
    with tempfile.TemporaryDirectory() as temporary:
        options = ["--read-only", "--device", args.device] if args.device else []
        rows = measure_vectors(Path(temporary), args.data, options, **load_at)
        if not args.device:
            rows += measure_photos(Path(temporary), args.photos, **load_at)
    write_rows(rows, args.out, "serve.csv")


def measure_vectors(root: Path, data_folder: str | None, options: Sequence[str], **load_at) -> list[dict]:
    """Return the measurements of searches by vector and by id."""
    data = load(data_folder)
    index = logt.Index(data.X.shape[1])
    index.add(data.X)
    index.save(root / "vectors")
    by_vector = [encode_json({"vectors": [query.tolist()], "k": 10}) for query in data.Q]
    by_id = [encode_json({"ids": [i], "k": 10}) for i in range(0, len(data.X), 997)]
    with run_server(root / "vectors", *options) as (url, _):
        rows = measure(f"vector ({data.name})", f"{url}api/v1/search", by_vector, **load_at)
        return rows + measure("id", f"{url}api/v1/search/ids", by_id, **load_at)


def measure_photos(root: Path, photo_folder: str | None, **load_at) -> list[dict]:
    """Return the measurements of searches by image."""
    folder, queries = find_photos(root, photo_folder)
    update(folder, root / "photos index")
    count = len(Photos.open(root / "photos index").index)
    by_photo = [encode_multipart_formdata({"k": "10", "photo": ("photo", query)}) for query in queries]
    with run_server(root / "photos index") as (url, _):
        return measure(f"photo ({count:,} photos)", f"{url}api/v1/search/photo", by_photo, **load_at)


def find_photos(root: Path, photo_folder: str | None) -> tuple[Path, list[bytes]]:
    """Return a folder of photos, synthetic ones by default, and the contents of some query photos."""
    if photo_folder:
        folder = Path(photo_folder)
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        return folder, [path.read_bytes() for path in files[:20]]
    write_synthetic_photos(root / "synthetic", 20, 4, 40)
    queries = sorted((root / "synthetic" / "queries").iterdir())
    return root / "synthetic" / "collection", [path.read_bytes() for path in queries]


@contextmanager
def run_server(index: Path, *options: str) -> Iterator[tuple[str, int]]:
    """The URL of a server in another process, and the number of that process."""
    command = [sys.executable, "-m", "logt", "serve", str(index), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://\S+", process.stderr.readline())[0], process.pid
    finally:
        process.terminate()
        process.communicate()


def encode_json(body: dict) -> Request:
    return json.dumps(body).encode(), "application/json"


def measure(name: str, url: str, requests: list[Request], clients: Sequence[int], seconds: float) -> list[dict]:
    """Return one row per concurrency: requests per second, and latency in milliseconds."""
    rows = []
    send_requests(url, requests, 1, min(1.0, seconds))  # warm-up
    for number in clients:
        latencies, elapsed = send_requests(url, requests, number, seconds)
        p50, p99 = (round(1000 * value, 2) for value in np.quantile(latencies, (0.5, 0.99)))
        row = {"search by": name, "clients": number, "requests/s": round(len(latencies) / elapsed, 1)}
        rows.append(row | {"p50 ms": p50, "p99 ms": p99})
        print(*rows[-1].values(), sep="  ", flush=True)
    return rows


def send_requests(url: str, requests: list[Request], clients: int, seconds: float) -> tuple[list[float], float]:
    """Send requests from several clients, each on its own connection; return all latencies and the elapsed time."""
    latencies: list[list[float]] = [[] for _ in range(clients)]
    parts = urlsplit(url)
    start = time.perf_counter()

    def run_client(number: int) -> None:
        connection = http.client.HTTPConnection(parts.netloc)
        turn = number
        while (sent := time.perf_counter()) - start < seconds:
            body, content_type = requests[turn % len(requests)]
            connection.request("POST", parts.path, body, {"Content-Type": content_type})
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {content[:200]!r}")
            latencies[number].append(time.perf_counter() - sent)
            turn += clients
        connection.close()

    threads = [threading.Thread(target=run_client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [value for each in latencies for value in each], time.perf_counter() - start


if __name__ == "__main__":
    main()
