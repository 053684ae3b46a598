"""The systems that the paper compares, on one footing: each builds from X and answers with what it costs."""

from logt.baselines.base import Built, System
from logt.baselines.composed import Composed, Smoothed
from logt.baselines.dictionary import LLC, Dictionary
from logt.baselines.exhaustive import Exhaustive
from logt.baselines.external import HNSW, Faiss, Flann, Turbovec
from logt.baselines.group_testing import BackPropagation, MemoryVectors
from logt.baselines.pca import PCA

__all__ = [
    "HNSW",
    "LLC",
    "PCA",
    "BackPropagation",
    "Built",
    "Composed",
    "Dictionary",
    "Exhaustive",
    "Faiss",
    "Flann",
    "MemoryVectors",
    "Smoothed",
    "System",
    "Turbovec",
]
