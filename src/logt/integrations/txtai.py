"""A backend for txtai: `Embeddings(backend="logt.integrations.txtai.Logt", ...)`."""

import copy
from typing import Any

import numpy as np

from logt._internal.extras import needs_extra
from logt.errors import InvalidInputError
from logt.index import Index
from logt.methods import sketched

with needs_extra("txtai", "logt.integrations.txtai needs txtai"):
    from txtai.ann import ANN

__all__ = ["Logt"]

_SETTINGS = ("bits", "effort")


class Logt(ANN):  # type: ignore[misc]
    """The vectors of a txtai database in a logt index, by inner product (txtai normalizes its vectors).

    config: of txtai. Its entry "logt" may hold `bits` and `effort`, see `logt.methods.sketched`.
    """

    def load(self, path: str) -> None:
        """Read the index from the folder `path` into memory, where it can change."""
        self.backend = copy.copy(Index.open(path))

    def index(self, embeddings: Any) -> None:
        """Replace everything by the rows of `embeddings`."""
        settings = dict(self.config.get("logt") or {})
        for name in settings:
            if name not in _SETTINGS:
                raise InvalidInputError(f"logt has no setting {name!r} in txtai; it has: {', '.join(_SETTINGS)}")
        self.backend = Index(embeddings.shape[1], metric="ip", method=sketched(**settings))
        self.config["offset"] = 0
        self.append(embeddings)
        self.metadata(settings or {"method": "sketched"})

    def append(self, embeddings: Any) -> None:
        """Add the rows of `embeddings`."""
        first = self.config["offset"]
        self.backend.add(embeddings, np.arange(first, first + len(embeddings)))
        self.config["offset"] += len(embeddings)
        self.metadata()

    def delete(self, ids: Any) -> None:
        """Remove the vectors with these ids."""
        self.backend.remove(ids)

    def search(self, queries: Any, limit: int) -> list[list[tuple[int, float]]]:
        """Return (id, score) of the `limit` best vectors for each of the `queries`."""
        result = self.backend.search(np.atleast_2d(queries), limit)
        pairs = zip(result.ids, result.scores, result.counts, strict=True)
        return [list(zip(ids[:n].tolist(), scores[:n].tolist(), strict=True)) for ids, scores, n in pairs]

    def count(self) -> int:
        """Return the number of vectors."""
        return len(self.backend)

    def save(self, path: str) -> None:
        """Write the index to the folder `path`."""
        self.backend.save(path, overwrite=True)
