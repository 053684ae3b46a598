"""The neighbor graph of an index in shards: the calling process reads it when a search first re-ranks."""

from __future__ import annotations

import threading

from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError
from logt.graph.neighbor_graph import LinkState
from logt.storage.shard_files import Outline, read_links


class StateGraph:
    """The graph of the state that is searched, kept until there is another state."""

    def __init__(self, path: str):
        """path: the folder or URL of the index."""
        self._path = path
        self._lock = threading.Lock()
        self._read: tuple[str, LinkState | None] | None = None

    def snapshot(self, outline: Outline) -> Snapshot:
        """Return a snapshot with the graph and the string ids of a state, and no segments."""
        with self._lock:
            if self._read is None or self._read[0] != outline.state:
                self._read = outline.state, read_links(self._path, outline.state)
            links = self._read[1]
        if links is not None and links.count < len(outline):
            missing = len(outline) - links.count
            raise InvalidInputError(
                f"{missing:,} vectors are not in the neighbor graph; open the index with mode='a', link() and save()"
            )
        return Snapshot((), 1, outline.strings, links)
