"""`logt build`, `convert` and `search`: an index of the vectors in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from logt import methods
from logt._internal.threads import Progress
from logt._internal.types import Array
from logt.cli.console import AsJson, Threads, err, out, print_json, printable, progress, refuse_unused, say, to_json
from logt.cli.optional_value import Ray
from logt.cli.storage import print_report
from logt.datasets import read_vectors
from logt.datasets.row_files import rows_shape
from logt.datasets.table_files import read_stream
from logt.datasets.vector_files import SUFFIXES
from logt.distributed.build import BuildSummary
from logt.distributed.build import build as build_distributed
from logt.distributed.pools import ProcessPool, RayPool
from logt.engine.costs import memory_per_vector
from logt.engine.protocols import Method
from logt.errors import InvalidInputError
from logt.index import Index
from logt.integrations.faiss import from_faiss
from logt.lists.residual import MAX_BITS
from logt.results import Report, SearchResult
from logt.storage.backup import removed_on_failure
from logt.storage.locations import is_url
from logt.storage.manifest import MANIFEST
from logt.storage.opening import create_store

_DEFAULT_METHOD = "sketched"
_PAPER_METHODS: dict[str, Callable[..., Method]] = {
    "lo-gt": methods.lo_gt,
    "lo-gt*": lambda **parameters: methods.starred(methods.lo_gt(**parameters)),
    "rnd": methods.rnd,
    "rnd*": lambda **parameters: methods.starred(methods.rnd(**parameters)),
}
_MAX_ROWS = 20  # queries printed in a table

IndexPlace = Annotated[str, typer.Argument(metavar="INDEX", help="The folder or URL of the index.")]


def build(
    sources: Annotated[
        list[str],
        typer.Argument(help=f"Vectors: files or URLs ({', '.join(SUFFIXES)}), or - for stdin."),
    ],
    index: Annotated[str, typer.Argument(help="The folder or URL to write the index to.")],
    method: Annotated[
        str, typer.Option(help=f"{_DEFAULT_METHOD}, or a method of the paper: {', '.join(_PAPER_METHODS)}.")
    ] = _DEFAULT_METHOD,
    bits: Annotated[
        int | None, typer.Option(help="Bits per dimension, 1 to 8. Default: 2, or 4 up to 256 dimensions.")
    ] = None,
    bytes_: Annotated[
        float | None,
        typer.Option("--bytes", help="Choose the bits so that a vector takes at most this many bytes of memory."),
    ] = None,
    recall: Annotated[
        float, typer.Option(help="Default of the searches: this fraction of what a full read finds.")
    ] = 0.95,
    refine: Annotated[
        bool, typer.Option(help="Also store one byte per dimension on disk, to re-rank the best candidates.")
    ] = True,
    n: Annotated[int, typer.Option(min=1, help="Vectors per memory unit (methods of the paper).")] = 50,
    m: Annotated[int, typer.Option(min=1, help="Memory units per vector (methods of the paper).")] = 4,
    entries: Annotated[
        int, typer.Option("-L", "--entries", min=1, help="Decoder entries per vector (methods of the paper).")
    ] = 300,
    exact: Annotated[
        bool, typer.Option("--float32", help="Store Y and U as float32, not as bytes (methods of the paper).")
    ] = False,
    metric: Annotated[str, typer.Option(help="cosine, ip or l2.")] = "cosine",
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same vectors and seed give the same index.")] = 0,
    threads: Threads = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Build with this many worker processes, one block of vectors at a time each."),
    ] = None,
    ray: Ray = None,
    segment_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Vectors per segment, and per task. Default: a million; methods of the paper, 131,072."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing index.")] = False,
    as_json: AsJson = False,
    context: typer.Context = None,  # type: ignore[assignment]
) -> None:
    """Build an index from files of vectors. Several files, --workers and --ray build it block by block."""
    if method not in (_DEFAULT_METHOD, *_PAPER_METHODS):
        names = ", ".join((_DEFAULT_METHOD, *_PAPER_METHODS))
        raise InvalidInputError(f"--method must be one of {names}, got {method!r}")
    spread = workers is not None or ray is not None or len(sources) > 1 or any(map(is_url, (*sources, index)))
    if method == _DEFAULT_METHOD:
        refuse_unused(context, ("n", "m", "entries", "exact"), "is for the methods of the paper; pass --method")
    else:
        refuse_unused(context, ("bits", "bytes_", "recall", "refine"), f"is not for --method {method}")
    if spread:
        refuse_unused(context, ("threads",), "is for one file and one process; pass --workers")
    if not overwrite:
        _refuse_index(index)
    if spread and "-" in sources:
        raise InvalidInputError("the standard input can only be read alone and by one process; write it to a file")
    X = None if spread else _read(Path(sources[0]))
    if method == _DEFAULT_METHOD:
        if bytes_ is not None:
            bits = _bits_for_bytes(bits, bytes_, rows_shape(sources[0]) if X is None else X.shape)
        chosen = methods.sketched(bits=bits, recall=recall, refine=refine)
    else:
        chosen = methods.cascaded(_PAPER_METHODS[method](n=n, m=m, L=entries))
        chosen = chosen if exact else methods.compact(chosen)
    size: int | Literal["auto"] = "auto" if segment_size is None else segment_size
    start = time.perf_counter()
    try:
        with progress(quiet=as_json) as report:
            if X is None:
                settings = _BuildSettings(chosen, metric, seed, size)
                done = _build_with_workers(sources, index, settings, workers, ray, overwrite, report)
            else:
                new = Index(X.shape[1], method=chosen, metric=metric, seed=seed, segment_size=size)
                _build_here(new, X, Path(index).resolve(), threads, report)
    except KeyboardInterrupt:
        resume = "the same command resumes" if X is None else "nothing was written"
        err.print(f"interrupted; {resume}")
        raise typer.Exit(130) from None
    about = {"seconds": time.perf_counter() - start, "index": index}
    if X is not None:
        print_report(new, as_json, about)
    elif as_json:
        print_json({**asdict(done), **about})
    else:
        say(str(Report({**asdict(done), **about})))


def _refuse_index(place: str | Path) -> None:
    """Raise if a folder holds an index; one that is empty or holds something else is checked when it is written."""
    if not is_url(place) and (Path(place) / MANIFEST).exists():
        raise InvalidInputError(f"{place} exists; choose another path, or pass --overwrite")


class _BuildSettings(NamedTuple):
    method: Method
    metric: str
    seed: int
    segment_size: int | Literal["auto"]


def _build_here(new: Index, X: Array, folder: Path, threads: int | None, report: Progress) -> None:
    """Build an index in the memory of this process, and save it."""
    with removed_on_failure(folder):
        create_store(folder).close()  # a folder that cannot be written to is refused before the work
        new.add(X, threads=threads, progress=report)
        new.save(folder)


def _build_with_workers(
    sources: list[str],
    index: str,
    settings: _BuildSettings,
    workers: int | None,
    ray: str | None,
    overwrite: bool,
    report: Progress,
) -> BuildSummary:
    with ProcessPool(workers) if ray is None else RayPool(ray or None, workers) as pool:
        return build_distributed(
            sources, index, **settings._asdict(), pool=pool, overwrite=overwrite, progress=report
        )


def convert(
    source: Annotated[Path, typer.Argument(help="A faiss index that `faiss.write_index` wrote.")],
    index: Annotated[Path, typer.Argument(help="The folder to write the index to.")],
    bits: Annotated[
        int | None, typer.Option(help="Bits per dimension, 1 to 8. Default: 2, or 4 up to 256 dimensions.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="cosine, ip or l2. Default: that of the faiss index.")] = None,
    threads: Threads = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing index.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert a faiss index; its vectors are those that faiss reconstructs."""
    if not overwrite:
        _refuse_index(index)
    method, folder = methods.sketched(bits=bits), index.resolve()
    with removed_on_failure(folder), progress(quiet=as_json) as report:
        create_store(folder).close()  # a folder that cannot be written to is refused before the work
        new = from_faiss(source, metric=metric, method=method, threads=threads, progress=report)
        new.save(folder)
    print_report(new, as_json, {"index": str(index)})


