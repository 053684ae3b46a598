"""A benchmark, folder or file -> vectors, queries and who should be found: whichever layout of the field it has."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from logt._types import Array, Floats
from logt._validation import check_rows, normalize_rows, row_norms
from logt.datasets.ground_truth import QUERY, truth_of_json, truth_of_pickle, truth_of_texts
from logt.datasets.mat_hdf5 import opened_hdf5, read_mat
from logt.datasets.synthetic import photo_collection
from logt.datasets.vector_files import SUFFIXES, read_vectors
from logt.errors import InvalidInputError
from logt.evaluation import GroundTruth, Score, evaluate
from logt.metrics import Metric

IMAGES = "imlist.txt"
_HDF5 = (".hdf5", ".h5")
_DISTANCES: dict[str, Metric] = {"angular": "cosine", "euclidean": "l2"}
_LAYOUTS = (
    f"vectors and queries (one of {', '.join(SUFFIXES)}) with ground_truth.json; .mat files with X and Q, and "
    f"gnd_*.pkl, or {IMAGES} with *{QUERY}, *_good.txt, *_ok.txt and *_junk.txt; an .hdf5 file of ann-benchmarks"
)


@dataclass(frozen=True)
class Benchmark:
    """X, Q: rows, of unit length under cosine; truths: who should be found, by protocol, the main one first."""

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
            if len(truth) != len(self.Q):
                raise InvalidInputError(
                    f"{self.name}: {len(self.Q)} queries, but the ground truth ({protocol}) is of {len(truth)}"
                )
            rows = np.concatenate([*truth.positives, *truth.junk])
            if rows.size and (rows.min() < 0 or rows.max() >= len(self.X)):
                wrong = int(rows.min()) if rows.min() < 0 else int(rows.max())
                raise InvalidInputError(f"{self.name}: the ground truth names row {wrong} of {len(self.X)} vectors")

    @property
    def main(self) -> str:
        """The protocol that figures are made by."""
        return next(iter(self.truths))

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of the vectors, the queries and the truth."""
        digest = hashlib.blake2b(digest_size=16)
        for matrix in (self.X, self.Q):
            digest.update(repr(matrix.shape).encode())
            digest.update(np.ascontiguousarray(matrix).data)
        for protocol, truth in self.truths.items():
            lists = [rows.tolist() for rows in (*truth.positives, *truth.junk)]
            digest.update(repr((protocol, lists)).encode())
        return digest.hexdigest()

    def score(self, ids: Array, protocol: str | None = None) -> Score:
        """How good lists of rows are, by the main protocol or another."""
        return evaluate(ids, self.truths[protocol or self.main])

    def mean_ap(self, ids: Array, protocol: str | None = None) -> float:
        return self.score(ids, protocol).mean_ap


def load_benchmark(path: str | os.PathLike[str]) -> Benchmark:
    """A benchmark from a folder, or from an .hdf5 file: what it holds says which layout it has."""
    path = Path(path)
    if path.is_file() and path.suffix in _HDF5:
        return _of_hdf5(path)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    single = [file for file in sorted(path.iterdir()) if file.suffix in _HDF5]
    if (path / "ground_truth.json").is_file():
        X, Q = (read_vectors(_one(path, name)) for name in ("vectors", "queries"))
        return _unit(path.name, [X], Q, truth_of_json(path / "ground_truth.json"))
    if any(path.glob("*.mat")):
        return _of_mats(path)
    if len(single) == 1:
        return _of_hdf5(single[0])
    raise InvalidInputError(f"{path} has no layout that is known; known are {_LAYOUTS}")


def made_benchmark(N: int = 30_000, dim: int = 512, *, landmarks: int = 64, seed: int = 0) -> Benchmark:
    """The made photo collection as a benchmark."""
    made = photo_collection(N, dim, landmarks=landmarks, seed=seed)
    truths = {"known answer": GroundTruth.from_lists(made.positives)}
    return Benchmark(_named("made collection", made.X), made.X, made.Q, truths)


