"""Search in large collections of image descriptors by local orthogonal-group testing (Iscen and Chum, 2018)."""

from logt import methods
from logt.augmentation import smoothed
from logt.conversion import from_faiss
from logt.engine.method import Method
from logt.engine.neighbor_graph import NeighborGraph
from logt.engine.params import SearchParams
from logt.errors import (
    ConflictError,
    CorruptIndexError,
    FormatVersionError,
    InvalidInputError,
    LockedError,
    MissingExtraError,
    ReadOnlyError,
)
from logt.index import Index
from logt.results import RangeResult, Report, SearchResult
from logt.stages.diffusion import Diffusion

open = Index.open  # noqa: A001

__version__ = "0.1.0"

__all__ = [
    "ConflictError",
    "CorruptIndexError",
    "Diffusion",
    "FormatVersionError",
    "Index",
    "InvalidInputError",
    "LockedError",
    "Method",
    "MissingExtraError",
    "NeighborGraph",
    "RangeResult",
    "ReadOnlyError",
    "Report",
    "SearchParams",
    "SearchResult",
    "from_faiss",
    "methods",
    "open",
    "smoothed",
]
