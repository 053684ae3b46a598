"""Files of revisited Oxford and Paris and of ILIAS: features, ground truths, results, and `logt evaluate`."""

import json
import os
import pickle

import numpy as np
import pytest
from exact_index import built

import logt
from logt.datasets import load_benchmark
from logt.datasets.ground_truth import read_results, read_truths
from logt.datasets.pickles import read_pickle
from logt.evaluation import average_precision_at, evaluate, revisited_setups

EASY, HARD, JUNK = [[0, 1], [10]], [[2], []], [[3], [11, 12]]


def revisited(array=np.array, **more):
    lists = zip(EASY, HARD, JUNK, strict=True)
    kinds = ("easy", "hard", "junk")
    gnd = [{"bbx": [1.5], **{k: array(v, np.int64) for k, v in zip(kinds, some, strict=True)}} for some in lists]
    return {"gnd": gnd, **more}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "array", [np.array, lambda rows, kind: [kind(row) for row in rows]], ids=["arrays", "scalars"]
)
def test_a_benchmark_of_vectors_and_a_pickled_ground_truth_is_loaded(tmp_path, vectors, protocol, array):
    np.save(tmp_path / "vectors.npy", vectors(20, 8))
    np.save(tmp_path / "queries.npy", vectors(2, 8))
    (tmp_path / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(revisited(array), protocol))
    truths = load_benchmark(tmp_path).truths
    for name, expected in revisited_setups(EASY, HARD, JUNK).items():
        for mine, theirs in zip(
            truths[name].positives + truths[name].junk, expected.positives + expected.junk, strict=True
        ):
            assert mine.tolist() == theirs.tolist()