def _one(folder: Path, name: str) -> Path:
    found = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(found) != 1:
        raise InvalidInputError(f"{folder} must hold one file {name}, with one of {', '.join(SUFFIXES)}")
    return found[0]


def _of_mats(folder: Path) -> Benchmark:
    """The file with Q comes first; those without are distractors, in the order of their names."""
    held = {file: read_mat(file) for file in sorted(folder.glob("*.mat"))}
    first = [file for file, arrays in held.items() if "Q" in arrays]
    if len(first) != 1 or not all("X" in arrays for arrays in held.values()):
        raise InvalidInputError(f"the .mat files of {folder} must each have X, and just one of them Q")
    truths = _truth_beside(folder)
    front = held.pop(first[0])
    return _unit(folder.name, [front["X"], *(arrays["X"] for arrays in held.values())], front["Q"], truths)


def _truth_beside(folder: Path) -> dict[str, GroundTruth]:
    pickles = sorted(folder.glob("gnd*.pkl"))
    if len(pickles) > 1:
        raise InvalidInputError(f"{folder} holds {len(pickles)} files gnd*.pkl; leave one")
    if pickles:
        return truth_of_pickle(pickles[0])
    texts = sorted(folder.rglob(f"*{QUERY}"))
    if texts:
        if not (folder / IMAGES).is_file():
            raise InvalidInputError(f"{folder} needs {IMAGES}: the name of the image of each row of X, one a line")
        return truth_of_texts(texts[0].parent, (folder / IMAGES).read_text().split())
    raise InvalidInputError(f"{folder} has .mat files but no ground truth: gnd_*.pkl, or *{QUERY} and its kin")


def _of_hdf5(path: Path) -> Benchmark:
    """train, test, neighbors of ann-benchmarks: a query's neighbours are its positives."""
    with opened_hdf5(path) as file:
        missing = [name for name in ("train", "test", "neighbors") if name not in file]
        if missing:
            raise InvalidInputError(f"{path} is no file of ann-benchmarks: it has no {missing[0]}")
        distance = str(file.attrs.get("distance", "angular"))
        if distance not in _DISTANCES:
            raise InvalidInputError(f"{path} compares by {distance}; known are {', '.join(_DISTANCES)}")
        X, Q, neighbours = (np.asarray(file[name]) for name in ("train", "test", "neighbors"))
    truths = {"neighbours": GroundTruth.from_lists(list(neighbours))}
    if _DISTANCES[distance] == "cosine":
        return _unit(path.stem, [X], Q, truths)
    return Benchmark(_named(path.stem, X), np.asarray(X, np.float32), np.asarray(Q, np.float32), truths, "l2")


def _unit(name: str, parts: list[Array], Q: Array, truths: Mapping[str, GroundTruth]) -> Benchmark:
    """A benchmark by cosine, from the parts of X in turn."""
    dims = {part.shape[1] for part in parts}
    if len(dims) > 1:
        raise InvalidInputError(f"the vectors of {name} have different dimensions: {sorted(dims)}")
    X = np.empty((sum(map(len, parts)), dims.pop()), np.float32)
    filled = 0
    for part in parts:
        X[filled : filled + len(part)] = _unit_rows(part, f"the vectors of {name}")
        filled += len(part)
    return Benchmark(_named(name, X), X, _unit_rows(Q, f"the queries of {name}"), truths)


def _unit_rows(matrix: Array, what: str) -> Floats:
    check_rows(matrix, what, "correct it")
    norms = row_norms(matrix)
    if not len(norms):
        raise InvalidInputError(f"{what}: there are none")
    if norms.min() == 0:
        raise InvalidInputError(f"{what} need rows of a length above 0, but row {int(norms.argmin())} is all zeros")
    return normalize_rows(matrix, norms)


def _named(name: str, X: Array) -> str:
    return f"{name}, {len(X):,} × {X.shape[1]}"
