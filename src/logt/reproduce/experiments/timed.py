"""Sections 4.2 and 4.3, and figure 5, right: search times of LO-GT* next to exhaustive search, FLANN and HNSW."""

from typing import Any, Literal

from logt import baselines
from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, Outcome, judge, reaches
from logt.reproduce.experiments.experiment import (
    Entry,
    Experiment,
    Result,
    Row,
    format_index_time,
    format_setting,
    mean_ap,
)
from logt.reproduce.experiments.systems import Sampled, cascade_trial, default_index, sparse_trial
from logt.reproduce.plan import Plan
from logt.reproduce.trials import EXHAUSTIVE, TRUNCATED, Trial

BY_L, BY_P, DEFAULT = "LO-GT*, by L", "LO-GT*, by p", "logt"
TUNED, GRAPH = "FLANN autotuned", "HNSW"
TREES: dict[Literal["kdtree", "kmeans"], str] = {"kdtree": "FLANN kd-trees", "kmeans": "FLANN k-means tree"}
_STYLES: dict[str, plots.Style] = {
    BY_L: {"color": plots.BLUE, "marker": "o"},
    BY_P: {"color": plots.SKY, "marker": "s"},
    DEFAULT: {"color": plots.GREEN, "marker": "D"},
    GRAPH: {"color": plots.RED, "marker": "^"},
    TREES["kdtree"]: {"color": plots.RED, "marker": "^"},
    TREES["kmeans"]: {"color": plots.ORANGE, "marker": "v"},
}
_COLUMNS = (
    *("system", "setting", "mAP", TRUNCATED, "list depth"),
    *("complexity", "time ratio", "time ratio, batch", "ms"),
)


def _entry(system: str, setting: str, trial: Trial) -> Entry:
    return Entry({"system": system, "setting": setting}, trial)


def _own_entries(plan: Plan) -> list[Entry]:
    """Return exhaustive search, LO-GT* by L and by p, and the default index by effort.

    The default index lists fewer than all vectors, because a full ranking would scan everything at any effort.
    """

    def default(effort: float) -> Trial:
        return Trial(default_index(), {"effort": effort}, depth=plan.list_length, timed=True)

    return [
        _entry("exhaustive", "", EXHAUSTIVE),
        *(_entry(BY_L, format_setting("L", L), sparse_trial("LO-GT*", plan, L, timed=True)) for L in plan.Ls),
        *(_entry(BY_P, format_setting("p", p), cascade_trial("LO-GT*", plan, p, timed=True)) for p in plan.ps),
        *(_entry(DEFAULT, format_setting("effort", effort), default(effort)) for effort in plan.efforts),
    ]


def _draw_over_time(axes: Any, result: Result, name: str, label: str) -> None:
    plots.curve(axes, result.select(name), "time ratio", label, {**_STYLES[name], "linestyle": "-"}, y=TRUNCATED)


def _finish_axes(figure: Any, axes: Any, result: Result, xlabel: str) -> None:
    """Add the axis labels, exhaustive search and the legend to a figure of truncated mAP over time."""
    (exhaustive,) = result.select("exhaustive")
    axes.set(xscale="log", xlabel=xlabel)
    axes.set_ylabel(f"mAP ({result.protocol}), lists of {result.plan.list_length:,}")
    plots.plain_log_ticks(axes.xaxis)
    plots.exhaustive_line(axes, exhaustive[TRUNCATED])
    plots.legend(figure)


# ---------------------------------------------------------------------------------------------- search time


def _time_claims(result: Result) -> list[Claim]:
    near = min(result.select(BY_P), key=lambda row: abs(row["complexity"] - paper.TIME_RHO))
    return [
        Claim(
            f"At ρ = {paper.TIME_RHO}, the time ratio to exhaustive search is {paper.TIME_RATIO:.2f} "
            f"({paper.LO_GT_SECONDS} s and {paper.EXHAUSTIVE_SECONDS} s).",
            judge([near["time ratio"] <= 1.1 * paper.TIME_RATIO]),
            f"{near['setting']}, at ρ = {near['complexity']:.2f}: {near['ms']:.2f} ms, exhaustive search "
            f"{near['ms exhaustive']:.2f} ms, a ratio of {near['time ratio']:.3f} "
            f"({near['time ratio, batch']:.3f} in a batch). With the mAP of exhaustive search: "
            f"{_fastest('LO-GT*', result, BY_L, BY_P)}, {_fastest('the default index', result, DEFAULT)}.",
        )
    ]


