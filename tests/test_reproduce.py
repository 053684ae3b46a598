"""All experiments of the paper on a very small collection, run once; then the stored points, claims and report."""

import csv
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from exact_index import assert_same

from logt import InvalidInputError, MissingExtraError
from logt._internal.threads import Workers
from logt.baselines import Composed, Exhaustive, external
from logt.datasets import synthetic_benchmark
from logt.methods import compact, lo_gt, quantized, rnd, starred
from logt.reproduce import EXPERIMENTS, Plan, Run
from logt.reproduce.claims import Claim, SeedMean, above, equal, judge, judge_if_enough, reaches
from logt.reproduce.report import collection_notes
from logt.reproduce.run import select_experiments
from logt.reproduce.shared_builds import build_family, family
from logt.reproduce.trials import TRUNCATED, Points, Trial

pytest.importorskip("matplotlib")


def tiny_plan(benchmark):
    return replace(
        Plan.from_shape(*benchmark.X.shape, quick=True),
        n=20,
        m=3,
        unit_sizes=(20, 30),
        ms=(2, 3),
        Ls=(6, 12),
        ps=(0.5, 1.0),
        R=50,
        batches=(1, 4),
        dictionary_batches=(1, 2),
        cs=(16, 8),
        verified=(0.1, 0.3),
        flann_sample=100,
        flann_checks=(0.1, 1.0),
        efs=(16, 64),
        efforts=(0.2, 1.0),
        list_length=100,
    )


@pytest.fixture(scope="module")
def benchmark():
    return synthetic_benchmark(600, 64, landmarks=6)


class ExactFlann:
    """In place of FLANN, which has no wheel for some processors: it compares with all vectors."""

    def build_index(self, X, **parameters):
        self.X = X
        return {"checks": 32, "speedup": 1.5}

    def used_memory(self):
        return 0

    def nn_index(self, Q, k, **parameters):
        return np.argsort(-(Q @ self.X.T), axis=1)[:, :k], None


@pytest.fixture(scope="module", autouse=True)
def flann():
    import_extra = external.import_extra

    def import_or_stub(name, *more):
        return SimpleNamespace(FLANN=ExactFlann) if name == "pyflann_ibeis" else import_extra(name, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external, "import_extra", import_or_stub)
        yield


@pytest.fixture(scope="module")
def full_run(benchmark, tmp_path_factory):
    """A finished run of all experiments; times are measured once."""
    run = Run(benchmark, tiny_plan(benchmark), tmp_path_factory.mktemp("full"), "1")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ROUNDS", "SINGLE_QUERIES", "BATCH"):
            patch.setattr(f"logt.reproduce.measurement.{name}", 1)
        run()
    return run


@pytest.fixture
def no_figures(monkeypatch):
    """Figures take most of the time, and `full_run` draws them."""
    monkeypatch.setattr("logt.reproduce.plots.saved_figure", lambda *_: nullcontext())
    for name, experiment in EXPERIMENTS.items():
        monkeypatch.setitem(EXPERIMENTS, name, replace(experiment, draw=lambda figure, result: None))


