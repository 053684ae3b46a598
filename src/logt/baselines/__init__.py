"""The systems that the paper compares, and other libraries, with one interface: build, search, cost."""

from logt.baselines.base import BuiltSystem, System
from logt.baselines.composed import Composed, Linked, Smoothed
from logt.baselines.exhaustive import PCA, Exhaustive
from logt.baselines.external import Faiss, Flann, Turbovec
from logt.baselines.group_testing import BackPropagation, MemoryVectors

__all__ = [
    "PCA",
    "BackPropagation",
    "BuiltSystem",
    "Composed",
    "Exhaustive",
    "Faiss",
    "Flann",
    "Linked",
    "MemoryVectors",
    "Smoothed",
    "System",
    "Turbovec",
]
