"""Nodes, (segments, neighbor graph) -> what walks on the graph read of vectors.

A snapshot takes over what an earlier one has computed, so that a search after a small change computes little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from logt import _kernels
from logt._internal.types import Ids
from logt.graph.stored_graph import StoredGraph
from logt.lists.segment import ListSegment

_NONE = 0xFFFFFFFF  # Graph::NONE
_NO_NODES = np.empty(0, np.uint32)


@dataclass(frozen=True, eq=False)
class SegmentNodes:
    """The vectors of one segment, whatever was removed since: which nodes they are, and those in lists that are none.

    made_from: the arrays of the segment that this depends on. linked: whether a vector is a node.
    """

    made_from: tuple[object, object]
    linked: bool
    compiled: _kernels.SegmentNodes

    @classmethod
    def find(cls, segment: ListSegment, graph: StoredGraph) -> SegmentNodes:
        """Find the vectors of a segment in the graph."""
        rows, here = graph.locate(segment.ids)
        node, unlinked = _NO_NODES, _NO_NODES
        if here.any():
            node = np.where(here, rows, _NONE).astype(np.uint32)[segment.row]
        if not segment.flat:  # otherwise each search reads all of it
            unlinked = np.flatnonzero((segment.live & ~here)[segment.row]).astype(np.uint32)
        return cls(_arrays_of(segment), bool(len(node)), _kernels.SegmentNodes(segment.compiled, node, unlinked))


@dataclass(frozen=True, eq=False)
class GraphNodes:
    """All nodes of a graph, and the vectors of each segment."""

    compiled: _kernels.GraphNodes
    parts: tuple[SegmentNodes, ...] = ()

    def moved_to(self, segments: Sequence[ListSegment], graph: StoredGraph) -> GraphNodes:
        """Return the nodes of other segments: only segments that are not among the present ones are read."""
        known = {tuple(map(id, part.made_from)): part for part in self.parts}
        parts = tuple(
            known.get(tuple(map(id, _arrays_of(segment)))) or SegmentNodes.find(segment, graph)
            for segment in segments
        )
        first = list(accumulate(map(len, segments), initial=0))
        same = sum(accumulate((a is b for a, b in zip(self.parts, parts, strict=False)), min))  # leading ones
        gone = [part for part in self.parts[same:] if part.linked]
        new = [number for number in range(same, len(parts)) if parts[number].linked]
        if not gone and not new:
            return GraphNodes(self.compiled, parts)
        nodes = self.compiled.copy()
        for part in gone:
            nodes.clear(part.compiled)
        for number in new:
            nodes.place(segments[number].compiled, parts[number].compiled, first[number])
        return GraphNodes(nodes, parts)


def nodes_of(segments: Sequence[ListSegment], graph: StoredGraph) -> GraphNodes:
    """Return the nodes of all segments, and keep them with the graph for the next snapshot."""
    known: GraphNodes | None = graph.computed.get("nodes")
    nodes = (known or no_nodes(graph)).moved_to(segments, graph)
    graph.computed["nodes"] = nodes
    return nodes


def no_nodes(graph: StoredGraph) -> GraphNodes:
    """Return the nodes of a graph without segments."""
    return GraphNodes(_kernels.GraphNodes(len(graph)))


def _arrays_of(segment: ListSegment) -> tuple[Ids, object]:
    return segment.ids, segment.row
