"""The experiments of section 4, in the order of the paper, and one on the default index."""

from logt.reproduce.experiments.batches import BATCHES
from logt.reproduce.experiments.comparison import COMPARISON
from logt.reproduce.experiments.experiment import Experiment, Result, Row
from logt.reproduce.experiments.index import INDEX
from logt.reproduce.experiments.pq import PQ
from logt.reproduce.experiments.sweeps import CASCADE, DENSE, GROUP_SIZE, SPARSE
from logt.reproduce.experiments.timed import FLANN, HNSW, TIME

_IN_ORDER = (GROUP_SIZE, DENSE, SPARSE, CASCADE, TIME, COMPARISON, BATCHES, FLANN, HNSW, PQ, INDEX)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _IN_ORDER}

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Row"]
