"""Ground truth files of image retrieval benchmarks: each reader returns one GroundTruth per protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.types import Ids
from logt.errors import InvalidInputError
from logt.evaluation import GroundTruth, revisited_setups

QUERY_SUFFIX = "_query.txt"


def ground_truth_from_json(path: Path) -> dict[str, GroundTruth]:
    """Read {"queries": [...]}: each query has easy, hard and junk (revisited protocol), or positives and junk."""
    try:
        contents = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON: {error}") from error
    queries = contents.get("queries") if isinstance(contents, dict) else None
    if not isinstance(queries, list) or not queries or not all(isinstance(query, dict) for query in queries):
        raise InvalidInputError(f"{path} contains no list of queries")
    for kinds in (("easy", "hard", "junk"), ("positives", "junk")):
        if all(kind in query for query in queries for kind in kinds):
            lists = [[_row_numbers(query, kind, path) for query in queries] for kind in kinds]
            return revisited_setups(*lists) if len(kinds) == 3 else {"original": GroundTruth.from_lists(*lists)}
    keys = ", ".join(sorted(queries[0]))
    raise InvalidInputError(
        f"queries in {path} need easy, hard and junk, or positives and junk; the first has {keys}"
    )


def ground_truth_from_text(folder: Path, image_names: Sequence[str]) -> dict[str, GroundTruth]:
    """Read the text files of Oxford and Paris buildings: for each NAME_query.txt, NAME_good, _ok and _junk.txt.

    `image_names` are the images of the rows of X, in order. Queries are sorted by file name. Positives are the good
    and the ok images; junk images that are not in the collection are skipped.
    """
    row_of = {Path(name).stem: row for row, name in enumerate(image_names)}
    positives, junk = [], []
    for query_file in sorted(folder.glob(f"*{QUERY_SUFFIX}")):
        query = query_file.name.removesuffix(QUERY_SUFFIX)
        relevant = [name for kind in ("good", "ok") for name in _read_names(folder / f"{query}_{kind}.txt")]
        missing = [name for name in relevant if name not in row_of]
        if missing:
            raise InvalidInputError(
                f"{folder}: the ground truth of {query} contains {missing[0]}, which is not in the list of images"
            )
        positives.append([row_of[name] for name in relevant])
        junk.append([row_of[name] for name in _read_names(folder / f"{query}_junk.txt") if name in row_of])
    return {"original": GroundTruth.from_lists(positives, junk)}


def _read_names(path: Path) -> list[str]:
    """Return the image names in a text file, one per line, without suffixes."""
    if not path.is_file():
        raise InvalidInputError(f"the ground truth is incomplete: file not found: {path}")
    return [Path(line.strip()).stem for line in read_text(path).splitlines() if line.strip()]


def read_text(path: Path) -> str:
    """Return the text of a file."""
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not a text file: {error}") from error


def _row_numbers(query: Mapping[str, Any], kind: str, path: Path) -> Ids:
    try:
        rows = np.array(list(query[kind]), np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{kind} of a query in {path} is not a list of row numbers: {error}") from error
    if rows.ndim != 1 or (rows != np.rint(rows)).any():
        raise InvalidInputError(f"{kind} of a query in {path} is not a list of integers")
    return rows.astype(np.int64)
