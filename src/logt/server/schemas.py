"""Request and response bodies of the API."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from logt.descriptors.boxes import Box, parse_box
from logt.descriptors.text import MAX_LENGTH
from logt.server.changes import ChangeState, Ticket
from logt.server.collection import Id, Rerank, SearchOptions
from logt.server.errors import HTTPError, without_paths
from logt.server.library import Group

StrictId = Annotated[StrictInt, Field(ge=0, le=2**63 - 2)] | Annotated[StrictStr, Field(max_length=4096)]
# fail_fast: without it, a million bad values are a million errors, which take gigabytes.
Vector = Annotated[list[float], Field(min_length=1, fail_fast=True)]
Vectors = Annotated[list[Vector], Field(min_length=1, fail_fast=True)]
FilterIds = Annotated[list[StrictId], Field(fail_fast=True)]
Ids = Annotated[FilterIds, Field(min_length=1)]
MAX_K = 1_000_000
"""The largest k in the description of the API; a server has a smaller limit, see `Limits`."""
K = Annotated[int, Field(ge=1, le=MAX_K, description="Number of results per query.")]
RerankField = Annotated[
    Rerank,
    Field(
        description="diffusion: re-rank the results on the neighbor graph of the index, if rerank of /api/v1/info is "
        "true. function: by the function of --rerank, if function of /api/v1/info is true."
    ),
]


class RequestBody(BaseModel):
    """A JSON body; unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(RequestBody):
    k: K = 10
    effort: float | None = Field(
        None, ge=0, le=1, description="From 0 (fastest) to 1 (exhaustive). null: the default."
    )
    recall: float | None = Field(
        None, gt=0, le=1, description="Fraction of the results of a full scan to find, instead of an effort."
    )
    like: str | None = Field(None, description="The kind of the queries, by the name it was tuned with.")
    rerank: RerankField = None
    filter: dict[Literal["wanted", "unwanted"], FilterIds] | None = Field(
        None, description="wanted: only these ids can be found. unwanted: these ids are not among the results."
    )
    by: Literal["vector", "item"] = Field(
        "vector", description="item: return the k best items, each with its best vector, if vectors have items."
    )

    @property
    def options(self) -> SearchOptions:
        ids = self.filter or {}
        limits = self.effort, self.recall, self.like, self.rerank
        return SearchOptions(*limits, ids.get("wanted"), ids.get("unwanted", ()), self.by)


class VectorSearchRequest(SearchRequest):
    vectors: Annotated[Vectors, Field(description="One query vector per row.")]


class IdSearchRequest(SearchRequest):
    ids: Annotated[Ids, Field(description="Ids of the vectors to search with.")]


class RegionSearchRequest(RequestBody):
    id: Annotated[StrictStr, Field(max_length=4096, description="Id of a photo in the index.")]
    box: tuple[float, float, float, float] = Field(
        description="Left, top, right, bottom of the upright photo, as fractions (0 to 1) or in whole pixels."
    )
    k: K = 10
    rerank: RerankField = None


class TextSearchRequest(RequestBody):
    text: Annotated[StrictStr, Field(min_length=1, max_length=MAX_LENGTH, description='What to find: "a red bus".')]
    k: K = 10


class AddRequest(RequestBody):
    vectors: Annotated[Vectors, Field(description="One vector per row.")]
    ids: FilterIds | None = Field(
        None, description="One id per vector, all integers or all strings. null: the next free integers."
    )
    replace: bool = Field(False, description="Replace vectors that have the same ids.")


class RemoveRequest(RequestBody):
    ids: Annotated[Ids, Field(description="Ids of the vectors or photos to remove.")]


class SearchHit(BaseModel):
    id: Id
    score: float
    item: Id | None = Field(None, description="In a search by item: what the vector belongs to.")
    box: Box | None = Field(None, description="The region that matched, as fractions, if regions were compared.")


class SearchResponse(BaseModel):
    results: list[list[SearchHit]] = Field(description="One list per query, best first.")
    milliseconds: float = Field(description="Time on the server, including descriptor computation.")


class AddResponse(BaseModel):
    ids: list[Id]
    vectors: int = Field(description="Number of vectors in the index after the change.")


