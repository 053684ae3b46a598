"""Table 2: memory vectors of c bytes by product quantization, with U fitted to Y or to its stored form Ŷ."""

from dataclasses import replace
from typing import Any, Literal

from logt.methods import quantized
from logt.reproduce import paper, plots
from logt.reproduce.claims import MARGIN, Claim, format_differences, judge, judge_above
from logt.reproduce.experiments.experiment import Entry, Experiment, Result, mean_ap
from logt.reproduce.experiments.systems import local_system, variant_trial
from logt.reproduce.plan import Plan

FROM_Y, FROM_STORED = "U from Y", "U from Ŷ"
_FITS: dict[str, Literal["exact", "stored"]] = {FROM_Y: "exact", FROM_STORED: "stored"}
_STATED = {FROM_Y: paper.PQ_EXACT, FROM_STORED: paper.PQ_STORED}
_STYLES: dict[str, plots.Style] = {
    FROM_Y: {"color": plots.RED, "marker": "s", "linestyle": "--"},
    FROM_STORED: {"color": plots.BLUE, "marker": "o", "linestyle": "-"},
}


def _entries(plan: Plan) -> list[Entry]:
    plain = local_system("LO-GT*", plan)
    entries = [Entry({"system": "float32", "c": 4 * plan.dim}, variant_trial("LO-GT*", plain))]
    for name, fit in _FITS.items():
        for c in plan.cs:
            system = replace(plain, method=quantized(plain.method, c=c, fit=fit))
            entries.append(Entry({"system": name, "c": c}, variant_trial("LO-GT*", system)))
    return entries


def _claims(result: Result) -> list[Claim]:
    pairs = result.pairs(FROM_STORED, FROM_Y, "c")
    (float32,) = result.select("float32")
    losses = {name: {row["c"]: float32["mAP"] - row["mAP"] for row in result.select(name)} for name in _FITS}
    stored = losses[FROM_STORED]
    stated = ", ".join(f"{paper.PQ_STORED[c] - paper.PQ_EXACT[c]:+.1f} at c={c}" for c in paper.PQ_EXACT)
    return [
        Claim(
            "Fitting U to the compressed memory vectors is important: U from Y is significantly worse.",
            judge_above(pairs),
            f"U from Ŷ minus U from Y: {format_differences(pairs)} (paper: {stated}).",
        ),
        Claim(
            "With U from Ŷ, memory vectors of 256 bytes cost 2.1 points of mAP.",
            judge([stored[c] <= paper.OXFORD - paper.PQ_STORED[c] + MARGIN for c in (256,) if c in stored]),
            "Loss of mAP compared with float32 memory vectors (in brackets, the paper's values): U from Ŷ "
            f"{_format_losses(FROM_STORED, stored)}; U from Y {_format_losses(FROM_Y, losses[FROM_Y])}. Float32 "
            f"memory vectors have mAP {mean_ap(float32)} here; in the paper, that of exhaustive search. At c = 256, "
            f"one byte represents {result.plan.dim / 256:g} dimensions here, 8 in the paper.",
        ),
    ]


def _format_losses(name: str, losses: dict[int, float]) -> str:
    stated = {c: f" ({paper.OXFORD - value:.1f})" for c, value in _STATED[name].items()}
    return ", ".join(f"{loss:.1f}{stated.get(c, '')} at c={c}" for c, loss in losses.items())


def _draw(figure: Any, result: Result) -> None:
    axes = figure.subplots()
    cs = sorted(result.plan.cs)
    for name, style in _STYLES.items():
        plots.curve(axes, result.select(name), "c", name, style)
        points = [(c, paper.shift_to(result.exhaustive.mean, _STATED[name][c])) for c in cs if c in _STATED[name]]
        plots.paper_points(axes, points, style, f"{name}, paper")
    (float32,) = result.select("float32")
    label = f"float32 ({float32['mAP']:.1f})"
    axes.axhline(float32["mAP"], color=plots.BLUE, linestyle=":", linewidth=1.1, label=label)
    plots.log_axis(axes, "bytes per memory vector, c", cs)
    axes.set_ylabel(f"mAP ({result.protocol})")
    plots.exhaustive_line(axes, result.exhaustive.mean)
    plots.legend(figure)


PQ = Experiment(
    name="pq",
    title="Combination with product quantization",
    source="Table 2",
    description="Each memory vector is compressed to c bytes. L, m and the correction are those of LO-GT*; the "
    "paper does not state them.",
    columns=("system", "c", "mAP", "complexity", "memory", "bytes"),
    entries=_entries,
    claims=_claims,
    draw=_draw,
)
