"""The systems that the paper compares, and other libraries, with one interface: build, search, cost."""

from logt.baselines.base import BuiltSystem, System
from logt.baselines.composed import Composed, Linked, Smoothed
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
    "BuiltSystem",
    "Composed",
    "Dictionary",
    "Exhaustive",
    "Faiss",
    "Flann",
    "Linked",
    "MemoryVectors",
    "Smoothed",
    "System",
    "Turbovec",
]
