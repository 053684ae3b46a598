"""What an index holds at one moment: a search sees one state, a change makes the next from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt._types import Floats, Ids
from logt.errors import InvalidInputError
from logt.inputs import checked_filter
from logt.search import View
from logt.segment import Segment


@dataclass(frozen=True)
class State:
    """Segments, and the number that the next vector without an id gets: ids are not given twice."""

    segments: tuple[Segment, ...] = ()
    next_id: int = 0

    def __len__(self) -> int:
        return sum(segment.count for segment in self.segments)

    @property
    def ids(self) -> Ids:
        parts = [segment.ids[segment.live] for segment in self.segments]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def holds(self, id: int) -> bool:
        return any(len(segment.rows_of(np.array([id], np.int64))) for segment in self.segments)

    def with_segments(self, new: list[Segment]) -> State:
        largest = max((int(segment.ids[-1]) for segment in new), default=-1)
        return State(self.segments + tuple(new), max(self.next_id, largest + 1))

    def without(self, ids: Ids) -> State:
        """The vectors with these ids removed; a segment with nothing left is dropped."""
        unique = np.unique(ids)
        segments = []
        for segment in self.segments:
            rows = segment.rows_of(unique)
            left = segment.without(rows) if len(rows) else segment
            segments += [left] if left.count else []
        return replace(self, segments=tuple(segments))

    def compacted(self) -> State:
        return replace(self, segments=tuple(segment.compacted() for segment in self.segments))

    def merged(self, other: State) -> State:
        both = np.intersect1d(self.ids, other.ids)
        if len(both):
            raise InvalidInputError(f"id {both[0]} is in both; nothing was merged")
        return State(self.segments + other.segments, max(self.next_id, other.next_id))

    def reconstructed(self, ids: Ids, dim: int) -> Floats:
        X = np.empty((len(ids), dim), np.float32)
        missing = np.ones(len(ids), bool)
        for segment in self.segments:
            rows, here = segment.located(ids)
            if here.any():
                X[here] = segment.reconstructed(rows[here])
                missing &= ~here
        if missing.any():
            raise InvalidInputError(f"id {ids[missing][0]} is not in the index")
        return X

    def views(self, filter: Any, *, l2: bool) -> list[View]:
        """The segments as a search through this filter sees them."""
        if filter is None:
            return [View.of(segment, l2=l2) for segment in self.segments]
        allowed = checked_filter(filter, [(segment.ids, segment.live) for segment in self.segments])
        return [View.of(s, l2=l2, allowed=rows) for s, rows in zip(self.segments, allowed, strict=True)]

    def costs(self, dim: int) -> dict[str, Any]:
        """What it holds and costs: the paper's complexity ratio, and true bytes, in all and by part."""
        N = len(self)
        memories = {id(segment.memory): segment.memory for segment in self.segments}.values()
        M = sum(memory.shape[0] for memory in memories)
        nonzeros = sum(segment.nonzeros for segment in self.segments)
        by_part = {"memory vectors": sum(a.nbytes for memory in memories for a in memory.arrays.values())}
        for segment in self.segments:
            for part, size in segment.bytes_by_part().items():
                by_part[part] = by_part.get(part, 0) + size
        total = sum(by_part.values())
        return {
            "removed": sum(map(len, self.segments)) - N,
            "units": M,
            "segments": len(self.segments),
            "entries per vector": nonzeros / N if N else 0.0,
            "rho": (M * dim + nonzeros) / (dim * N) if N else 0.0,
            "bytes": total,
            "bytes per vector": total / N if N else 0.0,
            "bytes by part": by_part,
        }
