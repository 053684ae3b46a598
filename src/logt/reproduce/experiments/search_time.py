"""Seconds instead of counts: our searches, HNSW and FLANN against exhaustive search, all on one thread."""

from __future__ import annotations

from typing import Any, Literal

from logt.baselines.external import HNSW, Flann
from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, Test, judged, reaches
from logt.reproduce.experiments.accuracy import cascades, sparse
from logt.reproduce.experiments.experiment import BASELINE, CUT, Experiment, Found, Row, index_time, mean_of, row_of
from logt.reproduce.experiments.systems import Sampled, default_index
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Results, Trial

BY_L, BY_P, OURS, GRAPH = "LO-GT*-L", "LO-GT*-p", "logt", "HNSW"
TUNED = "FLANN autotuned"
TREES: dict[Literal["kdtree", "kmeans"], str] = {"kdtree": "FLANN kd-trees", "kmeans": "FLANN k-means tree"}


def ours(plan: Plan) -> dict[tuple[str, str], Trial]:
    """LO-GT* by L and by p, and the default index by effort; timed.

    A full list would make the default index read everything, whatever the effort.
    """
    by_L = {(BY_L, f"L={L}"): t for (name, L), t in sparse(plan, timed=True).items() if name == "LO-GT*"}
    by_p = {(BY_P, f"p={p:.0%}"): t for (name, p), t in cascades(plan, timed=True).items() if name == "LO-GT*"}
    default = {
        (OURS, f"effort={e}"): Trial.of(default_index(), depth=plan.cut, timed=True, effort=e) for e in plan.efforts
    }
    return {**by_L, **by_p, **default}


def _with_graph(plan: Plan) -> dict[tuple[str, str], Trial]:
    """A graph's lists are as long as what it keeps: ef."""
    graph = {
        (GRAPH, f"ef={ef}"): Trial.of(HNSW(), depth=ef, timed=True, ef=ef) for ef in plan.efs if ef <= plan.count
    }
    return {**ours(plan), **graph}


def _with_flann(plan: Plan) -> dict[tuple[str, str], Trial]:
    """FLANN as it tunes itself on a sample, and its two kinds of trees over all vectors by how many it looks at."""
    tuned = Sampled(Flann(paper.FLANN_PRECISION), min(plan.flann_sample, plan.count))
    made: dict[tuple[str, str], Trial] = {(TUNED, f"{tuned.count:,} vectors"): Trial.of(tuned, depth=1)}
    for algorithm, name in TREES.items():
        for part in plan.checks:
            looked = max(1, round(part * plan.count))
            trial = Trial.of(Flann(algorithm=algorithm), depth=min(plan.cut, looked), timed=True, checks=looked)
            made[name, f"checks={looked:,}"] = trial
    return {**made, **ours(plan)}


def _experiment(of: Any, **words: Any) -> Experiment:
    def trials(plan: Plan) -> list[Trial]:
        return [BASELINE, *of(plan).values()]

    def rows(plan: Plan, results: Results) -> list[Row]:
        first = row_of(results, BASELINE, system="exhaustive", setting="")
        others = [row_of(results, t, system=name, setting=setting) for (name, setting), t in of(plan).items()]
        return [first, *map(_without_map_of_samples, others)]

    columns = ("system", "setting", "mAP", CUT, "list depth", "complexity", "time ratio", "time ratio, batch", "ms")
    return Experiment(columns=columns, trials=trials, rows=rows, **words)


def _without_map_of_samples(row: Row) -> Row:
    if row["system"] != TUNED or row["note"]:
        return row
    kept = {name: row[name] for name in ("system", "setting", "complexity", "index seconds")}
    return {**kept, "note": "a sample: its speed-up only"}


def _local(found: Found) -> list[Row]:
    return [row for row in found.of() if row["system"] in (BY_L, BY_P)]


# ------------------------------------------------------------------------------------------------- claims


def _of_time(found: Found) -> list[Claim]:
    near = min(found.of(system=BY_P), key=lambda row: abs(row["complexity"] - paper.TIME.rho))
    cheapest = [row for row in _local(found) if reaches(mean_of(row), found.base)]
    best = min(found.of(system=OURS), key=lambda row: (not reaches(mean_of(row), found.base), row["time ratio"]))
    if cheapest:
        quickest = min(row["time ratio"] for row in cheapest)
        level = f"The quickest setting with the mAP of exhaustive search takes {quickest:.3f}."
    else:
        level = "No setting of LO-GT* has the mAP of exhaustive search here."
    return [
        Claim(
            f"At ρ = {paper.TIME.rho}, a search takes {paper.TIME.ratio:.2f} of the time of exhaustive search "
            f"({paper.TIME.ours} s of {paper.TIME.exhaustive} s).",
            judged([near["time ratio"] <= 1.1 * paper.TIME.ratio]),
            f"{near['setting']}, at ρ = {near['complexity']:.2f}: {near['ms']:.2f} ms of "
            f"{near['ms exhaustive']:.2f} ms, {near['time ratio']:.3f}; {near['time ratio, batch']:.3f} in a batch. "
            f"{level} The default index at {best['setting']}: mAP {mean_of(best)} in {best['time ratio']:.4f} of "
            "the time.",
        )
    ]


