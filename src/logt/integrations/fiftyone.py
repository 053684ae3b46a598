"""A similarity backend for FiftyOne: the embeddings of a dataset in an `Index`, in a folder of its own.

FiftyOne's brain config registers it as {"similarity_backends": {"logt": {"config_cls":
"logt.integrations.fiftyone.LogtSimilarityConfig"}}}; docs/how-to/fiftyone.md shows how.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import check_choice
from logt.errors import InvalidInputError
from logt.index import Index
from logt.integrations.embedding_folder import METRICS, EmbeddingFolder, Near
from logt.methods import sketched

with needs_extra("fiftyone", "the backend needs fiftyone"):
    import fiftyone.constants as foc
    import fiftyone.core.utils as fou
    from fiftyone.brain.similarity import DuplicatesMixin, Similarity, SimilarityConfig, SimilarityIndex

__all__ = ["LogtSimilarity", "LogtSimilarityConfig", "LogtSimilarityIndex"]

logger = logging.getLogger(__name__)


class LogtSimilarityConfig(SimilarityConfig):  # type: ignore[misc]
    """The parameters of an index. FiftyOne keeps them with the dataset, except `folder`.

    index_name: the subfolder of this index; by default a new one, named after the dataset and the brain key.
    metric: "cosine", "dotproduct" or "euclidean".
    bits, effort: see `logt.methods.sketched`.
    folder: of all indexes, by default "logt" in FiftyOne's own folder.
    kwargs: of FiftyOne's SimilarityConfig.
    """

    def __init__(
        self,
        index_name: str | None = None,
        metric: str = "cosine",
        bits: int | None = None,
        effort: float | None = None,
        folder: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice("metric", metric, tuple(METRICS))
        self.index_name = index_name
        self.metric = metric
        self.bits = bits
        self.effort = effort
        self._folder = folder

    @property
    def folder(self) -> str | None:
        return self._folder

    @folder.setter
    def folder(self, value: str | None) -> None:
        self._folder = value

    @property
    def method(self) -> str:
        return "logt"

    @property
    def max_k(self) -> int | None:
        return None

    @property
    def supports_least_similarity(self) -> bool:
        return True

    @property
    def supported_aggregations(self) -> tuple[str, ...]:
        return ("mean",)

    def load_credentials(self, folder: str | None = None) -> None:
        """Read the folder from FiftyOne's brain config, unless it is given."""
        self._load_parameters(folder=folder)


class LogtSimilarity(Similarity):  # type: ignore[misc]
    """Creates indexes. config: a `LogtSimilarityConfig`."""

    def initialize(self, samples: Any, brain_key: str) -> LogtSimilarityIndex:
        """Return the index of a brain run: a new one, or the one in its folder."""
        return LogtSimilarityIndex(samples, self.config, brain_key, backend=self)


