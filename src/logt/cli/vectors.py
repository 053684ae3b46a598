"""`logt build`, `convert` and `search`: an index of the vectors in a file."""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.columns import Columns
from rich.table import Table
from rich.text import Text

from logt import methods
from logt._internal.validation import check_rows, shown
from logt.cli.console import (
    AsJson,
    Device,
    Effort,
    Overwrite,
    Ray,
    Recall,
    Rerank,
    Results,
    Threads,
    err,
    out,
    print_json,
    printable,
    progress,
    refuse_existing,
    refuse_unused,
    say,
    to_json,
)
from logt.cli.storage import print_report
from logt.datasets.ground_truth import read_text
from logt.datasets.tables import IdName, VectorTable
from logt.datasets.vector_files import SUFFIXES, read_stream, read_table
from logt.distributed.build import build as build_distributed
from logt.distributed.pools import ProcessPool, RayPool
from logt.errors import InvalidInputError
from logt.index import Index
from logt.integrations.faiss import from_faiss
from logt.photos.index_folder import photo_index
from logt.results import SearchResult
from logt.storage.backup import removed_on_failure
from logt.storage.locations import is_url, location_at
from logt.storage.store import Store

_MAX_ROWS = 20  # queries printed in a table

Bits = Annotated[int | None, typer.Option(help="Bits per dimension, 1 to 8. Default: 2, or 4 up to 256 dimensions.")]

IdColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column of the ids. Default: id or ids, if there is one, else row numbers."
    ),
]
NoIds = Annotated[bool, typer.Option("--no-ids", help="Number the vectors, even if the file has ids.")]
VectorColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of the vectors, or their name in a .npz or .h5 file."),
]


