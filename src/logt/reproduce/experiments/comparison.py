"""Table 1: every system by complexity, memory, bytes, index time and mAP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logt import baselines
from logt.group_testing.grouping import KdTree, Random
from logt.group_testing.kmeans import KMeans
from logt.group_testing.memory_vectors import Pinv, Sum
from logt.methods import compact, gt, llc, with_random_units
from logt.reproduce import paper, plots
from logt.reproduce.experiments.comparison_claims import (
    DIFFUSED,
    LO_GT_CASCADE,
    LO_GT_INT8,
    LO_GT_SUMS,
    SMOOTHED,
    UNIFORM_DICTIONARY,
    comparison_claims,
    control_name,
)
from logt.reproduce.experiments.experiment import TRUNCATED, Entry, Experiment, Result
from logt.reproduce.experiments.systems import (
    cascade_trial,
    default_index,
    dictionary_system,
    hnsw_index,
    local_system,
    variant_trial,
)
from logt.reproduce.plan import Plan
from logt.reproduce.trials import EXHAUSTIVE, Trial

_STYLES: dict[str, plots.Style] = {
    "exhaustive": {"color": plots.BLACK, "marker": "*"},
    "group testing": {"color": plots.YELLOW, "marker": "P", "markeredgecolor": "0.3"},
    "memory vectors": {"color": plots.ORANGE, "marker": "X"},
    "learned": {"color": plots.PURPLE, "marker": "s"},
    "RND": {"color": plots.RED, "marker": "^"},
    "LO-GT": {"color": plots.BLUE, "marker": "o"},
    "logt": {"color": plots.GREEN, "marker": "D"},
    "PCA": {"color": "0.45", "marker": "v"},
    "quantizers": {"color": plots.SKY, "marker": "p"},
    "partitions and graphs": {"color": "0.7", "marker": "h"},
}
_LOWEST = 0.6  # of the mAP of exhaustive search: lower values are counted, not drawn
_LABEL_OFFSETS = {"dictionary": (5, -9), LO_GT_CASCADE: (3, 6), "logt (default)": (3, 6), DIFFUSED: (5, -10)}
"""Systems with a label in the figure, and its offset from the marker; the label is on the left if x is negative."""


def _entry(name: str, kind: str, trial: Trial, *, seeds: int = 1, paper_row: str | None = None) -> Entry:
    """Return a row of the table. kind: its group in the figure. paper_row: that of the paper's table, if any."""
    labels: dict[str, Any] = {"system": name, "kind": kind}
    if paper_row is not None:
        stated = paper.TABLE[paper_row]
        labels["paper: complexity"], labels["paper: memory"] = stated.complexity, stated.memory
        labels["paper: mAP minus exhaustive"] = stated.oxford - paper.OXFORD
        labels["paper: minutes (32 cores)"] = stated.minutes
    return Entry(labels, replace(trial, timed=True), seeds)


def _entries(plan: Plan) -> list[Entry]:
    return [
        _entry("exhaustive", "exhaustive", EXHAUSTIVE, paper_row="exhaustive"),
        *_group_testing(plan),
        *_memory_vectors(plan),
        *_learned(plan),
        *_local(plan),
        *_current_systems(plan),
    ]


def _group_testing(plan: Plan) -> list[Entry]:
    transpose = baselines.Composed(gt(n=plan.n, m=plan.m))
    pinv = baselines.Composed(gt(n=plan.n, m=plan.m, inverse=True))
    entries = [
        _entry("GT transpose", "group testing", Trial(transpose)),
        _entry("GT pinv", "group testing", Trial(pinv), paper_row="GT pinv"),
    ]
    for fraction in plan.verified:
        verified = max(1, round(fraction * plan.count))
        trial = Trial(baselines.BackPropagation(plan.n, plan.m), {"verified": verified})
        paper_row = "GT back-propagation" if fraction == max(plan.verified) else None
        name = f"GT back-propagation, R={fraction:.1%} of N"
        entries.append(_entry(name, "group testing", trial, paper_row=paper_row))
    return entries


def _memory_vectors(plan: Plan) -> list[Entry]:
    budget = round(plan.probed * plan.count)
    groups: dict[str, Random | KMeans | KdTree] = {
        "random": Random(plan.memory_vectors_n, 1),
        "k-means": KMeans(n=plan.memory_vectors_n),
        "kd-tree": KdTree(plan.memory_vectors_n, 1),
    }
    memories: dict[str, Sum | Pinv] = {"sum": Sum(), "pinv": Pinv()}
    return [
        _entry(
            f"memory vectors, {group_name}, {memory_name}",
            "memory vectors",
            Trial(baselines.MemoryVectors(group, memory), {"budget": budget}),
        )
        for group_name, group in groups.items()
        for memory_name, memory in memories.items()
    ]


def _learned(plan: Plan) -> list[Entry]:
    systems: dict[str, baselines.System] = {
        "dictionary": dictionary_system(plan),
        "dictionary + coreset": dictionary_system(plan, coreset="sensitivity"),
        UNIFORM_DICTIONARY: dictionary_system(plan, coreset="uniform"),
        "LLC": baselines.Composed(llc(n=plan.n / plan.m)),
    }
    return [
        _entry(name, "learned", Trial(system), paper_row=name if name in paper.TABLE else None)
        for name, system in systems.items()
    ]


