"""Figure 5, right: comparison with HNSW graphs."""

from __future__ import annotations

from typing import Any

from logt.baselines import HNSW
from logt.reproduce import plots
from logt.reproduce.claims import Claim, Outcome, judge
from logt.reproduce.experiments.experiment import TRUNCATED, ExperimentResult, Row
from logt.reproduce.experiments.timed import (
    BY_L,
    BY_P,
    DEFAULT,
    STYLES,
    TimedExperiment,
    TimedTrials,
    finish_time_axes,
    lo_gt_rows,
    own_settings,
)
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Trial

GRAPH = "HNSW"
_STYLES: dict[str, plots.Style] = {**STYLES, GRAPH: {"color": plots.RED, "marker": "^"}}


class HNSWExperiment(TimedExperiment):
    name = "hnsw"
    title = "Comparison with graphs: HNSW"
    source = "Figure 5 (right)"
    description = (
        "mAP over the ratio to exhaustive search, in time (s) or in operations (ρ). HNSW is that of faiss with "
        "M = 32 over float32 vectors. It returns ef results, and a short list has a lower mAP. If LO-GT* is only "
        "above a shorter list of HNSW, this does not count as an advantage."
    )

    def settings(self, plan: Plan) -> TimedTrials:
        graph = {
            (GRAPH, f"ef={ef}"): Trial.from_settings(HNSW(), depth=ef, timed=True, ef=ef)
            for ef in plan.efs
            if ef <= plan.count
        }
        return {**own_settings(plan), **graph}

    def claims(self, result: ExperimentResult) -> list[Claim]:
        graph, lo_gt = result.select(system=GRAPH), lo_gt_rows(result)
        if not graph or not lo_gt:
            return [Claim("LO-GT* clearly outperforms HNSW.", "not tested", "HNSW was not measured.")]
        length = result.plan.list_length
        by_time = [_outperforms(_as_fast(lo_gt, "time ratio", row), row, length) for row in graph]
        by_operations = [_outperforms(_as_fast(lo_gt, "complexity", row), row, length) for row in graph]
        largest, count = max(row["bytes"] for row in lo_gt), result.plan.count
        return [
            Claim(
                "LO-GT* clearly outperforms HNSW at the same time ratio to exhaustive search.",
                judge(by_time),
                "mAP and time ratio of HNSW (best mAP of LO-GT* that is as fast): "
                + "; ".join(_compare(lo_gt, row) for row in graph)
                + ".",
            ),
            Claim(
                "LO-GT* also outperforms HNSW if its complexity is counted in operations and that of HNSW in time.",
                judge(by_operations),
                f"LO-GT* is above HNSW at {by_operations.count(True)} of {len(graph)} settings of HNSW, and below at "
                f"{by_operations.count(False)}.",
            ),
            Claim(
                "LO-GT* needs significantly less memory than HNSW.",
                judge([largest < 0.9 * graph[0]["bytes"]]),
                f"LO-GT*: at most {largest / count:,.0f} bytes per vector; HNSW: {graph[0]['bytes'] / count:,.0f}.",
            ),
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        axes = figure.subplots()
        for name in (BY_P, BY_L, DEFAULT, GRAPH):
            self._draw_curve(axes, result, name, "time ratio")
            if name in (BY_L, BY_P):
                self._draw_curve(axes, result, name, "complexity")
        finish_time_axes(figure, axes, result, "ratio to exhaustive search: time (s), operations (ρ)")

    def _draw_curve(self, axes: Any, result: ExperimentResult, name: str, x: str) -> None:
        style = {**_STYLES[name], "linestyle": "-"}
        if x == "complexity":
            style |= {"linestyle": "--", "markerfacecolor": "none", "alpha": 0.7}
        rows = sorted(result.select(system=name), key=lambda row: row[x])
        plots.curve(axes, rows, x, f"{name} ({'ρ' if x == 'complexity' else 's'})", style, y=TRUNCATED)


def _as_fast(rows: list[Row], column: str, graph: Row) -> list[float]:
    """Return the mAP of the rows whose ratio in a column is at most the time ratio of a row of HNSW."""
    return [row[TRUNCATED] for row in rows if row[column] <= graph["time ratio"]]


def _outperforms(mean_aps: list[float], graph: Row, list_length: int) -> Outcome:
    """Return whether one of the values is above a row of HNSW; None if a short list of HNSW may be the reason."""
    if not mean_aps or max(mean_aps) <= graph[TRUNCATED]:
        return False
    return True if graph["list depth"] >= list_length else None


def _compare(lo_gt: list[Row], graph: Row) -> str:
    as_fast = _as_fast(lo_gt, "time ratio", graph)
    best = f"{max(as_fast):.1f}" if as_fast else "none"
    return f"{graph['setting']}: {graph[TRUNCATED]:.1f} at {graph['time ratio']:.3f} ({best})"
