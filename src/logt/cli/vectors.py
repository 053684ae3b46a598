"""`logt build`, `search`, `verify` and `info`: an index of vectors from files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, cast

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
from logt.storage.lock import lock_folder

_METHODS: dict[str, Callable[..., Method]] = {
    "lo-gt": methods.lo_gt,
    "lo-gt*": lambda **given: methods.starred(methods.lo_gt(**given)),
    "rnd": methods.rnd,
    "rnd*": lambda **given: methods.starred(methods.rnd(**given)),
}


def build(
    vectors: Annotated[Path, typer.Argument(help="Vectors: .npy, .fvecs, .bvecs, .fbin, .u8bin or .i8bin.")],
    index: Annotated[Path, typer.Argument(help="The folder to write.")],
    method: Annotated[str, typer.Option(help=f"sketched, or of the paper {', '.join(_METHODS)}.")] = "sketched",
    bits: Annotated[int | None, typer.Option(help="Bits per dimension of sketches: 1, 2 or 4.")] = None,
    n: Annotated[int, typer.Option(min=1, help="Vectors per memory unit (the paper's methods).")] = 50,
    m: Annotated[int, typer.Option(min=1, help="Units per vector (the paper's methods).")] = 4,
    entries: Annotated[
        int, typer.Option("-L", "--entries", min=1, help="Decoder entries (the paper's methods).")
    ] = 300,
    exact: Annotated[
        bool, typer.Option("--float32", help="Y and U as float32, not bytes (the paper's methods).")
    ] = False,
    metric: Annotated[str, typer.Option(help="cosine, ip or l2.")] = "cosine",
    seed: Annotated[int, typer.Option(min=0, help="Same vectors and seed: same index.")] = 0,
    threads: Threads = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an index that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build an index from a file of vectors."""
    if method not in ("sketched", *_METHODS):
        raise InvalidInputError(f"--method must be one of sketched, {', '.join(_METHODS)}, got {method!r}")
    if index.exists() and not overwrite:
        raise InvalidInputError(f"{index} exists; choose another path, or pass --overwrite")
    X = read_vectors(vectors)
    if method == "sketched":
        recipe = methods.sketched(bits=cast(Literal[1, 2, 4] | None, bits))
    else:
        paper = methods.cascaded(_METHODS[method](n=n, m=m, L=entries))
        recipe = paper if exact else methods.compact(paper)
    built = Index(X.shape[1], method=recipe, metric=metric, seed=seed)
    lock_folder(index.resolve()).close()  # a place that cannot be written to is refused before the work
    start = time.perf_counter()
    try:
        with progress(quiet=as_json) as report:
            built.add(X, threads=threads, progress=report)
    except KeyboardInterrupt:
        err.print("interrupted; nothing was written")
        raise typer.Exit(130) from None
    built.save(index)
    _show_report(built, as_json, {"seconds": time.perf_counter() - start, "index": str(index)})


def search(
    index: Annotated[Path, typer.Argument(help="An index folder.")],
    queries: Annotated[Path, typer.Argument(help="Queries, in a file of the same kinds as vectors.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Results per query.")] = 10,
    effort: Annotated[float | None, typer.Option(help="From 0, fastest, to 1, everything decoded.")] = None,
    p: Annotated[float | None, typer.Option(help="Part of each vector's energy decoded for all; 1: all.")] = None,
    shortlist: Annotated[
        int | None, typer.Option("-R", "--shortlist", min=1, help="Vectors decoded in full.")
    ] = None,
    threads: Threads = None,
    save: Annotated[Path | None, typer.Option(help="Also write scores and ids to this .npz file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search an index for the neighbours of each query."""
    found = Index.open(index).search(read_vectors(queries), k, effort=effort, p=p, R=shortlist, threads=threads)
    if save is not None:
        with open(save, "wb") as file:
            text = found.ids.dtype == object
            np.savez(file, scores=found.scores, ids=np.array(found.ids, str) if text else found.ids)
    if as_json:
        out.print_json(json.dumps({"ids": found.ids.tolist(), "scores": _finite(found.scores)}))
        return
    table = Table("query", "id (score), best first")
    shown = 20
    for q in range(min(shown, len(found.ids))):
        best = list(zip(found.ids[q], found.scores[q], strict=True))[: found.counts[q]]
        table.add_row(str(q), Text("  ".join(f"{i} ({s:.3f})" for i, s in best)))
    out.print(table)
    if len(found.ids) > shown:
        out.print(f"… and {len(found.ids) - shown:,} more queries; --save FILE.npz or --json gives all")


def verify(index: Annotated[Path, typer.Argument(help="An index folder.")]) -> None:
    """Check every byte of an index; say which file is broken."""
    checked = Index.open(index)
    say(f"{index}: whole; {len(checked):,} vectors, generation {checked.generation}")


def info(index: Annotated[Path, typer.Argument(help="An index folder.")], as_json: AsJson = False) -> None:
    """Say what an index holds and costs, having checked every byte of it."""
    opened = Index.open(index)
    stored = sum(path.stat().st_size for path in index.iterdir() if path.is_file())
    _show_report(opened, as_json, {"generation": opened.generation, "bytes on disk": stored})


def _show_report(index: Index, as_json: bool, more: dict[str, Any]) -> None:
    report = index.report()
    if as_json:
        out.print_json(json.dumps({**report, **more}))
    else:
        say(str(report))
        for name, value in more.items():
            say(f"{name}: {value:.1f}" if isinstance(value, float) else f"{name}: {value}")


def _finite(scores: Any) -> list[list[float | None]]:
    """JSON knows no infinity: empty places have no score."""
    return [[float(s) if np.isfinite(s) else None for s in row] for row in scores]
