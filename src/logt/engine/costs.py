"""Costs: the paper's complexity ratio, and true bytes, of the segments of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from logt.engine.segment import Segment
from logt.stages.cascade import Cascade, prefix_lengths
from logt.stages.inverted_lists import Probe
from logt.stages.quantize import Codebook


def codebooks(segments: Sequence[Segment]) -> list[Codebook]:
    """Return the codebooks of some segments, each once."""
    return list({id(segment.codebook): segment.codebook for segment in segments}.values())


def costs(segments: Sequence[Segment], dim: int) -> dict[str, Any]:
    """Return what the segments hold and cost, in total and by part."""
    N = sum(segment.count for segment in segments)
    M = sum(codebook.shape[0] for codebook in codebooks(segments))
    entries = sum(_nonzeros(segment) for segment in segments)
    by_part = {"memory vectors": sum(codebook.nbytes for codebook in codebooks(segments))}
    for segment in segments:
        for part, size in _bytes_by_part(segment).items():
            by_part[part] = by_part.get(part, 0) + size
    return {
        "removed": sum(map(len, segments)) - N,
        "units": M,
        "segments": len(segments),
        "entries per vector": entries / N if N else 0.0,
        "rho": (M * dim + entries) / (dim * N) if N else 0.0,
        "memory ratio": _scalars(segments) / (dim * N) if N else 0.0,
        "bytes by part": by_part,
    }


def complexity(segments: Sequence[Segment], dim: int, reading: Cascade | Probe | None) -> float:
    """Return the paper's ρ of a search: operations per query over dim·N.

    A cascade decodes the rest of U for the fraction R / N of the vectors that it re-ranks. Probed lists count with
    their mean size, and one operation per dimension for each residual code.
    """
    N = sum(segment.count for segment in segments)
    if not N:
        return 0.0
    decoded = sum(_operations(segment, dim, reading, segment.count / N) for segment in segments)
    if isinstance(reading, Cascade):
        full = sum(_operations(segment, dim, None) for segment in segments)
        decoded += (full - decoded) * min(1.0, reading.R / N)
    return (sum(codebook.operations for codebook in codebooks(segments)) + decoded) / (dim * N)


def _nonzeros(segment: Segment) -> int:
    """Return the entries of U, or of the dense U = G⁺ if the codes represent that."""
    if segment.codes.inverse:
        return len(segment) * segment.codebook.shape[0]
    return int(np.count_nonzero(segment.codes.weight))


def _operations(segment: Segment, dim: int, reading: Cascade | Probe | None, share: float = 1.0) -> float:
    """Return, for one query, the entries of U that are decoded and one product per dimension of residual codes."""
    if isinstance(reading, Cascade) and not segment.codes.inverse:
        return float(prefix_lengths(segment.codes, reading.p).sum(dtype=np.int64))
    if segment.lists is None:
        return float(_nonzeros(segment))
    M = segment.codebook.shape[0]
    probed = min(reading.units(M), M) if isinstance(reading, Probe) else M
    listed = len(segment) + len(segment.lists.further)
    least = reading.min_scanned * share if isinstance(reading, Probe) else 0
    rows = min(len(segment), max(listed * probed / M, least))
    return rows * (dim + _nonzeros(segment) / len(segment))


def _bytes_by_part(segment: Segment) -> dict[str, int]:
    """Return the true bytes of all that a search reads, apart from the codebook, which segments may share."""
    lists = segment.lists
    cached = (vars(segment).get(name) for name in ("code_scale", "residual_scale", "minus_squares"))
    with_norms = 0 if segment.norms is None else segment.norms.nbytes + sum(c.nbytes for c in cached if c is not None)
    return {
        "decoder": segment.codes.nbytes,
        "residual codes": 0 if lists is None else lists.residuals.nbytes,
        "lists": 0 if lists is None else lists.nbytes,
        "units": 0 if segment.units is None else segment.units.assignment.nbytes,
        "ids": segment.ids.nbytes,
        "norms": with_norms,
        "deletions": 0 if segment.removed is None else segment.removed.nbytes,
    }


def _scalars(segments: Sequence[Segment]) -> float:
    """Return what is stored in the paper's count: one scalar per entry of U, one per four bytes of other arrays."""
    kept = [codebook.nbytes for codebook in codebooks(segments)]
    kept += [segment.lists.residuals.nbytes for segment in segments if segment.lists is not None]
    return sum(kept) / 4 + sum(_nonzeros(segment) for segment in segments)
