"""The pages of a whole collection: groups of similar photos, unusual photos, and the map."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.responses import Response

from logt.photos.clusters import Clusters
from logt.server.api import ASCIIJSONResponse, ServiceDependency
from logt.server.errors import HTTPError
from logt.server.rendering import Card, describe, render
from logt.server.service import Service

MAX_SHOWN, MAX_UNUSUAL = 1000, 200
"""Groups, or photos of one group, on a page, and unusual photos."""
SCALE = 65535
"""Places on the map are integers from 0 to this."""

router = APIRouter(include_in_schema=False)


@router.get("/groups")
async def groups_page(
    service: ServiceDependency, of: Annotated[str | None, Query(max_length=4096)] = None, unusual: bool = False
) -> Response:
    """Return the groups of similar photos, the group of one photo, or the photos that are far from all others."""

    def render_groups() -> Response:
        work, library = service.overview.clusters.get(), service.photo_collection.state.library
        values: dict[str, Any] = {"work": work, "what": "Looking for groups…", "of": of, "unusual": unusual}
        values |= {"groups": [], "cards": []}
        if work.value is not None:
            if unusual:
                found = work.value.unusual(MAX_UNUSUAL)
                values["cards"] = [Card(name, describe(library, name), f"{score:.3f}") for name, score in found]
            elif of is not None:
                service.collection.check_known([of])
                names = [name for name in _group_of(work.value, of) if library.find(name)]
                values["cards"] = [Card(name, describe(library, name)) for name in names[:MAX_SHOWN]]
                values["total"] = len(names)
            else:
                values["groups"] = _list_groups(work.value)
        return render(service, "groups.html", values)

    return await service.search_pool.run(render_groups)


@router.get("/map")
async def map_page(service: ServiceDependency) -> Response:
    """Return the map, or how far its computation is."""

    def render_map() -> Response:
        return render(service, "map.html", {"work": service.overview.map.get(), "what": "Drawing the map…"})

    return await service.search_pool.run(render_map)


@router.get("/map/data")
async def map_data(service: ServiceDependency) -> Response:
    """Return ids, positions and groups of the photos on the map."""
    return await service.search_pool.run(lambda: ASCIIJSONResponse(_describe_map(service)))


def _list_groups(clusters: Clusters) -> list[tuple[str, int]]:
    sizes = np.bincount(clusters.labels[clusters.labels >= 0]).tolist()
    return list(zip(clusters.ids[clusters.representatives].tolist(), sizes, strict=True))[:MAX_SHOWN]


def _group_of(clusters: Clusters, photo_id: str) -> list[str]:
    label = max(clusters.labels[clusters.ids == photo_id], default=-1)  # it may be newer than the groups
    return clusters.members(label) if label >= 0 else [photo_id]


def _describe_map(service: Service) -> dict[str, Any]:
    value = service.overview.map.get().value
    if value is None:
        raise HTTPError(409, "no_map", "the map is not ready yet")
    (drawn, clusters), library = value, service.photo_collection.state.library
    rows = [row for row, name in enumerate(drawn.ids.tolist()) if library.find(name)]
    positions = np.rint((drawn.positions[rows] + 1) * (SCALE / 2)).clip(0, SCALE).astype(int)
    return {
        "ids": drawn.ids[rows].tolist(),
        "x": positions[:, 0].tolist(),
        "y": positions[:, 1].tolist(),
        "group": clusters.labels[rows].tolist(),
        "representatives": clusters.ids[clusters.representatives].tolist(),
    }
