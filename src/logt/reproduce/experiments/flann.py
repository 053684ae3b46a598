"""Section 4.3: comparison with the trees of FLANN."""

from __future__ import annotations

from typing import Any, Literal

from logt.baselines import Flann
from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, judge, reaches
from logt.reproduce.experiments.experiment import (
    TRUNCATED,
    ExperimentResult,
    Row,
    format_index_time,
    mean_ap,
)
from logt.reproduce.experiments.systems import Sampled
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
from logt.reproduce.trials import Measurements, Trial

TUNED = "FLANN autotuned"
TREES: dict[Literal["kdtree", "kmeans"], str] = {"kdtree": "FLANN kd-trees", "kmeans": "FLANN k-means tree"}
_STYLES: dict[str, plots.Style] = {
    "FLANN kd-trees": {"color": plots.RED, "marker": "^"},
    "FLANN k-means tree": {"color": plots.ORANGE, "marker": "v"},
    **{name: STYLES[name] for name in (BY_L, BY_P, DEFAULT)},
}


class FlannExperiment(TimedExperiment):
    name = "flann"
    title = "Comparison with partitioning: FLANN"
    source = "Section 4.3"
    description = (
        f"FLANN tunes itself to find the nearest vector with a precision of {paper.FLANN_PRECISION}. Tuning runs "
        "searches at about a hundred settings, so it is done on a sample. On all vectors, the kd-trees and the "
        "k-means tree of FLANN compare a given number of vectors (checks) and return as many results, up to the "
        "length of truncated lists."
    )

    def settings(self, plan: Plan) -> TimedTrials:
        """Return FLANN tuned on a sample, and both kinds of trees on all vectors by their number of checks."""
        tuned = Sampled(Flann(paper.FLANN_PRECISION), min(plan.flann_sample, plan.count))
        trials: TimedTrials = {(TUNED, f"{tuned.count:,} vectors"): Trial.from_settings(tuned, depth=1)}
        for algorithm, name in TREES.items():
            for fraction in plan.flann_checks:
                checks = max(1, round(fraction * plan.count))
                depth = min(plan.list_length, checks)
                trial = Trial.from_settings(Flann(algorithm=algorithm), depth=depth, timed=True, checks=checks)
                trials[name, f"checks={checks:,}"] = trial
        return {**trials, **own_settings(plan)}

    def rows(self, plan: Plan, measurements: Measurements) -> list[Row]:
        return [_without_accuracy(row) if row["system"] == TUNED else row for row in super().rows(plan, measurements)]

    def claims(self, result: ExperimentResult) -> list[Claim]:
        statement = (
            f"FLANN, tuned to a precision of {paper.FLANN_PRECISION}, is only {paper.FLANN_SPEEDUP} times as fast as "
            f"exhaustive search: a time ratio of {paper.FLANN_RATIO}."
        )
        tuned = [row for row in result.rows if row["system"] == TUNED and "complexity" in row]
        trees = [row for row in result.select() if row["system"] in TREES.values()]
        if not trees or not tuned:
            return [Claim(statement, "not tested", "FLANN was not measured."), _accuracy_of_lo_gt(result)]
        precise = [row for row in trees if row["recall@1"] >= paper.FLANN_PRECISION]
        if precise:
            best = min(precise, key=lambda row: row["time ratio"])
        else:
            best = max(trees, key=lambda row: row["recall@1"])
        slow = best["time ratio"] >= 0.8 * paper.FLANN_RATIO
        evidence = (
            f"On all vectors, the {'fastest tree with that precision' if precise else 'most precise tree'} is "
            f"{best['system']} with {best['setting']}. It finds the nearest vector for {best['recall@1']:.0%} of the "
            f"queries at a time ratio of {best['time ratio']:.3f}, with mAP {best[TRUNCATED]:.1f} for lists of "
            f"{best['list depth']:,}. Tuned on {tuned[0]['setting']}, FLANN reports a speed-up of "
            f"{1 / tuned[0]['complexity']:.2f}; tuning took {format_index_time(tuned[0])}."
        )
        return [
            Claim(statement, judge([slow] if precise or slow else []), evidence),
            _accuracy_of_lo_gt(result),
            _faster_lo_gt(result, best),
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        axes = figure.subplots()
        for name, style in _STYLES.items():
            rows = sorted(result.select(system=name), key=lambda row: row["time ratio"])
            plots.curve(axes, rows, "time ratio", name, {**style, "linestyle": "-"}, y=TRUNCATED)
        label = "time ratio of FLANN in the paper"
        axes.axvline(paper.FLANN_RATIO, color=plots.RED, linestyle=":", linewidth=1.1, label=label)
        finish_time_axes(figure, axes, result, "time ratio to exhaustive search, one query")


def _without_accuracy(row: Row) -> Row:
    """Return the row of the tuned sample without its accuracy, which cannot be compared with the others."""
    if row["note"]:
        return row
    kept = {name: row[name] for name in ("system", "setting", "complexity", "index seconds")}
    return {**kept, "note": "only the reported speed-up: built on a sample"}


def _accuracy_of_lo_gt(result: ExperimentResult) -> Claim:
    rows = lo_gt_rows(result)
    accurate = [
        row
        for row in rows
        if row["complexity"] <= paper.FLANN_LO_GT + 0.005 and reaches(mean_ap(row), result.exhaustive)
    ]
    return Claim(
        f"LO-GT reaches the mAP of exhaustive search at ρ = {paper.FLANN_LO_GT}.",
        judge([bool(accurate)]),
        f"{len(accurate)} of {len(rows)} settings do.",
    )


def _faster_lo_gt(result: ExperimentResult, flann: Row) -> Claim:
    rows = lo_gt_rows(result)
    better = [row for row in rows if row["time ratio"] < flann["time ratio"] and row[TRUNCATED] >= flann[TRUNCATED]]
    return Claim(
        "LO-GT* is faster than FLANN at the accuracy of FLANN.",
        judge([bool(better)]),
        f"{len(better)} of {len(rows)} settings of LO-GT* are faster than {flann['system']} and not less accurate.",
        from_paper=False,
    )
