"""Serve an index and use it through the client. Needs pip install "logt-search[serve]"."""

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import logt
from logt.server.client import Client, ServiceError


def free_port() -> int:
    """Return a port that no other program uses."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def wait_until_ready(client: Client, seconds: float = 60) -> None:
    """Return when the service responds."""
    end = time.monotonic() + seconds
    while True:
        try:
            client.health()
            return
        except ServiceError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


X = np.random.default_rng(0).standard_normal((1_000, 64)).astype(np.float32)
with tempfile.TemporaryDirectory() as folder:
    path, port = Path(folder) / "my.index", free_port()
    index = logt.Index(64)
    index.add(X)
    index.save(path)
    service = subprocess.Popen([sys.executable, "-m", "logt", "serve", str(path), "--port", str(port)])
    try:
        client = Client(f"http://127.0.0.1:{port}")
        wait_until_ready(client)
        print("nearest to vector 3:", [hit.id for hit in client.search(X[3], k=3)[0]])
        new = client.add(-X[3:4])
        print("added as", new, "and found:", client.search(-X[3], k=1)[0])
        print("removed:", client.remove(new), "of", client.info()["vectors"] + 1)
    finally:
        service.terminate()
        service.wait()
