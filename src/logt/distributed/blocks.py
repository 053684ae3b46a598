"""Blocks: ranges of the rows of all sources together. One block becomes one segment."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from logt._internal.types import Array, Metric
from logt._internal.validation import check_rows
from logt.datasets.row_files import read_rows
from logt.errors import InvalidInputError


class Piece(NamedTuple):
    """Some rows of one source."""

    source: str
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


class Block(NamedTuple):
    """The pieces of one segment, and the id of its first vector."""

    number: int
    first: int
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @classmethod
    def from_json(cls, plain: Any) -> Self:
        number, first, pieces = plain
        return cls(number, first, tuple(Piece(*piece) for piece in pieces))


def split_sources(sources: Sequence[tuple[str, int]], segment_size: int | None) -> list[Block]:
    """Return equal blocks of at most `segment_size` rows of the sources, given as (source, rows), in their order."""
    total = sum(rows for _, rows in sources)
    count = -(-total // (segment_size or max(total, 1)))
    cuts = np.linspace(0, total, count + 1).astype(int).tolist()
    starts = [0, *accumulate(rows for _, rows in sources)]
    blocks = []
    for number, (low, high) in enumerate(pairwise(cuts)):
        pieces = [
            Piece(source, max(low - start, 0), min(high - start, rows))
            for (source, rows), start in zip(sources, starts, strict=False)
            if rows and start < high and start + rows > low
        ]
        blocks.append(Block(number, low, tuple(pieces)))
    return blocks


class BlockRows:
    """The rows of a block as one matrix, of which only what is used is read if the sources are mapped."""

    def __init__(self, block: Block, dim: int):
        self._parts = [read_rows(*piece) for piece in block.pieces]
        self._starts = np.cumsum([0, *map(len, self._parts)])
        self.shape = (block.rows, dim)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Array) -> Array:
        if len(self._parts) == 1:
            return self._parts[0][rows]
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        at = np.searchsorted(self._starts, rows, side="right") - 1
        out = np.empty((len(rows), self.shape[1]), np.result_type(*self._parts))
        for number, part in enumerate(self._parts):
            here = at == number
            out[here] = part[rows[here] - self._starts[number]]
        return out


def read_block(block: Block, dim: int, metric: Metric) -> BlockRows:
    """Return the rows of a block; raise InvalidInputError that names the source of a row that cannot be indexed."""
    rows = BlockRows(block, dim)
    for piece, part in zip(block.pieces, rows._parts, strict=True):
        if part.ndim != 2 or part.shape[1] != dim or part.dtype.kind not in "fiub":
            raise InvalidInputError(
                f"{piece.source} holds {part.dtype} of shape {part.shape}, not {dim} numbers per row"
            )
        check_rows(part, f"{piece.source} (counted from row {piece.start:,})", "nothing was built", metric)
    return rows
