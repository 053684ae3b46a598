"""What an index holds at one moment: a search sees one state, a change makes the next from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt._types import Array, Floats, Ids
from logt._validation import as_mask, checked_filter, checked_ids, known_ids, row_norms, unit_rows
from logt.engine.search import View
from logt.engine.segment import Segment
from logt.engine.string_ids import Names, as_texts, checked_texts
from logt.errors import InvalidInputError
from logt.stages.decoder import Cascade
from logt.stages.inverted_lists import Open
from logt.stages.quantize import Memory


@dataclass(frozen=True)
class State:
    """Segments, and the number that the next vector gets: ids are not given twice.

    Where ids are text, `names` says which number each stands for.
    """

    segments: tuple[Segment, ...] = ()
    next_id: int = 0
    names: Names | None = None

    def __len__(self) -> int:
        return sum(segment.count for segment in self.segments)

    @property
    def ids(self) -> Ids:
        parts = [segment.ids[segment.live] for segment in self.segments]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def holds(self, id: object) -> bool:
        if self.names is not None:
            return isinstance(id, str) and id in self.names.numbers
        if isinstance(id, bool) or not isinstance(id, int | np.integer) or not 0 <= id < 1 << 63:
            return False
        return any(len(segment.rows_of(np.array([id], np.int64))) for segment in self.segments)

    def shown(self, numbers: Ids) -> Array:
        """Ids as users see them."""
        return numbers if self.names is None else self.names.shown(numbers)

    def known(self, ids: Any, *, all_of_them: bool = False) -> Ids:
        """The numbers of ids that are asked for; texts that are not there are passed over, or refused."""
        texts = as_texts(ids)
        if self.names is None:
            return known_ids(ids) if texts is None or len(self) else np.empty(0, np.int64)
        if texts is None and len(np.atleast_1d(np.asarray(list(ids) if isinstance(ids, set | frozenset) else ids))):
            raise InvalidInputError(f"the ids of this index are text, got {ids!r}")
        for text in texts or [] if all_of_them else []:
            if text not in self.names.numbers:
                raise InvalidInputError(f"id {text!r} is not in the index")
        return self.names.found(texts or [])

    def numbered(self, ids: Any, count: int) -> tuple[State, Ids]:
        """(the state that knows the ids of `count` new vectors, their numbers)."""
        texts = as_texts(ids)
        if texts is None and self.names is None:
            return self, checked_ids(ids, count, self.next_id, self.ids)
        if texts is None or (self.names is None and len(self)):
            if count == 0:
                return self, np.empty(0, np.int64)
            kind = "whole numbers" if self.names is None else "text"
            raise InvalidInputError(f"the ids of this index are {kind}: give one for each vector; nothing was added")
        names = self.names or Names()
        if self.next_id + count >= 1 << 63:
            raise InvalidInputError(f"no {count} numbers are left after {self.next_id}; nothing was added")
        numbers = np.arange(self.next_id, self.next_id + count, dtype=np.int64)
        new = Names.of(checked_texts(texts, count, names), numbers.tolist())
        return replace(self, names=names | new), numbers

    def with_segments(self, new: list[Segment]) -> State:
        largest = max((int(segment.ids[-1]) for segment in new), default=-1)
        return replace(self, segments=self.segments + tuple(new), next_id=max(self.next_id, largest + 1))

    def without(self, ids: Ids) -> State:
        """The vectors with these ids removed; a segment with nothing left is dropped."""
        unique = np.unique(ids)
        segments = []
        for segment in self.segments:
            rows = segment.rows_of(unique)
            rest = segment.without(rows) if len(rows) else segment
            segments += [rest] if rest.count else []
        left = replace(self, segments=tuple(segments))
        if self.names is None:
            return left
        return replace(left, names=self.names.kept(left.ids) if segments else None)  # an empty index takes any ids

    def compacted(self, open: Open | None, largest: int | None) -> State:
        """Without the space of removed vectors; segments that can be opened together are joined, up to a size."""
        compacted = [segment.compacted(open) for segment in self.segments]
        if open is None:
            return replace(self, segments=tuple(compacted))
        groups: list[list[Segment]] = []
        growing: dict[int, list[Segment]] = {}  # the last group of each memory
        for segment in compacted:
            group = growing.get(id(segment.memory), [])
            if not group or (largest is not None and sum(map(len, group)) + len(segment) > largest):
                group = growing[id(segment.memory)] = []
                groups.append(group)
            group.append(segment)
        joined = (Segment.joined(group, open) if len(group) > 1 else group[0] for group in groups)
        return replace(self, segments=tuple(joined))

    def merged(self, other: State) -> State:
        if not len(other):
            return replace(self, next_id=max(self.next_id, other.next_id))
        if len(self) and (self.names is None) != (other.names is None):
            raise InvalidInputError("ids are text in one and numbers in the other; nothing was merged")
        if other.names is not None:
            return self._merged_by_name(other, other.names)
        both = np.intersect1d(self.ids, other.ids)
        if len(both):
            raise InvalidInputError(f"id {both[0]} is in both; nothing was merged")
        return State(self.segments + other.segments, max(self.next_id, other.next_id))

    def _merged_by_name(self, other: State, theirs: Names) -> State:
        """The numbers behind names are an index's own: those of the other move up behind ours."""
        mine = self.names or Names()
        both = mine.numbers.keys() & theirs.numbers.keys()
        if both:
            raise InvalidInputError(f"id {min(both)!r} is in both; nothing was merged")
        if self.next_id + other.next_id >= 1 << 63:
            raise InvalidInputError(f"no numbers are left after {self.next_id}; nothing was merged")
        moved = tuple(replace(segment, ids=segment.ids + self.next_id) for segment in other.segments)
        return State(self.segments + moved, self.next_id + other.next_id, mine | theirs.moved(self.next_id))

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

    def expanded(self, Q: Floats, scores: Floats, ids: Ids, alpha: float) -> Floats:
        """αQE: each query with its results added to it, weighted by score^alpha, at length 1."""
        flat = self.reconstructed(ids.ravel(), Q.shape[1])
        found = unit_rows(flat, row_norms(flat)).reshape(*ids.shape, Q.shape[1])
        weights = np.maximum(scores, 0) ** np.float32(alpha)
        sums: Floats = Q + np.einsum("qk,qkd->qd", weights, found)
        return unit_rows(sums, row_norms(sums))

    def relearnable(self, dim: int) -> Floats:
        """All vectors as they are reconstructed, at the lengths that are stored."""
        X = self.reconstructed(self.ids, dim)
        norms = [segment.norms[segment.live] for segment in self.segments if segment.norms is not None]
        if norms:
            X *= (np.concatenate(norms) / np.maximum(np.linalg.norm(X, axis=1), np.float32(1e-30)))[:, None]
        return X

    def views(self, filter: Any, *, l2: bool) -> list[View]:
        """The segments as a search through this filter sees them."""
        if filter is None:
            return [View.of(segment, l2=l2) for segment in self.segments]
        allowed = checked_filter(self._by_number(filter), [(segment.ids, segment.live) for segment in self.segments])
        return [View.of(s, l2=l2, allowed=rows) for s, rows in zip(self.segments, allowed, strict=True)]

    def _by_number(self, filter: Any) -> Any:
        """A filter of texts as one of numbers."""
        names = self.names
        if names is None:
            return filter
        if callable(filter):
            return lambda numbers: filter(names.shown(numbers))
        return filter if as_mask(filter) is not None else self.known(filter)

    def check(self, dim: int, *, needs_norms: bool, needs_units: bool, needs_sketches: bool) -> None:
        """Raise unless what was read from disk fits together."""
        ids = self.ids
        if len(np.unique(ids)) != len(ids) or ids.max(initial=-1) >= self.next_id:
            raise InvalidInputError("ids are held twice, or are yet to be given")
        for segment in self.segments:
            if segment.memory.shape[1] != dim:
                raise InvalidInputError(f"a segment has dimension {segment.memory.shape[1]}, not {dim}")
            if (segment.norms is not None) != needs_norms:
                raise InvalidInputError("norms and metric do not fit")
            if segment.units is None and (needs_units or segment.codes.inverse):
                raise InvalidInputError("a segment has no units")
            if (segment.sketches is not None) != needs_sketches:
                raise InvalidInputError("sketches and method do not fit")

    def costs(self, dim: int) -> dict[str, Any]:
        """What it holds and costs: the paper's complexity ratio, and true bytes, in all and by part."""
        N, memories = len(self), self._memories()
        M = sum(memory.shape[0] for memory in memories)
        nonzeros = sum(segment.nonzeros for segment in self.segments)
        by_part = {"memory vectors": sum(memory.nbytes for memory in memories)}
        for segment in self.segments:
            for part, size in segment.bytes_by_part().items():
                by_part[part] = by_part.get(part, 0) + size
        if self.names is not None:
            by_part["names"] = self.names.nbytes
        total = sum(by_part.values())
        return {
            "removed": sum(map(len, self.segments)) - N,
            "units": M,
            "segments": len(self.segments),
            "entries per vector": nonzeros / N if N else 0.0,
            "rho": (M * dim + nonzeros) / (dim * N) if N else 0.0,
            "memory": self._scalars() / (dim * N) if N else 0.0,
            "bytes": total,
            "bytes per vector": total / N if N else 0.0,
            "bytes by part": by_part,
        }

    def complexity(self, dim: int, read: Cascade | Open | None) -> float:
        """The paper's ρ of a search that reads so much of U: operations per query over dim·N.

        A cascade reads the rest of U for the part R of N that it refines; of units that are opened, those of the
        mean size are counted, with one operation a dimension for each sketch.
        """
        N = len(self)
        if not N:
            return 0.0
        decoded = sum(segment.operations(dim, read, segment.count / N) for segment in self.segments)
        if isinstance(read, Cascade):
            whole = sum(segment.operations(dim, None) for segment in self.segments)
            decoded += (whole - decoded) * min(1.0, read.R / N)
        return (sum(memory.operations for memory in self._memories()) + decoded) / (dim * N)

    def _memories(self) -> list[Memory]:
        return list({id(segment.memory): segment.memory for segment in self.segments}.values())

    def _scalars(self) -> float:
        """All that is kept: one for each entry of U; memory vectors and sketches by their bytes, four to a scalar."""
        kept = [memory.nbytes for memory in self._memories()]
        kept += [segment.sketches.nbytes for segment in self.segments if segment.sketches is not None]
        return sum(kept) / 4 + sum(segment.nonzeros for segment in self.segments)
