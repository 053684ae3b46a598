"""Reproduction of every figure and table of the paper's section 4, on any benchmark."""

from logt.reproduce.experiments import EXPERIMENTS
from logt.reproduce.plan import Plan
from logt.reproduce.run import Run

__all__ = ["EXPERIMENTS", "Plan", "Run"]
