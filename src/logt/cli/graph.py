"""`logt link`, `duplicates` and `pairs`: the neighbor graph of an index."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from logt._internal.validation import check_fraction
from logt._linked_index import stored_or_new_graph
from logt.cli.console import (
    AnyIndexPath,
    AsJson,
    Device,
    IndexPath,
    Overwrite,
    Threads,
    count_of,
    print_json,
    printable,
    progress,
    refuse_existing,
    say,
)
from logt.cli.storage import open_checked, open_vectors
from logt.errors import InvalidInputError
from logt.graph.neighbor_graph import NeighborGraph, edge_rows
from logt.index import Index

_MAX_GROUPS = 20  # printed as text


def link(
    index: AnyIndexPath,
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbors per vector.")] = 50,
    threads: Threads = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Compute the neighbor graph of an index and store it there."""
    with open_vectors(index) as opened:
        with progress(as_json, "nothing was written") as report:
            opened.link(k, device=device, threads=threads, progress=report)
        opened.save()
        about = opened.report()
    linked, size = about["linked"], about["bytes by part"]["graph"]
    if as_json:
        print_json({"linked": linked, "bytes": size})
    else:
        say(f"{index}: {linked:,} vectors linked, {size:,} bytes")


def duplicates(
    index: IndexPath,
    threshold: Annotated[float, typer.Option(help="The minimum cosine of a pair, above 0 and at most 1.")] = 0.95,
    threads: Threads = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Print pairs with their similarities instead of groups.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print groups of nearly equal vectors, largest first."""
    threshold = check_fraction("threshold", threshold)
    graph = _graph(Index.open(index), threads, quiet=as_json)
    if pairs:
        found = _pairs(graph, threshold)
        if as_json:
            print_json([[a, b, round(score, 4)] for a, b, score in found])
        else:
            for a, b, score in found:
                say(f"{printable(a)} {printable(b)} {score:.4f}")
        return
    groups = [group.tolist() for group in graph.groups(threshold)]
    if as_json:
        print_json(groups)
        return
    say(f"{count_of(len(groups), 'group')} of {count_of(sum(map(len, groups)), 'vector')}")
    for group in groups[:_MAX_GROUPS]:
        say("  ".join(map(printable, group)))
    if len(groups) > _MAX_GROUPS:
        say(f"… and {len(groups) - _MAX_GROUPS:,} more groups; --json gives all")


def pairs(
    index: AnyIndexPath,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The text file to write: two ids per line.")],
    per_image: Annotated[int, typer.Option(min=1, help="Number of neighbors to pair each vector with.")] = 20,
    threads: Threads = None,
    overwrite: Overwrite = False,
) -> None:
    """Write pairs of similar images for hloc and COLMAP."""
    if not overwrite:
        refuse_existing(output)
    opened = open_checked(index)
    bad = [str(name) for name in opened.ids if any(c.isspace() for c in str(name))]
    if bad:
        raise InvalidInputError(
            f"{count_of(len(bad), 'name')} with spaces, such as {bad[0]!r}: the format separates names by spaces; "
            "rename these images and index them again. Nothing was written"
        )
    graph = _graph(opened, threads, least=per_image)
    rank = np.arange(len(graph.rows)) - graph.starts[edge_rows(graph)]
    lines = _pairs(graph, chosen=rank < per_image)
    output.write_text("".join(f"{a} {b}\n" for a, b, _ in lines))
    say(f"{output}: {len(lines):,} pairs")


def _graph(index: Index, threads: int | None, *, quiet: bool = False, least: int = 1) -> NeighborGraph:
    """Return the neighbor graph with at least so many neighbors per vector, and show the progress of a new one."""
    with progress(quiet=quiet) as report:
        return stored_or_new_graph(index, least, max(50, least), threads=threads, progress=report)


def _pairs(
    graph: NeighborGraph, threshold: float = -2.0, chosen: Any = True
) -> list[tuple[str | int, str | int, float]]:
    """Return (id, id, similarity) of each pair once, by row."""
    row = edge_rows(graph)
    used = np.flatnonzero((graph.similarity >= threshold) & chosen)
    low, high = np.minimum(row[used], graph.rows[used]), np.maximum(row[used], graph.rows[used])
    _, first = np.unique(low * np.int64(len(graph)) + high, return_index=True)
    ids = graph.ids.tolist()
    return [(ids[low[i]], ids[high[i]], float(graph.similarity[used[i]])) for i in first]
