"""The systems that the paper compares, with one interface: build, search, cost."""

from logt.baselines.base import BuiltSystem, System
from logt.baselines.composed import Composed
from logt.baselines.exhaustive import Exhaustive
from logt.baselines.external import HNSW, Flann
from logt.baselines.group_testing import BackPropagation

__all__ = ["HNSW", "BackPropagation", "BuiltSystem", "Composed", "Exhaustive", "Flann", "System"]
