"""Photos whose right answer is known, and a descriptor that needs no model: for tests of the service and the page."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import uvicorn
from PIL import Image

import logt
from logt.errors import InvalidInputError

GRID = 6
"""The descriptor is the colours of so many by so many cells."""


class MadePhotos:
    """The interface of `logt.photos.Photos` over colours."""

    side = 100

    def __init__(self, folder: Path, index: Path):
        self.folder, self.path, self.index = folder, index, logt.open(index)

    def search(self, image, k, box=None):
        found = self.index.search(describe(image if box is None else image.crop(tuple(map(round, box)))), k)
        return list(zip(found.ids.tolist(), found.scores.tolist(), strict=True))[: found.counts]

    def photo_path(self, name):
        if name not in self.index:
            raise InvalidInputError(f"{name!r} is not in the index")
        if not (self.folder / name).is_file():
            raise InvalidInputError(f"{name!r} is gone")
        return self.folder / name

    def refresh(self):
        return self.index.refresh()


def describe(image):
    cells = np.asarray(image.convert("RGB").resize((GRID, GRID), Image.Resampling.BOX), np.float32).ravel()
    cells = cells - cells.mean() + 1e-3
    return cells / np.linalg.norm(cells)


def scene(number, seed=0, size=(240, 180)):
    """A picture of a scene; another seed is another photo of the same scene."""
    colours = np.random.default_rng(number).integers(0, 256, (GRID, GRID, 3), np.uint8)
    noise = np.random.default_rng([number, seed]).normal(0, 12, (GRID, GRID, 3))
    blurred = Image.fromarray(np.clip(colours + noise, 0, 255).astype(np.uint8))
    return blurred.resize(size, Image.Resampling.BICUBIC)


def make_photos(folder: Path, index: Path, scenes=8, each=3, names="scene {number:02}/photo {seed}.jpg"):
    """Photos of scenes in a folder, and an index of them; their ids."""
    ids, rows = [], []
    for number in range(scenes):
        for seed in range(each):
            id = names.format(number=number, seed=seed)  # noqa: A001
            path = folder / id
            path.parent.mkdir(parents=True, exist_ok=True)
            scene(number, seed).save(path, "JPEG", quality=92)
            ids.append(id)
            rows.append(describe(Image.open(path)))
    made = logt.Index(GRID * GRID * 3)
    made.add(np.stack(rows), ids=ids)
    made.save(index)
    return ids


@contextmanager
def running(app):
    """The address of a service that runs in a thread, on a port that was free."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
