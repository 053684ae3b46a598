"""What the report says, (found) -> blocks."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from logt.datasets import Benchmark
from logt.reproduce import paper
from logt.reproduce.claims import ONE_SEED
from logt.reproduce.experiments import ALL, BASELINE, Experiment, Found
from logt.reproduce.measurement import BATCH, IN_A_ROW, ROUNDS, K
from logt.reproduce.plan import Plan
from logt.reproduce.report import Block, Bullets, Figure, Heading, Paragraph, Table
from logt.reproduce.trials import Results

TITLE = "The experiments of Local Orthogonal-Group Testing, repeated"


def blocks(benchmark: Benchmark, plan: Plan, results: Results, done: Mapping[str, Found]) -> list[Block]:
    """The whole report over the experiments that are done."""
    parts: list[Block] = [Heading(1, TITLE), *_setting(benchmark, plan, results)]
    if done:
        parts += [Heading(2, "The paper's claims on this data"), _overview(done, asked=False)]
        ours = _overview(done, asked=True)
        parts += [Heading(2, "What the paper does not ask"), ours] if ours.rows else []
    missing = [name for name in ALL if name not in done]
    if missing:
        parts.append(Paragraph(f"Not run yet: {', '.join(missing)}. `logt reproduce --only NAME` adds one."))
    for name, found in done.items():
        parts += _section(ALL[name], found)
    return parts


def _setting(benchmark: Benchmark, plan: Plan, results: Results) -> list[Block]:
    data = (
        f"Data: {benchmark.name}, {len(benchmark.Q)} queries, protocol {benchmark.main}. "
        f"{platform.machine()}, {os.cpu_count()} cores; indexes are built on all of them. mAP is in percent, over "
        f"{plan.seeds} seeds where a deviation is given, else of one. Times are medians on one thread over {ROUNDS} "
        f"rounds of {IN_A_ROW} single queries and a batch of {BATCH}, k = {K}, in turn with exhaustive search."
    )
    told: list[Block] = [Paragraph(data)]
    if results.has(BASELINE):
        point = results.of(BASELINE)
        levels = ", ".join(f"{value:.2f} ({protocol})" for protocol, value in point["map"].items())
        told.append(
            Paragraph(
                f"Exhaustive search: mAP {levels}; {point['ms']:.1f} ms a query. The paper has {paper.OXFORD} in "
                "Oxford105k, with other descriptors: compare differences to exhaustive search, not levels. What the "
                "paper states stands in the figures as hollow markers, as far from our exhaustive search as from its "
                "own. Two figures are level when they differ by at most half a point. A difference counts when it is "
                "more, and more than two of its standard errors, seed by seed; between the two it is undecided. "
                f"That error is taken to be {ONE_SEED} where there is one seed. Chance among the queries is left out."
            )
        )
    return told


def _overview(done: Mapping[str, Found], *, asked: bool) -> Table:
    rows = [
        [ALL[name].title, claim.said, f"**{claim.verdict}**" if claim.verdict != "not tested" else claim.verdict]
        for name, found in done.items()
        for claim in ALL[name].claims(found)
        if claim.asked == asked
    ]
    return Table(["experiment", "we ask" if asked else "the paper", "here"], rows)


def _section(experiment: Experiment, found: Found) -> list[Block]:
    shown = [name for name in experiment.columns if any(name in row for row in found.rows)]
    notes = any(row.get("note") for row in found.rows)
    head = [*shown, *(["note"] if notes else [])]
    rows = [[_cell(name, row.get(name, "")) for name in head] for row in found.rows]
    return [
        Heading(2, experiment.title),
        Paragraph(f"{experiment.where} of the paper. {experiment.asks}"),
        Figure(experiment.name, f"{experiment.title}. {found.protocol} mAP."),
        Bullets([(claim.said, claim.verdict, claim.found) for claim in experiment.claims(found)]),
        Table(head, rows),
        Paragraph(f"All columns: {experiment.name}.csv"),
    ]


_DIGITS = {"mAP": 1, "deviation": 1, "mAP of cut lists": 1, "complexity": 3, "memory": 3, "index seconds": 1, "ms": 2}
_DIGITS |= {
    "paper: complexity": 2,
    "paper: memory": 2,
    "bytes per vector": 0,
    "ms, batch": 2,
    "time ratio": 3,
    "time ratio, batch": 3,
    "recall@10": 3,
    "p": 2,
}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.{_DIGITS.get(name, 1)}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
