"""Orthogonal against random units, with and without the correction: by group size, dense, sparse, in cascade."""

from __future__ import annotations

import math
from typing import Any

from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, Verdict, above, differences, judged, reaches
from logt.reproduce.experiments.experiment import BASELINE, Experiment, Found, Row, mean_of, over_seeds, place, row_of
from logt.reproduce.experiments.systems import VARIANTS, local, variant
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Mean, Results, Trial

_COLUMNS = ("mAP", "deviation", "complexity")
_STARS = ("LO-GT*", "RND*", "RND")


def _by_size(plan: Plan) -> dict[tuple[str, int], Trial]:
    return {
        (name, n): variant(name, local(name, plan, n=n, m=n // 10, L=None, order=0))
        for name in VARIANTS
        for n in plan.sizes
    }


def _dense(plan: Plan) -> dict[tuple[str, int], Trial]:
    return {(name, m): variant(name, local(name, plan, m=m, L=None)) for name in VARIANTS for m in plan.ms}


def sparse(plan: Plan, *, timed: bool = False) -> dict[tuple[str, int], Trial]:
    """By variant and L."""
    return {
        (name, L): variant(name, local(name, plan, L=L), timed=timed and name == "LO-GT*")
        for name in VARIANTS
        for L in plan.Ls
    }


def cascades(plan: Plan, *, timed: bool = False) -> dict[tuple[str, float], Trial]:
    """By variant and p, at the largest L."""
    return {
        (name, p): variant(name, local(name, plan), timed=timed and name == "LO-GT*", p=p, R=plan.R)
        for name in VARIANTS
        for p in plan.ps
    }


def _experiment(of: Any, by: str, seeds: Any, **words: Any) -> Experiment:
    def trials(plan: Plan) -> list[Trial]:
        return [BASELINE, *(t for trial in of(plan).values() for t in over_seeds(trial, seeds(plan)))]

    def rows(plan: Plan, results: Results) -> list[Row]:
        return [
            row_of(results, trial, seeds(plan), system=name, **{by: value})
            for (name, value), trial in of(plan).items()
        ]

    return Experiment(columns=("system", by, *_COLUMNS), trials=trials, rows=rows, **words)


# ------------------------------------------------------------------------------------------------- claims


def _of_size(found: Found) -> list[Claim]:
    plain = found.pairs("LO-GT", "RND", "n")
    corrected = [pair for other in ("RND", "RND*") for pair in found.pairs("LO-GT*", other, "n")]
    harmed = found.pairs("RND*", "RND", "n")
    return [
        Claim(
            "Without the correction, orthogonal units bring no significant improvement over random ones.",
            judged([not above(a, b) for _, a, b in plain]),
            f"LO-GT minus RND: {differences(plain)}.",
        ),
        Claim(
            "With the correction, orthogonal units are significantly better than random ones.",
            judged([above(a, b) for _, a, b in corrected]),
            f"LO-GT* minus RND: {differences(found.pairs('LO-GT*', 'RND', 'n'))}; "
            f"minus RND*: {differences(found.pairs('LO-GT*', 'RND*', 'n'))}.",
        ),
        Claim(
            "From some size on, the correction harms random units.",
            judged([above(b, a) for _, a, b in harmed[-1:]]),
            f"RND* minus RND: {differences(harmed)}.",
        ),
    ]


def _of_dense(found: Found) -> list[Claim]:
    best = max(found.of(system="LO-GT*"), key=lambda row: row["mAP"])
    setting = [row for row in found.of(system="LO-GT*") if row["m"] == found.plan.m]
    against = [pair for other in ("RND", "RND*") for pair in found.pairs("LO-GT*", other, "m")]
    claims = [
        Claim(
            f"At m = {row['m']}, LO-GT* has the mAP of exhaustive search (there at ρ = {paper.DENSE_REACHES.rho}).",
            judged([reaches(mean_of(row), found.base)]),
            f"{mean_of(row)} against {found.base} at ρ = {row['complexity']:.2f}; the most is {mean_of(best)}, at "
            f"m = {best['m']} and ρ = {best['complexity']:.2f}.",
        )
        for row in setting
    ]
    return [
        *claims,
        Claim(
            "It outperforms the random variants.",
            judged([above(a, b) for _, a, b in against]),
            f"LO-GT* minus RND: {differences(found.pairs('LO-GT*', 'RND', 'm'))}; "
            f"minus RND*: {differences(found.pairs('LO-GT*', 'RND*', 'm'))}.",
        ),
        _size_of_support(found),
    ]


def _size_of_support(found: Found) -> Claim:
    """Of each round, S₁ has the vector's own unit, and what (m − 1)(n − 1) others hit of the round's W units."""
    n, W = found.plan.n, found.plan.count / found.plan.n
    rows = found.of(system="RND") + found.of(system="LO-GT*")
    ours = {(row["system"], row["m"]): (row["complexity"] - row["m"] / n) * found.plan.dim for row in rows}
    chance = {m: m * (1 + W * -math.expm1(-(m - 1) * (n - 1) / W)) for m in found.plan.ms}
    theirs = {m: (rho - m / 50) * 2048 for m, rho in paper.DENSE.items()}
    told = ", ".join(
        f"{count:.0f} at m={m} ({chance[m]:.0f})" for (system, m), count in ours.items() if system == "LO-GT*"
    )
    return Claim(
        "S₁ holds as many units as chance says, for random units to 2 %, for orthogonal ones to 5 %.",
        judged(
            [
                abs(count / chance[m] - 1) <= (0.02 if system == "RND" else 0.05)
                for (system, m), count in ours.items()
                if chance[m] < found.plan.dim  # a decoder has no more entries than dimensions
            ]
        ),
        f"Units per vector of LO-GT*, and by chance: {told}. The paper's ratios imply "
        + ", ".join(f"{theirs[m]:.0f} at m={m}" for m in found.plan.ms if m in theirs)
        + " at its N and d.",
        asked=True,
    )


def _of_sparse(found: Found) -> list[Claim]:
    against = [pair for other in ("RND", "RND*") for pair in found.pairs("LO-GT*", other, "L")]
    plain = [pair for other in ("RND", "RND*") for pair in found.pairs("LO-GT", other, "L")]
    (most,) = found.of(system="LO-GT*", L=found.plan.L)
    gain = found.pairs("LO-GT*", "LO-GT", "L")
    return [
        Claim(
            f"{paper.SPARSE[-1].label} has the accuracy of exhaustive search (there at ρ = {paper.SPARSE[-1].rho}).",
            judged([reaches(mean_of(most), found.base)]),
            f"L = {found.plan.L}: {mean_of(most)} against {found.base} at ρ = {most['complexity']:.2f}.",
        ),
        Claim(
            "LO-GT* is more accurate than the random variants for all L.",
            judged([above(a, b) for _, a, b in against]),
            f"LO-GT* minus RND: {differences(found.pairs('LO-GT*', 'RND', 'L'))}; "
            f"minus RND*: {differences(found.pairs('LO-GT*', 'RND*', 'L'))}.",
        ),
        Claim(
            "LO-GT without the correction is also significantly better than both random variants.",
            judged([above(a, b) for _, a, b in plain]),
            f"LO-GT minus RND: {differences(found.pairs('LO-GT', 'RND', 'L'))}; "
            f"minus RND*: {differences(found.pairs('LO-GT', 'RND*', 'L'))}.",
        ),
        Claim(
            "The more entries, the less the correction brings.",
            _falls(gain),
            f"LO-GT* minus LO-GT: {differences(gain)}.",
        ),
    ]


def _falls(gain: list[tuple[str, Mean, Mean]]) -> Verdict:
    """Whether the first difference is larger than the last."""
    if len(gain) < 2:
        return "not tested"
    first, last = (a - b for _, a, b in (gain[0], gain[-1]))
    return judged([above(first, last)])


def _of_cascade(found: Found) -> list[Claim]:
    curve = sorted(found.of(system="LO-GT*"), key=lambda row: row["p"])
    whole = curve[-1]
    kept = [row for row in curve if reaches(mean_of(row), mean_of(whole))]
    theirs = paper.CASCADE.rho / paper.SPARSE[-1].rho
    cheap = [row for row in curve if row["complexity"] <= theirs * whole["complexity"]]
    against = [pair for other in ("RND", "RND*") for pair in found.pairs("LO-GT*", other, "p")]
    nearest = cheap[-1] if cheap else curve[0]
    return [
        Claim(
            "The cascade lowers the complexity without harm to accuracy (there from ρ = 0.23 to 0.18).",
            judged([reaches(mean_of(row), mean_of(whole)) for row in cheap[-1:]]),
            f"All of U: {mean_of(whole)} at ρ = {whole['complexity']:.3f}. The least p without loss is "
            f"{kept[0]['p']:.0%}, at ρ = {kept[0]['complexity']:.3f}; at p = {nearest['p']:.0%}, as much less as "
            f"there, ρ = {nearest['complexity']:.3f}, and {(mean_of(nearest) - mean_of(whole)).value:+.1f} of mAP.",
        ),
        Claim(
            "In cascade, LO-GT* stays above the random variants.",
            judged([above(a, b) for _, a, b in against]),
            f"LO-GT* minus RND: {differences(found.pairs('LO-GT*', 'RND', 'p'))}; "
            f"minus RND*: {differences(found.pairs('LO-GT*', 'RND*', 'p'))}.",
        ),
    ]


# ------------------------------------------------------------------------------------------------- figures


def _curves(axes: Any, found: Found, x: str, names: tuple[str, ...] = VARIANTS) -> None:
    for name in names:
        rows = sorted(found.of(system=name), key=lambda row: row[x])
        plots.curve(axes, rows, x, name, plots.STYLES[name])
    axes.set_ylabel(f"mAP ({found.protocol})")


def _draw_size(figure: Any, found: Found) -> None:
    axes = figure.subplots()
    _curves(axes, found, "n")
    axes.set(xscale="log", xlabel="vectors per unit, n (m = n/10, 0-order decoder)")
    axes.set_xticks(found.plan.sizes, labels=map(str, found.plan.sizes))
    axes.minorticks_off()
    plots.baseline(axes, found.base.value)
    plots.legend(figure)


def _draw_by_complexity(by: str, stated: tuple[paper.Point, ...], names: tuple[str, ...]) -> Any:
    def draw(figure: Any, found: Found) -> None:
        axes = figure.subplots()
        _curves(axes, found, "complexity", names)
        first = found.of(system="LO-GT*")
        plots.tagged(axes, first, "complexity", lambda row: place(by, row[by]).removeprefix("p="))  # they stand close
        points = [(point.rho, paper.shifted(point.mean_ap, found.base.value)) for point in stated]
        plots.stated(axes, points, plots.STYLES["LO-GT*"], "LO-GT*, paper")
        plots.baseline(axes, found.base.value)
        axes.set_xlabel("complexity ratio ρ")
        plots.legend(figure)

    return draw


GROUP_SIZE = _experiment(
    _by_size,
    "n",
    lambda plan: plan.seeds,
    name="group-size",
    title="Group size n at m = n/10, 0-order decoder",
    where="Figure 3, left",
    asks="Units grow with the number of units per vector, so that Y and U keep their size. Each vector is decoded "
    "from its own units only.",
    claims=_of_size,
    draw=_draw_size,
)
DENSE = _experiment(
    _dense,
    "m",
    lambda plan: plan.dense_seeds,
    name="dense",
    title="1-order decoder without sparsity, by m",
    where="Figure 3, right",
    asks="Each vector is decoded by least squares from its own units and those of all vectors that share one with "
    "it.",
    claims=_of_dense,
    draw=_draw_by_complexity("m", (paper.DENSE_REACHES,), VARIANTS),
    slow=True,
)
SPARSE = _experiment(
    sparse,
    "L",
    lambda plan: plan.seeds,
    name="sparse",
    title="Sparse 1-order decoder, by L",
    where="Figure 4, left",
    asks="Orthogonal matching pursuit keeps L entries of each vector's 1-order decoder.",
    claims=_of_sparse,
    draw=_draw_by_complexity("L", paper.SPARSE, VARIANTS),
)
CASCADE = _experiment(
    cascades,
    "p",
    lambda plan: plan.seeds,
    name="cascade",
    title="Cascade decoder, by p",
    where="Figure 4, right",
    asks="U⁰, with the part p of each vector's energy, ranks all vectors; all of U ranks the first R of them again.",
    claims=_of_cascade,
    draw=_draw_by_complexity("p", (paper.CASCADE,), _STARS),
)
