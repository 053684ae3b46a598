"""Ground truth of the field, file or folder -> Truth by protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logt._types import Ids
from logt.datasets.restricted_pickle import read_pickle
from logt.errors import InvalidInputError
from logt.evaluation import GroundTruth, revisited_setups

QUERY = "_query.txt"


def truth_of_json(path: Path) -> dict[str, GroundTruth]:
    """{"queries": [{"easy", "hard", "junk"}, ...]} by the revisited protocol, or [{"positives", "junk"}, ...]."""
    try:
        held = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidInputError(f"{path} is not JSON: {error}") from error
    queries = held.get("queries") if isinstance(held, dict) else None
    return _by_protocol(queries, path)


def truth_of_pickle(path: Path) -> dict[str, GroundTruth]:
    """gnd_*.pkl: "gnd" is a list with easy, hard and junk of each query (revisited), or ok and junk (original)."""
    held = read_pickle(path)
    return _by_protocol(held.get("gnd") if isinstance(held, dict) else None, path)


def truth_of_texts(folder: Path, names: Sequence[str]) -> dict[str, GroundTruth]:
    """The files of the Oxford and Paris buildings: NAME_query.txt beside NAME_good.txt, _ok.txt and _junk.txt.

    `names` are those of the images, by row of X. Queries come in the order of their file names. Positives are the
    good and the ok ones; junk that is not in the collection is passed over.
    """
    row = {Path(name).stem: number for number, name in enumerate(names)}
    positives, junk = [], []
    for query in sorted(folder.glob(f"*{QUERY}")):
        start = query.name.removesuffix(QUERY)
        wanted = [name for kind in ("good", "ok") for name in _listed(folder / f"{start}_{kind}.txt")]
        lost = [name for name in wanted if name not in row]
        if lost:
            raise InvalidInputError(f"{query.parent} wants {lost[0]} for {start}, but the list of images has no such")
        positives.append([row[name] for name in wanted])
        junk.append([row[name] for name in _listed(folder / f"{start}_junk.txt") if name in row])
    if not positives:
        raise InvalidInputError(f"{folder} holds no file *{QUERY}")
    return {"original": GroundTruth.from_lists(positives, junk)}


def _listed(path: Path) -> list[str]:
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}, which belongs to the ground truth beside it")
    return [Path(line.strip()).stem for line in path.read_text().splitlines() if line.strip()]


def _by_protocol(queries: Any, path: Path) -> dict[str, GroundTruth]:
    if not isinstance(queries, list) or not queries or not all(isinstance(query, dict) for query in queries):
        raise InvalidInputError(f"{path} holds no list of queries")
    for kinds in (("easy", "hard", "junk"), ("ok", "junk"), ("positives", "junk")):
        if all(kind in query for query in queries for kind in kinds):
            lists = [[_rows(query, kind, path) for query in queries] for kind in kinds]
            return revisited_setups(*lists) if len(kinds) == 3 else {"original": GroundTruth.from_lists(*lists)}
    held = ", ".join(sorted(map(str, queries[0])))
    raise InvalidInputError(f"queries of {path} need easy, hard and junk, or ok and junk; the first has {held}")


def _rows(query: Mapping[str, Any], kind: str, path: Path) -> Ids:
    try:
        rows = np.array(list(query[kind]), np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{kind} of a query of {path} is no list of rows: {error}") from error
    if rows.ndim != 1 or (rows != np.rint(rows)).any():
        raise InvalidInputError(f"{kind} of a query of {path} is no list of whole numbers")
    return rows.astype(np.int64)
