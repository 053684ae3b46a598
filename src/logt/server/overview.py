"""What is computed of a whole collection of photos: its neighbor graph, and from it groups and the map."""

from __future__ import annotations

from logt.graph.neighbor_graph import NeighborGraph
from logt.photos.clusters import Clusters, find_clusters
from logt.photos.duplicates import duplicate_graph
from logt.photos.photo_map import PhotoMap, photo_map
from logt.server.background import Background
from logt.server.photo_collection import PhotoCollection


class Overview:
    """Each part is computed when it is first asked for, in the background."""

    def __init__(self, collection: PhotoCollection):
        self.graph: Background[NeighborGraph] = Background(
            collection, lambda report: duplicate_graph(collection.index, threads=1, progress=report)
        )
        self.clusters: Background[Clusters] = Background(
            collection, lambda report: find_clusters(self.graph.wait(report))
        )
        self.map: Background[PhotoMap] = Background(
            collection, lambda report: photo_map(self.graph.wait(report), collection.photos.path, report)
        )

    def close(self) -> None:
        for part in (self.map, self.clusters, self.graph):
            part.close()