def _local(plan: Plan) -> list[Entry]:
    """Return LO-GT and RND, changes of LO-GT, and the controls: random units in place of S₁."""
    entries = [
        _entry(name, name.removesuffix("*"), variant_trial(name, local_system(name, plan)), seeds=plan.seeds)
        for name in ("RND", "RND*", "LO-GT", "LO-GT*")
    ]
    lo_gt, cascade = local_system("LO-GT*", plan), cascade_trial("LO-GT*", plan, plan.p)
    method: Any = lo_gt.method
    int8 = replace(lo_gt, method=compact(method))
    sums = replace(lo_gt, method=replace(method, memory=Sum()))
    entries += [
        _entry(LO_GT_CASCADE, "LO-GT", cascade, seeds=plan.seeds, paper_row="LO-GT*"),
        _entry(LO_GT_INT8, "LO-GT", variant_trial("LO-GT*", int8)),
        _entry(LO_GT_SUMS, "LO-GT", variant_trial("LO-GT", sums)),
    ]
    for name in ("RND", "LO-GT"):
        plain = local_system(name, plan)
        control = replace(plain, method=with_random_units(plain.method))
        entries.append(_entry(control_name(name), name, variant_trial(name, control)))
    return entries


def _current_systems(plan: Plan) -> list[Entry]:
    def truncated(system: baselines.System, **settings: Any) -> Trial:
        return Trial(system, settings, depth=plan.list_length)

    rho = plan.m / plan.n + plan.L / plan.dim
    lists = max(16, min(512, plan.count // 40))
    quantizers: dict[str, baselines.System] = {
        "faiss SQ8": baselines.Faiss("SQ8"),
        "faiss SQ4": baselines.Faiss("SQ4"),
        f"faiss PQ{plan.pq_bytes}": baselines.Faiss(f"PQ{plan.pq_bytes}np"),
        "faiss RaBitQ": baselines.Faiss("RaBitQ"),
        "turbovec 2 bit": baselines.Turbovec(2),
        "turbovec 4 bit": baselines.Turbovec(4),
    }
    inverted_file = truncated(baselines.Faiss(f"IVF{lists},SQ8"), nprobe=16)
    return [
        _entry("logt (default)", "logt", truncated(default_index())),
        _entry("logt, 4 bits", "logt", truncated(default_index(bits=4))),
        _entry(DIFFUSED, "logt", truncated(baselines.Linked(default_index()), rerank="diffusion")),
        _entry(SMOOTHED, "exhaustive", Trial(baselines.Smoothed(baselines.Exhaustive()))),
        _entry("PCA at LO-GT's cost", "PCA", Trial(baselines.PCA(float(rho)))),
        _entry("PCA at half LO-GT's cost", "PCA", Trial(baselines.PCA(float(rho / 2)))),
        *(_entry(name, "quantizers", truncated(system)) for name, system in quantizers.items()),
        _entry(f"faiss IVF{lists},SQ8", "partitions and graphs", inverted_file),
        _entry("faiss HNSW32", "partitions and graphs", Trial(hnsw_index(), {"ef": 256}, depth=256)),
    ]


def _draw(figure: Any, result: Result) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_systems(left, result, "complexity")
    _draw_systems(right, result, "bytes per vector")
    stated = [row for name, row in paper.TABLE.items() if name != "exhaustive"]
    points = [(row.complexity, paper.shift_to(result.exhaustive.mean, row.oxford)) for row in stated]
    plots.paper_points(left, points, {"marker": "o", "color": "0.2"}, "stated in the paper")
    left.set(xlabel="complexity ratio ρ", ylabel=f"mAP ({result.protocol}), lists of {result.plan.list_length:,}")
    right.set_xlabel("bytes per vector")
    plots.legend(figure)


def _draw_systems(axes: Any, result: Result, x: str) -> None:
    """Plot the mAP of all systems over a column."""
    for kind, style in _STYLES.items():
        rows = result.select(kind=kind)
        axes.plot([row[x] for row in rows], [row[TRUNCATED] for row in rows], linestyle="none", label=kind, **style)
    for row in result.select(*_LABEL_OFFSETS):
        plots.annotate(axes, (row[x], row[TRUNCATED]), row["system"], _LABEL_OFFSETS[row["system"]])
    axes.set_xscale("log")
    plots.plain_log_ticks(axes.xaxis)
    (exhaustive,) = result.select("exhaustive")
    axes.axhline(exhaustive[TRUNCATED], **plots.EXHAUSTIVE_LINE)
    lowest = _LOWEST * exhaustive[TRUNCATED]
    below = sum(row[TRUNCATED] < lowest for row in result.select())
    axes.set_ylim(bottom=lowest)
    if below:
        text = f"{below} more systems below"
        axes.text(0.02, 0.02, text, transform=axes.transAxes, fontsize="x-small", color="0.4")


COMPARISON = Experiment(
    name="comparison",
    title="Comparison with other methods",
    source="Table 1",
    description="Complexity and memory as the paper counts them, and the true number of bytes. For GT pinv, the "
    "counts are those of the dense G⁺; the implementation stores G and solves the same equations for each query. "
    "The diffused decoder re-ranks by diffusion; its complexity is that of the search before.",
    columns=(
        *("system", "complexity", "memory", "bytes per vector", "index seconds", "mAP", "deviation", TRUNCATED),
        *("list depth", "ms", "time ratio", "paper: complexity", "paper: memory", "paper: mAP minus exhaustive"),
        "paper: minutes (32 cores)",
    ),
    entries=_entries,
    claims=comparison_claims,
    draw=_draw,
    figure_size=(9.0, 4.0),
)
