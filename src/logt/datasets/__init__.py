"""Vectors and benchmarks read from files, and synthetic collections with a known ground truth."""

from logt.datasets.benchmark import Benchmark, load_benchmark, synthetic_benchmark
from logt.datasets.synthetic import SyntheticCollection, synthetic_collection
from logt.datasets.vector_files import read_vectors

__all__ = [
    "Benchmark",
    "SyntheticCollection",
    "load_benchmark",
    "read_vectors",
    "synthetic_benchmark",
    "synthetic_collection",
]
