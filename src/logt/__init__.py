"""Nearest-neighbor search in large collections of image descriptors."""

from logt import methods
from logt._internal.params import SearchParams
from logt.augmentation import smoothed
from logt.engine.protocols import Method, Searchable
from logt.errors import (
    BusyError,
    ConflictError,
    CorruptIndexError,
    DeviceError,
    DeviceMemoryError,
    FormatVersionError,
    InvalidInputError,
    LockedError,
    MissingExtraError,
    MissingShardsError,
    ReadOnlyError,
    WorkerError,
)
from logt.gpu.index import DeviceIndex
from logt.graph.diffusion import Diffusion
from logt.graph.neighbor_graph import NeighborGraph
from logt.index import Index
from logt.integrations.faiss import from_faiss
from logt.results import ItemResult, RangeResult, Report, SearchResult

open = Index.open  # noqa: A001

__version__ = "1.0.0.dev0"

__all__ = [
    "BusyError",
    "ConflictError",
    "CorruptIndexError",
    "DeviceError",
    "DeviceIndex",
    "DeviceMemoryError",
    "Diffusion",
    "FormatVersionError",
    "Index",
    "InvalidInputError",
    "ItemResult",
    "LockedError",
    "Method",
    "MissingExtraError",
    "MissingShardsError",
    "NeighborGraph",
    "RangeResult",
    "ReadOnlyError",
    "Report",
    "SearchParams",
    "SearchResult",
    "Searchable",
    "WorkerError",
    "from_faiss",
    "methods",
    "open",
    "smoothed",
]
