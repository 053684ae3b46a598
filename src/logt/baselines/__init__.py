"""The systems that the paper compares, on one footing: each builds from X and answers with what it costs."""

from logt.baselines.base import Built, System
from logt.baselines.composed import Composed, Smoothed
from logt.baselines.exhaustive import Exhaustive
from logt.baselines.learned import LLC, Dictionary
from logt.baselines.pca import PCA
from logt.baselines.rivals import HNSW, Faiss, Flann, Turbovec
from logt.baselines.verified import BackPropagation, MemoryVectors

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
