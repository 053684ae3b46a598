"""Table 2: memory vectors of c bytes by product quantization, with U fitted to Y or to its stored form Ŷ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from logt.baselines import Composed
from logt.methods import quantized
from logt.reproduce import paper, plots
from logt.reproduce.claims import MARGIN, Claim, format_differences, judge, judge_above
from logt.reproduce.experiments.experiment import EXHAUSTIVE, Experiment, ExperimentResult, Row, make_row, mean_ap
from logt.reproduce.experiments.systems import local_system, variant_trial
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Measurements, Trial

FROM_Y, FROM_STORED = "U from Y", "U from Ŷ"
_FITS: dict[str, Literal["exact", "stored"]] = {FROM_Y: "exact", FROM_STORED: "stored"}
_STATED = {FROM_Y: paper.PQ_EXACT, FROM_STORED: paper.PQ_STORED}
_STYLES: dict[str, plots.Style] = {
    FROM_Y: {"color": plots.RED, "marker": "s", "linestyle": "--"},
    FROM_STORED: {"color": plots.BLUE, "marker": "o", "linestyle": "-"},
}


class QuantizationExperiment(Experiment):
    name = "pq"
    title = "Combination with product quantization"
    source = "Table 2"
    description = (
        "Each memory vector is compressed to c bytes. L, m and the correction are those of LO-GT*; the paper does "
        "not state them."
    )
    columns = ("system", "c", "mAP", "complexity", "memory", "bytes")

    def trials(self, plan: Plan) -> list[Trial]:
        return [EXHAUSTIVE, _float32_trial(plan), *_trials(plan).values()]

    def rows(self, plan: Plan, measurements: Measurements) -> list[Row]:
        float32 = make_row(measurements, _float32_trial(plan), system="float32", c=4 * plan.dim)
        return [
            float32,
            *(make_row(measurements, trial, system=name, c=c) for (name, c), trial in _trials(plan).items()),
        ]

    def claims(self, result: ExperimentResult) -> list[Claim]:
        pairs = result.pairs(FROM_STORED, FROM_Y, "c")
        (float32,) = result.select(system="float32")
        stored, exact = (_losses(result, name, float32) for name in (FROM_STORED, FROM_Y))
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
                f"{_format_losses(FROM_STORED, stored)}; U from Y {_format_losses(FROM_Y, exact)}. Float32 memory "
                f"vectors have mAP {mean_ap(float32)} here; in the paper, that of exhaustive search. At c = 256, one "
                f"byte represents {result.plan.dim / 256:g} dimensions here, 8 in the paper.",
            ),
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        axes = figure.subplots()
        cs = sorted(result.plan.cs)
        for name, style in _STYLES.items():
            plots.curve(axes, sorted(result.select(system=name), key=lambda row: row["c"]), "c", name, style)
        for name, style in _STYLES.items():
            shifted = {c: paper.shift_to(result.exhaustive.mean, value) for c, value in _STATED[name].items()}
            points = [(c, value) for c, value in shifted.items() if c in cs]
            plots.paper_points(axes, points, style, f"{name}, paper")
        (float32,) = result.select(system="float32")
        label = f"float32 ({float32['mAP']:.1f})"
        axes.axhline(float32["mAP"], color=plots.BLUE, linestyle=":", linewidth=1.1, label=label)
        axes.set(xscale="log", xlabel="bytes per memory vector, c", ylabel=f"mAP ({result.protocol})")
        axes.set_xticks(cs, labels=map(str, cs))
        axes.minorticks_off()
        plots.exhaustive_line(axes, result.exhaustive.mean)
        plots.legend(figure)


def _float32_trial(plan: Plan) -> Trial:
    return variant_trial("LO-GT*", local_system("LO-GT*", plan))


def _trials(plan: Plan) -> dict[tuple[str, int], Trial]:
    """Return the trials by what U is fitted to and the number of bytes."""
    return {
        (name, c): variant_trial("LO-GT*", _quantized_system(plan, fit, c))
        for name, fit in _FITS.items()
        for c in plan.cs
    }


def _quantized_system(plan: Plan, fit: Literal["exact", "stored"], c: int) -> Composed:
    plain = local_system("LO-GT*", plan)
    return replace(plain, method=quantized(plain.method, c=c, fit=fit), name=f"{plain.name} PQ {c} {fit}")


def _losses(result: ExperimentResult, name: str, float32: Row) -> dict[int, float]:
    """Return the loss of mAP by number of bytes."""
    return {row["c"]: float32["mAP"] - row["mAP"] for row in result.select(system=name)}


def _format_losses(name: str, losses: dict[int, float]) -> str:
    stated = {c: f" ({paper.OXFORD - value:.1f})" for c, value in _STATED[name].items()}
    return ", ".join(f"{loss:.1f}{stated.get(c, '')} at c={c}" for c, loss in losses.items())
