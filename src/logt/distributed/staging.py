"""A Ray Dataset as sources: its blocks are written to files by the workers that have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logt.errors import InvalidInputError
from logt.storage.locations import Location, is_url, local_path, location_at

_NAMES = ("vector", "vectors", "embedding", "embeddings", "data")


def is_dataset(sources: object) -> bool:
    """Return whether sources are a Ray Dataset."""
    return type(sources).__module__.startswith("ray.data")


@contextmanager
def staged_files(dataset: Any, out: object) -> Iterator[list[str]]:
    """Write the blocks of a dataset to files next to the index that is built from them; remove them at the end."""
    column = _vector_column(dataset)
    location = location_at(f"{str(out).rstrip('/')}.vectors")
    _remove(location)  # what a build left that was killed
    try:
        if not is_url(location.name):
            local_path(location.name).mkdir(parents=True)
        dataset.write_numpy(location.name, column=column)
        yield [f"{location.name}/{name}" for name in sorted(location.names()) if name.endswith(".npy")]
    finally:
        _remove(location)


def _remove(location: Location) -> None:
    for name in location.names():
        location.remove(name)
    if not is_url(location.name) and local_path(location.name).is_dir():
        local_path(location.name).rmdir()


def _vector_column(dataset: Any) -> str:
    """Return the column of vectors: the only one, or the one with a usual name."""
    names = list(dataset.schema().names)
    usual = [name for name in _NAMES if name in names]
    if len(names) != 1 and len(usual) != 1:
        raise InvalidInputError(f"a dataset needs one column, or one called {' or '.join(_NAMES)}; it has {names}")
    return str(usual[0] if usual else names[0])
