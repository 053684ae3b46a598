"""Vectors of texts whose nearest neighbors are known: one dimension per word."""

import numpy as np

WORDS = ["a", "bus", "red", "green", "big", "boat", "tree", "house", "old", "river"]
TEXTS = ["a red bus", "a green boat", "old house big tree", "river boat old", "big big tree"]


def vector(text):
    counts = np.array([text.split().count(word) for word in WORDS], np.float32)
    return counts / max(np.linalg.norm(counts), 1e-6)
