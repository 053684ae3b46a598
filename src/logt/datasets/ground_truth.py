"""Ground truth and result files of image retrieval benchmarks: a ground truth is one GroundTruth per protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logt._internal.types import Array, Ids
from logt.datasets.pickles import read_pickle
from logt.errors import InvalidInputError
from logt.evaluation import GroundTruth, revisited_setups

QUERY_SUFFIX = "_query.txt"
_MAX_DIGITS = 15  # of the number of a row
_POSITIVE_IDS = "positive_ids.txt"


class Truths(NamedTuple):
    """The ground truth of a file, by protocol.

    names: the id of each row that it refers to, if the file has them. numbered: integer ids are numbers of rows.
    """

    protocols: dict[str, GroundTruth]
    names: Sequence[str] = ()
    numbered: bool = True

    def to_rows(self, ids: Sequence[str | int | None]) -> Ids:
        """Return the rows of a ranking of ids, without padding; what is not named here has the next number."""
        row_of = {name: row for row, name in enumerate(self.names)}
        rows = []
        for name in ids:
            text = str(name)
            row = row_of.get(text, row_of.get(Path(text).stem))
            if row is None and self.numbered and text.isdecimal() and len(text) <= _MAX_DIGITS:
                row = int(text)
            elif row is None and not self.names and name not in (None, -1):
                raise InvalidInputError(f"the ground truth has numbers of rows, but an id is {name!r}")
            if name not in (None, -1):
                rows.append(len(row_of) if row is None else row)
        return np.array(rows, np.int64)


def read_truths(path: Path, query_ids: Sequence[str]) -> Truths:
    """Read a ground truth: gnd_*.pkl of revisited Oxford and Paris, ground_truth.json, or positive_ids.txt of ILIAS.

    path: the file, or for ILIAS a folder that has it. query_ids: the ids of the queries, which ILIAS needs: an image
    is relevant for the queries whose id starts with the same folder.
    """
    if path.is_dir():
        path = next((file for file in (path, path / "image_ids") if (file / _POSITIVE_IDS).is_file()), path)
        path = path / _POSITIVE_IDS
    if path.suffix == ".json":
        return Truths(ground_truth_from_json(path))
    if path.suffix == ".pkl":
        return _truths_from_pickle(path)
    names = sorted(line.split(",")[0].strip() for line in read_text(path).splitlines() if line.strip())
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name.partition("/")[0], []).append(row)
    missing = [query for query in query_ids if query.partition("/")[0] not in rows]
    if missing or not query_ids:
        what = f"query {missing[0]!r}" if missing else "queries without ids"
        raise InvalidInputError(f"{path} has no positive images of {what}; ids start with the name of their object")
    positives = [rows[query.partition("/")[0]] for query in query_ids]
    return Truths({"ILIAS": GroundTruth.from_lists(positives)}, names, numbered=False)


def _truths_from_pickle(path: Path) -> Truths:
    contents = read_pickle(path)
    names = contents.get("imlist") if isinstance(contents, dict) else None
    truths = _ground_truth_of(contents.get("gnd") if isinstance(contents, dict) else None, path)
    return Truths(truths, list(map(str, names)) if isinstance(names, list) else ())


def write_results(path: Path, query_ids: Sequence[str], scores: Array, ids: Array) -> None:
    """Write results as ILIAS takes them, {query: {id: score}} in JSON; scores: (nq, k), larger is better."""
    rows = zip(query_ids, ids.tolist(), scores.tolist(), np.isfinite(scores).sum(axis=1), strict=True)
    found = {query: {str(name): score for name, score in zip(n[:c], s[:c], strict=True)} for query, n, s, c in rows}
    path.write_text(json.dumps(found))


def read_results(path: Path) -> dict[str, list[str]]:
    """Read results as ILIAS takes them; return the ids for each query, best first."""
    found = _read_json(path)
    if not isinstance(found, dict) or not all(isinstance(scores, dict) for scores in found.values()):
        raise InvalidInputError(f"{path} must hold {{query: {{id: score}}}}")
    try:
        return {query: sorted(scores, key=lambda name: -float(scores[name])) for query, scores in found.items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{path} has a score that is not a number: {error}") from error


def ground_truth_from_json(path: Path) -> dict[str, GroundTruth]:
    """Read {"queries": [...]}: each query has easy, hard and junk (revisited protocol), or positives and junk."""
    contents = _read_json(path)
    return _ground_truth_of(contents.get("queries") if isinstance(contents, dict) else None, path)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON: {error}") from error


def _ground_truth_of(queries: Any, path: Path) -> dict[str, GroundTruth]:
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
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{kind} of a query in {path} is not a list of row numbers: {error}") from error
    if rows.ndim != 1 or (rows != np.rint(rows)).any() or not ((rows >= 0) & (rows < 10**_MAX_DIGITS)).all():
        raise InvalidInputError(f"{kind} of a query in {path} is not a list of integers from 0 on")
    return rows.astype(np.int64)
