"""A similarity backend for FiftyOne: the embeddings of a dataset in an `Index`, in a folder of its own.

FiftyOne's brain config registers it as {"similarity_backends": {"logt": {"config_cls":
"logt.integrations.fiftyone.LogtSimilarityConfig"}}}; docs/how-to/fiftyone.md shows how.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.types import Array, Floats
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

    method = "logt"
    max_k = None
    supports_least_similarity = True
    supported_aggregations = ("mean",)

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
        self.folder = folder

    def attributes(self) -> list[str]:
        """Return the names of what is kept with the dataset."""
        return [name for name in super().attributes() if name != "folder"]

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
        existing = [name for name in names if name in self._embeddings]
        if existing and not allow_existing:
            raise ValueError(f"{len(existing)} ids, such as {existing[0]}, are in the index already")
        if existing and warn_existing:
            logger.warning("%s %d ids that are in the index", "Replacing" if overwrite else "Skipping", len(existing))
        left_out = set() if overwrite else set(existing)
        chosen = [row for row, name in enumerate(names) if name not in left_out]
        if chosen:
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
        names = self._find(sample_ids, label_ids, allow_missing, warn_missing)
        if names:
            self._embeddings.remove(names)
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
        names = self._embeddings.names
        if sample_ids is not None or label_ids is not None:
            names = self._find(sample_ids, label_ids, allow_missing, warn_missing)
        return self._embeddings.vectors(names), *self._split(names)

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
        if query is None and (reverse or aggregation is not None):
            raise ValueError("neighbors of all points can be neither reversed nor aggregated")
        wanted = None if k is None else k + (query is None)  # each point finds itself, too

        def search(Q: Floats) -> list[Near]:
            return self._embeddings.search(Q, wanted, among=self._current_inds, farthest=reverse)

        return self._neighbors(query, search, return_dists, k, mean=aggregation is not None)

    def _radius_neighbors(self, query: Any = None, thresh: float | None = None, return_dists: bool = False) -> Any:
        """Return the points of the view within a distance of a query, or of each of its points without a query."""
        if thresh is None:
            raise ValueError("thresh must be a distance, got None")

        def search(Q: Floats) -> list[Near]:
            return self._embeddings.within(Q, thresh, among=self._current_inds)

        return self._neighbors(query, search, return_dists)

    def _remove_duplicates_thresh(self, thresh: float, ids: Sequence[str]) -> list[str]:
        """Return the ids without those within the distance of an earlier one, in memory linear in their number."""
        self._apply_view_if_necessary()
        samples, labels = self._split(self._embeddings.unique(thresh, among=self._current_inds))
        kept: list[str] = (samples if labels is None else labels).tolist()
        return kept

    # ------------------------------------------------------------------------------------------------- details

    def _neighbors(
        self,
        query: Any,
        search: Callable[[Floats], list[Near]],
        return_dists: bool,
        k: int | None = None,
        *,
        mean: bool = False,
    ) -> Any:
        """Return what a search finds with a query, or the mean of its vectors, as lists of sample ids and label ids.

        Without a query, return the k first neighbors of each point of the view, as their positions there.
        """
        self._apply_view_if_necessary()
        if query is None:
            position = {name: at for at, name in enumerate(self._embeddings.names_among(self._current_inds))}
            every = self._embeddings.others(search, among=self._current_inds)
            both = [(np.array([position[n] for n in near.names[:k]], np.int64), near.distances[:k]) for near in every]
            positions = [positions for positions, _ in both]
            return (positions, [distances for _, distances in both]) if return_dists else positions
        vectors, single = self._query_vectors(query)
        if mean:
            vectors, single = vectors.mean(axis=0, keepdims=True), True
        found = search(vectors)
        pairs = [self._split(near.names) for near in found]
        samples: Any = [sample.tolist() for sample, _ in pairs]
        labels: Any = [None if label is None else label.tolist() for _, label in pairs]
        distances: Any = [near.distances.tolist() for near in found]
        if single:
            samples, labels, distances = samples[0], labels[0], distances[0]
        elif self.config.patches_field is None:
            labels = None
        return (samples, labels, distances) if return_dists else (samples, labels)

    def _query_vectors(self, query: Any) -> tuple[Floats, bool]:
        """Return the vectors of a query, ids or vectors, and whether it is a single one."""
        given = np.asarray(query)
        if np.issubdtype(given.dtype, np.number):
            return np.atleast_2d(given), given.ndim == 1
        of_labels = self.config.patches_field is not None
        names = self._find(None if of_labels else given, given if of_labels else None, False, False)
        return self._embeddings.vectors(names), given.ndim == 0

    def _find(self, sample_ids: Any, label_ids: Any, allow_missing: bool, warn_missing: bool) -> list[str]:
        """Return the names in the index of samples or of labels; a sample means all its patches."""
        of_labels = label_ids is not None
        if of_labels and self.config.patches_field is None:
            raise InvalidInputError("this index is of samples; pass sample_ids, not label_ids")
        known: dict[str, list[str]] = {}
        for name in self._embeddings.names:
            known.setdefault(name.split("/")[of_labels], []).append(name)
        wanted = np.atleast_1d(np.asarray(label_ids if of_labels else sample_ids)).tolist()
        missing = [one for one in wanted if one not in known]
        if missing and not allow_missing:
            raise ValueError(f"{len(missing)} ids, such as {missing[0]}, are not in the index")
        if missing and warn_missing:
            logger.warning("Ignoring %d ids that are not in the index", len(missing))
        return [name for one in wanted for name in known.get(one, [])]

    def _join(self, sample_ids: Iterable[str], label_ids: Iterable[str] | None) -> list[str]:
        """Return the names in the index of samples, or of their patches."""
        if self.config.patches_field is None:
            return [str(sample) for sample in sample_ids]
        if label_ids is None:
            raise InvalidInputError("this index is of patches; pass label_ids")
        return [f"{sample}/{label}" for sample, label in zip(sample_ids, label_ids, strict=True)]

    def _split(self, names: Iterable[str]) -> tuple[Array, Array | None]:
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