class UploadResponse(BaseModel):
    id: str
    vectors: int = Field(description="Number of photos in the index after the change.")


class RemoveResponse(BaseModel):
    removed: int
    vectors: int = Field(description="Number of vectors in the index after the change.")


class CompactResponse(BaseModel):
    vectors: int
    bytes: int = Field(description="Bytes of the index in memory after the change.")


class ErrorDetail(BaseModel):
    code: str
    message: str


class ErrorResponse(BaseModel):
    error: ErrorDetail


class ChangeResponse(BaseModel):
    id: str = Field(description="Id of the change: GET /api/v1/changes/ID returns its state.")
    state: ChangeState = Field(description='"waiting" or "running"; "done": saved; "failed": nothing was changed.')
    ids: list[Id] | None = Field(None, description="Ids that were added, when an add or an upload is done.")
    removed: int | None = Field(None, description="Number of vectors that were removed, when a removal is done.")
    error: ErrorDetail | None = Field(None, description="Why the change failed.")


class PhotoEntry(BaseModel):
    id: str
    date: str = Field(description="When it was taken (EXIF), or else the time of the file: YYYY-MM-DDTHH:MM:SS.")
    width: int = Field(description="Pixels, 0 if unknown.")
    height: int
    bytes: int


class PhotoListResponse(BaseModel):
    total: int = Field(description="Number of photos that meet the filter.")
    photos: list[PhotoEntry]
    groups: list[Group] = Field(description="Months, as YYYY-MM, or folders of all of them, in order.")


class PhotoAboutResponse(BaseModel):
    camera: dict[str, str] = Field(description="Camera, lens and exposure (EXIF), if the file may be downloaded.")
    original: bool = Field(description="Whether the file itself may be downloaded.")
    path: str | None = Field(description="The path of the file, for clients on the machine of the server.")


class DuplicateGroupEntry(BaseModel):
    score: float = Field(description="The lowest score of the pairs that connect the photos.")
    ids: list[str] = Field(
        description="The photo to keep first: most pixels, a date from the camera, most bytes, oldest."
    )


class DuplicatesResponse(BaseModel):
    done: int = Field(description="Photos that were compared so far.")
    total: int
    groups: list[DuplicateGroupEntry] | None = Field(description="null until the search is done: ask again.")


class IndexingState(BaseModel):
    what: str
    done: int
    total: int


class InfoResponse(BaseModel):
    version: str
    generation: int | None
    vectors: int
    dim: int
    metric: str
    photos: bool = Field(description="Whether the index contains photos.")
    rerank: bool = Field(description="Whether searches can be re-ranked by diffusion: the index has a graph.")
    function: bool = Field(description="Whether searches can be re-ranked by a function of the server.")
    text: bool = Field(description="Whether photos can be searched by text.")
    read_only: bool
    uploads: bool = Field(description="Whether photos can be uploaded.")
    originals: bool = Field(description="Whether a zip file contains the files of photos, or else smaller JPEGs.")
    indexing: IndexingState | None = Field(description="Progress of a process that updates the index now.")
    limits: dict[str, int | float]
    report: dict[str, Any]


class HealthResponse(BaseModel):
    status: str = Field(description='"ok", or "stale" if the newest saved index cannot be read.')
    trouble: str | None = Field(None, description="What is wrong if the status is stale; an older state is served.")


def describe_change(ticket: Ticket, private: Iterable[Path]) -> dict[str, Any]:
    """Return a change as the API shows it, a `ChangeResponse`. private: paths as of `without_paths`."""
    body: dict[str, Any] = {"id": ticket.id, "state": ticket.state, "ids": None, "removed": None, "error": None}
    if ticket.state == "failed":
        error = ticket.outcome.exception()
        body["error"] = without_paths(error, private).body["error"] if isinstance(error, HTTPError) else None
    elif ticket.state == "done":
        result = ticket.outcome.result()
        if isinstance(result, int):
            body["removed"] = result
        elif isinstance(result, str | list):
            body["ids"] = [result] if isinstance(result, str) else result
    return body


def parse_box_field(text: str) -> Box | None:
    """Return the box in a field such as "0.1,0.2,0.5,0.9"; None if the field is empty."""
    return parse_box(text) if text.strip() else None
