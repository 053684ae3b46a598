"""What was measured of searches with a codec: with vectors of the collection, and with kinds of queries by name."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from logt._internal.recall_curve import RecallCurve
from logt._internal.types import Array, Floats
from logt._internal.validation import check_array
from logt.lists.inverted_lists import MARGINS, CandidateDepths

NEVER = float(np.finfo(np.float32).max)
"""A score that no result reaches."""

_NO_MARGINS = np.empty((0, MARGINS), np.float32)
_UNKNOWN = np.full((len(RecallCurve.KS), len(RecallCurve.EFFORTS)), -1, np.float32)  # as stored
_UNKNOWN_MARGINS = np.full((2, MARGINS), -1, np.float32)


class Measured(NamedTuple):
    """What was measured of searches.

    margins: (2, MARGINS), or (0, MARGINS) if unknown. A search for which a query like the collection reads M**p of M
    lists, p = j / (MARGINS - 1), reads the lists that score at most margins[0, j] less than the best one, and those
    that score at most margins[1, j] less than the worst result so far, in deviations of the query; a GPU needs the
    first ones only. near: a query whose 10th result scores at least this, in its deviations, is taken to be like the
    collection; NEVER, which no query reaches, if that is unknown. depths: how far down the ranking by codes the
    nearest vectors are. curve: the accuracy of searches by effort, if it was measured. linked: the same on a neighbor
    graph of `neighbors` neighbors per vector; 0 if there was none. vectors: the size of the collection, whose vectors
    were the queries; 0 if unknown, or if queries were given.
    """

    margins: Floats = _NO_MARGINS
    near: float = NEVER
    depths: CandidateDepths = CandidateDepths()
    curve: RecallCurve | None = None
    linked: RecallCurve | None = None
    neighbors: int = 0
    vectors: int = 0

    @property
    def tuned(self) -> bool:
        """Whether the curve was measured with given queries."""
        return self.curve is not None and not self.vectors


def measured_to_arrays(usual: Measured, kinds: Mapping[str, Measured]) -> dict[str, Array]:
    """Return the arrays to store: of the usual queries, and of each kind."""
    rows = (usual, *kinds.values())
    curves = [_UNKNOWN if curve is None else curve.recall for m in rows for curve in (m.curve, m.linked)]
    return {
        "kinds": np.frombuffer("\n".join(kinds).encode(), np.uint8),
        "measured_margins": np.concatenate([m.margins if len(m.margins) else _UNKNOWN_MARGINS for m in rows]),
        "measured_near": np.array([m.near for m in rows], np.float32),
        "measured_depths": np.array([m.depths for m in rows], np.float32),
        "measured_counts": np.array([(m.neighbors, m.vectors) for m in rows], np.int64),
        "measured_recall": np.concatenate(curves),
    }


def measured_from_arrays(arrays: Mapping[str, Array]) -> tuple[Measured, dict[str, Measured]]:
    """Return (what was measured with the usual queries, and with each kind); raise ValueError if it is impossible."""
    text = bytes(check_array(arrays["kinds"], np.uint8, 1)).decode()  # UnicodeDecodeError is a ValueError
    names = text.split("\n") if text else []
    margins = check_array(arrays["measured_margins"], np.float32, 2)
    near = check_array(arrays["measured_near"], np.float32, 1)
    depths = check_array(arrays["measured_depths"], np.float32, 2)
    counts = check_array(arrays["measured_counts"], np.int64, 2)
    recall = check_array(arrays["measured_recall"], np.float32, 2)
    rows = 1 + len(names)
    if (
        len(set(names)) != len(names)
        or (margins.shape, depths.shape, counts.shape) != ((2 * rows, MARGINS), (rows, 3), (rows, 2))
        or len(near) != rows
        or len(recall) != 2 * len(_UNKNOWN) * rows
        or (counts < 0).any()
        or (counts[:, 0] >= 1 << 24).any()
    ):
        raise ValueError("what was measured of searches does not fit together")
    usual, *kinds = map(
        _from_numbers, np.split(margins, rows), near.tolist(), depths, counts.tolist(), np.split(recall, rows)
    )
    return usual, dict(zip(names, kinds, strict=True))


def _from_numbers(margins: Array, near: float, depths: Array, counts: Sequence[int], curves: Array) -> Measured:
    if np.array_equal(margins, _UNKNOWN_MARGINS):
        margins = _NO_MARGINS
    elif (margins[0] < 0).any() or (np.diff(margins) < 0).any():
        raise ValueError("the margins measured for lists are impossible")
    plain, linked = (_known(np.ascontiguousarray(curve)) for curve in np.split(curves, 2))
    known = CandidateDepths.from_array(np.ascontiguousarray(depths))
    return Measured(np.ascontiguousarray(margins), near, known, plain, linked, *counts)


def _known(recall: Array) -> RecallCurve | None:
    return None if np.array_equal(recall, _UNKNOWN) else RecallCurve.from_array(recall)
