"""Benchmarks: vectors, queries and ground truth, loaded from a folder or file in one of several known layouts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from logt._internal.types import Array, Floats, Metric
from logt._internal.validation import check_rows, normalize_rows, row_norms
from logt.datasets.ground_truth import (
    QUERY_SUFFIX,
    ground_truth_from_json,
    ground_truth_from_text,
    read_text,
    read_truths,
)
from logt.datasets.mat_hdf5 import open_hdf5, own_object, read_mat
from logt.datasets.synthetic import synthetic_collection
from logt.datasets.vector_files import SUFFIXES, read_neighbors, read_vectors
from logt.errors import InvalidInputError
from logt.evaluation import GroundTruth, Score, evaluate
from logt.metrics import parse_metric

IMAGE_LIST = "imlist.txt"
NEIGHBORS_PROTOCOL = "neighbours"  # codespell:ignore neighbours; part of fingerprints, as all names of protocols
SYNTHETIC_PROTOCOL = "known answer"
_GROUND_TRUTH_JSON = "ground_truth.json"
_HDF5_SUFFIXES = (".hdf5", ".h5")
_NEIGHBORS = ("neighbors.ibin", "groundtruth.ibin")
_VECTORS, _QUERIES = ("vectors", "base"), ("queries", "query")  # names of files
_METRICS: dict[str, Metric] = {  # by their names in ann-benchmarks and VIBE
    "angular": "cosine",
    "cosine": "cosine",
    "normalized": "cosine",
    "euclidean": "l2",
    "ip": "ip",
    "dot": "ip",
}
_LAYOUTS = (
    f"vectors and queries (each {', '.join(SUFFIXES)}), or .mat files with X and Q; with {_GROUND_TRUTH_JSON}, or "
    f"{IMAGE_LIST} and *{QUERY_SUFFIX}, *_good.txt, *_ok.txt and *_junk.txt, or gnd_*.pkl, or {_NEIGHBORS[0]}, or "
    "none of them; "
    "an .hdf5 file of ann-benchmarks or VIBE"
)


@dataclass(frozen=True)
class Benchmark:
    """Vectors, queries and ground truth under one name.

    name: for reports. X, Q: vectors and queries, of unit norm if the metric is cosine. truths: the ground truth by
    protocol; the first is the main one; none if the files have none. metric: how vectors are compared.
    """

    name: str
    X: Floats
    Q: Floats
    truths: Mapping[str, GroundTruth]
    metric: Metric = "cosine"

    def __post_init__(self) -> None:
        if self.X.shape[1] != self.Q.shape[1]:
            raise InvalidInputError(
                f"{self.name}: vectors have dimension {self.X.shape[1]}, queries {self.Q.shape[1]}"
            )
        for protocol, truth in self.truths.items():
            self._check_truth(protocol, truth)

    def _check_truth(self, protocol: str, truth: GroundTruth) -> None:
        if len(truth) != len(self.Q):
            raise InvalidInputError(
                f"{self.name}: {len(self.Q)} queries, but the ground truth ({protocol}) has {len(truth)}"
            )
        rows = np.concatenate([*truth.positives, *truth.junk])
        if rows.size and (rows.min() < 0 or rows.max() >= len(self.X)):
            wrong = int(rows.min()) if rows.min() < 0 else int(rows.max())
            raise InvalidInputError(
                f"{self.name}: the ground truth refers to row {wrong}, but there are {len(self.X)} vectors"
            )

    @property
    def main(self) -> str:
        """The name of the main protocol."""
        for name in self.truths:
            return name
        raise InvalidInputError(f"{self.name} has no ground truth; add {_GROUND_TRUTH_JSON}")

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of the vectors, the queries and the ground truth."""
        digest = hashlib.blake2b(digest_size=16)
        for matrix in (self.X, self.Q):
            digest.update(repr(matrix.shape).encode())
            digest.update(np.ascontiguousarray(matrix).data)
        for protocol, truth in self.truths.items():
            lists = [rows.tolist() for rows in (*truth.positives, *truth.junk)]
            digest.update(repr((protocol, lists)).encode())
        return digest.hexdigest()

    def score(self, ids: Array, protocol: str | None = None) -> Score:
        """Return mAP and mP@k of one ranking of rows per query.

        ids: rows of X, (nq, k), best first. protocol: a key of `truths`; the main one by default.
        """
        return evaluate(ids, self.truths[protocol or self.main])

    def mean_ap(self, ids: Array, protocol: str | None = None) -> float:
        """Return the mAP in percent; ids, protocol: as in `score`."""
        return self.score(ids, protocol).mean_ap


def load_benchmark(path: str | os.PathLike[str], *, metric: str | None = None) -> Benchmark:
    """Load a benchmark; the layout is recognized by the files.

    path: a folder, or an .hdf5 file of ann-benchmarks or VIBE. metric: for files that do not state it, cosine by
    default; if an .hdf5 file states another one, this is an error.
    """
    path, stated = Path(path), None if metric is None else parse_metric(metric)
    if path.is_file() and path.suffix in _HDF5_SUFFIXES:
        return _load_hdf5(path, stated)
    if not path.is_dir():
        raise FileNotFoundError(f"folder not found: {path}")
    hdf5_files = [file for file in sorted(path.iterdir()) if file.suffix in _HDF5_SUFFIXES]
    if any(path.glob("*.mat")):
        parts, Q = _read_mat_files(path)
    elif len(hdf5_files) == 1 and not (path / _GROUND_TRUTH_JSON).is_file():
        return _load_hdf5(hdf5_files[0], stated)
    elif _vector_files(path, _VECTORS):
        parts, Q = [read_vectors(_only_file(path, _VECTORS))], read_vectors(_only_file(path, _QUERIES))
    else:
        raise InvalidInputError(f"{path}: unsupported benchmark layout; supported: {_LAYOUTS}")
    return _make_benchmark(path.name, parts, Q, _load_truths(path), stated or "cosine")


