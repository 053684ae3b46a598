"""The experiments of section 4, in the order of the paper."""

from logt.reproduce.experiments.batches import BatchesExperiment
from logt.reproduce.experiments.cascade import CascadeExperiment
from logt.reproduce.experiments.comparison import ComparisonExperiment
from logt.reproduce.experiments.dense import DenseExperiment
from logt.reproduce.experiments.experiment import EXHAUSTIVE, TRUNCATED, Experiment, ExperimentResult, Row
from logt.reproduce.experiments.flann import FlannExperiment
from logt.reproduce.experiments.group_size import GroupSizeExperiment
from logt.reproduce.experiments.hnsw import HNSWExperiment
from logt.reproduce.experiments.quantization import QuantizationExperiment
from logt.reproduce.experiments.search_time import SearchTimeExperiment
from logt.reproduce.experiments.sparse import SparseExperiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        GroupSizeExperiment(),
        DenseExperiment(),
        SparseExperiment(),
        CascadeExperiment(),
        SearchTimeExperiment(),
        ComparisonExperiment(),
        BatchesExperiment(),
        FlannExperiment(),
        HNSWExperiment(),
        QuantizationExperiment(),
    )
}

__all__ = ["EXHAUSTIVE", "EXPERIMENTS", "TRUNCATED", "Experiment", "ExperimentResult", "Row"]
