"""Conversion: an index of another library -> an `Index` with its vectors, ids and metric."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.progress import shown_progress
from logt._internal.threads import Progress
from logt._internal.types import Floats, Ids
from logt.engine.protocols import Method
from logt.errors import InvalidInputError
from logt.index import Index


def from_faiss(
    index: Any,
    *,
    metric: str | None = None,
    method: Method | None = None,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> Index:
    """Return a logt index of the vectors and ids of a faiss index.

    The vectors of a flat index are read in place. Those of other indexes are what faiss reconstructs from its codes,
    in memory while the new index is built; if these codes or a projection have lost part of the vectors, a warning
    says so. The faiss index is unchanged.

    index: a faiss index, or the path of one that `faiss.write_index` wrote.
    metric: that of the faiss index by default ("l2" or "ip"). Pass "cosine" for normalized vectors.
    method: one of `logt.methods`, `sketched()` by default.
    threads: all cores if None.
    progress: True draws bars; a function is called as progress(what, done, total).
    """
    with needs_extra("faiss", "reading a faiss index needs faiss"):
        import faiss
    if isinstance(index, str | os.PathLike):
        index = _read_index(faiss, Path(index))
    if not isinstance(index, faiss.Index):
        raise InvalidInputError(f"index must be a faiss index with float vectors, or its path, got {index!r}")
    new = Index(index.d, method=method, metric=metric or _metric(faiss, index))
    lost = _lost(faiss, index)
    try:
        vectors, ids = _read_vectors(faiss, faiss.downcast_index(index))
    except RuntimeError as error:
        raise InvalidInputError(
            f"a faiss {type(index).__name__} cannot reconstruct its vectors; build a logt.Index from the originals"
        ) from error
    if lost and len(vectors):
        warnings.warn(f"{lost}; an index of the original vectors finds more", stacklevel=2)
    with shown_progress(progress) as report:
        new.add(vectors, ids, threads=threads, progress=report)
    return new


def _read_index(faiss: Any, path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}")
    try:
        return faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise InvalidInputError(f"{path} is not an index that faiss can read: {reason}") from error


def _metric(faiss: Any, index: Any) -> str:
    names = {faiss.METRIC_INNER_PRODUCT: "ip", faiss.METRIC_L2: "l2"}
    if index.metric_type not in names:
        raise InvalidInputError(
            f"the faiss index has metric type {index.metric_type}, which logt does not have; "
            "pass metric='cosine', 'ip' or 'l2' to search its vectors by another one"
        )
    return names[index.metric_type]


def _lost(faiss: Any, index: Any) -> str:
    """Return what a faiss index has lost of its vectors; "" if its codes have at least 8 bits per dimension.

    Raise InvalidInputError if it was not trained.
    """
    index = faiss.downcast_index(index)
    if not index.is_trained:
        raise InvalidInputError(
            f"the faiss {type(index).__name__} is not trained and has no vectors; train it and add"
        )
    if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
        return _lost(faiss, index.index)
    if isinstance(index, faiss.IndexPreTransform):
        narrowest = min(index.chain.at(number).d_out for number in range(index.chain.size()))
        if narrowest < index.d:
            return f"the faiss index has projected its vectors from {index.d} to {narrowest} dimensions"
        return _lost(faiss, index.index)
    if isinstance(index, faiss.IndexRefine):
        return _lost(faiss, index.refine_index)
    if isinstance(index, faiss.IndexHNSW):
        return _lost(faiss, index.storage)
    size = getattr(index, "code_size", 4 * index.d)
    if size < index.d:
        return f"the faiss {type(index).__name__} has codes of {size} bytes for {index.d} dimensions"
    return ""


def _read_vectors(faiss: Any, index: Any) -> tuple[Floats, Ids | None]:
    """Return the vectors, and their ids unless these are the row numbers."""
    if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
        vectors, rows = _read_vectors(faiss, faiss.downcast_index(index.index))
        ids = faiss.vector_to_array(index.id_map)
        return vectors, ids if rows is None else ids[rows]
    if isinstance(index, faiss.IndexPreTransform):
        vectors, ids = _read_vectors(faiss, faiss.downcast_index(index.index))
        for number in reversed(range(index.chain.size())):
            vectors = faiss.downcast_VectorTransform(index.chain.at(number)).reverse_transform(vectors)
        return vectors, ids
    if isinstance(index, faiss.IndexIVF):
        return _read_lists(faiss, index)
    if isinstance(index, faiss.IndexFlat):
        if not index.ntotal:
            return np.empty((0, index.d), np.float32), None
        return faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(-1, index.d), None
    if index.ntotal:  # reconstruct_n has threads, and an error in one of them would end the process
        index.reconstruct(0)
        index.reconstruct(index.ntotal - 1)
    return index.reconstruct_n(0, index.ntotal), None


def _read_lists(faiss: Any, index: Any) -> tuple[Floats, Ids]:
    """Return the vectors and ids of inverted lists; a direct map is not needed."""
    sizes = [index.invlists.list_size(number) for number in range(index.nlist)]
    if sum(sizes) != index.ntotal:
        raise InvalidInputError(f"the faiss index states {index.ntotal:,} vectors, but its lists have {sum(sizes):,}")
    vectors, ids = np.empty((index.ntotal, index.d), np.float32), np.empty(index.ntotal, np.int64)
    row = 0
    for number, size in enumerate(sizes):
        if size:
            ids[row : row + size] = faiss.rev_swig_ptr(index.invlists.get_ids(number), size)
        for offset in range(size):
            index.reconstruct_from_offset(number, offset, faiss.swig_ptr(vectors[row + offset]))
        row += size
    order = ids.argsort(kind="stable")
    return vectors[order], ids[order]
