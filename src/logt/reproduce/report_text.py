"""The text of the report: results of experiments -> report blocks."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from logt.datasets import Benchmark
from logt.reproduce import paper
from logt.reproduce.claims import MARGIN, SINGLE_SEED_ERROR
from logt.reproduce.experiments import EXHAUSTIVE, EXPERIMENTS, TRUNCATED, Experiment, ExperimentResult
from logt.reproduce.measurement import BATCH, ROUNDS, SINGLE_QUERIES, K
from logt.reproduce.plan import Plan
from logt.reproduce.report import Block, Bullets, Figure, Heading, Paragraph, Table
from logt.reproduce.trials import Measurements

TITLE = "Reproduction of the experiments of Local Orthogonal-Group Testing"


def report_blocks(
    benchmark: Benchmark, plan: Plan, measurements: Measurements, complete: Mapping[str, ExperimentResult]
) -> list[Block]:
    """Return the report on the complete experiments."""
    blocks: list[Block] = [Heading(1, TITLE), Paragraph(_conditions(benchmark, plan))]
    if measurements.has(EXHAUSTIVE):
        blocks.append(Paragraph(_exhaustive_search(measurements)))
        blocks.append(Paragraph(_how_to_read(plan)))
    if complete:
        blocks += [Heading(2, "The paper's claims on this data"), _verdicts(complete, from_paper=True)]
        questions = _verdicts(complete, from_paper=False)
        blocks += [Heading(2, "Further questions"), questions] if questions.rows else []
    missing = [name for name in EXPERIMENTS if name not in complete]
    if missing:
        blocks.append(Paragraph(f"Not run yet: {', '.join(missing)}. `logt reproduce --only NAME` runs one of them."))
    for name, result in complete.items():
        blocks += _section(EXPERIMENTS[name], result)
    return blocks


def _conditions(benchmark: Benchmark, plan: Plan) -> str:
    return (
        f"Data: {benchmark.name}, {len(benchmark.Q)} queries, protocol {benchmark.main}. "
        f"Machine: {platform.machine()}, {os.cpu_count()} cores; indexes are built on all cores. mAP is in percent: "
        f"the mean over {plan.seeds} seeds where a standard deviation is given, otherwise of one seed. Times are "
        f"medians on one thread over {ROUNDS} rounds, each with {SINGLE_QUERIES} single queries and a batch of "
        f"{BATCH}, with k = {K}; each system takes turns with exhaustive search."
    )


def _exhaustive_search(measurements: Measurements) -> str:
    point = measurements.point(EXHAUSTIVE)
    values = ", ".join(f"{value:.2f} ({protocol})" for protocol, value in point["map"].items())
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


def _verdicts(complete: Mapping[str, ExperimentResult], *, from_paper: bool) -> Table:
    rows = [
        [EXPERIMENTS[name].title, claim.statement, _bold(claim.verdict)]
        for name, result in complete.items()
        for claim in EXPERIMENTS[name].claims(result)
        if claim.from_paper == from_paper
    ]
    return Table(["experiment", "claim" if from_paper else "statement", "on this data"], rows)


def _bold(verdict: str) -> str:
    return verdict if verdict == "not tested" else f"**{verdict}**"


def _section(experiment: Experiment, result: ExperimentResult) -> list[Block]:
    columns = [name for name in experiment.columns if any(name in row for row in result.rows)]
    if any(row.get("note") for row in result.rows):
        columns.append("note")
    return [
        Heading(2, experiment.title),
        Paragraph(f"{experiment.source} of the paper. {experiment.description}"),
        Figure(experiment.name, f"{experiment.title}. Protocol: {result.protocol}."),
        Bullets([(claim.statement, claim.verdict, claim.evidence) for claim in experiment.claims(result)]),
        Table(columns, [[_cell(name, row.get(name, "")) for name in columns] for row in result.rows]),
        Paragraph(f"All columns: {experiment.name}.csv"),
    ]


_DIGITS = {
    "mAP": 1,
    "deviation": 1,
    TRUNCATED: 1,
    "complexity": 3,
    "memory": 3,
    "bytes per vector": 0,
    "index seconds": 1,
    "ms": 2,
    "ms, batch": 2,
    "time ratio": 3,
    "time ratio, batch": 3,
    "recall@10": 3,
    "p": 2,
    "paper: complexity": 2,
    "paper: memory": 2,
}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.{_DIGITS.get(name, 1)}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
