"""Use file names as ids, and search among some of them only."""

import numpy as np

import logt

rng = np.random.default_rng(0)
X = rng.standard_normal((3_000, 64))
names = [f"{2015 + i % 10}/{i:04}.jpg" for i in range(len(X))]

index = logt.Index(64)
index.add(X, ids=names)
query = X[7]

print("all years:      ", index.search(query, k=3).ids)
print("two files:      ", index.search(query, k=3, filter=["2015/0000.jpg", "2016/0001.jpg"]).ids)
print("a mask:         ", index.search(query, k=3, filter=np.arange(len(X)) >= 1_000).ids)


def since_2020(ids):
    """Return which ids are of 2020 or later."""
    return np.array([id >= "2020" for id in ids])


print("since 2020:     ", index.search(query, k=3, filter=since_2020).ids)

limits, scores, ids = index.range_search(X[:2], threshold=0.35)
for q in range(2):
    part = slice(limits[q], limits[q + 1])
    print(
        f"above 0.35 for vector {q}:",
        *(f"{id} ({score:.2f})" for id, score in zip(ids[part], scores[part], strict=True)),
    )
