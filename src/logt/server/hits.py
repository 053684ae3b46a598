"""Search results as the server and the client pass them around."""

from __future__ import annotations

from typing import NamedTuple

Id = int | str


class Hit(NamedTuple):
    """One search result."""

    id: Id
    score: float
