"""The systems of the comparison table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from logt.baselines import (
    HNSW,
    PCA,
    BackPropagation,
    Composed,
    Exhaustive,
    Faiss,
    Linked,
    MemoryVectors,
    Smoothed,
    System,
    Turbovec,
)
from logt.group_testing.grouping import KdTree, Random
from logt.group_testing.kmeans import KMeans
from logt.group_testing.memory_vectors import Pinv, Sum
from logt.methods import compact, gt, llc, with_random_units
from logt.reproduce.experiments.experiment import EXHAUSTIVE
from logt.reproduce.experiments.systems import default_index, dictionary_system, local_system, variant_trial
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Trial

LO_GT_CASCADE = "LO-GT* with cascade"
LO_GT_INT8 = "LO-GT*, int8"
LO_GT_SUMS = "LO-GT, sums"
UNIFORM_DICTIONARY = "dictionary + uniform sample"
SMOOTHED = "exhaustive, smoothed"
DIFFUSED = "LO-GT framework, diffused decoder"


@dataclass(frozen=True)
class Entry:
    """A row of the table: its name, its group in the figure, its trial, and the row of the paper's table."""

    name: str
    kind: str
    trial: Trial
    seeds: int = 1
    paper_row: str = ""


def table_entries(plan: Plan) -> list[Entry]:
    """Return all rows of the table."""
    return [
        Entry("exhaustive", "exhaustive", EXHAUSTIVE, paper_row="exhaustive"),
        *_group_testing(plan),
        *_memory_vectors(plan),
        *_learned(plan),
        *_local(plan),
        *_controls(plan),
        *_current_systems(plan),
    ]


def control_name(system: str) -> str:
    """Return the name of the control of LO-GT or RND: random units in place of S₁."""
    return f"{system}, S₀ + random units"


def _group_testing(plan: Plan) -> list[Entry]:
    transpose = Composed(gt(n=plan.n, m=plan.m), name="GT transpose")
    pinv = Composed(gt(n=plan.n, m=plan.m, inverse=True), name="GT pinv")
    entries = [
        Entry("GT transpose", "group testing", Trial.from_settings(transpose, timed=True)),
        Entry("GT pinv", "group testing", Trial.from_settings(pinv, timed=True), paper_row="GT pinv"),
    ]
    for fraction in plan.verified:
        verified = max(1, round(fraction * plan.count))
        trial = Trial.from_settings(BackPropagation(plan.n, plan.m), timed=True, verified=verified)
        paper_row = "GT back-propagation" if fraction == max(plan.verified) else ""
        name = f"GT back-propagation, R={fraction:.1%} of N"
        entries.append(Entry(name, "group testing", trial, paper_row=paper_row))
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
        Entry(
            f"memory vectors, {group_name}, {memory_name}",
            "memory vectors",
            Trial.from_settings(MemoryVectors(group, memory), timed=True, budget=budget),
        )
        for group_name, group in groups.items()
        for memory_name, memory in memories.items()
    ]


def _learned(plan: Plan) -> list[Entry]:
    systems: dict[str, System] = {
        "dictionary": dictionary_system(plan),
        "dictionary + coreset": dictionary_system(plan, coreset="sensitivity"),
        UNIFORM_DICTIONARY: dictionary_system(plan, coreset="uniform"),
        "LLC": Composed(llc(n=plan.n / plan.m), "LLC"),
    }
    stated = ("dictionary", "dictionary + coreset")
    return [
        Entry(name, "learned", Trial.from_settings(system, timed=True), paper_row=name if name in stated else "")
        for name, system in systems.items()
    ]


def _local(plan: Plan) -> list[Entry]:
    entries = [
        Entry(name, name.removesuffix("*"), variant_trial(name, local_system(name, plan), timed=True), plan.seeds)
        for name in ("RND", "RND*", "LO-GT", "LO-GT*")
    ]
    lo_gt = local_system("LO-GT*", plan)
    cascade = variant_trial("LO-GT*", lo_gt, timed=True, p=plan.p, R=plan.R)
    int8 = replace(lo_gt, method=compact(lo_gt.method), name=f"{lo_gt.name} in bytes")
    sums = replace(lo_gt, method=replace(lo_gt.method, memory=Sum()), name=f"{lo_gt.name}, sums")
    return [
        *entries,
        Entry(LO_GT_CASCADE, "LO-GT", cascade, plan.seeds, paper_row="LO-GT*"),
        Entry(LO_GT_INT8, "LO-GT", variant_trial("LO-GT*", int8, timed=True)),
        Entry(LO_GT_SUMS, "LO-GT", variant_trial("LO-GT", sums, timed=True)),
    ]


def _controls(plan: Plan) -> list[Entry]:
    entries = []
    for name in ("RND", "LO-GT"):
        plain = local_system(name, plan)
        control = replace(plain, method=with_random_units(plain.method), name=f"{plain.name}, S0 + random")
        entries.append(Entry(control_name(name), name, variant_trial(name, control, timed=True)))
    return entries


def _current_systems(plan: Plan) -> list[Entry]:
    truncated: dict[str, Any] = {"depth": plan.list_length, "timed": True}
    rho = plan.m / plan.n + plan.L / plan.dim
    lists = max(16, min(512, plan.count // 40))
    quantizers: dict[str, System] = {
        "faiss SQ8": Faiss("SQ8"),
        "faiss SQ4": Faiss("SQ4"),
        f"faiss PQ{plan.pq_bytes}": Faiss(f"PQ{plan.pq_bytes}np"),
        "faiss RaBitQ": Faiss("RaBitQ"),
        "turbovec 2 bit": Turbovec(2),
        "turbovec 4 bit": Turbovec(4),
    }
    inverted_file = Trial.from_settings(Faiss(f"IVF{lists},SQ8"), **truncated, nprobe=16)
    graph = Trial.from_settings(HNSW(), depth=256, timed=True, ef=256)
    return [
        Entry("logt (default)", "logt", Trial.from_settings(default_index(), **truncated)),
        Entry("logt, 4 bits", "logt", Trial.from_settings(default_index(bits=4), **truncated)),
        Entry(DIFFUSED, "logt", Trial.from_settings(Linked(default_index()), **truncated, rerank="diffusion")),
        Entry(SMOOTHED, "exhaustive", Trial.from_settings(Smoothed(Exhaustive()), timed=True)),
        Entry("PCA at LO-GT's cost", "PCA", Trial.from_settings(PCA(float(rho)), timed=True)),
        Entry("PCA at half LO-GT's cost", "PCA", Trial.from_settings(PCA(float(rho / 2)), timed=True)),
        *(Entry(name, "quantizers", Trial.from_settings(system, **truncated)) for name, system in quantizers.items()),
        Entry(f"faiss IVF{lists},SQ8", "partitions and graphs", inverted_file),
        Entry("faiss HNSW32", "partitions and graphs", graph),
    ]