class LogtSimilarityIndex(SimilarityIndex, DuplicatesMixin):  # type: ignore[misc]
    """The index of a brain run; the name of a patch in it is SAMPLE/LABEL. Other processes may read it.

    samples: the collection. config: a `LogtSimilarityConfig`. brain_key: of the run. backend: a `LogtSimilarity`.
    """

    def __init__(self, samples: Any, config: Any, brain_key: str, backend: Any = None):
        SimilarityIndex.__init__(self, samples, config, brain_key, backend=backend)
        DuplicatesMixin.__init__(self)
        method = sketched(bits=config.bits, effort=config.effort)
        self._embeddings = EmbeddingFolder(self._find_path(), config.metric, method)

    # ------------------------------------------------------------------------------------------------ contents

    @property
    def index(self) -> Index | None:
        """The `logt.Index`, open for reading; None if there are no embeddings yet."""
        return self._embeddings.index

    @property
    def sample_ids(self) -> Array:
        return self._split(self._embeddings.names)[0]

    @property
    def label_ids(self) -> Array | None:
        return self._split(self._embeddings.names)[1]

    @property
    def total_index_size(self) -> int:
        return len(self._embeddings.names)

    def add_to_index(
        self,
        embeddings: Any,
        sample_ids: Sequence[str],
        label_ids: Sequence[str] | None = None,
        overwrite: bool = True,
        allow_existing: bool = True,
        warn_existing: bool = False,
        reload: bool = True,
    ) -> None:
        """Add embeddings under the ids of samples or labels, and save; parameters as in FiftyOne."""
        names = self._join(sample_ids, label_ids)
        new = np.array([name not in self._embeddings.rows for name in names], bool)
        existing = int(np.count_nonzero(~new))
        if existing and not allow_existing:
            raise ValueError(f"{existing} ids, such as {names[int(np.argmin(new))]}, are in the index already")
        if existing and warn_existing:
            logger.warning("%s %d ids that are in the index", "Replacing" if overwrite else "Skipping", existing)
        chosen = np.arange(len(names)) if overwrite else np.flatnonzero(new)
        if len(chosen):
            self._embeddings.upsert(np.asarray(embeddings)[chosen], [names[row] for row in chosen])
        if reload:
            self.reload()

    def remove_from_index(
        self,
        sample_ids: Sequence[str] | None = None,
        label_ids: Sequence[str] | None = None,
        allow_missing: bool = True,
        warn_missing: bool = False,
        reload: bool = True,
    ) -> None:
        """Remove the embeddings of samples or labels, and save; parameters as in FiftyOne."""
        rows = self._find(sample_ids, label_ids, allow_missing, warn_missing)
        if rows:
            self._embeddings.remove([self._embeddings.names[row] for row in rows])
        if reload:
            self.reload()

    def get_embeddings(
        self,
        sample_ids: Sequence[str] | None = None,
        label_ids: Sequence[str] | None = None,
        allow_missing: bool = True,
        warn_missing: bool = False,
    ) -> tuple[Floats, Array, Array | None]:
        """Return embeddings, as the index stores them, sample ids and label ids; parameters as in FiftyOne."""
        if sample_ids is None and label_ids is None:
            rows = list(range(self.total_index_size))
        else:
            rows = self._find(sample_ids, label_ids, allow_missing, warn_missing)
        return self._embeddings.vectors(rows), *self._split([self._embeddings.names[row] for row in rows])

    def reload(self) -> None:
        """Move to the newest state of the folder."""
        self._embeddings.refresh()
        super().reload()

    def cleanup(self) -> None:
        """Delete the folder of the index."""
        self._embeddings.delete()

    @classmethod
    def _from_dict(cls, d: Any, samples: Any, config: Any, brain_key: str) -> LogtSimilarityIndex:
        return cls(samples, config, brain_key)

    # ----------------------------------------------------------------------------------------------- neighbors

    def _kneighbors(
        self,
        query: Any = None,
        k: int | None = None,
        reverse: bool = False,
        aggregation: str | None = None,
        return_dists: bool = False,
    ) -> Any:
        """Return the k nearest points of the view for a query, or for each of its points if there is no query."""
        if aggregation not in (None, *self.config.supported_aggregations):
            raise ValueError(f"unsupported aggregation {aggregation!r}; supported: 'mean'")
        self._apply_view_if_necessary()
        if query is None:
            if reverse or aggregation is not None:
                raise ValueError("neighbors of all points can be neither reversed nor aggregated")
            return self._by_place(self._embeddings.neighbors(k, among=self._current_inds), return_dists)
        vectors, single = self._query_vectors(query)
        if aggregation is not None:
            vectors, single = vectors.mean(axis=0, keepdims=True), True
        found = self._embeddings.search(vectors, k, among=self._current_inds, farthest=reverse)
        return self._by_id(found, single, return_dists)

    def _radius_neighbors(self, query: Any = None, thresh: float | None = None, return_dists: bool = False) -> Any:
        """Return the points of the view within a distance of a query, or of each of its points without a query."""
        if thresh is None:
            raise ValueError("thresh must be a distance, got None")
        self._apply_view_if_necessary()
        if query is None:
            return self._by_place(self._embeddings.neighbors_within(thresh, among=self._current_inds), return_dists)
        vectors, single = self._query_vectors(query)
        return self._by_id(self._embeddings.within(vectors, thresh, among=self._current_inds), single, return_dists)

    def _remove_duplicates_thresh(self, thresh: float, ids: Sequence[str]) -> list[str]:
        """Return the ids without those within the distance of an earlier one, in memory linear in their number."""
        self._apply_view_if_necessary()
        rows = self._embeddings.unique(thresh, among=self._current_inds)
        return [ids[place] for place in self._places(rows)]

    # ------------------------------------------------------------------------------------------------- details

    def _by_place(self, found: Iterable[Near], return_dists: bool) -> Any:
        results = [(self._places(near.rows), near.distances) for near in found]
        places = [place for place, _ in results]
        return (places, [distances for _, distances in results]) if return_dists else places

    def _by_id(self, found: Iterable[Near], single: bool, return_dists: bool) -> Any:
        """Return neighbors as lists of sample ids and label ids."""
        names = self._embeddings.names
        results = [(*self._split([names[row] for row in near.rows]), near.distances) for near in found]
        samples: Any = [sample.tolist() for sample, _, _ in results]
        labels: Any = [None if label is None else label.tolist() for _, label, _ in results]
        distances: Any = [values.tolist() for _, _, values in results]
        if single:
            samples, labels, distances = samples[0], labels[0], distances[0]
        elif self.config.patches_field is None:
            labels = None
        return (samples, labels, distances) if return_dists else (samples, labels)

    def _places(self, rows: Ids) -> Ids:
        if self._current_inds is None:
            return rows
        place = np.full(self.total_index_size, -1, np.int64)
        place[self._current_inds] = np.arange(len(self._current_inds))
        return place[rows]

    def _query_vectors(self, query: Any) -> tuple[Floats, bool]:
        """Return the vectors of a query, ids or vectors, and whether it is a single one."""
        given = np.asarray(query)
        if np.issubdtype(given.dtype, np.number):
            return np.atleast_2d(given), given.ndim == 1
        ids = np.atleast_1d(given)
        of_labels = self.config.patches_field is not None
        rows = self._find(None if of_labels else ids, ids if of_labels else None, False, False)
        return self._embeddings.vectors(rows), given.ndim == 0

    def _find(self, sample_ids: Any, label_ids: Any, allow_missing: bool, warn_missing: bool) -> list[int]:
        """Return the rows of samples or of labels; a sample means all its patches."""
        if label_ids is not None and self.config.patches_field is None:
            raise InvalidInputError("this index is of samples; pass sample_ids, not label_ids")
        wanted = np.atleast_1d(np.asarray(sample_ids if label_ids is None else label_ids)).tolist()
        ids: Any = self.sample_ids if label_ids is None else self.label_ids
        known: dict[str, list[int]] = {}
        for row, name in enumerate(ids):
            known.setdefault(name, []).append(row)
        missing = [name for name in wanted if name not in known]
        if missing and not allow_missing:
            raise ValueError(f"{len(missing)} ids, such as {missing[0]}, are not in the index")
        if missing and warn_missing:
            logger.warning("Ignoring %d ids that are not in the index", len(missing))
        return [row for name in wanted for row in known.get(name, [])]

    def _join(self, sample_ids: Iterable[str], label_ids: Iterable[str] | None) -> list[str]:
        """Return the names in the index of samples, or of their patches."""
        if self.config.patches_field is None:
            return [str(sample) for sample in sample_ids]
        if label_ids is None:
            raise InvalidInputError("this index is of patches; pass label_ids")
        return [f"{sample}/{label}" for sample, label in zip(sample_ids, label_ids, strict=True)]

    def _split(self, names: Sequence[str]) -> tuple[Array, Array | None]:
        """Return the sample ids and, of patches, the label ids of names in the index."""
        pairs = [name.partition("/")[::2] for name in names]
        samples, labels = (np.array([pair[part] for pair in pairs], "U24") for part in (0, 1))
        return samples, None if self.config.patches_field is None else labels

    def _find_path(self) -> Path:
        """Return the folder of the index. The name of a new one is kept with the dataset."""
        folder = Path(self.config.folder or Path(foc.FIFTYONE_CONFIG_DIR, "logt"))
        if self.config.index_name is None:
            name = fou.to_slug("-".join(filter(None, (self.samples._root_dataset.name, self.key))))
            used = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
            names = (name if number == 1 else f"{name}-{number}" for number in range(1, len(used) + 2))
            self.config.index_name = next(name for name in names if name not in used)
            self.save_config()
        return folder / str(self.config.index_name)
