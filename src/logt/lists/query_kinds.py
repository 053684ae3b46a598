"""Kinds of queries that an index was tuned with, each by its name: what was measured of searches for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from logt._internal.recall_curve import RecallCurve
from logt._internal.types import Array
from logt._internal.validation import check_array
from logt.lists.inverted_lists import CandidateDepths

NEAR = -3e38
"""A bound of `nearness` that no score is below."""


class QueryKind(NamedTuple):
    """What a codec knows of a kind of queries.

    likeness, nearness, curve, depths: as those of a codec. linked: the curve of searches on a neighbor graph of
    `neighbors` neighbors per vector; 0 if there was none.
    """

    likeness: tuple[float, float]
    nearness: tuple[float, float]
    curve: RecallCurve
    depths: CandidateDepths
    linked: RecallCurve
    neighbors: int


def kinds_to_arrays(kinds: Mapping[str, QueryKind]) -> dict[str, Array]:
    """Return the arrays to store."""
    recall = np.array([(kind.curve.recall, kind.linked.recall) for kind in kinds.values()], np.float32)
    return {
        "kind_names": np.frombuffer("\n".join(kinds).encode(), np.uint8),
        "kind_numbers": np.array(
            [(*k.likeness, *k.nearness, *k.depths, k.neighbors) for k in kinds.values()], np.float32
        ).ravel(),
        "kind_recall": recall.reshape(-1, len(RecallCurve.EFFORTS)),
    }


def kinds_from_arrays(arrays: Mapping[str, Array]) -> dict[str, QueryKind]:
    """Build from stored arrays; raise ValueError if they do not fit together."""
    text = bytes(check_array(arrays["kind_names"], np.uint8, 1)).decode()  # UnicodeDecodeError is a ValueError
    names = text.split("\n") if text else []
    numbers, recall = (
        check_array(arrays["kind_numbers"], np.float32, 1),
        check_array(arrays["kind_recall"], np.float32, 2),
    )
    rows = 2 * len(RecallCurve.KS)
    if len(set(names)) != len(names) or len(numbers) != 8 * len(names) or len(recall) != rows * len(names):
        raise ValueError("the kinds of queries do not fit together")
    kinds = {}
    for name, (some, most, near, nearest, few, many, reach, neighbors), curves in zip(
        names, numbers.reshape(-1, 8).tolist(), np.split(recall, len(names)) if names else [], strict=True
    ):
        plain, linked = (RecallCurve.from_array(np.ascontiguousarray(curve)) for curve in np.split(curves, 2))
        depths = CandidateDepths.from_array(np.array([few, many, reach], np.float32))
        if not 0 <= neighbors < 1 << 24:  # nor NaN
            raise ValueError("a kind of queries was measured with an impossible graph")
        kinds[name] = QueryKind((some, most), (near, nearest), plain, depths, linked, int(neighbors))
    return kinds
