"""Descriptors of photos, computed on a Ray cluster."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from logt.descriptors import Model
from logt.distributed.pools import connect
from logt.errors import WorkerError
from logt.photos.extraction import Extracted, extract_photo
from logt.photos.manifest import PhotoManifest
from logt.photos.regions import boxes

TOGETHER = 8
"""Photos of one task."""


class RayExtractor:
    """Computes descriptors on the workers of a Ray cluster: `logt.photos.update(folder, extract=RayExtractor())`.

    All nodes must see the photos, the index and the model under the same paths.

    address: of the cluster, see `logt.distributed.connect`.
    """

    def __init__(self, address: str | None = None):
        self._ray: Any = connect(address)
        self._remote = self._ray.remote(_extract_some).options(num_cpus=1, max_retries=4)
        cores = sum(node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"])
        self.block_size: int = max(64, 4 * TOGETHER * int(cores))

    def __call__(self, manifest: PhotoManifest, index_path: Path, paths: Sequence[Path]) -> Sequence[Extracted | str]:
        """Return the raw descriptor and the details of each photo, or the reason why there are none.

        manifest, index_path: of the index of photos, which names the model. paths: of the photos.
        """
        text, names = manifest.to_json(), [str(path) for path in paths]
        groups = [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]
        tasks = [self._remote.remote(text, str(index_path), group) for group in groups]
        try:
            results: list[list[Extracted | str]] = self._ray.get(tasks)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except self._ray.exceptions.RayError as error:
            raise WorkerError(f"descriptors could not be computed on the cluster: {error}") from error
        return [result for group in results for result in group]


def _extract_some(manifest: str, index_path: str, paths: list[str]) -> list[Extracted | str]:
    model, regions = _load_model(manifest, index_path)
    return [extract_photo(Path(path), model, boxes(regions)) for path in paths]


@lru_cache(maxsize=1)
def _load_model(manifest: str, index_path: str) -> tuple[Model, bool]:
    """Return the model that an index names, and whether it has regions; a worker loads it once."""
    parsed = PhotoManifest.from_json(manifest, Path(index_path))
    return parsed.load_model(parsed.model_path), parsed.regions  # the process that started this one has checked it
