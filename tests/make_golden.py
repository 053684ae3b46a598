"""Writes the golden indexes of the present format: python tests/make_golden.py. Once per format, never again."""

import json
from pathlib import Path

import numpy as np

import logt
from logt.methods import cascaded, compact, lo_gt, quantized, rnd, sketched, starred
from logt.storage.manifest import FORMAT

KINDS = {
    "sketched": ({"method": sketched(), "metric": "l2"}, None),
    "float32": ({"method": starred(lo_gt(n=4, m=2, L=5)), "metric": "l2"}, None),
    "int8": ({"method": cascaded(compact(rnd(n=4, m=2, L=20)), p=0.5, R=20)}, None),
    "pq": ({"method": quantized(lo_gt(n=4, m=2, L=5), c=4), "metric": "ip"}, None),
    "text": ({"method": rnd(n=4, m=2, L=5), "segment_size": 20}, [f"photo {i}.jpg" for i in range(50)]),
}

if __name__ == "__main__":
    folder = Path(__file__).parent / "golden" / f"format-{FORMAT}"
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((50, 8)), rng.standard_normal((3, 8))
    for name, (settings, ids) in KINDS.items():
        index = logt.Index(8, **settings)
        index.add(X, ids=ids)
        index.remove(index.ids[[7, 30]])
        index.save(folder / name)
        more = [100, 101] if ids is None else ["new.jpg", "other.jpg"]
        with logt.open(folder / name, mode="a") as writer:  # two records of the write-ahead log
            writer.add(X[:2], ids=more)
            writer.save()
            writer.remove([*more, writer.ids[20]])  # codes of the new ones may depend on the machine
            writer.save()
        index = logt.open(folder / name)
        scores, found = index.search(Q, 10)
        about = {
            "queries": Q.tolist(),
            "ids": found.tolist(),
            "scores": scores.tolist(),
            "method": repr(index.method),
        }
        (folder / f"{name}.json").write_text(json.dumps(about))
