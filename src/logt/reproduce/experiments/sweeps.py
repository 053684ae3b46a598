"""Figures 3 and 4: LO-GT and RND, with and without the correction, at several values of one parameter."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, above, format_differences, judge, judge_above, reaches
from logt.reproduce.experiments.experiment import Entry, Experiment, Result, format_setting, mean_ap
from logt.reproduce.experiments.systems import VARIANTS, cascade_trial, local_system, sparse_trial, variant_trial
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Trial


def _sweep(parameter: str, values: Sequence[Any], trial: Callable[[str, Any], Trial], seeds: int) -> list[Entry]:
    """Return an entry for each variant and value; trial: as trial(variant, value)."""
    return [
        Entry({"system": name, parameter: value}, trial(name, value), seeds) for name in VARIANTS for value in values
    ]


def _columns(parameter: str) -> tuple[str, ...]:
    return ("system", parameter, "mAP", "deviation", "complexity")


def _above_random(statement: str, result: Result, system: str, parameter: str) -> Claim:
    """Judge the claim that a system is above both random variants at each value of a parameter."""
    by_variant = {other: result.pairs(system, other, parameter) for other in ("RND", "RND*")}
    differences = (f"{system} minus {other}: {format_differences(pairs)}" for other, pairs in by_variant.items())
    all_pairs = [pair for pairs in by_variant.values() for pair in pairs]
    return Claim(statement, judge_above(all_pairs), "; ".join(differences) + ".")


def _reaches_exhaustive_search(statement: str, stated: paper.StatedPoint, result: Result, **setting: int) -> Claim:
    """Judge the claim that LO-GT* has the mAP of exhaustive search at a setting; stated: the paper's point."""
    (row,) = result.select("LO-GT*", **setting)
    return Claim(
        f"{statement} (in the paper at ρ = {stated.rho}).",
        judge([reaches(mean_ap(row), result.exhaustive)]),
        f"mAP {mean_ap(row)}, exhaustive search {result.exhaustive}, at ρ = {row['complexity']:.2f} and "
        + ", ".join(format_setting(name, value) for name, value in setting.items())
        + ".",
    )


def _draw_variants(axes: Any, result: Result, x: str, names: tuple[str, ...] = VARIANTS) -> None:
    for name in names:
        plots.curve(axes, result.select(name), x, name, plots.STYLES[name])
    axes.set_ylabel(f"mAP ({result.protocol})")


def _draw_by_complexity(
    figure: Any,
    result: Result,
    *,
    parameter: str,
    stated: Sequence[paper.StatedPoint],
    names: tuple[str, ...] = VARIANTS,
) -> None:
    """Draw the mAP of each variant over the complexity ratio, with the points that the paper states."""
    axes = figure.subplots()
    _draw_variants(axes, result, "complexity", names)
    rows = result.select("LO-GT*")
    labels = [format_setting(parameter, row[parameter]).removeprefix("p=") for row in rows]  # short of space
    plots.top_labels(axes, [row["complexity"] for row in rows], labels)
    points = [(point.rho, paper.shift_to(result.exhaustive.mean, point.mean_ap)) for point in stated]
    plots.paper_points(axes, points, plots.STYLES["LO-GT*"], "LO-GT*, paper")
    plots.exhaustive_line(axes, result.exhaustive.mean)
    axes.set_xlabel("complexity ratio ρ")
    plots.legend(figure)


# ----------------------------------------------------------------------------------------------- group size


