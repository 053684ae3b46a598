"""Search results as the server and the client pass them around."""

from __future__ import annotations

from typing import Literal, NamedTuple

Id = int | str
Rerank = Literal["diffusion"] | None


class Hit(NamedTuple):
    """One search result: the id and the score of a vector."""

    id: Id
    score: float
