"""Memory vectors of c bytes by product quantization, with U learned from Y and from what is stored of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logt.baselines import Composed
from logt.methods import quantized
from logt.reproduce import paper, plots
from logt.reproduce.claims import MARGIN, Claim, above, differences, judged
from logt.reproduce.experiments.experiment import BASELINE, Experiment, Found, Row, mean_of, row_of
from logt.reproduce.experiments.systems import local, variant
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Results, Trial

FROM_Y, FROM_STORED = "U from Y", "U from Ŷ"
_STATED = {FROM_Y: paper.PQ_EXACT, FROM_STORED: paper.PQ_STORED}
_STYLES: dict[str, plots.Style] = {
    FROM_Y: {"color": plots.RED, "marker": "s", "linestyle": "--"},
    FROM_STORED: {"color": plots.BLUE, "marker": "o", "linestyle": "-"},
}


def _system(plan: Plan, fit: Any, c: int) -> Composed:
    plain = local("LO-GT*", plan)
    return replace(plain, method=quantized(plain.method, c=c, fit=fit), name=f"{plain.name} PQ {c} {fit}")


def _of(plan: Plan) -> dict[tuple[str, int], Trial]:
    fits = {FROM_Y: "exact", FROM_STORED: "stored"}
    return {(name, c): variant("LO-GT*", _system(plan, fit, c)) for name, fit in fits.items() for c in plan.bytes}


def _trials(plan: Plan) -> list[Trial]:
    return [BASELINE, variant("LO-GT*", local("LO-GT*", plan)), *_of(plan).values()]


def _rows(plan: Plan, results: Results) -> list[Row]:
    whole = row_of(results, variant("LO-GT*", local("LO-GT*", plan)), system="float32", c=4 * plan.dim)
    return [whole, *(row_of(results, trial, system=name, c=c) for (name, c), trial in _of(plan).items())]


def _claims(found: Found) -> list[Claim]:
    pairs = found.pairs(FROM_STORED, FROM_Y, "c")
    (whole,) = found.of(system="float32")
    stored = _losses(found, FROM_STORED, whole)
    return [
        Claim(
            "Learning U from the compressed memory vectors is important: U from Y is significantly worse.",
            judged([above(a, b) for _, a, b in pairs]),
            f"U from Ŷ minus U from Y: {differences(pairs)} (paper: "
            + ", ".join(f"{paper.PQ_STORED[c] - paper.PQ_EXACT[c]:+.1f} at c={c}" for c in paper.PQ_EXACT)
            + ").",
        ),
        Claim(
            "With U from Ŷ, memory vectors of 256 bytes cost 2.1 points of mAP.",
            judged([stored[c] <= paper.OXFORD - paper.PQ_STORED[c] + MARGIN for c in (256,) if c in stored]),
            f"Points lost to memory vectors in float32, which have {mean_of(whole)} here and exhaustive search's mAP "
            f"in the paper (in brackets): U from Ŷ {_told(FROM_STORED, stored)}; U from Y "
            f"{_told(FROM_Y, _losses(found, FROM_Y, whole))}. At c = 256, a byte stands for "
            f"{found.plan.dim / 256:g} dimensions here, for 8 there.",
        ),
    ]


def _losses(found: Found, name: str, whole: Row) -> dict[int, float]:
    return {row["c"]: whole["mAP"] - row["mAP"] for row in found.of(system=name)}


def _told(name: str, losses: dict[int, float]) -> str:
    stated = {c: f" ({paper.OXFORD - value:.1f})" for c, value in _STATED[name].items()}
    return ", ".join(f"{lost:.1f}{stated.get(c, '')} at c={c}" for c, lost in losses.items())


def _draw(figure: Any, found: Found) -> None:
    axes = figure.subplots()
    for name, style in _STYLES.items():
        plots.curve(axes, sorted(found.of(system=name), key=lambda row: row["c"]), "c", name, style)
    for name, style in _STYLES.items():
        points = [
            (c, paper.shifted(value, found.base.value)) for c, value in _STATED[name].items() if c in found.plan.bytes
        ]
        plots.stated(axes, points, style, f"{name}, paper")
    (whole,) = found.of(system="float32")
    axes.axhline(whole["mAP"], color=plots.BLUE, linestyle=":", linewidth=1.1, label=f"float32 ({whole['mAP']:.1f})")
    axes.set(xscale="log", xlabel="bytes per memory vector, c", ylabel=f"mAP ({found.protocol})")
    axes.set_xticks(sorted(found.plan.bytes), labels=map(str, sorted(found.plan.bytes)))
    axes.minorticks_off()
    plots.baseline(axes, found.base.value)
    plots.legend(figure)


PQ = Experiment(
    name="pq",
    title="Combination with product quantization",
    where="Table 2",
    asks="Each memory vector is compressed to c bytes. L, m and the correction are those of LO-GT*; the paper does "
    "not state them.",
    columns=("system", "c", "mAP", "complexity", "memory", "bytes"),
    trials=_trials,
    rows=_rows,
    claims=_claims,
    draw=_draw,
)
