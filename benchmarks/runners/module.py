"""logt in VIBE and ann-benchmarks; benchmarks/README.md says where these files go."""

import numpy as np

import logt

from ..base.module import BaseANN  # noqa: TID252

METRICS = {"angular": "cosine", "cosine": "cosine", "normalized": "cosine", "ip": "ip", "euclidean": "l2"}


class Logt(BaseANN):
    """The default index.

    threads: of builds, all cores if None. bits: per dimension of the residual. refine: keep one more byte for the
    best candidates. linked: add a neighbor graph.
    """

    def __init__(self, metric, threads, bits, refine, linked):
        self.metric, self.threads = METRICS[metric], threads
        self.bits, self.refine, self.linked = bits, refine, linked
        self.effort = None

    def fit(self, X):
        method = logt.methods.sketched(bits=self.bits, refine=self.refine)
        self.index = logt.Index(X.shape[1], method=method, metric=self.metric, threads=self.threads)
        self.index.add(X)
        if self.linked:
            self.index.link()

    def set_query_arguments(self, effort):
        self.effort = effort

    def query(self, v, n):
        ids = self.index.search(v, n, effort=self.effort, threads=1).ids
        return ids[ids >= 0]

    def batch_query(self, X, n):
        self.found = self.index.search(X, n, effort=self.effort, threads=None).ids

    def get_batch_results(self):
        return [np.asarray(ids[ids >= 0]) for ids in self.found]

    @property
    def name(self):
        return f"logt(bits={self.bits}, refine={self.refine}, linked={self.linked}, effort={self.effort})"

    def __str__(self):
        return self.name