def _fastest(name: str, result: Result, *systems: str) -> str:
    """Return the lowest time ratio of some systems that have the mAP of exhaustive search, as text."""
    accurate = [row["time ratio"] for row in result.select(*systems) if reaches(mean_ap(row), result.exhaustive)]
    return f"{name} at a ratio of {min(accurate):.4f}" if accurate else f"no setting of {name}"


def _draw_time(figure: Any, result: Result) -> None:
    axes = figure.subplots()
    for name in (BY_L, BY_P):
        for y, line, queries in (("time ratio", "-", "one query"), ("time ratio, batch", ":", "batch")):
            style = {**_STYLES[name], "linestyle": line}
            plots.curve(axes, result.select(name), "complexity", f"{name}, {queries}", style, y=y)
    stated = [(paper.TIME_RHO, paper.TIME_RATIO)]
    plots.paper_points(axes, stated, {"marker": "o", "color": plots.BLUE}, "LO-GT*, paper")
    low, high = axes.get_xlim()
    axes.plot([low, high], [low, high], color="0.5", linestyle="--", linewidth=1, label="time ratio = ρ")
    axes.axhline(1.0, **plots.EXHAUSTIVE_LINE, label="exhaustive search")
    axes.set(xlabel="complexity ratio ρ", ylabel="time ratio to exhaustive search", xlim=(low, high), ylim=(0, None))
    plots.legend(figure)


TIME = Experiment(
    name="time",
    title="Search time",
    source="Section 4.2",
    description="Searches on one thread, in turn with exhaustive search by BLAS: the sparse decoder by L, the "
    "cascade by p, and the default index by effort.",
    columns=_COLUMNS,
    entries=_own_entries,
    claims=_time_claims,
    draw=_draw_time,
)


# ---------------------------------------------------------------------------------------------------- FLANN


def _flann_entries(plan: Plan) -> list[Entry]:
    """Return FLANN tuned on a sample, and both kinds of trees on all vectors by their number of checks."""
    tuned = Sampled(baselines.Flann(paper.FLANN_PRECISION), min(plan.flann_sample, plan.count))
    entries = [_entry(TUNED, f"{tuned.count:,} vectors", Trial(tuned, depth=0))]
    for algorithm, name in TREES.items():
        for fraction in plan.flann_checks:
            checks = max(1, round(fraction * plan.count))
            depth = min(plan.list_length, checks)
            trial = Trial(baselines.Flann(algorithm=algorithm), {"checks": checks}, depth=depth, timed=True)
            entries.append(_entry(name, f"checks={checks:,}", trial))
    return [*entries, *_own_entries(plan)]


def _flann_claims(result: Result) -> list[Claim]:
    statement = (
        f"FLANN, tuned to a precision of {paper.FLANN_PRECISION}, is only {paper.FLANN_SPEEDUP} times as fast as "
        f"exhaustive search: a time ratio of {paper.FLANN_RATIO}."
    )
    tuned = [row for row in result.rows if row["system"] == TUNED and "complexity" in row]
    trees = result.select(*TREES.values())
    if not trees or not tuned:
        return [Claim(statement, "not tested", "FLANN was not measured."), _accuracy_of_lo_gt(result)]
    precise = [row for row in trees if row["recall@1"] >= paper.FLANN_PRECISION]
    best = min(precise or trees, key=lambda row: row["time ratio"] if precise else -row["recall@1"])
    slow = best["time ratio"] >= 0.8 * paper.FLANN_RATIO
    evidence = (
        f"On all vectors, the {'fastest tree with that precision' if precise else 'most precise tree'} is "
        f"{best['system']} with {best['setting']}. It finds the nearest vector for {best['recall@1']:.0%} of the "
        f"queries at a time ratio of {best['time ratio']:.3f}, with mAP {best[TRUNCATED]:.1f} for lists of "
        f"{best['list depth']:,}. Tuned on {tuned[0]['setting']}, FLANN reports a speed-up of "
        f"{1 / tuned[0]['complexity']:.2f}; tuning took {format_index_time(tuned[0])}."
    )
    return [Claim(statement, judge([slow] if precise or slow else []), evidence), _accuracy_of_lo_gt(result)]