def search(
    index: IndexPlace,
    queries: Annotated[Path, typer.Argument(help="Queries: a file as for `logt build`, or - for stdin.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of results per query.")] = 10,
    effort: Annotated[float | None, typer.Option(help="From 0 (fastest) to 1 (everything is scanned).")] = None,
    recall: Annotated[
        float | None, typer.Option(help="Fraction of what a full read finds, instead of an effort.")
    ] = None,
    p: Annotated[
        float | None,
        typer.Option(help="Cascade: rank all vectors by this fraction of the energy of their codes."),
    ] = None,
    shortlist: Annotated[
        int | None, typer.Option("-R", "--shortlist", min=1, help="Cascade: re-rank this many vectors.")
    ] = None,
    rerank: Annotated[
        str | None, typer.Option(help="diffusion: re-rank on the neighbor graph that `logt link` stored.")
    ] = None,
    on_invalid: Annotated[
        str, typer.Option(help="ignore: queries with NaN, infinity or norm 0 find nothing, instead of an error.")
    ] = "raise",
    threads: Threads = None,
    save: Annotated[
        Path | None, typer.Option(help="Also write scores and ids to this file: .npz, or .jsonl (JSON Lines).")
    ] = None,
    as_json: AsJson = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print JSON Lines: one object per query.")] = False,
) -> None:
    """Search an index for the nearest neighbors of each query."""
    if save is not None and save.suffix not in (".npz", ".jsonl"):
        raise InvalidInputError(f"--save {save}: unsupported file type {save.suffix!r}; supported: .npz, .jsonl")
    if as_jsonl and sys.stdout is None:
        raise InvalidInputError("the standard output is closed; pass --save FILE.jsonl instead of --jsonl")
    if as_json and as_jsonl:
        raise InvalidInputError("--json and --jsonl are two formats of the same output; pass one of them")
    if rerank not in (None, "diffusion"):
        raise InvalidInputError(f"--rerank must be diffusion, got {rerank!r}")
    if on_invalid not in ("raise", "ignore"):
        raise InvalidInputError(f"--on-invalid must be raise or ignore, got {on_invalid!r}")
    opened = Index.open(index)
    if rerank is not None and opened.report()["linked"] == 0:
        raise InvalidInputError(f"{index} has no neighbor graph; run `logt link {index}` first")
    result = opened.search(
        _read(queries),
        k,
        rerank="diffusion" if rerank else None,
        effort=effort,
        recall=recall,
        p=p,
        R=shortlist,
        threads=threads,
        on_invalid="ignore" if on_invalid == "ignore" else "raise",
    )
    result = SearchResult(np.atleast_2d(result.scores), np.atleast_2d(result.ids))
    if save is not None:
        _save_results(result, save)
    if as_jsonl:
        sys.stdout.writelines(_json_lines(result))
    elif as_json:
        print_json({"ids": result.ids.tolist(), "scores": _json_scores(result.scores)})
    else:
        _print_results(result)


