"""The experiments of section 4, in the order of the paper."""

from logt.reproduce.experiments.accuracy import CASCADE, DENSE, GROUP_SIZE, SPARSE
from logt.reproduce.experiments.experiment import BASELINE, Experiment, Found, Row

ALL: dict[str, Experiment] = {experiment.name: experiment for experiment in (GROUP_SIZE, DENSE, SPARSE, CASCADE)}

__all__ = ["ALL", "BASELINE", "Experiment", "Found", "Row"]