def _group_size_trial(name: str, plan: Plan, n: int) -> Trial:
    return variant_trial(name, local_system(name, plan, n=n, m=n // 10, L=None, order=0))


def _group_size_claims(result: Result) -> list[Claim]:
    uncorrected = result.pairs("LO-GT", "RND", "n")
    correction = result.pairs("RND*", "RND", "n")
    return [
        Claim(
            "Without the correction, orthogonal units are not significantly better than random units.",
            judge([not above(pair.first, pair.second) for pair in uncorrected]),
            f"LO-GT minus RND: {format_differences(uncorrected)}.",
        ),
        _above_random(
            "With the correction, orthogonal units are significantly better than random units.", result, "LO-GT*", "n"
        ),
        Claim(
            "For large units, the correction reduces the mAP of random units.",
            judge([above(pair.second, pair.first) for pair in correction[-1:]]),
            f"RND* minus RND: {format_differences(correction)}.",
        ),
    ]


def _draw_group_size(figure: Any, result: Result) -> None:
    axes = figure.subplots()
    _draw_variants(axes, result, "n")
    plots.log_axis(axes, "vectors per unit, n (m = n/10, 0-order decoder)", result.plan.unit_sizes)
    plots.exhaustive_line(axes, result.exhaustive.mean)
    plots.legend(figure)


GROUP_SIZE = Experiment(
    name="group-size",
    title="Group size n at m = n/10, 0-order decoder",
    source="Figure 3 (left)",
    description="The unit size n and the number of units per vector m grow together, so that the sizes of Y and "
    "U do not change. Each vector is decoded from its own units only.",
    columns=_columns("n"),
    entries=lambda plan: _sweep("n", plan.unit_sizes, lambda name, n: _group_size_trial(name, plan, n), plan.seeds),
    claims=_group_size_claims,
    draw=_draw_group_size,
)


# ---------------------------------------------------------------------------------------------------- dense


def _dense_trial(name: str, plan: Plan, m: int) -> Trial:
    return variant_trial(name, local_system(name, plan, m=m, L=None))


def _dense_claims(result: Result) -> list[Claim]:
    m = result.plan.m
    statement = f"With m = {m}, LO-GT* reaches the mAP of exhaustive search"
    return [
        _reaches_exhaustive_search(statement, paper.DENSE_REACHES, result, m=m),
        _above_random("LO-GT* outperforms the random variants.", result, "LO-GT*", "m"),
    ]


DENSE = Experiment(
    name="dense",
    title="1-order decoder without sparsity, by m",
    source="Figure 3 (right)",
    description="Each vector is decoded by least squares from S₁: its own units and the units of all vectors "
    "that share a unit with it.",
    columns=_columns("m"),
    entries=lambda plan: _sweep("m", plan.ms, lambda name, m: _dense_trial(name, plan, m), plan.dense_seeds),
    claims=_dense_claims,
    draw=partial(_draw_by_complexity, parameter="m", stated=[paper.DENSE_REACHES]),
    slow=True,
)


# --------------------------------------------------------------------------------------------------- sparse


def _sparse_claims(result: Result) -> list[Claim]:
    gain, stated = result.pairs("LO-GT*", "LO-GT", "L"), paper.SPARSE[-1]
    gains = [pair.first - pair.second for pair in gain]
    return [
        _reaches_exhaustive_search(
            f"LO-GT* with {stated.label} reaches the accuracy of exhaustive search", stated, result, L=result.plan.L
        ),
        _above_random("LO-GT* is more accurate than the random variants for all L.", result, "LO-GT*", "L"),
        _above_random(
            "LO-GT without the correction is also significantly better than both random variants.",
            result,
            "LO-GT",
            "L",
        ),
        Claim(
            "The larger L is, the smaller is the gain of the correction.",
            judge([above(gains[0], gains[-1])] if len(gains) > 1 else []),
            f"LO-GT* minus LO-GT: {format_differences(gain)}.",
        ),
    ]


SPARSE = Experiment(
    name="sparse",
    title="Sparse 1-order decoder, by L",
    source="Figure 4 (left)",
    description="Orthogonal matching pursuit keeps L entries of each vector's 1-order decoder.",
    columns=_columns("L"),
    entries=lambda plan: _sweep("L", plan.Ls, lambda name, L: sparse_trial(name, plan, L), plan.seeds),
    claims=_sparse_claims,
    draw=partial(_draw_by_complexity, parameter="L", stated=paper.SPARSE),
)


# -------------------------------------------------------------------------------------------------- cascade


def _cascade_claims(result: Result) -> list[Claim]:
    """Compare all of U with the largest p that lowers the complexity as much as in the paper."""
    curve = sorted(result.select("LO-GT*"), key=lambda row: row["p"])
    full = curve[-1]
    smallest = next(row for row in curve if reaches(mean_ap(row), mean_ap(full)))
    stated_reduction = paper.CASCADE.rho / paper.SPARSE[-1].rho
    cheap = [row for row in curve if row["complexity"] <= stated_reduction * full["complexity"]]
    chosen = cheap[-1] if cheap else curve[0]
    lowers = Claim(
        f"The cascade lowers the complexity without loss of accuracy (in the paper from ρ = "
        f"{paper.SPARSE[-1].rho} to {paper.CASCADE.rho}).",
        judge([reaches(mean_ap(row), mean_ap(full)) for row in cheap[-1:]]),
        f"All of U: mAP {mean_ap(full)} at ρ = {full['complexity']:.3f}. The smallest p without loss is "
        f"{smallest['p']:.0%}, at ρ = {smallest['complexity']:.3f}. At p = {chosen['p']:.0%} "
        f"(ρ = {chosen['complexity']:.3f}), "
        + ("where ρ is reduced at least as much as in the paper" if cheap else "the smallest p measured")
        + f", mAP changes by {(mean_ap(chosen) - mean_ap(full)).mean:+.1f}.",
    )
    stays = "With the cascade, LO-GT* stays above the random variants."
    return [lowers, _above_random(stays, result, "LO-GT*", "p")]


CASCADE = Experiment(
    name="cascade",
    title="Cascade decoder, by p",
    source="Figure 4 (right)",
    description="U⁰, with the fraction p of the energy of each vector's code, ranks all vectors; all of U re-"
    "ranks the first R of them.",
    columns=_columns("p"),
    entries=lambda plan: _sweep("p", plan.ps, lambda name, p: cascade_trial(name, plan, p), plan.seeds),
    claims=_cascade_claims,
    draw=partial(_draw_by_complexity, parameter="p", stated=[paper.CASCADE], names=("LO-GT*", "RND*", "RND")),
)