def _bits_for_bytes(bits: int | None, limit: float, shape: tuple[int, ...]) -> int:
    """Return the most bits per dimension with which a vector takes at most `limit` bytes of memory."""
    if bits is not None:
        raise InvalidInputError("pass --bits or --bytes, not both")
    N, dim = shape
    for candidate in range(MAX_BITS, 0, -1):
        needed = memory_per_vector(N, dim, candidate)
        if needed <= limit:
            return candidate
    raise InvalidInputError(f"--bytes must be at least {needed:.0f} for {dim} dimensions, got {limit:g}")


def _read(path: Path) -> Array:
    if str(path) != "-":
        return read_vectors(path)
    if sys.stdin is None:
        raise InvalidInputError("the standard input is closed; pass a file of vectors instead of -")
    return read_stream(sys.stdin.buffer)


def _print_results(result: SearchResult) -> None:
    table = Table("query", "id (score), best first")
    for q in range(min(_MAX_ROWS, len(result.ids))):
        best = list(zip(result.ids[q], result.scores[q], strict=True))[: result.counts[q]]
        table.add_row(str(q), Text("  ".join(f"{printable(id_)} ({score:.3f})" for id_, score in best)))
    out.print(table)
    if len(result.ids) > _MAX_ROWS:
        out.print(f"… and {len(result.ids) - _MAX_ROWS:,} more queries; --save FILE.npz, --json or --jsonl gives all")


def _save_results(result: SearchResult, path: Path) -> None:
    if path.suffix == ".jsonl":
        with open(path, "w", encoding="utf-8") as lines:
            lines.writelines(_json_lines(result))
        return
    has_strings = result.ids.dtype == object
    with open(path, "wb") as file:
        np.savez(file, scores=result.scores, ids=np.array(result.ids, str) if has_strings else result.ids)


def _json_lines(result: SearchResult) -> Iterator[str]:
    """Yield one line for each query, without padding."""
    for query, (ids, scores, count) in enumerate(zip(result.ids, result.scores, result.counts, strict=True)):
        found = {"query": query, "ids": ids[:count].tolist(), "scores": scores[:count].tolist()}
        yield to_json(found) + "\n"


def _json_scores(scores: Any) -> list[list[float | None]]:
    """Return the scores with null for padding, as JSON has no infinity."""
    return [[float(score) if np.isfinite(score) else None for score in row] for row in scores]