def build(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCES", help=f"Vectors: files or URLs ({', '.join(SUFFIXES)}), or - for stdin."),
    ],
    index: Annotated[str, typer.Argument(metavar="INDEX", help="The folder or URL to write the index to.")],
    ids: IdColumn = None,
    no_ids: NoIds = False,
    column: VectorColumn = None,
    bits: Bits = None,
    recall: Annotated[
        float, typer.Option(help="Fraction of the results of a full scan that searches find by default.")
    ] = 0.95,
    refine: Annotated[
        bool, typer.Option(help="Also store one byte per dimension on disk, to re-rank the best candidates.")
    ] = True,
    metric: Annotated[str, typer.Option(help="cosine, ip or l2.")] = "cosine",
    link: Annotated[
        int | None,
        typer.Option(min=1, help="Also compute the neighbor graph, with this many neighbors per vector, such as 50."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed. The same vectors, seed and processor give the same index.")
    ] = 0,
    threads: Threads = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Build with this many worker processes, each with one block of vectors at a time."),
    ] = None,
    ray: Ray = None,
    device: Device = None,
    segment_size: Annotated[
        int | None,
        typer.Option(min=1, help="Number of vectors per segment and per task. Default: a million."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Build an index from files of vectors. Several files, --workers and --ray build it block by block."""
    spread = workers is not None or ray is not None or len(sources) > 1 or any(map(is_url, (*sources, index)))
    if spread:
        refuse_unused({"--threads": threads}, "is for one file and one process; pass --workers")
        names = {"--ids": ids, "--column": column}
        refuse_unused(names, "is for one file and one process; write one file, or use logt add")
    if not overwrite:
        _refuse_index(index)
    if spread and "-" in sources:
        raise InvalidInputError("the standard input can only be read alone and by one process; write it to a file")
    table = None if spread else read_table_of(sources[0], column, id_choice(ids, no_ids))
    describe_table(table)
    settings: dict[str, Any] = {
        "method": methods.sketched(bits=bits, recall=recall, refine=refine),
        "metric": metric,
        "seed": seed,
        "segment_size": segment_size or "auto",
    }
    start = time.perf_counter()
    with progress(as_json, "the same command resumes" if table is None else "nothing was written") as report:
        if table is None:
            with ProcessPool(workers) if ray is None else RayPool(ray or None, workers) as pool:
                where: dict[str, Any] = {"pool": pool, "device": device, "overwrite": overwrite}
                done = build_distributed(sources, index, **settings, link=link, **where, progress=report)
        else:
            new = Index(table.vectors.shape[1], **settings, device=device)
            with _new_folder(index) as folder:
                new.add(table.vectors, table.ids, threads=threads, progress=report)
                if link is not None:
                    new.link(link, threads=threads, progress=report)
                new.save(folder, overwrite=overwrite)
    about = {"seconds": time.perf_counter() - start, "index": index}
    print_report({**(asdict(done) if table is None else new.report()), **about}, as_json)


def id_choice(ids: str | None, no_ids: bool) -> IdName:
    """Return which ids of a file to read, from --ids and --no-ids."""
    if ids is not None and no_ids:
        raise InvalidInputError("--ids and --no-ids exclude each other; pass one of them")
    return False if no_ids else ids


def read_table_of(source: str | Path, column: str | None = None, ids: IdName = None) -> VectorTable:
    """Return the vectors and ids of a file, or of the standard input if it is -."""
    if str(source) != "-":
        return read_table(source, column, ids)
    if sys.stdin is None:
        raise InvalidInputError("the standard input is closed; pass a file of vectors instead of -")
    return read_stream(sys.stdin.buffer, column=column, ids=ids)


def describe_table(table: VectorTable | None) -> None:
    """Print to stderr what was chosen of a file; None: all rows of several files, or by several processes."""
    if table is None:
        say("ids: row numbers, in the order of the files", err)
        return
    shape = f"{len(table.vectors):,} × {table.vectors.shape[1]}"
    vectors = f"vectors: {shape}" + ("" if table.column is None else f" from {table.column!r}")
    say(f"{vectors}; ids: {'row numbers' if table.ids is None else f'from {table.id_column!r}'}", err)


def _refuse_index(target: str | Path) -> None:
    """Raise if a folder holds an index; one that is empty or holds something else is checked when it is written."""
    if not is_url(target) and location_at(target).holds_index():
        refuse_existing(target)


@contextmanager
def _new_folder(target: str | Path) -> Iterator[Path]:
    """Return the folder of a new index, which is removed on failure.

    A folder that cannot be written to is refused before the work.
    """
    folder = Path(target).resolve()
    with removed_on_failure(folder):
        Store.create(folder).close()
        yield folder


def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A faiss index that `faiss.write_index` wrote.")],
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder to write the index to.")],
    bits: Bits = None,
    metric: Annotated[str | None, typer.Option(help="cosine, ip or l2. Default: that of the faiss index.")] = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Convert a faiss index. The vectors are those that faiss reconstructs."""
    if not overwrite:
        _refuse_index(index)
    with (
        _new_folder(index) as folder,
        warnings.catch_warnings(record=True) as warned,
        progress(quiet=as_json) as report,
    ):
        warnings.simplefilter("always")
        method = methods.sketched(bits=bits)
        new = from_faiss(source, metric=metric, method=method, threads=threads, progress=report)
        new.save(folder, overwrite=overwrite)
    for warning in warned:
        say(f"warning: {warning.message}", err)
    print_report({**new.report(), "index": str(index)}, as_json)


def search(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="The folder or URL of the index.")],
    queries: Annotated[
        Path, typer.Argument(metavar="QUERIES", help="Queries: a file as for `logt build`, or - for stdin.")
    ],
    k: Results = 10,
    column: VectorColumn = None,
    effort: Effort = None,
    recall: Recall = None,
    like: Annotated[str | None, typer.Option(help="The kind of the queries, a name from `logt tune --name`.")] = None,
    rerank: Rerank = None,
    wanted: Annotated[
        str | None,
        typer.Option("--filter", metavar="IDS", help="Search these ids only: 1,2,3 or a file with one id per line."),
    ] = None,
    threads: Threads = None,
    device: Device = None,
    as_json: AsJson = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print JSON Lines: one object per query.")] = False,
) -> None:
    """Search an index for the nearest neighbors of each query."""
    if as_jsonl and sys.stdout is None:
        raise InvalidInputError("the standard output is closed; --jsonl needs it")
    if as_json and as_jsonl:
        raise InvalidInputError("--json and --jsonl are two formats of the same output; pass one of them")
    if rerank not in (None, "diffusion"):
        raise InvalidInputError(f"--rerank must be diffusion, got {rerank!r}")
    if photo_index(index) is not None:
        raise InvalidInputError(f"{index} is an index of photos: use `logt images search`")
    opened = Index.open(index)
    if rerank is not None and opened.report()["linked"] == 0:
        raise InvalidInputError(f"{index} has no neighbor graph; run `logt link {index}` first")
    vectors = check_rows(read_table_of(queries, column, ids=False).vectors, "QUERIES", "correct it", opened.metric)
    result = (opened if device is None else opened.to(device)).search(
        vectors,
        k,
        rerank="diffusion" if rerank else None,
        effort=effort,
        recall=recall,
        like=like,
        filter=None if wanted is None else _wanted_ids(wanted, opened),
        threads=threads,
    )
    result = SearchResult(np.atleast_2d(result.scores), np.atleast_2d(result.ids))
    if as_jsonl:
        sys.stdout.writelines(_json_lines(result))
    elif as_json:
        scores = result.scores.astype(object)
        scores[~np.isfinite(result.scores)] = None  # JSON has no infinity
        print_json({"ids": result.ids.tolist(), "scores": scores.tolist()})
    else:
        _print_results(result)


def ids_of(words: Sequence[str], index: Index) -> list[str] | list[int]:
    """Return words as ids of the type that an index has."""
    if len(index) and isinstance(index.ids[0], str):
        return list(words)
    wrong = next((word for word in words if not word.strip().removeprefix("-").isdecimal()), None)
    if wrong is not None:
        raise InvalidInputError(f"the ids of this index are integers, got {shown(wrong)}")
    return [int(word) for word in words]


def _wanted_ids(given: str, index: Index) -> list[str] | list[int]:
    """Return the ids of --filter: a list with commas, or a file with one id per line."""
    words = read_text(Path(given)).splitlines() if Path(given).is_file() else given.split(",")
    return ids_of([word for word in words if word.strip()], index)


def _print_results(result: SearchResult) -> None:
    table = Table("query", "id (score), best first")
    for q in range(min(_MAX_ROWS, len(result.ids))):
        best = list(zip(result.ids[q], result.scores[q], strict=True))[: result.counts[q]]
        hits = [Text(f"{printable(id_)} ({score:.3f})") for id_, score in best]
        table.add_row(str(q), Columns(hits, padding=(0, 1)))
    out.print(table)
    if len(result.ids) > _MAX_ROWS:
        out.print(f"… and {len(result.ids) - _MAX_ROWS:,} more queries; --json or --jsonl gives all")


def _json_lines(result: SearchResult) -> Iterator[str]:
    for query, (ids, scores, count) in enumerate(zip(result.ids, result.scores, result.counts, strict=True)):
        found = {"query": query, "ids": ids[:count].tolist(), "scores": scores[:count].tolist()}
        yield to_json(found) + "\n"