def test_every_experiment_writes_a_csv_two_figures_and_a_section(full_run):
    report = (full_run.out / "report.md").read_text()
    for name, experiment in EXPERIMENTS.items():
        with open(full_run.out / f"{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        measured = [row for row in rows if not row["note"]]
        assert measured
        assert all(0 <= float(row["mAP"]) <= 100 for row in measured)
        assert (full_run.out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "Smoke test: 600 vectors cannot judge the claims" in (full_run.out / f"{name}.svg").read_text()
        assert f"## {experiment.title}\n" in report
    assert "Not run yet" not in report
    assert 0 < report.index("LO-GT\\* and RND\\* add") < report.index("ratio ρ is") < report.index("| experiment")


def test_the_default_index_is_measured_alone_linked_and_diffused(full_run):
    plain, linked, diffused = full_run.result("index").rows[1:]
    assert plain["bytes per vector"] < linked["bytes per vector"] == diffused["bytes per vector"]
    assert diffused["recall@10"] < linked["recall@10"] > 0.9
    assert diffused["mAP"] > plain["mAP"] - 1
    compared = {row["system"]: row["mAP"] for row in full_run.result("comparison").rows}
    assert all(compared[row["system"]] == row["mAP"] for row in (plain, linked, diffused))
    with open(full_run.out / "index.csv", newline="") as file:
        assert [row["complexity"] for row in csv.DictReader(file)][2:] == ["", ""]  # that of the graph is not known


def test_an_interrupted_run_resumes(benchmark, tmp_path, no_figures):
    plan = tiny_plan(benchmark)

    class InterruptedRun(Run):
        def _keep(self, trial, point):
            super()._keep(trial, point)
            if self.new_points == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        InterruptedRun(benchmark, plan, tmp_path, "1")(["group-size"])
    second = Run(benchmark, plan, tmp_path, "1")
    second(["group-size"])
    assert second.new_points == len({t.key for t in EXPERIMENTS["group-size"].trials(plan)}) - 5
    assert (tmp_path / "group-size.csv").exists()
    assert "Not run yet: dense" in (tmp_path / "report.md").read_text()


def test_points_of_other_data_or_another_version_and_half_lines_are_ignored(tmp_path):
    path, trial = tmp_path / "points.jsonl", Trial(Exhaustive())
    Points(path, "data", "1").add(trial, {"rho": 1.0})
    assert Points(path, "data", "1")[trial] == {"rho": 1.0}
    assert not Points(path, "data", "1").has(replace(trial, timed=True))
    assert not Points(path, "data", "1").has(replace(trial, seed=1))
    assert not Points(path, "others", "1").has(trial)
    assert not Points(path, "data", "2").has(trial)
    path.write_text(path.read_text()[:20])
    assert not Points(path, "data", "1").has(trial)
    Points(path, "data", "1").add(trial, {"rho": 2.0})
    assert Points(path, "data", "1")[trial] == {"rho": 2.0}


def test_systems_built_together_equal_those_built_separately(benchmark):
    base = starred(lo_gt(n=20, m=3, L=12))
    methods = [
        base,
        starred(lo_gt(n=20, m=3, L=5)),
        quantized(base, c=16, fit="exact"),
        quantized(base, c=16),
        compact(base),
    ]
    systems = [Composed(method) for method in methods]
    assert len({family(system) for system in systems}) == 1
    assert family(Composed(rnd(n=20, m=3, L=12))) != family(systems[0])
    shared = {system: built for system, built, _ in build_family(systems, benchmark.X, 3, Workers(2))}
    assert len(shared) == len(systems)
    for system in systems:
        separate = system.build(benchmark.X, seed=3)
        assert_same(*(built.index.search(benchmark.Q, 50) for built in (shared[system], separate)))
        assert shared[system].nbytes == separate.nbytes


def test_the_row_of_a_missing_library_has_a_note(benchmark, tmp_path, monkeypatch, no_figures):
    def missing(*_, **__):
        raise MissingExtraError("this baseline needs faiss: pip install 'logt-search[baselines]'")

    with monkeypatch.context() as patch:
        patch.setattr(external, "import_extra", missing)
        Run(benchmark, tiny_plan(benchmark), tmp_path, "1")(["flann"])
    report = (tmp_path / "report.md").read_text()
    assert "not installed: this baseline needs faiss: pip install 'logt-search[baselines]'" in report
    assert "**not tested.** FLANN was not measured" in report
    again = Run(benchmark, tiny_plan(benchmark), tmp_path, "1")
    again(["flann"])
    assert again.new_points > 0


def test_an_unknown_experiment_and_another_metric_are_refused(tmp_path, benchmark):
    with pytest.raises(InvalidInputError, match="no experiment 'magic'; choose from group-size, dense, sparse"):
        select_experiments(["sparse", "magic"])
    assert [experiment.name for experiment in select_experiments(["pq", "dense"])] == ["dense", "pq"]
    with pytest.raises(InvalidInputError, match="uses metric l2"):
        Run(replace(benchmark, metric="l2"), tiny_plan(benchmark), tmp_path, "1")


def values(*by_seed):
    """Return the mAP columns of a row."""
    by_seed = by_seed if len(by_seed) > 1 else by_seed * 2
    return {"mAP": sum(by_seed) / len(by_seed), "mAP by seed": by_seed}


CHANGES = [
    # experiment, change of its rows, start of a claim, verdict
    ("group-size", lambda r: values(20 - r["system"].endswith("*")), "For large units", "holds"),
    ("group-size", lambda r: values(20, 30), "Without the correction", "holds"),
    ("group-size", lambda r: values(20 + 3 * (r["system"] == "LO-GT")), "Without the correction", "does not hold"),
    ("sparse", lambda r: values(30 + 15 * ("LO" in r["system"])), "LO-GT* with", "holds"),
    ("sparse", lambda r: values(30 + (r["system"] == "RND*")), "LO-GT* is more accurate", "does not hold"),
    ("sparse", lambda r: values({"RND": 32, "RND*": 30}.get(r["system"], 31)), "LO-GT without", "holds in part"),
    ("sparse", lambda r: values(30 + (r["L"] == 6) * (r["system"] == "LO-GT*")), "The larger L", "holds"),
    ("cascade", lambda r: values(30 - (r["p"] < 1), 34 - (r["p"] < 1)), "The cascade", "does not hold"),
    ("cascade", lambda r: values(30 - 4 * (r["p"] < 1), 34 + 2 * (r["p"] < 1)), "The cascade", "undecided"),
    (
        "comparison",
        lambda r: {**values(30), "complexity": 0.01 if "back" in r["system"] else 0.2},
        "GT with back",
        "not tested",
    ),
    ("comparison", lambda r: values(30 - 3 * ("sums" in r["system"])), "Sums and", "does not hold"),
    ("comparison", lambda r: {"ms": 1.0 + 3 * (r["system"] == "LO-GT*")}, "The correction has", "does not hold"),
    (
        "hnsw",
        lambda r: {TRUNCATED: 40 if r["system"] == "HNSW" else 50, "time ratio": 0.5},
        "LO-GT* clearly",
        "undecided",
    ),
    (
        "hnsw",
        lambda r: {TRUNCATED: 40 + ("LO" in r["system"]), "time ratio": 0.5, "list depth": 100},
        "LO-GT* clearly",
        "holds",
    ),
    ("flann", lambda r: {"recall@1": 0.5, "time ratio": 0.1}, "FLANN, tuned", "not tested"),
    ("flann", lambda r: {"recall@1": 0.5, "time ratio": 0.9}, "FLANN, tuned", "holds"),
    ("flann", lambda r: {"recall@1": 0.99, "time ratio": 0.1}, "FLANN, tuned", "does not hold"),
    ("pq", lambda r: values(30 - 5 * (r["system"] == "U from Y")), "Fitting U", "holds"),
]


@pytest.mark.parametrize(("name", "change", "statement", "verdict"), CHANGES)
def test_each_verdict_follows_its_values(full_run, name, change, statement, verdict):
    result = full_run.result(name)
    rows = [row if row.get("note") else {**row, **change(row)} for row in result.rows]
    claims = {claim.statement: claim.verdict for claim in EXPERIMENTS[name].claims(replace(result, rows=rows))}
    assert [found for text, found in claims.items() if text.startswith(statement)] == [verdict]


def test_only_batches_as_large_as_the_papers_are_judged(full_run):
    result = full_run.result("batches")
    large = replace(result, plan=replace(result.plan, count=100_000))
    steady = [{**row, **values(30)} for row in result.rows]
    fallen = [{**row, **values(30 - row["b"])} for row in result.rows]
    assert EXPERIMENTS["batches"].claims(replace(large, rows=steady))[0].verdict == "holds"
    assert [claim.verdict for claim in EXPERIMENTS["batches"].claims(replace(large, rows=fallen))[:2]] == [
        "does not hold",
        "holds",
    ]


def test_values_are_compared_seed_by_seed():
    thirty = SeedMean((30.0,))
    assert equal(thirty, SeedMean((30.4,)))
    assert above(SeedMean((31.1,)), thirty)
    assert not above(SeedMean((30.9,)), thirty)  # with one seed, less than a point is not significant
    assert reaches(SeedMean((29.6,)), thirty)
    assert reaches(SeedMean((29.4,)), thirty) is None
    assert reaches(SeedMean((28.4,)), thirty) is False
    one, other = SeedMean((30.0, 34.0, 32.0)), SeedMean((29.0, 33.1, 30.9))
    assert above(one, other)  # by one point for each seed, although they vary by two
    assert equal(one, other) is False
    assert equal(one, SeedMean((34.0, 30.0, 31.0))) is True
    assert equal(one, SeedMean((34.0, 30.0, 29.0))) is None
    assert not above(one, SeedMean((34.0, 30.0, 29.0)))
    assert (one - SeedMean((29.0,))).values == (1.0,)
    assert judge([True, True]) == "holds"
    assert judge([True, False]) == judge([True, None]) == "holds in part"
    assert judge([False]) == judge([False, None]) == "does not hold"
    assert judge([None]) == "undecided"
    assert judge([]) == "not tested"


def test_claims_are_judged_with_enough_vectors():
    claim = Claim("it is better", "does not hold", "-3.0 at n=20")
    assert judge_if_enough(claim, 10_000) == claim
    assert judge_if_enough(claim, 9_999) == replace(claim, verdict="too few vectors")


def test_settings_scale_with_the_dimension_and_the_collection():
    assert Plan.from_shape(105_000, 2048).Ls == (50, 100, 150, 200, 250, 300)
    assert Plan.from_shape(105_000, 1536).batches == (1, 10, 20, 50, 100)
    small = Plan.from_shape(1000, 128)
    assert small.L == 32
    assert small.batches == (1, 10)
    assert max(small.cs) == 32


def test_the_report_says_that_a_synthetic_collection_cannot_judge_the_paper():
    (note,) = collection_notes(synthetic_benchmark(10_000, 16, landmarks=4))
    assert "The collection is synthetic" in note


def test_the_command_finishes_and_reports_wrong_names(tmp_path, benchmark, run_logt, no_figures):
    wrong = run_logt("reproduce", "--only", "magic", "--out", tmp_path / "out", ok=False)
    assert "choose from group-size, dense" in wrong
    assert not (tmp_path / "out").exists()
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "vectors.npy", benchmark.X)
    np.save(data / "queries.npy", benchmark.Q)
    truth = [{"positives": rows.tolist(), "junk": []} for rows in benchmark.truths["known answer"].positives]
    (data / "ground_truth.json").write_text(json.dumps({"queries": truth}))
    words = ("--data", data, "--out", tmp_path / "out", "--quick", "--only", "group-size", "pq")
    printed = run_logt("reproduce", *words)
    assert "protocol original" in printed
    first = (
        f"{len(benchmark.X):,} vectors show that everything runs. They are too few to judge the claims of the paper"
    )
    assert printed.startswith(first)
    report = (tmp_path / "out" / "report.md").read_text()
    assert first in report
    assert "**too few vectors**" in report
    assert not re.search(r"\*\*(holds|does not hold|undecided)", report)
    assert (tmp_path / "out" / "pq.csv").exists()
    assert not (tmp_path / "out" / "dense.csv").exists()
