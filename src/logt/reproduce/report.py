"""The report: results of experiments -> Markdown."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

from logt.datasets import Benchmark
from logt.datasets.benchmark import SYNTHETIC_PROTOCOL
from logt.reproduce import paper
from logt.reproduce.claims import ENOUGH_VECTORS, MARGIN, SINGLE_SEED_ERROR, Claim, judge_if_enough
from logt.reproduce.experiments import EXPERIMENTS, Experiment, Result
from logt.reproduce.measurement import BATCH, ROUNDS, SINGLE_QUERIES, K
from logt.reproduce.plan import Plan
from logt.reproduce.trials import TRUNCATED, Point

_TITLE = "Reproduction of the experiments of Local Orthogonal-Group Testing"
_TERMS = (
    "LO-GT is the method of the paper, whose units are orthogonal groups of vectors; RND has random units instead. "
    "LO-GT\\* and RND\\* add the correction: of the vectors of a unit, only the best match keeps its rank. The "
    "complexity ratio ρ is the number of operations of a query, divided by that of exhaustive search. L is the "
    "number of entries per vector in the decoder U, which turns products with the memory vectors Y into similarities."
)
_DIGITS = {
    "complexity": 3,
    "memory": 3,
    "bytes per vector": 0,
    "ms": 2,
    "time ratio": 3,
    "time ratio, batch": 3,
    "p": 2,
    "recall@10": 3,
    "paper: complexity": 2,
    "paper: memory": 2,
}
"""Digits after the point by column; 1 in the others."""


def markdown_report(benchmark: Benchmark, plan: Plan, exhaustive: Point | None, results: Mapping[str, Result]) -> str:
    """Return the report on the experiments that are complete. exhaustive: the point of exhaustive search."""
    blocks = [f"# {_TITLE}", *collection_notes(benchmark), _TERMS, _conditions(benchmark, plan)]
    if exhaustive is not None:
        blocks += [_exhaustive_search(benchmark, exhaustive), _how_to_read(plan)]
    claims = {
        name: [judge_if_enough(claim, len(benchmark.X)) for claim in EXPERIMENTS[name].claims(result)]
        for name, result in results.items()
    }
    verdicts = [
        [EXPERIMENTS[name].title, claim.statement, f"**{claim.verdict}**"]
        for name, some in claims.items()
        for claim in some
    ]
    if verdicts:
        blocks += ["## The paper's claims on this data", _table(("experiment", "claim", "on this data"), verdicts)]
    missing = [name for name in EXPERIMENTS if name not in results]
    if missing:
        blocks.append(f"Not run yet: {', '.join(missing)}. `logt reproduce --only NAME` runs one of them.")
    for name, result in results.items():
        blocks += _section(EXPERIMENTS[name], result, claims[name], smoke_test(benchmark))
    return "\n\n".join(blocks) + "\n"


def smoke_test(benchmark: Benchmark) -> str:
    """Return the note for figures of a collection that is too small to judge claims; "" for others."""
    count = len(benchmark.X)
    return f"Smoke test: {count:,} vectors cannot judge the claims" if count < ENOUGH_VECTORS else ""


def collection_notes(benchmark: Benchmark) -> list[str]:
    """Return what a run on a collection cannot show; [] if it can judge the claims of the paper."""
    if len(benchmark.X) < ENOUGH_VECTORS:
        return [
            f"{len(benchmark.X):,} vectors show that everything runs. They are too few to judge the claims of the "
            f"paper, which has 105,000: verdicts need {ENOUGH_VECTORS:,}."
        ]
    if benchmark.main == SYNTHETIC_PROTOCOL:
        return [
            "The collection is synthetic: verdicts on the claims of the paper say little about real photos. "
            "Pass their descriptors with --data."
        ]
    return []


def _conditions(benchmark: Benchmark, plan: Plan) -> str:
    return (
        f"Data: {benchmark.name}, {len(benchmark.Q)} queries, protocol {benchmark.main}. "
        f"Machine: {platform.machine()}, {os.cpu_count()} cores; indexes are built on all cores. mAP is in percent: "
        f"the mean over {plan.seeds} seeds where a standard deviation is given, otherwise of one seed. Times are "
        f"medians on one thread over {ROUNDS} rounds, each with {SINGLE_QUERIES} single queries and a batch of "
        f"{BATCH}, with k = {K}; each system takes turns with exhaustive search."
    )


def _exhaustive_search(benchmark: Benchmark, point: Point) -> str:
    columns = {name: "mAP" if name == benchmark.main else f"mAP {name}" for name in benchmark.truths}
    values = ", ".join(f"{point[column]:.2f} ({protocol})" for protocol, column in columns.items())
    return (
        f"Exhaustive search: mAP {values}; {point['ms']:.1f} ms per query. The paper reports {paper.OXFORD} in "
        "Oxford105k, with other descriptors, so compare the differences to exhaustive search and not the absolute "
        "values. In the figures, hollow markers are values that the paper states, shifted so that its exhaustive "
        "search has the mAP measured here."
    )


def _how_to_read(plan: Plan) -> str:
    return (
        f"Two mAP values count as equal if they differ by at most {MARGIN} points. A difference counts as "
        "significant if it is larger than that and larger than two of its standard errors, computed seed by seed. "
        f"In between, a claim is undecided. With one seed, a standard error of {SINGLE_SEED_ERROR} is assumed. "
        "The variation over queries is not considered. Some systems return short lists, for which mAP is a lower "
        f'bound; the column "{TRUNCATED}" compares all systems with lists of at most {plan.list_length:,}.'
    )


def _section(experiment: Experiment, result: Result, claims: Sequence[Claim], note: str) -> list[str]:
    columns = [name for name in experiment.columns if any(name in row for row in result.rows)]
    if any(row["note"] for row in result.rows):
        columns.append("note")
    name, caption = experiment.name, f"{experiment.title}. Protocol: {result.protocol}.{f' {note}.' if note else ''}"
    source = f"{experiment.source} of the paper. " if experiment.source else ""
    return [
        f"## {experiment.title}",
        f"{source}{experiment.description}",
        f"[![{caption}]({name}.png)]({name}.svg)",
        *(["\n".join(_bullet(claim) for claim in claims)] if claims else []),
        _table(columns, [[_cell(name, row.get(name)) for name in columns] for row in result.rows]),
        f"All columns: {name}.csv",
    ]


def _bullet(claim: Claim) -> str:
    """Return a line on a claim, in which the stars of LO-GT* and RND* do not start emphasis."""
    statement, evidence = (text.replace("*", "\\*") for text in (claim.statement, claim.evidence))
    return f"- *{statement}* **{claim.verdict}.** {evidence}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; columns of numbers are aligned to the right."""
    numbers = [all(re.fullmatch(r"[-+\d.,]*", cell) for cell in column) for column in zip(*rows, strict=True)]
    rule = ["---:" if is_number else "---" for is_number in numbers]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def _cell(name: str, value: Any) -> str:
    if value is None or value != value:  # NaN: not known
        return ""
    if isinstance(value, float):
        return f"{value:,.{_DIGITS.get(name, 1)}f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
