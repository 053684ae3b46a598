"""A Ray Dataset as sources: its blocks are written to files by the workers that have them."""

from __future__ import annotations

from typing import Any

from logt.errors import InvalidInputError
from logt.storage.files import checksum
from logt.storage.locations import Location, is_url, local_path, location_at

_DONE = "done"
_NAMES = ("vector", "vectors", "embedding", "embeddings", "data")


def is_dataset(sources: object) -> bool:
    """Return whether sources are a Ray Dataset."""
    return type(sources).__module__.startswith("ray.data")


class Staging:
    """The files of a dataset, next to the index that is built from them; they are removed at the end of a build."""

    def __init__(self, dataset: Any, out: object):
        self._dataset = dataset
        self._place: Location = location_at(f"{str(out).rstrip('/')}.vectors")

    def write(self) -> list[str]:
        """Write the blocks of the dataset, unless an earlier build has, and return the files in their order."""
        column, mark = _vector_column(self._dataset), _fingerprint(self._dataset)
        if _DONE not in self._place.names() or self._place.read(_DONE) != mark:
            self._remove_files()
            name = self._place.name
            if not is_url(name):
                local_path(name).mkdir(parents=True, exist_ok=True)
            self._dataset.write_numpy(name, column=column)
            self._place.write(_DONE, mark)
        return [f"{self._place.name}/{name}" for name in sorted(self._place.names()) if name.endswith(".npy")]

    def remove(self) -> None:
        """Remove the files, if there are any."""
        self._remove_files()
        if not is_url(self._place.name) and local_path(self._place.name).is_dir():
            local_path(self._place.name).rmdir()

    def _remove_files(self) -> None:
        marked_first = sorted(self._place.names(), key=lambda name: name != _DONE)
        for name in marked_first:
            self._place.remove(name)


def _fingerprint(dataset: Any) -> bytes:
    """Return a checksum of the columns, the number of rows, the input files and the first row of a dataset."""
    about = [str(dataset.schema()), str(dataset.count()), *map(str, dataset.input_files()), str(dataset.take(1))]
    return checksum("\n".join(about).encode()).encode()


def _vector_column(dataset: Any) -> str:
    """Return the column of vectors: the only one, or the one with a usual name."""
    names = list(dataset.schema().names)
    usual = [name for name in _NAMES if name in names]
    if len(names) != 1 and len(usual) != 1:
        raise InvalidInputError(f"a dataset needs one column, or one called {' or '.join(_NAMES)}; it has {names}")
    return str(usual[0] if usual else names[0])
