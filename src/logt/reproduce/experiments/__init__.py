"""The experiments of section 4, in the order of the paper."""

from logt.reproduce.experiments.accuracy import CASCADE, DENSE, GROUP_SIZE, SPARSE
from logt.reproduce.experiments.batches import BATCHES
from logt.reproduce.experiments.comparison import COMPARISON
from logt.reproduce.experiments.experiment import BASELINE, Experiment, Found, Row
from logt.reproduce.experiments.quantization import PQ
from logt.reproduce.experiments.search_time import FLANN, GRAPHS, TIME

ALL: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (GROUP_SIZE, DENSE, SPARSE, CASCADE, TIME, COMPARISON, BATCHES, FLANN, GRAPHS, PQ)
}

__all__ = ["ALL", "BASELINE", "Experiment", "Found", "Row"]