def _of_graph(found: Found) -> list[Claim]:
    graph, mine = found.of(system=GRAPH), _local(found)
    if not graph or not mine:
        return [Claim("LO-GT* clearly outperforms HNSW.", "not tested", "HNSW was not measured.")]
    told: list[str] = []
    tests: list[Test] = []
    for row in graph:
        as_quick = [r[CUT] for r in mine if r["time ratio"] <= row["time ratio"]]
        tests.append(_leads(as_quick, row, found.plan.cut))
        best = f"{max(as_quick):.1f}" if as_quick else "none"
        told.append(f"{row['setting']} {row[CUT]:.1f} in {row['time ratio']:.3f} (LO-GT* as quick: {best})")
    counted = [
        _leads([r[CUT] for r in mine if r["complexity"] <= row["time ratio"]], row, found.plan.cut) for row in graph
    ]
    largest = max(row["bytes"] for row in mine)
    return [
        Claim(
            "LO-GT* clearly outperforms HNSW at the same share of exhaustive search's time.",
            judged(tests),
            "; ".join(told) + ".",
        ),
        Claim(
            "It also does so when its complexity is counted in operations and that of HNSW in seconds.",
            judged(counted),
            f"LO-GT* is above at {counted.count(True)} of {len(counted)} settings of HNSW, below at "
            f"{counted.count(False)}.",
        ),
        Claim(
            "It needs a significantly smaller memory footprint than HNSW.",
            judged([largest < 0.9 * graph[0]["bytes"]]),
            f"{largest / found.plan.count:,.0f} bytes per vector at most, against "
            f"{graph[0]['bytes'] / found.plan.count:,.0f}.",
        ),
    ]


def _leads(ours: list[float], graph: Row, cut: int) -> Test:
    """Whether one of ours is above a graph's; unknown where that may be because the graph's list is short."""
    if not ours or max(ours) <= graph[CUT]:
        return False
    return True if graph["list depth"] >= cut else None


def _of_flann(found: Found) -> list[Claim]:
    mine = _local(found)
    cheap = [
        row for row in mine if row["complexity"] <= paper.FLANN_OURS + 0.005 and reaches(mean_of(row), found.base)
    ]
    at_cost = Claim(
        f"LO-GT has the mAP of exhaustive search at ρ = {paper.FLANN_OURS}.",
        judged([bool(cheap)]),
        f"{len(cheap)} of {len(mine)} settings do.",
    )
    tuned = [row for row in found.rows if row["system"] == TUNED and "complexity" in row]
    trees = [row for row in found.of() if row["system"] in TREES.values()]
    said = (
        f"FLANN, tuned to a precision of {paper.FLANN_PRECISION}, is only {paper.FLANN_SPEEDUP} times as fast as "
        f"exhaustive search: a ratio of {paper.FLANN_RATIO}."
    )
    if not trees or not tuned:
        return [Claim(said, "not tested", "FLANN was not measured."), at_cost]
    precise = [row for row in trees if row["recall@1"] >= paper.FLANN_PRECISION]
    best = min(precise, key=lambda row: row["time ratio"]) if precise else max(trees, key=lambda row: row["recall@1"])
    slow = best["time ratio"] >= 0.8 * paper.FLANN_RATIO
    quicker = [row for row in mine if row["time ratio"] < best["time ratio"] and row[CUT] >= best[CUT]]
    return [
        Claim(
            said,
            judged([slow] if precise or slow else []),
            f"Over all vectors, the {'quickest' if precise else 'most precise'} of its trees, {best['system']} with "
            f"{best['setting']}, finds the nearest {best['recall@1']:.0%} of times in {best['time ratio']:.3f} of "
            f"exhaustive search's time, with mAP {best[CUT]:.1f} in lists of {best['list depth']:,}. Tuned by "
            f"itself on {tuned[0]['setting']}, FLANN states a speed-up of {1 / tuned[0]['complexity']:.2f}, after "
            f"{index_time(tuned[0])}.",
        ),
        at_cost,
        Claim(
            "LO-GT* is quicker than FLANN at the accuracy of FLANN.",
            judged([bool(quicker)]),
            f"{len(quicker)} of {len(mine)} settings of LO-GT* are both quicker and as accurate as that.",
            asked=True,
        ),
    ]


# ------------------------------------------------------------------------------------------------- figures

