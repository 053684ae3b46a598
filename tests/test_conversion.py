"""Indexes of faiss become indexes of logt: their vectors, ids and metric."""

import json
import sys
import warnings

import numpy as np
import pytest
from exact_index import unmeasured

import logt

faiss = pytest.importorskip("faiss")


N, D = 600, 16


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return (rng.standard_normal((12, D))[rng.integers(0, 12, N)] + rng.standard_normal((N, D))).astype("f4")


def build(X, factory, metric=faiss.METRIC_L2, ids=None):
    index = faiss.index_factory(X.shape[1], factory, metric)
    index.train(X)
    if ids is None:
        index.add(X)
    else:
        index.add_with_ids(X, ids)
    return index


def found_first(index, X):
    return index.search(X[:200], 1).ids[:, 0]


@pytest.mark.parametrize("factory", ["Flat", "HNSW16", "IVF8,Flat", "SQ8", "RR16,IVF8,SQ8"])
def test_the_vectors_and_their_rows_are_kept(X, factory):
    index = logt.from_faiss(build(X, factory))
    assert (index.ntotal, index.dim, index.metric) == (N, D, "l2")
    assert np.mean(found_first(index, X) == np.arange(200)) > 0.97
    if "SQ" not in factory:
        direct = logt.Index(D, metric="l2")
        direct.add(X)
        np.testing.assert_array_equal(index.search(X[:50]).scores, direct.search(X[:50]).scores)


@pytest.mark.parametrize("factory", ["IDMap,Flat", "IDMap2,Flat", "RR16,IVF8,SQ8", "IDMap,IVF8,Flat"])
def test_ids_are_kept(X, factory):
    ids = 7 * np.arange(N)[::-1] + 10**9
    index = logt.from_faiss(build(X, factory, ids=ids))
    assert np.mean(found_first(index, X) == ids[:200]) > 0.97


def test_the_metric_is_kept_or_chosen(X):
    flat = build(X, "Flat", faiss.METRIC_INNER_PRODUCT)
    assert logt.from_faiss(flat).metric == "ip"
    assert logt.from_faiss(flat, metric="cosine").metric == "cosine"
    other = build(X, "Flat", faiss.METRIC_L1)
    with pytest.raises(logt.InvalidInputError, match="metric type 2, which logt does not have; pass metric='cosine'"):
        logt.from_faiss(other)
    assert len(logt.from_faiss(other, metric="l2")) == N
    assert len(logt.from_faiss(faiss.IndexFlatL2(8))) == 0
    assert len(logt.from_faiss(faiss.IndexIDMap(faiss.IndexFlatL2(8)))) == 0


@pytest.mark.parametrize(
    ("factory", "loss"),
    [
        ("PQ4", "the faiss IndexPQ has codes of 2 bytes for 16 dimensions"),
        ("IDMap,IVF8,SQ4", "the faiss IndexIVFScalarQuantizer has codes of 8 bytes for 16 dimensions"),
        ("PCA8,Flat", "the faiss index has projected its vectors from 16 to 8 dimensions"),
        ("PQ4,RFlat", ""),
        ("PCA16,IVF8,SQ8", ""),
    ],
)
def test_a_warning_says_what_the_faiss_index_has_lost(X, factory, loss):
    given = faiss.index_factory(D, factory.replace("PQ4", "PQ4x4"))
    given.train(X)
    given.add_with_ids(X, np.arange(N)) if "IDMap" in factory else given.add(X)
    with warnings.catch_warnings(record=True) as warned, unmeasured():
        warnings.simplefilter("always")
        logt.from_faiss(given)
    expected = [f"{loss}; an index of the original vectors finds more"] if loss else []
    assert [str(warning.message) for warning in warned] == expected


def test_an_index_that_was_not_trained_is_refused(tmp_path):
    for factory in ("IVF8,Flat", "PQ4", "IDMap,PCA8,Flat"):
        with pytest.raises(logt.InvalidInputError, match="is not trained and has no vectors; train it and add"):
            logt.from_faiss(faiss.index_factory(D, factory))


def test_what_cannot_be_converted_is_refused(X, tmp_path):
    with pytest.raises(logt.InvalidInputError, match="IndexPreTransform cannot reconstruct its vectors"):
        logt.from_faiss(build(X, "PCAW8,Flat"))  # whitened
    for wrong in (faiss.IndexBinaryFlat(D), X):
        with pytest.raises(logt.InvalidInputError, match="index must be a faiss index"):
            logt.from_faiss(wrong)
    with pytest.raises(FileNotFoundError, match="file not found"):
        logt.from_faiss(tmp_path / "none.faiss")
    (tmp_path / "wrong.faiss").write_bytes(b"nothing of the kind")
    with pytest.raises(logt.InvalidInputError, match=r"wrong\.faiss is not an index that faiss can read"):
        logt.from_faiss(tmp_path / "wrong.faiss")


def test_replicas_are_read_and_shards_are_refused_before_faiss_starts_threads(X):
    replicas, shards = faiss.IndexReplicas(D), faiss.IndexShards(D)
    parts = [faiss.IndexFlatL2(D) for _ in range(4)]  # which replicas and shards do not keep alive
    for replica, shard in zip(parts[:2], parts[2:], strict=True):
        replicas.add_replica(replica)
        shards.add_shard(shard)
    replicas.add(X)
    assert len(logt.from_faiss(replicas)) == N
    with_ids = faiss.IndexIDMap(shards)
    with_ids.add_with_ids(X, np.arange(N))
    for index in (shards, with_ids):
        with pytest.raises(logt.InvalidInputError, match=f"{type(index).__name__} cannot reconstruct its vectors"):
            logt.from_faiss(index)


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(logt.MissingExtraError, match=r"pip install 'logt-search\[faiss\]'"):
        logt.from_faiss("x.faiss")


def test_the_command_converts_a_file(X, tmp_path, run_logt, monkeypatch):
    faiss.write_index(build(X, "Flat"), str(tmp_path / "x.faiss"))
    words = ("convert", tmp_path / "x.faiss", tmp_path / "index", "--bits", 4)
    report = json.loads(run_logt(*words, "--json"))
    assert (report["vectors"], report["metric"]) == (N, "l2")
    assert logt.open(tmp_path / "index").search(X[5], 1).ids.tolist() == [5]
    assert "--overwrite" in run_logt(*words, ok=False)
    run_logt(*words, "--overwrite", "--metric", "cosine")
    assert logt.open(tmp_path / "index").metric == "cosine"
    faiss.write_index(build(X, "SQ4"), str(tmp_path / "sq4.faiss"))
    said = []
    monkeypatch.setattr("logt.cli.vectors.say", lambda text, *_: said.append(text))
    run_logt("convert", tmp_path / "sq4.faiss", tmp_path / "sq4")
    assert [text.split(" has")[0] for text in said] == ["warning: the faiss IndexScalarQuantizer"]
