"""`logt add`, `remove` and `export`: the vectors, ids and neighbors of an index."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from logt._internal.extras import needs_extra
from logt._internal.types import Array, Floats
from logt._linked_index import stored_or_new_graph
from logt.cli.console import (
    AnyIndexPath,
    AsJson,
    IndexPath,
    Overwrite,
    Threads,
    count_of,
    progress,
    refuse_existing,
    say,
)
from logt.cli.storage import open_checked, print_report
from logt.cli.vectors import IdColumn, NoIds, VectorColumn, describe_table, id_choice, ids_of, read_table_of
from logt.datasets.ground_truth import read_text
from logt.errors import InvalidInputError
from logt.graph.neighbor_graph import NeighborGraph, edge_rows
from logt.index import Index
from logt.photos.index_folder import photo_index

_BLOCK = 1 << 16  # vectors in memory at a time


def add(
    index: IndexPath,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Vectors: a file as for `logt build`, or - for stdin.")
    ],
    ids: IdColumn = None,
    no_ids: NoIds = False,
    column: VectorColumn = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace vectors with the same ids.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Add the vectors of a file to an index. If one of them is invalid, none is added."""
    _refuse_photos(index)
    table = read_table_of(source, column, id_choice(ids, no_ids))
    describe_table(table)
    with Index.open(index, "a") as opened, progress(quiet=as_json) as report:
        change = opened.upsert if replace else opened.add
        change(table.vectors, table.ids, threads=threads, progress=report)
        opened.save()
    print_report({"added": len(table.vectors), "vectors": len(opened)}, as_json)


def remove(
    index: IndexPath,
    ids: Annotated[list[str] | None, typer.Argument(metavar="IDS", help="The ids to remove.")] = None,
    file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A text file of ids, one per line.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove vectors by their ids; unknown ids are ignored."""
    _refuse_photos(index)
    words = [*(ids or ()), *([] if file is None else read_text(file).splitlines())]
    if not words:
        raise InvalidInputError("no ids are given; pass them as arguments, or a file of them with --from")
    with Index.open(index, "a") as opened:
        count = opened.remove(ids_of(words, opened))
        opened.save()
    print_report({"removed": count, "vectors": len(opened)}, as_json)


def export(
    index: AnyIndexPath,
    ids: Annotated[Path | None, typer.Option("--ids", help="Write the ids: .npy, or .txt, one per line.")] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Write the stored approximations: .npy; .parquet or .h5 with the ids.")
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            help="Write the neighbor graph: .npz (scipy.sparse.load_npz reads it), or .parquet with the ids."
        ),
    ] = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
) -> None:
    """Write ids, vectors or the neighbor graph of an index to files.

    The rows of all files are in the same order. The graph has cosines. It is the stored one, or a new one with 50
    neighbors per vector.
    """
    wanted = ((ids, (".npy", ".txt")), (vectors, (".npy", ".parquet", ".h5", ".hdf5")), (graph, (".npz", ".parquet")))
    files = {path: suffixes for path, suffixes in wanted if path is not None}
    if len(files) != sum(path is not None for path, _ in wanted) or not files:
        raise InvalidInputError("pass one or more of --ids, --vectors and --graph, each with a file of its own")
    for path, suffixes in files.items():
        if path.suffix not in suffixes:
            raise InvalidInputError(
                f"{path}: unsupported file type {path.suffix!r}; supported: {', '.join(suffixes)}"
            )
        if not overwrite:
            refuse_existing(path)
    opened = open_checked(index)
    names = opened.ids
    if not len(names):
        raise InvalidInputError(f"{index} holds no vectors; nothing was written")
    try:
        if ids is not None:
            _write_ids(names, ids)
        if vectors is not None:
            blocks = (names[start : start + _BLOCK] for start in range(0, len(names), _BLOCK))
            _write_vectors(((some, opened.reconstruct(some)) for some in blocks), len(names), opened.dim, vectors)
        if graph is not None:
            with progress(quiet=False) as report:
                _write_graph(stored_or_new_graph(opened, 1, 50, threads=threads, progress=report), graph)
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"an id cannot be written as UTF-8: {error}; .npy files hold any string") from error
    for path in files:
        say(f"{path}: {count_of(len(names), 'vector')}")


def _refuse_photos(index: Path) -> None:
    if photo_index(index) is not None:
        raise InvalidInputError(f"{index} follows a folder of photos: change these, and run logt images index FOLDER")


def _write_ids(ids: Array, path: Path) -> None:
    if path.suffix == ".npy":
        np.save(path, ids if ids.dtype.kind == "i" else np.array(ids.tolist(), str))
    elif any(len(str(word).splitlines()) > 1 for word in ids):
        raise InvalidInputError(f"some ids have several lines, which {path} cannot hold; write a .npy file")
    else:
        path.write_text("".join(f"{word}\n" for word in ids), "utf-8")


def _write_vectors(blocks: Iterator[tuple[Array, Floats]], count: int, dim: int, path: Path) -> None:
    if path.suffix == ".npy":
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (count, dim))
        start = 0
        for _, X in blocks:
            rows[start : start + len(X)] = X
            start += len(X)
        rows.flush()
        return
    if path.suffix in (".h5", ".hdf5"):
        _write_hdf5(blocks, count, dim, path)
        return
    pa, pq = _pyarrow(path)
    with ExitStack() as opened:
        writer = None
        for ids, X in blocks:
            lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), dim)
            table = pa.table({"id": pa.array(ids.tolist()), "vector": lists})
            writer = writer or opened.enter_context(pq.ParquetWriter(path, table.schema))
            writer.write_table(table)


def _write_hdf5(blocks: Iterator[tuple[Array, Floats]], count: int, dim: int, path: Path) -> None:
    """Write the datasets index and features, as ILIAS has them."""
    with needs_extra("data", f"writing {path} needs h5py"):
        import h5py
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (count, dim), np.float32)
        names: list[Any] = []
        for ids, X in blocks:
            features[len(names) : len(names) + len(X)] = X
            names += ids.tolist()
        file["index"] = names


def _write_graph(graph: NeighborGraph, path: Path) -> None:
    if path.suffix == ".npz":  # the format of scipy.sparse.save_npz
        arrays: dict[str, Any] = {"data": graph.similarity, "indices": graph.rows, "indptr": graph.starts}
        np.savez(path, format=np.array(b"csr"), shape=np.array([len(graph)] * 2), **arrays)
        return
    pa, pq = _pyarrow(path)
    ends = {"id": graph.ids[edge_rows(graph)], "neighbor": graph.ids[graph.rows]}
    columns: dict[str, Any] = {name: pa.array(ids.tolist()) for name, ids in ends.items()}
    pq.write_table(pa.table({**columns, "similarity": graph.similarity}), path)


def _pyarrow(path: Path) -> tuple[Any, Any]:
    with needs_extra("data", f"writing {path} needs pyarrow"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    return pa, pq
