"""`logt build`, `search`, `verify` and `info`: an index of the vectors in a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from logt import methods
from logt.cli.console import AsJson, Threads, err, out, progress, say
from logt.datasets import read_vectors
from logt.engine.method import Method
from logt.errors import InvalidInputError
from logt.index import Index
from logt.results import SearchResult
from logt.storage.store import Store

_DEFAULT_METHOD = "sketched"
_PAPER_METHODS: dict[str, Callable[..., Method]] = {
    "lo-gt": methods.lo_gt,
    "lo-gt*": lambda **parameters: methods.starred(methods.lo_gt(**parameters)),
    "rnd": methods.rnd,
    "rnd*": lambda **parameters: methods.starred(methods.rnd(**parameters)),
}
_MAX_ROWS = 20  # queries printed in a table

IndexPath = Annotated[Path, typer.Argument(help="The folder of the index.")]


def build(
    vectors: Annotated[Path, typer.Argument(help="Vectors: a .npy, .fvecs, .bvecs, .fbin, .u8bin or .i8bin file.")],
    index: Annotated[Path, typer.Argument(help="The folder to write the index to.")],
    method: Annotated[
        str, typer.Option(help=f"{_DEFAULT_METHOD}, or a method of the paper: {', '.join(_PAPER_METHODS)}.")
    ] = _DEFAULT_METHOD,
    bits: Annotated[
        int | None, typer.Option(help="Bits per dimension, 1 to 8. Default: 2, or 4 up to 256 dimensions.")
    ] = None,
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
    overwrite: Annotated[bool, typer.Option(help="Replace an existing index.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build an index from a file of vectors."""
    if method not in (_DEFAULT_METHOD, *_PAPER_METHODS):
        names = ", ".join((_DEFAULT_METHOD, *_PAPER_METHODS))
        raise InvalidInputError(f"--method must be one of {names}, got {method!r}")
    if index.exists() and not overwrite:
        raise InvalidInputError(f"{index} exists; choose another path, or pass --overwrite")
    X = read_vectors(vectors)
    if method == _DEFAULT_METHOD:
        chosen = methods.sketched(bits=bits)
    else:
        chosen = methods.cascaded(_PAPER_METHODS[method](n=n, m=m, L=entries))
        chosen = chosen if exact else methods.compact(chosen)
    new = Index(X.shape[1], method=chosen, metric=metric, seed=seed)
    Store.create(index.resolve()).close()  # a folder that cannot be written to is refused before the work starts
    start = time.perf_counter()
    try:
        with progress(quiet=as_json) as report:
            new.add(X, threads=threads, progress=report)
    except KeyboardInterrupt:
        err.print("interrupted; nothing was written")
        raise typer.Exit(130) from None
    new.save(index)
    _print_report(new, as_json, {"seconds": time.perf_counter() - start, "index": str(index)})


def search(
    index: IndexPath,
    queries: Annotated[Path, typer.Argument(help="Queries: a file of one of the types of `logt build`.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of results per query.")] = 10,
    effort: Annotated[float | None, typer.Option(help="From 0 (fastest) to 1 (everything is scanned).")] = None,
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
    threads: Threads = None,
    save: Annotated[Path | None, typer.Option(help="Also write scores and ids to this .npz file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search an index for the nearest neighbors of each query."""
    if rerank not in (None, "diffusion"):
        raise InvalidInputError(f"--rerank must be diffusion, got {rerank!r}")
    opened = Index.open(index)
    if rerank is not None and opened.report()["linked"] == 0:
        raise InvalidInputError(f"{index} has no neighbor graph; run `logt link {index}` first")
    result = opened.search(
        read_vectors(queries),
        k,
        rerank="diffusion" if rerank else None,
        effort=effort,
        p=p,
        R=shortlist,
        threads=threads,
    )
    if save is not None:
        has_strings = result.ids.dtype == object
        with open(save, "wb") as file:
            np.savez(file, scores=result.scores, ids=np.array(result.ids, str) if has_strings else result.ids)
    if as_json:
        out.print_json(json.dumps({"ids": result.ids.tolist(), "scores": _json_scores(result.scores)}))
    else:
        _print_results(result)


def verify(index: IndexPath) -> None:
    """Check all bytes of an index; report a damaged file."""
    opened = Index.open(index)
    say(f"{index}: OK; {len(opened):,} vectors, generation {opened.generation}")


def info(index: IndexPath, as_json: AsJson = False) -> None:
    """Print the contents and the size of an index, after checking all its bytes."""
    opened = Index.open(index)
    stored = sum(path.stat().st_size for path in index.iterdir() if path.is_file())
    _print_report(opened, as_json, {"generation": opened.generation, "bytes on disk": stored})


def _print_report(index: Index, as_json: bool, more: dict[str, Any]) -> None:
    report = index.report()
    if as_json:
        out.print_json(json.dumps({**report, **more}))
        return
    say(str(report))
    for name, value in more.items():
        say(f"{name}: {value:.1f}" if isinstance(value, float) else f"{name}: {value}")


def _print_results(result: SearchResult) -> None:
    table = Table("query", "id (score), best first")
    for q in range(min(_MAX_ROWS, len(result.ids))):
        best = list(zip(result.ids[q], result.scores[q], strict=True))[: result.counts[q]]
        table.add_row(str(q), Text("  ".join(f"{id_} ({score:.3f})" for id_, score in best)))
    out.print(table)
    if len(result.ids) > _MAX_ROWS:
        out.print(f"… and {len(result.ids) - _MAX_ROWS:,} more queries; --save FILE.npz or --json gives all")


def _json_scores(scores: Any) -> list[list[float | None]]:
    """Return the scores with null for padding, as JSON has no infinity."""
    return [[float(score) if np.isfinite(score) else None for score in row] for row in scores]
