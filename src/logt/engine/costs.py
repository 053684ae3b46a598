"""Costs: the paper's complexity ratio, and true bytes, of an index."""

from collections.abc import Sequence
from typing import Any

from logt._internal.segment import Segment, models
from logt._internal.types import Metric
from logt.engine.protocols import Method
from logt.engine.snapshot import Snapshot
from logt.results import Report


def report(snapshot: Snapshot, dim: int, metric: Metric, method: Method, graph_bytes: int) -> Report:
    """Return what an index holds and costs, in total and by part. graph_bytes: of the neighbor graph."""
    segments, N = snapshot.segments, len(snapshot)
    M = sum(model.units for model in models(segments))
    entries = sum(segment.entries for segment in segments)
    by_part = {"memory vectors": sum(model.nbytes for model in models(segments))}
    for segment in segments:
        for part, size in segment.bytes_by_part().items():
            by_part[part] = by_part.get(part, 0) + size
    # in the paper's count, one scalar per entry of U, and one per four bytes of other arrays
    scalars = (by_part["memory vectors"] + by_part.get("residual codes", 0)) / 4 + entries
    by_part["string ids"] = 0 if snapshot.strings is None else snapshot.strings.nbytes
    by_part["items"] = 0 if snapshot.items is None else snapshot.items.nbytes
    by_part["graph"] = graph_bytes
    total = sum(by_part.values())
    return Report(
        {
            "vectors": N,
            "dim": dim,
            "metric": metric,
            "method": method.describe(),
            "bytes": total,
            "bytes per vector": total / N if N else 0.0,
            "bytes by part": by_part,
            "bytes mapped": sum(segment.mapped_bytes for segment in segments),
            "linked": 0 if snapshot.graph is None else snapshot.graph.count,
            "removed": sum(map(len, segments)) - N,
            "units": M,
            "segments": len(segments),
            "entries per vector": entries / N if N else 0.0,
            "rho": (M * dim + entries) / (dim * N) if N else 0.0,
            "memory ratio": scalars / (dim * N) if N else 0.0,
        }
    )


def complexity(segments: Sequence[Segment], dim: int, method: Method, limits: Any) -> float:
    """Return the paper's ρ of a search: operations per query over dim·N."""
    N = sum(segment.count for segment in segments)
    if not N:
        return 0.0
    measured = sum(model.operations for model in models(segments))
    return float((measured + method.operations(segments, limits)) / (dim * N))
