"""`logt evaluate`: mAP of an index, or of a file of results, on a benchmark with a ground truth."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from logt.cli.console import AsJson, Effort, Recall, Rerank, Results, Threads, out, print_json, say
from logt.cli.vectors import read_table_of
from logt.datasets.ground_truth import read_results, read_truths, write_results
from logt.errors import InvalidInputError
from logt.evaluation import evaluate as evaluate_rankings
from logt.index import Index


def evaluate(
    index: Annotated[
        Path,
        typer.Argument(
            metavar="INDEX", help="The folder of an index, or a .json file of results in the format of ILIAS."
        ),
    ],
    ground_truth: Annotated[
        Path, typer.Option(help="gnd_*.pkl, ground_truth.json, or positive_ids.txt of ILIAS (or its folder).")
    ],
    queries: Annotated[
        Path | None, typer.Option(help="Query vectors, in the order of the ground truth; for ILIAS, with their ids.")
    ] = None,
    k: Results = 1000,
    effort: Effort = None,
    recall: Recall = None,
    rerank: Rerank = None,
    results: Annotated[
        Path | None, typer.Option(help="Also write the results to this .json file: {query: {id: score}}.")
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Print mAP, mP@k and mAP@1k for each protocol of a benchmark."""
    if index.suffix == ".json" and index.is_file():
        found = read_results(index)
        truths = read_truths(ground_truth, list(found))
        rankings = [truths.to_rows(ids) for ids in found.values()]
    else:
        if queries is None:
            raise InvalidInputError("--queries is missing: pass a file of query vectors")
        table = read_table_of(queries)
        names = list(map(str, range(len(table.vectors)) if table.ids is None else table.ids))
        truths = read_truths(ground_truth, names)
        opened = Index.open(index)
        settings: Any = {"effort": effort, "recall": recall, "rerank": rerank, "threads": threads}
        scores, found_ids = opened.search(np.atleast_2d(table.vectors), k, **settings)
        if results is not None:
            write_results(results, names, -scores if opened.metric == "l2" else scores, found_ids)
        rankings = [truths.to_rows(ids) for ids in found_ids.tolist()]
    scored = {protocol: evaluate_rankings(rankings, truth) for protocol, truth in truths.protocols.items()}
    if as_json:
        fields = {name: {k: v for k, v in asdict(score).items() if k != "by_query"} for name, score in scored.items()}
        print_json(fields)
        return
    shown = Table("protocol", "mAP", "mP@1", "mP@5", "mP@10", "mAP@1k", "queries")
    for name, score in scored.items():
        values = (score.mean_ap, *score.precision.values(), score.mean_ap_1k)
        shown.add_row(name, *(f"{value:.2f}" for value in values), str(score.queries))
    out.print(shown)
    depth = min((score.depth for score in scored.values()), default=0)
    say(f"of rankings of {depth:,} results; relevant ones that are not among them count as not found")
