"""Compare the methods of the paper on a synthetic photo collection with known positives."""

import logt
from logt.datasets import photo_collection
from logt.evaluation import mean_average_precision
from logt.methods import cascaded, compact, gt, lo_gt, rnd, sketched, starred

photos = photo_collection(N=3_000, dim=128, landmarks=20, views=15)
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
exhaustive = (-(photos.Q @ photos.X.T)).argsort(axis=1)
print(f"{'exhaustive':18} mAP {mean_average_precision(exhaustive, photos.positives):5.1f}  rho 1.00")
for name, method in methods.items():
    index = logt.Index(128, method=method)
    index.add(photos.X)
    ids = index.search(photos.Q, k=len(photos.X)).ids
    mean_ap, report = mean_average_precision(ids, photos.positives), index.report()
    print(
        f"{name:18} mAP {mean_ap:5.1f}  rho {report['rho']:.2f}  {report['bytes per vector']:5.0f} bytes per vector"
    )
