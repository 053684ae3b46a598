"""The systems that the paper compares, on one footing: each builds from X and answers with what it costs."""

from logt.baselines.base import Built, System
from logt.baselines.composed import Composed
from logt.baselines.exhaustive import Exhaustive

__all__ = ["Built", "Composed", "Exhaustive", "System"]
