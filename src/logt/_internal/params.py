"""Search parameters: what a search reads, as one small object."""

from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import numpy as np

from logt._internal.validation import (
    check_count,
    check_effort,
    check_exponent,
    check_fields,
    check_fraction,
    check_int,
    check_name,
)
from logt.errors import InvalidInputError

MAX_K = 1_000_000
"""The largest k, unless there are more vectors: results are padded to k."""

SearchKey = tuple[Any, ...]


class SearchSettings(TypedDict, total=False):
    """The fields of SearchParams as keyword arguments of `Index.search`."""

    effort: float | None
    recall: float | None
    nprobe: int | None
    beam: int | None
    like: str | None
    p: float | None
    R: int | None
    correct: bool
    expand: int
    alpha: float


@dataclass(frozen=True)
class SearchParams:
    """How much a search reads. None means the default of the method.

    recall: for methods with inverted lists, the fraction of the results of a full scan that a search should find. The
        effort follows from the recall that was measured when the index was built, or by `Index.tune`. The default is
        0.95 of the min(k, 100) best results.
    effort: from 0 (fastest) to 1 (everything is scanned); trades time for accuracy.
    nprobe: for methods with inverted lists, the number of lists to scan, instead of effort.
    beam: if the index has a neighbor graph (`Index.link`), the number of best candidates whose neighbors are compared
        too; a larger beam finds more. By default, it follows from the effort; 0 means not to use the graph.
    like: for methods with inverted lists, the kind of the queries, as named in `Index.tune`.
    p, R: for other methods, the cascade: rank all vectors by the fraction p of the energy of their codes, and
        re-rank the best R.
    correct: apply the method's correction, if it has one.
    expand: query expansion (αQE, cosine only): search a second time with this many results added to each query.
    alpha: the exponent of the scores that weight them.
    """

    recall: float | None = None
    effort: float | None = None
    nprobe: int | None = None
    beam: int | None = None
    like: str | None = None
    p: float | None = None
    R: int | None = None
    correct: bool = True
    expand: int = 0
    alpha: float = 3.0

    def __post_init__(self) -> None:
        check_fields(
            self, recall=check_fraction, effort=check_effort, nprobe=check_int, beam=check_count, like=check_name
        )
        check_fields(self, p=check_fraction, R=check_int, expand=check_count, alpha=check_exponent)
        object.__setattr__(self, "correct", bool(self.correct))
        if self.recall is not None and (self.effort is not None or self.nprobe is not None):
            raise InvalidInputError("recall chooses the effort: pass recall, effort or nprobe, not two of them")


_PLAIN = {int, float, bool, str, type(None)}
_SEARCH_SETTINGS = tuple(field.name for field in fields(SearchParams))


def check_k(k: Any, vectors: int, name: str = "k") -> int:
    """Return the number of results as a plain int that an index of so many vectors can return."""
    number = check_int(name, k)
    if number > max(MAX_K, vectors):
        raise InvalidInputError(f"{name} must be at most {max(MAX_K, vectors):,}, got {number}")
    return number


def key_of_search(
    Q: Any, dim: int, k: Any, params: SearchParams | None, settings: SearchSettings
) -> SearchKey | None:
    """Return the key under which the search of one query, an array of floats, is kept; None for other queries."""
    if type(Q) is not np.ndarray or Q.dtype.kind != "f" or Q.shape not in ((dim,), (1, dim)):
        return None
    types = (type(k), *map(type, settings.values()))  # 1 is not True
    if not _PLAIN.issuperset(types) or type(params) not in (SearchParams, type(None)):
        return None
    return (k, params, *settings.items(), *types)


def as_search_params(params: SearchParams | None, settings: SearchSettings) -> SearchParams:
    """Return the parameters with some fields replaced."""
    for name in settings:
        if name not in _SEARCH_SETTINGS:
            known = ", ".join(_SEARCH_SETTINGS)
            raise TypeError(f"search has no parameter {name!r}; beside those of its signature, there are {known}")
    if params is None:
        return SearchParams(**settings)
    if not isinstance(params, SearchParams):
        raise InvalidInputError(f"params must be a logt.SearchParams, got {params!r}")
    return replace(params, **settings) if settings else params
