"""Vectors from files, and collections with a known answer made on the spot."""

from logt.datasets.files import read_vectors
from logt.datasets.synthetic import Collection, photo_collection

__all__ = ["Collection", "photo_collection", "read_vectors"]
