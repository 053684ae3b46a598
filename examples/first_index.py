"""Build an index, search it, and compare the results with exhaustive search."""

import numpy as np

import logt

rng = np.random.default_rng(0)
centres = rng.standard_normal((200, 128))
X = centres[rng.integers(0, 200, 10_000)] + rng.standard_normal((10_000, 128))
queries = X[:100] + 0.3 * rng.standard_normal((100, 128))

index = logt.Index(128, metric="cosine")
index.add(X)
print(index.report(), end="\n\n")

scores, ids = index.search(queries, k=10)
print("query 0:", *(f"{id} ({score:.3f})" for id, score in zip(ids[0], scores[0], strict=True)), end="\n\n")

cosines = (queries @ X.T) / np.linalg.norm(X, axis=1)  # the norm of a query does not change the order
exact = np.argsort(-cosines, axis=1)[:, :10]
for effort in (0.1, 0.5, 1.0):
    ids = index.search(queries, k=10, effort=effort).ids
    recall = np.mean([np.isin(true, found).mean() for true, found in zip(exact, ids, strict=True)])
    print(f"effort {effort}: recall@10 {recall:.2f}")
