"""Compare the methods of the paper on a synthetic collection: views of 20 landmarks among other vectors."""

import numpy as np

import logt
from logt.evaluation import mean_average_precision
from logt.methods import cascaded, compact, gt, lo_gt, rnd, sketched, starred

rng = np.random.default_rng(0)
landmarks = rng.standard_normal((20, 128))
views = np.repeat(landmarks, 15, axis=0) + 2.0 * rng.standard_normal((300, 128))
X = np.concatenate([views, rng.standard_normal((2_700, 128)) * 2.2])
queries = landmarks + 1.5 * rng.standard_normal((20, 128))
positives = np.arange(300).reshape(20, 15)  # the rows of each landmark

methods = {
    "GT": gt(),
    "RND": rnd(L=50),
    "RND*": starred(rnd(L=50)),
    "LO-GT": lo_gt(L=50),
    "LO-GT*": starred(lo_gt(L=50)),
    "LO-GT*, cascade": cascaded(starred(lo_gt(L=50)), p=0.7, R=300),
    "LO-GT*, int8": compact(starred(lo_gt(L=50))),
    "default": sketched(),
}
exhaustive = np.argsort(-(queries @ X.T) / np.linalg.norm(X, axis=1), axis=1)
print(f"{'exhaustive':18} mAP {mean_average_precision(exhaustive, positives):5.1f}  rho 1.00")
for name, method in methods.items():
    index = logt.Index(128, method=method)
    index.add(X)
    ids = index.search(queries, k=len(X)).ids
    mean_ap, report = mean_average_precision(ids, positives), index.report()
    print(
        f"{name:18} mAP {mean_ap:5.1f}  rho {report['rho']:.2f}  {report['bytes per vector']:5.0f} bytes per vector"
    )
