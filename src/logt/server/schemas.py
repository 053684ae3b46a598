"""What the API takes and gives, as its documentation shows it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from logt.server.errors import HTTPError
from logt.server.hits import Id
from logt.server.photo_collection import Box

AnyId = Annotated[StrictInt, Field(ge=0, le=2**63 - 2)] | Annotated[StrictStr, Field(max_length=4096)]
Vector = Annotated[list[float], Field(min_length=1)]
K = Annotated[int, Field(ge=1, description="Results per query.")]
Effort = Annotated[
    float | None, Field(ge=0, le=1, description="From 0, fastest, to 1, everything decoded; the index's own if null.")
]
Region = Annotated[
    tuple[float, float, float, float],
    Field(description="Left, top, right, bottom, as parts (0 to 1) of the upright picture."),
]


class Asked(BaseModel):
    """A body with no other fields than those named."""

    model_config = ConfigDict(extra="forbid")


class VectorSearch(Asked):
    vectors: Annotated[list[Vector], Field(min_length=1, description="One row per query.")]
    k: K = 10
    effort: Effort = None


class IdSearch(Asked):
    ids: Annotated[list[AnyId], Field(min_length=1, description="Vectors of the index to search by.")]
    k: K = 10
    effort: Effort = None


class RegionSearch(Asked):
    id: Annotated[StrictStr, Field(max_length=4096, description="A picture of the index.")]
    box: Region
    k: K = 10


class Added(Asked):
    vectors: Annotated[list[Vector], Field(min_length=1)]
    ids: list[AnyId] | None = Field(None, description="One per vector, all numbers or all text; null: next numbers.")
    replace: bool = Field(False, description="Put vectors in place of those that have their ids.")


class Removed(Asked):
    ids: Annotated[list[AnyId], Field(min_length=1)]


class SearchHit(BaseModel):
    id: Id
    score: float


class Results(BaseModel):
    results: list[list[SearchHit]] = Field(description="One list per query, best first.")
    milliseconds: float = Field(description="Time to describe and to search, without the transfer.")


class AddedIds(BaseModel):
    ids: list[Id]
    vectors: int = Field(description="How many the index holds now.")


class AddedPicture(BaseModel):
    id: str
    vectors: int = Field(description="How many photos the index holds now.")


class RemovedCount(BaseModel):
    removed: int
    vectors: int = Field(description="How many the index holds now.")


class Info(BaseModel):
    version: str
    generation: int | None
    vectors: int
    dim: int
    metric: str
    pictures: bool = Field(description="Whether pictures can be searched by and shown.")
    read_only: bool
    uploads: bool = Field(description="Whether pictures can be added.")
    limits: dict[str, int | float]
    report: dict[str, Any]


class Health(BaseModel):
    status: str
    trouble: str | None = Field(
        None, description="Why the newest saved state cannot be read; an older one is served."
    )


class Fault(BaseModel):
    code: str
    message: str


class Error(BaseModel):
    error: Fault


def region(text: str) -> Box | None:
    """'0.1,0.2,0.5,0.9' as a box; None for no text."""
    if not text.strip():
        return None
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        raise _no_box(text) from None
    return checked_box((left, top, right, bottom))


def checked_box(box: Box) -> Box:
    left, top, right, bottom = box
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise _no_box(box)
    return box


def _no_box(given: object) -> HTTPError:
    return HTTPError(
        422, "bad_box", f"box must be left, top, right, bottom from 0 to 1, left < right, top < bottom; got {given!r}"
    )
