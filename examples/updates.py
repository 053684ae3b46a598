"""Change an index while it is being read, and save it."""

import tempfile
from pathlib import Path

import numpy as np

import logt

rng = np.random.default_rng(0)
X = rng.standard_normal((2_000, 64))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "my.index"
    index = logt.Index(64)
    index.add(X[:1_000])
    index.save(path)

    reader = logt.open(path)  # could be in another process
    with logt.open(path, mode="a") as writer:  # one writer at a time
        writer.add(X[1_000:])
        writer.remove(range(10))
        writer.upsert(X[:1], ids=[500])
        writer.compact()
        writer.save()

    print(f"the reader still sees {len(reader):,} vectors of generation {reader.generation}")
    reader.refresh()
    print(f"after refresh it sees {len(reader):,} vectors of generation {reader.generation}")
    print("the best result for vector 0 is now", reader.search(X[0], k=1).ids[0])
