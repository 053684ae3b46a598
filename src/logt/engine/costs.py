"""Costs: the paper's complexity ratio, and true bytes, of the segments of an index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from logt._internal.segment import Segment
from logt.group_testing.cascade import Cascade, prefix_lengths
from logt.group_testing.quantize import Codebook
from logt.group_testing.segment import CodedSegment
from logt.lists.codec import Codec
from logt.lists.inverted_lists import Probe
from logt.lists.segment import ListSegment


def costs(segments: Sequence[Segment], dim: int) -> dict[str, Any]:
    """Return what the segments hold and cost, in total and by part."""
    N = sum(segment.count for segment in segments)
    M = sum(_unit_count(model) for model in models(segments))
    entries = sum(_entries(segment) for segment in segments)
    by_part = {"memory vectors": sum(model.nbytes for model in models(segments))}
    for segment in segments:
        for part, size in segment.bytes_by_part().items():
            by_part[part] = by_part.get(part, 0) + size
    return {
        "removed": sum(map(len, segments)) - N,
        "units": M,
        "segments": len(segments),
        "entries per vector": entries / N if N else 0.0,
        "rho": (M * dim + entries) / (dim * N) if N else 0.0,
        "memory ratio": _scalars(segments) / (dim * N) if N else 0.0,
        "bytes by part": by_part,
        "bytes mapped": sum(s.refinement_bytes for s in segments if isinstance(s, ListSegment)),
    }


def complexity(segments: Sequence[Segment], dim: int, coverage: Cascade | Probe | None) -> float:
    """Return the paper's ρ of a search: operations per query over dim·N.

    A cascade decodes the rest of U for the fraction R / N of the vectors that it re-ranks. Of inverted lists, the
    codes of lists of mean size are counted, and one operation per dimension for each vector of 1/8 of them, which is
    about how many residuals are read; `ListSearcher.search` returns the exact number.
    """
    N = sum(segment.count for segment in segments)
    if not N:
        return 0.0
    coded = [segment for segment in segments if isinstance(segment, CodedSegment)]
    cascade = coverage if isinstance(coverage, Cascade) else None
    decoded = sum(_decoded(segment, cascade) for segment in coded)
    if cascade is not None:
        full = sum(_decoded(segment, None) for segment in coded)
        decoded += (full - decoded) * min(1.0, cascade.R / N)
    probe = coverage if isinstance(coverage, Probe) else Probe(effort=1)
    decoded += sum(_scanned(s, dim, probe, s.count / N) for s in segments if isinstance(s, ListSegment))
    measured = sum(_measured(model) for model in models(segments))
    return float((measured + decoded) / (dim * N))


def memory_per_vector(N: int, dim: int, bits: int) -> float:
    """Return about how many bytes of memory a vector of the default index takes, without its refinement."""
    sign_bits, low_bits = -(-dim // 128) * 16, -(-dim * (bits - 1) // 128) * 16
    units: float = 4 * math.sqrt(N)
    return 3 * 2 + 4 + 4 + 4 + sign_bits + low_bits + 4 + 8 + 4 + units * (dim / 2 + 36) / N


def models(segments: Sequence[Segment]) -> list[Any]:
    """Return the codebooks and codecs of some segments, each once."""
    return list({id(segment.model): segment.model for segment in segments}.values())


def _unit_count(model: Codebook | Codec) -> int:
    return model.units if isinstance(model, Codec) else model.shape[0]


def _measured(model: Codebook | Codec) -> int:
    return model.units * model.dim if isinstance(model, Codec) else model.operations


def _entries(segment: Segment) -> int:
    """Return the entries of U."""
    if isinstance(segment, CodedSegment):
        return segment.nonzeros()
    if not isinstance(segment, ListSegment):
        return 0
    return int(np.count_nonzero(segment.weight))


def _decoded(segment: CodedSegment, cascade: Cascade | None) -> float:
    """Return the entries of U that are decoded for one query."""
    if cascade is not None and not segment.codes.inverse:
        return float(prefix_lengths(segment.codes, cascade.p).sum(dtype=np.int64))
    return float(segment.nonzeros())


def _scanned(segment: ListSegment, dim: int, probe: Probe, share: float) -> float:
    """Return the operations of one query in inverted lists; `share` is the segment's share of all vectors."""
    M, curve = segment.codec.units, segment.codec.curve
    limits = probe.limits(1, ranks=None, curves=[curve] if curve else [])
    lists = M if limits.everything else min(limits.nprobe or M**limits.lists, M)
    rows = min(len(segment), max(len(segment) * lists / M, limits.least * share))
    if segment.flat:
        rows = len(segment)
    return rows * (segment.codec.entries + (dim if limits.everything else dim / 8))


def _scalars(segments: Sequence[Segment]) -> float:
    """Return what is stored in the paper's count: one scalar per entry of U, one per four bytes of other arrays."""
    kept: float = sum(model.nbytes for model in models(segments)) / 4
    lists = [segment for segment in segments if isinstance(segment, ListSegment)]
    kept += sum(segment.sign_bits.nbytes + segment.low_bits.nbytes + segment.factor.nbytes for segment in lists) / 4
    return kept + sum(_entries(segment) for segment in segments)
