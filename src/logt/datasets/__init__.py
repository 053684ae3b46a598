"""Vectors and benchmarks from files, and collections with a known answer made on the spot."""

from logt.datasets.benchmark import Benchmark, load_benchmark, made_benchmark
from logt.datasets.synthetic import Collection, photo_collection
from logt.datasets.vector_files import read_vectors

__all__ = ["Benchmark", "Collection", "load_benchmark", "made_benchmark", "photo_collection", "read_vectors"]
