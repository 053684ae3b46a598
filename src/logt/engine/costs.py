"""Costs: the paper's complexity ratio, and true bytes, of the segments of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logt._internal.segment import Segment, models
from logt.engine.protocols import Method


def costs(segments: Sequence[Segment], dim: int) -> dict[str, Any]:
    """Return what the segments hold and cost, in total and by part."""
    N = sum(segment.count for segment in segments)
    M = sum(model.units for model in models(segments))
    entries = sum(segment.entries for segment in segments)
    by_part = {"memory vectors": sum(model.nbytes for model in models(segments))}
    for segment in segments:
        for part, size in segment.bytes_by_part().items():
            by_part[part] = by_part.get(part, 0) + size
    # in the paper's count, one scalar per entry of U, and one per four bytes of other arrays
    scalars = (by_part["memory vectors"] + by_part.get("residual codes", 0)) / 4 + entries
    return {
        "removed": sum(map(len, segments)) - N,
        "units": M,
        "segments": len(segments),
        "entries per vector": entries / N if N else 0.0,
        "rho": (M * dim + entries) / (dim * N) if N else 0.0,
        "memory ratio": scalars / (dim * N) if N else 0.0,
        "bytes by part": by_part,
        "bytes mapped": sum(segment.mapped_bytes for segment in segments),
    }


def complexity(segments: Sequence[Segment], dim: int, method: Method, limits: Any) -> float:
    """Return the paper's ρ of a search: operations per query over dim·N."""
    N = sum(segment.count for segment in segments)
    if not N:
        return 0.0
    measured = sum(model.operations for model in models(segments))
    return float((measured + method.operations(segments, limits)) / (dim * N))