_STYLES: dict[str, plots.Style] = {
    BY_L: {"color": plots.BLUE, "marker": "o"},
    BY_P: {"color": plots.SKY, "marker": "s"},
    OURS: {"color": plots.GREEN, "marker": "D"},
    GRAPH: {"color": plots.RED, "marker": "^"},
}


def _draw_time(figure: Any, found: Found) -> None:
    axes = figure.subplots()
    for name in (BY_L, BY_P):
        rows = sorted(found.of(system=name), key=lambda row: row["complexity"])
        for x, line in (("time ratio", "-"), ("time ratio, batch", ":")):
            label = f"{name}, {'one query' if line == '-' else 'batch'}"
            plots.curve(axes, rows, "complexity", label, {**_STYLES[name], "linestyle": line}, y=x)
    plots.stated(axes, [(paper.TIME.rho, paper.TIME.ratio)], {"marker": "o", "color": plots.BLUE}, "LO-GT*, paper")
    low, high = axes.get_xlim()
    axes.plot([low, high], [low, high], color="0.5", linestyle="--", linewidth=1, label="time as counted")
    axes.axhline(1.0, color=plots.BLACK, linestyle=(0, (5, 3)), linewidth=1.1, label="exhaustive search")
    axes.set(
        xlabel="complexity ratio ρ, as counted", ylabel="time, of exhaustive search", xlim=(low, high), ylim=(0, None)
    )
    plots.legend(figure)


def _draw_graph(figure: Any, found: Found) -> None:
    axes = figure.subplots()
    for name in (BY_P, BY_L, OURS, GRAPH):
        rows = found.of(system=name)
        for x, line, label in (("time ratio", "-", f"{name} (s)"), ("complexity", "--", f"{name} (ρ)")):
            if line == "-" or name in (BY_L, BY_P):
                ordered = sorted(rows, key=lambda row, x=x: row[x])  # type: ignore[misc]
                fill = {} if line == "-" else {"markerfacecolor": "none", "alpha": 0.7}
                plots.curve(axes, ordered, x, label, {**_STYLES[name], "linestyle": line, **fill}, y=CUT)
    (exhaustive,) = found.of(system="exhaustive")
    axes.set(xscale="log", xlabel="share of exhaustive search: seconds (s), operations (ρ)")
    axes.set_ylabel(f"mAP ({found.protocol}), lists of {found.plan.cut:,}")
    plots.plain_log(axes.xaxis)
    plots.baseline(axes, exhaustive[CUT])
    plots.legend(figure)


def _draw_flann(figure: Any, found: Found) -> None:
    axes = figure.subplots()
    styles = {
        "FLANN kd-trees": {"color": plots.RED, "marker": "^"},
        "FLANN k-means tree": {"color": plots.ORANGE, "marker": "v"},
        **{name: _STYLES[name] for name in (BY_L, BY_P, OURS)},
    }
    for name, style in styles.items():
        rows = sorted(found.of(system=name), key=lambda row: row["time ratio"])
        plots.curve(axes, rows, "time ratio", name, {**style, "linestyle": "-"}, y=CUT)
    label = "FLANN, its time in the paper"
    axes.axvline(paper.FLANN_RATIO, color=plots.RED, linestyle=":", linewidth=1.1, label=label)
    (exhaustive,) = found.of(system="exhaustive")
    axes.set(xscale="log", xlabel="time of one query, of exhaustive search")
    axes.set_ylabel(f"mAP ({found.protocol}), lists of {found.plan.cut:,}")
    plots.plain_log(axes.xaxis)
    plots.baseline(axes, exhaustive[CUT])
    plots.legend(figure)


TIME = _experiment(
    ours,
    name="time",
    title="Actual search time",
    where="Section 4.2",
    asks="Searches on one thread, in turn with exhaustive search by BLAS; sparse by L, and in cascade by p.",
    claims=_of_time,
    draw=_draw_time,
)
FLANN = _experiment(
    _with_flann,
    name="flann",
    title="Comparison with partitioning: FLANN",
    where="Section 4.3",
    asks=f"FLANN tunes itself to find the nearest vector with a precision of {paper.FLANN_PRECISION}. For that it "
    "times searches at some hundred settings, so it does it on a sample; over all vectors, its kd-trees and its "
    "k-means tree look at so many vectors (checks), and list as many, up to the cut.",
    claims=_of_flann,
    draw=_draw_flann,
)
GRAPHS = _experiment(
    _with_graph,
    name="hnsw",
    title="Comparison with graphs: HNSW",
    where="Figure 5, right",
    asks="mAP against the share of exhaustive search's time (s), or of its operations (ρ). HNSW of faiss, M = 32, "
    "over float32 vectors. Its lists are as long as ef, and shorter lists have less mAP: where LO-GT* is above a "
    "shorter one, that is not counted for it.",
    claims=_of_graph,
    draw=_draw_graph,
)