def _accuracy_of_lo_gt(result: Result) -> Claim:
    rows = result.select(BY_L, BY_P)
    cheap = [row for row in rows if row["complexity"] <= paper.FLANN_LO_GT + 0.005]
    accurate = [row for row in cheap if reaches(mean_ap(row), result.exhaustive)]
    return Claim(
        f"LO-GT reaches the mAP of exhaustive search at ρ = {paper.FLANN_LO_GT}.",
        judge([bool(accurate)]),
        f"{len(accurate)} of {len(rows)} settings do.",
    )


def _draw_flann(figure: Any, result: Result) -> None:
    axes = figure.subplots()
    for name in (*TREES.values(), BY_L, BY_P, DEFAULT):
        _draw_over_time(axes, result, name, name)
    label = "time ratio of FLANN in the paper"
    axes.axvline(paper.FLANN_RATIO, color=plots.RED, linestyle=":", linewidth=1.1, label=label)
    _finish_axes(figure, axes, result, "time ratio to exhaustive search, one query")


FLANN = Experiment(
    name="flann",
    title="Comparison with partitioning: FLANN",
    source="Section 4.3",
    description=f"FLANN tunes itself to find the nearest vector with a precision of {paper.FLANN_PRECISION}. "
    "Tuning runs searches at about a hundred settings, so it is done on a sample. On all vectors, the kd-trees "
    "and the k-means tree of FLANN compare a given number of vectors (checks) and return as many results, up to "
    "the length of truncated lists.",
    columns=_COLUMNS,
    entries=_flann_entries,
    claims=_flann_claims,
    draw=_draw_flann,
)


# ----------------------------------------------------------------------------------------------------- HNSW


def _hnsw_entries(plan: Plan) -> list[Entry]:
    trials = {ef: Trial(baselines.HNSW(), {"ef": ef}, depth=ef, timed=True) for ef in plan.efs if ef <= plan.count}
    return [*_own_entries(plan), *(_entry(GRAPH, format_setting("ef", ef), trial) for ef, trial in trials.items())]


def _hnsw_claims(result: Result) -> list[Claim]:
    graph, lo_gt = result.select(GRAPH), result.select(BY_L, BY_P)
    if not graph:
        return [Claim("LO-GT* clearly outperforms HNSW.", "not tested", "HNSW was not measured.")]
    length = result.plan.list_length
    by_time = [_outperforms(_as_fast(lo_gt, "time ratio", row), row, length) for row in graph]
    by_operations = [_outperforms(_as_fast(lo_gt, "complexity", row), row, length) for row in graph]
    largest, graph_size = max(row["bytes per vector"] for row in lo_gt), graph[0]["bytes per vector"]
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
            judge([largest < 0.9 * graph_size]),
            f"LO-GT*: at most {largest:,.0f} bytes per vector; HNSW: {graph_size:,.0f}.",
        ),
    ]


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


def _draw_hnsw(figure: Any, result: Result) -> None:
    axes = figure.subplots()
    for name in (BY_P, BY_L, DEFAULT, GRAPH):
        _draw_over_time(axes, result, name, f"{name} (s)")
        if name in (BY_L, BY_P):
            style = {**_STYLES[name], "linestyle": "--", "markerfacecolor": "none", "alpha": 0.7}
            plots.curve(axes, result.select(name), "complexity", f"{name} (ρ)", style, y=TRUNCATED)
    _finish_axes(figure, axes, result, "ratio to exhaustive search: time (s), operations (ρ)")


HNSW = Experiment(
    name="hnsw",
    title="Comparison with graphs: HNSW",
    source="Figure 5 (right)",
    description="mAP over the ratio to exhaustive search, in time (s) or in operations (ρ). HNSW is that of "
    "faiss with M = 32 over float32 vectors. It returns ef results, and a short list has a lower mAP. If LO-GT* "
    "is only above a shorter list of HNSW, this does not count as an advantage.",
    columns=_COLUMNS,
    entries=_hnsw_entries,
    claims=_hnsw_claims,
    draw=_draw_hnsw,
)