def synthetic_benchmark(N: int = 30_000, dim: int = 512, *, landmarks: int = 64, seed: int = 0) -> Benchmark:
    """Return a synthetic collection as a benchmark; N, dim, landmarks, seed: as in `synthetic_collection`."""
    # Do not rename protocols: their names are part of the fingerprint, which identifies stored measurements.
    collection = synthetic_collection(N, dim, landmarks=landmarks, seed=seed)
    truths = {SYNTHETIC_PROTOCOL: GroundTruth.from_lists(collection.positives)}
    return Benchmark(_title("synthetic collection", collection.X), collection.X, collection.Q, truths)


def _vector_files(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / f"{name}{end}" for name in names for end in SUFFIXES if (folder / f"{name}{end}").is_file()]


def _only_file(folder: Path, names: tuple[str, ...]) -> Path:
    files = _vector_files(folder, names)
    if len(files) != 1:
        raise InvalidInputError(
            f"{folder} must contain one file {names[0]} with one of the suffixes {', '.join(SUFFIXES)}"
        )
    return files[0]


def _read_mat_files(folder: Path) -> tuple[list[Array], Array]:
    """Return the parts of X, and Q, from .mat files: first the file that has Q, then distractors by file name."""
    arrays_of = {file: read_mat(file) for file in sorted(folder.glob("*.mat"))}
    with_queries = [file for file, arrays in arrays_of.items() if "Q" in arrays]
    if len(with_queries) != 1 or not all("X" in arrays for arrays in arrays_of.values()):
        raise InvalidInputError(f"the .mat files in {folder} must all contain X, and exactly one of them Q")
    main = arrays_of.pop(with_queries[0])
    return [main["X"], *(arrays["X"] for arrays in arrays_of.values())], main["Q"]


def _load_truths(folder: Path) -> dict[str, GroundTruth]:
    """Load the ground truth of a folder by protocol: from JSON, text files of Oxford and Paris, or neighbors."""
    if (folder / _GROUND_TRUTH_JSON).is_file():
        return ground_truth_from_json(folder / _GROUND_TRUTH_JSON)
    query_files = sorted(folder.rglob(f"*{QUERY_SUFFIX}"))
    if query_files:
        if not (folder / IMAGE_LIST).is_file():
            raise InvalidInputError(f"{folder} needs {IMAGE_LIST}: the image name of each row of X, one per line")
        return ground_truth_from_text(query_files[0].parent, read_text(folder / IMAGE_LIST).split())
    for neighbors in (folder / name for name in _NEIGHBORS if (folder / name).is_file()):
        return {NEIGHBORS_PROTOCOL: GroundTruth.from_lists(list(read_neighbors(neighbors)))}
    pickles = sorted(folder.glob("gnd*.pkl"))
    if len(pickles) > 1:
        raise InvalidInputError(f"{folder} has several ground truths: {', '.join(file.name for file in pickles)}")
    return read_truths(pickles[0], ()).protocols if pickles else {}


def _load_hdf5(path: Path, metric: Metric | None) -> Benchmark:
    """Load an ann-benchmarks or VIBE file: train, test, and the neighbors of a query as its positives."""
    with open_hdf5(path) as file:
        missing = [name for name in ("train", "test", "neighbors") if name not in list(file)]
        if missing:
            raise InvalidInputError(f"{path} is not an ann-benchmarks file: it has no {missing[0]!r}")
        distance = file.attrs.get("distance", "angular")
        distance = distance.decode() if isinstance(distance, bytes) else str(distance)
        if distance not in _METRICS:
            raise InvalidInputError(f"{path}: unsupported distance {distance!r}; supported: {', '.join(_METRICS)}")
        X, Q, neighbors = (np.asarray(own_object(file, name, str(path))) for name in ("train", "test", "neighbors"))
    if metric not in (None, _METRICS[distance]):
        raise InvalidInputError(f"{path} states the distance {distance}, but the metric {metric} was requested")
    truths = {NEIGHBORS_PROTOCOL: GroundTruth.from_lists(list(neighbors))}
    return _make_benchmark(path.stem, [X], Q, truths, _METRICS[distance])


def _make_benchmark(
    name: str, parts: list[Array], Q: Array, truths: Mapping[str, GroundTruth], metric: Metric
) -> Benchmark:
    dims = {part.shape[1] for part in parts}
    if len(dims) > 1:
        raise InvalidInputError(f"the vectors of {name} have different dimensions: {sorted(dims)}")
    X = np.empty((sum(map(len, parts)), dims.pop()), np.float32)
    filled = 0
    for part in parts:
        X[filled : filled + len(part)] = _convert(part, metric, f"the vectors of {name}")
        filled += len(part)
    return Benchmark(_title(name, X), X, _convert(Q, metric, f"the queries of {name}"), truths, metric)


def _convert(matrix: Array, metric: Metric, what: str) -> Floats:
    """Return a checked matrix as float32, with rows of norm 1 if the metric is cosine."""
    check_rows(matrix, what, "correct it", metric)
    if not len(matrix):
        raise InvalidInputError(f"{what}: the matrix has no rows")
    return normalize_rows(matrix, row_norms(matrix)) if metric == "cosine" else np.asarray(matrix, np.float32)


def _title(name: str, X: Array) -> str:
    return f"{name}, {len(X):,} × {X.shape[1]}"
