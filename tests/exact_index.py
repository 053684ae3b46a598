"""Indexes whose results are known, and what searches of them are compared with."""

from contextlib import nullcontext
from unittest import mock

import numpy as np

import logt
from logt.group_testing.decoder import Sparse
from logt.group_testing.grouping import Random
from logt.group_testing.memory_vectors import Pinv
from logt.group_testing.method import GroupTesting
from logt.group_testing.quantize import Float32

EXACT = GroupTesting(Random(1, 1), Pinv(), Float32(), Sparse(64, "free", weights="float32"))
METRICS = ("cosine", "ip", "l2")


def unmeasured():
    """Return a context in which indexes are built without measuring their accuracy, which takes most of the time."""
    return mock.patch.multiple(
        "logt.lists.method",
        calibrate=lambda segments, *_, **__: segments,
        calibrate_changed=lambda segments, *_: segments,
        calibrate_graph=lambda segments, graph, *_: graph,
    )


def built(X, ids=None, *, link=0, measure=False, **settings):
    """Return an index of X, linked if so many neighbors are given; it measures its accuracy only if told to."""
    index = logt.Index(np.shape(X)[1], **settings)
    with nullcontext() if measure else unmeasured():
        index.add(X, ids)
        if link:
            index.link(link)
    return index


def nearest(X, Q, k=10, metric="cosine"):
    """Return the rows of X that are nearest to each query, from the vectors themselves."""
    X, Q = X.astype(float), Q.astype(float)
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    scores = 2 * Q @ X.T - np.square(X).sum(axis=1) if metric == "l2" else Q @ X.T
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def assert_same(found, expected):
    """Check that two searches have the same ids and scores."""
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def overlap(found, wanted):
    """Return the mean fraction of the wanted ids of each query that are among the found ones."""
    return np.mean([np.isin(mine, ids).mean() for ids, mine in zip(found, wanted, strict=True)])