class Crafted:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize("content", [Crafted(), np.array([Crafted()]), {"gnd": np.dtype("O")}, np.array(["a"])])
def test_a_pickle_of_anything_but_plain_data_is_refused_and_runs_no_code(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(logt.InvalidInputError, match="is not a pickle of plain data: it "):
        read_pickle(tmp_path / "x.pkl")
    assert os.listdir() == ["x.pkl"]


def test_an_array_of_a_pickle_takes_no_more_memory_than_its_bytes_and_can_be_empty(tmp_path):
    class Crafted:
        def __init__(self, *state):
            self.state = state

        def __reduce__(self):
            return *np.empty(0).__reduce__()[:2], *self.state

    file = tmp_path / "x.pkl"
    file.write_bytes(pickle.dumps([Crafted()]))
    assert list(read_pickle(file)[0]) == []
    file.write_bytes(pickle.dumps([Crafted((1, (1 << 30,), np.dtype("u1"), False, 1 << 30))]))
    with pytest.raises(logt.InvalidInputError, match="memoryview"):
        read_pickle(file)
    file.write_bytes(b"}" + pickle.LONG_BINPUT + (1 << 30).to_bytes(4, "little") + b".")
    with pytest.raises(logt.InvalidInputError, match="numbers an object 1,073,741,824"):
        read_pickle(file)


@pytest.mark.parametrize("row", ["-1", "1e300", "1" + "0" * 400, "NaN", "0.5", '"a"'])
def test_a_ground_truth_has_integers_from_0_on(tmp_path, row):
    (tmp_path / "truth.json").write_text(f'{{"queries": [{{"positives": [{row}], "junk": []}}]}}')
    with pytest.raises(logt.InvalidInputError, match="positives of a query"):
        read_truths(tmp_path / "truth.json", ["q"])


def test_results_with_impossible_numbers_are_refused(tmp_path):
    (tmp_path / "results.json").write_text('{"q": {"a": 1%s, "b": 1}}' % ("0" * 400))
    with pytest.raises(logt.InvalidInputError, match="a score that is not a number"):
        read_results(tmp_path / "results.json")
    (tmp_path / "truth.json").write_text('{"queries": [{"positives": [1], "junk": []}]}')
    for number in ("9" * 30, "9" * 5000):
        with pytest.raises(logt.InvalidInputError, match="the ground truth has numbers of rows"):
            read_truths(tmp_path / "truth.json", ["q"]).to_rows([number])


def test_average_precision_at_k_is_that_of_scikit_learn_as_ilias_scales_it():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for _ in range(50):
        ranking, positives = rng.permutation(40), rng.choice(60, rng.integers(1, 20), replace=False)
        top = np.isin(ranking[:15], positives)
        expected = metrics.average_precision_score(top, -np.arange(15)) * top.sum() if top.any() else 0.0
        assert average_precision_at(15, ranking, positives) == pytest.approx(expected / min(15, len(positives)))
    assert np.isnan(average_precision_at(5, ranking, []))
    assert average_precision_at(3, [9, 4, 5], [4], junk=[9]) == 1


@pytest.mark.parametrize("strings", [False, True])
def test_evaluate_prints_the_protocols_of_revisited_oxford(tmp_path, vectors, run_logt, strings):
    X = vectors(50, 16)
    names = [f"photo_{row}" for row in range(50)]
    built(X, [f"{name}.jpg" for name in names] if strings else None).save(tmp_path / "i")
    np.save(tmp_path / "q.npy", X[[0, 10]] + X[[1, 11]])
    (tmp_path / "gnd.pkl").write_bytes(pickle.dumps(revisited(imlist=names)))
    words = ("--queries", tmp_path / "q.npy", "--ground-truth", tmp_path / "gnd.pkl", "-k", 40, "--effort", 1)
    scores = json.loads(run_logt("evaluate", tmp_path / "i", *words, "--results", tmp_path / "r.json", "--json"))
    plain = built(X).search(X[[0, 10]] + X[[1, 11]], 40, effort=1).ids
    for name, truth in revisited_setups(EASY, HARD, JUNK).items():
        assert scores[name]["mean_ap"] == pytest.approx(evaluate(plain, truth).mean_ap)
        assert (scores[name]["depth"], scores[name]["queries"]) == (40, 1 if name == "hard" else 2)
    again = run_logt("evaluate", tmp_path / "r.json", "--ground-truth", tmp_path / "gnd.pkl", "--json")
    assert json.loads(again) == scores
    shown = run_logt("evaluate", tmp_path / "i", *words)
    assert all(word in shown for word in ("easy", "medium", "hard", "mAP@1k", "rankings of 40 results"))


def test_evaluate_reads_the_files_of_ilias(tmp_path, vectors, run_logt):
    h5py = pytest.importorskip("h5py")
    X = vectors(60, 16)
    names = [f"{'cat' if row < 3 else 'dog'}/P{row}" if row < 6 else f"yfcc/{row}" for row in range(60)]
    for file, rows, ids in (("db", X, names), ("queries", X[[0, 3]], ["cat/Q0", "dog/Q0"])):
        with h5py.File(tmp_path / f"{file}.hdf5", "w") as opened:
            opened["index"], opened["features"] = ids, rows.astype(np.float16)
    (tmp_path / "image_ids").mkdir()
    (tmp_path / "image_ids" / "positive_ids.txt").write_text("".join(f"{name},0.5,3\n" for name in names[:6]))
    run_logt("build", tmp_path / "db.hdf5", tmp_path / "i")
    words = ("evaluate", tmp_path / "i", "--queries", tmp_path / "queries.hdf5", "--ground-truth", tmp_path)
    score = json.loads(run_logt(*words, "--results", tmp_path / "r.json", "--json"))["ILIAS"]
    found = json.loads((tmp_path / "r.json").read_text())
    assert list(found) == ["cat/Q0", "dog/Q0"]
    assert next(iter(found["dog/Q0"])) == "dog/P3"
    assert len(found["cat/Q0"]) == 60
    ranked = ([names.index(name) for name in found[query]] for query in found)
    expected = [
        average_precision_at(1000, rows, some) for rows, some in zip(ranked, ([0, 1, 2], [3, 4, 5]), strict=True)
    ]
    assert score["mean_ap_1k"] == pytest.approx(100 * np.mean(expected))
    built(X).save(tmp_path / "numbers")
    (tmp_path / "r.json").write_text('{"bird/Q": {}}')
    for words, message in (
        (("evaluate", tmp_path / "i", "--ground-truth", tmp_path), "--queries is missing"),
        (("evaluate", tmp_path / "r.json", "--ground-truth", tmp_path), "no positive images of query 'bird/Q'"),
    ):
        assert message in run_logt(*words, ok=False)


@pytest.mark.parametrize("content", ['{"q": [1]}', "[", '{"q": {"a": "high"}}'])
def test_damaged_results_are_refused(tmp_path, content, run_logt):
    (tmp_path / "r.json").write_text(content)
    assert "error" in run_logt("evaluate", tmp_path / "r.json", "--ground-truth", tmp_path / "gnd.json", ok=False)
