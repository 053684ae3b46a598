"""Convert a faiss index, with its ids, and compare the results and the memory of both."""

import faiss
import numpy as np

import logt

rng = np.random.default_rng(0)
X = rng.standard_normal((5_000, 128)).astype(np.float32)
queries = X[:100] + 0.1 * rng.standard_normal((100, 128)).astype(np.float32)

old = faiss.IndexIDMap(faiss.IndexFlatL2(128))
old.add_with_ids(X, np.arange(1_000_000, 1_005_000))

index = logt.from_faiss(old)
print(index)

distances, neighbors = old.search(queries, 10)
scores, ids = index.search(queries, 10)  # ten neighbors, squared distances, as in faiss
print(f"same first neighbor: {np.mean(ids[:, 0] == neighbors[:, 0]):.2f}")
print(f"bytes per vector: {4 * 128} in faiss, {index.report()['bytes per vector']:.0f} in logt")
